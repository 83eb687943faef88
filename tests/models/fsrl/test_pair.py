"""Pair encoders: numbers by hand, the reference, and grids of scores."""

from __future__ import annotations

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

PAIRS = [Concatenation, FeedForward]
MATCHERS = [InnerProduct, RecurrentMatching, ZeroStartMatching]
every_pair = pytest.mark.parametrize("kind", PAIRS)
every_matcher = pytest.mark.parametrize("matching", MATCHERS)
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
@every_matcher
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


@every_matcher
@every_pair
def test_a_heads_scores_do_not_depend_on_other_heads_to_the_last_bit(
    kind: type[nn.Module], matching: type[Matcher]
) -> None:
    pair, matcher = parameters_of(kind(50), 1).float(), parameters_of(matching(100, 2), 20).float()
    h, t, vectors = (normal(i, n, w).float() for i, n, w in ((2, 7, 50), (3, 33, 50), (4, 3, 100)))
    together = pair.grid(matcher, h, t, vectors)
    for i in range(7):
        assert torch.equal(pair.grid(matcher, h[i : i + 1], t, vectors), together[i : i + 1])
