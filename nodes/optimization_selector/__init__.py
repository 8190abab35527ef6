"""Optimization selector: one technique chosen by expected gain."""
