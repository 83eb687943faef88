"""Link prediction on graphs that TRAIL was not trained on, with one to all known pairs as references.

    python -m fewlink.studies.unseen_graphs GRAPHS --models trail rules --device cuda

GRAPHS is a folder with `INDEX.tsv` (columns `name` and `use`, and what else is known of each graph), and for each graph
`NAME.tsv.xz` and, if its entities have names, `NAME.names.tsv.xz`. The suite is the graphs whose use is `never train`.

**Relations.** Of each graph, every relation with at least `FEWEST` pairs, at most `RELATIONS` of them (drawn by a fixed
seed), is hidden in turn; tails are asked for, given heads. Of the relation's pairs in random order, the first
`min(ASKED, half)` are asked; the others are the pool of references.

**References.** The first K of the pool, for each K of `SIZES`; `all` is the whole pool, and a K beyond it is the whole
pool too. Every model gets the same asked pairs and references.

**Candidates.** As a user has them: all entities if the graph has no types, else those of the protocol `open`. Other
known tails of the head do not compete. Ranks are realistic.

**Skewed references.** Three references, and with them ten or thirty pairs of the tail that is most frequent in the
pool; asked are the pairs with other tails, if there are at least `FEWEST_OTHERS`. And three references with the ten of
the next `CURATED` pairs of the pool that the model itself scores highest, as a curator finds them who decides the
best answers first.

**Means.** Over the asked pairs of a relation, then over relations, then over graphs.

Models read the graph without the relation. ComplEx has to be trained on it instead, with the references as triples:
relations are hidden in groups of `TOGETHER`, and one training serves a group and K; at K = all it serves the graph,
since only asked pairs are left out. It has no skewed references.

The record of a model and seed on a graph is `RESULTS/MODEL/GRAPH.SEED.json`; what has one is not measured again.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fewlink import __version__
from fewlink.core.distributed import use_device
from fewlink.core.errors import FewlinkError, InputError, choose
from fewlink.core.files import read_json, write_bytes
from fewlink.core.memory import command_line, hardware
from fewlink.core.progress import duration, progress, tell
from fewlink.core.seeds import generator
from fewlink.evaluation.evaluator import rank_queries
from fewlink.graph import Graph, compile_graph
from fewlink.models.baselines.embedding import EmbeddingScorer
from fewlink.models.baselines.learning_free import LEARNING_FREE, learning_free
from fewlink.models.baselines.links import link_settings
from fewlink.models.checkpoints import load_best
from fewlink.models.contract import Question, Scorer
from fewlink.models.embeddings import EmbeddingSettings, train
from fewlink.models.published import PUBLISHED
from fewlink.models.run import RunConfig
from fewlink.models.trail.learner import network_of
from fewlink.models.trail.names import NAME_RELATIONS
from fewlink.models.trail.network import TrailNetwork
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.trail.shipped import read_weights, shipped
from fewlink.models.weights import check_weights
from fewlink.studies.unseen_tables import ALL, COLUMNS, FORMAT, OF_ONE_TAIL, OTHERS, OWN, SIZES, Figure, stored_tables
from fewlink.tasks.benchmark import Task, sorted_pairs
from fewlink.tasks.candidates import Candidates, candidates_of

SEED = 0  # of everything that is drawn
FEWEST = 20
RELATIONS = 30
ASKED = 50
BASE = 3  # references that skewed sets begin with
FEWEST_OTHERS = 5
OWN_BEST = 10
CURATED = 64
FEWEST_CURATED = 20
TOGETHER = 5  # relations that are hidden side by side from a model that is trained
BATCH = 1000  # examples of a step of training
NAME_EVIDENCE = ("same", "contain", "vectors")  # what TRAIL reads of names
MODELS = ("trail", "trail-no-names", *PUBLISHED, "complex", *(name for name in LEARNING_FREE if name != "random"))
Row = list[Figure]  # in the order of COLUMNS
Rows = dict[str, Row]  # by the name of the references: a size, or a skewed set
Advanced = Callable[[float], None]  # is called with the share that is done


class Listed(NamedTuple):
    """A graph of the suite: its name, its files, and what the index says about it."""

    name: str
    triples: Path
    names: Path | None
    about: dict[str, str]

    def graph(self) -> Graph:
        return compile_graph([self.triples], names=self.names, literals="keep")


def suite(folder: Path, only: Sequence[str] = ()) -> list[Listed]:
    """The graphs of a folder that no model may be trained on, or some of them."""
    index = folder / "INDEX.tsv"
    try:
        with index.open(encoding="utf-8", newline="") as file:
            rows = {row["name"]: row for row in csv.DictReader(file, delimiter="\t") if row["use"] == "never train"}
    except OSError as error:
        raise InputError(index, f"cannot be read ({error.strerror}): give a folder of graphs with an index") from None
    except KeyError as error:
        raise InputError(index, f"has no column {error}: it must have `name` and `use`") from None
    graphs = []
    for name in only or rows:
        names = folder / f"{name}.names.tsv.xz"
        about = choose("graph", name, rows)
        graphs.append(Listed(name, folder / f"{name}.tsv.xz", names if names.exists() else None, about))
    return graphs


class Hidden(NamedTuple):
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


def candidates_for(graph: Graph, hidden: Hidden, references: np.ndarray) -> Candidates:
    """The tails that compete."""
    return candidates_of("full" if graph.types is None else "open", hidden.task, references, graph)


def row_of(graph: Graph, scorer: Scorer, hidden: Hidden, references: np.ndarray, asked: np.ndarray) -> Row:
    """The figures of a scorer on asked pairs (q, 2), given references (K, 2)."""
    pool = candidates_for(graph, hidden, references)
    ranks, _ = rank_queries(scorer, hidden.task, references, pool, asked)
    seen = np.isin(asked[:, 1], references[:, 1])
    means = [mean_of(gains) for gains in (1 / ranks, ranks <= 1, ranks <= 10)]
    split = [mean_of(1 / ranks[seen]), mean_of(1 / ranks[~seen])]
    return [len(references), len(asked), *means, int(seen.sum()), *split]


def mean_of(gains: np.ndarray) -> Figure:
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


class Reader(NamedTuple):
    """A model that reads the graph and the references, and is not trained on either.

    `on` makes, from a graph, a function from a hidden relation to a scorer.
    """

    name: str
    facts: dict[str, Any]
    on: Callable[[Graph], Callable[[Hidden], Scorer]]

    def measure(self, graph: Graph, hidden: Sequence[Hidden], advance: Advanced) -> dict[str, Rows]:
        rows = {}
        scorer_of = self.on(graph)
        for number, each in enumerate(hidden, 1):
            scorer = scorer_of(each)
            rows[each.name] = {**curve_of(graph, scorer, each), **skewed_rows(graph, scorer, each)}
            advance(number / len(hidden))
        return rows


class Trained(NamedTuple):
    """ComplEx, trained on the graph with the references as triples.

    It has the settings of `fewlink links` for a graph of this size, with larger batches and, on a GPU, products in
    TF32, because there are many trainings.
    """

    name: str
    seed: int
    device: str

    @property
    def facts(self) -> dict[str, Any]:
        return {"settings": f"as fewlink links chooses by the number of entities, batch_size at least {BATCH}, TF32"}

    def settings(self, graph: Graph) -> EmbeddingSettings:
        settings = link_settings("complex", len(graph.entities), self.seed, self.device)
        return settings.replace(batch_size=max(BATCH, settings.batch_size))

    def measure(self, graph: Graph, hidden: Sequence[Hidden], advance: Advanced) -> dict[str, Rows]:
        torch.set_float32_matmul_precision("high")  # TF32 on a GPU
        rows: dict[str, Rows] = {each.name: {} for each in hidden}
        groups = groups_of(hidden)
        for number, group in enumerate(groups, 1):
            for size in SIZES[:-1]:
                scorer = self._scorer(graph, group, size)
                for each in group:
                    rows[each.name][size] = row_of(graph, scorer, each, each.references(size), each.asked)
            advance(number / (len(groups) + 1))
        scorer = self._scorer(graph, hidden, ALL)
        for each in hidden:
            rows[each.name][ALL] = row_of(graph, scorer, each, each.references(ALL), each.asked)
        return rows

    def _scorer(self, graph: Graph, group: Sequence[Hidden], size: str) -> EmbeddingScorer:
        triples = training_triples(graph, group, size)
        vectors = train(triples, len(graph.entities), len(graph.relations), self.settings(graph))
        return EmbeddingScorer(vectors, list(graph.relations), self.device)


def groups_of(hidden: Sequence[Hidden]) -> list[Sequence[Hidden]]:
    """Relations that are hidden side by side: groups of nearly the same size, of at most `TOGETHER`."""
    count = -(-len(hidden) // TOGETHER)
    return [hidden[number::count] for number in range(count)]


def training_triples(graph: Graph, group: Sequence[Hidden], size: str) -> np.ndarray:
    """The triples (n, 3) of a graph in which the relations of a group have their references only."""
    triples = graph.triples()
    kept = triples[~np.isin(triples[:, 1], [each.relation for each in group])]
    given = [np.insert(each.references(size), 1, each.relation, axis=1) for each in group]
    return np.concatenate([kept, *given]).astype(np.int32)


Model = Reader | Trained


def trail_model(
    name: str, network: TrailNetwork, facts: dict[str, Any], device: str, *, names: bool, without: Sequence[str] = ()
) -> Reader:
    """TRAIL with these weights, with or without names, or `without` a part of what it reads of them."""
    network = network.to(device)

    def on(graph: Graph) -> Callable[[Hidden], Scorer]:
        whole = TrailScorer(name, network, ReadGraph.of(graph, names=names).to(device))
        scorer = without_evidence(whole, without)
        return lambda hidden: scorer.without(hidden.name)

    return Reader(name, {"weights": facts, **({"without": list(without)} if without else {})}, on)


def without_evidence(scorer: TrailScorer, without: Sequence[str]) -> TrailScorer:
    """TRAIL without some of what it reads of names, `NAME_EVIDENCE`."""
    for evidence in without if scorer.graph.reads_names else ():
        if evidence == "vectors":
            scorer = scorer.with_vectors(None)
        else:
            scorer = scorer.without(NAME_RELATIONS[NAME_EVIDENCE.index(evidence)])
    return scorer


def published_model(model: str, file: Path, device: str) -> Reader:
    """ULTRA or TRIX with the weights of a file."""
    family = PUBLISHED[model]
    checkpoint = family.read(file)
    name = family.name_of(file)
    network = checkpoint.network().to(device)

    def on(graph: Graph) -> Callable[[Hidden], Scorer]:
        read = ReadGraph.of(graph, names=False).to(device)
        return lambda hidden: family.scorer_class(name, network, read.without(hidden.name))

    return Reader(name, {"weights": checkpoint.facts}, on)


def learning_free_model(name: str) -> Reader:
    def on(graph: Graph) -> Callable[[Hidden], Scorer]:
        return lambda hidden: learning_free(name, graph.without(np.array([hidden.relation])))

    return Reader(name, {}, on)


def trail_network(weights: Path | None) -> tuple[TrailNetwork, dict[str, Any]]:
    """The network with the built-in weights, those of a file or those of a run folder; and what is known of them."""
    if weights is None:
        return shipped().network(), shipped().facts
    if weights.is_dir():
        settings = RunConfig.read(weights).settings
        if not isinstance(settings, TrailSettings):
            raise FewlinkError(f"{weights} is a run of {settings.model}: give a run of trail")
        network = network_of(settings)
        tensors, step = load_best(weights)
        check_weights(network.state_dict(), tensors, weights)
        network.load_state_dict(tensors)
        return network, {"run": weights.name, "step": step}
    try:
        made = read_weights(weights.read_bytes(), str(weights))
    except OSError as error:
        raise InputError(weights, f"cannot be read ({error.strerror}): give weights of trail") from None
    return made.network(), {**made.facts, "file": weights.name}


class Measurement(NamedTuple):
    """A model to measure, under a seed, and the name its records get."""

    label: str
    seed: int
    model: Model


def measurements(
    models: Sequence[str],
    device: str,
    *,
    weights: Sequence[Path] = (),
    checkpoint: Path | None = None,
    seeds: int = 1,
    label: str = "trail",
    without: Sequence[str] = (),
) -> Iterator[Measurement]:
    """The models to measure by name, under each seed: TRAIL's n-th weights are of seed n."""
    for name in models:
        if name in ("trail", "trail-no-names"):
            names = name == "trail"
            for seed, file in enumerate(weights or [None]):
                model = trail_model(name, *trail_network(file), device, names=names, without=without)
                yield Measurement(label if names else f"{label}-no-names", seed, model)
        elif name in PUBLISHED:
            if checkpoint is None:
                raise FewlinkError(f"{name} needs its weights: give --checkpoint FILE, or choose other --models")
            model = published_model(name, checkpoint, device)
            yield Measurement(model.name, 0, model)
        elif name == "complex":
            for seed in range(seeds):
                yield Measurement(name, seed, Trained(name, seed, device))
        else:
            choose("model", name, dict.fromkeys(MODELS))
            yield Measurement(name, 0, learning_free_model(name))


