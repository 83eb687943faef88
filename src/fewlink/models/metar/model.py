"""MetaR (Chen et al., "Meta Relational Learning for Few-Shot Link Prediction in Knowledge Graphs", EMNLP 2019).

For a relation with references (h_k, t_k), k = 1 … K, each with N false tails t':

relation meta       R_k = MLP([h_k ; t_k]),  R = (1/K) Σ_k R_k            `RelationMeta`
distance            s(h, t) = ‖h + R − t‖                                 `distances`
loss of references  L(S) = Σ_k (1/N) Σ_t' [γ + s(h_k, t_k) − s(h_k, t')]₊ `hinge`
gradient meta       G = ∇_R L(S)                                          `gradient_meta`
gradient step       R' = R − β G                                          `MetaR.relation`
loss of queries     L(Q), the same hinge loss with R'                     `MetaR.forward`

d is the length of the vectors.
"""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from fewlink.models.embeddings.table import rows

ENTITIES = "entities"  # the name of the weight that holds the entities' vectors
MIN_SQUARED_LENGTH = 1e-12  # keeps the gradient of a length finite


class RelationMeta(nn.Module):
    """R = (1/K) Σ_k MLP([h_k ; t_k]), with LeakyReLU and dropout after each hidden layer."""

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
    return vectors.square().sum(-1).clamp_min(MIN_SQUARED_LENGTH).sqrt()


def distances(relation: Tensor, pairs: Tensor, false: Tensor) -> tuple[Tensor, Tensor]:
    """‖h + R − t‖ of pairs (…, P, 2, d), and of their heads with false tails (…, P, N, d): (…, P), (…, P, N).

    `relation` is (…, d).
    """
    ends = pairs[..., 0, :] + relation.unsqueeze(-2)  # (…, P, d)
    return length(ends - pairs[..., 1, :]), length(ends.unsqueeze(-2) - false)


def hinge(true: Tensor, false: Tensor, margin: float) -> Tensor:
    """[γ + s(h, t) − s(h, t')]₊ of distances (…, P) and (…, P, N), to (…, P, N)."""
    return (margin + true.unsqueeze(-1) - false).clamp_min(0)


def gradient_meta(relation: Tensor, pairs: Tensor, false: Tensor, margin: float) -> Tensor:
    """G = ∇_R Σ_k (1/N) Σ_n [γ + s(h_k, t_k) − s(h_k, t'_kn)]₊.

    It is written out, with ∇‖v‖ = v/‖v‖, so that training can differentiate through it.
    Shapes: relation (…, d), pairs (…, K, 2, d), false (…, K, N, d); G (…, d).
    """
    ends = pairs[..., 0, :] + relation.unsqueeze(-2)  # (…, K, d)
    gaps = ends - pairs[..., 1, :]  # (…, K, d)
    false_gaps = ends.unsqueeze(-2) - false  # (…, K, N, d)
    true = length(gaps)  # (…, K)
    wrong = length(false_gaps)  # (…, K, N)
    active = (margin + true.unsqueeze(-1) > wrong).to(gaps.dtype) / wrong.shape[-1]  # 1/N where the hinge is positive
    by_gap = gaps * (active.sum(-1) / true).unsqueeze(-1)
    by_false_gap = false_gaps * (-active / wrong).unsqueeze(-1)
    return (by_gap + by_false_gap.sum(-2)).sum(-2)


class MetaR(nn.Module):
    """The relation-meta learner and the vectors of all entities (E, d), which are trained if `tuned`."""

    entities: Tensor

    def __init__(
        self, entities: Tensor, hidden: tuple[int, ...], *, margin: float, beta: float, dropout: float, tuned: bool
    ) -> None:
        super().__init__()
        self.margin = margin
        self.beta = beta
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

    def forward(self, references: Tensor, reference_false: Tensor, queries: Tensor, false: Tensor) -> Tensor:
        """The mean loss of the queries.

        Ids: references (B, K, 2) with false tails (B, K, N), queries (B, Q, 2) with false tails (B, Q, N).
        """
        relation = self.relation(rows(self.entities, references), rows(self.entities, reference_false))
        true, wrong = distances(relation, rows(self.entities, queries), rows(self.entities, false))
        return hinge(true, wrong, self.margin).mean()
