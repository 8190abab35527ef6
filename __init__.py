"""KernelBlaster: agents that rewrite CUDA kernels, measure every rewrite, and remember."""

__version__ = "0.1.0"
