"""Kernel writer: the chosen technique lowered into code."""
