"""A reference's file loaded and called, as in the surroundings its author had."""
