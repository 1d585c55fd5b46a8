"""PyTorch's side: a c10d process group whose reductions a switch computes, and hooks for DistributedDataParallel."""
