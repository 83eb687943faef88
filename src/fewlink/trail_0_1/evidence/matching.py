"""Matching evidence: the pair beside each reference, head with head and tail with tail, references weighed (β)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fewlink.embeddings.table import rows
from fewlink.trail_0_1.context import (
    Features,
    GraphContext,
    ModelInputs,
    Pairs,
    QueryHeads,
    TaskContext,
    is_reference_tail,
)
from fewlink.trail_0_1.evidence import bilinear, translation
from fewlink.trail_0_1.evidence.base import Evidence, ExplainedPair, Standardise, network
from fewlink.trail_0_1.evidence.profile import relation_cosines

AT_ONCE = 4096  # entities whose neighbours are read together


def head_cosines(heads: QueryHeads) -> Tensor:
    """Cosines (H, K, 3) of heads and references' heads: of TransE and ComplEx vectors, and of relation profiles."""
    graph, others = heads.task.graph, heads.task.references[:, 0]
    by_vectors = [unit(heads.ids) @ unit(others).T for unit in (graph.unit_transe, graph.unit_complex)]
    return torch.stack([*by_vectors, graph.profile_cosines(heads.ids, others)[0]], -1)


class TaskNeighbours(nn.Module):
    """An entity with its neighbours: its own vector beside Σ α_i e_i, α = softmax_i(a · e_i·g − b · log n_i).

    The attention depends on the task: g is the mean of the neighbourhoods of the references at the same end, each
    weighed by n_i alone, the number of edges of the entity with the neighbour's relation. Padding has no part. All
    vectors, sums too, are scaled to length 1, and both halves count the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sharpness, self.crowd = nn.Parameter(torch.tensor(4.0)), nn.Parameter(torch.tensor(1.0))

    def forward(self, ids: Tensor, references: Tensor, graph: GraphContext) -> Tensor:
        """The similarity (n, K) of entities (n,) to the references (K,), each with its neighbours."""
        task = normalize(self._around(references, None, graph).mean(0), dim=0)
        mine, theirs = (self._whole(side, task, graph) for side in (ids, references))
        return mine @ theirs.T

    def _whole(self, ids: Tensor, task: Tensor, graph: GraphContext) -> Tensor:
        around = normalize(self._around(ids, task, graph), dim=-1)
        return torch.cat([graph.unit_transe(ids), around], -1) / 2**0.5

    def _around(self, ids: Tensor, task: Tensor | None, graph: GraphContext) -> Tensor:
        """Σ α_i e_i of entities (n,). Of many, those with equally many neighbours together, without padding."""
        if torch.is_grad_enabled() or len(ids) < AT_ONCE:
            return self._summed(ids, task, graph)
        counts = graph.neighbours.counts(ids)
        around = torch.empty(len(ids), graph.translation.shape[1], device=ids.device)
        for count in counts.unique().tolist():
            for some in (counts == count).nonzero().squeeze(1).split(AT_ONCE):
                around[some] = self._summed(ids[some], task, graph, count)
        return around

    def _summed(self, ids: Tensor, task: Tensor | None, graph: GraphContext, slots: int | None = None) -> Tensor:
        places = graph.neighbours.places(ids, slots)  # (n, N)
        vectors = graph.unit_transe(rows(graph.neighbours.entities, places))  # (n, N, d)
        logits = -self.crowd * rows(graph.neighbour_groups, places).log()
        if task is not None:
            logits = logits + self.sharpness * (vectors @ task)
        weights = logits.masked_fill(~graph.neighbours.present(places), -torch.inf).softmax(-1).nan_to_num(0.0)
        return torch.einsum("nk,nkd->nd", weights, vectors)


class MatchingEvidence(Evidence):
    """A small network of how like each reference the pair is, averaged over references by attention (β).

    Features: (H, C, K, 8), what is read about the pair beside each reference.
    """

    kind = "matching"
    words = "likeness to the references"
    columns = (
        *("TransE cosine of heads", "ComplEx cosine of heads", "profile cosine of heads", "TransE cosine of tails"),
        *("ComplEx cosine of tails", "profile cosine of tails", "same tail", "TransE score by this reference"),
    )

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.standard = Standardise(len(self.columns))
        self.heads, self.tails = TaskNeighbours(), TaskNeighbours()
        self.network = network(len(self.columns) + 2, 16, 1 + width)

    @classmethod
    def extract(cls, pairs: Pairs) -> Features:
        candidates, shape = pairs.candidates, pairs.shape
        of_heads = pairs.heads.once(head_cosines).unsqueeze(1).expand(*shape, -1, -1)  # (H, C, K, 3)
        of_tails = [candidates.once(translation.tail_cosines), candidates.once(bilinear.tail_cosines)]
        of_tails += [candidates.once(relation_cosines)[0], candidates.once(is_reference_tail)]
        _, *by_each = pairs.once(translation.all_scores)
        each = torch.stack(by_each, -1).unsqueeze(-1)  # (H, C, K, 1)
        return (torch.cat([of_heads, torch.stack(of_tails, -1).expand(*shape, -1, -1), each], -1),)

    def fit_scale(self, features: Sequence[Features]) -> None:
        self.standard.fit([columns for columns, *_ in features])

    def forward(self, inputs: ModelInputs, graph: GraphContext) -> Tensor:
        logits, values = self._compared(inputs, graph)
        return torch.einsum("hck,hckw->hcw", logits.softmax(-1), values)

    def weights(self, inputs: ModelInputs, graph: GraphContext) -> Tensor:
        """β of each reference for each pair: (H, C, K)."""
        return self._compared(inputs, graph)[0].softmax(-1)

    def candidate_state(self, task: TaskContext, candidates: Tensor) -> Tensor:
        """How like each reference's tail the candidates are, with their neighbours: (C, K)."""
        similarity: Tensor = self.tails(candidates, task.tails, task.graph)
        return similarity

    def _compared(self, inputs: ModelInputs, graph: GraphContext) -> tuple[Tensor, Tensor]:
        columns = self.standard(inputs.features[self.kind][0])  # (H, C, K, 8)
        references = inputs.references
        heads = self.heads(inputs.heads, references[:, 0], graph)[:, None, :, None].expand(*columns.shape[:3], 1)
        tails = inputs.states.get(self.kind)
        if tails is None:
            tails = self.tails(inputs.candidates, references[:, 1], graph)
        outputs = self.network(torch.cat([columns, heads, tails[None, :, :, None].expand_as(heads)], -1))
        return outputs[..., 0], outputs[..., 1:]

    def reasons(self, pair: ExplainedPair) -> dict[str, Any]:
        return {"references": self.weights(pair.inputs, pair.task.graph)[0, 0].tolist()}
