"""Checks of stored folders, runs, results, projects and weights against their checksums."""
