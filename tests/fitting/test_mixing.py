"""An embedding model in a fit: what it is weighed on, when it is mixed in, and how the run then answers."""

from __future__ import annotations

import functools
import itertools
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import named, quickly, written
from tests.fitting.fits import FOLDER, graph_file

from fewlink.fitting import held_out
from fewlink.fitting.append import append
from fewlink.fitting.fit import Fitted, fit
from fewlink.fitting.held_out import Ranks, estimate, hold_out_of_large
from fewlink.fitting.mixing import (
    WEIGHTS,
    both_directions,
    choose_weight,
)
from fewlink.graph import Graph, compile_graph
from fewlink.linker import Linker
from fewlink.models.contract import Question, Recalibration
from fewlink.models.run import Deployed
from fewlink.models.trail.mixture import MixedRelationScorer, MixedScorer, Mixture
from fewlink.models.trail.scorer import TrailScorer

RELATION = "team 0"


@functools.cache
def teams() -> Path:
    """People are in the same team of five, otherwise in each of five sports: no relation tells of another.

    An embedding model learns the teams of a sport from its other pairs; TRAIL, which hides the sport, cannot know them.
    """
    chance = random.Random(0)
    people = [f"p{number}" for number in range(30)]
    lines = [(person, "lives in", f"t{number % 8}") for number, person in enumerate(people)]
    for sport in range(5):
        chance.shuffle(people)
        for begin in range(0, len(people), 5):
            lines += [(h, f"team {sport}", t) for h, t in itertools.permutations(people[begin : begin + 5], 2)]
    return written(lines, Path(FOLDER.name) / "teams.tsv")


@functools.cache
def mixed_run() -> Fitted:
    """A fit whose embedding model is mixed in."""
    with quickly():
        return fit(teams(), Path(FOLDER.name) / "mixed" / "towns", tune=False)


@functools.cache
def linkers() -> tuple[Linker, TrailScorer]:
    """The linker of that run, and its TRAIL alone."""
    linker = Linker.load(mixed_run().run)
    assert isinstance(linker.scorer, MixedScorer)
    return linker, linker.scorer.trail


def as_lines(graph: Graph) -> set[tuple[str, str, str]]:
    return set(named(graph))


def ranks_of(*mrr: list[float]) -> list[list[Ranks]]:
    """Ranks of relations with these MRR, for TRAIL alone and for each weight."""
    return [[{"all": [1 / value]} for value in own] for own in mrr]


# What is held out and measured


def test_a_tenth_of_the_pairs_of_large_relations_is_hidden() -> None:
    graph = compile_graph([teams()])
    held = hold_out_of_large(graph, "towns", 0)
    counts = {name: int((graph.triples()[:, 1] == number).sum()) for number, name in enumerate(graph.relations)}
    assert {task.name for task in held.split("dev")} == {name for name, count in counts.items() if count >= 100}
    hidden = as_lines(graph) - as_lines(held.graph)
    for task in held.split("dev"):
        own = {line for line in hidden if line[1] == task.name}
        assert 0 < len(own) <= 0.1 * counts[task.name] and len(task.known) == counts[task.name]
    assert {relation for _, relation, _ in hidden} == {task.name for task in held.split("dev")}


def test_pairs_are_asked_about_in_both_directions() -> None:
    held = hold_out_of_large(compile_graph([teams()]), "towns", 0)
    task = next(task for task in held.split("dev") if task.name == RELATION)
    tails, heads = both_directions(held, task, held_out.CHOOSING, 5)
    assert (tails.inverse, heads.inverse, tails.references) == (False, True, heads.references)
    assert np.array_equal(tails.task.pairs, heads.task.pairs[:, ::-1])
    asked = {tuple(pair) for pair in tails.task.pairs[tails.references :].tolist()}
    graph = {(h, t) for h, r, t in held.graph.triples().tolist() if held.graph.relations[r] == RELATION}
    assert 0 < len(asked) <= 5 and not asked & graph
    later = {tuple(pair) for pair in next(both_directions(held, task, held_out.EXPECTING, 99)).task.pairs.tolist()}
    assert not asked & later - graph
    for head, known in heads.task.known_tails.items():
        assert set(known.tolist()) == {h for h, t in task.known.tolist() if t == head}


def test_the_weight_is_the_surest_and_its_gain_is_of_relations_left_out() -> None:
    even = [0.5] * 6
    better = [[0.5 + 0.01 * at] * 6 for at in range(1, len(WEIGHTS))]
    wild = [1.0, 0.2, 1.0, 0.3, 1.0, 0.4]  # the highest mean
    weight, found = choose_weight(ranks_of(even, wild, *better))
    assert weight == WEIGHTS[-1] and found.mean == pytest.approx(0.01 * (len(WEIGHTS) - 1)) and not found.error
    odd = [[0.5, 0.5, 0.5, 0.5, 0.9, 0.5], [0.52, 0.53, 0.51, 0.52, 0.1, 0.53]]
    rest = [[0.1] * 6] * (len(WEIGHTS) - 2)
    weight, found = choose_weight(ranks_of(even, *odd, *rest))
    chosen = [0.0, 0.0, 0.0, 0.0, -0.4, 0.0]  # without the fifth relation, the second weight is the surest
    assert weight == WEIGHTS[0] and found == pytest.approx(estimate(chosen))
    assert choose_weight(ranks_of([0.5], *[[0.9]] * len(WEIGHTS)))[1].error == np.inf


# When it is mixed in


