"""MetaR (Chen et al., EMNLP 2019): relation meta, gradient meta, and the scorer of a trained model.

d is the length of the vectors, K the number of references, N that of false tails of each pair.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.core.seeds import generator
from fewlink.data.candidates import likely_tails
from fewlink.embeddings.interactions import interaction
from fewlink.embeddings.table import rows
from fewlink.graph import Graph
from fewlink.scorers import Question

TINY = 1e-12  # squares of distances below this count as this
TRANSE = interaction("transe")

Model = TypeVar("Model", bound=nn.Module)


class RelationMeta(nn.Module):
    """R = (1/K) Σ_k MLP([h_k ; t_k]): layers with LeakyReLU between them; dropout on what each of them gives."""

    def __init__(self, dim: int, hidden: tuple[int, ...], dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in itertools.pairwise([2 * dim, *hidden, dim]))
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, pairs: Tensor) -> Tensor:
        """Vectors of reference pairs (…, K, 2, d) to R (…, d)."""
        x = pairs.flatten(-2)  # (…, K, 2d)
        for layer in self.layers[:-1]:
            x = self.dropout(nn.functional.leaky_relu(layer(x)))
        relation: Tensor = self.layers[-1](x).mean(-2)
        return relation


def length(vectors: Tensor) -> Tensor:
    """‖v‖ of vectors (…, d), to (…,)."""
    return vectors.square().sum(-1).clamp_min(TINY).sqrt()


def distances(relation: Tensor, pairs: Tensor, false: Tensor) -> tuple[Tensor, Tensor]:
    """‖h + R − t‖ of pairs (…, P, 2, d), and of their heads with false tails (…, P, N, d): (…, P), (…, P, N).

    `relation` is (…, d).
    """
    ends = pairs[..., 0, :] + relation.unsqueeze(-2)  # (…, P, d)
    return length(ends - pairs[..., 1, :]), length(ends.unsqueeze(-2) - false)


def hinge(true: Tensor, false: Tensor, margin: float) -> Tensor:
    """[γ + s(h, t) − s(h, t')]₊ of distances (…, P) and (…, P, N), to (…, P, N)."""
    return (margin + true.unsqueeze(-1) - false).clamp_min(0)


def pulls(gaps: Tensor, false_gaps: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Gradients of Σ_k (1/N) Σ_n [γ + ‖v_k‖ − ‖v'_kn‖]₊ by v (…, K, d) and by v' (…, K, N, d), in their shapes.

    They are written out, that of a distance ‖v‖ being v/‖v‖, so that learning goes through them.
    """
    true, wrong = length(gaps), length(false_gaps)  # (…, K), (…, K, N)
    share = (margin + true.unsqueeze(-1) > wrong).to(gaps.dtype) / wrong.shape[-1]  # of false tails that are too near
    return gaps * (share.sum(-1) / true).unsqueeze(-1), false_gaps * (-share / wrong).unsqueeze(-1)


def gradient_meta(relation: Tensor, pairs: Tensor, false: Tensor, margin: float) -> Tensor:
    """G = ∇_R Σ_k (1/N) Σ_n [γ + s(h_k, t_k) − s(h_k, t'_kn)]₊.

    Shapes: relation (…, d), pairs (…, K, 2, d), false (…, K, N, d); G (…, d).
    """
    ends = pairs[..., 0, :] + relation.unsqueeze(-2)  # (…, K, d)
    towards, away = pulls(ends - pairs[..., 1, :], ends.unsqueeze(-2) - false, margin)
    return (towards + away.sum(-2)).sum(-2)


class MetaR(nn.Module):
    """The vectors of all entities (E, d), which learn too if `tuned`, and the learner of relation meta."""

    entities: Tensor

    def __init__(
        self, entities: Tensor, hidden: tuple[int, ...], *, margin: float, beta: float, dropout: float, tuned: bool
    ) -> None:
        super().__init__()
        self.margin, self.beta = margin, beta
        self.relation_meta = RelationMeta(entities.shape[1], hidden, dropout)
        if tuned:
            self.entities = nn.Parameter(entities.clone())
        else:
            self.register_buffer("entities", entities, persistent=False)

    def relation(self, pairs: Tensor, false: Tensor) -> Tensor:
        """R' = R − β G (…, d), from vectors of references (…, K, 2, d) and of false tails (…, K, N, d)."""
        relation: Tensor = self.relation_meta(pairs)
        if self.beta:
            relation = relation - self.beta * gradient_meta(relation, pairs, false, self.margin)
        return relation

    def forward(
        self, references: Tensor, reference_false: Tensor, queries: Tensor, false: Tensor, tasks: Tensor | None = None
    ) -> Tensor:
        """The loss of queries, its sums taken as means.

        Ids: references (B, K, 2) and their false tails (B, K, N), queries (B, Q, 2) and theirs (B, Q, N). Which tasks
        (B,) they belong to does not matter.
        """
        relation = self.relation(rows(self.entities, references), rows(self.entities, reference_false))
        found = distances(relation, rows(self.entities, queries), rows(self.entities, false))
        return hinge(*found, self.margin).mean()


class MetaScorer(ABC, Generic[Model]):
    """A trained model for the common evaluator.

    The false tails of a reference are `negatives` entities of the same kind as the references' tails, drawn by the
    seed, the head and the tail: the same whatever else is asked, and in whatever order references come.
    """

    def __init__(self, name: str, model: Model, graph: Graph, *, negatives: int, seed: int) -> None:
        self.name, self.model, self.graph = name, model, graph
        self.negatives, self.seed = negatives, seed

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        was_training = self.model.training
        self.model.eval()
        ends, tails = self.ends(question)
        self.model.train(was_training)
        scores = TRANSE.against(ends, tails)  # in double precision, so that ties stay ties
        return scores.to(torch.float32)

    @abstractmethod
    def ends(self, question: Question) -> tuple[Tensor, Tensor]:
        """Where the heads lead to (H, d), and where the candidates are (C, d); a score is −1 times their distance."""

    def false_tails(self, references: np.ndarray) -> np.ndarray:
        """False tails (K, N) of references (K, 2); of all entities where no other is of the same kind."""
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

    def ends(self, question: Question) -> tuple[Tensor, Tensor]:
        heads, tails = self.vectors(question.heads).double(), self.vectors(question.candidates).double()
        return heads + self.relation(question.references).double(), tails

    @torch.no_grad()
    def relation(self, references: np.ndarray) -> Tensor:
        """R' (d,) of references (K, 2)."""
        return self.model.relation(self.vectors(references), self.vectors(self.false_tails(references)))
