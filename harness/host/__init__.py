"""A candidate's host half: run in a process of its own, and what it asks of the GPU, as a plan."""
