"""TRAIL as a scorer of the common evaluator, and what carried each of its scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fewlink.models.findings import Among, Findings, Inquiry, inquire
from fewlink.models.known import Known
from fewlink.models.trail import Asked, Matching, Trail
from fewlink.scorers.question import Question

CELLS = 1 << 16  # pairs of head and candidate looked at together


@dataclass(frozen=True)
class Reasons:
    """Why a tail fits a head.

    `shares`: what each kind of evidence adds to the score; `trails`: the relations of the strongest paths that join
    them, as references are joined, with what each adds; `references`: the attention (β) that each reference has;
    `neighbours`: (relation, entity) edges that the tail shares with references' tails, with their weight.
    """

    score: float
    shares: dict[str, float]
    trails: list[tuple[tuple[int, ...], float]]
    references: list[float]
    neighbours: list[tuple[int, int, float]]


class TrailScorer:
    """A trained TRAIL on what is known.

    What follows from references, and from references and candidates, is worked out once for all heads, and kept for the
    next question with the same ones.
    """

    def __init__(self, name: str, model: Trail, known: Known) -> None:
        self.name, self.model, self.known = name, model.eval(), known
        self._last: tuple[bytes, Inquiry, Tensor] | None = None
        self._seen: tuple[Inquiry, Among, Tensor | None, list[float]] | None = None  # about the last candidates

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        references, heads, candidates = (
            torch.from_numpy(part.astype(np.int64)).to(self.known.device)
            for part in (question.references, question.heads, question.candidates)
        )
        ordered, back = candidates.unique(return_inverse=True)
        most = max(1, CELLS // max(1, len(ordered)))
        scores = [self.model(asked, self.known) for asked in self.ask(references, heads.split(most), ordered)]
        return torch.cat(scores)[:, back]

    def ask(self, references: Tensor, heads: Sequence[Tensor], candidates: Tensor) -> Iterator[Asked]:
        """What is found about some heads (H,) after others and candidates (C,), sorted."""
        key = references.cpu().numpy().tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, *inquire(self.known, references)
        _, inquiry, context = self._last
        among, tails = self._about(inquiry, candidates)
        for some in heads:
            yield Asked(references, some, candidates, inquiry.look(some, among)[0], context, tails)

    @torch.no_grad()
    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """All evidence (n, width) about pairs (n, 2), given references (K, 2): what is weighed."""
        refs, asked = (torch.from_numpy(p.astype(np.int64)).to(self.known.device) for p in (references, pairs))
        heads, row = asked[:, 0].unique(return_inverse=True)
        tails, column = asked[:, 1].unique(return_inverse=True)
        parts = heads.split(max(1, CELLS // len(tails)))
        evidence = torch.cat([self.model.evidence(a, self.known) for a in self.ask(refs, parts, tails)])
        return evidence[row, column].cpu().numpy()

    def _about(self, inquiry: Inquiry, candidates: Tensor) -> tuple[Among, Tensor | None]:
        """What is found about candidates (C,), sorted, whatever the head."""
        seen, matching = self._seen, self._matching
        learnt = [float(weight.detach()) for weight in matching.tails.parameters()] if matching else []
        if seen is not None and seen[0] is inquiry and torch.equal(seen[1].candidates, candidates):
            among, tails = seen[1:3]
            if seen[3] == learnt:
                return among, tails
        else:
            among = inquiry.among(candidates)
        tails = matching.tails(candidates, inquiry.references[:, 1], self.known) if matching else None
        if len(candidates) > 1:  # reasons of one tail leave what is kept for many
            self._seen = inquiry, among, tails, learnt
        return among, tails

    @property
    def _matching(self) -> Matching | None:
        part = dict(self.model.parts.items()).get("matching")
        return part if isinstance(part, Matching) else None

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """What carried the score of one pair, given references (K, 2)."""
        device = self.known.device
        refs = torch.from_numpy(references.astype(np.int64)).to(device)
        (asked,) = self.ask(refs, [torch.tensor([head], device=device)], torch.tensor([tail], device=device))
        shares = {kind: float(share) for kind, share in self.model.shares(asked, self.known).items()}
        beta = self._matching.weights(asked, self.known)[0, 0].tolist() if self._matching else []
        score = float(self.model(asked, self.known))
        return Reasons(score, shares, self._trails(asked, score)[:most], beta, self._shared(refs, tail)[:most])

    def _trails(self, asked: Asked, score: float) -> list[tuple[tuple[int, ...], float]]:
        """The rules that join the pair with what the score would lose without each, strongest first."""
        found = asked.findings
        if "trails" not in self.model.parts:
            return []
        assert self._last is not None
        rules, told = self._last[1].rules, []
        for i in range(len(found.places)):
            kept = torch.arange(len(found.places), device=found.places.device) != i
            rest = Findings(found.places[kept], found.rules[kept], found.trails[kept], found.pairs, found.references)
            lost = score - float(self.model(asked._replace(findings=rest), self.known))
            told.append((self.known.finder.relations_of(int(rules[found.rules[i]])), lost))
        return sorted(told, key=lambda trail: -trail[1])

    def _shared(self, references: Tensor, tail: int) -> list[tuple[int, int, float]]:
        """The edges of the tail that references' tails have too, the rarest first."""
        finder = self.known.finder
        own, theirs = (
            finder.onward(finder.start(ids))
            for ids in (torch.tensor([tail], device=references.device), references[:, 1].unique())
        )
        keys = own.trails * finder.entities + own.entities
        shared = torch.isin(keys, theirs.trails * finder.entities + theirs.entities)
        weights = own.chances[shared, 1]
        edges = zip((own.trails[shared] - 1).tolist(), own.entities[shared].tolist(), weights.tolist(), strict=True)
        return sorted(edges, key=lambda edge: -edge[2])
