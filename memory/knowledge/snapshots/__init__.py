"""What a knowledge base says as of a sequence number, whatever is written meanwhile."""
