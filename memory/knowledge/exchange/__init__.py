"""Knowledge that comes from elsewhere or goes there: documents, the published database."""
