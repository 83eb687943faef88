"""How far probabilities are off on undecided pairs, with and without the adjustment by a project's own decisions.

    python benchmarks/recalibration.py [BENCH …] [--split dev] [--fold 0] [--relations 12] [--draws 3]

The curator of benchmarks/curation.py decides 30 pairs, the best one each time, corrected by all decisions so far; the
three references stay. The model's probability of each pair, as it was at that moment, is kept with its decision. Then
the ten best tails of each head of the pool are taken, without those decided: their probabilities are compared with the
truth as they are, and adjusted by the 30 decisions. Log loss and Brier score count all these pairs; `error` is |mean
probability − share of right ones| of the best ten, and of the first tails, all as means over relations and draws.
`--fold N` takes known relations that are held out of the graph, `--hidden NAME` one of them. `--priors` compares
strengths of the prior on what was collected; those in use were chosen on fold 1. The record keeps other benchmarks.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curation import DEEP, SHOTS, STEPS, Pool
from fewlink.core.seeds import generator
from fewlink.curation.learning import TRAIL_SCALE, learn
from fewlink.data import Benchmark, Task, open_benchmark
from fewlink.data.benchmark import sorted_pairs
from fewlink.data.candidates import likely_tails
from fewlink.data.folds import fold_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.linker import Linker
from fewlink.linker import adjustment as adjusting
from fewlink.linker.query import Query, References
from fewlink.linker.ranking import RankedPairs, rank_head
from fewlink.linker.trust import head_fans
from measure import print_table, read_record, write_record

GONE = -1e9  # what moves a decided pair out of the competition
TOP = 10  # tails of each head that are compared
STRENGTHS, USUAL = (1.0, 2.5, 5.0, 10.0, 25.0), (0.0, -0.5, -1.0)  # of the prior, to compare


def collect(linker: Linker, task: Task, draw: int) -> dict[str, Any]:
    """Decided pairs, and undecided ones, each with two probabilities, before and after corrections by decisions, and
    whether it is true; whether the head had a tail; of undecided ones also whether it is the head's first."""
    pool, graph = Pool.of(linker, task, draw), known_graph(linker.benchmark)
    known = set(map(tuple, task.known.tolist()))
    references = References(tuple(map(tuple, pool.references.tolist())))
    trust, parts = linker.trust(Query(references)), []
    for head, scores in zip(pool.heads.tolist(), pool.scores(pool.references), strict=True):
        keep = pool.candidates != head
        parts.append(
            rank_head(head, pool.candidates[keep], np.asarray(scores)[keep], references.known_tails(head), DEEP, False)
        )
    ranked = RankedPairs.joined(parts)
    pairs, fans = np.stack([ranked.heads, ranked.tails], 1), head_fans(linker.graph)[ranked.heads]
    right = np.array([pair in known for pair in map(tuple, pairs.tolist())])
    assert linker.calibration is not None
    plain = linker.calibration.probabilities(ranked, fans, trust)
    now, current, done = plain, ranked, np.zeros(len(pairs), bool)
    decided: list[tuple[float, float, bool]] = []
    for _ in range(STEPS):
        if done.all():
            break
        at = int(np.where(done, -np.inf, current.scores).argmax())
        has = np.isin(pairs[at, 0], np.concatenate([pool.references, pairs[done & right]])[:, 0])
        decided.append((float(plain[at]), float(now[at]), bool(right[at]), bool(has)))
        done[at] = True
        true = np.concatenate([pool.references, pairs[done & right]])
        moves = TRAIL_SCALE * learn(graph, true, pairs[done & ~right]).logits(pairs)
        current = ranked.moved(np.where(done, GONE, moves))
        now = linker.calibration.probabilities(current, fans, trust)
    left = ~done & (current.ranks <= TOP)
    has = np.isin(pairs[left, 0], np.concatenate([pool.references, pairs[done & right]])[:, 0])
    rows = np.stack([plain[left], now[left], right[left], current.ranks[left] < 2, has], 1).round(5)
    note = linker.calibration.note(trust, float(plain[ranked.ranks < 2].mean()))
    return {"relation": task.name, "draw": draw, "shown": note.shown, "decided": decided, "left": rows.tolist()}


def losses(probabilities: np.ndarray, right: np.ndarray, first: np.ndarray) -> dict[str, float]:
    clipped = np.clip(probabilities, 1e-4, 1 - 1e-4)
    found = {
        "log loss": float(-(np.log(clipped[right]).sum() + np.log(1 - clipped[~right]).sum()) / len(right)),
        "Brier": float(((probabilities - right) ** 2).mean()),
        "error": abs(float(probabilities.mean() - right.mean())),
    }
    if first.any():
        found["error of first"] = abs(float(probabilities[first].mean() - right[first].mean()))
    return found


