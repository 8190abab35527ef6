"""Initial CUDA: the first kernel of a task."""
