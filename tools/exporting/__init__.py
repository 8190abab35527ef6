"""A winner in forms that work without this program: a KernelBench solution, an operator, a file."""
