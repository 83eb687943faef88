"""Fit the sizes of answer sets that come with the shipped weights of TRAIL, and measure their coverage.

python benchmarks/answer_sets.py WEIGHTS nell-one fb15k-237-few codex-s-few attack-few

WEIGHTS is the folder of benchmarks/calibration.py with its samples BENCH.npz and weights without-BENCH.safetensors: run
that first. The same relations, never those of test, are asked about by the same draws of references, now with the rank
of the best right answer among all candidates; these ranks are kept as WEIGHTS/ranks-BENCH.npz, and those that exist are
used. Coverage is the share of questions whose set has a right answer, each relation counting the same: with the
relation left out (tenths of all relations), and with its whole graph left out. Abstention: the precision of first
answers if the half of the questions with the highest probabilities is answered. Writes the sizes into
src/fewlink/builtin/trail.calibration.json, and records/answer_sets.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration import BUILTIN, SHOTS, hidden_relations
from fewlink.core.seeds import generator
from fewlink.data import Benchmark, open_benchmark
from fewlink.data.candidates import open_candidates
from fewlink.linker.answer_sets import LEVELS, Ranks, SetSize, fit_set_size, weighted_quantile
from fewlink.linker.calibration import BUILT_IN, Sample, fit, open_calibration
from fewlink.linker.query import References
from fewlink.linker.ranking import rank_tails
from fewlink.linker.trust import head_fans, measure_trust, row_features
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import read_weights
from fewlink.scorers import Question
from measure import print_table, write_record

FOLDS = 10
ANSWERED = 0.5


def ranks_of(benchmark: Benchmark, weights: Path, relations: int, draws: int, queries: int) -> dict[str, np.ndarray]:
    """Of each question: features of the first answer, the number of candidates, the best right rank, the relation."""
    network = read_weights(weights.read_bytes(), weights.name).network()
    features, candidates, best, groups = [], [], [], []
    scorer: TrailScorer | None = None
    every = list(hidden_relations(benchmark, relations))
    for number, (graph, task) in enumerate(every):
        if scorer is None or scorer.source is not graph:
            scorer = TrailScorer("trail", network, ReadGraph.of(graph))
        first = int(generator(3, "shots", task.name).integers(len(SHOTS)))
        for draw in range(draws):
            shots = SHOTS[(first + 2 * draw) % len(SHOTS)]
            pairs = generator(7, "questions", task.name, draw).permutation(task.pairs).astype(np.int32)
            heads = np.array(list(dict.fromkeys(pairs[shots:, 0].tolist()))[:queries], np.int32)
            if not len(heads):
                continue
            references = References(tuple((head, tail) for head, tail in pairs[:shots].tolist()))
            trust, fans = measure_trust(scorer, graph, references), head_fans(graph)
            question = Question("", references.ids, heads, open_candidates(graph, references.ids))
            for part in rank_tails(scorer, question, len(question.candidates), references.known_tails):
                if len(part):
                    right = part.ranks[np.isin(part.tails, task.known_tails[int(part.heads[0])])]
                    features.append(row_features(part.take(np.array([0])), fans[part.heads[:1]], trust)[0])
                    candidates.append(len(part))
                    best.append(right.min() if len(right) else np.inf)
                    groups.append(number)
        print(f"{benchmark.name}  {number + 1} of {len(every)} relations", flush=True)
    parts = {"features": features, "candidates": candidates, "best": best, "groups": groups}
    return {name: np.array(part) for name, part in parts.items()}


def measured(ranks: Ranks, sizes: np.ndarray) -> dict[str, float]:
    """Coverage and sizes of sets (n,)."""
    counts = ranks.counts
    return {
        "coverage": round(float(np.average(ranks.best <= sizes, weights=counts)), 3),
        "mean size": round(float(np.average(sizes, weights=counts)), 1),
        "median size": weighted_quantile(sizes.astype(float), counts, 0.5),
        "up to ten": round(float(np.average(sizes <= 10, weights=counts)), 3),
    }


def left_out_sizes(by_fold: list[Ranks], folds: np.ndarray, level: float) -> np.ndarray:
    """The sizes (n,) with each fold left out; `by_fold` has the probabilities that are used for it."""
    sizes = np.zeros(len(folds), np.int64)
    for fold, ranks in enumerate(by_fold):
        of = folds == fold
        sizes[of] = fit_set_size(ranks.take(~of), level).size(ranks.first[of], ranks.candidates[of])
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--relations", type=int, default=24)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--out", type=Path, default=BUILTIN / BUILT_IN)
    options = parser.parse_args()
    parts: list[dict[str, np.ndarray]] = []
    samples, of_sample = [], []
    names = [Path(given).name for given in options.benchmarks]
    for number, (given, name) in enumerate(zip(options.benchmarks, names, strict=True)):
        place = options.weights / f"ranks-{name}.npz"
        if not place.exists():
            weights = options.weights / f"without-{name}.safetensors"
            made = ranks_of(open_benchmark(given), weights, options.relations, options.draws, options.queries)
            np.savez_compressed(place, **made)
        parts.append({**np.load(place)})
        content = np.load(options.weights / f"{name}.npz")
        sample = Sample(*(content[field] for field in Sample._fields))
        samples.append(sample._replace(groups=sample.groups + 1000 * number))
        of_sample.append(np.full(len(sample.right), number))
    sample, sample_graph = Sample.joined(samples), np.concatenate(of_sample)
    graph = np.concatenate([np.full(len(part["best"]), number) for number, part in enumerate(parts)])
    features = np.concatenate([part["features"] for part in parts])
    groups = np.concatenate([part["groups"] + 1000 * number for number, part in enumerate(parts)])
    candidates, best = (np.concatenate([part[name] for part in parts]) for name in ("candidates", "best"))

    def ranks_by(weights: np.ndarray) -> Ranks:
        return Ranks(1 / (1 + np.exp(-(features @ weights))), candidates, best, groups)

    whole = ranks_by(fit(sample))
    by_graph = [ranks_by(fit(sample.take(sample_graph != number))) for number in range(len(parts))]
    folds = np.unique(groups, return_inverse=True)[1] % FOLDS
    rows: list[dict[str, Any]] = []
    shipped: list[SetSize] = []
    for level in LEVELS:
        ways = {
            "relation": left_out_sizes([whole] * FOLDS, folds, level),
            "graph": left_out_sizes(by_graph, graph, level),
        }
        for left_out, sizes in ways.items():
            rows.append({"level": level, "left out": left_out, "graph": "all", **measured(whole, sizes)})
            for number, name in enumerate(names):
                of = graph == number
                found = measured(whole.take(of), sizes[of])
                rows.append({"level": level, "left out": left_out, "graph": name, **found})
        known = measured(whole, ways["graph"])
        facts = {"coverage": known["coverage"], "mean": known["mean size"], "median": known["median size"]}
        shipped.append(replace(fit_set_size(whole, level), **facts))
    print_table(rows)
    first = np.zeros(len(graph))
    for number, ranks in enumerate(by_graph):
        first[graph == number] = ranks.first[graph == number]
    order, counts = np.argsort(-first, kind="stable"), whole.counts
    answered = order[np.cumsum(counts[order]) <= ANSWERED * counts.sum()]
    abstention = {
        "answered": ANSWERED,
        "precision": round(float(np.average(best[answered] < 2, weights=counts[answered])), 3),
        "precision if all are answered": round(float(np.average(best < 2, weights=counts)), 3),
        "a right one in the first ten": round(float(np.average(best[answered] <= 10, weights=counts[answered])), 3),
        "the same if all are answered": round(float(np.average(best <= 10, weights=counts)), 3),
    }
    print(abstention)
    replace(open_calibration(options.out), sets=tuple(shipped)).write(options.out)
    about = {"questions": len(best), "relations": len(np.unique(groups))}
    write_record("answer_sets", {**about, "measured": rows, "abstention, the graph left out": abstention})


if __name__ == "__main__":
    main()