def record_path(results: Path, label: str, graph: str, seed: int) -> Path:
    return results / label / f"{graph}.{seed}.json"


def is_measured(path: Path, facts: dict[str, Any]) -> bool:
    """Whether a record exists; raises if it is of other weights or settings."""
    if not path.exists():
        return False
    if read_json(path)["config"] != json.loads(json.dumps(facts)):
        raise InputError(path, "has figures of other weights or settings: remove it, or give --replace or --label")
    return True


def measure(each: Measurement, listed: Listed, results: Path, advance: Advanced, most: int = RELATIONS) -> Path:
    """Measure a model on a graph, and write the record."""
    graph = listed.graph()
    begin = time.monotonic()
    hidden = hidden_relations(graph, listed.name, most)
    rows = each.model.measure(graph, hidden, advance)
    record = {
        "format": FORMAT,
        "model": each.label,
        "seed": each.seed,
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
        "config": each.model.facts,
        "version": __version__,
        "hardware": hardware(),
        "seconds": round(time.monotonic() - begin, 1),
        "columns": COLUMNS,
        "relations": {own.name: {"pairs": len(own.task.pairs), "rows": rows[own.name]} for own in hidden},
    }
    path = record_path(results, each.label, listed.name, each.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, record_text(record).encode())
    return path


