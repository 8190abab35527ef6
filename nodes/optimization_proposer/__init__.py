"""Optimization proposer: techniques put on the table for this code."""
