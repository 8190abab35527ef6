"""State extractor: the performance signature of the kernel at hand."""
