"""What is asked for: a PyTorch reference as a task, its dimensions, cases and contract."""
