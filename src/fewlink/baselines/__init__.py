"""Scorers to compare with: learning-free ones, and embedding models that see the references as triples."""
