"""Matchers: numbers by hand, the reference's Eq. 8, and grids of scores."""

from __future__ import annotations

import math

import pytest
import torch
from tests.models.fsrl.oracle import close, matched, normal, parameters_of
from torch import nn

from fewlink.models.fsrl.matcher import InnerProduct, Matcher, RecurrentMatching, ZeroStartMatching

RECURRENT = [RecurrentMatching, ZeroStartMatching]
every_matcher = pytest.mark.parametrize(
    ("kind", "steps"), [(InnerProduct, 2), *((kind, steps) for kind in RECURRENT for steps in (1, 2, 4))]
)

QUERY = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
SUMMARY = torch.tensor([[3.0, -1.0]], dtype=torch.float64)


def still(kind: type[RecurrentMatching], steps: int) -> RecurrentMatching:
    """A matcher of pairs of two numbers whose parameters are all zero."""
    matcher = kind(2, steps).double()
    for parameter in matcher.parameters():
        parameter.data.zero_()
    return matcher


def test_inner_product_by_hand() -> None:
    close(InnerProduct(2, 2)(QUERY, SUMMARY), [1 * 3 - 2 * 1])
    close(InnerProduct(2, 2)(QUERY, torch.cat([SUMMARY, 2 * SUMMARY])), [2.0])  # the best of 1 and 2


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("kind", RECURRENT)
def test_counting_steps_by_hand(kind: type[RecurrentMatching], steps: int) -> None:
    # i = f = g = o = 1: c_t = t, g'_t = tanh t in each number; ⟨q + tanh T, f⟩ = 3(1 + tanh T) − (2 + tanh T)
    matcher = still(kind, steps)
    matcher.bias.data[:] = 100.0
    close(matcher(QUERY, SUMMARY), [1 + 2 * math.tanh(steps)])


@pytest.mark.parametrize(
    ("kind", "column", "steps", "read"),
    [
        *((kind, 0, 1, 0.0) for kind in RECURRENT),  # g_0 = 0
        *((kind, 0, 2, 1.0) for kind in RECURRENT),  # g_1 = q + g'_1, g'_1 = tanh tanh 0 = 0: the query's first number
        *((kind, 0, 3, 1 + math.tanh(math.tanh(1))) for kind in RECURRENT),  # g_2 = 1 + tanh tanh 1
        (RecurrentMatching, 2, 1, 3.0),  # f(R) stands behind g from the first step on
        (ZeroStartMatching, 2, 1, 0.0),  # and here from the second
        *((kind, 2, 3, 3.0) for kind in RECURRENT),
        *((kind, 3, 2, -1.0) for kind in RECURRENT),
    ],
)
def test_what_the_cell_remembers_by_hand(kind: type[RecurrentMatching], column: int, steps: int, read: float) -> None:
    # i = o = 1, f = 0 and g = tanh of one number of [g_{t-1} ; f(R)]: g'_t = tanh tanh of it
    matcher = still(kind, steps)
    matcher.bias.data[:] = torch.tensor([100.0, -100.0, 0.0, 100.0]).repeat_interleave(2)
    (matcher.from_state if column < 2 else matcher.from_reference).data[4:6, column % 2] = 1.0
    close(matcher(QUERY, SUMMARY), [1 + 2 * math.tanh(math.tanh(read))])


@pytest.mark.parametrize(("heads", "candidates", "rivals"), [(1, 1, 1), (4, 1, 3), (1, 6, 1), (3, 5, 1), (3, 5, 4)])
@every_matcher
def test_a_grid_holds_the_scores_of_all_pairs(
    kind: type[nn.Module], steps: int, heads: int, candidates: int, rivals: int
) -> None:
    matcher = parameters_of(kind(6, steps), 1)
    h, t, vectors = normal(2, heads, 3), normal(3, candidates, 3), normal(4, rivals, 6)
    grid = matcher.grid(h, t, vectors)
    assert grid.shape == (heads, candidates)
    pairs = torch.stack([torch.cat([a, b]) for a in h for b in t])
    close(grid, matched(matcher, pairs, vectors).reshape(heads, candidates))


@every_matcher
def test_what_is_compared_gives_the_scores(kind: type[Matcher], steps: int) -> None:
    matcher = kind(4, steps).double()  # type: ignore[call-arg]
    queries, vectors = normal(1, 2, 5, 4), normal(2, 2, 3, 4)
    compared = matcher.compared(queries, vectors)
    assert compared.shape == (2, 5, 3, 4)
    close(matcher(queries, vectors), (compared * vectors.unsqueeze(1)).sum(-1).amax(-1))
