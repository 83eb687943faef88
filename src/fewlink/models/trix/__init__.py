"""TRIX, a published model that reads any graph, with its published weights or fine-tuned."""
