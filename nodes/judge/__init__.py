"""Judge: corrects a wrong candidate, or names the one thing that would make a right one faster."""
