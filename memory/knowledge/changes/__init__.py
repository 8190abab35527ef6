"""Changes of what a base says: which may be written, what they came to, how they are undone."""
