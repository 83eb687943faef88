"""Settings of the embedding trainer, validated on creation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fewlink.core.memory import PROGRAM
from fewlink.core.settings import Settings
from fewlink.embeddings.interactions import SLICE_BYTES, interaction


@dataclass(frozen=True)
class EmbeddingSettings(Settings):
    """Settings of an embedding model and its training.

    model           rescal, transe, distmult or complex
    dim             real numbers per entity (complex: dim/2 complex numbers)
    regime          sampled: against random entities, updating touched rows only; one-vs-all: against every entity;
                    k-vs-all: the same loss, with all tails of a head and relation in one step
    loss            softmax, logistic or margin; one-vs-all and k-vs-all need softmax
    negatives       random entities per batch (corrupt = shared) or per triple (corrupt = each)
    corrupt         whether a batch shares its negatives
    batch_size      examples per step; an example is one triple in one direction, in k-vs-all one head and relation
    epochs          passes over all triples, each in both directions
    schedule        learning rate over all steps: constant, or falling to zero linearly or as a cosine
    n3, lp          weights of Σ|x|³ and Σ|x|^lp_power of head, relation and tail, averaged over the batch
    margin          of the margin loss
    norm            p of TransE's distance, 1 or 2
    init_scale      standard deviation of the initial vectors
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

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "regime": ("sampled", "one-vs-all", "k-vs-all"),
        "loss": ("softmax", "logistic", "margin"),
        "corrupt": ("shared", "each"),
        "optimizer": ("adagrad", "adam"),
        "schedule": ("constant", "linear", "cosine"),
    }
    AT_LEAST_ONE = ("dim", "negatives", "batch_size", "epochs", "patience", "evaluate_every", "save_every")
    POSITIVE = ("learning_rate", "margin", "init_scale")
    NOT_NEGATIVE = ("n3", "lp")

    def __post_init__(self) -> None:
        self.check()
        interaction(self.model).check_dim(self.dim)
        self.require("lp_power", 1 <= self.lp_power < math.inf, "a finite number, 1 or more")
        self.require("norm", self.norm in (1, 2), "1 or 2")
        self.require("held_out", 0 <= self.held_out <= 0.5, "between 0 and 0.5")
        if self.dense:
            self.require("loss", self.loss == "softmax", f"softmax when regime is {self.regime}")
            self.require("corrupt", self.corrupt == "shared", f"shared when regime is {self.regime}")
        if self.mixed_precision:
            self.require("mixed_precision", self.device != "cpu", "false on the cpu: it is for a cuda device")

    @property
    def dense(self) -> bool:
        """Whether each step scores and updates every entity."""
        return self.regime != "sampled"

    def needs(
        self, entities: int, relations: int, triples: int, processes: int = 1, device: str = "cpu"
    ) -> dict[str, float]:
        """Bytes of a device's memory that training takes in each process, by purpose.

        Training on a GPU also takes memory of the CPU, where vectors are made and saved.
        """
        rows = entities if self.dense else entities / processes
        table = 4.0 * rows * self.dim
        optimizer = {"adagrad": table, "adam": 2 * table + 4 * rows}[self.optimizer]
        others = 4.0 * 2 * relations * interaction(self.model).relation_width(self.dim)
        needs = {"vectors": table * (1 + (self.held_out > 0)) + others, "the optimizer": optimizer + others}
        if device == self.device and self.dense:
            needs["gradients of every entity"] = 2 * table
        if device == "cpu":  # triples as given, as trained on, and their order
            return {**needs, "triples": 60.0 * triples, "the program": PROGRAM}
        columns = entities if self.dense else self.negatives
        score = interaction(self.model, self.norm).bytes_per_score(self.dim)
        scores = min(1.0 * self.batch_size * columns * score, SLICE_BYTES["cuda"])
        gathered = 4.0 * self.batch_size * (2 + self.negatives * (self.corrupt == "each")) * self.dim
        order = 8 if 2 * triples < 1 << 31 else 16
        return {**needs, "triples": (12.0 + order) * triples, "a step": 3 * scores + 8 * gathered}

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate of one step out of all."""
        share = step / steps
        if self.schedule == "linear":
            return self.learning_rate * (1 - share)
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * share)) / 2
        return self.learning_rate
