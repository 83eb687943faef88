"""Baselines: learning-free scorers, and embedding models that see the references as triples."""
