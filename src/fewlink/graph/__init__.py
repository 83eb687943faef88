"""A knowledge graph, and compiling one from files of triples.

What reads files is loaded on first use, since a compiled graph opens without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewlink.core.memo import lazy_names
from fewlink.graph.graph import Graph
from fewlink.graph.source import CompileReport
from fewlink.graph.types import TypeTable
from fewlink.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fewlink.graph.compile import compile_graph as compile_graph
    from fewlink.graph.neighbours import NeighbourTable as NeighbourTable
    from fewlink.graph.neighbours import neighbour_table as neighbour_table

__all__ = ["CompileReport", "Graph", "NeighbourTable", "TypeTable", "Vocabulary", "compile_graph", "neighbour_table"]
__getattr__ = lazy_names(
    __name__, {"NeighbourTable": "neighbours", "compile_graph": "compile", "neighbour_table": "neighbours"}
)
