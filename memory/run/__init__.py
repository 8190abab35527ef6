"""What one run keeps: evaluations, steps, artifacts, spending and jobs."""
