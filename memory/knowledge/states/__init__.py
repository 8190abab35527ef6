"""In which situation a kernel is: its signature, the states near it, facts that conditions name."""
