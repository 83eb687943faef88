"""TRAIL: what a graph and its vectors say about a pair, weighed by how far each can be trusted for these references."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fewlink.base.resolver import choose
from fewlink.embeddings.table import rows
from fewlink.trail.context import Known
from fewlink.trail.features import COLUMNS, CONTEXT, KINDS, REFERENCE_WIDTH, TRAIL_WIDTH, Findings

MANY = 4096  # entities whose neighbours are looked at together


class Asked(NamedTuple):
    """Heads and candidates with what was found about them.

    Shapes: `references` (K, 2); `heads` (H,); `candidates` (C,); `context` (10,), what `reliability` tells of the
    references; `tails` (C, K), what `Matching.tails` gives, where it has been worked out.
    """

    references: Tensor
    heads: Tensor
    candidates: Tensor
    findings: Findings
    context: Tensor
    tails: Tensor | None = None


class Standard(nn.Module):
    """Columns (…, n) brought to mean 0 and deviation 1, as they are in the lessons it was set by."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def set_by(self, columns: Sequence[Tensor]) -> None:
        every = torch.cat([part.flatten(0, -2).float() for part in columns])
        self.mean.copy_(every.mean(0))
        self.deviation.copy_(every.std(0) + 1e-3)

    def forward(self, columns: Tensor) -> Tensor:
        return (columns.float() - self.mean) / self.deviation


class Evidence(nn.Module, ABC):
    """A kind of evidence: `width` numbers about each pair."""

    width: int

    @abstractmethod
    def set_by(self, lessons: Sequence[Findings]) -> None:
        """Bring findings to one scale, as they are in these lessons."""

    @abstractmethod
    def forward(self, asked: Asked, known: Known) -> Tensor:
        """(H, C, width)."""


class Columns(Evidence):
    """The findings of a kind about each pair as they are, brought to one scale."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        before = KINDS[: KINDS.index(kind)]
        start = sum(len(COLUMNS[k]) for k in before)
        self.width = len(COLUMNS[kind])
        self.columns = slice(start, start + self.width)
        self.standard = Standard(self.width)

    def set_by(self, lessons: Sequence[Findings]) -> None:
        self.standard.set_by([lesson.pairs[..., self.columns] for lesson in lessons])

    def forward(self, asked: Asked, known: Known) -> Tensor:
        scaled: Tensor = self.standard(asked.findings.pairs[..., self.columns])
        return scaled


class Trails(Evidence):
    """Σ over the rules that lead from head to candidate of a small network of what is known of each; and nearness."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.near = Columns("trails")
        self.network = _network(TRAIL_WIDTH, 16, width)
        self.width = width + self.near.width

    def set_by(self, lessons: Sequence[Findings]) -> None:
        self.near.set_by(lessons)

    def forward(self, asked: Asked, known: Known) -> Tensor:
        near = self.near(asked, known)
        each = self.network(asked.findings.trails.float())  # (n, width)
        total = each.new_zeros(near.shape[0] * near.shape[1], each.shape[1]).index_add(0, asked.findings.places, each)
        return torch.cat([total.view(*near.shape[:2], each.shape[1]), near], -1)


class TaskNeighbours(nn.Module):
    """An entity with its neighbours: its own vector beside Σ α_i e_i, α = softmax_i(a · e_i·g − b · log n_i).

    The attention sees the task: g is the mean of what stands around the references at the same end, each weighed by
    n_i alone, how many edges of one relation a neighbour is one of. Padding has no part. All vectors, sums too, are
    brought to length 1, and both halves count the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sharpness, self.crowd = nn.Parameter(torch.tensor(4.0)), nn.Parameter(torch.tensor(1.0))

    def forward(self, ids: Tensor, references: Tensor, known: Known) -> Tensor:
        """How like each of the references (K,) entities (n,) are, with their neighbours: (n, K)."""
        task = normalize(self._around(references, None, known).mean(0), dim=0)
        mine, theirs = (self._whole(side, task, known) for side in (ids, references))
        return mine @ theirs.T

    def _whole(self, ids: Tensor, task: Tensor, known: Known) -> Tensor:
        around = normalize(self._around(ids, task, known), dim=-1)
        return torch.cat([known.unit("translation", ids), around], -1) / 2**0.5

    def _around(self, ids: Tensor, task: Tensor | None, known: Known) -> Tensor:
        """Σ α_i e_i of entities (n,). Of many, those with equally many neighbours together, with no empty slots."""
        if torch.is_grad_enabled() or len(ids) < MANY:
            return self._summed(ids, task, known)
        counts = known.neighbours.counts(ids)
        around = torch.empty(len(ids), known.translation.shape[1], device=ids.device)
        for count in counts.unique().tolist():
            for some in (counts == count).nonzero().squeeze(1).split(MANY):
                around[some] = self._summed(ids[some], task, known, count)
        return around

    def _summed(self, ids: Tensor, task: Tensor | None, known: Known, slots: int | None = None) -> Tensor:
        places = known.neighbours.places(ids, slots)  # (n, N)
        vectors = known.unit("translation", rows(known.neighbours.entities, places))  # (n, N, d)
        logits = -self.crowd * rows(known.bundles, places).log()
        if task is not None:
            logits = logits + self.sharpness * (vectors @ task)
        weights = logits.masked_fill(~known.neighbours.present(places), -torch.inf).softmax(-1).nan_to_num(0.0)
        return torch.einsum("nk,nkd->nd", weights, vectors)


class Matching(Evidence):
    """The pair beside each reference, heads with heads and tails with tails; references weighed by attention (β)."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.standard = Standard(REFERENCE_WIDTH)
        self.heads, self.tails = TaskNeighbours(), TaskNeighbours()
        self.network = _network(REFERENCE_WIDTH + 2, 16, 1 + width)

    def set_by(self, lessons: Sequence[Findings]) -> None:
        self.standard.set_by([lesson.references for lesson in lessons])

    def forward(self, asked: Asked, known: Known) -> Tensor:
        logits, values = self._compared(asked, known)
        return torch.einsum("hck,hckw->hcw", logits.softmax(-1), values)

    def weights(self, asked: Asked, known: Known) -> Tensor:
        """β of each reference for each pair: (H, C, K)."""
        return self._compared(asked, known)[0].softmax(-1)

    def _compared(self, asked: Asked, known: Known) -> tuple[Tensor, Tensor]:
        found = self.standard(asked.findings.references)  # (H, C, K, 8)
        heads = self.heads(asked.heads, asked.references[:, 0], known)[:, None, :, None].expand(*found.shape[:3], 1)
        tails = self.tails(asked.candidates, asked.references[:, 1], known) if asked.tails is None else asked.tails
        tails = tails[None, :, :, None].expand_as(heads)
        told = self.network(torch.cat([found, heads, tails], -1))
        return told[..., 0], told[..., 1:]


