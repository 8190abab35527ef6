"""What is expected of a technique on the kernel at hand."""
