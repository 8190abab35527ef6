"""Soft verifier: the winner read beside the reference."""