class Weighing(nn.Module):
    """Σ_i x_i · (w_i + gate_i(context)) + network(x, context): evidence by how reliable it is for these references."""

    def __init__(self, width: int, hidden: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(width))
        self.gate = _network(CONTEXT, 16, width)
        self.network = _network(width + CONTEXT, hidden, 1)
        self.dropout = nn.Dropout(dropout)
        for parameter in self.gate[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, evidence: Tensor, context: Tensor) -> Tensor:
        """Evidence (…, width) and context (10,) to scores (…)."""
        told = torch.cat([evidence, context.expand(*evidence.shape[:-1], -1)], -1)
        scores: Tensor = evidence @ (self.weights + self.gate(context)) + self.network(self.dropout(told)).squeeze(-1)
        return scores


class BlindWeighing(Weighing):
    """The same weights whatever the references: their reliability is not seen."""

    def forward(self, evidence: Tensor, context: Tensor) -> Tensor:
        return super().forward(evidence, torch.zeros_like(context))


class Trail(nn.Module):
    """Evidence of several kinds about each pair, and how it is weighed."""

    def __init__(self, parts: Mapping[str, Evidence], weighing: type[Weighing], dropout: float = 0.1) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.widths = {kind: part.width for kind, part in parts.items()}
        self.weighing = weighing(sum(self.widths.values()), dropout=dropout)

    def set_by(self, lessons: Sequence[Findings]) -> None:
        """Bring all findings to one scale, as they are in these lessons."""
        for part in self.parts.values():
            assert isinstance(part, Evidence)
            part.set_by(lessons)

    def evidence(self, asked: Asked, known: Known) -> Tensor:
        """All evidence, one kind after the other: (H, C, width)."""
        return torch.cat([part(asked, known) for part in self.parts.values()], -1)

    def forward(self, asked: Asked, known: Known) -> Tensor:
        """Scores (H, C)."""
        scores: Tensor = self.weighing(self.evidence(asked, known), asked.context)
        return scores

    def shares(self, asked: Asked, known: Known) -> dict[str, Tensor]:
        """For each kind of evidence, what it adds to the scores (H, C): without it they would be that much lower."""
        evidence = self.evidence(asked, known)
        scores, parts = self.weighing(evidence, asked.context), evidence.split(list(self.widths.values()), -1)
        shares = {}
        for kind in self.widths:
            kept = [part * (kind != own) for own, part in zip(self.widths, parts, strict=True)]
            shares[kind] = scores - self.weighing(torch.cat(kept, -1), asked.context)
        return shares


class TrailComposition(NamedTuple):
    """Which kinds of evidence, how they are weighed, and what it is."""

    kinds: tuple[str, ...]
    weighing: type[Weighing]
    about: str


_COMPOSITIONS = {
    "trail": TrailComposition(KINDS, Weighing, "TRAIL: trails, vectors, profiles and references, weighed"),
    **{
        f"trail-no-{kind}": TrailComposition(
            tuple(k for k in KINDS if k != kind), Weighing, f"TRAIL without {kind} evidence"
        )
        for kind in KINDS
    },
    "trail-no-reliability": TrailComposition(KINDS, BlindWeighing, "TRAIL that does not see how reliable evidence is"),
}


def compositions() -> dict[str, TrailComposition]:
    return _COMPOSITIONS


def build_trail(name: str, dropout: float = 0.1) -> Trail:
    """A model with fresh parameters."""
    kinds, weighing, _ = choose("model", name, compositions())
    made = {"trails": Trails, "matching": Matching}
    return Trail({kind: made[kind]() if kind in made else Columns(kind) for kind in kinds}, weighing, dropout)


def _network(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
