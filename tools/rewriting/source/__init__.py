"""CUDA source as a syntax tree: its kernels, launches, loops and constants, read and edited."""
