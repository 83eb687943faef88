"""K-curves, split by seen tails; skewed references; ordinary link prediction; folds and test of NELL-One."""
from __future__ import annotations
import time
import numpy as np
import torch
from data import generator, raw, triples_of
from episodes import reference_arrays, tasks_from

KS = (1, 3, 10, 30, 100, 10 ** 9)
label = lambda k: "all" if k >= 10 ** 9 else str(k)


class OutOfTime(Exception):
    pass


class Asker:
    def __init__(self, net, graph, names, deadline):
        self.net, self.g, self.names, self.deadline = net, graph, names, deadline
        self.gpu = graph.device.type == "cuda"
        self.dtype = torch.bfloat16 if self.gpu else torch.float32
        self.Q = 16 if self.gpu else 8
        self.questions = 0

    @torch.no_grad()
    def __call__(self, refs, heads, candidates=None, hidden=()):
        """Scores (H, C); `hidden` relations (forward ids) are not seen."""
        if time.time() > self.deadline: raise OutOfTime
        p, dev = self.g.p, self.g.device
        half = p["M"] // 2
        visible = np.ones(half, np.float32)
        visible[list(hidden)] = 0
        named = float(self.names and p["named"])
        visible[p["R"]:] = named
        part = reference_arrays(p, np.asarray(refs, np.int64), len(refs), 16 if len(refs) <= 16 else 32, generator(0, "walks"), np.tile(visible, 2), named)
        c = torch.arange(self.g.n) if candidates is None else torch.from_numpy(np.asarray(candidates, np.int64))
        heads = torch.from_numpy(np.asarray(heads, np.int64))
        pad = -len(heads) % self.Q
        padded = torch.cat([heads, heads[-1:].expand(pad)]).view(-1, 1, self.Q)
        tasks = tasks_from([part], padded[0], c[None])
        tasks = type(tasks)(*(x.to(dev) for x in tasks))
        padded = padded.to(dev)
        encoded = self.net.encode(self.g, tasks, self.dtype)
        other = self.net.reference_states(self.g, tasks, encoded, self.dtype)
        out = []
        for some in padded:
            t = tasks._replace(heads=some)
            states = self.net.head_states(self.g, t, encoded, self.dtype)
            out.append(self.net.scores(self.g, t, encoded, states, other)[0])
        self.questions += len(heads)
        return torch.cat(out)[: len(heads)]


def ranks(scores, columns, filters):
    """Realistic ranks (H,): filters = (rows, columns) of other right answers."""
    dev = scores.device
    columns = torch.from_numpy(np.asarray(columns, np.int64)).to(dev)
    own = scores.gather(1, columns[:, None])
    scores = scores.clone()
    scores[torch.from_numpy(filters[0]).to(dev), torch.from_numpy(filters[1]).to(dev)] = -torch.inf
    scores.scatter_(1, columns[:, None], own)
    higher, ties = (scores > own).sum(1), (scores == own).sum(1) - 1
    return (1 + higher + ties / 2).double().cpu().numpy()


def filters_of(known, pairs, place=None):
    """Rows and columns of all known tails of each pair's head; known (m, 2) sorted by head. place: entity -> column or -1."""
    b, e = (np.searchsorted(known[:, 0], pairs[:, 0], side=s) for s in ("left", "right"))
    rows = np.repeat(np.arange(len(pairs)), e - b)
    at = np.arange((e - b).sum()) - np.repeat(np.cumsum(e - b) - (e - b) - b, e - b)
    cols = known[at, 1].astype(np.int64)
    if place is not None:
        cols = place[cols]
        rows, cols = rows[cols >= 0], cols[cols >= 0]
    return rows.astype(np.int64), cols


mrr = lambda r: float(np.mean(1 / np.concatenate(r))) if r and sum(map(len, r)) else None
hit = lambda r: float(np.mean(np.concatenate(r) <= 1)) if r and sum(map(len, r)) else None
rnd = lambda x: None if x is None else round(x, 4)


