"""Reports: what runs and suites came to, read from their directories and shown to people."""
