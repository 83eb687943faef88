"""Fit the calibration that comes with the built-in weights of TRAIL, on graphs that the weights never saw.

    python benchmarks/calibration.py GRAPHS [--weights FILE] [--device cuda]

GRAPHS is a folder of graphs with INDEX.tsv; those that it marks `never train` are asked about. Relations of each graph
are hidden in turn and asked about, with 1 to all of their pairs as references, with names and without. The references
are drawn at random (`random`); or nearly all have the most frequent tail (`one tail`); or they are the right pairs that
the model itself ranks best, which a curator accepts first (`best first`). The candidates are `open`; heads with a
single candidate are left out, because users get no percentages there. One pair of each head that is asked about is
never a reference; an answer is right if it is this pair's tail, or another true tail that is not in the references. A
graph's figures come from a calibration fitted on the other graphs.

The answers about each graph are kept in the folder `--answers`, by the weights' checksum, and those that exist are
used: an interrupted call resumes where it stopped. Writes src/fewlink/builtin/trail.calibration.json,
records/calibration.json and records/answer_sets.json. It takes about a quarter of an hour on two idle cores.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewlink.core.progress import duration
from fewlink.core.seeds import generator
from fewlink.fitting.calibrating import (
    RIDGE,
    TOP,
    Sample,
    chance,
    cross_fitted,
    expected_error,
    fitted,
    low_trust,
    over_relations,
)
from fewlink.graph import Graph
from fewlink.graph.source import GraphSource
from fewlink.linker.probability import (
    LEVELS,
    LONGEST,
    LOW_TRUST_FOUND,
    Coverage,
    coverage_features,
    fit_logistic,
    head_fans,
    row_features,
)
from fewlink.linker.query import References
from fewlink.linker.ranking import RankedPairs, rank_head, score_heads
from fewlink.linker.trust import Trust, measure_trust
from fewlink.models.contract import Question, Scorer, realistic_rank
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import Shipped, read_weights
from fewlink.tasks.candidates import open_candidates
from fewlink.tasks.catalogue import open_graph
from measure import print_table, write_record

BUILTIN = Path(__file__).resolve().parent.parent / "src" / "fewlink" / "builtin"
SHOTS = (1, 3, 10, 30, 100)
ALL = 0  # shots of a whole relation
RANDOM = "random"
ONE_TAIL = "one tail"
BEST = "best first"
# pairs of a relation that is asked about, and of two thirds of them if the graph has so many
SMALLEST = 20
LARGE = 150
FEWEST_HEADS = 8  # of a relation; one with fewer is asked about in the other direction, or not at all
OF_ONE_TAIL = 0.9  # share of the references that have the most frequent tail
# of BEST: the references that the others are found with, and the pairs that are ranked at least
GIVEN = 3
POOL = 24
TRIPLES = 100_000  # larger graphs get fewer questions
ANSWERED = 0.5  # share of the questions that are answered if the least probable are left unanswered
ROWS = ("tails", "scores", "ranks", "log_softmax", "leads")
SIZES = (1, 2, 3, 5, 7, 10, 14, LONGEST)  # of answer sets, that their probability is fitted to


class Setting(NamedTuple):
    """How the references of a question are chosen, and whether names are read."""

    shots: int
    choice: str
    names: bool


@dataclass(frozen=True)
class Asked:
    """A relation with its references, the heads that were asked about, and their best tails.

    Shapes: `right` and `fans` (n,) of the n ranked pairs; `best` (h,), the rank of the best right tail of each head,
    infinite if it is not a candidate.
    """

    graph: str
    relation: str
    setting: Setting
    trust: Trust
    pairs: RankedPairs
    right: np.ndarray
    fans: np.ndarray
    best: np.ndarray

    @property
    def first(self) -> np.ndarray:
        """Whether each pair is the first of its head (n,)."""
        return np.asarray(np.diff(self.pairs.heads, prepend=-1) != 0)

    def sample(self, group: int) -> Sample:
        rows = len(self.pairs)
        return Sample(
            features=row_features(self.pairs, self.fans, self.trust),
            right=self.right,
            first=self.first,
            groups=np.full(rows, group),
            found=np.full(rows, self.trust.share_found),
            shots=np.full(rows, self.setting.shots),
        )


def hidden_relations(graph: Graph, most: int) -> Iterator[tuple[str, np.ndarray]]:
    """At most so many relations of at least `SMALLEST` pairs, every third one inverse, with their pairs (n, 2)."""
    triples = graph.triples()
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    order = generator(1, "relations", graph.fingerprint).permutation(len(sizes))
    large = order[sizes[order] >= LARGE]
    small = order[(sizes[order] >= SMALLEST) & (sizes[order] < LARGE)]
    large = large[: max(most - len(small), most - most // 3)]
    for place, relation in enumerate([*large, *small[: most - len(large)]]):
        pairs = np.unique(triples[triples[:, 1] == relation][:, [0, 2]], axis=0)
        heads, tails = (len(np.unique(pairs[:, end])) for end in (0, 1))
        if max(heads, tails) >= FEWEST_HEADS:
            inverse = tails >= FEWEST_HEADS and (place % 3 == 2 or heads < FEWEST_HEADS)
            yield graph.relations[relation], pairs[:, ::-1] if inverse else pairs


def settings_of(place: int, pairs: int, names: bool) -> list[Setting]:
    """All numbers of random references, 1 and 100 in turn, and a skewed set; names are read in two of three."""
    usable = [shots for shots in SHOTS if shots < pairs / 2]
    ends = [shots for shots in (SHOTS[0], SHOTS[-1]) if shots in usable]
    several = [shots for shots in usable if shots >= 10] or usable[-1:]
    chosen = [(shots, RANDOM) for shots in (ALL, *SHOTS[1:-1], ends[place % len(ends)]) if shots in (ALL, *usable)]
    chosen.append((several[place // 2 % len(several)], BEST if place % 2 else ONE_TAIL))
    return [Setting(*each, names and (place + at) % 3 != 0) for at, each in enumerate(chosen)]


def choose(scorer: Scorer, graph: Graph, pairs: np.ndarray, setting: Setting) -> np.ndarray:
    """The references (K, 2) out of pairs (n, 2) in random order."""
    shots = setting.shots or len(pairs)
    if setting.choice == ONE_TAIL:
        tails, counts = np.unique(pairs[:, 1], return_counts=True)
        same = pairs[:, 1] == tails[counts.argmax()]
        own = pairs[same][: max(1, round(OF_ONE_TAIL * shots))]
        return np.concatenate([own, pairs[~same][: shots - len(own)]])
    if setting.choice == BEST and shots > GIVEN:
        given = pairs[:GIVEN]
        pool = pairs[GIVEN : GIVEN + max(POOL, shots)]
        question = Question("", given, np.unique(pool[:, 0]), open_candidates(graph, given))
        shares = np.full(len(pool), -np.inf)
        for at, scores in score_heads(scorer, question):
            for place in np.flatnonzero(pool[:, 0] == question.heads[at]):
                own = scores[question.candidates == pool[place, 1]]
                shares[place] = own[0] - np.logaddexp.reduce(scores.astype(float)) if len(own) else -np.inf
        return np.concatenate([given, pool[np.argsort(-shares, kind="stable")[: shots - GIVEN]]])
    return pairs[:shots]


def ask(scorer: Scorer, graph: Graph, name: str, pairs: np.ndarray, setting: Setting, most: int) -> Asked:
    """Ask for the tails of at most so many heads of a relation with these pairs (n, 2), which the graph lacks."""
    pairs = generator(7, "pairs", graph.fingerprint, name, str(setting)).permutation(pairs).astype(np.int32)
    asked = np.sort(np.unique(pairs[:, 0], return_index=True)[1])[: min(most, len(pairs) // 2)]  # one pair of each head
    chosen = choose(scorer, graph, np.delete(pairs, asked, axis=0), setting)
    references = References(tuple((head, tail) for head, tail in chosen.tolist()))
    trust = replace(measure_trust(scorer, graph, references), whole=setting.shots == ALL)
    question = Question("", references.ids, pairs[asked, 0], open_candidates(graph, references.ids))
    parts = []
    right = []
    best = []
    for at, scores in score_heads(scorer, question):
        head = int(question.heads[at])
        known = references.known_tails(head)
        missing = np.setdiff1d(pairs[pairs[:, 0] == head, 1], known)
        part = rank_head(head, question.candidates, scores, known, TOP, False)
        if not len(part) or part.alone.any():
            continue
        parts.append(part)
        right.append(np.isin(parts[-1].tails, missing))
        own = scores[np.isin(question.candidates, missing)]
        rivals = scores[~np.isin(question.candidates, known)]
        highest = own.max() if len(own) else np.inf
        rank = realistic_rank((rivals > highest).sum(), (rivals == highest).sum() - 1)
        best.append(float(rank) if len(own) else np.inf)
    ranked = RankedPairs.joined(parts)
    return Asked(
        "",
        name,
        setting,
        trust,
        ranked,
        np.concatenate([*right, np.zeros(0, bool)]),
        head_fans(graph, ranked.heads),
        np.array(best),
    )


def ask_graph(
    path: Path, weights: Shipped, options: argparse.Namespace, on_share: Callable[[float], None]
) -> list[Asked]:
    """Ask about some relations of a graph; `on_share` is called with the share that is done."""
    names = path.with_name(path.name.replace(".tsv", ".names.tsv"))
    graph = open_graph(GraphSource.of(path, names=names if names.exists() else None)).graph
    share = min(1.0, TRIPLES / graph.triple_count)
    relations = max(3, round(share * options.relations))
    heads = max(8, round(share * options.heads))
    network = weights.network().to(options.device)
    scorer = TrailScorer("trail", network, ReadGraph.of(graph).to(options.device))
    found = []
    hidden = list(hidden_relations(graph, relations))
    for place, (name, pairs) in enumerate(hidden):
        rest = graph.without(np.array([graph.relations.id(name)]))
        with_names = scorer.without(name)
        without = with_names.without_names()
        settings = settings_of(place, len(pairs), with_names.graph.reads_names)
        for at, setting in enumerate(settings):
            answers = ask(with_names if setting.names else without, rest, name, pairs, setting, heads)
            if len(answers.pairs):
                found.append(replace(answers, graph=path.name.partition(".")[0]))
            on_share((place + (at + 1) / len(settings)) / len(hidden))
    return found


def save(path: Path, every: list[Asked]) -> None:
    """Write answers as one file."""
    facts = [[each.relation, each.setting, asdict(each.trust), len(each.pairs), len(each.best)] for each in every]
    columns = {name: np.concatenate([getattr(each.pairs, name) for each in every]) for name in ("heads", *ROWS)}
    own = {name: np.concatenate([getattr(each, name) for each in every]) for name in ("right", "fans", "best")}
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        arrays: dict[str, Any] = {"facts": np.array(json.dumps(facts)), **columns, **own}
        np.savez_compressed(file, **arrays)
    Path(file.name).replace(path)


def read(path: Path, graph: str) -> list[Asked]:
    """The answers that `save` wrote."""
    content = dict(np.load(path))
    every = []
    row = 0
    head = 0
    for relation, setting, trust, rows, heads in json.loads(str(content["facts"])):
        at = slice(row, row + rows)
        of_head = slice(head, head + heads)
        columns = {name: content[name][at] for name in ("heads", *ROWS)}
        pairs = RankedPairs(**columns, known=np.zeros(rows, bool))
        known = Trust(**{**trust, "ranks": tuple(trust["ranks"])})
        own = content["right"][at], content["fans"][at], content["best"][of_head]
        every.append(Asked(graph, relation, Setting(*setting), known, pairs, *own))
        row = row + rows
        head = head + heads
    return every


def collect(weights: Shipped, options: argparse.Namespace) -> list[Asked]:
    """The answers about all graphs, read or asked for."""
    with (options.graphs / "INDEX.tsv").open(encoding="utf-8") as file:
        index = [row for row in csv.DictReader(file, delimiter="\t") if row["use"] == "never train"]
    index = [row for row in index if not options.only or row["name"] in options.only]
    index.sort(key=lambda row: int(row["triples"]))
    options.answers.mkdir(parents=True, exist_ok=True)
    places = {row["name"]: options.answers / f"{weights.facts['sha256'][:8]}-{row['name']}.npz" for row in index}
    missing = {row["name"]: 20_000 + min(int(row["triples"]), 2 * TRIPLES) for row in index}
    missing = {name: work for name, work in missing.items() if not places[name].exists()}
    start = time.monotonic()
    for number, (name, work) in enumerate(missing.items()):
        before = sum(list(missing.values())[:number])

        def on_share(share: float, name: str = name, work: int = work, before: int = before) -> None:
            part = (before + share * work) / sum(missing.values())
            left = duration((time.monotonic() - start) * (1 - part) / part)
            print(f"\r{name}: {share:.0%}; {part:.0%} of all, about {left} left    ", end="", flush=True)

        save(places[name], ask_graph(options.graphs / f"{name}.tsv.xz", weights, options, on_share))
        print(flush=True)
    return [each for name, place in places.items() for each in read(place, name)]


class Answers(NamedTuple):
    """All answers: those about each set of references, and their rows with the probabilities (n,) of a calibration
    that was fitted on the other graphs; `least` is the threshold of low trust."""

    asked: list[Asked]
    sample: Sample
    probabilities: np.ndarray
    least: float

    def has_low_trust(self, number: int) -> bool:
        """Whether answers to a set of references are marked as of low trust."""
        trust = self.asked[number].trust
        of = (self.sample.groups == number) & self.sample.first
        return not trust.whole and trust.share_found <= LOW_TRUST_FOUND and self.probabilities[of].mean() < self.least

    def figures(self, of: Callable[[Asked], bool], **names: Any) -> list[dict[str, Any]]:
        """A row with the errors of some sets of references, after the `names` of the row; no row if there are none."""
        chosen = [number for number, each in enumerate(self.asked) if of(each)]
        if not chosen:
            return []
        rows = np.isin(self.sample.groups, chosen)
        sample = self.sample.take(rows)
        own = self.probabilities[rows]
        measured = over_relations(own, sample)
        by_chance = chance(own, sample)
        row = {
            **names,
            "sets": len(chosen),
            "questions": int(sample.first.sum()),
            "low trust": round(float(np.mean([self.has_low_trust(number) for number in chosen])), 3),
            "right": round(float(sample.right[sample.first].mean()), 3),
            "mean probability": round(float(own[sample.first].mean()), 3),
            "off": round(measured, 3),
            "by chance": round(by_chance, 3),
            "error": round(float(np.sqrt(max(measured**2 - by_chance**2, 0))), 3),
            "first answers": round(expected_error(own[sample.first], sample.right[sample.first]), 3),
            "first ten": round(expected_error(own, sample.right), 3),
        }
        return [row]

    def row(self, number: int) -> list[Any]:
        """One set of references."""
        each = self.asked[number]
        of = (self.sample.groups == number) & self.sample.first
        setting = [each.trust.shots, each.setting.shots == ALL, each.setting.choice, each.setting.names]
        means = [round(float(values[of].mean()), 3) for values in (self.probabilities, self.sample.right)]
        return [each.graph, each.relation, *setting, int(of.sum()), *means, each.trust.found(), each.trust.tested]


def tables_of(answers: Answers) -> dict[str, list[dict[str, Any]]]:
    """The errors by the number of references, by how they were chosen, by names and by graph."""

    def references(shots: int) -> str:
        return "all of a relation of the graph" if shots == ALL else f"{shots}"

    def of(shots: int, choice: str) -> Callable[[Asked], bool]:
        return lambda each: each.setting[:2] == (shots, choice)

    named = {each.graph for each in answers.asked if each.setting.names}

    def skewed(choice: str) -> Callable[[Asked], bool]:
        return lambda each: each.setting.choice == choice and each.setting.shots >= SHOTS[2]

    def reading(names: bool) -> Callable[[Asked], bool]:
        return lambda each: each.graph in named and each.setting.names == names

    def about(graph: str) -> Callable[[Asked], bool]:
        return lambda each: each.graph == graph

    graphs = dict.fromkeys(each.graph for each in answers.asked)
    joined = itertools.chain.from_iterable
    parts = {
        "all": answers.figures(lambda each: True),
        "by references": joined(answers.figures(of(k, RANDOM), references=references(k)) for k in (*SHOTS, ALL)),
        "by choice": joined(answers.figures(skewed(each), references=each) for each in (RANDOM, ONE_TAIL, BEST)),
        "by names": joined(answers.figures(reading(own), names="read" if own else "not read") for own in (True, False)),
        "by graph": joined(answers.figures(about(graph), graph=graph) for graph in graphs),
    }
    return {name: list(rows) for name, rows in parts.items()}


@dataclass(frozen=True)
class Ranks:
    """Ranks of right answers to n questions about held-out relations.

    Shapes, all (n,): `first`, the probability of the first answer; `best`, the rank of the best right answer, infinite
    if it is not a candidate; `groups`, the relation of each question.
    """

    first: np.ndarray
    best: np.ndarray
    groups: np.ndarray

    def take(self, rows: np.ndarray) -> Ranks:
        return Ranks(self.first[rows], self.best[rows], self.groups[rows])

    @property
    def counts(self) -> np.ndarray:
        """The weight of each question (n,): the questions of a relation add up to 1."""
        _, which = np.unique(self.groups, return_inverse=True)
        return np.asarray(1 / np.bincount(which)[which])


def fit_coverage(ranks: Ranks) -> Coverage:
    """Fit the probability that the first answers contain a right one."""
    features = np.concatenate([coverage_features(ranks.first, size) for size in SIZES])
    right = np.concatenate([ranks.best <= size for size in SIZES])
    a, b, c, d = fit_logistic(features, right, np.tile(ranks.counts / len(SIZES), len(SIZES)), RIDGE).tolist()
    return Coverage((a, b, c, d))


def ranks_of(asked: list[Asked], probabilities: np.ndarray) -> Ranks:
    """The rank of the best right answer to each question."""
    firsts = np.concatenate([each.first for each in asked])
    groups = np.repeat(np.arange(len(asked)), [len(each.best) for each in asked])
    return Ranks(probabilities[firsts], np.concatenate([each.best for each in asked]), groups)


def answer_sets(asked: list[Asked], left_out: np.ndarray) -> tuple[Coverage, dict[str, Any]]:
    """How probably a right answer is among the first ones, and what answer sets cover on graphs that were left out.

    `left_out` (n,) are the probabilities by calibrations without each graph.
    """
    ranks = ranks_of(asked, left_out)
    graphs = np.array([asked[group].graph for group in ranks.groups.tolist()])
    candidates = np.array([asked[group].trust.candidates for group in ranks.groups.tolist()])
    models = {graph: fit_coverage(ranks.take(graphs != graph)) for graph in dict.fromkeys(graphs.tolist())}
    rows: list[dict[str, Any]] = []
    for level in LEVELS:
        sizes = np.zeros(len(graphs), np.int64)
        for graph, model in models.items():
            sizes[graphs == graph] = model.sizes(ranks.first[graphs == graph], level)
        given = (sizes > 0) & (sizes <= candidates)
        for name in ("all", *models):
            of = given & ((graphs == name) | (name == "all"))
            every = ranks.counts[(graphs == name) | (name == "all")]
            counts = ranks.counts[of]
            row = {"level": level, "graph": name, "given": round(float(counts.sum() / every.sum()), 3)}
            if of.any():
                row["coverage"] = round(float(np.average(ranks.best[of] <= sizes[of], weights=counts)), 3)
                row["mean size"] = round(float(np.average(sizes[of], weights=counts)), 1)
                row["median size"] = float(np.median(sizes[of]))
            rows.append(row)
    order = np.argsort(-ranks.first, kind="stable")
    counts = ranks.counts
    answered = order[np.cumsum(counts[order]) <= ANSWERED * counts.sum()]

    def share(of: np.ndarray, last: int) -> float:
        return round(float(np.average(ranks.best[of] < last + 1, weights=counts[of])), 3)

    abstention = {
        "answered": ANSWERED,
        "precision": share(answered, 1),
        "precision if all are answered": share(order, 1),
        "a right one in the first ten": share(answered, 10),
        "the same if all are answered": share(order, 10),
    }
    about = {"questions": len(ranks.best), "relations": len({(each.graph, each.relation) for each in asked})}
    return fit_coverage(ranks), {**about, "measured": rows, "abstention, the graph left out": abstention}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--weights", type=Path, default=BUILTIN / "trail.safetensors")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--answers", type=Path, default=Path("calibration-answers"))
    parser.add_argument("--relations", type=int, default=7, help="of each graph")
    parser.add_argument("--heads", type=int, default=20, help="of each relation and set of references")
    parser.add_argument("--only", nargs="+", metavar="GRAPH", help="these graphs, and write nothing but their answers")
    options = parser.parse_args()
    weights = read_weights(options.weights.read_bytes(), options.weights.name)
    asked = collect(weights, options)
    sample = Sample.joined([each.sample(number) for number, each in enumerate(asked)])
    graphs = np.concatenate([np.full(len(each.pairs), each.graph) for each in asked])
    probabilities = cross_fitted(sample, graphs)
    answers = Answers(asked, sample, probabilities, low_trust(probabilities, sample)[0])
    tables = tables_of(answers)
    for table in filter(None, tables.values()):
        print_table(table)
        print()
    if options.only:
        return
    facts = {"crossed": "graph", "shots": 0, "top": TOP, "step": 0, "benchmark": ""}
    relations = len({(each.graph, each.relation) for each in asked})
    calibration = fitted(sample, answers.probabilities, relations=relations, **facts)
    coverage, sets = answer_sets(asked, answers.probabilities)
    print_table([row for row in sets["measured"] if row["graph"] == "all"])
    replace(calibration, coverage=coverage).write(BUILTIN / "trail.calibration.json")
    columns = ["graph", "relation", "references", "whole", "chosen", "names", "questions", "mean probability"]
    columns += ["right", "found", "held out"]
    rows = {"columns": columns, "rows": [answers.row(number) for number in range(len(asked))]}
    about = {name: weights.facts[name] for name in ("file", "sha256")}
    write_record("calibration", {"of": about, "weights": calibration.weights, **tables, "sets of references": rows})
    write_record("answer_sets", sets)
    shown = [f"{each.fewest or 'all'}: {each.error:.3f}" for each in calibration.by_references]
    print("error by the number of references:", *shown, f"low trust under {calibration.least}")


if __name__ == "__main__":
    main()
