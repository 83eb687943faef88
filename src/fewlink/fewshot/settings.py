"""Everything that decides how a model of FSRL's family is meta-trained, validated when it is created."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from fewlink.fewshot.model import COMPOSITIONS
from fewlink.training.family import ModelSettings


@dataclass(frozen=True)
class FewShotSettings(ModelSettings):
    """How a model is meta-trained; the defaults are the paper's.

    model                a name of `fewlink models`
    shots                references of an episode (K), and of each dev relation
    batch                queries of an episode
    relations            relations of a step, an episode each; shared out where several processes train together
    negatives            polluted tails of each query
    shared_negatives     whether the queries of an episode share their polluted tails
    smallest_range       relations with fewer candidates than this are not trained on
    loss                 hinge (Eq. 9), or softmax of the true tail among the polluted ones
    margin               ξ of the hinge loss
    temperature          what the scores are divided by in the loss
    reconstruction       γ of Eq. 10, the weight of the aggregator's reconstruction loss
    learning_rate        of Adam, times `decay` after every `decay_every` steps, `decays` times at most
    embedding_rate       the same for the pretrained vectors; 0 leaves them as they are
    steps                steps at most
    clip                 largest norm of the gradient; 0 leaves it as it is
    dropout              share of the neighbours' vectors dropped while training
    standardise          bring each pretrained vector to mean 0 and deviation 1 first
    neighbours           neighbours of an entity at most (N)
    neighbour_rule       which of them where there are more: sampled, or the first in the file
    matching_steps       T of Eq. 8
    evaluate_every       steps between evaluations on dev; each one saves the run
    patience             evaluations without a better dev MRR before training stops
    evaluate_candidates  the candidates on dev: full or paper
    mixed_precision      bfloat16 products on a GPU
    """

    model: str = "fsrl"
    shots: int = 3
    batch: int = 128
    relations: int = 1
    negatives: int = 1
    shared_negatives: bool = False
    smallest_range: int = 0
    loss: str = "hinge"
    margin: float = 5.0
    temperature: float = 1.0
    reconstruction: float = 1e-4
    learning_rate: float = 1e-3
    decay: float = 0.25
    decay_every: int = 10_000
    decays: int = 1000
    embedding_rate: float = 0.0
    steps: int = 10_000
    clip: float = 0.0
    dropout: float = 0.0
    standardise: bool = False
    neighbours: int = 30
    neighbour_rule: str = "sampled"
    matching_steps: int = 2
    evaluate_every: int = 500
    patience: int = 10
    evaluate_candidates: str = "full"
    seed: int = 0
    device: str = "cpu"
    mixed_precision: bool = False

    CHOICES: ClassVar[Mapping[str, Iterable[str]]] = {
        "model": COMPOSITIONS,
        "loss": ("hinge", "softmax"),
        "neighbour_rule": ("sampled", "first"),
        "evaluate_candidates": ("full", "paper"),
    }
    AT_LEAST_ONE = (
        *("shots", "batch", "relations", "negatives", "decay_every", "steps", "neighbours", "matching_steps"),
        *("evaluate_every", "patience"),
    )
    POSITIVE = ("margin", "temperature", "learning_rate", "decay")
    NOT_NEGATIVE = ("reconstruction", "clip", "embedding_rate", "decays", "smallest_range")

    def __post_init__(self) -> None:
        self.check()
        self.require("decay", self.decay <= 1, "1 or less")
        self.require("dropout", 0 <= self.dropout < 1, "0 or more and less than 1")

    def decay_at(self, step: int) -> float:
        """What the learning rates of a step, the first of which is 0, are multiplied with."""
        return float(self.decay ** min(step // self.decay_every, self.decays))
