"""A program as it is translated: its values, sizes, arrays and operations."""
