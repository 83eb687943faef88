"""The figure of embeddings: true and false pairs of two test relations, by the vectors that each model compares.

    python experiments/embedding.py --tiny [--out FOLDER]

t-SNE shows clearer groups than there are, so each map comes with a silhouette, measured on the model's own vectors:
from −1 to 1, 0 if the two kinds overlap. Every model gets the same pairs. Needs the extra `plots`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from common import Experiment, Result, Table, options, print_tables, run, scatter_chart, short, write_chart
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.core.seeds import derive, generator
from fewlink.tasks.benchmark import Benchmark, Task

MODELS = ("gmatching-maxp", "fsrl")
RELATIONS = ("concept:producedby", "concept:teamcoach")
TINY_RELATIONS = ("produces",)
SHOTS = 3
SEED = 0
MAX_PAIRS = 200  # of true pairs, and of false pairs
PERPLEXITY = 30.0  # scikit-learn's default
NOTE = "silhouette: −1 to 1, of true against false pairs in the model's own space; 0 where they overlap"


class PairMap(Result):
    """True and false pairs of a relation on a plane, and how well they separate.

    `silhouette` is measured on the model's vectors, `silhouette_of_map` on the plane. `points` are (x, y, "positive" or
    "negative").
    """

    what = "a map of pairs"
    suffix = ".maps.jsonl"
    figures = frozenset({"silhouette", "silhouette_of_map", "points"})
    parts = ("relation",)

    relation: str
    silhouette: float
    silhouette_of_map: float
    points: list[tuple[float, float, str]]


@runtime_checkable
class PairScorer(Protocol):
    """A scorer with a vector for each pair."""

    name: str

    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """The vectors (n, w) of pairs (n, 2), given references (K, 2)."""
        ...


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


def map_of(scorer: PairScorer, task: Task, benchmark: Benchmark, settings: dict[str, Any]) -> PairMap:
    """The map of a relation by a model."""
    try:
        from sklearn.manifold import TSNE
        from sklearn.metrics import silhouette_score
    except ImportError:
        raise MissingExtra("a map of pairs", "plots") from None
    references, _ = task.split(SHOTS)
    positive, negative = true_and_false(task, SHOTS, SEED)
    vectors = scorer.pair_vectors(references, np.concatenate([positive, negative])).astype(np.float64)
    kinds = ["positive"] * len(positive) + ["negative"] * len(negative)
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    plane = TSNE(perplexity=perplexity, init="pca", random_state=derive(SEED, "t-sne") % 2**32).fit_transform(vectors)
    return PairMap(
        benchmark=benchmark.name,
        model=scorer.name,
        relation=task.name,
        seed=SEED,
        shots=SHOTS,
        silhouette=round(float(silhouette_score(vectors, kinds)), 4),
        silhouette_of_map=round(float(silhouette_score(plane, kinds)), 4),
        points=[(round(float(x), 2), round(float(y), 2), kind) for (x, y), kind in zip(plane, kinds, strict=True)],
        settings=settings,
        data_sha256=benchmark.fingerprint,
    )


def table(maps: list[PairMap]) -> Table:
    """A row for each relation and model."""
    rows = [[m.relation, m.model, str(len(m.points)), short(m.silhouette), short(m.silhouette_of_map)] for m in maps]
    columns = ["relation", "model", "pairs", "silhouette", "silhouette of the map"]
    return Table("true and false pairs", columns, sorted(rows), NOTE)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--relations", nargs="+", help="test relations (default: the paper's two)")
    parser.add_argument("--out", type=Path, help="folder for the charts")
    given = parser.parse_args()
    experiment = Experiment(given)
    models = experiment.chosen(MODELS)
    relations = given.relations or (TINY_RELATIONS if experiment.tiny else RELATIONS)

    def stored() -> list[PairMap]:
        return [each for each in experiment.stored(PairMap, models) if each.relation in relations]

    finished = {(each.model, each.relation) for each in stored()}
    for model in [] if experiment.show else models:
        missing = [relation for relation in relations if (model, relation) not in finished]
        for _, prepared in experiment.prepared(model, SHOTS, [SEED]) if missing else ():
            if not isinstance(prepared.scorer, PairScorer):
                raise FewlinkError(f"{model} has no pair vectors: choose few-shot models")
            for relation in missing:
                task = experiment.benchmark.task(relation)
                drawn = map_of(prepared.scorer, task, experiment.benchmark, prepared.config["settings"])
                experiment.store.add(drawn)
    print_tables([table(stored())])
    for each in stored() if given.out else ():
        relation = each.relation.split(":")[-1]
        chart = scatter_chart(f"{relation}, {each.model}", each.points)
        write_chart(given.out / f"map-{relation}-{each.model}.svg", chart)


if __name__ == "__main__":
    run(main)
