"""TRAIL as a scorer of the common evaluator, and what carried each of its scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fewlink.scorers import Question, Reasons
from fewlink.trail.context import Known
from fewlink.trail.features import Among, Findings, Inquiry, inquire
from fewlink.trail.model import Asked, Matching, Trail

WORDS = {
    "trails": "paths in the graph",
    "bilinear": "the ComplEx vectors",
    "translation": "the TransE vectors",
    "profile": "what kind of thing the tail is",
    "matching": "likeness to the references",
}
CELLS = 1 << 16  # pairs of head and candidate looked at together
KEPT = 16  # relations that are remembered
KEPT_CANDIDATES = 1 << 18  # and of how many candidates in all


@dataclass
class Remembered:
    """What follows from some references, and what was found about the last candidates they were asked with."""

    inquiry: Inquiry
    context: Tensor
    about: tuple[Among, Tensor | None, list[float]] | None = None

    @property
    def candidates(self) -> int:
        return len(self.about[0].candidates) if self.about else 0


class TrailScorer:
    """A trained TRAIL on what is known.

    What follows from references, and from references and candidates, is worked out once for all heads, and kept for the
    next questions with the same ones, those of several relations side by side.
    """

    evidence = WORDS

    def __init__(self, name: str, model: Trail, known: Known) -> None:
        self.name, self.model, self.known = name, model.eval(), known
        self._remembered: dict[bytes, Remembered] = {}  # the last asked last

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        references, heads, candidates = (
            torch.from_numpy(part.astype(np.int64)).to(self.known.device)
            for part in (question.references, question.heads, question.candidates)
        )
        ordered, back = candidates.unique(return_inverse=True)
        return self._together(lambda asked: self.model(asked, self.known), references, heads, ordered)[:, back]

    def ask(self, references: Tensor, heads: Tensor, candidates: Tensor) -> Iterator[Asked]:
        """What is found about heads (H,) and candidates (C,), sorted: at most `CELLS` pairs after another."""
        own = self._of(references)
        among, tails = self._about(own, candidates)
        parts = among.split(CELLS)
        of_tails = [None] * len(parts) if tails is None else tails.split(CELLS)
        for some in heads.split(max(1, CELLS // max(1, len(candidates)))):
            walked = own.inquiry.walk(some)
            for part, of_part in zip(parts, of_tails, strict=True):
                findings, _ = own.inquiry.look(walked, part)
                yield Asked(references, some, part.candidates, findings, own.context, of_part)

    def _together(
        self, work: Callable[[Asked], Tensor], references: Tensor, heads: Tensor, candidates: Tensor
    ) -> Tensor:
        """What `work` makes (h, c, …) of each part of heads (H,) and candidates (C,), put together: (H, C, …)."""
        made = [work(asked) for asked in self.ask(references, heads, candidates)]
        wide = max(1, -(-len(candidates) // CELLS))  # parts that one head's candidates are in
        return torch.cat([torch.cat(made[at : at + wide], 1) for at in range(0, len(made), wide)])

    def _of(self, references: Tensor) -> Remembered:
        key = references.cpu().numpy().tobytes()
        found = self._remembered.pop(key, None) or Remembered(*inquire(self.known, references))
        self._remembered[key] = found
        if len(self._remembered) > KEPT:
            del self._remembered[next(iter(self._remembered))]
        return found

    @torch.no_grad()
    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """All evidence (n, width) about pairs (n, 2), given references (K, 2): what is weighed."""
        refs, asked = (torch.from_numpy(p.astype(np.int64)).to(self.known.device) for p in (references, pairs))
        heads, row = asked[:, 0].unique(return_inverse=True)
        tails, column = asked[:, 1].unique(return_inverse=True)
        evidence = self._together(lambda each: self.model.evidence(each, self.known), refs, heads, tails)
        return evidence[row, column].cpu().numpy()

    def _about(self, own: Remembered, candidates: Tensor) -> tuple[Among, Tensor | None]:
        """What is found about candidates (C,), sorted, whatever the head."""
        matching = self._matching
        learnt = [float(weight.detach()) for weight in matching.tails.parameters()] if matching else []
        if own.about is not None and torch.equal(own.about[0].candidates, candidates):
            among, tails, before = own.about
            if before == learnt:
                return among, tails
        else:
            among = own.inquiry.among(candidates)
        tails = matching.tails(candidates, own.inquiry.references[:, 1], self.known) if matching else None
        if len(candidates) > 1:  # reasons of one tail leave what is kept for many
            own.about = among, tails, learnt
            self._forget_candidates(own)
        return among, tails

    def _forget_candidates(self, own: Remembered) -> None:
        """Those of the relations that were not asked for longest, where there are too many."""
        for other in self._remembered.values():
            if other is not own and sum(each.candidates for each in self._remembered.values()) > KEPT_CANDIDATES:
                other.about = None

    @property
    def _matching(self) -> Matching | None:
        part = dict(self.model.parts.items()).get("matching")
        return part if isinstance(part, Matching) else None

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """What carried the score of one pair, given references (K, 2)."""
        device = self.known.device
        refs = torch.from_numpy(references.astype(np.int64)).to(device)
        (asked,) = self.ask(refs, torch.tensor([head], device=device), torch.tensor([tail], device=device))
        shares = {kind: float(share) for kind, share in self.model.shares(asked, self.known).items()}
        beta = self._matching.weights(asked, self.known)[0, 0].tolist() if self._matching else []
        score = float(self.model(asked, self.known))
        shared = [("tail", *edge) for edge in self._shared(refs, tail)[:most]]
        paths = self._trails(asked, score)[:most]
        return Reasons(score, shares, paths, beta, shared, shared=True, graph=self.known.graph)

    def _trails(self, asked: Asked, score: float) -> list[tuple[tuple[int, ...], float]]:
        """The rules that join the pair with what the score would lose without each, strongest first."""
        found = asked.findings
        if "trails" not in self.model.parts:
            return []
        rules, told = self._of(asked.references).inquiry.rules, []
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
