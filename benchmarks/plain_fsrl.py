"""FSRL written literally from the paper's equations, for comparison of speed with the package.

Every neighbour's [e_r ; e_t] passes through the attention's map, an entity is encoded at each occurrence, the matching
cell computes its whole hidden state of 2w for every pair in every step, episodes are drawn one pair at a time in
Python, and each query is ranked separately by sorting its candidates' scores. Two things favour it: neighbours and
vectors are on the device, and a relation's references are aggregated once per batch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.data import Task, candidates_of
from fewlink.data.benchmark import Benchmark
from fewlink.models.fsrl.neighbourhood import Neighbourhood

# names of the parameters in the state of the package's `fsrl`
PARAMETERS = {
    "neighbour_map.weight": "encoder.attention.projection.weight",
    "neighbour_map.bias": "encoder.attention.projection.bias",
    "neighbour_vote.weight": "encoder.attention.u",
    "encoder.weight_ih_l0": "aggregator.recurrence.encoder.weight_ih",
    "encoder.weight_hh_l0": "aggregator.recurrence.encoder.weight_hh",
    "encoder.bias_ih_l0": "aggregator.recurrence.encoder.bias_ih",
    "encoder.bias_hh_l0": "aggregator.recurrence.encoder.bias_hh",
    "decoder.weight_ih_l0": "aggregator.reconstruction.decoder.weight_ih",
    "decoder.weight_hh_l0": "aggregator.reconstruction.decoder.weight_hh",
    "decoder.bias_ih_l0": "aggregator.reconstruction.decoder.bias_ih",
    "decoder.bias_hh_l0": "aggregator.reconstruction.decoder.bias_hh",
    "reference_map.weight": "aggregator.attention.projection.weight",
    "reference_map.bias": "aggregator.attention.projection.bias",
    "reference_vote.weight": "aggregator.attention.u",
}


class PlainFSRL(nn.Module):
    """The model of Eqs. 2 to 8 on the neighbours and frozen vectors of `around`; w = 2d."""

    def __init__(self, around: Neighbourhood, steps: int) -> None:
        super().__init__()
        dim, width = around.dim, 2 * around.dim
        self.around, self.steps = around, steps
        self.neighbour_map, self.neighbour_vote = nn.Linear(2 * dim, dim), nn.Linear(dim, 1, bias=False)
        self.encoder, self.decoder = nn.LSTM(width, width), nn.LSTM(width, width)
        self.reference_map, self.reference_vote = nn.Linear(width, dim), nn.Linear(dim, 1, bias=False)
        self.matching = nn.LSTMCell(width, 2 * width)
        self.to(around.entities.device)

    @torch.no_grad()
    def copy_from(self, state: Mapping[str, Tensor]) -> PlainFSRL:
        """Copy the parameters of the package's `fsrl`."""
        parameters = dict(self.named_parameters())
        for name, theirs in PARAMETERS.items():
            parameters[name].copy_(state[theirs].reshape(parameters[name].shape))
        width = parameters["matching.weight_ih"].shape[1]
        hidden = torch.cat([state["matcher.from_state"], state["matcher.from_reference"]], 1)
        read = {"weight_ih": state["matcher.from_query"], "weight_hh": hidden, "bias_ih": state["matcher.bias"]}
        for name, values in read.items():  # the package has only the units of each gate that are read
            parameters[f"matching.{name}"].unflatten(0, (4, 2 * width))[:, :width] = values.unflatten(0, (4, width))
        parameters["matching.bias_hh"].zero_()
        return self

    def encode(self, ids: Tensor) -> Tensor:
        """Entities (n,) to vectors (n, d) by Eq. 2; without neighbours, tanh of the entity's vector."""
        relations, tails, present = self.around.neighbours_of(ids)  # (n, N) each
        relations, tails = self.around.relations[relations], self.around.entities[tails]  # (n, N, d) each
        logits = self.neighbour_vote(self.neighbour_map(torch.cat([relations, tails], -1))).squeeze(-1)  # (n, N)
        weights = logits.masked_fill(~present, -1e30).softmax(-1)
        summed = (weights.unsqueeze(-1) * tails).sum(1)  # (n, d)
        return torch.tanh(torch.where(present.any(-1, keepdim=True), summed, self.around.entities[ids]))

    def encode_pairs(self, pairs: Tensor) -> Tensor:
        """Pairs (n, 2) to [enc(h) ; enc(t)] (n, w)."""
        return torch.cat([self.encode(pairs[:, 0]), self.encode(pairs[:, 1])], -1)

    def aggregate(self, references: Tensor) -> tuple[Tensor, Tensor]:
        """References (K, w) to f(R) (1, w) and the reconstruction loss, Eqs. 4 to 7."""
        states, carried = self.encoder(references.unsqueeze(1))  # (K, 1, w)
        output, loss = states[-1:], references.new_zeros(())
        for reference in reversed(references.unbind()):
            output, carried = self.decoder(output, carried)
            loss = loss + ((output.flatten() - reference) ** 2).sum()
        residual = states.squeeze(1) + references
        weights = self.reference_vote(self.reference_map(residual)).softmax(0)  # (K, 1)
        return (weights * residual).sum(0, keepdim=True), loss

    def match(self, queries: Tensor, reference: Tensor) -> Tensor:
        """Queries (n, w) against f(R) (1, w) to scores (n,), Eq. 8."""
        summary = reference.expand(len(queries), -1)
        refined = torch.zeros_like(queries)
        memory = queries.new_zeros(len(queries), self.matching.hidden_size)
        for _ in range(self.steps):
            state, memory = self.matching(queries, (torch.cat([refined, summary], -1), memory))
            refined = queries + state[:, : queries.shape[1]]
        return (refined * summary).sum(-1)

    def forward(self, references: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """References (K, 2) and pairs (n, 2) of ids to scores (n,) and the reconstruction loss."""
        summary, loss = self.aggregate(self.encode_pairs(references))
        return self.match(self.encode_pairs(pairs), summary), loss


Pairs = list[tuple[int, int]]


def episodes(tasks: Sequence[Task], shots: int, batch: int, seed: int) -> Iterator[tuple[Pairs, Pairs, Pairs]]:
    """References, queries and the queries with polluted tails; relations are shuffled anew in each pass."""
    draw = random.Random(seed)
    pairs = [[(int(h), int(t)) for h, t in task.pairs] for task in tasks]
    ranges = [task.range.tolist() for task in tasks]
    known = [{head: set(tails.tolist()) for head, tails in task.known_tails.items()} for task in tasks]
    order = list(range(len(tasks)))
    while True:
        draw.shuffle(order)
        for number in order:
            draw.shuffle(pairs[number])
            references, rest = pairs[number][:shots], pairs[number][shots:]
            queries = draw.sample(rest, batch) if len(rest) >= batch else [draw.choice(rest) for _ in range(batch)]
            polluted = []
            for head, _ in queries:
                tail = draw.choice(ranges[number])
                while tail in known[number][head]:
                    tail = draw.choice(ranges[number])
                polluted.append((head, tail))
            yield references, queries, polluted


class PlainTraining:
    """Algorithm 1: an episode, the hinge loss with the weighted reconstruction, a step of Adam."""

    def __init__(
        self,
        model: PlainFSRL,
        tasks: Sequence[Task],
        *,
        shots: int,
        batch: int,
        margin: float,
        reconstruction: float,
        learning_rate: float,
        seed: int = 0,
    ) -> None:
        self.model, self.margin, self.reconstruction = model, margin, reconstruction
        self.episodes = episodes(tasks, shots, batch, seed)
        self.optimizer = torch.optim.Adam(model.parameters(), learning_rate)
        self.losses: list[float] = []

    def step(self) -> None:
        device = self.model.around.entities.device
        references, queries, polluted = (torch.tensor(part, device=device) for part in next(self.episodes))
        scores, restored = self.model(references, torch.cat([queries, polluted]))
        positive, negative = scores.chunk(2)
        loss = torch.relu(self.margin + negative - positive).mean() + self.reconstruction * restored
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


class Query(NamedTuple):
    """A test query with its relation's references (K, 2) and candidates (c,)."""

    task: Task
    references: np.ndarray
    candidates: np.ndarray
    head: int
    tail: int


def test_queries(benchmark: Benchmark, shots: int, count: int) -> list[Query]:
    """`count` queries spread evenly over the test split, with their `paper` candidates."""
    queries = []
    for task in benchmark.split("test"):
        references, pairs = task.split(shots)
        pool = candidates_of("paper", task, references, benchmark.graph)
        queries += [Query(task, references, pool.ids[pool.counted], int(h), int(t)) for h, t in pairs]
    places = np.linspace(0, len(queries) - 1, min(count, len(queries))).astype(int)
    return [queries[place] for place in places]


def rivals(query: Query) -> list[int]:
    """The true tail, followed by the candidates that are not known answers."""
    known = set(query.task.known_tails[query.head].tolist())
    return [query.tail, *(c for c in query.candidates.tolist() if c not in known)]


@torch.no_grad()
def query_scores(model: PlainFSRL, query: Query) -> Tensor:
    """The scores (1 + candidates,) of the true tail and its rivals, with every entity encoded again."""
    device = model.around.entities.device
    pairs = torch.tensor([(query.head, tail) for tail in rivals(query)], device=device)
    scores: Tensor = model(torch.from_numpy(query.references.astype(np.int64)).to(device), pairs)[0]
    return scores


def rank(model: PlainFSRL, query: Query) -> int:
    """The rank of the true tail, by sorting."""
    order: list[int] = np.argsort(query_scores(model, query).cpu().numpy())[::-1].tolist()
    return order.index(0) + 1
