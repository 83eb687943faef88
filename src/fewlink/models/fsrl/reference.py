"""FSRL as its paper writes it: Equations 2 to 10 from top to bottom, in plain PyTorch.

Zhang et al., "Few-Shot Knowledge Graph Completion", AAAI 2020. Words, letters and equation numbers are the paper's.
`reference_variants.py` has GMatching and the ablations as differences from this file. The package trains a faster
model, and tests check that its scores and gradients equal those of this one.

`python experiments/reference.py` trains for a minute on the built-in benchmark `umls` and prints a dev score.

Sizes: d numbers in an embedding, w = 2d in a pair, N neighbours of an entity, K references, B query pairs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fewlink.graph import Graph, neighbour_table
from fewlink.models.contract import Question
from fewlink.models.embeddings import Embeddings
from fewlink.tasks import Task


class Background(NamedTuple):
    """The background knowledge graph G' with its pre-trained embeddings.

    entities    (E, d)     e_t
    relations   (2R, d)    e_r, of all relations, then of their inverses
    neighbours  (E, N, 2)  the relational neighbours (r_i, t_i) of each entity; -1 where it has fewer than N
    """

    entities: Tensor
    relations: Tensor
    neighbours: Tensor

    @classmethod
    def of(cls, graph: Graph, embeddings: Embeddings, N: int = 30, seed: int = 0) -> Background:
        """A graph with its embeddings, and a random sample of at most N neighbours of each entity."""
        table = neighbour_table(graph, N, "sampled", seed)
        edges = torch.from_numpy(np.stack([table.relations, table.entities], 1)).long()  # (edges, 2)
        neighbours = pad_sequence(edges.split(np.diff(table.offsets).tolist()), batch_first=True, padding_value=-1)
        return cls(embeddings.entities, embeddings.relations, neighbours)

    def around(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """e_r and e_t (n, N, d) of the neighbours of entities (n,), and which of them are present (n, N)."""
        r, t = self.neighbours[ids].unbind(-1)  # (n, N) each
        return self.relations[r], self.entities[t], r >= 0


class NeighbourEncoder(nn.Module):
    """The relation-aware heterogeneous neighbour encoder.

    f_θ(h) = tanh( Σ_i α_i e_ti )                                                                    (2)
    α_i    = exp{ u_rtᵀ (W_rt (e_ri ⊕ e_ti) + b_rt) } / Σ_j exp{ u_rtᵀ (W_rt (e_rj ⊕ e_tj) + b_rt) }

    The paper does not define f_θ(h) without neighbours; here it is tanh of the entity's own embedding.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.W_rt = nn.Linear(2 * d, d)  # its bias is b_rt
        self.u_rt = nn.Linear(d, 1, bias=False)

    def forward(self, ids: Tensor, background: Background) -> Tensor:
        e_r, e_t, present = background.around(ids)
        summary = self.attend(e_r, e_t, present)  # (n, d)
        return torch.where(present.any(-1, keepdim=True), summary, background.entities[ids]).tanh()

    def attend(self, e_r: Tensor, e_t: Tensor, present: Tensor) -> Tensor:
        logits = self.u_rt(self.W_rt(torch.cat([e_r, e_t], -1)))  # (n, N, 1)
        alpha: Tensor = logits.masked_fill(~present.unsqueeze(-1), -1e9).softmax(1)  # (n, N, 1)
        return (alpha * e_t).sum(1)


