"""TRAIL: one network that reads any graph."""
