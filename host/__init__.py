"""The worker's side: sans-IO engine, kernels, transports and collectives."""
