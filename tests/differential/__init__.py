"""Programs on which the C core and the reference executor are held against each other."""
