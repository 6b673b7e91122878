"""An emitted package held against the reference of its spec, on the simulator (docs/verify.md)."""
