"""Link prediction on graphs that TRAIL was not trained on, with one to all known pairs as references.

    python experiments/unseen_graphs.py GRAPHS --models trail rules --device cuda
    python experiments/unseen_graphs.py --show
    python experiments/unseen_graphs.py --tiny

GRAPHS is a folder with `INDEX.tsv` (columns `name` and `use`, and what else is known of each graph), and for each graph
`NAME.tsv.xz` and, if its entities have names, `NAME.names.tsv.xz`. The suite is the graphs whose use is `never train`.

Of each graph, every relation with at least `FEWEST` pairs, at most `RELATIONS` of them, is hidden in turn. Of its pairs
in random order, the first `min(ASKED, half)` are asked, given their heads; the others are the pool, whose first K are
the references. Every model gets the same ones. Candidates are all entities if the graph has no types, else those of
`open`; other known tails of the head do not compete.

Skewed references are three, and with them ten or thirty pairs of the tail that is most frequent in the pool, or the ten
of the next `CURATED` pairs that the model itself scores highest, as a curator finds them who decides the best answers
first. Means are over the asked pairs of a relation, then over relations, then over graphs.

Models read the graph without the relation. ComplEx is trained on it instead, with the references as triples: relations
are hidden in groups of `TOGETHER`, and one training serves a group and K, or the whole graph at K = all.

The record of a model and seed on a graph is `RESULTS/MODEL/GRAPH.SEED.json`; what has one is not measured again.
"""

from __future__ import annotations

import argparse
import csv
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from common import (
    RESULTS,
    Point,
    Table,
    emphasise,
    line_chart,
    link_settings,
    moments,
    print_tables,
    run,
    spread,
    untrained,
)
from fewlink import __version__
from fewlink.core.errors import FewlinkError, InputError, choose, read_file
from fewlink.core.files import read_json, write_bytes
from fewlink.core.machine import command_line, hardware, use_device
from fewlink.core.progress import progress, tell
from fewlink.core.seeds import generator
from fewlink.evaluation.evaluator import rank_queries
from fewlink.graph import Graph, compile_graph
from fewlink.models.baselines import LEARNING_FREE
from fewlink.models.checkpoints import load_best
from fewlink.models.contract import Question, Scorer
from fewlink.models.embeddings.family import EmbeddingScorer
from fewlink.models.embeddings.trainer import train
from fewlink.models.published import PUBLISHED
from fewlink.models.run import RunConfig
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.learn import network_of
from fewlink.models.trail.names import NAME_RELATIONS
from fewlink.models.trail.network import TrailNetwork
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.trail.shipped import read_weights, shipped
from fewlink.models.weights import check_weights
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import Benchmark, Task, sorted_pairs
from fewlink.tasks.candidates import candidates_of

