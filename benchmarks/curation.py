"""What a curator's decisions do to the answers about heads that are still undecided, in a simulation.

    python benchmarks/curation.py GRAPHS --codex-s FOLDER [--only debian attack] [--seeds 3]
    python benchmarks/curation.py GRAPHS --variants        # how accepted pairs are read, on other graphs

A relation is hidden from a graph, three of its pairs are references, and a curator decides up to 100 pairs, always
correctly. `HELD_OUT` of the relation's heads are never shown to the curator; the others, at most `POOL`, and `OTHERS`
entities like the references' heads that have no tail, can be suggested:

- best-first: the best pairs first, as the page suggests them;
- accept-many: the first right pairs of the list of all heads, by probability; wrong ones are passed over;
- informative-first: the pairs that teach most, as the page suggests them.

The list is updated after every `STEP` decisions; accepted pairs become references after 10 and 30 decisions, and for
accept-many only in what is measured. Measured after 0, 10, 30 and 100 decisions, on the heads that are held out, with
the project's references, rejected pairs and adjustment, as `fewlink ask --project` answers:

- right: the share of heads whose first answer is right (hits@1); MRR: the mean of 1 / rank of the first right tail;
- error: |mean probability of the first answers − right|, adjusted as the project shows it, and before that (`base`).

Graphs: `debian`, every third package in the lists of apt of this machine, if it has a tag for its language or toolkit;
`countries`, GeoNames without cities (GRAPHS/geonames-5000.tsv.xz); `attack`, built in; `nell-one` with two relations of
its test split; `codex-s`, the training triples; and `dnd5e-srd` of GRAPHS. No weights of TRAIL were trained on any
relation that is asked about. How decisions are read was chosen on the graphs of `--variants`, none of which is among
these. The record keeps relations that are not measured again.
"""

from __future__ import annotations

import argparse
import lzma
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.seeds import generator
from fewlink.curation.learning import learn, suggest, units_of
from fewlink.graph import Graph, compile_graph
from fewlink.linker import Linker
from fewlink.linker.probability import adjustment
from fewlink.linker.query import Query, References
from fewlink.linker.ranking import RankedPairs
from fewlink.models.contract import Question, Scorer, capabilities
from fewlink.models.trail.shipped import shipped
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.tasks.candidates import by_similarity
from fewlink.tasks.catalogue import attack_graph
from measure import read_record, write_record

SHOTS = 3
HELD_OUT = 40
POOL = 100
OTHERS = 10
NEAR = 1000
PACKAGES_READ = 3  # every third package
STEP = 5  # decisions between two lists of suggestions
LISTED = 5  # tails of each head that can be suggested
DEEP = 1000  # tails of each head that is held out among which the first right one is looked for
MEASURED = (0, 10, 30, 100)
FIGURES = ("right", "MRR", "error")
POLICIES = ("best-first", "accept-many", "informative-first")
PACKAGES = "/var/lib/apt/lists/*_Packages*"
DEPENDENCIES = {
    "Depends": "depends on",
    "Recommends": "recommends",
    "Suggests": "suggests",
    "Enhances": "enhances",
}
OF_CITIES = ("size class", "time zone", "city in country", "city in province")
Pair = tuple[int, int]


# Graphs


