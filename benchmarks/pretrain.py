"""Pretrain TRAIL on many graphs, as the weights that come with fewlink were, and measure what it learns.

    python benchmarks/pretrain.py train GRAPHS OUT [--variants main …] [--seeds 0 1 …] [--steps 5000]
    python benchmarks/pretrain.py tune GRAPHS OUT WEIGHTS … --on nell-one [--steps 600]
    python benchmarks/pretrain.py evaluate OUT WEIGHTS … --on nell-one [--shots 1 3 5]
    python benchmarks/pretrain.py links OUT WEIGHTS … --links TRAIN VALID TEST
    python benchmarks/pretrain.py own GRAPHS OUT WEIGHTS …
    python benchmarks/pretrain.py record OUT

GRAPHS is a folder of graphs with an INDEX.tsv. `train` reads those in `POOL`, whose stated licences allow weights to be
shipped, NELL-One without the relations of its folds, and the known graph of FB15k-237's tasks without the test triples
of FB15k-237: so folds, tests and FB15k-237's own test are unseen. Every variant and seed is a process on one GPU, side
by side. `tune` goes on with weights on the known graph of one benchmark, or on the training split of FB15k-237; with
`--device cpu --edges 10000`, an episode reads only the neighbourhood of its references and heads: a step takes about a
second of one core. `evaluate` stores a record for each measurement in OUT, with names and without; `links` ranks both
ends of the test triples of an ordinary graph, with all known pairs of a relation as its references. `own` says how much
a graph that the weights never saw would have taught them: half of its hidden relations are asked about before and after
a training on the other relations of the graph, then the other half. `record` turns what `links` and `own` left in OUT
into records/trail-links.json, where other graphs and models stay, and records/own-training.json.
"""

from __future__ import annotations

import argparse
import copy
import csv
import functools
import itertools
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from fewlink.core.machine import hardware
from fewlink.core.seeds import derive
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.records import QueryRanks, RecordStore, make_record
from fewlink.fitting.tuning import NeighbourhoodLearner
from fewlink.graph import Graph, compile_graph
from fewlink.graph.source import GraphSource
from fewlink.models.cached import CachedScorer
from fewlink.models.contract import Question
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.learn import Batch, EpisodeSource, TrailLearner
from fewlink.models.trail.network import Shape
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.trail.shipped import read_weights, write_weights
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.tasks.catalogue import data_home, open_graph
from folds import fold_benchmark
from links import rank_links, read_splits
from measure import read_record, write_record

sys.path.append(str(Path(__file__).resolve().parent.parent / "experiments"))

from unseen_graphs import COLUMNS, NAME_EVIDENCE, RELATIONS, Listed, curve_of, hidden_relations, suite, without_evidence

POOL = [
    "wd50k",
    "wikitopics-loc",
    "wikitopics-people",
    "wikitopics-org",
    "wikitopics-art",
    "wikitopics-award",
    "wikitopics-infra",
    "wikitopics-sci",
    "pedia-de",
    "jf17k",
    "openflights",
    "obo-anatomy",
    "human-gem",
    "ras-machine",
    "misp-galaxy",
    "nuclei-templates",
    "d3fend",
    "fibo",
    "china-stocks",
    "pokeapi",
    "worldcup-db",
    "homebrew",
    "qudt",
    "metafam",
    "kinships",
    "mkr-music",
    "chinook",
]
NELL = "nell-one"
FREEBASE = "fb15k-237-few"
FREEBASE_LINKS = "fb15k-237"
NAMED_SHARES = {NELL: 0.16, FREEBASE: 0.09}  # of steps; the graphs of the pool share the rest by domain
DOMAINS = ("wikidata", "dbpedia", "freebase", "bio", "cyber", "finance", "sport", "games", "kin", "software")
VARIANTS: dict[str, dict[str, Any]] = {
    "main": {},
    "few-references": {"most_references": 16, "many": 0.0},
    "no-skew": {"skewed": 0.0},
    "few-graphs": {},
    "no-names": {"without_names": 1.0},
}
# what was measured, in OUT
LINKS = "links.jsonl"
OWN = "own.jsonl"
Sources = Mapping[str, EpisodeSource]


