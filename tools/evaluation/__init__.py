"""The gates of a candidate: compile, verify, profile, confirm."""
