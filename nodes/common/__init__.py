"""What several agents share: asking, interrupts, randomness, parts of prompts."""
