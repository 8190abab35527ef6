"""What agents act with: models, CUDA source, techniques, first kernels, the gates, wording."""
