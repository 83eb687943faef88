"""What a graph and its vectors say about pairs, given references: everything TRAIL weighs, and nothing that is learnt.

All of it is made of likenesses, chances and distances, never of which entity or relation it is, so that what was learnt
on some relations of a graph holds for others, and on graphs whose vectors lie in another space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.embeddings.interactions import ComplEx
from fewlink.trail.context import MOST_ALIKE, Known
from fewlink.trail.paths import Rules, Walks

MOST_RULES = 300
LEAST_CHANCE = 1e-4
SHORTER = 0.3  # what a rule is worth with each further hop
RIVALS, HEADS = MOST_ALIKE, 256  # entities that held-out references and candidates are compared with
TOGETHER = 1 << 14  # candidates that are compared with all of them at once
HELD_OUT = 5  # references that are held out in turn, at most
FIT_STEPS, FIT_RATE, FIT_WEIGHT = 40, 0.1, 1.0

KINDS = ("trails", "bilinear", "translation", "profile", "matching")
COLUMNS = {  # of `Findings.pairs`, by kind
    "trails": ("near", "near back", "two hops", "two hops back"),
    "bilinear": ("score", "against other heads"),
    "translation": ("score", "against other heads", "best reference"),
    "profile": (
        *("tail of references", "same relations", "in more of them", "shared neighbours", "shared neighbours back"),
        *("translation likeness", "nearest translation", "bilinear likeness", "degree", "itself", "head degree"),
    ),
}
WIDTH = sum(map(len, COLUMNS.values()))
TRAIL_WIDTH = 13
REFERENCE_WIDTH = 8
SINGLES = 4  # scores that are tried on held-out references
CONTEXT = 2 * SINGLES + 2


class Findings(NamedTuple):
    """Of H heads and C candidates, given K references.

    Shapes: `places` (n,) the cell head · C + candidate of each rule that leads there; `rules` (n,) which rule it is;
    `trails` (n, 13) what is known of it; `pairs` (H, C, 20); `references` (H, C, K, 8).
    """

    places: Tensor
    rules: Tensor
    trails: Tensor
    pairs: Tensor
    references: Tensor


class Among(NamedTuple):
    """What is found about C candidates, whatever the head, given K references.

    Shapes: `candidates` (C,) sorted; `columns` (C, 9) and `references` (C, K, 4) of the findings; `rivals` (C, 2) log Σ
    exp of the scores that other heads have with them; `profile` (C,) how like the references' tails they are.
    """

    candidates: Tensor
    columns: Tensor
    references: Tensor
    rivals: Tensor
    profile: Tensor

    def split(self, most: int) -> list[Among]:
        """The same of at most `most` candidates after another."""
        return [Among(*parts) for parts in zip(*(part.split(most) for part in self), strict=True)]


class Walked(NamedTuple):
    """Where walks from heads (H,) lead, whoever is a candidate: along rules, and along any edge once and twice."""

    heads: Tensor
    rules: Walks
    one: Walks
    two: Walks


class Inquiry:
    """The references of one relation and what follows from them alone, whatever is asked about.

    Shapes: `references` (K, 2); `relation` (d,), the ComplEx vector estimated from them.
    """

    def __init__(self, known: Known, references: Tensor, relation: Tensor) -> None:
        self.known, self.references, self.relation = known, references, relation
        self.rules, self.worth, self.about = self._choose(known.finder.joining(references))
        self.offsets = known.moving(references[:, 1]) - known.moving(references[:, 0])  # (K, d)
        self.offset = self.offsets.mean(0)
        self.others = known.alike(references[:, 0], HEADS)

    def _choose(self, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
        """The best rules (P,), what each is worth by itself (P,), and what is known of it (P, 10)."""
        base = self.known.finder.base
        joined = (rules.chances[..., 0] > 0).float().mean(1)  # (P,) share of the references
        chances = rules.chances.mean(1)  # (P, 2)
        hops = (rules.trails >= base).long() + (rules.trails >= base**2).long()
        best = chances.amax(1) * SHORTER**hops
        kept = best.topk(min(MOST_RULES, len(best))).indices.sort().values
        joined, chances, hops = joined[kept].unsqueeze(1), chances[kept], hops[kept].unsqueeze(1)
        lengths = (hops == torch.arange(3, device=hops.device)).float()
        about = torch.cat([joined, chances, _log(chances), _log(chances / joined), lengths], 1)
        return rules.trails[kept], chances[:, 0] * SHORTER ** hops[:, 0], about

    def among(self, candidates: Tensor) -> Among:
        """What is found about candidates (C,), sorted, whatever the head."""
        known, references = self.known, self.references
        tails = (candidates.unsqueeze(1) == references[:, 1]).float()  # (C, K)
        like, lengths = known.profile_likeness(candidates, references[:, 1])  # (C, K), (C,)
        slots, shared = like.mean(1), self._shared(candidates)  # (C,), (C, 2)
        moved, turned = (
            known.unit(name, candidates) @ known.unit(name, references[:, 1]).T for name in ("translation", "bilinear")
        )
        columns = [tails.mean(1), slots, slots * lengths / 4, *_log(shared).unbind(1)]
        columns += [moved.mean(1), moved.amax(1), turned.mean(1), known.fame(candidates)]
        return Among(
            candidates,
            torch.stack(columns, -1),
            torch.stack([moved, turned, like, tails], -1),
            torch.cat([self._rivals(some) for some in candidates.split(TOGETHER)]),
            slots + shared[:, 0],
        )

    def _rivals(self, candidates: Tensor) -> Tensor:
        """log Σ exp of the two scores that other heads have with candidates (C,): (C, 2)."""
        scores = self._bilinear(self.others, candidates), self._translation(self.others, self.offset, candidates)
        return torch.stack([kind.logsumexp(0) for kind in scores], -1)

    def walk(self, heads: Tensor) -> Walked:
        """Set out from heads (H,), once for all candidates that are asked about."""
        finder = self.known.finder
        one = finder.onward(finder.start(heads))
        return Walked(heads, finder.follow(heads, self.rules, LEAST_CHANCE), one, finder.onward(one))

    def look(self, walked: Walked, among: Among) -> tuple[Findings, Tensor]:
        """Findings about heads (H,) and candidates; and four scores (4, H, C) that need no learning."""
        heads, candidates = walked.heads, among.candidates
        h, c = len(heads), len(candidates)
        places, rules, trails, followed = self._follow(walked, candidates)
        near, two = self._nearness(walked, candidates)  # (H, C, 2) each
        bilinear = self._bilinear(heads, candidates)
        offsets = torch.cat([self.offset.unsqueeze(0), self.offsets]).unsqueeze(1)  # (1 + K, 1, d)
        translation, *by_each = self._translation(heads, offsets, candidates)  # (H, C) each
        each = torch.stack(by_each, -1)  # (H, C, K)
        against = torch.stack([bilinear, translation], -1) - among.rivals
        by_pair = [bilinear, against[..., 0], translation, against[..., 1], each.amax(-1)]
        itself = heads.unsqueeze(1) == candidates
        famous = self.known.fame(heads).unsqueeze(1).expand(h, c)
        pairs = torch.cat(
            [
                _log(torch.cat([near, two], -1)),
                torch.stack(by_pair, -1),
                among.columns.expand(h, c, -1),
                torch.stack([itself.float(), famous], -1),
            ],
            -1,
        )
        of_heads = self._like_heads(heads).unsqueeze(1).expand(h, c, -1, -1)  # (H, C, K, 3)
        by_reference = torch.cat([of_heads, among.references.expand(h, c, -1, -1), each.unsqueeze(-1)], -1)
        trodden = _trodden(followed, near, two) + 0.01 * among.columns[:, 0]
        singles = torch.stack([trodden, bilinear, translation, among.profile.expand(h, c)])
        return Findings(places, rules, trails, pairs, by_reference), singles

    def hardest(self, walked: Walked, candidates: Tensor, count: int) -> Tensor:
        """The candidates that are among the `count` best of some head by vectors or trails, sorted."""
        heads = walked.heads
        vectors = self._bilinear(heads, candidates), self._translation(heads, self.offset, candidates)
        trails = _trodden(self._follow(walked, candidates)[3], *self._nearness(walked, candidates))
        scores = *vectors, trails
        best = [kind.topk(min(count, len(candidates)), 1).indices.flatten() for kind in scores]
        return candidates[torch.cat(best).unique()]

    def _follow(self, walked: Walked, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Places, rules and what is known of them (n, 13); and Σ worth · chance of every pair (H, C)."""
        heads, count = len(walked.heads), len(candidates)
        ends = self.known.finder.arrived(walked.rules, candidates)
        places = ends.heads * count + ends.candidates
        about = self.about[ends.rules]
        trails = torch.cat([about, _log(ends.chances), (about[:, 1] * ends.chances[:, 0]).unsqueeze(1)], 1)
        worth = self.worth[ends.rules] * ends.chances[:, 0]
        total = worth.new_zeros(heads * count).index_add_(0, places, worth)
        return places, ends.rules, trails, total.view(heads, count)

    def _nearness(self, walked: Walked, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """The chances (H, C, 2) of all trails of one hop, and of two, added up."""
        finder, heads = self.known.finder, len(walked.heads)
        return finder.ends(walked.one, heads, candidates), finder.ends(walked.two, heads, candidates)

    def _shared(self, candidates: Tensor) -> Tensor:
        """The chances (C, 2) that the references' tails lead to a candidate over a neighbour both have."""
        finder, tails = self.known.finder, self.references[:, 1]
        return finder.ends(finder.siblings(tails), len(tails), candidates).mean(0)

    def _bilinear(self, heads: Tensor, candidates: Tensor) -> Tensor:
        turning = self.known.turning
        return ComplEx().against(ComplEx().query(turning(heads), self.relation), turning(candidates))

    def _translation(self, heads: Tensor, offset: Tensor, candidates: Tensor) -> Tensor:
        """Scores (…, H, C) of an offset (d,), or of several (…, 1, d)."""
        moved, tails = self.known.moving(heads) + offset, self.known.moving(candidates)
        return -_distance(moved.flatten(0, -2), tails).view(*moved.shape[:-1], len(tails))

    def _like_heads(self, heads: Tensor) -> Tensor:
        """How like the references' heads these are, in three ways: (H, K, 3)."""
        known, others = self.known, self.references[:, 0]
        by_vectors = [known.unit(name, heads) @ known.unit(name, others).T for name in ("translation", "bilinear")]
        return torch.stack([*by_vectors, known.profile_likeness(heads, others)[0]], -1)


def inquire(known: Known, references: Tensor) -> tuple[Inquiry, Tensor]:
    """What follows from references (K, 2), and their `reliability`; all relation vectors are estimated together."""
    count = len(references)
    held = min(count, HELD_OUT) if count > 1 else 0
    weights = torch.ones(1 + held, count, device=references.device)
    weights[1:, :held].fill_diagonal_(0)
    own, *others = estimate(known, references.expand(1 + held, -1, -1), weights)
    return Inquiry(known, references, own), reliability(known, references, others)


def reliability(known: Known, references: Tensor, relations: Sequence[Tensor]) -> Tensor:
    """How well each of the four scores finds references (K, 2) by the others: (10,).

    A reference is held out and ranked among N entities of the tails' kind, all references' tails aside: 1/rank and
    log rank / log(2 + N), the mean over the held-out ones, of which there are as many as vectors (d,) of the relation
    that were estimated without each. Where nothing can be held out, all are 0.3. The last two are whether that is so,
    and the log of the number of references.
    """
    count = len(references)
    told = torch.tensor([float(count == 1), math.log(count)], device=known.device)
    if not relations:
        return torch.cat([told.new_full((2 * SINGLES,), 0.3), told])
    rivals = known.alike(references[:, 1], RIVALS)
    competing = ~torch.isin(rivals, references[:, 1])
    found = []
    for k, relation in enumerate(relations):
        head, tail = references[k]
        inquiry = Inquiry(known, torch.cat([references[:k], references[k + 1 :]]), relation)
        scores = inquiry.look(inquiry.walk(head.unsqueeze(0)), inquiry.among(rivals))[1].squeeze(1)  # (4, C)
        true, others = scores[:, rivals == tail], scores[:, competing]
        rank = 1 + (others > true).sum(1) + (others == true).sum(1) / 2
        found.append(torch.cat([1 / rank, rank.log() / math.log(2 + len(rivals))]))
    return torch.cat([torch.stack(found).mean(0), told])


@torch.no_grad()
def estimate(known: Known, references: Tensor, weights: Tensor | None = None) -> Tensor:
    """ComplEx vectors (Q, d) of Q relations from the references (Q, K, 2) of each, entities staying as they are.

    Adam minimises −log softmax of the references' tails, and of their heads, against far entities, the mean over the
    references by their weights (Q, K), and N3 of the vector. The gradients are written out: half the time.
    """
    model, far = ComplEx(), known.turning(known.far)
    heads, tails = known.turning(references[..., 0]), known.turning(references[..., 1])  # (Q, K, d)
    weights = torch.ones_like(references[..., 0], dtype=far.dtype) if weights is None else weights
    shares = (weights / weights.sum(1, keepdim=True)).unsqueeze(-1)  # (Q, K, 1)
    start = torch.sin(torch.arange(heads.shape[-1], device=far.device) * 12.9898) * 0.1  # anything but zero
    relation = start.expand(len(references), -1).clone()
    first, second = torch.zeros_like(relation), torch.zeros_like(relation)

    def pull(known_end: Tensor, true: Tensor, vector: Tensor) -> Tensor:
        """The gradient of −log softmax of one end, given the other: conj(known end) ⊙ (Σ p_j e_j − e_true)."""
        query = model.query(known_end, vector.unsqueeze(1))
        scores = torch.cat([model.compare(query, true).unsqueeze(-1), model.against(query, far)], -1)
        chances = scores.softmax(-1)
        moved = (chances[..., :1] - 1) * true + chances[..., 1:] @ far
        return (shares * model.query(moved, model.inverse(known_end.flatten(0, -2)).view_as(known_end))).sum(1)

    for step in range(1, FIT_STEPS + 1):
        back = pull(tails, heads, model.inverse(relation))
        re, im = relation.chunk(2, -1)
        modulus = (re.square() + im.square()).sqrt()
        slope = pull(heads, tails, relation) + model.inverse(back)
        slope = slope + 3 * FIT_WEIGHT * torch.cat([modulus, modulus], -1) * relation
        first = first.lerp(slope, 0.1)
        second = second.lerp(slope.square(), 0.001)
        size = (second / (1 - 0.999**step)).sqrt() + 1e-8
        relation = relation - FIT_RATE * first / (1 - 0.9**step) / size
    return relation


def _trodden(followed: Tensor, near: Tensor, two: Tensor) -> Tensor:
    """What rules say of pairs (H, C), and a little for any path: (H, C, 2) of one hop and of two."""
    return followed + 0.01 * near[..., 0] + 0.001 * two[..., 0]


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances (A, B) of rows, in double precision: as ‖a‖² − 2 a·b + ‖b‖² they are wrong near zero."""
    x, y = a.double(), b.double()
    squares = torch.addmm(y.square().sum(1), x, y.T, alpha=-2).add_(x.square().sum(1, keepdim=True))
    return squares.clamp_min_(0).sqrt_().float()


def _log(chances: Tensor) -> Tensor:
    """The log of chances, brought near 0 to 1; a chance under 0.0001 is as good as none."""
    return (chances + LEAST_CHANCE).log() / 4 + 1
