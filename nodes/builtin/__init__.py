"""What the agents do without a language model."""