def record_text(record: dict[str, Any]) -> str:
    """JSON with one line for each fact and each relation."""
    lines = [f"{_json(key)}: {_json(value)}" for key, value in record.items() if key != "relations"]
    relations = ",\n".join(f" {_json(name)}: {_json(own)}" for name, own in record["relations"].items())
    return "{\n" + ",\n".join([*lines, '"relations": {\n' + relations + "\n}"]) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def run(
    planned: Sequence[Measurement],
    graphs: Sequence[Listed],
    results: Path,
    *,
    replace: bool = False,
    most: int = RELATIONS,
) -> None:
    """Measure what has no record yet, graph by graph, the small ones first, with at most so many relations of each."""
    todo = []
    for each in planned:
        for listed in graphs:
            path = record_path(results, each.label, listed.name, each.seed)
            if replace or not is_measured(path, each.model.facts):
                todo.append((each, listed))
    todo.sort(key=lambda pair: pair[1].triples.stat().st_size)
    work = [listed.triples.stat().st_size for _, listed in todo]
    begin = time.monotonic()
    done = 0
    tell(f"{len(todo)} of {len(planned) * len(graphs)} records to make, in {results}")
    with progress("unseen graphs", sum(work)) as advance:
        for (each, listed), size in zip(todo, work, strict=True):
            title = f"{each.label} on {listed.name}"
            before = done
            started = time.monotonic()

            def told(share: float, title: str = title, before: int = before, size: int = size) -> None:
                reached = before + share * size
                left = (time.monotonic() - begin) * (sum(work) / reached - 1)
                advance(reached, f"{title}, about {duration(left)} left")

            path = measure(each, listed, results, told, most)
            done += size
            tell(f"{path} ({duration(time.monotonic() - started)})")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fewlink.studies.unseen_graphs",
        description="Measure models on graphs that TRAIL was not trained on, with one to all known pairs.",
    )
    parser.add_argument("folder", type=Path, help="folder of graphs with INDEX.tsv")
    parser.add_argument("--models", nargs="+", default=["trail", "trail-no-names"], help=", ".join(MODELS))
    parser.add_argument("--graphs", nargs="+", default=[], help="some of the graphs that are marked never train")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument(
        "--weights", nargs="+", type=Path, default=[], help="files or run folders of TRAIL, one for each seed"
    )
    parser.add_argument("--label", default="trail", help="name of these weights in records")
    parser.add_argument(
        "--without", nargs="+", default=[], choices=NAME_EVIDENCE, help="what TRAIL does not read of names"
    )
    parser.add_argument("--relations", type=int, default=RELATIONS, help="relations of a graph, at most")
    parser.add_argument("--checkpoint", type=Path, help="file of the published weights of ultra or trix")
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings of ComplEx")
    parser.add_argument("--results", type=Path, default=Path("results/unseen-graphs"), help="folder of records")
    parser.add_argument("--replace", action="store_true", help="measure again what has a record")
    parser.add_argument("--tables", action="store_true", help="measure nothing; print the tables of all records")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    given = arguments().parse_args(words)
    try:
        if given.tables:
            print("\n".join(f"## {table.title}\n\n{table.markdown()}" for table in stored_tables(given.results)))
            return 0
        use_device(given.device)
        graphs = suite(given.folder, given.graphs)
        planned = measurements(
            given.models,
            given.device,
            weights=given.weights,
            checkpoint=given.checkpoint,
            seeds=given.seeds,
            label=given.label,
            without=given.without,
        )
        run(list(planned), graphs, given.results, replace=given.replace, most=given.relations)
    except FewlinkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