class PooledLearner(TrailLearner):
    """A learner whose graphs were read before, and which may have to end after some seconds."""

    workers = 2

    def __init__(
        self,
        sources: Sequence[EpisodeSource],
        settings: TrailSettings,
        start: Mapping[str, Tensor] | None = None,
        shares: Sequence[float] | None = None,
        seconds: float = 1e9,
    ) -> None:
        self.read = iter(sources)
        self.began = time.time()
        self.seconds = seconds
        super().__init__([source.graph.graph for source in sources], settings, start, shares)
        if start is not None:
            self.episodes.seed = derive(settings.seed, "continued")  # not those that the weights have learned from

    def step(self, number: int, batch: Batch) -> Tensor:
        """A step whose learning rate falls to 0 with the last step, or with the last second."""
        passed = (time.time() - self.began) / self.seconds
        return super().step(min(self.settings.steps - 1, max(number, int(passed * self.settings.steps))), batch)

    def source(self, graph: Graph) -> EpisodeSource:
        """The next of the graphs, with the settings of this learner."""
        source = copy.copy(next(self.read))
        source.settings = self.settings
        return source


class NeighbourhoodPool(PooledLearner, NeighbourhoodLearner):
    """A pooled learner for a CPU, each of whose episodes reads a neighbourhood."""


def read_pool(folder: Path) -> tuple[dict[str, EpisodeSource], dict[str, float]]:
    """All graphs that `train` reads, and their shares of the steps."""
    with (folder / "INDEX.tsv").open(encoding="utf-8") as lines:
        domains = {row["name"]: coarse(row["domain"]) for row in csv.DictReader(lines, delimiter="\t")}
    jobs: list[Callable[[], Graph]] = [functools.partial(pool_graph, folder, name) for name in POOL]
    jobs += [nell_without_folds, functools.partial(freebase_without_test, folder.parent / "fb15k-237")]
    sources = read_sources([*POOL, NELL, FREEBASE], jobs)
    graphs = defaultdict(list)
    for name in POOL:
        graphs[domains[name]].append(name)
    rest = (1 - sum(NAMED_SHARES.values())) / sum(len(names) ** 0.5 for names in graphs.values())
    shares = {name: rest * len(names) ** 0.5 / len(names) for names in graphs.values() for name in names}
    return sources, {**shares, **NAMED_SHARES}


def coarse(domain: str) -> str:
    """The domain of a graph without its details."""
    return next((known for known in DOMAINS if known in domain.lower()), domain)


def read_sources(names: Sequence[str], jobs: Sequence[Any]) -> dict[str, EpisodeSource]:
    """The graphs that jobs make, each read in a process of its own."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        sources = dict(zip(names, pool.map(as_source, jobs), strict=True))
    for source in sources.values():  # what pickles leave out
        _ = source.graph.graph.slots
    return {name: source for name, source in sources.items() if source.pairs}


def as_source(job: Any) -> EpisodeSource:
    torch.set_num_threads(1)
    graph = job()
    return EpisodeSource(graph, ReadGraph.of(graph), TrailSettings())


def pool_graph(folder: Path, name: str) -> Graph:
    names = folder / f"{name}.names.tsv.xz"
    return open_graph(GraphSource.of(folder / f"{name}.tsv.xz", names=names if names.exists() else None)).graph


def nell_without_folds() -> Graph:
    """NELL-One's background without the relations that a fold holds out."""
    benchmark = benchmark_of(NELL)
    kept = functools.reduce(
        np.intersect1d, (np.unique(fold_benchmark(benchmark, fold).graph.triples()[:, 1]) for fold in (0, 1))
    )
    hidden = np.setdiff1d(np.arange(len(benchmark.graph.relations)), kept)
    return benchmark.graph.without(hidden)


