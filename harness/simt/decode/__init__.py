"""PTX instructions as the flat rows that the C core executes."""
