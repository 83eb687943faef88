"""Packs all data into .trials/data/*.xz (run here, once): triples as ids, name edges, word pieces of names, tasks."""
import csv, gzip, io, json, lzma, re, sys, unicodedata
from collections import defaultdict
from pathlib import Path
import numpy as np
S, OUT = Path(sys.argv[1]), Path(sys.argv[2])  # folder of the public graphs, folder for the packed ones
VOCAB = {t: i for i, t in enumerate(json.load(open("/tmp/vocab.json")))}
_pieces = {}

def pieces(word):
    if word not in _pieces:
        got, at = [], 0
        while at < len(word) and len(word) < 60:
            for end in range(len(word), at, -1):
                t = ("##" if at else "") + word[at:end]
                if t in VOCAB: got.append(VOCAB[t]); at = end; break
            else: got = []; break
        _pieces[word] = got
    return _pieces[word]

def words(name):
    text = unicodedata.normalize("NFD", name.lower())
    text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    return re.sub(r"[\W_]+", " ", text).split()

def name_parts(names):
    """names: list of str or None. same (n,2), contain (n,2), token ids and their offsets."""
    n = len(names); w = [words(x) if x else [] for x in names]
    norm = [" ".join(x) for x in w]
    by = defaultdict(list)
    for e, x in enumerate(norm):
        if x: by[x].append(e)
    same = [(g[i], g[j]) for g in by.values() if 2 <= len(g) <= 40 for i in range(len(g)) for j in range(i + 1, len(g))]
    found, count = [], defaultdict(int)
    for x, group in by.items():
        ws = x.split()
        if not 2 <= len(ws) <= 16: continue
        spans = []
        for length in range(len(ws) - 1, 0, -1):
            for at in range(len(ws) - length + 1):
                if any(a <= at and at + length <= b for a, b in spans): continue
                sub = " ".join(ws[at:at + length])
                if len(sub) >= 3 and any(len(v) >= 3 for v in ws[at:at + length]) and not sub.isdigit() and sub in by:
                    spans.append((at, at + length)); found.append((x, sub)); count[sub] += 1
    contain = [(e, f) for x, sub in set(found) if count[sub] <= 60 for e in by[x][:5] for f in by[sub][:5] if e != f]
    tokens = [[p for v in x for p in pieces(v)][:16] for x in w]
    off = np.append(0, np.cumsum([len(t) for t in tokens])).astype(np.int32)
    flat = np.array([p for t in tokens for p in t], np.uint16)
    pair = lambda x: np.array(sorted(x), np.int32).reshape(-1, 2)
    return dict(same=pair(same), contain=pair(contain), tokens=flat, lengths=np.diff(off).astype(np.uint8))

