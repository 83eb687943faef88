"""Checks what is stored: folders, runs, results, projects and weights."""
