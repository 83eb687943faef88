"""The joint objective by hand, and against a literal loop over the sums of Eqs. 9 and 10."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.models.fsrl.objective import hinge, objective, softmax
from fewlink.models.fsrl.reference import joint_loss, ranking_loss


def test_hinge_by_hand() -> None:
    positive = torch.tensor([[7.0, 1.0, -2.0], [0.0, 0.0, 0.0]])  # two runs
    negative = torch.tensor([[[1.0], [0.0], [4.0]], [[-9.0], [-9.0], [1.0]]])
    assert hinge(positive, negative, 5.0).tolist() == pytest.approx([(0 + 4 + 11) / 3, 6 / 3])
    assert hinge(torch.tensor([[1.0]]), torch.tensor([[[0.5, -3.0]]]), 1.0).tolist() == pytest.approx([(0.5 + 0) / 2])


def test_softmax_by_hand() -> None:
    positive = torch.tensor([[math.log(3.0)], [300.0], [-300.0]])  # three runs
    negative = torch.tensor([[[0.0, math.log(2.0)]], [[-300.0, -300.0]], [[300.0, -300.0]]])
    assert softmax(positive, negative, 5.0).tolist() == pytest.approx([-math.log(3 / 6), 0, 600])


def test_objective_is_the_reference() -> None:
    scores = torch.randn(1, 1, 10, dtype=torch.float64)
    found = objective(scores, torch.tensor([[3.0]]), 5, loss="hinge", margin=1.0, weight=0.25)
    rank = ranking_loss(*scores.flatten().chunk(2), xi=1.0)
    torch.testing.assert_close(found.total[0], joint_loss(rank, torch.tensor(3.0), gamma=0.25))


def literal(scores: Tensor, reconstruction: Tensor, queries: int, loss: str, margin: float, gamma: float) -> Tensor:
    """Eqs. 9 and 10 pair by pair, the scores of query q's n-th polluted tail lying at queries + q · N + n."""
    episodes, count = scores.shape[0], scores.shape[1] // queries - 1
    total = scores.new_zeros(())
    for e in range(episodes):
        for q in range(queries):
            true = scores[e, q]
            polluted = [scores[e, queries + q * count + n] for n in range(count)]
            if loss == "hinge":
                for false in polluted:
                    total = total + torch.relu(margin + false - true) / (episodes * queries * count)
            else:
                parts = true.exp() + sum(false.exp() for false in polluted)
                total = total - (true.exp() / parts).log() / (episodes * queries)
        total = total + gamma * reconstruction[e] / episodes
    return total


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
@pytest.mark.parametrize(
    ("runs", "episodes", "queries", "count"), [(1, 1, 1, 1), (1, 1, 5, 1), (1, 1, 4, 3), (1, 2, 3, 2), (3, 2, 2, 3)]
)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_objective_and_its_gradients_equal_the_literal_sums(
    loss: str, runs: int, episodes: int, queries: int, count: int, temperature: float
) -> None:
    random = torch.Generator().manual_seed(queries * count)
    shape = (runs, episodes, queries * (1 + count))
    scores = torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_()
    reconstruction = torch.rand(runs, episodes, generator=random, dtype=torch.float64).requires_grad_()
    found = objective(scores, reconstruction, queries, loss=loss, margin=1.0, weight=0.25, temperature=temperature)
    each = zip(scores / temperature, reconstruction, strict=True)
    expected = torch.stack([literal(s, r, queries, loss, 1.0, 0.25) for s, r in each])
    torch.testing.assert_close(found.total, expected)
    torch.testing.assert_close(found.total, found.rank + 0.25 * found.reconstruction)
    for mine, theirs in zip(
        torch.autograd.grad(found.total.sum(), [scores, reconstruction]),
        torch.autograd.grad(expected.sum(), [scores, reconstruction]),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_an_unknown_loss_is_named() -> None:
    with pytest.raises(FewlinkError, match="hinge"):
        objective(torch.zeros(1, 1, 2), torch.zeros(1, 1), 1, loss="hing", margin=1.0, weight=0.0)
