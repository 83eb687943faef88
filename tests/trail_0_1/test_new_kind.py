"""A kind of evidence is one class and one entry in KINDS: it trains, scores, explains, is saved and opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.trail_0_1.test_learner import tables, tiny
from tests.training.runs import umls
from torch import Tensor

from fewlink.base.errors import FewlinkError
from fewlink.scorers import Question
from fewlink.trail_0_1.context import Features, Pairs
from fewlink.trail_0_1.evidence import KINDS
from fewlink.trail_0_1.evidence.base import ColumnEvidence, ExplainedPair
from fewlink.trail_0_1.learner import Trail01Learner
from fewlink.trail_0_1.scorer import Trail01Scorer
from fewlink.training.run import RunConfig, open_run
from fewlink.training.trainer import train_run


class ParityEvidence(ColumnEvidence):
    """Whether the numbers of head and candidate are both even or both odd: nothing that anybody needs."""

    kind = "parity"
    words = "the parity of numbers"
    columns = ("same parity",)

    @classmethod
    def extract(cls, pairs: Pairs) -> Features:
        return (((pairs.heads.ids.unsqueeze(1) - pairs.candidates.ids) % 2 == 0).float().unsqueeze(-1),)

    @classmethod
    def single_score(cls, pairs: Pairs) -> Tensor:
        return cls.extract(pairs)[0].squeeze(-1)

    def reasons(self, pair: ExplainedPair) -> dict[str, Any]:
        return {"neighbours": [("head", 0, int(pair.inputs.heads), 1.0)]}  # behind what the tail shares


@pytest.fixture
def parity(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(KINDS, "parity", ParityEvidence)
    yield


def test_a_new_kind_trains_scores_explains_and_is_opened_again(parity: None, tmp_path: Path) -> None:
    train_run(umls(), tables(), tiny(steps=2), tmp_path / "run")
    scorer = open_run(tmp_path / "run", umls())
    assert isinstance(scorer, Trail01Scorer) and scorer.evidence["parity"] == "the parity of numbers"
    assert scorer.model.widths["parity"] == 1
    assert scorer.model.weighing.gate[0].in_features == 2 * 5 + 2  # its reliability is measured too
    task = umls().split("dev")[0]
    question = Question(task.name, task.pairs[:3], np.unique(task.pairs[3:, 0])[:4], task.range)
    assert torch.as_tensor(scorer(question)).isfinite().all()
    reasons = scorer.explain(task.pairs[:3], int(task.pairs[3, 0]), int(task.pairs[3, 1]), most=1000)
    assert "parity" in reasons.shares and ("head", 0, int(task.pairs[3, 0]), 1.0) in reasons.neighbours
    assert json.loads((tmp_path / "run/config.json").read_text())["parts"]["evidence"] == [*KINDS]


def test_a_run_opens_with_the_kinds_it_was_trained_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_run(umls(), tables(), tiny(steps=2), tmp_path / "run")
    task = umls().split("dev")[0]
    question = Question(task.name, task.pairs[:3], np.unique(task.pairs[3:, 0])[:4], task.range)
    before = torch.as_tensor(open_run(tmp_path / "run", umls())(question))
    monkeypatch.setitem(KINDS, "parity", ParityEvidence)  # another kind is there since
    assert torch.equal(torch.as_tensor(open_run(tmp_path / "run", umls())(question)), before)
    assert "parity" not in RunConfig.read(tmp_path / "run").parts["evidence"]


def test_a_run_of_a_kind_that_is_not_there_names_it(parity: None, tmp_path: Path) -> None:
    train_run(umls(), tables(), tiny(steps=2), tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(KINDS, "parity")
        with pytest.raises(FewlinkError, match="unknown kind of evidence 'parity'"):
            open_run(tmp_path / "run", umls())


def test_a_reason_that_there_is_not_is_named_with_its_kind(parity: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParityEvidence, "reasons", lambda self, pair: {"rumours": []})
    learner = Trail01Learner(umls(), tables(), tiny(), [0])
    with pytest.raises(FewlinkError, match="reason of the kind parity: 'rumours'"):
        learner.scorer(0).explain(umls().split("dev")[0].pairs[:3], 0, 1)
