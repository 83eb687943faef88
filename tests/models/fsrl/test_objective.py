"""The joint objective by hand, and as the reference has it."""

from __future__ import annotations

import math

import pytest
import torch

from fewlink.models.fsrl.learner import hinge, objective, softmax
from fewlink.models.fsrl.reference import joint_loss, ranking_loss
from fewlink.models.fsrl.settings import FewShotSettings


def test_hinge_by_hand() -> None:
    positive = torch.tensor([[7.0, 1.0, -2.0], [0.0, 0.0, 0.0]])  # two runs
    negative = torch.tensor([[[1.0], [0.0], [4.0]], [[-9.0], [-9.0], [1.0]]])
    assert hinge(positive, negative, 5.0).tolist() == pytest.approx([(0 + 4 + 11) / 3, 6 / 3])
    assert hinge(torch.tensor([[1.0]]), torch.tensor([[[0.5, -3.0]]]), 1.0).tolist() == pytest.approx([(0.5 + 0) / 2])


def test_softmax_by_hand() -> None:
    positive = torch.tensor([[math.log(3.0)], [300.0], [-300.0]])  # three runs
    negative = torch.tensor([[[0.0, math.log(2.0)]], [[-300.0, -300.0]], [[300.0, -300.0]]])
    assert softmax(positive, negative).tolist() == pytest.approx([-math.log(3 / 6), 0, 600])


def test_objective_is_the_reference() -> None:
    scores = torch.randn(1, 1, 10, dtype=torch.float64)
    found = objective(scores, torch.tensor([[3.0]]), FewShotSettings(batch=5, margin=1.0, reconstruction=0.25))
    rank = ranking_loss(*scores.flatten().chunk(2), xi=1.0)
    torch.testing.assert_close(found.total[0], joint_loss(rank, torch.tensor(3.0), gamma=0.25))
