"""Pair encoders: numbers by hand, the reference, and grids of scores."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.models.fsrl.oracle import assert_same, close, matched, normal, paired, parameters_of
from torch import Tensor, nn

from fewlink.models.fsrl import grid as grids
from fewlink.models.fsrl.grid import blocks
from fewlink.models.fsrl.matcher import InnerProduct, Matcher, RecurrentMatching, ZeroStartMatching
from fewlink.models.fsrl.pair import Concatenation, FeedForward, PairEncoder

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


def test_the_head_and_the_tail_part_of_a_grid_by_hand() -> None:
    # relu(h) goes to the head: 3 → 6 and −2 → −2; 2·relu(t + 1) − 1 to the tail: 1 → 4, −3 → −4 and 0 → 1
    heads, tails = {3.0: 6.0, -2.0: -2.0}, {1.0: 4.0, -3.0: -4.0, 0.0: 1.0}
    for head in (True, False):
        matcher, vectors = read_out(head)
        found = by_hand().grid(matcher, numbers(*([h] for h in heads)), numbers(*([t] for t in tails)), vectors)
        close(found, [[norm(h, t)[0 if head else 1] for t in tails.values()] for h in heads.values()])


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3)])
@pytest.mark.parametrize("dim", [1, 3])
@every_pair
def test_a_pair_encoder_is_the_reference(kind: type[nn.Module], dim: int, shape: tuple[int, ...]) -> None:
    pair = parameters_of(kind(dim), 1)
    heads, tails = (normal(seed, *shape, dim).requires_grad_() for seed in (50, 51))
    fast = ends(pair, heads, tails)
    assert fast.shape == (*shape, 2 * dim)
    assert_same([fast], [paired(pair, heads, tails)], [*pair.parameters(), heads, tails])


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
def test_a_grid_in_pieces_is_the_same_on_every_device(
    kind: type[nn.Module], matching: type[Matcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, matcher = parameters_of(kind(2), 1), parameters_of(matching(4, 2), 20)
    grid_of = matcher, normal(2, 3, 2), normal(3, 7, 2), normal(4, 2, 4)
    whole = pair.grid(*grid_of)
    for device, limit in ((CPU, "GATES_ON_CPU"), (GPU, "GATES_ON_GPU")):
        monkeypatch.setattr(grids, "blocks", lambda h, t, count, _, device=device: blocks(h, t, count, device))
        for most in (1, 4, 14, 28, 1 << 18):
            monkeypatch.setattr(grids, limit, 16 * most)  # pairs of four numbers, each with four gates
            close(pair.grid(*grid_of), whole)


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


def test_a_pair_without_any_deviation_is_b_and_has_gradients() -> None:
    pair = parameters_of(FeedForward(2), 1)
    pair.outer.weight.data.zero_()
    pair.outer.bias.data.zero_()
    heads = torch.full((1, 2), 0.3, dtype=torch.float64, requires_grad=True)
    found = ends(pair, heads, heads)
    close(found, pair.b.detach()[None])
    found.sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in (heads, *pair.parameters()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_pair
def test_large_inputs_give_no_nan(kind: type[nn.Module], dtype: torch.dtype) -> None:
    pair = parameters_of(kind(3), 1).to(dtype)
    heads, tails = ((1e4 * normal(seed, 4, 3)).to(dtype).requires_grad_() for seed in (2, 3))
    found = ends(pair, heads, tails)
    found.sum().backward()
    assert found.dtype == dtype and found.isfinite().all()
    assert all(leaf.grad.isfinite().all() for leaf in (heads, tails, *pair.parameters()))


sizes = {
    "heads": st.integers(0, 6),
    "tails": st.integers(0, 9),
    "numbers": st.integers(1, 15),
    "most": st.integers(1, 720),
}


@pytest.mark.parametrize("device", [CPU, GPU])
@given(**sizes)
def test_blocks_cover_every_cell_once_and_are_not_too_large(
    device: torch.device, heads: int, tails: int, numbers: int, most: int
) -> None:
    covered = torch.zeros(heads, tails)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "GATES_ON_CPU" if device == CPU else "GATES_ON_GPU", most)
        for rows, columns in blocks(heads, tails, numbers, device):
            covered[rows, columns] += 1
            cells = covered[rows, columns].numel()
            assert cells == 1 or cells * 4 * numbers <= most
            assert device == GPU or covered[rows].shape[0] == 1  # on the CPU one head at a time
    assert (covered == 1).all()


def test_blocks_as_they_are() -> None:
    # as many as fit for four vectors of 200: 2⁹ / 4 candidates of one head, or 2¹⁸ / 4 / 1000 = 65 heads of 1000
    near, far = list(blocks(2, 200, 4 * 200, CPU)), list(blocks(100, 1000, 4 * 200, GPU))
    assert near == [(slice(i, i + 1), slice(j, j + 128)) for i in (0, 1) for j in (0, 128)]
    assert far == [(slice(i, i + 65), slice(0, 1000)) for i in (0, 65)]
    # half as many where they are twice as wide
    assert next(blocks(2, 200, 4 * 400, CPU)) == (slice(0, 1), slice(0, 64))
    assert next(blocks(100, 1000, 4 * 400, GPU)) == (slice(0, 32), slice(0, 1000))
