"""Parameter update: the knowledge base rewritten from the gap analysis."""
