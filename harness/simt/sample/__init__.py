"""A launch at full dimensions from few of its blocks: which to run, how to scale."""