def test_a_model_that_is_clearly_better_is_mixed_in() -> None:
    made = mixed_run()
    assert made.mixed.startswith("an embedding model is mixed in") and "±" in made.mixed
    assert isinstance(Linker.load(made.run).scorer, MixedScorer) and "known" in made.figures
    assert made.card is not None and made.mixed in made.card.read_text()
    assert not [path.name for path in made.run.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "graph, mix, reason",
    [(graph_file, True, "too few"), (teams, False, "switched off")],
    ids=["too few", "told not to"],
)
def test_a_fit_without_a_model_says_why(graph: Callable[[], Path], mix: bool, reason: str, tmp_path: Path) -> None:
    told: list[str] = []
    with quickly():
        made = fit(graph(), tmp_path / "towns", tune=False, mix=mix, tell=told.append)
    assert reason in made.mixed and "known" not in made.figures and (made.mixed in told) == mix
    assert isinstance(Linker.load(made.run).scorer, TrailScorer)


# How the run answers


def test_relations_of_the_graph_are_answered_by_both_and_others_by_trail() -> None:
    linker, trail = linkers()
    everyone = np.arange(len(linker.graph.entities), dtype=np.int32)
    for inverse in (False, True):
        query = linker.resolve(None, ["p2", "p3"], relation=RELATION, inverse=inverse, candidates="all")
        references = query.references
        model = linker.model_for(references)
        assert isinstance(model, MixedRelationScorer)
        question = Question(RELATION, references.ids, np.array(query.heads), everyone)
        number = linker.graph.relations.id(RELATION) + inverse * len(linker.graph.relations)
        added = model.mixture.scores(number, question.heads, everyone)
        torch.testing.assert_close(model(question), trail.without(RELATION)(question) + added)
    new = linker.find_references([("p1", "t1"), ("p3", "t3")])
    assert linker.model_for(new) is linker.scorer
    question = Question("", new.ids, np.array([2, 4]), everyone)
    torch.testing.assert_close(linker.scorer(question), trail(question))  # type: ignore[arg-type]


def test_trust_is_measured_without_the_model_that_was_trained_on_the_references() -> None:
    linker, trail = linkers()
    alone = Linker(linker.benchmark, trail, calibration=linker.calibration)
    for inverse in (False, True):
        queries = [each.resolve(None, ["p2"], relation=RELATION, inverse=inverse) for each in (linker, alone)]
        assert linker.trust(queries[0]) == alone.trust(queries[1])


def test_probabilities_of_mixed_scores_are_recalibrated() -> None:
    linker, _ = linkers()
    assert isinstance(linker.scorer, MixedScorer)
    query = linker.resolve(None, ["p2", "p3"], relation=RELATION)
    trust = linker.trust(query)
    pairs = linker.rank(query, trust, query.heads)
    found = linker.probabilities(query, pairs, trust)
    other = Linker(linker.benchmark, copy_with(linker.scorer, Recalibration()), calibration=linker.calibration)
    before = other.probabilities(query, pairs, trust)
    assert found is not None and before is not None
    np.testing.assert_allclose(found[0], linker.scorer.mixture.recalibration(before[0]))
    assert linker.scorer.mixture.recalibration.error is not None


def copy_with(scorer: MixedScorer, recalibration: Recalibration) -> MixedScorer:
    return MixedScorer(scorer.trail, replace(scorer.mixture, recalibration=recalibration), scorer.graph)


def test_explanations_name_the_embedding_model_and_add_up() -> None:
    linker, _ = linkers()
    rows = linker.predict(heads=["p2", "p3", "p5"], relation=RELATION, explain="full")
    for row in rows:
        assert row.reasons is not None and "an embedding model trained on the graph" in row.reasons.parts
        assert row.reasons.score == pytest.approx(row.score, abs=1e-3)
        assert sum(row.reasons.parts.values()) == pytest.approx(row.score, abs=0.02)
        assert "embedding model" in " ".join(row.reasons.lines())
    new = linker.predict([("p1", "t1"), ("p3", "t3")], ["p2"], explain=True)
    assert "embedding" not in repr(new[0].reasons)


def test_a_list_of_missing_pairs_has_the_answers_of_a_question() -> None:
    linker, _ = linkers()
    found = linker.complete(relation=RELATION, heads=["p2", "p3"], k=3, top=6)
    asked = linker.predict(heads=["p2", "p3"], relation=RELATION, k=3)
    assert {(row.head, row.tail, row.score) for row in found} == {(row.head, row.tail, row.score) for row in asked}


def test_a_saved_model_and_an_extended_one_keep_the_mixture(tmp_path: Path) -> None:
    run = tmp_path / "towns"
    shutil.copytree(mixed_run().run, run)
    before = Linker.load(run).predict(heads=["p2", "p3"], relation=RELATION)
    saved = Linker.load(Linker.load(run).save_pretrained(tmp_path / "saved"))
    assert isinstance(saved.scorer, MixedScorer) and saved.predict(heads=["p2", "p3"], relation=RELATION) == before
    append(run, [written([("newcomer", "lives in", "t3"), ("newcomer", "hates", "p1")], tmp_path / "new.tsv")])
    grown = Linker.load(run)
    assert isinstance(grown.scorer, MixedScorer) and len(grown.predict(heads=["newcomer"], relation=RELATION)) > 2
    assert isinstance(grown.model_for(grown.find_references(None, "hates")), TrailScorer)
    assert isinstance(Linker.load(run, names=False).scorer, MixedScorer)
    assert isinstance(Linker.load(run, as_measured=True).scorer, TrailScorer)
    serving = Deployed.open(run)
    assert serving is not None and isinstance(serving.vectors, Mixture)
