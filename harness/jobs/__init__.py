"""Evaluation on another host: the jobs of a file, run there."""
