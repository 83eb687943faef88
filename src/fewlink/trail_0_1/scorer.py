"""TRAIL as a scorer of the common evaluator, and the reasons for each of its scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.base.errors import choose
from fewlink.scorers import Question, Reasons
from fewlink.trail_0_1.context import CandidateSet, Features, GraphContext, ModelInputs, Pairs, QueryHeads, TaskContext
from fewlink.trail_0_1.evidence import KINDS, extract, reliability
from fewlink.trail_0_1.evidence.base import ExplainedPair
from fewlink.trail_0_1.model import Trail

REASONS = ("paths", "references", "neighbours", "shared")
CELLS = 1 << 16  # pairs of head and candidate that are scored together
MOST_TASKS = 16  # tasks that are remembered
MOST_CANDIDATES = 1 << 18  # and of how many candidates in all


@dataclass
class RememberedTask:
    """A task with its reliability, and the last candidates it was asked with, in parts of at most `CELLS`."""

    task: TaskContext
    reliability: Tensor
    parts: list[CandidateSet] = field(default_factory=list)
    states: list[dict[str, Tensor]] = field(default_factory=list)  # of each part, by kind
    versions: list[int] = field(default_factory=list)  # of the weights that the states come from

    @property
    def candidates(self) -> int:
        return sum(len(part.ids) for part in self.parts)


class Trail01Scorer:
    """A trained TRAIL on a graph.

    What follows from references, and from references and candidates, is computed once for all heads, and kept for
    further questions about the same task; several tasks are remembered.
    """

    def __init__(self, name: str, model: Trail, graph: GraphContext) -> None:
        self.name, self.model, self.graph = name, model.eval(), graph
        self.evidence = {kind: KINDS[kind].words for kind in model.composition.kinds}
        self._tasks: dict[bytes, RememberedTask] = {}  # the last used last

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        references, heads, candidates = self._ids(question.references, question.heads, question.candidates)
        ordered, back = candidates.unique(return_inverse=True)
        return self._grid(lambda inputs: self.model(inputs, self.graph), references, heads, ordered)[:, back]

    @torch.no_grad()
    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """All evidence (n, width) about pairs (n, 2), given references (K, 2)."""
        given, ends = self._ids(references, pairs)
        heads, row = ends[:, 0].unique(return_inverse=True)
        tails, column = ends[:, 1].unique(return_inverse=True)
        evidence = self._grid(lambda inputs: self.model.evidence(inputs, self.graph), given, heads, tails)
        return evidence[row, column].cpu().numpy()

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """What carried the score of one pair, given references (K, 2)."""
        given, heads, tails = self._ids(references, np.array([head]), np.array([tail]))
        (inputs,) = self.inputs(given, heads, tails)
        score = float(self.model(inputs, self.graph))

        def rescore(kind: str, features: Features) -> float:
            changed = inputs._replace(features={**inputs.features, kind: features})
            return float(self.model(changed, self.graph))

        pair = ExplainedPair(self._remembered(given).task, inputs, score, rescore)
        shares = {kind: float(share) for kind, share in self.model.shares(inputs, self.graph).items()}
        reasons: dict[str, Any] = {}
        for kind, part in self.model.evidence_parts().items():
            for name, value in part.reasons(pair).items():
                choose(f"reason of the kind {kind}:", name, dict.fromkeys(REASONS))
                reasons.setdefault(name, value[:most] if name != "references" else value)
        shared = [("tail", *edge) for edge in reasons.pop("shared", [])]
        neighbours = [*shared, *reasons.pop("neighbours", [])][:most]
        return Reasons(score, shares, neighbours=neighbours, shared=bool(shared), graph=self.graph.graph, **reasons)

    def inputs(self, references: Tensor, heads: Tensor, candidates: Tensor) -> Iterator[ModelInputs]:
        """What the model reads about heads (H,) and candidates (C,), sorted: at most `CELLS` pairs at a time."""
        known = self._remembered(references)
        parts, states = self._parts(known, candidates)
        for some in heads.split(max(1, CELLS // max(1, len(candidates)))):
            block = QueryHeads(known.task, some)
            for part, state in zip(parts, states, strict=True):
                features = extract(Pairs(block, part), self.model.composition.kinds)
                yield ModelInputs(references, some, part.ids, features, known.reliability, state)

    def _grid(
        self, work: Callable[[ModelInputs], Tensor], references: Tensor, heads: Tensor, candidates: Tensor
    ) -> Tensor:
        """`work` (h, c, …) of each part of heads (H,) and candidates (C,), put together: (H, C, …)."""
        made = [work(inputs) for inputs in self.inputs(references, heads, candidates)]
        wide = max(1, -(-len(candidates) // CELLS))  # parts of one head's candidates
        return torch.cat([torch.cat(made[at : at + wide], 1) for at in range(0, len(made), wide)])

    def _ids(self, *arrays: np.ndarray) -> tuple[Tensor, ...]:
        return tuple(torch.from_numpy(array.astype(np.int64)).to(self.graph.device) for array in arrays)

    def _remembered(self, references: Tensor) -> RememberedTask:
        """The task with these references, new or remembered; of too many the one used longest ago is forgotten."""
        key = references.cpu().numpy().tobytes()
        known = self._tasks.pop(key, None)
        if known is None:
            task = TaskContext(self.graph, references)
            known = RememberedTask(task, reliability(task, self.model.composition.scoring))
        self._tasks[key] = known
        if len(self._tasks) > MOST_TASKS:
            del self._tasks[next(iter(self._tasks))]
        return known

    def _parts(self, known: RememberedTask, candidates: Tensor) -> tuple[list[CandidateSet], list[dict[str, Tensor]]]:
        """Candidates (C,), sorted, in parts, with what the model has learnt about them whatever the head."""
        versions = [-1 if weight.is_inference() else weight._version for weight in self.model.parameters()]
        parts = known.parts
        if (
            not parts
            or sum(len(part.ids) for part in parts) != len(candidates)
            or not all(torch.equal(part.ids, ids) for part, ids in zip(parts, candidates.split(CELLS), strict=True))
        ):
            parts = [CandidateSet(known.task, ids) for ids in candidates.split(CELLS)]
        elif known.versions == versions:
            return parts, known.states
        evidence = self.model.evidence_parts().items()
        states = []
        for part in parts:
            state = {kind: each.candidate_state(known.task, part.ids) for kind, each in evidence}
            states.append({kind: tensor for kind, tensor in state.items() if tensor is not None})
        if len(candidates) > 1:  # explaining one tail does not replace what is kept of many
            known.parts, known.states, known.versions = parts, states, versions
            self._forget_candidates(known)
        return parts, states

    def _forget_candidates(self, known: RememberedTask) -> None:
        """Forget those of the tasks used longest ago, while there are too many."""
        for other in self._tasks.values():
            if other is not known and sum(each.candidates for each in self._tasks.values()) > MOST_CANDIDATES:
                other.parts, other.states = [], []
