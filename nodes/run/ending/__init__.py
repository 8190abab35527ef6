"""How a run ends: the winner confirmed, at other sizes, kept, and told of."""
