"""How the text of a kernel is written: loops, loads, stores, what is left to somebody else."""
