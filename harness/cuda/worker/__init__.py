"""The process beside one GPU: holds a task there, verifies and times candidates."""
