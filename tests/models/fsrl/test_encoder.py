"""Neighbour encoders: numbers by hand, the reference's Eq. 2, and invariances."""

from __future__ import annotations

import math

import torch
from tests.models.fsrl.oracle import (
    close,
    surroundings_of,
)
from torch import nn

from fewlink.models.fsrl.encoder import (
    AttentiveNeighbours,
    MeanNeighbours,
    OwnAndNeighbours,
    ProjectedMean,
)
from fewlink.models.fsrl.neighbourhood import Neighbourhood


def by_hand(*relations: float) -> Neighbourhood:
    """Entities ½, 1, 2 in one dimension; entity 0 has the neighbours (r0, 1) and (r1, 2), the others none."""
    entities = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    return surroundings_of(
        entities, torch.tensor(relations, dtype=torch.float64)[:, None], [[(0, 1), (1, 2)], [], []], slots=3
    )


def with_weights(encoder: nn.Module, weights: list[float], bias: float, u: float | None = None) -> nn.Module:
    part = getattr(encoder.double(), "attention", encoder)
    part.projection.weight.data[:] = torch.tensor([weights], dtype=torch.float64)
    part.projection.bias.data[:] = bias
    if u is not None:
        part.u.data[:] = u
    return encoder


def test_attention_by_hand() -> None:
    # logits 2·(½·e_r + 7): 14 and 14 + ln 3, so α = ¼ and ¾, and Σ α e_t = ¼·1 + ¾·2 = 1.75
    encoder = with_weights(AttentiveNeighbours(1), [0.5, 0.0], bias=7.0, u=2.0)
    close(encoder(torch.tensor([0, 1]), by_hand(0.0, math.log(3))), [[math.tanh(1.75)], [math.tanh(1.0)]])


def test_attention_reads_the_entity_too_by_hand() -> None:
    # logits ln 3 · e_t: powers 3 and 9, so Σ α e_t = ¼·1 + ¾·2
    encoder = with_weights(AttentiveNeighbours(1), [0.0, math.log(3)], bias=-2.0, u=1.0)
    close(encoder(torch.tensor(0), by_hand(5.0, 5.0)), [math.tanh(1.75)])


def test_mean_by_hand() -> None:
    # (1 + 2) / 2; entity 2 has no neighbour and is itself
    close(MeanNeighbours(1)(torch.tensor([[0, 2]]), by_hand(0.0, 1.0)), [[[math.tanh(1.5)], [math.tanh(2.0)]]])


def test_projected_mean_by_hand() -> None:
    # (2·0 + 1 + ½) and (2·1 + 2 + ½): the mean of 1.5 and 4.5 is 3
    encoder = with_weights(ProjectedMean(1), [2.0, 1.0], bias=0.5)
    close(encoder(torch.tensor([0, 1]), by_hand(0.0, 1.0)), [[math.tanh(3.0)], [math.tanh(1.0)]])


def test_own_vector_beside_the_neighbours_by_hand() -> None:
    # neighbours as above, 1.75; own vectors 3e − ½: 1 for entity 0 (e = ½), 2½ for entity 1 (e = 1), which has none
    encoder = with_weights(OwnAndNeighbours(1), [0.5, 0.0], bias=7.0, u=2.0)
    encoder.own.weight.data[:], encoder.own.bias.data[:] = 3.0, -0.5
    found = encoder(torch.tensor([0, 1]), by_hand(0.0, math.log(3)))
    close(found, [[math.tanh(1.0), math.tanh(1.75)], [math.tanh(2.5), 0.0]])