def save(name, **arrays):
    buf = io.BytesIO(); np.savez(buf, **arrays)
    data = lzma.compress(buf.getvalue(), preset=4)
    (OUT / f"{name}.xz").write_bytes(data)
    print(name, len(data) // 1024, "kB", [(k, v.shape) for k, v in arrays.items()][:9], flush=True)

def triples_of(t, compress=True):
    t = np.unique(np.asarray(t, np.int32)[:, [1, 0, 2]], axis=0)
    if compress: t[:, 0] = np.unique(t[:, 0], return_inverse=True)[1]
    r, h, x = t.T
    return dict(counts=np.bincount(r).astype(np.int32), dh=np.diff(h, prepend=0).astype(np.int32), t=x.astype(np.int32).view(np.uint8).reshape(-1, 4).T.copy())

def ids_of(rows, names):
    ents = sorted({x for h, _, t in rows for x in (h, t)}); rels = sorted({r for _, r, _ in rows})
    e, r = {x: i for i, x in enumerate(ents)}, {x: i for i, x in enumerate(rels)}
    t = np.array([(e[a], r[b], e[c]) for a, b, c in rows], np.int32)
    return t, ents, rels, e, r

def graphs():
    done = []
    for row in csv.DictReader(open(S / "graphs/INDEX.tsv"), delimiter="\t"):
        n = row["name"]
        if not (OUT / f"{n}.xz").exists():
            rows = [l.rstrip("\n").split("\t") for l in lzma.open(S / f"graphs/{n}.tsv.xz", "rt", encoding="utf8")]
            t, ents, *_ = ids_of([r[:3] for r in rows], None)
            f = S / f"graphs/{n}.names.tsv.xz"
            names = dict(l.rstrip("\n").split("\t")[:2] for l in lzma.open(f, "rt", encoding="utf8")) if f.exists() else {}
            save(n, n=np.array(len(ents)), **triples_of(t), **(name_parts([names.get(x) for x in ents]) if names else {}))
        done.append(dict(name=n, use=row["use"], domain=row["domain"], triples=int(row["triples"])))
    json.dump(done, open(OUT / "index.json", "w"))

def tasks_of(tasks, graph):
    from fewlink.data.candidates import candidates_of
    out, names = {}, []
    for i, t in enumerate(tasks):
        c = candidates_of("paper", t, t.pairs[:1], graph)
        out |= {f"pairs{i}": t.pairs, f"known{i}": t.known, f"range{i}": t.range.astype(np.int32), f"paper{i}": c.ids.astype(np.int32), f"counted{i}": c.counted}
        names.append(t.name)
    return dict(out, names=np.array(names))

def kinds(graph):
    if graph.types is None: return {}
    n = len(graph.entities); off = graph.types.offsets; one = np.full(n, -1, np.int32)
    has = np.diff(off) > 0; one[has] = graph.types.types[off[:-1][has]] if hasattr(graph.types, "types") else -1
    return dict(kinds=one)

def benchmark_graph(name, graph, triples, names):
    save(name, n=np.array(len(graph.entities)), **triples_of(triples), **names, **kinds(graph))

def nell():
    from fewlink.data.nell_layout import read_layout
    from fewlink.data.training_graph import fold_benchmark, known_graph
    b, _ = read_layout(S / "nell-one", "nell-one")
    g = b.graph
    plain = [re.sub(r"(?<=[a-z])\d{3}$", "", g.labels[e].split(" : ", 1)[-1]) for e in range(len(g.entities))]
    names = name_parts(plain)
    print("nell names", plain[:8], {k: v.shape for k, v in names.items()})
    benchmark_graph("nell-known", g, known_graph(b).triples(), names)
    save("tasks-nell-test", **tasks_of(b.split("test"), known_graph(b)))
    folds = [fold_benchmark(b, i) for i in (0, 1)]
    gone = [np.setdiff1d(g.triples()[:, 1], f.graph.triples()[:, 1]) for f in folds]
    for i, f in enumerate(folds):
        benchmark_graph(f"nell-fold{i}", g, known_graph(f).triples(), names)
        save(f"tasks-nell-fold{i}", **tasks_of(f.split("dev"), known_graph(f)))
    t = g.triples(); t = t[~np.isin(t[:, 1], np.concatenate(gone))]
    benchmark_graph("nell-both", g, t, names)
    print("hidden", [len(x) for x in gone], "fold tasks", [len(f.split("dev")) for f in folds])

def few():
    import tempfile
    from fewlink.graph import compile_graph
    from fewlink.data.carving import CarveSettings, carve
    from fewlink.data.catalogue import open_benchmark
    from fewlink.data.training_graph import known_graph
    with tempfile.TemporaryDirectory() as d:
        files = []
        for part in ("train", "valid", "test"):
            p = Path(d) / f"{part}.tsv"; p.write_bytes(gzip.open(S / f"fb15k-237/{part}.tsv.gz").read()); files.append(p)
        fb, _ = carve(compile_graph(files), "fb15k-237-few", CarveSettings())
    text = dict(l.rstrip("\n").split("\t")[:2] for l in open(S / "fb15k-237/entity2text.txt", encoding="utf8"))
    g = fb.graph
    benchmark_graph("fb-few", g, known_graph(fb).triples(), name_parts([text.get(g.entities[e]) for e in range(len(g.entities))]))
    seen = {tuple(l.rstrip("\n").split("\t")[:3]) for l in gzip.open(S / "fb15k-237/train.tsv.gz", "rt")}
    kg = known_graph(fb); kt = kg.triples(); en = [kg.entities[e] for e in range(len(kg.entities))]; rn = [kg.relations[r] for r in range(len(kg.relations))]
    keep = np.array([(en[a], rn[b], en[c]) in seen for a, b, c in kt.tolist()])
    print("fb-both keeps", keep.mean())
    benchmark_graph("fb-both", g, kt[keep], name_parts([text.get(x) for x in en]))
    save("tasks-fb-few-test", **tasks_of(fb.split("test"), known_graph(fb)))
    at = open_benchmark("attack-few"); g = at.graph
    benchmark_graph("attack-few", g, known_graph(at).triples(), name_parts([g.name(e) for e in range(len(g.entities))]))
    save("tasks-attack-few-test", **tasks_of(at.split("test"), known_graph(at)))

def ordinary(name, read, text):
    rows = {p: [l.rstrip("\n").split("\t")[:3] for l in read(p)] for p in ("train", "valid", "test")}
    every = [r for p in rows.values() for r in p]
    t, ents, rels, e, r = ids_of(every, None)
    n = [len(x) for x in rows.values()]
    tr, va, te = np.split(t, np.cumsum(n)[:2])
    save(name, n=np.array(len(ents)), **triples_of(tr, compress=False), test=te, filter=np.concatenate([va, te]), **(name_parts([text.get(x) for x in ents]) if text else {}))

if __name__ == "__main__":
    what = sys.argv[1:]
    if "nell" in what: nell()
    if "few" in what: few()
    if "ordinary" in what:
        ordinary("codex-s", lambda p: open(S / f"codex-s/{p}.tsv"), {})
        ordinary("fb15k-237", lambda p: gzip.open(S / f"fb15k-237/{p}.tsv.gz", "rt"), dict(l.rstrip("\n").split("\t")[:2] for l in open(S / "fb15k-237/entity2text.txt", encoding="utf8")))
    if "graphs" in what: graphs()
