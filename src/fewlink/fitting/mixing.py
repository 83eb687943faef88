"""Mix an embedding model of the graph into TRAIL, for relations of the graph: train it, weigh it, calibrate it.

What is measured here are held-out pairs of relations that the graph has, asked about in both directions with all other
known pairs as references. The embedding model is trained without the held-out pairs.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.progress import duration, progress
from fewlink.evaluation import Protocol
from fewlink.evaluation.evaluator import rank_task
from fewlink.fitting.held_out import ALL, CHOOSING, Estimate, Ranks, estimate, figures_of, questions
from fewlink.fitting.tuning import Log
from fewlink.graph import Graph
from fewlink.linker.probability import Calibration, fit_logistic, head_fans
from fewlink.linker.query import References
from fewlink.linker.ranking import rank_tails
from fewlink.linker.trust import measure_trust
from fewlink.models.cached import CachedScorer
from fewlink.models.contract import Question, Recalibration, Scorer
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.embeddings.settings import MAX_DENSE_ENTITIES
from fewlink.models.embeddings.trainer import EmbeddingTrainer
from fewlink.models.trail.mixture import MixedRelationScorer, Mixture
from fewlink.models.trail.scorer import TrailScorer
from fewlink.tasks import Benchmark, Task
from fewlink.tasks.benchmark import sorted_pairs
from fewlink.tasks.candidates import likely_tails, open_candidates

WEIGHTS = (0.5, 1.0, 1.5, 2.0, 3.0)  # of the embedding model's scores, to choose from
EPOCHS = 15  # of each model, if the time allows
MIN_EPOCHS = 8  # with fewer, none is trained
MAX_MODELS = 8  # to average
DENSE: dict[str, Any] = {"regime": "k-vs-all", "batch_size": 200}
SAMPLED: dict[str, Any] = {"regime": "sampled", "batch_size": 1024, "negatives": 1024}
LADDER = (  # settings from the best to the fastest
    {"dim": 1024, "n3": 0.03, **DENSE},
    {"dim": 512, "n3": 0.01, **DENSE},
    {"dim": 256, "n3": 0.01, **DENSE},
    {"dim": 256, "n3": 0.01, **SAMPLED},
    {"dim": 128, "n3": 0.01, **SAMPLED},
)
TIMED_STEPS = 3  # after the first, whose time is not typical
FIRST_QUERIES = 50  # of the first relation, before the time of a query is known
MIN_QUERIES = 10  # of any relation that is measured
TELL_EVERY = 10.0  # seconds
RIDGE = 1.0  # of the recalibration, towards none


class EmbeddingPlan(NamedTuple):
    """The settings of embedding models, and how many are trained, with a seed each; their scores are averaged."""

    settings: EmbeddingSettings
    models: int


def plan_training(graph: Graph, seconds: float, seed: int, device: str) -> EmbeddingPlan:
    """The best settings of `LADDER` that train all epochs in this time, or fewer epochs of the last of them.

    A few timed steps tell the time of an epoch. In more time, several models are trained. Raises if there is no time
    for `MIN_EPOCHS` epochs of one.
    """
    entities = len(graph.entities)
    triples = graph.triples()
    for rung in LADDER:
        settings = EmbeddingSettings(model="complex", epochs=EPOCHS, seed=seed, device=device, **rung)
        if settings.dense and entities > MAX_DENSE_ENTITIES:
            continue
        pace = _epoch_seconds(EmbeddingTrainer(triples, entities, len(graph.relations), settings))
        if EPOCHS * pace <= seconds:
            return EmbeddingPlan(settings, min(MAX_MODELS, int(seconds / (EPOCHS * pace))))
    if (epochs := int(seconds / pace)) < MIN_EPOCHS:
        raise FewlinkError(
            f"an epoch takes {duration(pace)}: the time allows {epochs}, and at least {MIN_EPOCHS} are needed"
        )
    return EmbeddingPlan(settings.replace(epochs=epochs), 1)


def _epoch_seconds(trainer: EmbeddingTrainer) -> float:
    """The time of an epoch, estimated from a few steps after the first."""
    seconds = []
    for batch in itertools.islice(trainer.batches.epoch(0), 1 + TIMED_STEPS):
        begin = time.monotonic()
        trainer.step(batch, trainer.settings.learning_rate)
        seconds.append(time.monotonic() - begin)
    return float(np.mean(seconds[1:] or seconds)) * len(trainer.batches)


def train_embeddings(graph: Graph, plan: EmbeddingPlan, tell: Log, until: float = math.inf) -> Embeddings:
    """Train the planned models on all triples of a graph, and average them.

    If training is slower than planned, fewer models are averaged: those that are trained at the time `until` of the
    monotonic clock. Raises if not even the first will be.
    """
    models: list[Embeddings] = []
    for number in range(plan.models):
        settings = plan.settings.replace(seed=plan.settings.seed + number)
        title = f"embedding model {number + 1} of {plan.models}"
        try:
            models.append(_trained(graph, settings, title, tell, until))
        except FewlinkError:
            if not models:
                raise
            break
    return averaged(models).half_precision()


def _trained(graph: Graph, settings: EmbeddingSettings, title: str, tell: Log, until: float) -> Embeddings:
    trainer = EmbeddingTrainer(graph.triples(), len(graph.entities), len(graph.relations), settings)
    begin = told = time.monotonic()
    while not trainer.finished:
        trainer.epoch()
        now = time.monotonic()
        left = settings.epochs - trainer.done
        pace = (now - begin) / trainer.done
        if now + pace * left > until:
            raise FewlinkError(
                f"an epoch takes {duration(pace)}, longer than its first steps suggested: no time for all"
            )
        if trainer.done == 1 or now - told >= TELL_EVERY:
            told = now
            tell(f"{title}  epoch {trainer.done} of {settings.epochs}, about {duration(pace * left)} more")
    return trainer.result()


def averaged(models: Sequence[Embeddings]) -> Embeddings:
    """One ComplEx model whose scores are the means of those of several: their complex numbers stand side by side."""

    def side_by_side(tables: Sequence[Tensor]) -> Tensor:
        real, imaginary = zip(*(table.chunk(2, 1) for table in tables), strict=True)
        return torch.cat([*real, *imaginary], 1)

    entities = side_by_side([model.entities for model in models])
    relations = side_by_side([model.relations / len(models) for model in models])
    return dataclasses.replace(models[0], entities=entities, relations=relations)


class Asked(NamedTuple):
    """Half of the held-out pairs of a relation, in one direction: the references come first in the pairs of `task`."""

    task: Task
    references: int
    inverse: bool


def both_directions(held: Benchmark, task: Task, half: int, most: int) -> Iterator[Asked]:
    """Up to `most` of one half of the queries of a relation, as questions about tails and about heads."""
    references, queries = questions(held, task, half)[ALL]
    pairs = np.concatenate([references, queries[:most]])
    yield Asked(dataclasses.replace(task, pairs=pairs), len(references), False)
    turned = np.ascontiguousarray(pairs[:, ::-1])
    known = sorted_pairs(task.known[:, ::-1])
    yield Asked(Task(task.name, turned, known, likely_tails(held.graph, known[:, 1])), len(references), True)


def rank_weights(held: Benchmark, trail: TrailScorer, mixture: Mixture, until: float) -> list[list[Ranks]]:
    """The ranks of one half of the held-out pairs with TRAIL alone, and with each of `WEIGHTS`: relations for each.

    Relations are asked about one after the other until a time of the monotonic clock, the first one in any case, each
    with as many queries as its share of the time allows.
    """
    found = [list[Ranks]() for _ in (0, *WEIGHTS)]
    tasks = held.split("dev")
    begin = time.monotonic()
    asked_for = 0
    with progress("scoring", len(tasks)) as advance:
        for done, task in enumerate(tasks):
            now = time.monotonic()
            if done and now + (now - begin) / asked_for * MIN_QUERIES > until:
                break
            share = (until - now) / (len(tasks) - done)
            most = int(share / (now - begin) * asked_for) if done and now > begin else FIRST_QUERIES
            of_relation = relation_ranks(held, task, trail, mixture, max(most, MIN_QUERIES))
            asked_for += len(of_relation[0]) // 2
            for all_ranks, own in zip(found, of_relation, strict=True):
                all_ranks.append({ALL: own})
            advance(done + 1, f"{done + 1} of {len(tasks)} relations")
    return found


def relation_ranks(held: Benchmark, task: Task, trail: TrailScorer, mixture: Mixture, most: int) -> list[list[float]]:
    """The ranks of up to `most` pairs of a relation, as tails and as heads, with TRAIL alone and with each weight."""
    found = [list[float]() for _ in (0, *WEIGHTS)]
    hiding = trail.without(task.name)
    for asked in both_directions(held, task, CHOOSING, most):
        alone = CachedScorer(hiding)
        scorers: list[Scorer] = [
            alone,
            *(mixed(held, task, alone, mixture, weight, asked.inverse) for weight in WEIGHTS),
        ]
        protocol = Protocol("dev", asked.references, "open")
        for ranks, scorer in zip(found, scorers, strict=True):
            ranks += rank_task(held.graph, scorer, asked.task, protocol).ranks.tolist()
    return found


def mixed(
    held: Benchmark, task: Task, trail: Scorer, mixture: Mixture, weight: float, inverse: bool = False
) -> MixedRelationScorer:
    """The mixture for a held-out relation, if its weight were this one."""
    scorer = MixedRelationScorer(trail, dataclasses.replace(mixture, weight=weight), held.graph.relations.id(task.name))
    return scorer.inverted() if inverse else scorer


def choose_weight(ranks: Sequence[Sequence[Ranks]]) -> tuple[float, Estimate]:
    """The weight whose gain over TRAIL alone is most certain, and this gain, given the ranks by each of `WEIGHTS`.

    The gain of a relation is that of the weight which would be chosen on the other relations.
    """
    mrr = np.array([[figures_of([relation])["mrr"] for relation in own] for own in ranks])  # (1 + weights, relations)
    gains = mrr[1:] - mrr[0]

    def surest(gains: np.ndarray) -> int:
        found = [estimate(own) for own in gains.tolist()]
        return max(range(len(found)), key=lambda at: (found[at].mean - 2 * found[at].error, found[at].mean))

    count = gains.shape[1]
    crossed = (
        [float(gains[surest(np.delete(gains, place, 1)), place]) for place in range(count)] if count > 1 else [0.0]
    )
    return WEIGHTS[surest(gains)], estimate(crossed)


def recalibrate(
    held: Benchmark, trail: TrailScorer, mixture: Mixture, calibration: Calibration | None, relations: int
) -> Recalibration:
    """Fit the probabilities of first answers to the held-out tails of some `relations`, each with equal weight.

    The error is that of relations which were left out in turn.
    """
    if calibration is None:
        return Recalibration()
    rows = []
    for task in held.split("dev")[:relations]:
        references, queries = questions(held, task, CHOOSING)[ALL]
        known = References(tuple((head, tail) for head, tail in references.tolist()))
        hiding = trail.without(task.name)
        hidden = held.graph.relations.id(task.name)
        trust = dataclasses.replace(measure_trust(hiding, held.graph, known, hidden=hidden), whole=True)
        heads = np.unique(queries[:, 0])
        asked = Question(task.name, known.ids, heads, open_candidates(held.graph, known.ids))
        scorer = mixed(held, task, hiding, mixture, mixture.weight)
        firsts = [part for part in rank_tails(scorer, asked, 1, known.known_tails) if len(part)]
        given = np.array(
            [calibration.probabilities(part, head_fans(held.graph, part.heads), trust)[0] for part in firsts]
        )
        right = np.array([part.tails[0] in task.known_tails[int(part.heads[0])] for part in firsts])
        if len(given):
            rows.append((given, right))
    if not rows:
        return Recalibration()

    def fitted(some: Sequence[tuple[np.ndarray, np.ndarray]]) -> Recalibration:
        given = np.clip(np.concatenate([own for own, _ in some]), 1e-6, 1 - 1e-6)
        counts = np.concatenate([np.full(len(own), 1 / len(own)) for own, _ in some])
        features = np.stack([np.ones(len(given)), np.log(given) - np.log1p(-given)], 1)
        right = np.concatenate([own for _, own in some])
        constant, slope = fit_logistic(features, right, counts, RIDGE, np.array([0.0, 1.0]))
        return Recalibration(float(constant), max(float(slope), 0.0))

    errors = [
        abs(fitted(rows[:place] + rows[place + 1 :])(given).mean() - right.mean())
        for place, (given, right) in enumerate(rows)
        if len(rows) > 1
    ]
    return dataclasses.replace(fitted(rows), error=float(np.mean(errors)) if errors else None)
