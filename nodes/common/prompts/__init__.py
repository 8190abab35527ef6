"""What goes into prompts, as text: each module turns records into a few lines worth their cost."""
