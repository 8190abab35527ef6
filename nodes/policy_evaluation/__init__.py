"""Policy evaluation: measured against expected gain."""
