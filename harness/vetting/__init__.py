"""What a candidate may not be: read in its text, its objects and its machine code."""
