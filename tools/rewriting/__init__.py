"""CUDA source as syntax: kernels recognised, and written again with other work."""
