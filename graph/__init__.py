"""How the agents are wired: one module a graph."""
