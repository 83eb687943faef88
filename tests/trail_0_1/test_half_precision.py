"""Vectors in half precision: half the bytes, and nearly the same scores."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from fewlink.base.errors import FewlinkError
from fewlink.data import open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.embeddings import Embeddings, EmbeddingSettings
from fewlink.fewshot.learner import assemble
from fewlink.fewshot.model import FewShotScorer, FewShotSettings
from fewlink.scorers import Question
from fewlink.trail_0_1.context import GraphContext
from fewlink.trail_0_1.learner import pretrain_views
from fewlink.trail_0_1.model import Trail01Settings, build
from fewlink.trail_0_1.scorer import Trail01Scorer
from fewlink.training import pretrain
from fewlink.training.trainer import train_run
from fewlink.training.vectors import fold_in

UMLS = open_benchmark("umls")
TASK = UMLS.split("test")[0]
QUESTION = Question(TASK.name, TASK.pairs[:3], TASK.pairs[3:8, 0], TASK.range)


def vectors_of(entities: int, relations: int, model: str = "complex") -> Embeddings:
    random = torch.Generator().manual_seed(0)
    sizes = (entities, 20), (2 * relations, 20)
    return Embeddings(*(torch.randn(size, generator=random) for size in sizes), model)


def near(one: torch.Tensor, two: torch.Tensor) -> bool:
    return not torch.equal(one, two) and float((one - two).abs().max()) < 0.01 * float(one.abs().max())


def test_a_table_is_halved_and_made_whole_again() -> None:
    table = vectors_of(9, 2)
    half = table.half_precision()
    assert half.entities.dtype == torch.float16 and half.relations.dtype == torch.float32
    assert half.single_precision().entities.dtype == torch.float32 and table.single_precision() is table
    heads, relations, tails = torch.arange(9), torch.arange(9) % 4, torch.arange(9).flip(0)
    assert near(table.score(heads, relations, tails), half.score(heads, relations, tails))
    assert near(table.score_all(heads, relations), half.score_all(heads, relations))
    assert half.score_all(heads, relations, tails).dtype == torch.float32


@pytest.mark.parametrize("model", ["fsrl", "gmatching-maxp", "fsrl-released", "fsrl-tuned"])
def test_few_shot_models_look_at_half_vectors(model: str) -> None:
    table = vectors_of(len(UMLS.graph.entities), len(UMLS.graph.relations))
    scores = []
    for vectors in (table, table.half_precision()):
        scorer = FewShotScorer(model, *assemble(UMLS.graph, vectors, FewShotSettings(model), "cpu"))
        scores.append(torch.as_tensor(scorer(QUESTION)))
    assert near(*scores)


def test_trail_reads_half_vectors() -> None:
    graph = known_graph(UMLS)
    tables = [vectors_of(len(graph.entities), len(graph.relations), model) for model in ("complex", "transe")]
    model = build("trail-0.1")
    scores = [
        Trail01Scorer("trail-0.1", model, GraphContext(graph, *some))(QUESTION)
        for some in (tables, [table.half_precision() for table in tables])
    ]
    assert near(*scores)


def test_pretraining_keeps_half_vectors_and_training_takes_them(tmp_path: Path) -> None:
    settings = EmbeddingSettings(dim=8, epochs=1)
    whole, half = (pretrain(UMLS, settings, out=tmp_path / str(half), half=half) for half in (False, True))
    stored = Embeddings.open(tmp_path / "True")
    assert torch.equal(stored.entities, whole.entities.half()) and torch.equal(stored.entities, half.entities)
    quick = {"steps": 4, "evaluate_every": 4, "batch": 4}
    assert train_run(UMLS, stored, FewShotSettings("fsrl", **quick), tmp_path / "run").best_step == 4
    tuned = FewShotSettings("fsrl", **quick, embedding_rate=0.1)
    assert train_run(UMLS, stored, tuned, tmp_path / "tuned").best_step == 4


def test_trail_keeps_half_vectors_when_asked(tmp_path: Path) -> None:
    settings = Trail01Settings(views=1, dim=8, complex_epochs=1, transe_epochs=1, half=True)
    made = pretrain_views(UMLS, settings, out=tmp_path / "vectors")
    assert {table.entities.dtype for pair in (made.known, *made.views) for table in pair} == {torch.float16}
    assert {table.dim for table in made.known} == {8}
    with pytest.raises(FewlinkError, match="other settings"):
        pretrain_views(UMLS, dataclasses.replace(settings, half=False), out=tmp_path / "vectors")


def test_a_table_in_half_precision_grows() -> None:
    table = vectors_of(len(UMLS.graph.entities), len(UMLS.graph.relations)).half_precision()
    grown = fold_in(table, UMLS.graph, len(UMLS.graph.entities), len(UMLS.graph.relations), 0)
    assert np.allclose(grown.entities.numpy(), table.entities.float().numpy())
