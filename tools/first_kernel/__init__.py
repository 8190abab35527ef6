"""From a PyTorch program to a first, plain CUDA kernel."""
