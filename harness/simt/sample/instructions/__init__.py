"""What instructions cost: how many machine instructions each is, and how long a warp takes."""
