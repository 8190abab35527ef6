"""The speed of light of a task: what no kernel of it can be faster than."""
