"""Candidates in the simulated GPU: memory, launches, blocks, and what they report."""
