"""From counters to time: the time model, its advice, and the profile they make."""
