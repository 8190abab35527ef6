"""How far an answer may be off: rounding, ties, and what double precision says."""
