"""GANA (Niu et al., "Relational Learning with Gated and Attentive Neighbor Aggregator …", SIGIR 2021).

`NeighbourAggregator` encodes the references with their neighbours, and `RelationLearner` computes a relation's vector R
from them. Distances are measured on a hyperplane with the normal w, as in TransH (`project`). One gradient step on the
references' loss improves R and w (`gradient_metas`, `GANA.relation`).

Sizes: d numbers in a vector, K references, N false tails of each pair, M neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.models.embeddings.table import rows
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.metar.model import distances, hinge, hinge_gradients, length


class NeighbourAggregator(nn.Module):
    """Combines an entity's vector e with its neighbours (r_i, e_i) by attention and a gate.

    c_i = LeakyReLU(W [r_i ; e_i] + b),  α = softmax_i(u·c_i),  n = Σ α_i c_i
    g = σ(v·n + a),                      e' = g n + (1 − g) e

    An entity without neighbours keeps its vector. Dropout applies to the input vectors. All neighbours by a relation
    share the dropout of its vector, so that W r is computed once for each relation.
    """

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.projection = nn.Linear(2 * dim, dim)
        self.attention = nn.Linear(dim, 1, bias=False)
        self.gate = nn.Linear(dim, 1)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.projection, self.attention):
            nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(self.projection.bias)

    def forward(self, ids: Tensor, around: Neighbourhood, hidden: Tensor | None = None) -> Tensor:
        """Entities (…,) to vectors (…, d), ignoring neighbours by the relations `hidden` (…,) or their inverses.

        A hidden relation of −1 hides nothing.
        """
        relations, entities, present = around.neighbours_of(ids)  # (…, M) each
        if hidden is not None:
            present = present & (relations % (len(around.relations) // 2) != hidden.unsqueeze(-1))
        by_relation, by_entity = self.projection.weight.split(around.dim, 1)  # (d, d) each
        messages = rows(self.dropout(around.relations) @ by_relation.T + self.projection.bias, relations)  # (…, M, d)
        messages = nn.functional.leaky_relu(messages + self.dropout(rows(around.entities, entities)) @ by_entity.T)
        any_present = present.any(-1, keepdim=True)  # (…, 1)
        logits = self.attention(messages).squeeze(-1).masked_fill(~present & any_present, -torch.inf)
        summary = (logits.softmax(-1).unsqueeze(-2) @ messages).squeeze(-2)  # (…, d)
        gate = self.gate(summary).sigmoid() * any_present
        vectors: Tensor = gate * summary + (1 - gate) * self.dropout(rows(around.entities, ids))
        return vectors


class RelationLearner(nn.Module):
    """R from the references' vectors s_k = [h'_k ; t'_k], by a bidirectional LSTM of L layers and attention.

    m_1 … m_K = BiLSTM(s_1 … s_K),  α_l = softmax_k(q_l·m_k),  R = W [Σ_k α_1k m_k ; … ; Σ_k α_Lk m_k] + b

    q_l is the last state of layer l, forward and backward.
    """

    def __init__(self, dim: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2 * dim, hidden, layers, bidirectional=True, batch_first=True)
        self.output = nn.Linear(2 * hidden * layers, dim)

    def forward(self, pairs: Tensor) -> Tensor:
        """Vectors of reference pairs (B, K, 2, d) to R (B, d)."""
        states, (last, _) = self.lstm(pairs.flatten(-2))  # (B, K, 2H), (2L, B, H)
        queries = last.unflatten(0, (-1, 2)).permute(2, 0, 1, 3).flatten(-2)  # (B, L, 2H)
        weights = (queries @ states.mT).softmax(-1)  # (B, L, K)
        relation: Tensor = self.output((weights @ states).flatten(1))
        return relation


def project(vectors: Tensor, normal: Tensor) -> Tensor:
    """v − (w·v) w: vectors (…, d) projected onto the hyperplane with the unit normal w (…, d), broadcast."""
    return vectors - (vectors * normal).sum(-1, keepdim=True) * normal


def unit(vectors: Tensor) -> Tensor:
    """v/‖v‖ of vectors (…, d)."""
    return vectors / length(vectors).unsqueeze(-1)


def gradient_metas(
    relation: Tensor, normal: Tensor, pairs: Tensor, false: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """∇_R and ∇_w of the references' loss Σ_k (1/N) Σ_n [γ + s(h_k, t_k) − s(h_k, t'_kn)]₊ of TransH's distances.

    s(h, t) is the length of v = δ − (w·δ) w + R with δ = h − t. A gradient p with respect to v is therefore
    −(w·p) δ − (w·δ) p with respect to w.
    Shapes: relation, normal (…, d), pairs (…, K, 2, d), false (…, K, N, d); both gradients (…, d).
    """
    heads = pairs[..., 0, :].unsqueeze(-2)
    tails = pairs[..., 1, :].unsqueeze(-2)
    offsets = heads - torch.cat([tails, false], -2)  # δ (…, K, 1 + N, d)
    relation = relation[..., None, None, :]
    normal = normal[..., None, None, :]
    gaps = project(offsets, normal) + relation
    by_gap, by_false_gap = hinge_gradients(gaps[..., 0, :], gaps[..., 1:, :], margin)
    by_v = torch.cat([by_gap.unsqueeze(-2), by_false_gap], -2)  # p (…, K, 1 + N, d)
    w_p, w_delta = ((vectors * normal).sum(-1, keepdim=True) for vectors in (by_v, offsets))
    return by_v.sum((-3, -2)), -(w_p * offsets + w_delta * by_v).sum((-3, -2))


class GANA(nn.Module):
    """GANA with the vectors of all entities.

    entities        (E, d) vectors for distances, which are trained if `tuned`
    around          the pretrained vectors that the aggregator reads, which are not trained
    normal          (d,) w before the gradient step, the same for all relations
    task_relations  (T,) the background relation of each task, whose edges its episodes do not read; −1 if it has none
    """

    entities: Tensor
    task_relations: Tensor

    def __init__(
        self,
        around: Neighbourhood,
        *,
        hidden: int,
        layers: int,
        margin: float,
        beta: float,
        dropout: float,
        tuned: bool,
        task_relations: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.margin = margin
        self.beta = beta
        self.around = around
        self.aggregator = NeighbourAggregator(around.dim, dropout)
        self.relation_learner = RelationLearner(around.dim, hidden, layers)
        self.normal = nn.Parameter(torch.randn(around.dim) * around.dim**-0.5)
        if tuned:
            self.entities = nn.Parameter(around.entities.clone())
        else:
            self.register_buffer("entities", around.entities, persistent=False)
        none = torch.zeros(0, dtype=torch.int64)
        self.register_buffer("task_relations", none if task_relations is None else task_relations, persistent=False)

    def relation(
        self, references: Tensor, reference_false: Tensor, hidden: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """R' and w' after the step, (B, d) each, from ids of references (B, K, 2) and false tails (B, K, N).

        Edges of the relations `hidden` (B,) are ignored.
        """
        if hidden is not None:
            hidden = hidden.view(-1, 1, 1).expand(references.shape)
        relation = self.relation_learner(self.aggregator(references, self.around, hidden))
        normal = unit(self.normal).expand_as(relation)
        if not self.beta:
            return relation, normal
        pairs = rows(self.entities, references)
        false = rows(self.entities, reference_false)
        by_relation, by_normal = gradient_metas(relation, normal, pairs, false, self.margin)
        return relation - self.beta * by_relation, unit(normal - self.beta * by_normal)

    def forward(
        self, references: Tensor, reference_false: Tensor, queries: Tensor, false: Tensor, tasks: Tensor | None = None
    ) -> Tensor:
        """The mean loss of the queries.

        Ids: references (B, K, 2) with false tails (B, K, N), queries (B, Q, 2) with false tails (B, Q, N), tasks (B,).
        """
        hidden = None if tasks is None else self.task_relations[tasks]
        relation, normal = self.relation(references, reference_false, hidden)
        pairs, others = (project(rows(self.entities, ids), normal[:, None, None]) for ids in (queries, false))
        return hinge(*distances(relation, pairs, others), self.margin).mean()
