"""State selector: the known state that fits, or a new one."""
