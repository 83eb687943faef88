"""MAML and ANIL on FSRL: a step and a score against a literal loop over episodes and held-out references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.fsrl.oracle import close, parameters_of, random_surroundings
from tests.training.runs import quick as quick
from tests.training.runs import small, umls, vectors
from torch import Tensor
from torch.func import functional_call

from fewlink.models.contract import Question
from fewlink.models.fsrl.adaptation import AdaptingScorer, adapted_model, held_out
from fewlink.models.fsrl.compositions import COMPOSITIONS, build
from fewlink.models.fsrl.learner import FewShotLearner, LearnerRun
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.scorer import FewShotScorer
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.tasks.candidates import open_candidates
from fewlink.training.trainer import train_run

both = pytest.mark.parametrize("name", ["fsrl-maml", "fsrl-anil"])
Parameters = Mapping[str, Tensor]


def score(model: FewShotModel, values: Parameters, references: Tensor, pair: Tensor, s: Neighbourhood) -> Tensor:
    """The score of one pair (2,), given references (K, 2), with these parameters."""
    ids = torch.cat([references.flatten(), pair])
    places = torch.arange(len(ids)).view(-1, 2)
    return functional_call(model, dict(values), (ids, places[None, :-1], places[None, -1:], s))[0].squeeze()


def literally_adapted(
    model: FewShotModel,
    values: Parameters,
    references: Tensor,
    false: Tensor,
    s: Neighbourhood,
    settings: FewShotSettings,
) -> dict[str, Tensor]:
    """θ − α ∇θ of the mean hinge loss of every reference (K, 2), held out, against its false tails (K, M)."""
    for _ in range(settings.adaptation_steps):
        losses = []
        for k, (head, tail) in enumerate(references.tolist()):
            others = torch.stack([pair for i, pair in enumerate(references) if i != k])
            true = score(model, values, others, torch.tensor([head, tail]), s)
            for wrong in false[k].tolist():
                negative = score(model, values, others, torch.tensor([head, wrong]), s)
                losses.append((settings.margin + negative - true).clamp_min(0))
        loss = torch.stack(losses).mean()
        chosen = [n for n in values if settings.model == "fsrl-maml" or n.startswith("matcher.")]
        gradients = torch.autograd.grad(loss, [values[n] for n in chosen], allow_unused=True)
        steps = {n: g for n, g in zip(chosen, gradients, strict=True) if g is not None}
        values = {n: v - settings.adaptation_rate * steps[n] if n in steps else v for n, v in values.items()}
    return dict(values)


def test_each_reference_is_held_out_once() -> None:
    references, pairs = held_out(3, 2, "cpu")
    assert references.tolist() == [[[2, 3], [4, 5]], [[0, 1], [4, 5]], [[0, 1], [2, 3]]]
    assert pairs.tolist() == [[[0, 1], [0, 6], [0, 7]], [[2, 3], [2, 8], [2, 9]], [[4, 5], [4, 10], [4, 11]]]


@pytest.mark.parametrize("steps", [1, 2])
@both
def test_an_adapted_model_is_the_literal_one(name: str, steps: int) -> None:
    settings = FewShotSettings(model=name, adaptation_steps=steps, adaptation_rate=0.05, adaptation_negatives=2)
    model, s = parameters_of(build(name, 3), 1), random_surroundings(2, 3, 4)
    references, false = torch.tensor([[1, 2], [3, 4], [5, 6]]), torch.tensor([[0, 3], [1, 5], [2, 4]])
    found = adapted_model(model, s, torch.cat([references.flatten(), false.flatten()]), settings)
    values = {n: v.detach().requires_grad_() for n, v in model.named_parameters()}
    expected = literally_adapted(model, values, references, false, s, settings)
    moved = set()
    for label, value in found.named_parameters():
        close(value.detach(), expected[label].detach())
        moved |= {label.split(".")[0]} if not torch.equal(value, dict(model.named_parameters())[label]) else set()
    assert moved == ({"matcher"} if name == "fsrl-anil" else {"encoder", "aggregator", "matcher"})


def in_double_precision(learner: FewShotLearner) -> FewShotLearner:
    for weight in learner.weights.values():
        weight.data = weight.data.double()
    learner.module.double()
    return learner


@pytest.mark.parametrize("relations", [1, 2])
@both
def test_a_step_has_the_literal_losses_and_gradients(name: str, relations: int) -> None:
    settings = small(
        model=name, batch=3, relations=relations, adaptation_steps=2, adaptation_rate=0.05, adaptation_negatives=2
    )
    runs = [LearnerRun(vectors(), settings.replace(seed=seed)) for seed in (0, 1)]
    learner = in_double_precision(FewShotLearner(umls(), runs))
    ids = learner.ids(0, 1)[:, 0]
    losses = learner.losses(learner.layout.batch(ids))
    losses.total.sum().backward()
    for run in range(2):
        model = learner.module.model
        tables = {f"neighbours.{t}": learner.tables[f"around.neighbours.{t}"][run] for t in ("relations", "entities")}
        s = learner.module.around
        for table, value in tables.items():
            setattr(s.neighbours, table.split(".")[1], value)
        weights = {n.removeprefix("model."): w.detach()[run].requires_grad_() for n, w in learner.weights.items()}
        totals = []
        for episode in ids[run].view(relations, -1):
            references, false, queries, wrong = episode.split([6, 6, 6, 3])
            references, queries = references.view(3, 2), queries.view(3, 2)
            values = literally_adapted(model, weights, references, false.view(3, 2), s, settings)
            margins = []
            for (head, tail), other in zip(queries.tolist(), wrong.tolist(), strict=True):
                true, negative = (score(model, values, references, torch.tensor([head, t]), s) for t in (tail, other))
                margins.append((settings.margin + negative - true).clamp_min(0))
            _, restored = functional_call(
                model,
                values,
                (references.flatten(), torch.arange(6).view(1, 3, 2), torch.zeros(1, 0, 2, dtype=torch.long), s),
            )
            totals.append(torch.stack(margins).mean() + settings.reconstruction * restored.squeeze())
        total = torch.stack(totals).mean()
        close(losses.total[run].detach(), total.detach())
        total.backward()  # the steps are constants: their gradients were taken without a graph
        for label, weight in weights.items():
            expected = torch.zeros_like(weight) if weight.grad is None else weight.grad
            found = learner.weights[f"model.{label}"].grad
            close(torch.zeros_like(weight) if found is None else found[run], expected)


@both
def test_scores_do_not_depend_on_the_other_heads_and_candidates(name: str) -> None:
    settings = small(model=name, adaptation_rate=0.1)
    learner = FewShotLearner(umls(), [LearnerRun(vectors(), settings)])
    scorer = learner.scorer(0)
    assert isinstance(scorer, AdaptingScorer)
    task = umls().split("test")[0]
    references, queries = task.split(3)
    many = scorer(Question(task.name, references, queries[:4, 0], task.range))
    few = learner.scorer(0)(Question(task.name, references, queries[2:3, 0], task.range[5:9]))
    torch.testing.assert_close(many[2:3, 5:9], few)
    assert not torch.allclose(many, scorer.scorer(Question(task.name, references, queries[:4, 0], task.range)))
    one = Question(task.name, references[:1], queries[:4, 0], task.range)
    assert torch.equal(scorer(one), scorer.scorer(one))  # a single reference cannot be held out
    reasons = scorer.explain(references, int(queries[2, 0]), int(task.range[6]))
    assert reasons.score == pytest.approx(float(many[2, 6]), abs=1e-5) and len(reasons.references) == 3
    assert scorer.pair_vectors(references, queries[:5]).shape == (5, 16)


@both
def test_false_tails_of_references_are_likely_and_not_known_to_be_true(name: str) -> None:
    scorer = FewShotLearner(umls(), [LearnerRun(vectors(), small(model=name))]).scorer(0)
    assert isinstance(scorer, AdaptingScorer)
    for task in umls().split("dev"):
        references = task.split(3)[0]
        ids = scorer._ids(references).numpy()
        assert np.array_equal(ids[:6], references.flatten())
        false = ids[6:].reshape(3, -1)
        assert np.isin(false, open_candidates(umls().graph, references)).all()
        for (head, _), drawn in zip(references, false, strict=True):
            assert not np.isin(drawn, references[references[:, 0] == head, 1]).any()
        assert np.array_equal(scorer._ids(references).numpy(), ids)


@both
def test_a_run_trains_evaluates_and_opens(name: str, tmp_path: Any) -> None:
    from fewlink.evaluation import Protocol, evaluate
    from fewlink.models.run import open_run

    result = train_run(umls(), vectors(), small(model=name), tmp_path / "run")
    scorer = open_run(tmp_path / "run", umls())
    assert isinstance(scorer, AdaptingScorer)
    found = evaluate(umls(), scorer, Protocol("dev", 3, "full")).metrics()["micro"]["mrr"]
    assert found == pytest.approx(result.best["mrr"], abs=1e-6)


def test_other_models_do_not_adapt() -> None:
    assert {name for name, composition in COMPOSITIONS.items() if composition.adapts} == {"fsrl-maml", "fsrl-anil"}
    learner = FewShotLearner(umls(), [LearnerRun(vectors(), small())])
    assert isinstance(learner.scorer(0), FewShotScorer)
    assert learner.sampler(torch.arange(2)).reference_negatives.shape == (1, 2, 3, 0)
