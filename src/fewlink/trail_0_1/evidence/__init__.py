"""The kinds of evidence that TRAIL weighs, one module each; adding one is a module and a line in `KINDS`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fewlink.base.errors import choose
from fewlink.base.metrics import realistic_rank
from fewlink.trail_0_1.context import MOST_SAME_TYPE, Features, Pairs, TaskContext
from fewlink.trail_0_1.evidence.base import Evidence
from fewlink.trail_0_1.evidence.bilinear import BilinearEvidence
from fewlink.trail_0_1.evidence.matching import MatchingEvidence
from fewlink.trail_0_1.evidence.paths import PathEvidence
from fewlink.trail_0_1.evidence.profile import ProfileEvidence
from fewlink.trail_0_1.evidence.translation import TranslationEvidence

KINDS: dict[str, type[Evidence]] = {
    kind.kind: kind for kind in (PathEvidence, BilinearEvidence, TranslationEvidence, ProfileEvidence, MatchingEvidence)
}
UNKNOWN = 0.3  # reliability where nothing can be held out


def kinds_of(names: Iterable[str]) -> list[type[Evidence]]:
    """The classes of kinds of evidence by name."""
    return [choose("kind of evidence", name, KINDS) for name in names]


def extract(pairs: Pairs, names: Iterable[str]) -> dict[str, Features]:
    """The features of pairs by kind."""
    return {kind.kind: kind.extract(pairs) for kind in kinds_of(names)}


def scoring_kinds(names: Iterable[str]) -> list[str]:
    """Those of the kinds that have a score of their own, whose reliability is measured."""
    return [kind.kind for kind in kinds_of(names) if kind.single_score.__func__ is not Evidence.single_score.__func__]  # type: ignore[attr-defined]


def reliability(task: TaskContext, names: Sequence[str]) -> Tensor:
    """How well the own score of each of S kinds finds references by the others: (2S + 2,).

    A reference is held out and ranked among N entities of the tails' type, all references' tails aside: 1/rank and
    log rank / log(2 + N), the mean over the held-out ones. Where nothing can be held out, all are 0.3. The last two are
    whether that is so, and the log of the number of references.
    """
    count, kinds = len(task.references), kinds_of(names)
    facts = torch.tensor([float(count == 1), math.log(count)], device=task.graph.device)
    if not task.held_out:
        return torch.cat([facts.new_full((2 * len(kinds),), UNKNOWN), facts])
    entities = task.graph.same_type(task.tails, MOST_SAME_TYPE)
    competing = ~torch.isin(entities, task.tails)
    rows = []
    for k in range(task.held_out):
        head, tail = task.references[k]
        pairs = Pairs.of(task.without(k), head.unsqueeze(0), entities)
        singles = [score for kind in kinds if (score := kind.single_score(pairs)) is not None]
        scores = torch.stack(singles).squeeze(1)  # (S, N)
        true, others = scores[:, entities == tail], scores[:, competing]
        rank = realistic_rank((others > true).sum(1), (others == true).sum(1))
        rows.append(torch.cat([1 / rank, rank.log() / math.log(2 + len(entities))]))
    return torch.cat([torch.stack(rows).mean(0), facts])
