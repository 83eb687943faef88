"""Sums of messages over the edges of a graph, on the CPU and on the GPU, with their gradients."""

from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import Norms, relation_sums, relational_product

__all__ = ["EdgeTable", "Norms", "relation_sums", "relational_product"]
