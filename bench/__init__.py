"""Many runs as one: planned, locked, run in parallel, gone on with, set side by side, run again."""
