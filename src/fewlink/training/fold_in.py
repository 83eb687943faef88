"""Vectors for entities that were added after training, from the vectors of their neighbours, without training.

Both kinds of vectors predict a tail from a head and a relation: q = h + r for TransE, h ⊙ r for ComplEx. A new entity
gets the mean of what its edges predict for it, in both directions; where the score is an inner product, in which only a
direction is predicted, it gets the mean length of the others. Old vectors stay as they are, to the last bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fewlink.embeddings.table import Embeddings
from fewlink.graph import Graph

SWEEPS = 3  # so that new entities whose neighbours are all new get a vector too
BY_DISTANCE = "transe"


def fold_in(table: Embeddings, graph: Graph, entities: int, relations: int, later: int) -> Embeddings:
    """A table for a graph whose entities from number `entities` on are new, as are `later` relations after the first.

    The rows of task relations, which follow the background's, stay last.
    """
    table, triples = table.single_precision(), torch.from_numpy(graph.triples().astype(np.int64))
    kinds = _relations(table, triples, entities, relations, later)
    more = len(graph.entities) - entities
    vectors = torch.cat([table.entities, table.entities.mean(0, keepdim=True).expand(more, -1)])
    if more:
        vectors = _entities(replace(table, entities=vectors, relations=kinds), triples, entities)
    facts = {**table.facts, "grown": {"entities": more, "relations": later}}
    return replace(table, entities=vectors, relations=kinds, facts=facts)


def _entities(table: Embeddings, triples: Tensor, old: int) -> Tensor:
    """The vectors (E, d), those from `old` on being what their edges (n, 3) predict."""
    rule, half = table.interaction, len(table.relations) // 2
    vectors, placed = table.entities.clone(), torch.arange(len(table.entities)) < old
    length = vectors[:old].norm(dim=1).mean()
    heads, kinds, tails = triples.T
    forward, backward = table.relations[:half], table.relations[half:]
    ways = [(heads, rows[kinds], tails) for rows in (forward, rule.inverse(backward))]
    ways += [(tails, rows[kinds], heads) for rows in (backward, rule.inverse(forward))]
    for _ in range(SWEEPS):
        total, count = torch.zeros_like(vectors), vectors.new_zeros(len(vectors))
        for known, rows, new in ways:
            used = placed[known] & (new >= old)
            total.index_add_(0, new[used], rule.query(vectors[known[used]], rows[used]))
            count.index_add_(0, new[used], count.new_ones(int(used.sum())))
        reached = count > 0
        means = total[reached] / count[reached].unsqueeze(1)
        if table.model != BY_DISTANCE:
            means = means / means.norm(dim=1, keepdim=True).clamp_min(1e-12) * length
        vectors[reached] = means
        placed = placed | reached
    return vectors


def _relations(table: Embeddings, triples: Tensor, entities: int, old: int, later: int) -> Tensor:
    """The relation rows with `later` new ones behind the first `old`, in both directions."""
    half = len(table.relations) // 2
    forward, backward = table.relations[:half], table.relations[half:]
    known = triples[(triples[:, [0, 2]] < entities).all(1)]
    rows = [_relation(table, known[known[:, 1] == number]) for number in range(old, old + later)]
    new = torch.stack(rows) if rows else forward[:0]
    return torch.cat(
        [forward[:old], new, forward[old:], backward[:old], table.interaction.inverse(new), backward[old:]]
    )


def _relation(table: Embeddings, triples: Tensor) -> Tensor:
    """A row for a new relation from its pairs of old entities: the mean offset, or the mean direction t ⊙ conj(h)."""
    mean = table.relations.mean(0)
    if not len(triples) or table.model not in (BY_DISTANCE, "complex", "distmult"):
        return mean
    heads, tails = table.entities[triples[:, 0]], table.entities[triples[:, 2]]
    if table.model == BY_DISTANCE:
        return (tails - heads).mean(0)
    joined = table.interaction.query(tails, table.interaction.inverse(heads)).mean(0)  # t ⊙ conj(h)
    length = float(table.relations.norm(dim=1).mean() / joined.norm().clamp_min(1e-12))
    return length * joined
