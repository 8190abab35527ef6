"""Asking language models: names, budgets, forms of reply and what they cost."""
