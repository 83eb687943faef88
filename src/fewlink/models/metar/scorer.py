"""Scorers of MetaR, and the base that GANA's scorer shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.models.contract import Question
from fewlink.models.embeddings.interactions import interaction
from fewlink.models.embeddings.table import rows
from fewlink.models.metar.model import MetaR
from fewlink.tasks.candidates import likely_tails

TRANSE = interaction("transe")

Model = TypeVar("Model", bound=nn.Module)


class MetaScorer(ABC, Generic[Model]):
    """A trained model that scores by distance.

    The false tails of a reference are `negatives` entities of the same kind as the references' tails. They depend only
    on the seed, the head and the tail, so scores depend neither on the rest of the question nor on the order of the
    references.
    """

    def __init__(self, name: str, model: Model, graph: Graph, *, negatives: int, seed: int) -> None:
        self.name = name
        self.model = model
        self.graph = graph
        self.negatives = negatives
        self.seed = seed

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        was_training = self.model.training
        self.model.eval()
        points, tails = self.points(question)
        self.model.train(was_training)
        scores = TRANSE.against(points, tails)  # double precision preserves ties
        return scores.to(torch.float32)

    @abstractmethod
    def points(self, question: Question) -> tuple[Tensor, Tensor]:
        """The points h + R of the heads (H, d) and t of the candidates (C, d); a score is minus their distance."""

    def false_tails(self, references: np.ndarray) -> np.ndarray:
        """False tails (K, N) of references (K, 2), drawn from all entities if the kind has no other entity."""
        kind = likely_tails(self.graph, references[:, 1])
        drawn = []
        for head, tail in references.tolist():
            true = references[references[:, 0] == head, 1]
            pool = np.setdiff1d(kind, true)
            if not len(pool):
                pool = np.setdiff1d(np.arange(len(self.graph.entities)), true)
            drawn.append(generator(self.seed, "false tails", head, tail).choice(pool, self.negatives))
        return np.stack(drawn)

    def ids(self, ids: np.ndarray) -> Tensor:
        """Ids as int64 on the model's device."""
        table: Tensor = self.model.entities  # type: ignore[assignment]
        return torch.from_numpy(np.asarray(ids, np.int64)).to(table.device)

    def vectors(self, ids: np.ndarray) -> Tensor:
        """The vectors of entities."""
        return rows(self.model.entities, self.ids(ids))  # type: ignore[arg-type]


class MetaRScorer(MetaScorer[MetaR]):
    """−‖h + R' − t‖."""

    def points(self, question: Question) -> tuple[Tensor, Tensor]:
        heads = self.vectors(question.heads).double()
        tails = self.vectors(question.candidates).double()
        return heads + self.relation(question.references).double(), tails

    @torch.no_grad()
    def relation(self, references: np.ndarray) -> Tensor:
        """R' (d,) of references (K, 2)."""
        return self.model.relation(self.vectors(references), self.vectors(self.false_tails(references)))
