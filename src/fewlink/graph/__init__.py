"""A knowledge graph, and compiling one from files of triples."""

from fewlink.graph.compile import compile_graph
from fewlink.graph.graph import Graph
from fewlink.graph.neighbours import NeighbourTable, neighbour_table
from fewlink.graph.source import CompileReport
from fewlink.graph.types import TypeTable
from fewlink.graph.vocabulary import Vocabulary

__all__ = ["CompileReport", "Graph", "NeighbourTable", "TypeTable", "Vocabulary", "compile_graph", "neighbour_table"]
