"""The steps of a run that are no agents, and what a finished run is read by for its report."""
