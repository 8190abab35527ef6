"""What outlives a step: a run's replay buffer, artifacts and ledger, and the knowledge base."""
