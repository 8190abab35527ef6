"""The reference as a plain list of operations."""
