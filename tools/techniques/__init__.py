"""The techniques, a file each."""
