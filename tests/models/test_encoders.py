"""Neighbour encoders: numbers by hand, the paper's Eq. 2 neighbour by neighbour, and what must not matter."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from literal import (
    assert_same,
    close,
    gathered,
    literal,
    normal,
    parameters_of,
    places,
    random_surroundings,
    surroundings_of,
)
from torch import nn

from fewlink.models import Surroundings
from fewlink.models.encoders import AttentiveNeighbours, MeanNeighbours, ProjectedMean

ENCODERS = [AttentiveNeighbours, MeanNeighbours, ProjectedMean]
EVERY = torch.arange(7)


def by_hand(*relations: float) -> Surroundings:
    """Entities ½, 1, 2 in one dimension; entity 0 has the neighbours (r0, 1) and (r1, 2), the others none."""
    entities = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    return surroundings_of(
        entities, torch.tensor(relations, dtype=torch.float64)[:, None], [[(0, 1), (1, 2)], [], []], slots=3
    )


def with_weights(encoder: nn.Module, weights: list[float], bias: float, u: float | None = None) -> nn.Module:
    encoder.double()
    encoder.projection.weight.data[:] = torch.tensor([weights], dtype=torch.float64)
    encoder.projection.bias.data[:] = bias
    if u is not None:
        encoder.u.data[:] = u
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


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_is_its_equation(kind: type[nn.Module], dim: int, shape: tuple[int, ...], slots: int) -> None:
    encoder, s = parameters_of(kind(dim), 1), random_surroundings(2, dim, slots)
    s.entities.requires_grad_()
    s.relations.requires_grad_()
    ids = (torch.arange(math.prod(shape)) % 7).reshape(shape)  # entity 0, without a neighbour, is always asked for
    fast = encoder(ids, s)
    assert fast.shape == (*shape, dim)
    slow = gathered(shape, [literal(encoder, int(ids[place]), s) for place in places(shape)])
    assert_same([fast], [slow], [*encoder.parameters(), s.entities, s.relations])


@pytest.mark.parametrize("kind", ENCODERS)
@given(seed=st.integers(0, 10_000), slots=st.integers(1, 6), dim=st.integers(1, 5))
def test_an_encoder_is_its_equation_on_any_graph(kind: type[nn.Module], seed: int, slots: int, dim: int) -> None:
    encoder, s = parameters_of(kind(dim), seed), random_surroundings(seed, dim, slots)
    leaves = [*encoder.parameters(), s.entities.requires_grad_()]
    slow = [literal(encoder, entity, s) for entity in range(7)]
    assert_same([encoder(EVERY, s)], [torch.stack(slow)], leaves)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("added", [1, 5])
def test_padding_changes_nothing(kind: type[nn.Module], added: int) -> None:
    encoder, s = parameters_of(kind(3), 1), random_surroundings(2, 3, 4)
    absent = torch.zeros(7, added, dtype=torch.bool)
    for id_of_padding in (0, 5):
        ids = torch.full((7, added), id_of_padding)
        wider = Surroundings(
            s.entities,
            s.relations,
            torch.cat([s.neighbour_relations, ids], 1),
            torch.cat([s.neighbour_entities, ids], 1),
            torch.cat([s.present, absent], 1),
        )
        close(encoder(EVERY, wider), encoder(EVERY, s))


@pytest.mark.parametrize("kind", ENCODERS)
def test_what_stands_in_a_padded_slot_changes_nothing(kind: type[nn.Module]) -> None:
    encoder, s = parameters_of(kind(3), 1), random_surroundings(2, 3, 4)
    tables = (torch.where(s.present, t, 5) for t in (s.neighbour_relations, s.neighbour_entities))
    close(encoder(EVERY, Surroundings(s.entities, s.relations, *tables, s.present)), encoder(EVERY, s))


@pytest.mark.parametrize("kind", ENCODERS)
@given(order=st.permutations(range(5)))
def test_the_order_of_the_neighbours_changes_nothing(kind: type[nn.Module], order: list[int]) -> None:
    encoder, s = parameters_of(kind(3), 1), random_surroundings(4, 3, 5)
    tables = (t[:, order] for t in (s.neighbour_relations, s.neighbour_entities, s.present))
    close(encoder(EVERY, Surroundings(s.entities, s.relations, *tables)), encoder(EVERY, s))


@pytest.mark.parametrize("slots", [0, 1, 4])
@pytest.mark.parametrize("kind", ENCODERS)
def test_a_graph_without_any_edge(kind: type[nn.Module], slots: int) -> None:
    encoder, s = parameters_of(kind(2), 1), surroundings_of(normal(1, 3, 2), normal(2, 2, 2), [[], [], []], slots)
    found = encoder(torch.arange(3), s)
    close(found, torch.tanh(s.entities))
    if found.requires_grad:
        found.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in encoder.parameters())  # zero, and not NaN


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ENCODERS)
def test_large_parameters_give_no_nan(kind: type[nn.Module], dtype: torch.dtype) -> None:
    encoder, s = parameters_of(kind(3), 1).to(dtype), random_surroundings(2, 3, 4).to(dtype)
    for parameter in encoder.parameters():
        parameter.data *= 1e4
    found = encoder(EVERY, s)
    assert found.dtype == dtype
    assert torch.isfinite(found).all()
    if found.requires_grad:
        found.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)


def test_attention_of_one_neighbour_is_that_neighbour() -> None:
    s = surroundings_of(normal(1, 3, 2), normal(2, 2, 2), [[(1, 2)], [], []])
    close(parameters_of(AttentiveNeighbours(2), 3)(torch.tensor(0), s), torch.tanh(s.entities[2]))


def test_attention_without_preference_is_the_mean() -> None:
    encoder, s = parameters_of(AttentiveNeighbours(3), 1), random_surroundings(2, 3, 4)
    encoder.u.data.zero_()
    close(encoder(EVERY, s), MeanNeighbours(3)(EVERY, s))
