"""The device library: the FlyDSL functions stages are made of (copied, as used, into each package's ``device.py``).

Everything here runs while a kernel is traced. Only :mod:`monoc.device.intrinsics` touches names outside
FlyDSL's stable interface. No function knows a model: every dimension is an argument.
"""
