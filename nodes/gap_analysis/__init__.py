"""Performance-gap analysis: why measurement and policy disagree."""
