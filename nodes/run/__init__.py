"""The steps of a run that are no agents: load, profile, gates, record, confirm, report."""
