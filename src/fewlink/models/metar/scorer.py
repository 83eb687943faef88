"""A trained MetaR as a scorer."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.core.seeds import derive, generator
from fewlink.graph import Graph
from fewlink.models.contract import Question
from fewlink.models.embeddings import Embeddings, interaction
from fewlink.models.embeddings.table import rows
from fewlink.models.metar.model import MetaR
from fewlink.models.metar.settings import MetaRSettings
from fewlink.tasks.candidates import likely_tails

TRANSE = interaction("transe")


class MetaRScorer:
    """A trained model that scores by −‖h + R' − t‖.

    The false tails of a reference are entities of the same kind as the references' tails. They depend only on the seed,
    the head and the tail, so scores depend neither on the rest of the question nor on the order of the references.
    """

    def __init__(self, model: MetaR, graph: Graph, settings: MetaRSettings) -> None:
        self.name = settings.model
        self.model = model
        self.graph = graph
        self.negatives = settings.negatives
        self.seed = settings.seed

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        was_training = self.model.training
        self.model.eval()
        heads = self._vectors(question.heads).double()
        tails = self._vectors(question.candidates).double()
        points = heads + self.relation(question.references).double()
        self.model.train(was_training)
        scores = TRANSE.against(points, tails)  # double precision preserves ties
        return scores.to(torch.float32)

    @torch.no_grad()
    def relation(self, references: np.ndarray) -> Tensor:
        """R' (d,) of references (K, 2)."""
        return self.model.relation(self._vectors(references), self._vectors(self.false_tails(references)))

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

    def _vectors(self, ids: np.ndarray) -> Tensor:
        """The vectors of entities."""
        table = self.model.entities
        return rows(table, torch.from_numpy(np.asarray(ids, np.int64)).to(table.device))


def assemble(vectors: Embeddings, settings: MetaRSettings) -> MetaR:
    """A model with its initial parameters, a pure function of the vectors and the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(settings.seed, "start"))
        if settings.start == "random":
            table = nn.init.xavier_uniform_(torch.empty_like(vectors.entities, dtype=torch.float32))
            vectors = dataclasses.replace(vectors, entities=table)
        model = MetaR(
            _scaled(vectors.single_precision().entities, settings.scale),
            (settings.hidden_1, settings.hidden_2),
            margin=settings.margin,
            beta=settings.beta,
            dropout=settings.dropout,
            tuned=settings.embedding_rate > 0,
        )
    return model.to(settings.device)


def _scaled(entities: Tensor, length: float) -> Tensor:
    """Vectors (E, d) with this mean length; 0 does not scale them."""
    return entities * (length / entities.norm(dim=1).mean()) if length else entities
