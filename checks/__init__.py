"""What is not product: benchmarks, fuzzing, soak, verification of the protocol, PyTorch's own tests."""
