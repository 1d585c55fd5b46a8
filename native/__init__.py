"""What touches the machine: compiled kernels and their cache, memory, waiting, rings, batches of frames, sockets."""
