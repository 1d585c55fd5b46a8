"""What touches the machine, in three rooms: compiled `kernels`, `wires` that move frames, and the `process` itself."""
