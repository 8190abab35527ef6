"""The steps of the search: where it goes on from, what is tried together, judged, recorded."""
