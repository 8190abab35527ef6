"""Kernels of the kinds that are recognised (elements, rows, products), written again."""
