"""Which blocks of a grid run, and what they may know of each other."""