def freebase_without_test(folder: Path) -> Graph:
    """The known graph of FB15k-237's tasks without the triples that are not in FB15k-237's training split."""
    graph = benchmark_of(FREEBASE).known_graph
    train = compile_graph([folder / "train.tsv.gz"], literals="keep")
    heads, relations, tails = train.triples().T
    entities = list(train.entities)
    names = list(train.relations)
    seen = {(entities[h], names[r], entities[t]) for h, r, t in zip(heads, relations, tails, strict=True)}
    entities = list(graph.entities)
    names = list(graph.relations)
    triples = graph.triples()
    kept = np.array([(entities[h], names[r], entities[t]) in seen for h, r, t in triples.tolist()])
    return Graph.of(graph.entities, graph.relations, triples[kept], types=graph.types, labels=graph.labels)


def benchmark_graph(folder: Path, name: str) -> Graph:
    """What may be trained on for a benchmark."""
    freebase = folder.parent / "fb15k-237"
    if name == FREEBASE_LINKS:
        return compile_graph([freebase / "train.tsv.gz"], names=freebase / "entity2text.txt", literals="keep")
    return freebase_without_test(freebase) if name == FREEBASE else benchmark_of(name).known_graph


def benchmark_of(name: str) -> Benchmark:
    """A benchmark in the data home or the catalogue, or a fold of one: `nell-one/0`."""
    name, _, fold = name.partition("/")
    stored = data_home() / name
    benchmark = open_benchmark(stored if stored.exists() else name)
    return fold_benchmark(benchmark, int(fold)) if fold else benchmark


def side_by_side(work: Any, jobs: Iterable[Sequence[Any]], at_once: int) -> None:
    """Run jobs in forked processes, some at a time; a job that fails does not stop the others."""
    fork = multiprocessing.get_context("fork")
    waiting = [fork.Process(target=work, args=job) for job in jobs]
    running: list[Any] = []
    while waiting or running:
        running = [process for process in running if process.is_alive()]
        while waiting and len(running) < at_once:
            running.append(waiting.pop(0))
            running[-1].start()
        time.sleep(0.2)


def learn(
    name: str,
    out: Path,
    sources: Sources,
    shares: Mapping[str, float],
    changes: Mapping[str, Any],
    start: Path | None,
    until: float,
    more: Sequence[str],
    edges: int | None = None,
) -> None:
    """Train one network and write its weights; with `edges`, on neighbourhoods of about so many."""
    began = time.time()
    if edges is not None:
        torch.set_num_threads(1)  # a second thread slows small operations down
    settings = TrailSettings(**changes).adjusted(list(more))  # made here, as it asks for the GPU
    weights = None
    before = {}
    if start is not None:
        weights = load_file(start)
        before = read_weights(start.read_bytes(), start.name).facts
    each_share = [shares[each] for each in sources]
    kind = PooledLearner if edges is None else NeighbourhoodPool
    learner = kind(list(sources.values()), settings, weights, each_share, until - began)
    if edges is not None and isinstance(learner, NeighbourhoodPool):
        learner.part_edges = edges
    step = 0
    losses = []
    waited = 0.0
    told = began
    while step < settings.steps and time.time() < until:
        count = min(25, settings.steps - step)
        result = learner.run_steps(step, count)
        losses.append(result.losses["loss"].mean())
        waited += result.sampling_seconds
        step += count
        if time.time() - told > 15 or step == settings.steps:
            told = time.time()
            loss = float(torch.stack(losses).mean())
            losses = []
            seconds = {"seconds": round(told - began, 1), "waited": round(waited, 1)}
            say(name, step=step, loss=round(loss, 4), **seconds, gb=memory())
    shape = Shape(settings.width, settings.layers, settings.relation_layers)
    step += before["step"] if before.get("graphs") == sorted(sources) else 0
    facts = {"graphs": sorted(sources), "step": step, "seed": settings.seed}
    if start is not None:
        facts["start"] = {key: before.get(key) for key in ("sha256", "graphs", "step")}
    write_weights(out / f"{name}.safetensors", learner.averaged, shape, **facts)


def memory() -> float:
    return round(torch.cuda.max_memory_allocated() / 2**30, 1) if torch.cuda.is_available() else 0.0


