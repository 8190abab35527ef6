"""What runs in the reference's child process, beside PyTorch."""