def compare(samples: Sequence[dict[str, Any]], which: int = 1) -> dict[str, dict[str, float]]:
    """The mean losses before and after; `which` probability: 0 before corrections by decisions, 1 after them."""
    both: dict[str, list[dict[str, float]]] = {"as shipped": [], "adjusted": []}
    for sample in samples:
        left = np.array(sample["left"])
        if not len(left):
            continue
        base, right, first = left[:, which], left[:, 2] > 0, left[:, 3] > 0
        change = adjusting.adjustment([(row[which], row[2], row[3]) for row in sample["decided"]])
        both["as shipped"].append(losses(base, right, first))
        both["adjusted"].append(losses(base if change is None else change(base, left[:, 4]), right, first))
    return {
        name: {key: float(np.mean([row[key] for row in rows if key in row])) for key in rows[0]}
        for name, rows in both.items()
    }


def tune(samples: Sequence[dict[str, Any]]) -> None:
    """The ten best strengths of the prior by log loss, and no adjustment, as means over graphs."""
    graphs = dict.fromkeys(sample["graph"] for sample in samples)
    by_graph = [[sample for sample in samples if sample["graph"] == graph] for graph in graphs]

    def mean(which: str) -> dict[str, float]:
        found = [compare(of)[which] for of in by_graph]
        return {key: float(np.mean([row[key] for row in found])) for key in found[0]}

    rows = []
    for shift, more, usual in itertools.product(STRENGTHS, STRENGTHS, USUAL):
        adjusting.PRIOR_STRENGTHS, adjusting.PRIOR_MORE = (shift, more), usual
        rows.append({"shift": shift, "more": more, "usual": usual, **mean("adjusted")})
    rows = sorted(rows, key=lambda row: row["log loss"])[:10]
    print_table([*rows, {"shift": "none", "more": "none", "usual": 0.0, **mean("as shipped")}])


def hidden(benchmark: Benchmark, name: str) -> Benchmark:
    """A benchmark whose dev relation is a known one, held out of the graph."""
    known = known_graph(benchmark)
    number = known.relations.id(name)
    graph, triples = known.without(np.array([number])), known.triples()
    pairs = triples[triples[:, 1] == number][:, [0, 2]]
    pairs = generator(0, "hidden", name).permutation(pairs[(graph.degrees[pairs] > 0).all(1)])
    task = Task(name, pairs, sorted_pairs(pairs), likely_tails(graph, pairs[:, 1]))
    return Benchmark(f"{benchmark.name} without {name}", graph, {"train": [], "dev": [task], "test": []})


def measure(benchmark: Benchmark, tasks: Sequence[Task], draws: int) -> list[dict[str, Any]]:
    linker, samples = Linker.shipped(benchmark), []
    for task in tasks:
        samples += [collect(linker, task, draw) for draw in range(1, draws + 1)]
        print(benchmark.name, task.name, [sum(row[2] for row in s["decided"]) for s in samples[-draws:]], flush=True)
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", default=[], metavar="BENCH")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--fold", type=int, help="known relations held out of the graph, instead of a split")
    parser.add_argument("--hidden", metavar="NAME", help="a known relation, held out of the graph, instead of a split")
    parser.add_argument("--relations", type=int, default=12, help="relations of each benchmark at most")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--samples", type=Path, help="file to keep the samples in; those it has are used")
    parser.add_argument("--priors", action="store_true")
    parser.add_argument("--no-record", action="store_true")
    given = parser.parse_args()
    samples: list[dict[str, Any]] = []
    if given.samples and given.samples.exists():
        samples = json.loads(given.samples.read_text("utf-8"))
    for name in given.benches:
        benchmark, split = open_benchmark(name), given.split
        part = split if given.fold is None else f"fold {given.fold}"
        if given.fold is not None:
            benchmark, split = fold_benchmark(benchmark, given.fold), "dev"
        if given.hidden is not None:
            benchmark, split, part = hidden(benchmark, given.hidden), "dev", given.hidden
        tasks = [task for task in benchmark.split(split) if len(task.pairs) > SHOTS]
        spread = np.linspace(0, len(tasks) - 1, min(given.relations, len(tasks))).astype(int)
        facts = {"graph": Path(name).name, "relations of": part}
        samples += [{**facts, **row} for row in measure(benchmark, [tasks[at] for at in spread], given.draws)]
    if given.samples:
        given.samples.write_text(json.dumps(samples), "utf-8")
    if given.priors:
        tune(samples)
        return
    rows = []
    for graph, part in dict.fromkeys((row["graph"], row["relations of"]) for row in samples):
        own = [row for row in samples if (row["graph"], row["relations of"]) == (graph, part)]
        for name, found in compare(own).items():
            facts = {"graph": graph, "relations of": part, "relations": len({row["relation"] for row in own})}
            rows.append({**facts, "probabilities": name, **found})
    print_table(rows)
    if not given.no_record:
        new = {(row["graph"], row["relations of"]) for row in rows}
        before = (read_record("recalibration") or {}).get("measured", [])
        kept = [row for row in before if (row["graph"], row["relations of"]) not in new]
        write_record(
            "recalibration", {"shots": SHOTS, "decisions": STEPS, "draws": given.draws, "measured": [*kept, *rows]}
        )


if __name__ == "__main__":
    main()