class RecurrentAutoencoderAggregator(nn.Module):
    """The aggregation network: f_ε(R_r) = AG { E_k }, over the pairs E_1 … E_K of the reference set R_r.   (3)"""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.rnn_encoder = nn.LSTMCell(w, w)
        self.rnn_decoder = nn.LSTMCell(w, w)
        self.W_R = nn.Linear(w, w // 2)  # its bias is b_R
        self.u_R = nn.Linear(w // 2, 1, bias=False)

    def forward(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs (K, w) to the embedding f_ε(R_r) (w,) and the reconstruction loss L_re ()."""
        m, c = self.encode(pairs)
        return self.attend(m + pairs), self.reconstruction_loss(pairs, m[-1], c)  # m'_k = m_k + E_k

    def encode(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's hidden states m_1 … m_K (K, w), and its last cell state (w,).

        E_1 → m_1 → … → m_K → d_K → … → d_1                                                           (4)
        m_k     = RNN_encoder(E_k, m_{k-1})                                                           (5)
        d_{k-1} = RNN_decoder(d_k)
        """
        m = c = torch.zeros_like(pairs[0])
        states = []
        for pair in pairs:
            m, c = self.rnn_encoder(pair, (m, c))
            states.append(m)
        return torch.stack(states), c

    def decode(self, d: Tensor, c: Tensor, K: int) -> Tensor:
        """The hidden states d_K … d_1 (K, w) of the decoder, which starts from m_K and reads its own output."""
        states = []
        for _ in range(K):
            d, c = self.rnn_decoder(d, (d, c))
            states.append(d)
        return torch.stack(states)

    def reconstruction_loss(self, pairs: Tensor, m_K: Tensor, c: Tensor) -> Tensor:
        """L_re(R_r) = Σ_k ‖d_k − E_k‖²                                                               (6)"""
        return (self.decode(m_K, c, len(pairs)).flip(0) - pairs).square().sum()

    def attend(self, m: Tensor) -> Tensor:
        """The embedding (w,) of the reference set from m' (K, w).

        β_k      = exp{ u_Rᵀ (W_R m'_k + b_R) } / Σ_k' exp{ u_Rᵀ (W_R m'_k' + b_R) }                  (7)
        f_ε(R_r) = Σ_k β_k m'_k
        """
        beta: Tensor = self.u_R(self.W_R(m)).softmax(0)  # (K, 1)
        return (beta * m).sum(0)


class MatchingProcessor(nn.Module):
    """The recurrent processor f_μ, which matches query pairs with the reference set in T steps."""

    def __init__(self, w: int, T: int) -> None:
        super().__init__()
        self.T = T
        self.rnn_match = nn.LSTMCell(w, 2 * w)

    def forward(self, queries: Tensor, f_R: Tensor) -> Tensor:
        """Query pairs E_l (B, w) and f_ε(R_r) (w,) to similarity scores (B,): the inner products of g_T and f_ε(R_r).

        g'_t, c_t = RNN_match(E_l, [g_{t-1} ⊕ f_ε(R_r)], c_{t-1})                                     (8)
        g_t       = g'_t + E_l

        The cell's state has 2w numbers; g' is the first w, so that it can be added to E_l.
        """
        B, w = queries.shape
        g = torch.zeros_like(queries)
        c = queries.new_zeros(B, 2 * w)
        for _ in range(self.T):
            state, c = self.rnn_match(queries, (torch.cat([g, f_R.expand(B, w)], -1), c))  # (B, 2w) each
            g = state[:, :w] + queries  # (B, w)
        return g @ f_R


class FSRL(nn.Module):
    """Scores query pairs of a relation r by their similarity to its reference set."""

    Encoder: Any = NeighbourEncoder
    Aggregator: Any = RecurrentAutoencoderAggregator
    Matcher: Any = MatchingProcessor

    def __init__(self, d: int, T: int = 2) -> None:
        super().__init__()
        self.encoder = self.Encoder(d)  # θ
        self.aggregator = self.Aggregator(2 * d)  # ε
        self.matcher = self.Matcher(2 * d, T)  # μ

    def pairs(self, ids: Tensor, background: Background) -> Tensor:
        """E_{h,t} = [f_θ(h) ⊕ f_θ(t)] (n, 2d) of entity pairs (n, 2)."""
        return torch.cat([self.encoder(ids[:, 0], background), self.encoder(ids[:, 1], background)], -1)

    def forward(self, references: Tensor, queries: Tensor, background: Background) -> tuple[Tensor, Tensor]:
        """References (K, 2) and queries (B, 2) of entity ids to scores s (B,) and the reconstruction loss ()."""
        f_R, L_re = self.aggregator(self.pairs(references, background))
        return self.matcher(self.pairs(queries, background), f_R), L_re


def ranking_loss(positive: Tensor, negative: Tensor, xi: float = 5.0) -> Tensor:
    """L_rank = Σ_r Σ_l [ξ + s(h_l, t⁻_l) − s(h_l, t_l)]₊                                             (9)

    Scores are (B,). A mean replaces the sum, so that γ does not depend on the batch size.
    """
    return (xi + negative - positive).clamp_min(0).mean()


def joint_loss(L_rank: Tensor, L_re: Tensor, gamma: float = 1e-4) -> Tensor:
    """L_joint = L_rank + γ L_re                                                                     (10)"""
    return L_rank + gamma * L_re


def episodes(tasks: Sequence[Task], K: int, B: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Algorithm 1: yield a reference set (K, 2), query pairs (B, 2), and the queries with polluted tails (B, 2)."""
    draw = random.Random(seed)
    while True:
        for task in draw.sample(tasks, len(tasks)):
            pairs = draw.sample(task.pairs.tolist(), len(task.pairs))
            references = pairs[:K]
            queries = draw.choices(pairs[K:], k=B)
            polluted = []
            for head, _ in queries:
                tail = draw.choice(task.range)
                while tail in task.known_tails[head]:
                    tail = draw.choice(task.range)
                polluted.append([head, tail])
            yield torch.tensor(references), torch.tensor(queries), torch.tensor(polluted)


def train(
    model: FSRL, background: Background, tasks: Sequence[Task], K: int = 3, B: int = 128, seed: int = 0
) -> Iterator[float]:
    """Algorithm 1: update the parameters by Adam after each episode, and yield its loss."""
    device = background.entities.device
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for references, queries, polluted in episodes(tasks, K, B, seed):
        scores, L_re = model(references.to(device), torch.cat([queries, polluted]).to(device), background)
        loss = joint_loss(ranking_loss(*scores.chunk(2)), L_re)
        adam.zero_grad()
        loss.backward()
        adam.step()
        yield loss.item()


@dataclass
class ReferenceScorer:
    """The model as a scorer, for the package's evaluator."""

    model: FSRL
    background: Background
    name: str = "fsrl-reference"

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        """The scores (H, C) of every head with every candidate."""
        ids = (question.references, question.heads, question.candidates)
        device = self.background.entities.device
        references, heads, tails = (torch.from_numpy(part.astype(np.int64)).to(device) for part in ids)
        scores: Tensor = self.model(references, torch.cartesian_prod(heads, tails), self.background)[0]
        return scores.view(len(heads), len(tails))
