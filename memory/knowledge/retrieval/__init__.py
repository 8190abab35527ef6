"""What a knowledge base finds by words: texts compared, exactly or by an index."""
