"""Path evidence: the relation paths that join references, followed from the head, and how near the candidate is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewlink.trail_0_1.context import (
    LEAST_CHANCE,
    Features,
    GraphContext,
    ModelInputs,
    Pairs,
    QueryHeads,
    TaskContext,
    is_reference_tail,
    log_chance,
)
from fewlink.trail_0_1.evidence.base import Evidence, ExplainedPair, Standardise, network
from fewlink.trail_0_1.paths import Walks

MOST_RULES = 300
LENGTH_DISCOUNT = 0.3  # what a rule is worth with each further hop
RULE_WIDTH = 13  # numbers about a rule that leads from a head to a candidate


class Rules(NamedTuple):
    """The relation paths that join references, each a rule.

    Shapes: `paths` (P,) sorted; `worth` (P,) of each by itself; `facts` (P, 10): the share of references joined, the
    two chances, their logs, those among the joined ones, and which of three lengths it has.
    """

    paths: Tensor
    worth: Tensor
    facts: Tensor


class Arrivals(NamedTuple):
    """Rules that lead from heads to candidates.

    Shapes: `cells` (n,) head · C + candidate; `rules` (n,); `facts` (n, 13); `score` (H, C) Σ worth · chance.
    """

    cells: Tensor
    rules: Tensor
    facts: Tensor
    score: Tensor


def best_rules(task: TaskContext) -> Rules:
    """The rules with the highest chances, shorter ones first."""
    finder = task.graph.paths
    joining = finder.joining(task.references)
    joined = (joining.chances[..., 0] > 0).float().mean(1)  # (P,)
    chances = joining.chances.mean(1)  # (P, 2)
    hops = (joining.paths >= finder.base).long() + (joining.paths >= finder.base**2).long()
    best = chances.amax(1) * LENGTH_DISCOUNT**hops
    kept = best.topk(min(MOST_RULES, len(best))).indices.sort().values
    joined, chances, hops = joined[kept].unsqueeze(1), chances[kept], hops[kept].unsqueeze(1)
    lengths = (hops == torch.arange(3, device=hops.device)).float()
    facts = torch.cat([joined, chances, log_chance(chances), log_chance(chances / joined), lengths], 1)
    return Rules(joining.paths[kept], chances[:, 0] * LENGTH_DISCOUNT ** hops[:, 0], facts)


def rule_walks(heads: QueryHeads) -> Walks:
    """Where the rules lead from the heads."""
    return heads.task.graph.paths.follow(heads.ids, heads.task.once(best_rules).paths, LEAST_CHANCE)


def one_hop(heads: QueryHeads) -> Walks:
    """Walks from the heads along every edge."""
    finder = heads.task.graph.paths
    return finder.onward(finder.start(heads.ids))


def two_hops(heads: QueryHeads) -> Walks:
    """Walks from the heads along every two edges."""
    return heads.task.graph.paths.onward(heads.once(one_hop))


def arrivals(pairs: Pairs) -> Arrivals:
    """The rules that lead from each head to each candidate."""
    (heads, count), rules = pairs.shape, pairs.task.once(best_rules)
    ends = pairs.task.graph.paths.arrived(pairs.heads.once(rule_walks), pairs.candidates.ids)
    cells, facts = ends.heads * count + ends.candidates, rules.facts[ends.rules]
    every = torch.cat([facts, log_chance(ends.chances), (facts[:, 1] * ends.chances[:, 0]).unsqueeze(1)], 1)
    worth = rules.worth[ends.rules] * ends.chances[:, 0]
    score = worth.new_zeros(heads * count).index_add_(0, cells, worth)
    return Arrivals(cells, ends.rules, every, score.view(heads, count))


def nearness(pairs: Pairs) -> tuple[Tensor, Tensor]:
    """The chances (H, C, 2) of all paths of one hop, and of two, added up."""
    finder, heads, ids = pairs.task.graph.paths, len(pairs.heads.ids), pairs.candidates.ids
    return (
        finder.ends(pairs.heads.once(one_hop), heads, ids),
        finder.ends(pairs.heads.once(two_hops), heads, ids),
    )


def path_score(pairs: Pairs) -> Tensor:
    """What rules say of pairs (H, C), and a little for any path of one hop or two."""
    near, two = pairs.once(nearness)
    return pairs.once(arrivals).score + 0.01 * near[..., 0] + 0.001 * two[..., 0]


class PathEvidence(Evidence):
    """Σ over the rules that lead from head to candidate of a small network of the facts of each; and nearness.

    Features: the columns (H, C, 4); `cells`, `rules` and `facts` of `Arrivals`.
    """

    kind = "paths"
    words = "paths in the graph"
    columns = ("near", "near back", "two hops", "two hops back")

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.standard = Standardise(len(self.columns))
        self.network = network(RULE_WIDTH, 16, width)
        self.width = width + len(self.columns)

    @classmethod
    def extract(cls, pairs: Pairs) -> Features:
        found = pairs.once(arrivals)
        return log_chance(torch.cat(pairs.once(nearness), -1)), found.cells, found.rules, found.facts

    @classmethod
    def single_score(cls, pairs: Pairs) -> Tensor:
        return pairs.once(path_score) + 0.01 * pairs.candidates.once(is_reference_tail).mean(1)

    @classmethod
    def negative_score(cls, pairs: Pairs) -> Tensor:
        return pairs.once(path_score)

    def fit_scale(self, features: Sequence[Features]) -> None:
        self.standard.fit([columns for columns, *_ in features])

    def forward(self, inputs: ModelInputs, graph: GraphContext) -> Tensor:
        columns, cells, _, facts = inputs.features[self.kind]
        near, each = self.standard(columns), self.network(facts.float())  # (n, width)
        total = each.new_zeros(near.shape[0] * near.shape[1], each.shape[1]).index_add(0, cells, each)
        return torch.cat([total.view(*near.shape[:2], each.shape[1]), near], -1)

    def reasons(self, pair: ExplainedPair) -> dict[str, Any]:
        """The paths that join the pair with what the score would lose without each, the strongest first."""
        columns, cells, rules, facts = pair.inputs.features[self.kind]
        paths, finder = pair.task.once(best_rules).paths, pair.task.graph.paths
        losses = []
        for i in range(len(cells)):
            rest = torch.arange(len(cells), device=cells.device) != i
            lost = pair.score - pair.rescore(self.kind, (columns, cells[rest], rules[rest], facts[rest]))
            losses.append((finder.relations_of(int(paths[rules[i]])), lost))
        return {"paths": sorted(losses, key=lambda path: -path[1])}
