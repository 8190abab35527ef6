"""What outlives a run: knowledge base, evidence, replay buffer, artifacts."""
