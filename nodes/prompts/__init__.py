"""What models are told: one template a role, rendered within the role's budget of tokens."""
