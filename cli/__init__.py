"""The command line: what a person types, sees and gets back."""
