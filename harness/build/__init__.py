"""NVIDIA's compiler and the host's: found, called, and what they built kept."""
