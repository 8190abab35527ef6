"""A run as it is read from outside: how far it is, what it announced."""
