"""The knowledge base: evidence, states, policy and lessons."""
