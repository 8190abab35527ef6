"""The side that asks a GPU's worker: starts it, holds the GPU, reads what it answers."""
