"""Tasks from references, and episodes to learn from; pure functions of (seed, step)."""
from __future__ import annotations
import math
from typing import NamedTuple
import numpy as np
import torch
from data import generator, spans
from model import FACTS, Tasks

HIDDEN = .2
FIELDS = Tasks._fields


def reference_arrays(g, refs, P, S, rng, visible, named):
    """What `Tasks` needs of one set of references (K, 2), padded to P pairs and S samples. g: prepared graph."""
    K, n, M = len(refs), g["n"], g["M"]
    ends, inv = np.unique(refs, return_inverse=True)
    inv = inv.reshape(-1, 2)
    pad = 2 * P - len(ends)
    heads, tails = (np.unique(inv[:, i], return_counts=True) for i in (0, 1))
    out, into = np.zeros(len(ends)), np.zeros(len(ends))
    out[heads[0]], into[tails[0]] = heads[1], tails[1]
    fans = np.zeros((P, 2), np.float32)
    fans[:K, 0], fans[:K, 1] = 1 / out[inv[:, 0]], 1 / into[inv[:, 1]]
    marks = np.zeros((2, 2 * P), np.float32)
    marks[0, heads[0]] = 1
    marks[1, tails[0]] = 1
    pairs = np.zeros((P, 2), np.int64)
    pairs[:K] = inv
    if P > K:
        pairs[K:] = (np.arange(P - K) % (2 * P))[:, None]  # spread: no contention
    s = min(K, S)
    sample = np.zeros(S, np.int64)
    sample[:s] = np.arange(K) if K <= S else rng.choice(K, S, replace=False)
    off, rel = g["slot_off"], g["slot_rel"]
    around, cover = np.zeros((2, M), np.float32), np.zeros((2, M), np.float32)
    for i, (which, count) in enumerate((heads, tails)):
        e = ends[which]
        at, owner = spans(off[e], off[e + 1])
        around[i] = np.bincount(rel[at], count[owner], minlength=M) / K
        cover[i] = np.bincount(rel[at], minlength=M) / np.maximum(g["slot_count"], 1)
    around *= visible
    cover *= visible
    h, t = inv[:, 0], inv[:, 1]
    selfs = np.array([[(out[h] > 1).mean(), (into[h] > 0).mean()], [(out[t] > 0).mean(), (into[t] > 1).mean()]], np.float32)
    a, b = len(heads[0]), len(tails[0])
    sizes = np.array([[math.log1p(K) / 10, math.log1p(a) / 10, math.log1p(b) / 10, math.log1p(K / a) / 4, math.log1p(K / b) / 4]], np.float32)
    sizes = np.concatenate([sizes, sizes[:, [0, 2, 1, 4, 3]]])
    key = np.sort(inv[:, 0] * len(ends) + inv[:, 1])
    back = inv[:, 1] * len(ends) + inv[:, 0]
    symmetric = (key[np.minimum(np.searchsorted(key, back), K - 1)] == back).mean()
    deg = g["logdeg"]
    facts = np.array([math.log(K) / 2, a / K, b / K, deg[ends[h]].mean() / 8, deg[ends[t]].mean() / 8, heads[1].max() / K,
                      tails[1].max() / K, symmetric, (into[h] > 0).mean()], np.float32)
    assert len(facts) == FACTS
    ends = np.append(ends, (np.arange(pad) * 7919) % n).astype(np.int64)
    mask = (np.arange(P) < K).astype(np.float32)
    return dict(ends=ends, marks=marks, pairs=pairs, fans=fans, mask=mask, sample=sample,
                sampled=(np.arange(S) < s).astype(np.float32), around=around, cover=cover, selfs=selfs, sizes=sizes,
                facts=facts, visible=visible.astype(np.float32), named=np.float32(named))


def tasks_from(parts, heads, candidates):
    cols = {k: torch.from_numpy(np.stack([p[k] for p in parts])) for k in parts[0]}
    return Tasks(**cols, heads=heads, candidates=candidates)


class Batch(NamedTuple):
    graph: int
    band: int
    tasks: Tasks
    answers: torch.Tensor
    excluded: torch.Tensor

    @property
    def tensors(self):
        return *self.tasks, self.answers, self.excluded

    def _with(self, tensors):
        *t, a, e = tensors
        return Batch(self.graph, self.band, Tasks(*t), a, e)

    def to(self, device):
        return self._with([x.to(device, non_blocking=True) for x in self.tensors])

    def clone(self):
        return self._with([x.clone() for x in self.tensors])


