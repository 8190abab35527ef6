"""What ptxas made of the PTX: machine code, its blocks and loops, and counts in its terms."""
