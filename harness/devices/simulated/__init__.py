"""The simulated GPU as a device: its runs, what is judged at full dimensions, the time taken."""