FORMAT = "fewlink-unseen-graphs/1"
SEED = 0  # of everything that is drawn
FEWEST = 20
RELATIONS = 30
TINY_RELATIONS = 2
ASKED = 50
BASE = 3  # references that skewed sets begin with
FEWEST_OTHERS = 5
OWN_BEST = 10
CURATED = 64
FEWEST_CURATED = 20
TOGETHER = 5  # relations that are hidden side by side from a model that is trained
BATCH = 1000  # examples of a step of training
COMPLEX = f"as fewlink links chooses by the number of entities, batch_size at least {BATCH}, TF32"
ALL = "all"
SIZES = ("1", "3", "10", "30", "100", ALL)  # of sets of references
OTHERS = "3, other tails"  # three references, and the pairs that are asked for skewed ones
OF_ONE_TAIL = {"3 + 10 of one tail": 10, "3 + 30 of one tail": 30}
OWN = "3 + own 10"
SKEWED = {**dict.fromkeys(OF_ONE_TAIL, OTHERS), OWN: "3"}  # sets, and what each is compared with
COLUMNS = ("references", "asked", "mrr", "hits@1", "hits@10", "seen", "mrr seen", "mrr unseen")
METRICS = {"MRR": "mrr", "Hits@1": "hits@1", "Hits@10": "hits@10"}
NAME_EVIDENCE = ("same", "contain", "vectors")  # what TRAIL reads of names
MODELS = ("trail", "trail-no-names", *PUBLISHED, "complex", *(name for name in LEARNING_FREE if name != "random"))
TINY_MODELS = ("trail-no-names", "rules", "popularity")
LABELS = {  # the order of tables
    "trail": "TRAIL",
    "trail-no-names": "TRAIL without names",
    "ultra-50g": "ULTRA (50g)",
    "ultra-4g": "ULTRA (4g)",
    "ultra-3g": "ULTRA (3g)",
    "trix-entity-prediction": "TRIX",
    "complex": "ComplEx",
    "rules": "rules",
    "reference-tails": "reference-tails",
    "popularity": "popularity",
}
Figure = float | None  # None: the mean of nothing
Row = list[Figure]  # in the order of COLUMNS
Rows = dict[str, Row]  # by the name of the references: a size, or a skewed set
ScorersOf = Callable[[Graph], Callable[[Any], Scorer]]  # makes, from a graph, the scorer of a hidden relation


# The suite


@dataclass(frozen=True)
class Listed:
    """A graph of the suite: its name, a function that reads it, what the index says about it, and the file's size."""

    name: str
    graph: Callable[[], Graph]
    about: dict[str, str]
    size: int = 0


def suite(folder: Path, only: Sequence[str] = ()) -> list[Listed]:
    """The graphs of a folder that no model may be trained on, or some of them."""
    index = folder / "INDEX.tsv"
    lines = csv.DictReader(read_file(index).decode().splitlines(), delimiter="\t")
    if not {"name", "use"} <= set(lines.fieldnames or ()):
        raise InputError(index, "must have the columns `name` and `use`")
    rows = {row["name"]: row for row in lines if row["use"] == "never train"}
    graphs = []
    for name in only or rows:
        about = choose("graph", name, rows)
        triples = folder / f"{name}.tsv.xz"
        names = folder / f"{name}.names.tsv.xz"
        read = functools.partial(compile_graph, [triples], names=names if names.exists() else None, literals="keep")
        graphs.append(Listed(name, read, about, triples.stat().st_size))
    return graphs


@dataclass(frozen=True)
class Hidden:
    """A relation that is hidden: its id, all its pairs as a task, the asked pairs (q, 2) and the others (n, 2)."""

    relation: int
    task: Task
    asked: np.ndarray
    pool: np.ndarray

    @property
    def name(self) -> str:
        return self.task.name

    def references(self, size: str) -> np.ndarray:
        """The first K pairs of the pool, or all."""
        return self.pool if size == ALL else self.pool[: int(size)]


