"""Helpers of `peer_sim.py`: the hand-written launches of vLLM, fetched on request, run on the simulator."""