def say(name: str, **facts: Any) -> None:
    print(json.dumps({"job": name, **facts}), flush=True)


def train(options: argparse.Namespace) -> None:
    began = time.time()
    sources, shares = read_pool(options.graphs)
    say("graphs", count=len(sources), seconds=round(time.time() - began, 1))
    jobs = []
    for seed, variant in itertools.product(options.seeds, options.variants):
        chosen = {each: own for each, own in sources.items() if variant != "few-graphs" or each in NAMED_SHARES}
        changes = {**settings_of(options), "seed": seed, **VARIANTS[variant]}
        start = options.start / f"{variant}-{seed}.safetensors" if options.start else None
        until = began + options.seconds
        jobs.append((f"{variant}-{seed}", options.out, chosen, shares, changes, start, until, options.set))
    side_by_side(learn, jobs, options.jobs)


def tune(options: argparse.Namespace) -> None:
    began = time.time()
    sources = read_sources(
        options.on, [functools.partial(benchmark_graph, options.graphs, name) for name in options.on]
    )
    jobs = []
    for name, source in sources.items():
        for weights in options.weights:
            seed = read_weights(weights.read_bytes(), weights.name).facts["seed"]
            changes = {**settings_of(options), "learning_rate": 5e-4, "average": 0.99, "seed": seed}
            job = f"{weights.stem}-{name.replace('/', '-fold')}"
            until = began + options.seconds
            own = {name: source}, {name: 1.0}
            jobs.append((job, options.out, *own, changes, weights, until, options.set, options.edges))
    side_by_side(learn, jobs, options.jobs)


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    return {"steps": options.steps, "width": options.width, "device": options.device, "skewed": 0.35}


def measure(options: argparse.Namespace) -> None:
    benchmarks = [benchmark_of(name) for name in options.on]
    for benchmark in benchmarks:
        _ = benchmark.known_graph  # made before the processes start
    side_by_side(measure_one, [(weights, benchmarks, options) for weights in options.weights], options.jobs)


def measure_one(weights: Path, benchmarks: Sequence[Benchmark], options: argparse.Namespace) -> None:
    """Store the records of one file of weights."""
    shipped = read_weights(weights.read_bytes(), weights.name)
    network = shipped.network().to(options.device)
    seed = int(shipped.facts["seed"])
    config = {"program": "benchmarks/pretrain.py", "measured": {"weights": shipped.facts}}
    store = RecordStore(options.out)
    for benchmark in benchmarks:
        with_names = TrailScorer(weights.stem, network, ReadGraph.of(benchmark.known_graph).to(options.device))
        scorers = {"on": without_evidence(with_names, options.without), "off": with_names.without_names()}
        for names, shots in itertools.product(options.names, options.shots):
            cached = CachedScorer(scorers[names])  # a later protocol with fewer candidates costs nothing
            for candidates in options.candidates:
                protocol = Protocol(split=options.split, shots=shots, candidates=candidates, seed=seed)
                found = evaluate(benchmark, cached, protocol)
                model = options.model if names == "on" else f"{options.model}-no-names"
                facts = {"benchmark": benchmark.name, "data_sha256": benchmark.fingerprint, "model": model}
                store.add(make_record(found, **facts, config=config), ranks=QueryRanks.of(found), replace=True)
                mrr = round(found.metrics()["micro"]["mrr"], 4)
                say(weights.stem, **facts, shots=shots, candidates=candidates, mrr=mrr, seconds=round(found.seconds, 1))


