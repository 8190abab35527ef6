"""A reference at other sizes: smaller ones, unseen ones, the tensors of each."""
