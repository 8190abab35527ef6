"""The simulated GPU: PTX executed on the CPU, counted and timed by a model."""