def debian() -> Graph:
    """Packages of the machine's lists: dependencies, sections, maintainers, sources, and tags by their facets.

    Languages are those that packages are written in or for; languages and toolkits have a kind.
    """
    command = f"/usr/lib/apt/apt-helper cat-file {PACKAGES}"
    text = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    triples: dict[tuple[str, str, str], None] = {}
    for stanza in text.split("\n\n")[::PACKAGES_READ]:
        package = dict(re.findall(r"^([\w-]+): (.*(?:\n .*)*)", stanza, re.MULTILINE))
        tags = [tag for tag in re.split(r",\s*", package.get("Tag", "")) if "::" in tag and not tag.endswith("TODO")]
        if not any(tag.startswith(("implemented-in::", "uitoolkit::")) for tag in tags):
            continue
        facts = [("section", package["Section"]), ("maintained by", package["Maintainer"].split(" <")[0])]
        facts.append(("source", f"{str(package.get('Source', package['Package'])).split()[0]} (source)"))
        for key, relation in DEPENDENCIES.items():
            others = (re.split(r"[ (:]", other.strip())[0] for other in re.split(r"[,|]", package.get(key, "")))
            facts += [(relation, other) for other in others if other]
        for tag in tags:
            facet, value = tag.split("::", 1)
            kind = "toolkit" if facet == "uitoolkit" else "language"
            if facet in ("implemented-in", "uitoolkit") or value.startswith("lang:"):
                relation = "for language" if value.startswith("lang:") else facet
                entity = f"{value.removeprefix('lang:')} ({kind})"
                facts.append((relation, entity))
                triples[entity, "kind", kind] = None
            else:
                facts.append((facet, tag))
        triples.update(dict.fromkeys((package["Package"], *fact) for fact in facts))
    return compiled(triples)


def compiled(triples: Iterable[tuple[str, str, str]], names: Path | None = None) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.tsv"
        file.write_text("".join("\t".join(triple) + "\n" for triple in triples), "utf-8")
        return compile_graph([file], names=names)


def in_folder(folder: Path, name: str) -> Graph:
    names = folder / f"{name}.names.tsv.xz"
    return compile_graph([folder / f"{name}.tsv.xz"], names=names if names.exists() else None, literals="keep")


def countries(folder: Path) -> Graph:
    """Countries, their subdivisions, languages and currencies: GeoNames without relations of cities.

    Official languages and continents have a kind: nothing else is known of them if the relation is hidden.
    """
    triples: dict[tuple[str, str, str], None] = {}
    with lzma.open(folder / "geonames-5000.tsv.xz", "rt", encoding="utf-8") as file:
        for line in file:
            head, relation, tail = line.rstrip("\n").split("\t")
            if relation not in OF_CITIES:
                triples[head, relation, tail] = None
            if relation in ("official language", "continent"):
                triples[tail, "kind", relation] = None
    return compiled(triples, folder / "geonames-5000.names.tsv.xz")


def codex(folder: Path) -> Graph:
    return compile_graph([folder / "train.tsv"])


def relations_of(name: str, given: argparse.Namespace) -> Iterator[tuple[str, Linker, np.ndarray]]:
    """The relations of a graph by name, each with a linker that does not see it and with its known pairs (n, 2)."""
    if name == "nell-one":
        benchmark = open_benchmark(name)
        linker = Linker.shipped(benchmark)
        for task in benchmark.split("test"):
            if task.name in GRAPHS[name]:
                yield task.name, linker, task.known
        return
    open_graph: dict[str, Callable[[], Graph]] = {
        "debian": debian,
        "countries": lambda: countries(given.graphs),
        "attack": attack_graph,
        "codex-s": lambda: codex(given.codex_s),
    }
    graph = open_graph.get(name, lambda: in_folder(given.graphs, name))()
    triples = graph.triples()
    for relation in (GRAPHS | CHOSEN_ON)[name]:
        number = graph.relations.id(relation)
        pairs = triples[triples[:, 1] == number][:, [0, 2]]
        rest = graph.without(np.array([number]))
        linker = Linker.shipped(Benchmark(name, rest, {"train": [], "dev": [], "test": []}))
        yield relation, linker, pairs[(rest.degrees[pairs] > 0).all(1)]


