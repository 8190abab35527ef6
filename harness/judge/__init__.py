"""Verdicts: is an answer right, is it all, and how long did it take."""
