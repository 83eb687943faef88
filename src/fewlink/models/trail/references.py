"""What TRAIL counts about any number of references: their edges and ends, and the relations around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from fewlink.core.seeds import hashes_of
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.propagation.product import ExtraEdges, Norms, edge_constants

SAMPLE = 32  # references whose walks and names are read; of more a fixed sample
FACTS = 9


class References(NamedTuple):
    """The references of L tasks on one graph with 2R relations, padded to P pairs with E ends and a sample of S.

    ends      (L, E)      the distinct entities, as nodes of the edges that are read
    marks     (L, 2, E)   1 where an end is the head, the tail of a reference
    pairs     (L, P, 2)   each reference as places in `ends`
    fans      (L, P, 2)   one over the references with the same head, with the same tail
    used      (L, P)      1, or 0 for padding
    sample    (L, S)      places in `pairs`
    sampled   (L, S)      1, or 0 for padding
    around    (L, 2, 2R)  the share of references whose head, whose tail has each relation
    cover     (L, 2, 2R)  the share of the entities with each relation that are heads, tails of references
    turned    (L, 2, 2)   the share of references whose head is the head of another, is a tail; whose tail is a head,
                          is the tail of another
    sizes     (L, 2, 5)   of the new relation and its inverse, as `ReadGraph.sizes`
    facts     (L, FACTS)  log(K) / 2; distinct heads, distinct tails / K; mean log(1 + visible edges) / 8 of heads, of
                          tails; the shares of the most frequent head and tail, of references whose inverse is one, and
                          of heads that are tails
    visible   (L, 2R)     1, or 0 for relations that the task must not see
    named     (L,)        1, or 0 if the task must not see names
    """

    ends: Tensor
    marks: Tensor
    pairs: Tensor
    fans: Tensor
    used: Tensor
    sample: Tensor
    sampled: Tensor
    around: Tensor
    cover: Tensor
    turned: Tensor
    sizes: Tensor
    facts: Tensor
    visible: Tensor
    named: Tensor

    def to(self, device: torch.device) -> References:
        return References(*(each.to(device, non_blocking=True) for each in self))

    @property
    def entities(self) -> Tensor:
        """The heads and tails (L, P, 2), as nodes."""
        return self.ends.gather(1, self.pairs.flatten(1)).view_as(self.pairs)

    @property
    def sampled_entities(self) -> Tensor:
        """The heads and tails of the sample (L, S, 2), as nodes."""
        picked = self.pairs.gather(1, self.sample[..., None].expand(-1, -1, 2))
        return self.ends.gather(1, picked.flatten(1)).view_as(picked)

    def edges(self) -> ExtraEdges:
        """The references as edges of the new relation, then of its inverse: 2 · L · P of them."""
        count, ends = self.ends.shape
        task = torch.arange(count, device=self.ends.device)[:, None]
        at = self.pairs + (task * ends)[..., None]
        heads, tails = (each.flatten() for each in at.unbind(-1))
        rows = (self.ends * count + task).flatten()
        return ExtraEdges(rows, torch.cat([heads, tails]), torch.cat([tails, heads]))

    def constants(self, width: int, norms: Norms) -> Tensor:
        """The constants of these edges (2, L, P, width), 0 for padding."""
        out, into = self.fans.unbind(-1)
        both = [edge_constants(out, into, width, norms), edge_constants(into, out, width, norms)]
        return torch.stack(both) * self.used[..., None]


def read_references(
    graph: ReadGraph,
    pairs: np.ndarray,
    *,
    visible: np.ndarray | None = None,
    named: bool = True,
    size: int | None = None,
    sample: int = SAMPLE,
    rng: np.random.Generator | None = None,
) -> References:
    """One task with distinct references (K, 2), on the CPU; `visible` (2R,): by default what the graph shows.

    Of more than `sample` references, an `rng` draws the sample; by default it is those with the lowest hashes, whatever
    their order, so that one more reference changes at most one of the sample. With a `size`, pairs are padded to it,
    ends to twice as many, and the sample to `sample`.
    """
    count = len(pairs)
    ends, places = np.unique(pairs, return_inverse=True)
    places = places.reshape(-1, 2)
    heads, tails = places.T
    out, into = (np.bincount(column, minlength=len(ends)) for column in (heads, tails))
    seen = graph.visible if visible is None else visible
    around, cover = _around(graph, ends, out, into)
    degrees = graph.degrees_of(ends, seen)
    chosen = np.arange(count)
    if count > sample and rng is None:
        chosen = np.sort(np.argpartition(hashes_of(pairs), sample)[:sample])
    elif count > sample and rng is not None:
        chosen = rng.choice(count, sample, replace=False)
    numbers = {
        "marks": np.stack([out > 0, into > 0]),
        "fans": np.stack([1 / out[heads], 1 / into[tails]], 1),
        "used": np.ones(count),
        "sampled": np.ones(len(chosen)),
        "around": around * seen,
        "cover": cover * seen,
        "turned": _turned(heads, tails, out, into),
        "sizes": _sizes(count, int((out > 0).sum()), int((into > 0).sum())),
        "facts": _facts(np.log1p(degrees) / 8, heads, tails),
        "visible": seen,
        "named": np.array(named),
    }
    ids = {"ends": ends, "pairs": places, "sample": chosen}
    tensors = {name: torch.from_numpy(array.astype(np.float32)) for name, array in numbers.items()}
    tensors |= {name: torch.from_numpy(array.astype(np.int64)) for name, array in ids.items()}
    read = References(**{name: tensor[None] for name, tensor in tensors.items()})
    return read if size is None else padded(read, size, sample, graph.edges.nodes)


def padded(references: References, size: int, sample: int, nodes: int) -> References:
    """One task with `size` pairs, twice as many ends, and a sample of `sample`."""
    more_pairs = size - references.pairs.shape[1]
    more_ends = 2 * size - references.ends.shape[1]
    more_samples = sample - references.sample.shape[1]
    # padding is spread over many rows, since additions to one row wait for each other on a GPU
    spread = torch.arange(more_ends)[None] * 7919 % nodes
    places = (torch.arange(more_pairs) % (2 * size))[None, :, None].expand(-1, -1, 2)
    return references._replace(
        ends=torch.cat([references.ends, spread], 1),
        marks=pad(references.marks, (0, more_ends)),
        pairs=torch.cat([references.pairs, places], 1),
        fans=pad(references.fans, (0, 0, 0, more_pairs)),
        used=pad(references.used, (0, more_pairs)),
        sample=pad(references.sample, (0, more_samples)),
        sampled=pad(references.sampled, (0, more_samples)),
    )


def stacked(tasks: Sequence[References]) -> References:
    """Tasks of one graph, padded alike, as one."""
    return References(*(torch.cat(columns) for columns in zip(*tasks, strict=True)))


def distinct_pairs(pairs: np.ndarray) -> np.ndarray:
    """Pairs (K, 2), each once, in the order in which they come first."""
    _, first = np.unique(pairs, axis=0, return_index=True)
    return np.asarray(pairs, np.int64)[np.sort(first)]


def _around(graph: ReadGraph, ends: np.ndarray, out: np.ndarray, into: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`around` and `cover`, hidden relations included, given the references that leave and enter each end."""
    firsts, _, owners = graph.graph.slots_of(ends)
    relations = graph.graph.relation_ids[firsts]
    sizes = np.diff(graph.graph.slots.offsets)
    around = []
    cover = []
    for counts in (out, into):
        own = counts[owners] > 0
        around.append(np.bincount(relations[own], counts[owners[own]], minlength=graph.relations) / counts.sum())
        cover.append(np.bincount(relations[own], minlength=graph.relations) / np.maximum(sizes, 1))
    return np.stack(around), np.stack(cover)


