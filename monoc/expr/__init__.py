"""The expression IR and its two readings (FlyDSL source, torch values)."""
