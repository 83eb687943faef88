"""Pair encoders and matchers: numbers by hand, and grids of scores."""

from __future__ import annotations

import math

import pytest
import torch
from tests.models.fsrl.oracle import close, matched, normal, paired, parameters_of
from torch import Tensor, nn

from fewlink.models.fsrl.matcher import (
    Concatenation,
    FeedForward,
    InnerProduct,
    Matcher,
    PairEncoder,
    RecurrentMatching,
    ZeroStartMatching,
)

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


@every_matcher
def test_what_is_compared_gives_the_scores(kind: type[Matcher], steps: int) -> None:
    matcher = kind(4, steps).double()  # type: ignore[call-arg]
    queries, vectors = normal(1, 2, 5, 4), normal(2, 2, 3, 4)
    compared = matcher.compared(queries, vectors)
    assert compared.shape == (2, 5, 3, 4)
    close(matcher(queries, vectors), (compared * vectors.unsqueeze(1)).sum(-1).amax(-1))


PAIRS = [Concatenation, FeedForward]
MATCHERS = [InnerProduct, RecurrentMatching, ZeroStartMatching]
every_pair = pytest.mark.parametrize("kind", PAIRS)
every_kind = pytest.mark.parametrize("matching", MATCHERS)
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def numbers(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def ends(pair: PairEncoder, heads: Tensor, tails: Tensor) -> Tensor:
    return pair(torch.stack([heads, tails], -2))


def read_out(head: bool) -> tuple[Matcher, Tensor]:
    """A matcher and a vector whose score is the first number of an encoded pair of two, or the second."""
    return InnerProduct(2, 2), numbers([1.0, 0.0] if head else [0.0, 1.0])


def by_hand() -> FeedForward:
    """Inner numbers relu(h), relu(−h), relu(t + 1), relu(−t), of which h gains the first and t twice the third − 1."""
    pair = FeedForward(1).double()
    pair.inner.weight.data = numbers([1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0])
    pair.inner.bias.data = numbers([0.0, 0.0, 1.0, 0.0])[0]
    pair.outer.weight.data = numbers([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0])
    pair.outer.bias.data = numbers([0.0, -1.0])[0]
    return pair


def norm(first: float, second: float) -> list[float]:
    """Of two numbers: half their difference over their unbiased deviation, the difference over √2, and a thousandth."""
    half, deviation = (first - second) / 2, abs(first - second) / 2**0.5
    return [half / (deviation + 0.001), -half / (deviation + 0.001)]


def test_concatenation_by_hand() -> None:
    close(ends(Concatenation(1), numbers([3.0], [1.0]), numbers([2.0], [4.0])), [[3.0, 2.0], [1.0, 4.0]])


@pytest.mark.parametrize(
    ("head", "tail", "y"),
    [
        (3.0, 1.0, (3 + 3, 1 + 2 * 2 - 1)),
        (-2.0, 1.0, (-2 + 0, 1 + 2 * 2 - 1)),  # relu(−2) = 0
        (-2.0, -3.0, (-2 + 0, -3 + 0 - 1)),  # relu(−3 + 1) = 0 as well
    ],
)
def test_feed_forward_by_hand(head: float, tail: float, y: tuple[float, float]) -> None:
    pair = by_hand()
    close(ends(pair, numbers([head]), numbers([tail])), [norm(*y)])
    pair.a.data, pair.b.data = numbers([2.0, 3.0])[0], numbers([10.0, 20.0])[0]
    first, second = norm(*y)
    close(ends(pair, numbers([head]), numbers([tail])), [[10 + 2 * first, 20 + 3 * second]])
    for is_head, expected in ((True, 10 + 2 * first), (False, 20 + 3 * second)):
        matcher, vectors = read_out(is_head)
        close(pair.grid(matcher, numbers([head]), numbers([tail]), vectors), [[expected]])


@pytest.mark.parametrize(("heads", "candidates", "rivals"), [(1, 1, 1), (4, 1, 3), (1, 6, 1), (3, 5, 4)])
@every_kind
@every_pair
def test_a_grid_holds_the_scores_of_all_pairs(
    kind: type[nn.Module], matching: type[Matcher], heads: int, candidates: int, rivals: int
) -> None:
    pair, matcher = parameters_of(kind(3), 1), parameters_of(matching(6, 2), 20)
    h, t, vectors = normal(2, heads, 3), normal(3, candidates, 3), normal(4, rivals, 6)
    grid = pair.grid(matcher, h, t, vectors)
    assert grid.shape == (heads, candidates)
    pairs = paired(pair, h.repeat_interleave(candidates, 0), t.repeat(heads, 1))
    close(grid, matched(matcher, pairs, vectors).view(heads, candidates))


@every_kind
@every_pair
def test_a_heads_scores_do_not_depend_on_other_heads_to_the_last_bit(
    kind: type[nn.Module], matching: type[Matcher]
) -> None:
    pair, matcher = parameters_of(kind(50), 1).float(), parameters_of(matching(100, 2), 20).float()
    h, t, vectors = (normal(i, n, w).float() for i, n, w in ((2, 7, 50), (3, 33, 50), (4, 3, 100)))
    together = pair.grid(matcher, h, t, vectors)
    for i in range(7):
        assert torch.equal(pair.grid(matcher, h[i : i + 1], t, vectors), together[i : i + 1])