def hidden_relations(p, cfg):
    """(relation, pairs in a fixed order, queries) of at most cfg relations of a prepared graph, by a fixed seed."""
    h, r, t = triples_of(raw(p["name"]))
    sizes = np.bincount(r, minlength=p["R"])
    good = np.flatnonzero(sizes >= 20)
    for rel in np.sort(generator(0, "hide", p["name"]).permutation(good)[: cfg.get("relations", 10)]).tolist():
        at = r == rel
        pairs = np.stack([h[at], t[at]], 1)
        known = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        order = generator(0, "pairs", p["name"], rel).permutation(len(pairs))
        q = min(cfg.get("queries", 64), len(pairs) // 2)
        yield rel, pairs[order[q:]], pairs[order[:q]], known


def suite_graph(asker, cfg):
    """One never-train graph: the K-curve, and skewed references."""
    p = asker.g.p
    curve = {label(k): dict(mrr=[], hit=[], seen=[], unseen=[]) for k in cfg.get("ks", KS)}
    skew = {}
    for rel, pool, queries, known in hidden_relations(p, cfg):
        fil = filters_of(known, queries)
        for k in cfg.get("ks", KS):
            refs = pool[:k]
            got = ranks(asker(refs, queries[:, 0], hidden=[rel]), queries[:, 1], fil)
            seen = np.isin(queries[:, 1], refs[:, 1])
            c = curve[label(k)]
            c["mrr"].append(float(np.mean(1 / got))); c["hit"].append(float(np.mean(got <= 1)))
            c["seen"].append(got[seen]); c["unseen"].append(got[~seen])
        if not cfg.get("skew", True) or len(pool) < 20: continue
        tails, counts = np.unique(pool[3:, 1], return_counts=True)
        top = tails[counts.argmax()]
        same = pool[3:][pool[3:, 1] == top]
        others = queries[:, 1] != top
        if others.sum() < 5: continue
        base = pool[:3]
        sets = {"3": base}
        if len(same) >= 10:
            sets["3+10"] = np.concatenate([base, same[:10]])
            if len(same) >= 30: sets["3+30"] = np.concatenate([base, same[:30]])
        rest = pool[3:67]
        if len(rest) >= 20:  # the model's own best right answers
            s = asker(base, rest[:, 0], hidden=[rel])
            own = s.gather(1, torch.from_numpy(rest[:, 1].astype(np.int64)).to(s.device)[:, None])[:, 0]
            sets["3+own10"] = np.concatenate([base, rest[torch.argsort(-own)[:10].cpu().numpy()]])
        f = filters_of(known, queries[others])
        got = {k: ranks(asker(v, queries[others, 0], hidden=[rel]), queries[others, 1], f) for k, v in sets.items()}
        for k in got:
            if k != "3":
                skew.setdefault(k, []).append((float(np.mean(got["3"] <= 1)), float(np.mean(got[k] <= 1)), float(np.mean(1 / got["3"])), float(np.mean(1 / got[k]))))
    return (dict(graph=p["name"], relations=len(next(iter(curve.values()))["mrr"]),
                 curve={k: dict(mrr=rnd(np.mean(c["mrr"])), hit=rnd(np.mean(c["hit"])), seen=rnd(mrr(c["seen"])), unseen=rnd(mrr(c["unseen"])), seen_n=int(sum(map(len, c["seen"])))) for k, c in curve.items()}),
            {k: [rnd(float(x)) for x in np.mean(v, 0)] + [len(v)] for k, v in skew.items()})


def ordinary(asker, cfg, most):
    """Ordinary link prediction at K = all, both directions."""
    a = raw(asker.g.p["name"])
    h, r, t = triples_of(a)
    test = generator(0, "test").permutation(a["test"])[:most]
    every = np.concatenate([np.stack([h, r, t], 1), a["filter"]])
    out, seen_r, unseen_r, n = [], [], [], asker.g.n
    for rel in np.unique(test[:, 1]).tolist():
        pairs = np.stack([h[r == rel], t[r == rel]], 1)
        if not len(pairs): continue
        k = every[every[:, 1] == rel][:, [0, 2]]
        q = test[test[:, 1] == rel][:, [0, 2]]
        for back in (False, True):
            o = (lambda x: x[:, ::-1]) if back else (lambda x: x)
            known = o(k); known = known[np.lexsort((known[:, 1], known[:, 0]))]
            got = ranks(asker(o(pairs), o(q)[:, 0], hidden=[rel]), o(q)[:, 1], filters_of(known, o(q)))
            seen = np.isin(o(q)[:, 1], o(pairs)[:, 1])
            out.append(got); seen_r.append(got[seen]); unseen_r.append(got[~seen])
    return dict(mrr=rnd(mrr(out)), hit=rnd(hit(out)), hit10=rnd(float(np.mean(np.concatenate(out) <= 10))), seen=rnd(mrr(seen_r)), unseen=rnd(mrr(unseen_r)), n=int(sum(map(len, out))))


def tasks_named(name):
    a = raw(f"tasks-{name}")
    return [dict(name=str(x), **{k: a[f"{k}{i}"] for k in ("pairs", "known", "range", "paper", "counted")}) for i, x in enumerate(a["names"])]


def few_shot(asker, tasks, shots, protocol="full"):
    """MRR over queries, the first references of each relation, as `fewlink evaluate`."""
    out, n = [], asker.g.n
    for t in tasks:
        refs, q = t["pairs"][:shots], t["pairs"][shots:]
        if len(refs) < shots or not len(q): continue
        ids = t["range"] if protocol == "full" else t["paper"]
        place = np.full(n, -1, np.int64); place[ids] = np.arange(len(ids))
        s = asker(refs, q[:, 0], ids)
        if protocol == "paper":
            own = s.gather(1, torch.from_numpy(place[q[:, 1]]).to(s.device)[:, None])
            s[:, torch.from_numpy(~t["counted"]).to(s.device)] = -torch.inf
            s.scatter_(1, torch.from_numpy(place[q[:, 1]]).to(s.device)[:, None], own)
        out.append(ranks(s, place[q[:, 1]], filters_of(t["known"], q, place)))
    return dict(mrr=rnd(mrr(out)), hit=rnd(hit(out)), n=int(sum(map(len, out))))


def fold_curve(asker, tasks, cfg):
    curve, n = {}, asker.g.n
    for k in cfg.get("ks", KS):
        out, seen_r, unseen_r = [], [], []
        for t in tasks:
            m = min(cfg.get("queries", 64), len(t["pairs"]) // 2)
            q, refs = t["pairs"][-m:], t["pairs"][:-m][:k]
            place = np.full(n, -1, np.int64); place[t["range"]] = np.arange(len(t["range"]))
            got = ranks(asker(refs, q[:, 0], t["range"]), place[q[:, 1]], filters_of(t["known"], q, place))
            seen = np.isin(q[:, 1], refs[:, 1])
            out.append(got); seen_r.append(got[seen]); unseen_r.append(got[~seen])
        curve[label(k)] = dict(mrr=rnd(mrr(out)), hit=rnd(hit(out)), seen=rnd(mrr(seen_r)), unseen=rnd(mrr(unseen_r)), seen_n=int(sum(map(len, seen_r))))
    return curve


def needed(cfg, index):
    """Graphs that the evaluation of this config reads."""
    e, names = cfg["eval"], []
    if e.get("codex", True): names.append("codex-s")
    if e.get("folds", True): names += ["nell-fold0", "nell-fold1"]
    if e.get("suite", True):
        never = [r["name"] for r in index if r["use"] == "never train"]
        names += e["suite"] if isinstance(e.get("suite"), list) else never
    if e.get("fb", 0): names.append("fb15k-237")
    for k, g in (("nell_test", "nell-known"), ("fb_test", "fb-few"), ("attack_test", "attack-few")):
        if e.get(k, False): names.append(g)
    return names


def evaluate(net, load, cfg, index, say, deadline):
    """All sections in order; each is told as soon as it is known. Returns a summary."""
    e, summary = cfg["eval"], {}
    modes = ["on", "off"] if cfg["names"] else ["off"]
    if "modes" in e: modes = [m for m in e["modes"] if m == "off" or cfg["names"]] or ["off"]
    began = time.time()

    def section(kind, make, graph, mode):
        t0 = time.time()
        try:
            asker = Asker(net, load(graph), mode == "on", deadline)
            got = make(asker)
        except OutOfTime:
            say(dict(kind=kind, graph=graph, names=mode, out_of_time=True)); return None
        except Exception as error:
            import traceback
            say(dict(kind=kind, graph=graph, names=mode, error=repr(error)[:300], trace=traceback.format_exc()[-1500:])); return None
        say(dict(kind=kind, graph=graph, names=mode, seconds=round(time.time() - t0, 2), questions=asker.questions, **got))
        return got

    for mode in modes:
        s = summary[mode] = {}
        if e.get("codex", True):
            if got := section("ordinary", lambda a: ordinary(a, cfg, e.get("test_triples", 1000)), "codex-s", mode): s["codex"] = got["mrr"]
        for i in (0, 1) if e.get("folds", True) else ():
            tasks = tasks_named(f"nell-fold{i}")[: e.get("fold_tasks", 1000)]
            if got := section("fold3", lambda a: few_shot(a, tasks, 3), f"nell-fold{i}", mode): s[f"fold{i}"] = got["mrr"]
            if e.get("fold_curve", True):
                if got := section("fold", lambda a: dict(curve=fold_curve(a, tasks, e)), f"nell-fold{i}", mode): s[f"fold{i}_curve"] = {k: c["mrr"] for k, c in got["curve"].items()}
        if e.get("suite", True):
            never = e["suite"] if isinstance(e.get("suite"), list) else [r["name"] for r in index if r["use"] == "never train"]
            curves, skews, split = {}, {}, {}
            for name in never:
                def make(a):
                    c, k = suite_graph(a, e)
                    return dict(**c, skew=k) if True else None
                got = section("suite", lambda a: {k: v for k, v in make(a).items() if k != "graph"}, name, mode)
                if not got: continue
                for k, c in got["curve"].items():
                    curves.setdefault(k, []).append(c["mrr"])
                    for w in ("seen", "unseen"):
                        if c[w] is not None: split.setdefault((w, k), []).append(c[w])
                for k, v in got["skew"].items(): skews.setdefault(k, []).append(v[:4])
            s["suite"] = {k: rnd(float(np.mean(v))) for k, v in curves.items()}
            s["suite_graphs"] = max(map(len, curves.values()), default=0)
            s["seen"] = {k: rnd(float(np.mean(v))) for (w, k), v in split.items() if w == "seen"}
            s["unseen"] = {k: rnd(float(np.mean(v))) for (w, k), v in split.items() if w == "unseen"}
            s["skew"] = {k: [rnd(float(x)) for x in np.mean(v, 0)] for k, v in skews.items()}  # hit with 3, hit skewed, mrr with 3, mrr skewed
        if e.get("fb", 0):
            if got := section("ordinary", lambda a: ordinary(a, cfg, e["fb"]), "fb15k-237", mode): s["fb"] = got["mrr"]
        for k, graph, tasks in (("nell_test", "nell-known", "nell-test"), ("fb_test", "fb-few", "fb-few-test"), ("attack_test", "attack-few", "attack-few-test")):
            if e.get(k, False):
                for shots in e.get("test_shots", (1, 3, 5)):
                    for protocol in e.get("protocols", ("full", "paper")):
                        if got := section(f"{k}-{shots}-{protocol}", lambda a: few_shot(a, tasks_named(tasks), shots, protocol), graph, mode): s[f"{k}-{shots}-{protocol}"] = got["mrr"]
    summary["eval_seconds"] = round(time.time() - began, 1)
    return summary