def hidden_relations(graph: Graph, name: str, most: int = RELATIONS) -> list[Hidden]:
    """The relations of a graph that are hidden in turn, at most so many, in the order of their ids."""
    triples = graph.triples()
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    drawn = generator(SEED, "unseen relations", name).permutation(np.flatnonzero(sizes >= FEWEST))[:most]
    everything = np.arange(len(graph.entities), dtype=np.int32)
    hidden = []
    for relation in np.sort(drawn).tolist():
        own = triples[triples[:, 1] == relation][:, [0, 2]]
        pairs = own[generator(SEED, "unseen pairs", name, graph.relations[relation]).permutation(len(own))]
        asked = min(ASKED, len(pairs) // 2)
        task = Task(graph.relations[relation], pairs, sorted_pairs(pairs), everything)
        hidden.append(Hidden(relation, task, pairs[:asked], pairs[asked:]))
    return hidden


# Ranking


def row_of(graph: Graph, scorer: Scorer, hidden: Hidden, references: np.ndarray, asked: np.ndarray) -> Row:
    """The figures of a scorer on asked pairs (q, 2), given references (K, 2)."""
    pool = candidates_of("full" if graph.types is None else "open", hidden.task, references, graph)
    ranks, _ = rank_queries(scorer, hidden.task, references, pool, asked)
    seen = np.isin(asked[:, 1], references[:, 1])
    means = [mean_gain(gains) for gains in (1 / ranks, ranks <= 1, ranks <= 10)]
    split = [mean_gain(1 / ranks[seen]), mean_gain(1 / ranks[~seen])]
    return [len(references), len(asked), *means, int(seen.sum()), *split]


def mean_gain(gains: np.ndarray) -> Figure:
    return round(float(gains.mean()), 5) if len(gains) else None


def curve_of(graph: Graph, scorer: Scorer, hidden: Hidden) -> Rows:
    """A row for each number of references; sets of the same references are ranked once."""
    rows: Rows = {}
    for size in SIZES:
        references = hidden.references(size)
        done = next((row for row in rows.values() if row[0] == len(references)), None)
        rows[size] = done or row_of(graph, scorer, hidden, references, hidden.asked)
    return rows


def skewed_rows(graph: Graph, scorer: Scorer, hidden: Hidden) -> Rows:
    """Rows of three references, and of three with ten or thirty of one tail, for pairs with other tails; and of three
    with the ten that the scorer finds first. Sets that the relation has too few pairs for are left out."""
    base = hidden.pool[:BASE]
    rest = hidden.pool[BASE:]
    tails, counts = np.unique(rest[:, 1], return_counts=True)
    one = rest[rest[:, 1] == tails[counts.argmax()]]
    others = hidden.asked[hidden.asked[:, 1] != one[0, 1]]
    sets = {name: one[:count] for name, count in OF_ONE_TAIL.items() if len(one) >= count}
    rows: Rows = {}
    if sets and len(others) >= FEWEST_OTHERS:
        for name, added in {OTHERS: one[:0], **sets}.items():
            rows[name] = row_of(graph, scorer, hidden, np.concatenate([base, added]), others)
    if len(rest) >= FEWEST_CURATED:
        found = np.concatenate([base, own_best(scorer, hidden, base, rest[:CURATED])])
        rows[OWN] = row_of(graph, scorer, hidden, found, hidden.asked)
    return rows


def own_best(scorer: Scorer, hidden: Hidden, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The ten of these pairs (n, 2) that the scorer gives the highest scores; of equal ones the first."""
    heads, rows = np.unique(pairs[:, 0], return_inverse=True)
    tails, columns = np.unique(pairs[:, 1], return_inverse=True)
    output = scorer(Question(hidden.name, references, heads, tails))
    scores = output.float().cpu().numpy() if isinstance(output, torch.Tensor) else output
    return pairs[np.argsort(-scores[rows, columns], kind="stable")[:OWN_BEST]]


# Models


class Job(NamedTuple):
    """What to measure: the name and the seed of its records, and what is known of the model.

    `on` makes, from a graph, the scorer of each hidden relation; None stands for ComplEx, which is trained.
    """

    label: str
    seed: int
    facts: dict[str, Any]
    on: ScorersOf | None


def rows_of(job: Job, graph: Graph, hidden: Sequence[Hidden], device: str) -> dict[str, Rows]:
    """The rows of each hidden relation."""
    if job.on is None:
        return complex_rows(graph, hidden, job.seed, device)
    scorer_of = job.on(graph)
    found = {}
    for each in hidden:
        scorer = scorer_of(each)
        found[each.name] = {**curve_of(graph, scorer, each), **skewed_rows(graph, scorer, each)}
    return found


def complex_rows(graph: Graph, hidden: Sequence[Hidden], seed: int, device: str) -> dict[str, Rows]:
    """The rows of ComplEx, trained on the graph with the references as triples.

    It has the settings of ordinary link prediction for a graph of this size, with larger batches and, on a GPU,
    products in TF32, because there are many trainings.
    """
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU
    settings = link_settings("complex", len(graph.entities), seed, device)
    settings = settings.replace(batch_size=max(BATCH, settings.batch_size))
    count = -(-len(hidden) // TOGETHER)
    groups = [hidden[number::count] for number in range(count)]
    found: dict[str, Rows] = {each.name: {} for each in hidden}
    for group, size in [*itertools.product(groups, SIZES[:-1]), (hidden, ALL)]:
        triples = training_triples(graph, group, size)
        vectors = train(triples, len(graph.entities), len(graph.relations), settings)
        scorer = EmbeddingScorer(vectors, list(graph.relations), device)
        for each in group:
            found[each.name][size] = row_of(graph, scorer, each, each.references(size), each.asked)
    return found


def training_triples(graph: Graph, group: Sequence[Hidden], size: str) -> np.ndarray:
    """The triples (n, 3) of a graph in which the relations of a group have their references only."""
    triples = graph.triples()
    kept = triples[~np.isin(triples[:, 1], [each.relation for each in group])]
    given = [np.insert(each.references(size), 1, each.relation, axis=1) for each in group]
    return np.concatenate([kept, *given]).astype(np.int32)


def trail_on(network: TrailNetwork, device: str, *, names: bool, without: Sequence[str] = ()) -> ScorersOf:
    """TRAIL with these weights, with or without names, or `without` a part of what it reads of them."""
    network = network.to(device)

    def on(graph: Graph) -> Callable[[Hidden], Scorer]:
        whole = TrailScorer("trail", network, ReadGraph.of(graph, names=names).to(device))
        scorer = without_evidence(whole, without)
        return lambda hidden: scorer.without(hidden.name)

    return on


def without_evidence(scorer: TrailScorer, without: Sequence[str]) -> TrailScorer:
    """TRAIL without some of what it reads of names, `NAME_EVIDENCE`."""
    for evidence in without if scorer.graph.reads_names else ():
        if evidence == "vectors":
            scorer = scorer.with_vectors(None)
        else:
            scorer = scorer.without(NAME_RELATIONS[NAME_EVIDENCE.index(evidence)])
    return scorer


def untrained_on(name: str, device: str, file: Path | None) -> ScorersOf:
    """A scorer that learns nothing, or has published weights."""

    def on(graph: Graph) -> Callable[[Hidden], Scorer]:
        def scorer_of(hidden: Hidden) -> Scorer:
            known = Benchmark(name, graph.without(np.array([hidden.relation])), {"train": []})
            return untrained(name, known, device, file=file).scorer

        return scorer_of

    return on


def trail_network(weights: Path | None) -> tuple[TrailNetwork, dict[str, Any]]:
    """The network with the built-in weights, those of a file or those of a run folder; and what is known of them."""
    if weights is not None and weights.is_dir():
        settings = RunConfig.read(weights).settings
        if not isinstance(settings, TrailSettings):
            raise FewlinkError(f"{weights} is a run of {settings.model}: give a run of trail")
        network = network_of(settings)
        tensors, step = load_best(weights)
        check_weights(network.state_dict(), tensors, weights)
        network.load_state_dict(tensors)
        return network, {"run": weights.name, "step": step}
    made = read_weights(read_file(weights), str(weights)) if weights else shipped()
    return made.network(), {**made.facts, **({"file": weights.name} if weights else {})}


def jobs(given: argparse.Namespace) -> Iterator[Job]:
    """The models to measure, under each seed: TRAIL's n-th weights are of seed n."""
    for name in given.models:
        choose("model", name, dict.fromkeys(MODELS))
        if name in ("trail", "trail-no-names"):
            for seed, file in enumerate(given.weights or [None]):
                network, weights = trail_network(file)
                facts = {"weights": weights, **({"without": list(given.without)} if given.without else {})}
                on = trail_on(network, given.device, names=name == "trail", without=given.without)
                yield Job(given.label + name.removeprefix("trail"), seed, facts, on)
        elif name == "complex":
            yield from (Job(name, seed, {"settings": COMPLEX}, None) for seed in range(given.seeds))
        elif name in PUBLISHED:
            if given.checkpoint is None:
                raise FewlinkError(f"{name} needs its weights: give --checkpoint FILE, or choose other --models")
            on = untrained_on(name, given.device, given.checkpoint)
            facts = {"weights": PUBLISHED[name].read(given.checkpoint).facts}
            yield Job(PUBLISHED[name].name_of(given.checkpoint), 0, facts, on)
        else:
            yield Job(name, 0, {}, untrained_on(name, given.device, None))


# Records


def measure(job: Job, listed: Listed, path: Path, most: int, device: str) -> None:
    """Measure a model on a graph, and write the record: JSON with a line for each fact."""
    graph = listed.graph()
    begin = time.monotonic()
    hidden = hidden_relations(graph, listed.name, most)
    rows = rows_of(job, graph, hidden, device)
    record = {
        "format": FORMAT,
        "model": job.label,
        "seed": job.seed,
        "graph": listed.name,
        "about": listed.about,
        "data_sha256": graph.fingerprint,
        "sizes": {
            "triples": graph.triple_count,
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "hidden": len(hidden),
        },
        "command": command_line(),
        "config": job.facts,
        "version": __version__,
        "hardware": hardware(),
        "seconds": round(time.monotonic() - begin, 1),
        "columns": COLUMNS,
        "relations": {own.name: {"pairs": len(own.task.pairs), "rows": rows[own.name]} for own in hidden},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in record.items()]
    write_bytes(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


@dataclass(frozen=True)
class UnseenRecord:
    """What a model under a seed reached on one graph: relation → set of references → column → figure."""

    model: str
    seed: int
    graph: str
    about: Mapping[str, str]
    sizes: Mapping[str, int]
    config: Mapping[str, Any]
    relations: Mapping[str, Mapping[str, Mapping[str, Figure]]]

    def mean(self, of: str, column: str = "mrr", where: str = "") -> Figure:
        """The mean of a column over the relations that have this set of references, and that of `where`."""
        return mean_of(rows[of][column] for rows in self.relations.values() if of in rows and (where or of) in rows)


def mean_of(figures: Iterable[Figure]) -> Figure:
    found = [figure for figure in figures if figure is not None]
    return fmean(found) if found else None


def read_unseen(folder: Path) -> list[UnseenRecord]:
    """The records in a folder, by model, graph and seed."""
    records = []
    for path in sorted(folder.glob("*/*.json")):
        content = read_json(path)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InputError(path, f"is not a record of {FORMAT}: measure it again")
        facts = {key: content[key] for key in ("model", "seed", "graph", "about", "sizes", "config")}
        relations = {
            name: {of: dict(zip(content["columns"], row, strict=True)) for of, row in own["rows"].items()}
            for name, own in content["relations"].items()
        }
        records.append(UnseenRecord(relations=relations, **facts))
    return records


# Tables

ByModel = Mapping[str, Sequence[Sequence[UnseenRecord]]]  # the records of each model, seed by seed


def complete(records: Sequence[UnseenRecord]) -> ByModel:
    """The records of each model in the order of tables, seed by seed; seeds that lack a graph are left out."""
    graphs = {record.graph for record in records}
    places = {name: place for place, name in enumerate(LABELS)}
    found: dict[str, list[list[UnseenRecord]]] = {}
    for model in sorted({record.model for record in records}, key=lambda name: (places.get(name, len(places)), name)):
        own = [record for record in records if record.model == model]
        seeds = [[record for record in own if record.seed == seed] for seed in sorted({r.seed for r in own})]
        if whole := [seed for seed in seeds if {record.graph for record in seed} == graphs]:
            found[model] = whole
    return found


def of_shared_relations(models: ByModel) -> ByModel:
    """All models, with the relations that every model was asked about."""
    shared: dict[str, set[str]] = {}
    for record in itertools.chain(*(seeds[0] for seeds in models.values())):
        shared[record.graph] = shared.get(record.graph, set(record.relations)) & set(record.relations)

    def restricted(record: UnseenRecord) -> UnseenRecord:
        return replace(record, relations={name: record.relations[name] for name in sorted(shared[record.graph])})

    return {name: [[restricted(record) for record in seed] for seed in seeds] for name, seeds in models.items()}


def over_graphs(seeds: Sequence[Sequence[UnseenRecord]], of: str, column: str = "mrr", where: str = "") -> list[float]:
    """The mean over graphs of a column, for each seed."""
    means = [mean_of(record.mean(of, column, where) for record in seed) for seed in seeds]
    return [mean for mean in means if mean is not None]


def label(model: str) -> str:
    return LABELS.get(model, model)


def curve_table(models: ByModel, title: str, column: str) -> Table:
    """A column by the number of references: the mean over graphs, ± the deviation over seeds; the best in bold."""
    rows = [
        [label(model), *(spread(over_graphs(seeds, size, column)) for size in SIZES)] for model, seeds in models.items()
    ]
    return Table(title, ["model", *(f"K = {size}" for size in SIZES)], emphasise(rows, range(1, 1 + len(SIZES))))


def skewed_table(models: ByModel) -> Table:
    """MRR with three references → with skewed ones, over the relations that have them."""
    rows = []
    for model, seeds in models.items():
        means = [(over_graphs(seeds, since, where=of), over_graphs(seeds, of)) for of, since in SKEWED.items()]
        if all(fewer and more for fewer, more in means):
            rows.append([label(model), *(f"{spread(fewer)} → {spread(more)}" for fewer, more in means)])
    return Table("Skewed references: MRR with three, and with more", ["model", *(f"3 → {of}" for of in SKEWED)], rows)


def graph_table(models: ByModel, size: str) -> Table:
    """MRR on each graph with so many references; the best in bold."""
    graphs = sorted({record.graph for seeds in models.values() for record in seeds[0]})
    rows = []
    for model, seeds in models.items():
        of_graph = ([[record for record in seed if record.graph == graph] for seed in seeds] for graph in graphs)
        rows.append([label(model), *(spread(over_graphs(own, size)) for own in of_graph)])
    best = emphasise(rows, range(1, 1 + len(graphs)))
    turned = list(zip(["graph", *graphs], *best, strict=True))
    return Table(f"MRR on each graph, K = {size}", turned[0], turned[1:])


def graphs_of(records: Sequence[UnseenRecord]) -> Table:
    """The graphs of the suite."""
    rows = []
    for record in {record.graph: record for record in records}.values():
        sizes = [f"{record.sizes[key]:,}" for key in ("triples", "entities", "relations", "hidden")]
        named = int(record.about.get("named_entities") or 0)
        share = f"{100 * named / record.sizes['entities']:.0f} %"
        facts = [record.about.get(key, "") for key in ("domain", "source", "licence as stated")]
        rows.append([record.graph, facts[0], *sizes, share, *facts[1:]])
    columns = ["graph", "domain", "triples", "entities", "relations", "hidden in turn", "named entities"]
    return Table("Graphs", [*columns, "source", "licence as stated"], sorted(rows))


def tables_of(records: Sequence[UnseenRecord]) -> dict[str, Table]:
    """All tables of the page by name; models without a figure on every graph are left out.

    A model that was asked about some relations only is in the table `shared`, which has only those.
    """
    every = complete(records)
    if not every:
        raise FewlinkError("no model has a record of every graph: run without --show")
    asked = {name: sum(len(record.relations) for record in seeds[0]) for name, seeds in every.items()}
    models = {name: seeds for name, seeds in every.items() if asked[name] == max(asked.values())}
    shared = "MRR over the relations that all models were asked about"
    return {
        **{column: curve_table(models, title, column) for title, column in METRICS.items()},
        "shared": curve_table(of_shared_relations(every), shared, "mrr"),
        "seen": curve_table(models, "MRR if the right tail is the tail of a reference", "mrr seen"),
        "unseen": curve_table(models, "MRR if the right tail is not the tail of a reference", "mrr unseen"),
        "skewed": skewed_table(models),
        "three": graph_table(models, "3"),
        "all": graph_table(models, ALL),
        "graphs": graphs_of(records),
    }


def curve_chart(records: Sequence[UnseenRecord], models: Sequence[str]) -> str:
    """MRR of these models by the number of references, the mean over graphs, on the relations that all models have."""
    found = of_shared_relations(complete(records))
    lines = {
        label(model): [Point(x, *moments(over_graphs(found[model], size))) for x, size in enumerate(SIZES)]
        for model in models
        if model in found
    }
    title = "Graphs that TRAIL was not trained on"
    return line_chart(title, lines, "references (K)", "MRR, mean over graphs", x_names=SIZES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="folder of graphs with INDEX.tsv")
    parser.add_argument("--tiny", action="store_true", help="some relations of umls, which comes with fewlink")
    parser.add_argument("--show", action="store_true", help="measure nothing; print the tables of all records")
    parser.add_argument("--models", nargs="+", help=", ".join(MODELS))
    parser.add_argument("--graphs", nargs="+", default=[], help="some of the graphs that are marked never train")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    weights = "files or run folders of TRAIL, one for each seed"
    parser.add_argument("--weights", nargs="+", type=Path, default=[], help=weights)
    parser.add_argument("--label", default="trail", help="name of these weights in records")
    left_out = "what TRAIL does not read of names"
    parser.add_argument("--without", nargs="+", default=[], choices=NAME_EVIDENCE, help=left_out)
    parser.add_argument("--relations", type=int, default=RELATIONS, help="relations of a graph, at most")
    parser.add_argument("--checkpoint", type=Path, help="file of the published weights of ultra or trix")
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings of ComplEx")
    parser.add_argument("--results", type=Path, help="folder of records")
    given = parser.parse_args()
    results = given.results or (Path("runs/tiny/unseen-graphs") if given.tiny else RESULTS / "unseen-graphs")
    if not given.show:
        measure_missing(given, results)
    print_tables(tables_of(read_unseen(results)).values())


def measure_missing(given: argparse.Namespace, results: Path) -> None:
    """Measure the models on the graphs, small ones first, where they have no record."""
    use_device(given.device)
    if given.tiny:
        graphs = [Listed("umls", lambda: open_benchmark("umls").graph, {})]
        given.relations = TINY_RELATIONS
    elif given.folder is None:
        raise FewlinkError("no graphs to measure on: give a folder with an INDEX.tsv, or --show or --tiny")
    else:
        graphs = sorted(suite(given.folder, given.graphs), key=lambda graph: graph.size)
    given.models = given.models or (TINY_MODELS if given.tiny else ("trail", "trail-no-names"))
    planned = list(itertools.product(graphs, list(jobs(given))))
    with progress("unseen graphs", len(planned)) as advance:
        for number, (graph, each) in enumerate(planned):
            advance(number, f"{each.label} on {graph.name}")
            path = results / each.label / f"{graph.name}.{each.seed}.json"
            if not path.exists():
                measure(each, graph, path, given.relations, given.device)
                tell(f"written: {path}")
            elif read_json(path)["config"] != json.loads(json.dumps(each.facts)):
                raise InputError(path, "has figures of other weights or settings: remove it, or give another --label")


if __name__ == "__main__":
    run(main)
