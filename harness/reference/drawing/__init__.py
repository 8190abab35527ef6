"""What the tensors of a case hold."""
