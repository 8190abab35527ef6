"""What a person sees of it: output, tables, the terminal, progress, a bench as it goes."""
