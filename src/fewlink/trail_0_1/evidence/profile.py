"""Profile evidence: how like the references' tails a candidate is, by its relations, neighbours and vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fewlink.trail_0_1.context import CandidateSet, Features, Pairs, is_reference_tail, log_chance
from fewlink.trail_0_1.evidence import bilinear, translation
from fewlink.trail_0_1.evidence.base import ColumnEvidence, ExplainedPair


def relation_cosines(candidates: CandidateSet) -> tuple[Tensor, Tensor]:
    """Cosines (C, K) of the relation profiles of candidates and references' tails, and the candidates' lengths (C,)."""
    return candidates.task.graph.profile_cosines(candidates.ids, candidates.task.tails)


def shared_neighbours(candidates: CandidateSet) -> Tensor:
    """The chances (C, 2) that the references' tails lead to a candidate over a neighbour both have."""
    finder, tails = candidates.task.graph.paths, candidates.task.tails
    return finder.ends(finder.siblings(tails), len(tails), candidates.ids).mean(0)


def candidate_columns(candidates: CandidateSet) -> Tensor:
    """The columns (C, 9) that do not depend on the head."""
    (cosines, lengths), shared = candidates.once(relation_cosines), candidates.once(shared_neighbours)
    by_transe, by_complex = candidates.once(translation.tail_cosines), candidates.once(bilinear.tail_cosines)
    slots = cosines.mean(1)
    columns = [candidates.once(is_reference_tail).mean(1), slots, slots * lengths / 4, *log_chance(shared).unbind(1)]
    columns += [by_transe.mean(1), by_transe.amax(1), by_complex.mean(1)]
    return torch.stack([*columns, candidates.task.graph.log_degree(candidates.ids)], -1)


class ProfileEvidence(ColumnEvidence):
    """What kind of thing the candidate is, compared with the references' tails; and degrees."""

    kind = "profile"
    words = "what kind of thing the tail is"
    columns = (
        *("tail of references", "same relations", "in more of them", "shared neighbours", "shared neighbours back"),
        *("translation likeness", "nearest translation", "bilinear likeness", "degree", "itself", "head degree"),
    )

    @classmethod
    def extract(cls, pairs: Pairs) -> Features:
        heads, candidates = pairs.heads.ids, pairs.candidates
        itself = (heads.unsqueeze(1) == candidates.ids).float()
        degrees = pairs.task.graph.log_degree(heads).unsqueeze(1).expand(pairs.shape)
        columns = candidates.once(candidate_columns).expand(*pairs.shape, -1)
        return (torch.cat([columns, torch.stack([itself, degrees], -1)], -1),)

    @classmethod
    def single_score(cls, pairs: Pairs) -> Tensor:
        candidates = pairs.candidates
        score = candidates.once(relation_cosines)[0].mean(1) + candidates.once(shared_neighbours)[:, 0]
        return score.expand(pairs.shape)

    def reasons(self, pair: ExplainedPair) -> dict[str, Any]:
        """The edges of the tail that references' tails have too, the rarest first."""
        finder = pair.task.graph.paths
        own, theirs = (finder.onward(finder.start(ids)) for ids in (pair.inputs.candidates, pair.task.tails.unique()))
        keys = own.paths * finder.entities + own.entities
        shared = torch.isin(keys, theirs.paths * finder.entities + theirs.entities)
        columns = own.paths[shared] - 1, own.entities[shared], own.chances[shared, 1]
        edges = zip(*(column.tolist() for column in columns), strict=True)
        return {"shared": sorted(edges, key=lambda edge: -edge[2])}
