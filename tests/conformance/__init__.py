"""Tests that every implementation of a port must pass."""
