"""Coder: writes one candidate a round, as the Judge advises or from the reference."""
