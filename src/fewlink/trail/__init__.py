"""TRAIL: paths, vectors, profiles and references as evidence, weighed by how reliable each kind is."""
