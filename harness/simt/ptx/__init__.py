"""PTX text as records: tokens, scopes, instructions, basic blocks and loops."""
