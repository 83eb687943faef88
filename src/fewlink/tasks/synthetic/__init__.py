"""Synthetic benchmarks with the shape of NELL-One or Wiki-One and planted rules."""
