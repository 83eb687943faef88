"""ULTRA, a published model that reads any graph, with its published weights or tuned."""
