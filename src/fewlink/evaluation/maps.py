"""Maps of the true and false pairs of a relation on a plane."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from fewlink.evaluation.stored import StoredResult


class PairMap(StoredResult):
    """True and false pairs of a relation on a plane, and how well they separate.

    `silhouette` is measured on the model's vectors, `silhouette_of_map` on the plane: from −1 to 1, 0 if the two kinds
    overlap. `points` are (x, y, "positive" or "negative").
    """

    model_config = ConfigDict(allow_inf_nan=False)
    what = "a map of pairs"
    suffix = ".maps.jsonl"
    figures = frozenset({"silhouette", "silhouette_of_map", "points"})

    relation: str
    seed: int
    shots: int
    silhouette: float
    silhouette_of_map: float
    points: list[tuple[float, float, str]]
    settings: dict[str, Any] = Field(default_factory=dict)
    command: str
    version: str
    data_sha256: str

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.benchmark, self.model, self.relation, self.shots, self.seed, self.data_sha256)
