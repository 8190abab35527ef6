"""Devices behind one protocol; registry.py opens them by name."""
