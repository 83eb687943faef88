"""Curators' decisions: kept in a project file, learnt from, and which pair to decide next."""
