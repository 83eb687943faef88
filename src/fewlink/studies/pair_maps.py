"""Maps of pairs: the vectors a model has of true and false pairs of a relation, in two dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict

from fewlink import __version__
from fewlink.base.errors import FewlinkError, MissingExtra
from fewlink.base.seeds import derive, generator
from fewlink.base.storage import write_json
from fewlink.data.benchmark import Task
from fewlink.evaluation.records import MAP_SUFFIX, command_line, read_as

MOST = 200  # pairs of either kind
PERPLEXITY = 30.0


@runtime_checkable
class PairScorer(Protocol):
    """A scorer that tells the vectors it compares."""

    name: str

    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """The vectors (n, w) of pairs (n, 2), given references (K, 2)."""
        ...


class PairMap(BaseModel):
    """True and false pairs of a relation on a plane, and how far they are apart.

    `silhouette` is that of the model's own vectors, `silhouette_of_map` that of the plane: −1 to 1, 0 where the two
    kinds lie in each other. `points` are (x, y, "positive" or "negative").
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), allow_inf_nan=False)

    benchmark: str
    model: str
    relation: str
    seed: int
    shots: int
    silhouette: float
    silhouette_of_map: float
    points: list[tuple[float, float, str]]
    command: str
    version: str
    data_sha256: str

    def save(self, folder: Path) -> Path:
        name = f"{self.benchmark}_{self.model}_{self.relation}_seed{self.seed}".replace("/", "-").replace(":", "-")
        path = Path(folder) / f"{name}{MAP_SUFFIX}"
        write_json(path, self.model_dump())
        return path


def read_maps(folder: Path) -> list[PairMap]:
    """All maps under a folder, by file name."""
    return [read_as(PairMap, path, "a map of pairs") for path in sorted(Path(folder).rglob(f"*{MAP_SUFFIX}"))]


def true_and_false(task: Task, shots: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Query pairs (n, 2) of a relation, and as many pairs of the same heads with candidates not known to be true."""
    _, queries = task.split(shots)
    random = generator(seed, "map", task.name)
    positive = queries[np.sort(random.permutation(len(queries))[:MOST])]
    negative = []
    for head in positive[:, 0].tolist():
        false = np.setdiff1d(task.range, task.known_tails[head], assume_unique=True)
        if len(false):
            negative.append((head, int(random.choice(false))))
    if not negative:
        raise FewlinkError(f"{task.name} has no candidate that is not known to be true: choose another relation")
    return positive, np.array(negative, np.int32)


def make_map(scorer: PairScorer, task: Task, *, benchmark: str, data_sha256: str, shots: int, seed: int) -> PairMap:
    """A model's map of a relation; the pairs are the same for every model."""
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
