"""What launches leave in their outputs, and how much of these all blocks write."""
