"""The figure of pair embeddings: maps of true and false pairs of a relation in each model's space."""

from __future__ import annotations

import typing

import numpy as np

from fewlink import __version__
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.core.memory import command_line
from fewlink.core.seeds import derive, generator
from fewlink.evaluation.maps import PairMap
from fewlink.models.settings import ModelSettings
from fewlink.studies.charts import ScatterChart
from fewlink.studies.jobs import run_models
from fewlink.studies.plan import Plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.tables import Table, figure
from fewlink.studies.workspace import Workspace
from fewlink.tasks.benchmark import Task

MAX_PAIRS = 200  # of true pairs, and of false pairs
PERPLEXITY = 30.0
SEED = 0
NOTE = "silhouette: −1 to 1, of true against false pairs in the model's own space; 0 where they overlap"


@typing.runtime_checkable
class PairScorer(typing.Protocol):
    """A scorer with a vector for each pair."""

    name: str

    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """The vectors (n, w) of pairs (n, 2), given references (K, 2)."""
        ...


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    maps = sorted(_finished(plan, workspace), key=lambda m: (m.relation, plan.models.index(m.model)))
    rows = [[m.relation, m.model, str(len(m.points)), figure(m.silhouette), figure(m.silhouette_of_map)] for m in maps]
    columns = ["relation", "model", "pairs", "silhouette", "silhouette of the map"]
    charts = {f"{m.relation}-{m.model}": ScatterChart(f"{m.relation}, {m.model}", m.points) for m in maps}
    return StudyOutput([Table("true and false pairs", columns, rows, NOTE)], charts)


def pending(plan: Plan, workspace: Workspace) -> list[str]:
    return [f"{model}, {relation}" for model, missing in _missing(plan, workspace).items() for relation in missing]


def run(plan: Plan, workspace: Workspace) -> None:
    """Train the models whose maps are missing, and compute the maps."""
    benchmark = workspace.data
    shots = plan.shots[0]
    for model, relations in _missing(plan, workspace).items():
        settings = plan.settings_of(model)
        if not isinstance(settings, ModelSettings):
            raise FewlinkError(f"{model} has no pair vectors: choose few-shot models")
        workspace.log(f"{model}, {', '.join(relations)}")
        scorer = run_models(settings, shots, [SEED], workspace)[SEED].scorer
        if not isinstance(scorer, PairScorer):
            raise FewlinkError(f"{model} has no pair vectors: choose few-shot models")
        for task in map(benchmark.task, relations):
            pair_map = make_map(
                scorer,
                task,
                benchmark=benchmark.name,
                data_sha256=benchmark.fingerprint,
                shots=shots,
                seed=SEED,
            )
            workspace.store.add(pair_map.model_copy(update={"settings": settings.as_dict()}))


def _missing(plan: Plan, workspace: Workspace) -> dict[str, list[str]]:
    """The relations that have no map, by model."""
    finished = {(m.model, m.relation) for m in _finished(plan, workspace)}
    missing = {model: [r for r in plan.relations if (model, r) not in finished] for model in plan.models}
    return {model: relations for model, relations in missing.items() if relations}


def _finished(plan: Plan, workspace: Workspace) -> list[PairMap]:
    return [
        m
        for m in workspace.store.maps
        if m.data_sha256 == workspace.benchmark.fingerprint
        and m.model in plan.models
        and m.relation in plan.relations
        and m.shots == plan.shots[0]
    ]


def true_and_false(task: Task, shots: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Query pairs (n, 2) of a relation, and a pair of each head with a candidate that is not a known tail."""
    _, queries = task.split(shots)
    random = generator(seed, "map", task.name)
    positive = queries[np.sort(random.permutation(len(queries))[:MAX_PAIRS])]
    negative = []
    for head in positive[:, 0].tolist():
        false = np.setdiff1d(task.range, task.known_tails[head], assume_unique=True)
        if len(false):
            negative.append((head, int(random.choice(false))))
    if not negative:
        raise FewlinkError(f"all candidates of {task.name} are known tails: choose another relation")
    return positive, np.array(negative, np.int32)


def make_map(scorer: PairScorer, task: Task, *, benchmark: str, data_sha256: str, shots: int, seed: int) -> PairMap:
    """The map of a relation by a model; every model gets the same pairs."""
    try:
        from sklearn.manifold import TSNE
        from sklearn.metrics import silhouette_score
    except ImportError:
        raise MissingExtra("a map of pairs", "plots") from None
    references, _ = task.split(shots)
    positive, negative = true_and_false(task, shots, seed)
    vectors = scorer.pair_vectors(references, np.concatenate([positive, negative])).astype(np.float64)
    kinds = ["positive"] * len(positive) + ["negative"] * len(negative)
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    plane = TSNE(perplexity=perplexity, init="pca", random_state=derive(seed, "t-sne") % 2**32).fit_transform(vectors)
    return PairMap(
        benchmark=benchmark,
        model=scorer.name,
        relation=task.name,
        seed=seed,
        shots=shots,
        silhouette=round(float(silhouette_score(vectors, kinds)), 4),
        silhouette_of_map=round(float(silhouette_score(plane, kinds)), 4),
        points=[(round(float(x), 2), round(float(y), 2), kind) for (x, y), kind in zip(plane, kinds, strict=True)],
        command=command_line(),
        version=__version__,
        data_sha256=data_sha256,
    )


STUDY = Study(show, pending, run)
