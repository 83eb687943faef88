"""The tasks that MetaR and GANA learn from, and their episodes."""

from __future__ import annotations

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.graph.groups import Groups
from fewlink.models.metar.settings import TRAIN_ONLY, MetaLearnerSettings
from fewlink.tasks.benchmark import Benchmark, Task, sorted_pairs
from fewlink.tasks.candidates import likely_tails
from fewlink.tasks.episodes import ContrastedSampler


def sampler(benchmark: Benchmark, settings: MetaLearnerSettings) -> ContrastedSampler:
    """The sampler of episodes of the tasks that a model learns from."""
    return ContrastedSampler(
        tasks_of(benchmark, settings),
        len(benchmark.graph.entities),
        shots=settings.shots,
        batch=settings.batch,
        negatives=settings.negatives,
        seeds=[settings.seed],
        device=settings.device,
    )


def tasks_of(benchmark: Benchmark, settings: MetaLearnerSettings) -> list[Task]:
    """The train relations and, except for `metar`, the background relations with enough pairs."""
    tasks = list(benchmark.split("train"))
    if settings.model != TRAIN_ONLY:
        tasks += [task for task in benchmark.once(_background_tasks) if len(task.pairs) > settings.shots]
        if not tasks:
            raise FewlinkError(f"{benchmark.name} has no relation with more than {settings.shots} pairs: lower shots")
    return tasks


def _background_tasks(benchmark: Benchmark) -> list[Task]:
    """The background relations as tasks, except those whose range has one entity."""
    graph = benchmark.graph
    triples = graph.triples()
    pairs = Groups.of(triples[:, 1], triples[:, [0, 2]], len(graph.relations))
    tasks = []
    for relation, name in enumerate(graph.relations):
        known = sorted_pairs(pairs[relation])
        kind = likely_tails(graph, np.unique(known[:, 1]))
        if len(kind) > 1:
            tasks.append(Task(name, known, known, kind))
    return tasks