GRAPHS = {
    "debian": ("implemented-in", "uitoolkit"),
    "countries": ("official language", "continent", "subregion"),
    "attack": ("malware_runs_on_platform", "technique_runs_on_platform"),
    "nell-one": ("concept:producedby", "concept:animalsuchasinvertebrate"),
    "codex-s": ("P1412", "P27"),
    "dnd5e-srd": ("magic-items equipment_category", "monsters actions.damage.damage_type"),
}
CHOSEN_ON = {
    "theographic-bible": ("memberOf", "chapter writer"),
    "wikitopics-sport": ("P413",),
    "ctid-mappings": ("kev exploitation_technique", "kev primary_impact"),
    "f1db": ("nationality",),
}


# The curator


class Remembering:
    """A scorer that computes the scores of a question once."""

    def __init__(self, scorer: Scorer) -> None:
        self.name = scorer.name
        self.scorer = scorer
        self.capabilities = capabilities(scorer)
        self._scores: dict[tuple[bytes, ...], np.ndarray] = {}

    def __call__(self, question: Question) -> np.ndarray:
        key = question.references.tobytes(), question.heads.tobytes(), question.candidates.tobytes()
        if key not in self._scores:
            self._scores[key] = np.asarray(self.scorer(question))
        return self._scores[key]


@dataclass
class Decided:
    """The pairs that a curator accepted and rejected; `rows` adjust the probabilities (see `adjustment`)."""

    references: np.ndarray
    accepted: list[Pair] = field(default_factory=list)
    rejected: list[Pair] = field(default_factory=list)
    rows: list[tuple[float, bool, bool]] = field(default_factory=list)

    @property
    def true(self) -> np.ndarray:
        return np.concatenate([self.references, np.array(self.accepted, np.int32).reshape(-1, 2)])

    def all(self) -> set[Pair]:
        return {*map(tuple, self.true.tolist()), *self.rejected}


Reading = Callable[[np.ndarray, np.ndarray], np.ndarray]  # references, accepted pairs → the references to read


