"""What runs beside a real GPU: the worker process, its client, and what both need."""
