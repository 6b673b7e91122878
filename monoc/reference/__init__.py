"""What a layer should compute: its program in torch on the CPU, in the stated rounding and exactly."""
