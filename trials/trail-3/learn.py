"""Learning works: a small synthetic graph (c = a then b, d symmetric, e inverse of a), CPU, two minutes."""
import sys, time, numpy as np, torch
import data, train
from episodes import Episodes
rng = np.random.default_rng(0); n = 80
a = [(i, 0, int(rng.integers(0, 40)) ) for i in range(n)]; b = [(i, 1, int(rng.integers(40, 60))) for i in range(40)]
m = dict((h, t) for h, _, t in b)
c = [(h, 2, m[t]) for h, _, t in a]; d = [(i, 3, j) for i, j in ((int(x), int(y)) for x, y in rng.integers(0, n, (60, 2)))]; d += [(j, 3, i) for i, _, j in d]
e = [(t, 4, h) for h, _, t in a]
t = np.unique(np.array(a + b + c + d + e, np.int32), axis=0)
p = data.prepare_triples("syn", n, 5, t[:, 0], t[:, 1], t[:, 2]); p["vectors"] = None
cfg = {**train.DEFAULTS, "width": 16, "layers": 3, "tasks": 4, "queries": 4, "candidates": 64, "bands": [16, 64], "band_shares": [.5, .5], "lr": 5e-3}
for streams, node in ((1, False), (2, True)):
    torch.manual_seed(0)
    c2 = {**cfg, "streams": streams, "node": node, "pool": "none", "named": {"syn": 1.0}, "steps": int(sys.argv[1])}
    losses = []
    L = train.Learner(c2, {("syn", False): p}, "cpu", print)
    old = L.move
    L.move = lambda g, x: (losses.append(old(g, x)), losses[-1])[1]
    t0 = time.time(); f = L.stage(0, c2, 1e9, lambda: None)
    k = len(losses) // 5
    print(streams, node, "loss by fifths", [round(float(torch.stack(losses[i * k:(i + 1) * k]).mean()), 3) for i in range(5)], f"{time.time() - t0:.0f} s", f["bands"])