def every_pair(references: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    return np.concatenate([references, accepted])


def three_of_each_tail(references: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """The references, and accepted pairs until their tail has three."""
    pairs = every_pair(references, accepted)
    earlier = np.array([(pairs[:place, 1] == tail).sum() for place, tail in enumerate(pairs[:, 1])])
    return pairs[(earlier < 3) | (np.arange(len(pairs)) < len(references))]


def half_of_one_tail(references: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """The most frequent tail has three pairs, or as many as all others together; references stay."""
    pairs = every_pair(references, accepted)
    tails, counts = np.unique(pairs[:, 1], return_counts=True)
    of_tail = pairs[:, 1] == tails[counts.argmax()]
    kept = np.cumsum(of_tail) <= max(3, len(pairs) - counts.max())
    return np.asarray(pairs[kept | ~of_tail | (np.arange(len(pairs)) < len(references))])


READINGS = {
    "all": every_pair,
    "3 of each tail": three_of_each_tail,
    "half of one tail": half_of_one_tail,
}


@dataclass
class Course:
    """A relation whose pairs are `known`, with references, heads to decide (pool) and heads that are held out."""

    linker: Linker
    known: np.ndarray
    references: np.ndarray
    pool: np.ndarray
    held_out: np.ndarray
    read: Reading

    @classmethod
    def of(cls, linker: Linker, known: np.ndarray, seed: int, read: Reading) -> Course:
        rng = generator(seed, "curation")
        pairs = rng.permutation(known)
        first = np.sort(np.unique(pairs[:, 0], return_index=True)[1])[:SHOTS]  # references have different heads
        heads = rng.permutation(np.setdiff1d(pairs[:, 0], pairs[first, 0]))
        held_out = min(HELD_OUT, len(heads) // 3)
        order, similar = by_similarity(linker.graph, pairs[first, 0])
        others = rng.permutation(np.setdiff1d(order[: min(similar, NEAR)], known[:, 0]))[:OTHERS]
        pool = np.sort(np.concatenate([heads[held_out : held_out + POOL], others]))
        return cls(linker, known, pairs[first], pool.astype(np.int32), np.sort(heads[:held_out]), read)

    def is_right(self, pairs: RankedPairs) -> np.ndarray:
        known = set(map(tuple, self.known.tolist()))
        return np.array([pair in known for pair in zip(pairs.heads.tolist(), pairs.tails.tolist(), strict=True)], bool)

    def ask(self, decided: Decided, heads: np.ndarray, k: int, **more: Any) -> tuple[RankedPairs, np.ndarray]:
        """The k best tails of each head, and their probabilities (n, 2): base and adjusted."""
        pairs = self.read(decided.references, np.array(decided.accepted, np.int32).reshape(-1, 2))
        rejected = tuple(more.pop("rejected", ()))
        query = Query(References(tuple(map(tuple, pairs.tolist())), None, rejected), tuple(heads.tolist()), k, **more)
        trust = self.linker.trust(query)
        ranked = self.linker.rank(query, trust, query.heads)
        probabilities = self.linker.probabilities(query, ranked, trust)
        assert probabilities is not None
        return ranked, np.stack(probabilities, 1)

    def measure(self, decided: Decided) -> dict[str, Any]:
        """The figures on the heads that are held out."""
        answered = frozenset(decided.true[:, 0].tolist())
        ranked, probabilities = self.ask(
            decided,
            self.held_out,
            DEEP,
            rejected=decided.rejected,
            adjustment=adjustment(decided.rows),
            answered=answered,
        )
        right = self.is_right(ranked)
        begins = np.flatnonzero(np.diff(ranked.heads, prepend=-1))
        found = [np.flatnonzero(own) for own in np.split(right, begins[1:])]
        tops = np.unique(ranked.tails[begins], return_counts=True)[1]
        of_first = probabilities[begins].mean(0)
        hits = float(right[begins].mean())
        return {
            "accepted": len(decided.accepted),
            "tails": len({tail for _, tail in decided.accepted}),
            "heads": len(begins),
            "right": hits,
            "MRR": float(np.mean([1 / (1 + own[0]) if len(own) else 0.0 for own in found])),
            "probability": float(of_first[1]),
            "error": abs(float(of_first[1]) - hits),
            "base error": abs(float(of_first[0]) - hits),
            "share of one tail": float(tops.max() / len(begins)),
        }

    def run(self, policy: str) -> list[dict[str, Any]]:
        """The figures after each number of decisions of `MEASURED`."""
        decided = Decided(self.references)
        rows = [{"decisions": 0, **self.measure(decided)}]
        ranked, probabilities = self.ask(decided, self.pool, LISTED)
        right = self.is_right(ranked)
        for count in range(STEP, MEASURED[-1] + 1, STEP):
            for place in self.next(policy, decided, ranked, probabilities[:, 0], right):
                pair = int(ranked.heads[place]), int(ranked.tails[place])
                answered = bool(np.isin(pair[0], decided.true[:, 0]))
                decided.rows.append((float(probabilities[place, 0]), bool(right[place]), answered))
                (decided.accepted if right[place] else decided.rejected).append(pair)
            if count in MEASURED:
                rows.append({"decisions": count, **self.measure(decided)})
                if policy != "accept-many" and count < MEASURED[-1]:
                    ranked, probabilities = self.ask(decided, self.pool, LISTED)
                    right = self.is_right(ranked)
        return rows

    def next(
        self, policy: str, decided: Decided, ranked: RankedPairs, probabilities: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """The places of the next pairs to decide."""
        pairs = np.stack([ranked.heads, ranked.tails], 1)
        done = decided.all()
        left = np.flatnonzero([pair not in done for pair in map(tuple, pairs.tolist())])
        if policy == "accept-many":
            order = left[np.lexsort((-ranked.scores[left], -probabilities[left]))]
            return np.asarray(order[right[order]][:STEP])
        learned = None
        if decided.accepted or decided.rejected:
            learned = learn(self.linker.benchmark.known_graph, decided.true, np.array(decided.rejected).reshape(-1, 2))
        begins = np.flatnonzero(np.diff(ranked.heads, prepend=-1))
        units = units_of(self.linker.scorer, np.split(ranked.scores, begins[1:]))
        order, _ = suggest(learned, pairs[left], ranked.scores[left], units, teach=policy == "informative-first")
        return left[order[:STEP]]


# Tables


def table(rows: Sequence[dict[str, Any]], figure: str, *by: str) -> list[dict[str, Any]]:
    """Means over relations and seeds; and the change from the start to the end with its standard error."""
    lines = []
    for key in dict.fromkeys(tuple(row[name] for name in by) for row in rows):
        own = [row for row in rows if tuple(row[name] for name in by) == key]
        values = [np.array([row[figure] for row in own if row["decisions"] == count]) for count in MEASURED]
        change = values[-1] - values[0]
        line: dict[str, Any] = dict(zip(by, key, strict=True))
        line |= {str(count): float(own.mean()) for count, own in zip(MEASURED, values, strict=True)}
        lines.append({**line, "change": float(change.mean()), "±": float(change.std(ddof=1) / len(change) ** 0.5)})
    return lines


def measure(graph: str, given: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Yield for each relation of a graph a row for each draw of references, policy and number of decisions."""
    weights = shipped().facts["sha256"][:12]
    for relation, linker, known in relations_of(graph, given):
        rows = list[dict[str, Any]]()
        scorer = linker.scorer
        for seed in range(1, given.seeds + 1):
            linker.scorer = Remembering(scorer)
            for name, read in READINGS.items() if given.variants else [("all", every_pair)]:
                course = Course.of(linker, known, seed, read)
                for policy in POLICIES:
                    begin = time.process_time()
                    what = (graph, relation, seed, name, policy)
                    found = course.run(policy)
                    keys = dict(zip(("graph", "relation", "seed", "references", "policy"), what, strict=True))
                    rows += [{"weights": weights, **keys, **row} for row in found]
                    shown = [f"{row['right']:.2f} off {row['error']:.2f}" for row in found]
                    print(*what, shown, f"{time.process_time() - begin:.0f} s", flush=True)
        linker.scorer = scorer
        yield rows


def store(rows: Sequence[dict[str, Any]], variants: bool) -> None:
    """Put the rows of a relation into the record, and make its tables again."""
    part, graphs = ("variants", CHOSEN_ON) if variants else ("rows", GRAPHS)
    before = read_record("curation") or {}
    relation = (rows[0]["graph"], rows[0]["relation"])
    others = [row for row in before.get(part, []) if (row["graph"], row["relation"]) != relation]
    rows = sorted([*others, *rows], key=lambda row: list(graphs).index(row["graph"]))
    facts = {"references": SHOTS, "heads held out": HELD_OUT, "heads to decide": POOL + OTHERS}
    results = {**before, f"settings of {part}": facts, part: rows}
    for figure in FIGURES:
        if variants:
            results[f"{figure} of variants"] = table(rows, figure, "references", "policy")
        else:
            results[figure] = table([*rows, *({**row, "graph": "all"} for row in rows)], figure, "graph", "policy")
    write_record("curation", results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path, metavar="GRAPHS", help="folder with geonames-5000.tsv.xz and others")
    parser.add_argument("--codex-s", type=Path, metavar="FOLDER", help="folder with CoDEx-S's train.tsv")
    parser.add_argument("--only", nargs="*", metavar="GRAPH")
    parser.add_argument("--seeds", type=int, default=3, help="draws of the references")
    parser.add_argument("--variants", action="store_true", help="compare ways of reading accepted pairs")
    given = parser.parse_args()
    for graph in given.only or (CHOSEN_ON if given.variants else GRAPHS):
        for rows in measure(graph, given):
            store(rows, given.variants)


if __name__ == "__main__":
    main()
