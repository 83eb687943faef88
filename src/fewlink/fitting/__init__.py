"""Fit a run to a user's triples, and append triples to a benchmark or a run."""
