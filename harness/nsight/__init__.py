"""NVIDIA's own tools: Nsight Compute and Compute Sanitizer, asked and read."""
