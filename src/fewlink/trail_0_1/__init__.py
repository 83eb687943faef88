"""TRAIL 0.1: paths, vectors, profiles and references as evidence, weighed by how reliable each kind is."""
