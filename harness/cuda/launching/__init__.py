"""Carries out a plan on a real GPU: buffers, the driver, one candidate."""
