"""Packed graphs -> arrays ready for the network. numpy only up to `prepare`; `Loaded.to(device)` makes tensors."""
from __future__ import annotations
import hashlib, io, json, lzma
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import torch

DATA = Path(__file__).resolve().parent.parent / "data"
ROW_SEGMENT, RELATION_SEGMENT = 128, 512
SMALLEST = 12
RANGE = 1 << 14


def generator(seed, *words):
    text = "\x1f".join([str(seed), *map(str, words)])
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def raw(name):
    return dict(np.load(io.BytesIO(lzma.decompress((DATA / f"{name}.xz").read_bytes()))))


def triples_of(a):
    r = np.repeat(np.arange(len(a["counts"]), dtype=np.int32), a["counts"])
    h = np.cumsum(a["dh"]).astype(np.int32)
    t = np.ascontiguousarray(a["t"].T).view(np.int32).reshape(-1)
    return h, r, t


def index():
    return json.load(open(DATA / "index.json"))


class EdgeOrder(SimpleNamespace):
    pass


class EdgeTable(SimpleNamespace):
    pass


def segments_of(offsets, longest, all_partial=False):
    counts = np.maximum(1, -(-np.diff(offsets) // longest))
    rows = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = offsets[rows] + place * longest
    ends = np.minimum(begins + longest, offsets[rows + 1])
    partial = counts[rows] > 1 if not all_partial else np.ones(len(rows), bool)
    slots = np.where(partial, np.cumsum(partial) - 1, -1)
    long_rows = np.flatnonzero(counts > 1) if not all_partial else np.arange(len(counts))
    firsts = np.append(0, np.cumsum(counts[long_rows]))
    a = dict(rows=rows, begins=begins, ends=ends, slots=slots, long_rows=long_rows, firsts=firsts)
    return dict({k: v.astype(np.int64) for k, v in a.items()}, partials=int(partial.sum()))


def spans(begins, ends):
    n = ends - begins
    return np.arange(n.sum()) - np.repeat(np.cumsum(n) - n - begins, n), np.repeat(np.arange(len(n)), n)


def prepare(name, names):
    """Everything of a graph as numpy arrays. Relations: R real ones, `same`, `contain`; + R + 2: their inverses."""
    a = raw(name)
    h, r, t = triples_of(a)
    n, R = int(a["n"]), len(a["counts"])
    if names and "same" in a:
        parts = [(a[k], R + i) for i, k in enumerate(("same", "contain"))]
        h = np.concatenate([h, *(p[:, 0] for p, _ in parts)]).astype(np.int32)
        t = np.concatenate([t, *(p[:, 1] for p, _ in parts)]).astype(np.int32)
        r = np.concatenate([r, *(np.full(len(p), i, np.int32) for p, i in parts)]).astype(np.int32)
    return prepare_triples(name, n, R, h, r, t, a, names)


def prepare_triples(name, n, R, h, r, t, a=None, names=False):
    a = a or {}
    half = R + 2
    M = 2 * half
    H, T = np.concatenate([h, t]), np.concatenate([t, h])
    E = np.concatenate([r, r + half]).astype(np.int32)
    key = H.astype(np.int64) * M + E
    uniq, inv, cnt = np.unique(key, return_inverse=True, return_counts=True)
    fan_out = (1 / cnt[inv]).astype(np.float32)
    m = len(h)
    fan_in = np.concatenate([fan_out[m:], fan_out[:m]])

    def order(row, rows, first, second, longest, all_partial=False):
        at = np.argsort(row.astype(np.int64) * max(n, M) + second, kind="stable")
        offsets = np.searchsorted(row[at], np.arange(rows + 1)).astype(np.int64)
        return dict(row=row[at].astype(np.int32), first=first[at].astype(np.int32), second=second[at].astype(np.int32),
                    offsets=offsets, fan_out=fan_out[at], fan_in=fan_in[at], segments=segments_of(offsets, longest, all_partial))

    orders = dict(by_tail=order(T, n, H, E, ROW_SEGMENT), by_head=order(H, n, T, E, ROW_SEGMENT),
                  by_relation=order(E, M, H, T, RELATION_SEGMENT, True))
    real = (r < R)
    degrees = np.bincount(h[real], minlength=n) + np.bincount(t[real], minlength=n)
    slot_ent, slot_rel = (uniq // M).astype(np.int32), (uniq % M).astype(np.int32)
    slot_off = np.searchsorted(slot_ent, np.arange(n + 1)).astype(np.int64)
    slot_count = np.bincount(slot_rel, minlength=M)
    count = np.bincount(E, minlength=M)
    tails = slot_count[np.arange(M) - half]  # distinct tails: heads of the inverse
    tails = slot_count[(np.arange(M) + half) % M]
    fans = [np.log1p(count / np.maximum(x, 1)) / 4 for x in (slot_count, tails)]
    sizes = np.stack([*(np.log1p(x) / 10 for x in (count, slot_count, tails)), *fans], -1).astype(np.float32)
    both = np.zeros(M * M)
    step = max(1, (1 << 22) // max(1, int(np.diff(slot_off).max(initial=1))))
    for at in range(0, len(slot_rel), step):
        part = slice(at, at + step)
        o, which = spans(slot_off[slot_ent[part]], slot_off[slot_ent[part] + 1])
        both += np.bincount(slot_rel[part].astype(np.int64)[which] * M + slot_rel[o], minlength=M * M)
    both = both.reshape(M, M)
    together = (both / np.maximum(both.sum(1, keepdims=True), 1)).astype(np.float32)
    flags = np.zeros((M, 2), np.float32)
    for i in (0, 1):
        flags[[R + i, R + i + half], i] = 1
    out = dict(name=name, n=n, R=R, M=M, orders=orders, sizes=sizes, together=together, flags=flags,
               logdeg=np.log1p(degrees).astype(np.float32), degrees=degrees, slot_off=slot_off, slot_rel=slot_rel,
               slot_count=slot_count, edges=len(H), named=bool(names and "same" in a))
    out["vectors"] = name_vectors(a) if names and "tokens" in a else None
    out["pairs"] = relation_pairs(out, h[real], r[real], t[real], a.get("kinds"))
    return out


def name_vectors(a):
    w = np.load(DATA / "words96.npy").astype(np.float32)
    w /= np.linalg.norm(w, axis=1, keepdims=True) + 1e-6
    tokens, lengths = a["tokens"].astype(np.int64), a["lengths"].astype(np.int64)
    freq = np.bincount(tokens, minlength=len(w)) / max(1, len(tokens))
    weight = 1e-3 / (1e-3 + freq[tokens])
    owner = np.repeat(np.arange(len(lengths)), lengths)
    v = np.zeros((len(lengths), 96), np.float32)
    for c in range(0, len(tokens), 1 << 16):
        np.add.at(v, owner[c:c + (1 << 16)], w[tokens[c:c + (1 << 16)]] * weight[c:c + (1 << 16), None].astype(np.float32))
    v -= v[lengths > 0].mean(0) * (lengths > 0)[:, None] if (lengths > 0).any() else 0
    return (v / (np.linalg.norm(v, axis=1, keepdims=True) + 1e-6)).astype(np.float16)


def relation_pairs(g, h, r, t, kinds):
    """Relations to learn from, in both directions: pairs sorted by head, usable ones, likely tails."""
    n, R, M, half = g["n"], g["R"], g["M"], g["M"] // 2
    order = np.argsort(r, kind="stable")
    bounds = np.searchsorted(r[order], np.arange(R + 1))
    h, t = h[order], t[order]
    slots = np.argsort(g["slot_rel"], kind="stable")
    slot_ent = np.repeat(np.arange(n, dtype=np.int32), np.diff(g["slot_off"]))[slots]
    slot_bounds = np.searchsorted(g["slot_rel"][slots], np.arange(M + 1))
    hash_order = generator(0, "range").permutation(n)
    place = np.empty(n, np.int64); place[hash_order] = np.arange(n)
    found = []
    for rel in range(R):
        part = slice(bounds[rel], bounds[rel + 1])
        if part.stop - part.start < SMALLEST:
            continue
        ends, cnt = np.unique(np.concatenate([h[part], t[part]]), return_counts=True)
        joined = ends[g["degrees"][ends] > cnt]
        for back in (0, 1):
            a, b = (t[part], h[part]) if back else (h[part], t[part])
            o = np.lexsort((b, a)); a, b = a[o], b[o]
            usable = np.flatnonzero(np.isin(a, joined) & np.isin(b, joined)).astype(np.int32)
            tails = np.unique(b)
            if len(usable) < SMALLEST or len(tails) < 2:
                continue
            at, _ = spans(g["slot_off"][tails], g["slot_off"][tails + 1])
            share = np.bincount(g["slot_rel"][at], minlength=M)
            own = rel if back else rel + half
            share[own] = 0
            share[[R, R + 1, R + half, R + half + 1]] = 0
            mask = np.zeros(n, bool); mask[tails] = True
            if kinds is not None and (kinds[tails] >= 0).any():
                ks = np.unique(kinds[tails]); mask |= np.isin(kinds, ks[ks >= 0])
            else:
                for s in np.argsort(-share)[:12]:
                    if share[s] > .02 * len(tails):
                        mask[slot_ent[slot_bounds[s]:slot_bounds[s + 1]]] = True
            likely = np.flatnonzero(mask).astype(np.int32)
            if len(likely) > RANGE:
                likely = np.sort(likely[np.argpartition(place[likely], RANGE)[:RANGE]])
            found.append(SimpleNamespace(relation=rel + half * back, heads=a, tails=b, usable=usable, likely=likely, unique=tails))
    return found


class Loaded:
    """A prepared graph with tensors on a device."""

    def __init__(self, p, device):
        self.p, self.device = p, torch.device(device)
        self.n, self.M, self.R = p["n"], p["M"], p["R"]
        T = lambda x: torch.from_numpy(np.ascontiguousarray(x)).to(device)
        orders = {}
        for k, o in p["orders"].items():
            seg = SimpleNamespace(**{a: (T(v) if isinstance(v, np.ndarray) else v) for a, v in o["segments"].items()})
            orders[k] = EdgeOrder(**{a: T(v) for a, v in o.items() if a != "segments"}, segments=seg)
        self.edges = EdgeTable(nodes=self.n, relations=self.M, edges=p["edges"], **orders)
        self.sizes, self.together, self.flags, self.logdeg = (T(p[k]) for k in ("sizes", "together", "flags", "logdeg"))
        self.vectors = T(p["vectors"]) if p["vectors"] is not None else None
        half = self.M // 2
        self.inverse = torch.cat([(torch.arange(self.M) + half) % self.M, torch.tensor([self.M + 1, self.M])]).to(device)
