"""How a run begins: what is asked, resolved once; its directory, its task, its first time."""