class Links:
    """TRAIL in the place of a table of vectors: all known pairs of a relation are its references."""

    def __init__(self, scorer: TrailScorer, graph: Graph) -> None:
        self.scorer = scorer
        self.entities = torch.zeros(len(graph.entities), 0, device=scorer.device)
        self.relations = torch.zeros(2 * len(graph.relations), 0)
        self.triples = graph.triples()
        self.everyone = np.arange(len(graph.entities))
        self.hidden: dict[int, TrailScorer] = {}

    def score_all(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Scores (rows, entities)."""
        scores = torch.empty(len(heads), len(self.entities), device=self.scorer.device)
        half = len(self.relations) // 2
        for relation in relations.unique().tolist():
            rows = relations == relation
            pairs = self.triples[self.triples[:, 1] == relation % half][:, [0, 2]]
            pairs = pairs[:, ::-1] if relation >= half else pairs
            if relation not in self.hidden:
                self.hidden[relation] = TrailScorer(
                    "",
                    self.scorer.network,
                    self.scorer.graph.without(self.scorer.graph.graph.relations[relation % half]),
                )
            question = Question("", np.ascontiguousarray(pairs), heads[rows].cpu().numpy(), self.everyone)
            scores[rows] = self.hidden[relation](question).float()
        return scores


def measure_links(options: argparse.Namespace) -> None:
    """Ordinary link prediction, both ends of test triples among all entities, all known pairs as references."""
    graph, splits = read_splits(*options.links)
    known = np.concatenate(list(splits.values()))
    test = splits["test"]
    if len(test) > options.most:
        test = test[np.sort(np.random.default_rng(0).choice(len(test), options.most, replace=False))]
    if options.names:
        graph = compile_graph([options.links[0]], names=options.names, literals="keep")
    order = np.argsort(test[:, 1], kind="stable")
    jobs = [(weights, graph, test[order], known, options) for weights in options.weights]
    side_by_side(links_of, jobs, options.jobs)


def links_of(weights: Path, graph: Graph, test: np.ndarray, known: np.ndarray, options: argparse.Namespace) -> None:
    shipped = read_weights(weights.read_bytes(), weights.name)
    began = time.time()
    read = ReadGraph.of(graph).to(options.device)
    with_names = TrailScorer(weights.stem, shipped.network().to(options.device), read)
    for names in ("names", "no-names") if read.reads_names else ("no-names",):
        scorer = with_names if names == "names" else with_names.without_names()
        found: Any = rank_links(Links(scorer, graph), test, known, "test").metrics()["micro"]  # type: ignore[arg-type]
        graph_name = options.links[0].parent.name
        figures = {each: round(found[each], 4) for each in ("mrr", "hits@1", "hits@10")}
        facts = {"names": names == "names", "seed": shipped.facts["seed"], "triples": len(test), **figures}
        row = {"graph": graph_name, "weights": options.model, **facts, "sha256": shipped.facts["sha256"]}
        say(weights.stem, **row, seconds=round(time.time() - began, 1))
        with (options.out / LINKS).open("a") as lines:
            lines.write(json.dumps(row) + "\n")


def measure_own(options: argparse.Namespace) -> None:
    """Each half of a graph's hidden relations, before and after a training on its other relations."""
    graphs = suite(options.graphs, options.on)
    jobs = [(listed, half, weights, options) for weights in options.weights for listed in graphs for half in (0, 1)]
    jobs.sort(key=lambda job: -job[0].size)
    side_by_side(own_of, jobs, options.jobs)


def own_of(listed: Listed, half: int, weights: Path, options: argparse.Namespace) -> None:
    began = time.time()
    graph = listed.graph()
    shipped = read_weights(weights.read_bytes(), weights.name)
    hidden = hidden_relations(graph, listed.name, options.relations)[half::2]
    known = graph.without(np.array([each.relation for each in hidden]))
    source = EpisodeSource(known, ReadGraph.of(known), TrailSettings(device="cpu"))
    before = shipped.network().to(options.device)
    after = shipped.network().to(options.device)
    if source.pairs:
        changes = {**settings_of(options), "learning_rate": 5e-4, "average": 0.99, "seed": shipped.facts["seed"]}
        learner = PooledLearner([source], TrailSettings(**changes).adjusted(options.set), before.state_dict())
        learner.run_steps(0, options.steps)
        after.load_state_dict(learner.averaged)
    rows = []
    read = ReadGraph.of(graph).to(options.device)
    for each in hidden:
        curves = [curve_of(graph, TrailScorer("", net, read).without(each.name), each) for net in (before, after)]
        figures = {size: [curve[size][COLUMNS.index("mrr")] for curve in curves] for size in curves[0]}
        rows.append({"relation": each.name, "mrr": figures})
    facts = {"graph": listed.name, "half": half, "seed": shipped.facts["seed"], "steps": options.steps}
    facts["sha256"] = shipped.facts["sha256"]
    with (options.out / OWN).open("a") as lines:
        lines.writelines(json.dumps({**facts, **row}) + "\n" for row in rows)
    say(weights.stem, **facts, relations=len(hidden), seconds=round(time.time() - began, 1))


def record(options: argparse.Namespace) -> None:
    """Write the records of what `links` and `own` measured."""
    links, own = (
        [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        for path in (options.out / LINKS, options.out / OWN)
    )
    if links:
        measured = {(row["graph"], row["weights"], row["names"]) for row in links}
        before = (read_record("trail-links") or {"rows": []})["rows"]
        kept = [row for row in before if (row["graph"], row["weights"], row["names"]) not in measured]
        rows = sorted([*kept, *links], key=lambda row: (row["graph"], row["weights"], row["names"], row["seed"]))
        write_record("trail-links", {"hardware": hardware(), "rows": rows})
    if own:
        write_record("own-training", {"hardware": hardware(), "rows": own})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = {name: commands.add_parser(name) for name in ("train", "tune", "evaluate", "links", "own", "record")}
    for name in ("train", "tune", "own"):
        made[name].add_argument("graphs", type=Path, help="folder of graphs with an INDEX.tsv")
    for name, command in made.items():
        command.add_argument("out", type=Path)
        if name != "record":
            command.add_argument("--device", default="cuda", help="cuda or cpu")
            command.add_argument("--jobs", type=int, default=5, help="processes side by side")
    for name in ("tune", "evaluate", "links", "own"):
        made[name].add_argument("weights", type=Path, nargs="+")
    for name in ("tune", "evaluate"):
        made[name].add_argument("--on", nargs="+", default=[NELL], help="benchmarks, or a fold: nell-one/0")
    for name in ("train", "tune", "own"):
        made[name].add_argument("--steps", type=int, default={"train": 5000, "tune": 600, "own": 300}[name])
        made[name].add_argument("--seconds", type=float, default=1e9, help="end after so many at the latest")
        made[name].add_argument("--width", type=int, default=32)
        made[name].add_argument("--set", nargs="*", default=[], help="settings, such as queries=4")
    made["tune"].add_argument("--edges", type=int, help="of an episode's neighbourhood; by default, all edges are read")
    made["train"].add_argument("--variants", nargs="+", choices=VARIANTS, default=["main"])
    made["train"].add_argument("--start", type=Path, help="folder of weights to go on with")
    made["train"].add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    for name in ("evaluate", "links"):
        made[name].add_argument("--model", default="trail-pretrained", help="name in records")
    made["evaluate"].add_argument("--split", default="test")
    made["evaluate"].add_argument("--shots", type=int, nargs="+", default=[3])
    made["evaluate"].add_argument(
        "--candidates", nargs="+", default=["full"], help="protocols, the one with the most candidates first"
    )
    made["evaluate"].add_argument("--names", nargs="+", choices=["on", "off"], default=["on", "off"])
    made["evaluate"].add_argument(
        "--without", nargs="+", default=[], choices=NAME_EVIDENCE, help="what TRAIL does not read of names"
    )
    made["links"].add_argument("--links", type=Path, nargs=3, required=True, metavar=("TRAIN", "VALID", "TEST"))
    made["links"].add_argument("--names", type=Path, help="a file of the entities' names")
    made["links"].add_argument("--most", type=int, default=4000, help="test triples, at most")
    made["own"].add_argument("--on", nargs="+", default=[], help="some of the graphs that are marked never train")
    made["own"].add_argument("--relations", type=int, default=RELATIONS, help="relations of a graph, at most")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    work = {
        "train": train,
        "tune": tune,
        "evaluate": measure,
        "links": measure_links,
        "own": measure_own,
        "record": record,
    }
    work[options.command](options)


if __name__ == "__main__":
    main()
