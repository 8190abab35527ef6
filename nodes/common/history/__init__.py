"""What a run has done: its steps, kernels, losers, and what was learned at once."""
