"""Everything that decides how embeddings are trained, validated where it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fewlink.choices import choose
from fewlink.embeddings.interactions import interaction
from fewlink.errors import FewlinkError

CHOICES: dict[str, tuple[str, ...]] = {
    "regime": ("sampled", "one-vs-all"),
    "loss": ("softmax", "logistic", "margin"),
    "corrupt": ("shared", "each"),
    "optimizer": ("adagrad", "adam"),
    "schedule": ("constant", "linear", "cosine"),
}
AT_LEAST_ONE = ("dim", "negatives", "batch_size", "epochs", "patience", "evaluate_every", "save_every")
POSITIVE = ("learning_rate", "margin", "init_scale")
NOT_NEGATIVE = ("n3", "lp")


@dataclass(frozen=True)
class EmbeddingSettings:
    """How a table of vectors is trained.

    model           rescal, transe, distmult or complex
    dim             real numbers per entity (complex: dim/2 complex numbers)
    regime          sampled: against random entities, only touched rows move; one-vs-all: against every entity
    loss            softmax, logistic or margin; one-vs-all takes softmax
    negatives       random entities per batch (corrupt = shared) or per triple (corrupt = each)
    corrupt         whether a batch shares its negatives
    batch_size      examples a step; an example is one triple in one direction
    epochs          passes over all triples, each in both directions
    schedule        learning rate over all steps: constant, or falling to zero linearly or as a cosine
    n3, lp          weights of Σ|x|³ and Σ|x|^lp_power of head, relation and tail, averaged over the batch
    margin          of the margin loss
    norm            p of TransE's distance, 1 or 2
    init_scale      standard deviation of the first vectors
    held_out        share of the triples held out for early stopping; 0 trains all epochs on everything
    patience        evaluations without a better held-out MRR before training stops
    evaluate_every  epochs between held-out evaluations
    save_every      epochs between saved states
    mixed_precision bfloat16 products on a GPU
    """

    model: str = "complex"
    dim: int = 100
    regime: str = "sampled"
    loss: str = "softmax"
    negatives: int = 8192
    corrupt: str = "shared"
    batch_size: int = 2048
    epochs: int = 15
    optimizer: str = "adagrad"
    learning_rate: float = 0.1
    schedule: str = "constant"
    n3: float = 0.05
    lp: float = 0.0
    lp_power: float = 2.0
    margin: float = 1.0
    norm: int = 2
    init_scale: float = 1e-3
    held_out: float = 0.0
    patience: int = 3
    evaluate_every: int = 1
    save_every: int = 1
    seed: int = 0
    device: str = "cpu"
    mixed_precision: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        interaction(self.model).check_dim(self.dim)
        for field, allowed in CHOICES.items():
            choose(field, getattr(self, field), dict.fromkeys(allowed))
        for field in AT_LEAST_ONE:
            self._require(field, getattr(self, field) >= 1, "at least 1")
        for field in POSITIVE:
            self._require(field, 0 < getattr(self, field) < math.inf, "a finite number over 0")
        for field in NOT_NEGATIVE:
            self._require(field, 0 <= getattr(self, field) < math.inf, "a finite number, 0 or more")
        self._require("lp_power", 1 <= self.lp_power < math.inf, "a finite number, 1 or more")
        self._require("norm", self.norm in (1, 2), "1 or 2")
        self._require("held_out", 0 <= self.held_out <= 0.5, "between 0 and 0.5")
        cuda, _, index = self.device.partition(":")
        self._require(
            "device", self.device == "cpu" or (cuda == "cuda" and (not index or index.isdigit())), "cpu, cuda or cuda:N"
        )
        if self.regime == "one-vs-all":
            self._require("loss", self.loss == "softmax", "softmax when regime is one-vs-all")
            self._require("corrupt", self.corrupt == "shared", "shared when regime is one-vs-all")
        if self.mixed_precision:
            self._require("mixed_precision", self.device != "cpu", "false on the cpu: it is for a cuda device")

    def _check_types(self) -> None:
        kinds = {"int": (int, "a whole number"), "float": ((int, float), "a number"), "str": (str, "a name")}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool":
                self._require(field.name, isinstance(value, bool), "true or false")
            else:
                kind, words = kinds[str(field.type)]
                self._require(field.name, isinstance(value, kind) and not isinstance(value, bool), words)  # type: ignore[arg-type]

    def _require(self, field: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise FewlinkError(f"{field} is {getattr(self, field)!r}: it must be {allowed}")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EmbeddingSettings:
        known = {field.name: field for field in fields(cls)}
        for name in values:
            choose("embedding setting", name, known)
        return cls(**values)

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate of one step out of all."""
        share = step / steps
        if self.schedule == "linear":
            return self.learning_rate * (1 - share)
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * share)) / 2
        return self.learning_rate
