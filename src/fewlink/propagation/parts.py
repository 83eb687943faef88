"""The part of a large graph that can matter to a question: a bounded number of edges, whatever the graph's size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fewlink.graph import Graph
from fewlink.graph.csr import spans
from fewlink.propagation.edges import EdgeTable, edge_fans

ROUNDS = 4  # times that the neighbours of reached entities are reached in turn
SHARE = 0.25  # of the edges that one entity may have and still be expanded


class GraphPart(NamedTuple):
    """Some entities of a graph: `nodes` (n,) their ids, sorted; `edges` between them, numbered by place in `nodes`."""

    nodes: np.ndarray
    edges: EdgeTable

    def places(self, entities: np.ndarray) -> np.ndarray:
        """The place of each entity among the nodes, or -1."""
        at = np.minimum(np.searchsorted(self.nodes, entities), len(self.nodes) - 1)
        return np.where(self.nodes[at] == entities, at, -1)


def graph_part(graph: Graph, sources: np.ndarray, most_edges: int) -> GraphPart:
    """The neighbourhood of some entities, with at most about 2 · `most_edges` edges.

    Entities are expanded (all their edges are taken) in the order of the share of random walks from the sources that
    passes through each of their edges, until `most_edges` are taken; an edge is taken with its inverse. Walks choose
    among the relations of an entity first, then among the edges of that relation.
    """
    degrees, (fan_out, fan_in) = graph.degrees, edge_fans(graph)
    reached = np.unique(np.asarray(sources, np.int64))
    mass = np.full(len(reached), 1 / len(reached))
    expanded, taken, left = np.zeros(0, np.int64), [], most_edges
    for rounds in range(ROUNDS):
        waiting = ~np.isin(reached, expanded)
        nodes, weight = reached[waiting], mass[waiting]
        size = degrees[nodes]
        order = np.argsort(-weight / np.maximum(size, 1), kind="stable")
        order = order[size[order] <= SHARE * most_edges]
        limit = left if rounds == ROUNDS - 1 else left * (rounds + 1) / ROUNDS
        order = order[np.cumsum(size[order]) <= limit]
        nodes, weight = nodes[order], weight[order]
        edges, owners = spans(graph.offsets[nodes], graph.offsets[nodes + 1])
        if not len(edges):
            break
        taken.append(edges)
        left -= len(edges)
        shares = weight[owners] * fan_out[edges]
        shares /= np.maximum(np.bincount(owners, fan_out[edges], len(nodes)), 1e-9)[owners]  # relations of the owner
        everyone = np.concatenate([reached, graph.tail_ids[edges]])
        both, which = np.unique(everyone, return_inverse=True)
        mass = np.bincount(which, np.concatenate([mass, shares]))
        reached, expanded = both, np.concatenate([expanded, nodes])
    edges = np.concatenate([np.zeros(0, np.int64), *taken])
    heads, relations, tails = graph.head_ids[edges], graph.relation_ids[edges], graph.tail_ids[edges]
    half = len(graph.relations)
    alone = ~np.isin(tails, expanded)  # of the others the inverse is taken too
    inverse = (relations[alone] + half) % (2 * half)
    columns = (
        np.concatenate([np.searchsorted(reached, heads), np.searchsorted(reached, tails[alone])]),
        np.concatenate([relations, inverse]),
        np.concatenate([np.searchsorted(reached, tails), np.searchsorted(reached, heads[alone])]),
        np.concatenate([fan_out[edges], fan_in[edges][alone]]),
        np.concatenate([fan_in[edges], fan_out[edges][alone]]),
    )
    return GraphPart(reached, EdgeTable.of_edges(*columns, nodes=len(reached), relations_count=2 * half))
