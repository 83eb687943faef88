"""What walks between the ends of references say: which relations join them, at which place, and how surely."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.references import References
from fewlink.propagation.product import Norms, relation_sums, relational_product, transposed_product, widened

HOPS = ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0))  # hops before and after an edge of walks of one to three hops
WALK_FEATURES = 3 * len(HOPS)


class Walks(NamedTuple):
    """Walks of one to three hops that join the sampled references.

    Shapes: `features` (L, 2R + 2, WALK_FEATURES), for each length and place of a relation in the walk its chance
    forwards and backwards and the share of references with such a walk; the new relation and its inverse come last.
    `joined` (L, 3): the share of references joined by a walk of each length.
    """

    features: Tensor
    joined: Tensor


@torch.no_grad()
def read_walks(graph: ReadGraph, references: References, dtype: torch.dtype) -> Walks:
    """The walks over the visible edges and over the other references: a reference does not see itself."""
    edges = graph.edges
    count, size = references.sample.shape
    device = references.ends.device
    task = torch.arange(count, device=device)[:, None].expand(-1, size)
    columns = torch.arange(size, device=device).expand(count, -1)
    visible = references.visible[..., None].expand(-1, -1, 2 * size).to(dtype).contiguous()
    extra = references.edges()
    places = torch.arange(references.pairs.shape[1], device=device)
    others = (places[None, :, None] != references.sample[:, None]).to(references.used.dtype)  # (L, P, S)
    constants = references.constants(2 * size, Norms.TWO) * others.repeat(1, 1, 2)  # (2, L, P, 2S)
    over = constants.flatten(0, 2)

    def marks(ends: Tensor) -> Tensor:
        x = torch.zeros(edges.nodes, count, 1, 2 * size, device=device, dtype=dtype)
        for shift in (0, size):
            x[ends, task, 0, columns + shift] = references.sampled.to(dtype)
        return x

    def through(x: Tensor, y: Tensor) -> Tensor:
        """Chances of walks through each relation: (L, 2R + 2, 2S)."""
        sums = relation_sums(x, y, edges, Norms.TWO) * references.visible[..., None]
        first, last = (states.flatten(0, 1)[:, 0] for states in (x, y))
        new = widened(first[extra.rows[extra.sources]]) * widened(last[extra.rows[extra.targets]]) * over
        return torch.cat([sums, new.view_as(constants).sum(2).transpose(0, 1)], 1)

    heads, tails = references.sampled_entities.unbind(-1)
    before = [marks(heads)]
    after = [marks(tails)]
    for _ in range(2):
        forth = relational_product(before[-1], visible, edges, Norms.TWO)
        back = transposed_product(after[-1], visible, edges, Norms.TWO)
        before.append(extra.add_(forth, before[-1], over))
        after.append(extra.add_(back, after[-1], over, transposed=True))
    total = references.sampled.sum(1)
    features = []
    joined = []
    for first, last in HOPS:
        forward, backward = through(before[first], after[last]).split(size, -1)
        share = (forward > 0).to(references.used.dtype)
        features += [_chance(forward).sum(-1), _chance(backward).sum(-1), share.sum(-1)]
        joined.append(share.amax(1).sum(-1) / total)
    by_length = [joined[0], torch.maximum(joined[1], joined[2]), joined[4]]
    return Walks(torch.stack(features, -1) / total[:, None, None], torch.stack(by_length, -1))


def _chance(value: Tensor) -> Tensor:
    """A chance on a logarithmic scale, from 0 to about 1."""
    return torch.log1p(1000 * value) / math.log(1001)
