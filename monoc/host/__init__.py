"""The host library: modules every emitted package carries as they stand here (torch only; aiter on the GPU machine)."""
