"""Helpers of `docking.py`: stand-ins of the vLLM objects that its original docking files touch."""