def _turned(heads: np.ndarray, tails: np.ndarray, out: np.ndarray, into: np.ndarray) -> np.ndarray:
    at_heads = [(out[heads] > 1).mean(), (into[heads] > 0).mean()]
    at_tails = [(out[tails] > 0).mean(), (into[tails] > 1).mean()]
    return np.array([at_heads, at_tails])


def _sizes(count: int, heads: int, tails: int) -> np.ndarray:
    logs = [math.log1p(number) / 10 for number in (count, heads, tails)]
    own = [*logs, math.log1p(count / heads) / 4, math.log1p(count / tails) / 4]
    return np.array([own, [own[0], own[2], own[1], own[4], own[3]]])


def _facts(degrees: np.ndarray, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """The facts of references as places, given log(1 + edges) / 8 of each end."""
    count = len(heads)
    ends = len(degrees)
    keys = heads * ends + tails
    turned = tails * ends + heads
    own = [np.bincount(column) for column in (heads, tails)]
    return np.array(
        [
            math.log(count) / 2,
            *((counts > 0).sum() / count for counts in own),
            *(degrees[column].mean() for column in (heads, tails)),
            *(counts.max() / count for counts in own),
            np.isin(turned, keys).mean(),
            np.isin(heads, tails).mean(),
        ]
    )
