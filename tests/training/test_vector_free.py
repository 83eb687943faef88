"""Families without vectors, that read any graph, and whose last weights are kept: a plain one in run folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.conftest import benchmark_of, id_graph, task_of
from tests.training.runs import lines_of, umls, vectors
from tests.training.runs import quick as quick
from torch import Tensor

from fewlink.core.errors import FewlinkError, InputError
from fewlink.graph import Graph
from fewlink.models.contract import Question
from fewlink.models.family import NoVectors, RunState, StepResult, TrainedFamily
from fewlink.models.run import vectors_of
from fewlink.models.settings import ModelSettings
from fewlink.tasks import Benchmark
from fewlink.training import RunConfig, open_run
from fewlink.training.trainer import train_run

FALLING = (1.0, -1.0, -2.0)  # the weight after each step: dev is best after the first


class PlainSettings(ModelSettings):
    model: str = "plain"
    steps: int = 3
    evaluate_every: int = 1
    patience: int = 1

    def decay_at(self, step: int) -> float:
        return 1.0


class DegreeScorer:
    """A weight times the degree of each candidate."""

    name = "plain"

    def __init__(self, graph: Graph, weight: Tensor) -> None:
        self.degrees, self.weight = torch.from_numpy(np.asarray(graph.degrees, np.float32)), weight

    def __call__(self, question: Question) -> Tensor:
        return (self.weight * self.degrees[question.candidates.astype(np.int64)]).expand(len(question.heads), -1)


class PlainLearner:
    steps_at_once = 1

    def __init__(self, graph: Graph) -> None:
        self.graph, self.weight = graph, torch.zeros(1)

    @property
    def weights(self) -> Mapping[str, Tensor]:
        return {"weight": self.weight[None]}

    def run_steps(self, first: int, count: int) -> StepResult:
        self.weight = torch.tensor([FALLING[first + count - 1]])
        return StepResult({"loss": torch.zeros(count, 1)}, 0.0)

    def scorer(self, run: int) -> DegreeScorer:
        return DegreeScorer(self.graph, self.weight)

    def state(self, run: int) -> RunState:
        return RunState({"weight": self.weight}, {})

    def load_state(self, states: Sequence[RunState]) -> None:
        self.weight = states[0].weights["weight"]


class PlainFamily(TrainedFamily[PlainSettings]):
    name = "plain"
    settings = PlainSettings
    models: ClassVar[Mapping[str, str]] = {"plain": "degrees"}  # type: ignore[assignment]

    def learner(self, benchmark: Benchmark, vectors: Any, settings: Any, seeds: Sequence[int]) -> PlainLearner:
        return PlainLearner(benchmark.graph)

    def scorer(
        self,
        benchmark: Benchmark,
        vectors: Any,
        settings: Any,
        weights: dict[str, Tensor],
        *,
        run: Path,
    ) -> DegreeScorer:
        assert isinstance(vectors, NoVectors)
        return DegreeScorer(benchmark.graph, weights["weight"])


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> type[PlainFamily]:
    """The family of every model."""

    class Own(PlainFamily):
        pass

    for module in ("fewlink.models.run", "fewlink.training.trainer"):
        monkeypatch.setattr(f"{module}.trained_family", lambda model: Own())
    return Own


def test_no_vectors_are_kept_and_none_are_taken(family: type[PlainFamily], tmp_path: Path) -> None:
    train_run(umls(), NoVectors(), PlainSettings(), tmp_path / "run")
    assert not (tmp_path / "run" / "embeddings").exists() and isinstance(vectors_of(tmp_path / "run"), NoVectors)
    assert RunConfig.read(tmp_path / "run").embeddings == {"model": "none", "dim": 0, "sha256": ""}
    with pytest.raises(FewlinkError, match="plain"):
        train_run(umls(), vectors(), PlainSettings(), tmp_path / "other")
    assert isinstance(family().fold_in(NoVectors(), umls(), 1, 1), NoVectors)


@pytest.mark.parametrize(("last", "step", "weight"), [(False, 1, 1.0), (True, 3, -2.0)])
def test_the_best_weights_are_those_of_dev_or_the_last(
    family: type[PlainFamily], last: bool, step: int, weight: float, tmp_path: Path
) -> None:
    family.last_is_best = last
    result = train_run(umls(), NoVectors(), PlainSettings(patience=1 if last else 9), tmp_path)
    assert (result.step, result.best_step, result.stopped) == (3, step, "steps")
    assert result.best == lines_of(tmp_path)[step - 1]["dev"]
    assert float(open_run(tmp_path, umls()).weight) == weight  # type: ignore[attr-defined]
    shown = [line["dev"]["mrr"] for line in lines_of(tmp_path)]
    assert shown[0] > shown[2]


def test_another_graph_is_read_where_the_family_reads_any(family: type[PlainFamily], tmp_path: Path) -> None:
    train_run(umls(), NoVectors(), PlainSettings(), tmp_path)
    other = benchmark_of(id_graph([(0, 0, 1), (1, 0, 2)], 4, 1), dev=[task_of([(0, 2)], range(4))])
    with pytest.raises(InputError, match="umls"):
        open_run(tmp_path, other)
    family.any_graph = True
    scorer = open_run(tmp_path, other)
    assert scorer(Question("", np.zeros((1, 2), np.int32), np.array([0, 1]), np.arange(4))).shape == (2, 4)


def test_an_appended_graph_is_read(family: type[PlainFamily], tmp_path: Path) -> None:
    train_run(umls(), NoVectors(), PlainSettings(), tmp_path)
    larger = dataclasses.replace(umls(), graph=id_graph([(0, 0, 1)], 200, 1))
    extended = dataclasses.replace(larger, extended_from=(umls().fingerprint, umls().graph.fingerprint))
    assert len(open_run(tmp_path, extended).degrees) == 200  # type: ignore[attr-defined]
