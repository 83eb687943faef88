"""Curators' decisions: the project file that stores them, learning from them, and the next pair to decide."""