class Source:
    def __init__(self, g, cfg):
        self.g, self.cfg, self.pairs = g, cfg, g["pairs"]
        self.sizes = np.array([len(p.usable) for p in self.pairs], float)
        self.weights = {}

    def draw_relation(self, rng, band):
        small = band == self.cfg["bands"][0]
        if band not in self.weights:
            power = 0 if small else {"uniform": 0, "root": .5, "triples": 1}[self.cfg["draws"]]
            w = self.sizes ** power
            if not small:
                least = min(band / 8, self.sizes.max() * .5)
                w = w * (self.sizes >= least)
            self.weights[band] = np.cumsum(w / w.sum())
        return self.pairs[min(int(np.searchsorted(self.weights[band], rng.random())), len(self.pairs) - 1)]

    def references(self, rng, own, asked, K, skewed):
        """K places of pairs of the relation, none of the asked ones."""
        free = np.ones(len(own.heads), bool)
        free[asked] = False
        places = np.flatnonzero(free)
        K = min(K, len(places))
        if not skewed or K < 3:
            return rng.choice(places, K, replace=False)
        how = rng.integers(3)
        tails = own.tails[places]
        if how == 0:  # most of one tail, and up to three random ones
            one = tails[rng.integers(len(tails))]
            mine, rest = places[tails == one], places[tails != one]
            some = rng.permutation(rest)[: min(len(rest), int(rng.integers(0, 4)))]
            mine = rng.permutation(mine)[: max(1, K - len(some))]
            return np.concatenate([mine, some])
        if how == 1:  # of the most frequent tails
            ids, inv, cnt = np.unique(tails, return_inverse=True, return_counts=True)
            order = np.lexsort((rng.random(len(tails)), rng.random(len(ids))[inv], -cnt[inv]))
            return places[order[:K]]
        deg = self.g["logdeg"]  # of well-known entities: what a curator meets first
        score = deg[own.heads[places]] + deg[tails] + rng.gumbel(size=len(places)) * .5
        return places[np.argsort(-score)[:K]]

    def episode(self, rng, band):
        cfg, g = self.cfg, self.g
        bands, Q, C = cfg["bands"], cfg["queries"], cfg["candidates"]
        own = self.draw_relation(rng, band)
        before = bands[bands.index(band) - 1] if band != bands[0] else 0
        most = len(own.usable)
        asked = rng.permutation(own.usable)[: min(Q, max(2, most // 3))]
        available = len(own.heads) - len(asked)
        hi = min(band, available)
        lo = min(before + 1, hi)
        K = hi if before and rng.random() < cfg["all_share"] else int(round(math.exp(rng.uniform(math.log(lo), math.log(hi + .49)))))
        refs = self.references(rng, own, asked, max(1, min(K, hi)), rng.random() < cfg["skew"])
        asked = np.resize(asked, Q)
        heads, tails = own.heads[asked].astype(np.int64), own.tails[asked].astype(np.int64)
        half, R = g["M"] // 2, g["R"]
        visible = (rng.random(half) >= rng.uniform(0, HIDDEN)).astype(np.float32)
        visible[own.relation % half] = 0
        named = float(g["named"] and rng.random() >= cfg["names_drop"])
        visible[R:] = named * (rng.random(2) >= .1)
        visible = np.tile(visible, 2)
        part = reference_arrays(g, np.stack([own.heads[refs], own.tails[refs]], 1).astype(np.int64), band, 16 if band <= 16 else cfg["sample"], rng, visible, named)
        chosen = self.candidates(rng, own, tails, C)
        excluded = np.zeros((Q, C), bool)
        begins, ends = (np.searchsorted(own.heads, heads, side=s) for s in ("left", "right"))
        for q, (x, y) in enumerate(zip(begins, ends)):
            known = own.tails[x:y]
            at = np.minimum(np.searchsorted(chosen, known), C - 1)
            excluded[q, at[chosen[at] == known]] = True
        answers = np.searchsorted(chosen, tails)
        excluded |= np.append(False, chosen[1:] == chosen[:-1])
        excluded[np.arange(Q), answers] = False
        return part, heads, chosen, answers, excluded

    def candidates(self, rng, own, tails, C):
        """Tails, true tails of the relation (a quarter), likely ones, and a fifth random; sorted; the last repeats."""
        few = own.unique if len(own.unique) <= C // 4 else rng.choice(own.unique, C // 4)
        likely = own.likely
        room = int(.8 * C) - len(few) - len(tails)
        if len(likely) > room:
            likely = rng.choice(likely, room)
        more = rng.integers(0, self.g["n"], max(0, C - len(likely) - len(tails) - len(few)))
        chosen = np.unique(np.concatenate([tails, few, likely, more])).astype(np.int64)
        return np.append(chosen, np.repeat(chosen[-1:], C - len(chosen)))


class Episodes(torch.utils.data.Dataset):
    def __init__(self, graphs, shares, cfg, seed):
        self.sources, self.cfg, self.seed = [Source(g, cfg) for g in graphs], cfg, seed
        self.shares = np.cumsum(np.array(shares) / sum(shares))
        self.most = [max(len(p.heads) for p in g["pairs"]) for g in graphs]

    def __getitem__(self, step):
        rng = generator(self.seed, "step", step)
        index = min(int(np.searchsorted(self.shares, rng.random())), len(self.sources) - 1)
        bands = self.cfg["bands"]
        at = int(rng.choice(len(bands), p=self.cfg["band_shares"]))
        while at and bands[at - 1] >= self.most[index] // 2:
            at -= 1
        source = self.sources[index]
        got = [source.episode(rng, bands[at]) for _ in range(self.cfg["tasks"])]
        parts, *rest = zip(*got)
        heads, chosen, answers, excluded = (torch.from_numpy(np.stack(x)) for x in rest)
        return Batch(index, bands[at], tasks_from(parts, heads, chosen), answers, excluded)
