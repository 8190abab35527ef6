"""A plain executor of PTX, written from the words of the PTX ISA, to hold the C core against."""
