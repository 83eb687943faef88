"""The fast any-K forward equals slow loops written from the description (float64, CPU); and on a GPU the kernels equal torch."""
import math, sys
import numpy as np, torch
import data, model
from data import Loaded, prepare_triples
from episodes import reference_arrays, tasks_from, Source
from model import Trail3, HOPS, FACTS


def small(seed, n=14, R=3, m=40, K=6, S=4, P=8, L=2, Q=2):
    rng = np.random.default_rng(seed)
    t = np.unique(np.stack([rng.integers(0, n, m), rng.integers(0, R, m), rng.integers(0, n, m)], 1), axis=0)
    names = np.unique(np.stack([rng.integers(0, n, 5), R + rng.integers(0, 2, 5), rng.integers(0, n, 5)], 1), axis=0)
    t = np.concatenate([t, names]).astype(np.int32)
    p = prepare_triples("small", n, R, t[:, 0], t[:, 1], t[:, 2])
    p["vectors"] = None
    parts, refs = [], []
    for _ in range(L):
        r = np.unique(np.stack([rng.integers(0, n, 3 * K), rng.integers(0, n // 2, 3 * K)], 1), axis=0)
        r = rng.permutation(r)[:K]
        refs.append(r)
        visible = np.tile((rng.random(R + 2) > .2).astype(np.float32), 2)
        parts.append(reference_arrays(p, r, P, S, rng, visible, 1.0))
    heads = torch.from_numpy(rng.integers(0, n, (L, Q)))
    tasks = tasks_from(parts, heads, torch.arange(n).expand(L, -1).contiguous())
    return p, t, refs, tasks


def literal(net, p, t, refs, tasks, l, q):
    """Scores of all entities for task l, query q, with explicit loops."""
    n, R, M = p["n"], p["R"], p["M"]
    half, D = M // 2, torch.float64
    sd = {k: v.double() for k, v in net.state_dict().items()}
    lin = lambda x, k: x @ sd[k + ".weight"].T + (sd[k + ".bias"] if k + ".bias" in sd else 0)
    two = lambda x, k: lin(torch.relu(lin(x, k + ".0")), k + ".2")
    visible = tasks.visible[l].double()
    edges = [(int(h), int(r), int(x)) for h, r, x in t] + [(int(x), int(r) + half, int(h)) for h, r, x in t]
    new = [(int(h), M, int(x)) for h, x in refs[l]] + [(int(x), M + 1, int(h)) for h, x in refs[l]]
    every = edges + new
    fo, fi = {}, {}
    for h, r, x in every:
        fo[h, r] = fo.get((h, r), 0) + 1
        fi[x, r] = fi.get((x, r), 0) + 1
    vis = torch.cat([visible, torch.ones(2, dtype=D)])
    K, sample = len(refs[l]), tasks.sample[l][tasks.sampled[l] > 0].tolist()
    rows = M + 2 if net.node else M
    # walks
    walks = torch.zeros(rows, 18, dtype=D)
    joined = torch.zeros(3, dtype=D)
    for s in sample:
        h0, t0 = map(int, refs[l][s])
        use = [(h, r, x) for h, r, x in (every if net.node else edges) if vis[r] > 0 and not (r >= M and ((h, x) == (h0, t0) if r == M else (x, h) == (h0, t0)))]
        def spread(start, fan, back):
            x = {start: 1.0}; got = [x]
            for _ in range(2):
                y = {}
                for h, r, z in use:
                    a, b = (z, h) if back else (h, z)
                    if a in x: y[b] = y.get(b, 0) + x[a] / fan(h, r, z)
                x = y; got.append(x)
            return got
        js = []
        for c, fan in enumerate((lambda h, r, z: fo[h, r], lambda h, r, z: fi[z, r])):
            before, after = spread(h0, fan, False), spread(t0, fan, True)
            for i, (a, b) in enumerate(HOPS):
                sums = torch.zeros(rows, dtype=D)
                for h, r, z in use:
                    sums[r] += before[a].get(h, 0) * after[b].get(z, 0) / fan(h, r, z)
                walks[:, 3 * i + c] += torch.log1p(1000 * sums) / math.log(1001) / len(sample)
                if c == 0:
                    walks[:, 3 * i + 2] += (sums > 0).double() / len(sample)
                    js.append(float((sums > 0).any()))
        joined += torch.tensor([js[0], max(js[1], js[2]), js[4]], dtype=D) / len(sample)
    has = torch.zeros(n, M + 2, dtype=D)
    for h, r, x in every: has[h, r] = 1
    hs, ts = refs[l][:, 0], refs[l][:, 1]
    around = torch.stack([has[hs, :M].mean(0), has[ts, :M].mean(0)]) * visible
    cnt = has[:, :M].sum(0).clamp(min=1)
    cover = torch.stack([has[np.unique(hs), :M].sum(0), has[np.unique(ts), :M].sum(0)]) / cnt * visible
    both = has[:, :M].T @ has[:, :M]
    T = both / both.sum(1, keepdim=True).clamp(min=1)
    other = lambda e, r: float(sum(1 for h, rr, x in new if rr == r and h == e))
    selfs = torch.tensor([[np.mean([other(h, M) > 1 for h in hs]), np.mean([other(h, M + 1) > 0 for h in hs])],
                          [np.mean([other(x, M) > 0 for x in ts]), np.mean([other(x, M + 1) > 1 for x in ts])]], dtype=D)
    a, b = len(set(hs.tolist())), len(set(ts.tolist()))
    size = lambda k, a, b: [math.log1p(k) / 10, math.log1p(a) / 10, math.log1p(b) / 10, math.log1p(k / max(a, 1)) / 4, math.log1p(k / max(b, 1)) / 4]
    pairs = {(int(h), int(x)) for h, x in refs[l]}
    deg = np.log1p(np.array([sum(1 for h, r, x in edges if h == e and r % half < R) for e in range(n)]))
    facts = torch.tensor([math.log(K) / 2, a / K, b / K, deg[hs].mean() / 8, deg[ts].mean() / 8, max(np.bincount(hs)) / K, max(np.bincount(ts)) / K,
                          np.mean([(x, h) in pairs for h, x in pairs]), np.mean([h in set(ts.tolist()) for h in hs.tolist()])], dtype=D)
    feats = []
    for r in range(rows):
        if r < M:
            es = [(h, x) for h, rr, x in edges if rr == r]
            f = [around[0, r], around[1, r], *size(len(es), len({h for h, _ in es}), len({x for _, x in es})), facts[0], float(r % half == R), float(r % half == R + 1), 0.]
        else:
            f = [selfs[0, r - M], selfs[1, r - M], *(size(K, a, b) if r == M else size(K, b, a)), facts[0], 0., 0., 1.]
        feats.append(torch.cat([walks[r], torch.tensor([float(v) for v in f], dtype=D)]))
    v = two(torch.stack(feats), "read_relation") * vis[:rows, None]
    share = around / around.sum(1, keepdim=True).clamp(min=1e-6)
    if net.node:
        big = torch.zeros(M + 2, M + 2, dtype=D)
        big[:M, :M], big[:M, M:], big[M:, :M], big[M:, M:] = T, cover.T, share, selfs
    else: big = T
    inv = [(r + half) % M if r < M else 2 * M + 1 - r for r in range(rows)]
    for i in range(len(net.relation_layers)):
        k = f"relation_layers.{i}."
        B, E = big @ v, big @ v[inv]
        y = lin(torch.cat([v, B, E, E[inv], B[inv]], -1), k + "linear")
        y = torch.nn.functional.layer_norm(y, y.shape[-1:], sd[k + "norm.weight"], sd[k + "norm.bias"])
        v = (v + torch.relu(y)) * vis[:rows, None]
    task = two(torch.cat([(share @ v[:M]).flatten(), facts, joined, *([v[M:].flatten()] if net.node else [])]), "read_task")
    W, streams, count = net.width, net.streams, net.count
    rel = lin(v[:M], "relation_weights").view(M, streams, count, W) * visible[:, None, None, None]
    nw = lin(task, "new_weights").view(streams, count, 2, W)
    if net.node: nw = nw + lin(v[M:], "relation_weights").view(2, streams, count, W).permute(1, 2, 0, 3)
    marks = lin(task, "marks").view(3, W)
    states = []
    for s in range(streams):
        x = torch.zeros(n, W, dtype=D)
        if s == 0: x[int(tasks.heads[l, q])] += marks[0]
        if s == 1 or streams == 1:
            for e in set(hs.tolist()): x[e] += marks[1]
            for e in set(ts.tolist()): x[e] += marks[2]
        for i in range(count):
            k = f"layers.{s}.{i}."
            sums = torch.zeros(n, W, dtype=D)
            for h, r, z in every:
                w = rel[r, s, i] if r < M else nw[s, i, r - M]
                o, f = 1 / fo[h, r], 1 / fi[z, r]
                c = torch.tensor([o, f, math.sqrt(o * f), 1.], dtype=D).repeat_interleave(W // 4)
                sums[z] += c * w * x[h]
            y = x @ sd[k + "from_state"] + torch.asinh(sums) @ sd[k + "from_sums"]
            x = x + torch.relu(torch.nn.functional.layer_norm(y, (W,), sd[k + "gain"], eps=model.EPS))
        states.append(x)
    hidden = torch.relu(lin(torch.cat(states, -1), "of_state") + lin(task, "of_task"))
    return lin(hidden, "last")[:, 0]


def cpu():
    worst = 0
    for seed, (streams, node) in enumerate([(1, False), (2, False), (1, True), (2, True)]):
        torch.manual_seed(seed)
        p, t, refs, tasks = small(seed)
        g = Loaded(p, "cpu")
        net = Trail3(width=8, layers=3, relation_layers=2, streams=streams, node=node).double()
        g.sizes, g.together, g.flags = g.sizes.double(), g.together.double(), g.flags.double()
        for o in (g.edges.by_tail, g.edges.by_head, g.edges.by_relation): o.fan_out, o.fan_in = o.fan_out.double(), o.fan_in.double()
        d = model.Tasks(*(x.double() if x.is_floating_point() else x for x in tasks))
        with torch.no_grad():
            fast = net(g, d, torch.float64)
        for l in range(2):
            for q in range(2):
                slow = literal(net, p, t, refs, tasks, l, q)
                err = float((fast[l, q] - slow).norm() / slow.norm())
                worst = max(worst, err)
        print("literal check: streams", streams, "node", node, "relative error", f"{worst:.1e}", flush=True)
        assert worst < 1e-4, worst
    return worst


def gpu():
    for width, streams, node in ((32, 1, False), (32, 2, True), (64, 2, True)):
        torch.manual_seed(0)
        p, t, refs, tasks = small(5, n=300, R=6, m=3000, K=200, S=32, P=256, L=4, Q=8)
        g = Loaded(p, "cuda")
        net = Trail3(width=width, streams=streams, node=node).cuda()
        tasks = model.Tasks(*(x.cuda() for x in tasks))
        results = []
        for use, dtype in ((True, torch.float32), (False, torch.float32), (True, torch.bfloat16)):
            model._kernels["use"] = use
            net.zero_grad()
            s = net(g, tasks, dtype)
            torch.nn.functional.cross_entropy(s.flatten(0, 1), torch.arange(32, device="cuda")).backward()
            results.append((s.detach(), torch.cat([q.grad.flatten() for q in net.parameters()])))
        model._kernels["use"] = True
        for i, name in ((0, "fp32 kernels"), (2, "bf16 kernels")):
            e = [float((x - y).norm() / y.norm()) for x, y in zip(results[i], results[1])]
            print(f"gpu check width {width} streams {streams} node {node}: {name} scores {e[0]:.1e} gradients {e[1]:.1e}", flush=True)
            assert e[0] < (1e-3 if i == 0 else .2) and not math.isnan(e[1])


if __name__ == "__main__":
    cpu()
    if torch.cuda.is_available(): gpu()
