"""A scorer that adds the evidence of names to the scores of another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fewlink.graph import Graph
from fewlink.models.names.columns import OF_HEAD, NameColumns, ReferenceNames
from fewlink.models.names.gate import Gate, shipped_gate
from fewlink.models.names.likeness import GramIndex, TextModel, TextVectors, gram_index
from fewlink.models.trail.reading import MOST_REFERENCES
from fewlink.scorers import Capabilities, ExplainingGraphScorer, Question, Reasons, Scorer, capabilities

MAX_TASKS = 8  # sets of references whose names are kept in memory
EVIDENCE = {"names": "names"}


class NamedScorer:
    """The scores of another scorer plus the evidence of entities' names; made by `with_names`."""

    def __init__(self, scorer: ExplainingGraphScorer, columns: NameColumns, gate: Gate) -> None:
        self.name, self.scorer, self.columns, self.gate = scorer.name, scorer, columns, gate
        self._by_references: dict[bytes, ReferenceNames] = {}

    @property
    def capabilities(self) -> Capabilities:
        own = capabilities(self.scorer)
        evidence = {**own.evidence, **EVIDENCE}
        return dataclasses.replace(own, evidence=evidence, takes_names=False, reads_names=True)

    def limit_edges(self, edges: int) -> None:
        """Read about this many edges around each head."""
        self.scorer.limit_edges(edges)

    def without(self, relation: str) -> NamedScorer:
        """The same model on the graph without the triples of a relation; it still reads all names."""
        return NamedScorer(self.scorer.without(relation), self.columns, self.gate)

    def __call__(self, question: Question) -> Tensor:
        scores = torch.as_tensor(self.scorer(question))
        weights = self.gate.column_weights(self.reference_names(question.references))
        if not weights.any():
            return scores
        known = self.reference_names(question.references, question.candidates)
        parts = [self.columns.of(known, head, question.candidates) @ weights for head in question.heads.tolist()]
        names = np.stack(parts) if parts else np.zeros((0, len(question.candidates)))
        return scores + torch.as_tensor(names, dtype=scores.dtype, device=scores.device)

    def reference_names(self, references: np.ndarray, candidates: np.ndarray | None = None) -> ReferenceNames:
        """The evidence in the names of references (K, 2), cached; names of candidates (C,) are indexed."""
        key, index = references.astype(np.int64).tobytes(), self.columns.index
        if candidates is not None:
            index.cover(candidates)
        known = self._by_references.get(key)
        if known is None or known.covered != index.number:
            known = self.columns.references(references[:MOST_REFERENCES])
            self._by_references[key] = known
            for oldest in list(self._by_references)[
                :-MAX_TASKS
            ]:  # a copy, since another thread may change the dictionary
                self._by_references.pop(oldest, None)
        return known

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """The reasons of the other scorer, and what the names add."""
        known = self.reference_names(references, np.array([tail]))
        reasons = self.scorer.explain(references, head, tail, most)
        like_head, like_tail = self._evidence(known, head, tail)
        names: list[tuple[str, int, float]] = [("head", head, like_head)] if like_head else []
        if like_tail:
            names.append(("reference", self._nearest(references, tail), like_tail))
        without = []  # what the score loses without each reference
        for place, loss in enumerate(reasons.references):
            others = self.columns.references(np.delete(references[:MOST_REFERENCES], place, axis=0))
            without.append(loss + like_head + like_tail - sum(self._evidence(others, head, tail)))
        return dataclasses.replace(
            reasons,
            score=reasons.score + like_head + like_tail,
            shares={**reasons.shares, **({"names": like_head + like_tail} if names else {})},
            references=without,
            names=names,
        )

    def _evidence(self, known: ReferenceNames, head: int, tail: int) -> tuple[float, float]:
        """What the likeness to the head's name adds to the score of a pair, and that to the references' tails."""
        parts = self.columns.of(known, head, np.array([tail]))[0] * self.gate.column_weights(known)
        return float(parts[: len(OF_HEAD)].sum()), float(parts[len(OF_HEAD) :].sum())

    def _nearest(self, references: np.ndarray, tail: int) -> int:
        """The tail of a reference whose name is most like this one's."""
        tails = references[:MOST_REFERENCES, 1]
        return int(tails[self.columns.likeness(tail)[tails].argmax()])


def with_names(
    scorer: Scorer,
    graph: Graph,
    *,
    text: TextModel | None = None,
    descriptions: Mapping[int, str] | None = None,
    gate: Gate | None = None,
) -> Scorer:
    """A scorer that also reads the names of its graph.

    It is the scorer itself if that one does not take the evidence of names, or if the names are no evidence, as mere
    ids are not. `text` is a model whose vectors of names count beside their n-grams; with `descriptions` of some
    entities, it reads the name and the description of each, even if the names alone are no evidence.
    """
    if not (capabilities(scorer).takes_names and isinstance(scorer, ExplainingGraphScorer)):
        return scorer
    index = gram_index(graph)
    if index is None and not (text and descriptions):
        return scorer
    if index is None:
        index = GramIndex(len(graph.entities), lambda entity: "")
    described = descriptions or {}

    def text_of(entity: int) -> str:
        return ". ".join(part for part in (index.name(entity), described.get(entity, "")) if part)

    vectors = None if text is None else TextVectors.of(text, index.count, text_of)
    return NamedScorer(scorer, NameColumns(index, graph, vectors), gate or shipped_gate())
