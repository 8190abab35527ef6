"""Tasks, devices, profiles, failures and experience in words, for whoever must act on them."""
