"""KernelBench solutions (`ModelNew` with CUDA sources) taken as first kernels."""
