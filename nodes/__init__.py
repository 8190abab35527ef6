"""The agents, a folder each; the steps of a run; what both share."""
