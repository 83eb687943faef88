"""A test in time: the links that MITRE's analysts added to ATT&CK after 2023, ranked in the graph of 2023.

    python experiments/later_links.py --tiny
    python experiments/later_links.py --checkpoint ultra_4g.pth

Both ends of these links were already in the graph. Each relation is queried in two ways: as a new one, hidden from the
graph and with a few of its pairs as references; and as it is, with all its pairs. A tail is ranked among all entities
of its type that the head had no link to.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common import Experiment, Table, link_settings, options, print_tables, run, short
from early_stopping import train_with_validation
from fewlink.core.errors import FewlinkError, choose
from fewlink.core.progress import tell
from fewlink.core.seeds import generator
from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks
from fewlink.evaluation.records import QueryRanks, Record, RecordStore, make_record, read_ranks
from fewlink.graph import Graph
from fewlink.linker import Linker
from fewlink.models.baselines import learning_free
from fewlink.models.contract import Question, Scorer, realistic_rank
from fewlink.models.embeddings.family import EmbeddingScorer, train_baseline
from fewlink.models.published import PUBLISHED, model_of
from fewlink.models.trail.shipped import shipped
from fewlink.tasks.benchmark import Benchmark, Task
from fewlink.tasks.candidates import task_of_pairs
from fewlink.tasks.catalogue import attack_dates, attack_graph

NAME = "attack-2023"  # of the benchmark in records
LAST_DAY = "2023-12-31"  # of the frozen graph
BUILT_IN = "trail-no-names-built-in"  # in records: the built-in weights, which were not trained on ATT&CK
MODELS = ("popularity", "rules", "complex", "ultra", "trix", "trail")
TINY_MODELS = ("popularity", "rules")
TINY_RELATIONS = ("group_uses_malware", "tool_uses_technique")
ORDER = ("popularity", "rules", "complex", "ultra", "trix", BUILT_IN)
SHOTS = (3, 5)
DRAWS = 3
CREATED = ("_runs_on_platform", "_serves_tactic", "_in_sector", "technique_impacts")  # dated by the head's creation
FEWEST = 15  # later links of an evaluated relation
FIRST = 20  # answers that an analyst reads
SURE = 0.8  # the probability of a sure answer
COMPLEX_DIM = 100  # smaller than for link prediction: each relation and draw needs its own training
COMPLEX_N3 = 0.03  # as the search on the frozen graph chose it
CHANCES = ("sure", "sure_right", "first", "first_right", "expected")
ALL = 0  # shots of a record: all known pairs are references
MIN_LINKS_FOR_COLUMN = 50  # later links of a relation
MAX_LINKS_SHOWN = 15


# The graph of 2023, and what came later


@dataclass(frozen=True, eq=False)
class FrozenGraph:
    """A graph up to a day, and by relation the pairs (n, 2) of its entities that were linked later, with dates."""

    graph: Graph
    later: Mapping[str, np.ndarray]
    days: Mapping[str, Sequence[str]]

    @functools.cached_property
    def fingerprint(self) -> str:
        """The sha256 of the graph and of the later links."""
        digest = hashlib.sha256(self.graph.fingerprint.encode())
        for relation, pairs in self.later.items():
            digest.update(relation.encode() + np.ascontiguousarray(pairs, "<i4").tobytes())
        return digest.hexdigest()

    def only(self, relations: Sequence[str]) -> FrozenGraph:
        """The later links of these relations."""
        later = {name: choose("relation with later links", name, self.later) for name in relations}
        return FrozenGraph(self.graph, later, {name: self.days[name] for name in relations})

    def task(self, relation: str) -> Task:
        """A task of a relation's pairs on the last day; its range is given by the types of their tails."""
        triples = self.graph.triples()
        pairs = triples[triples[:, 1] == self.graph.relations.find(relation)][:, [0, 2]]
        return task_of_pairs(self.graph, relation, pairs)

    def hidden(self, relation: str) -> Graph:
        """The graph without this relation."""
        return self.graph.without(np.array([self.graph.relations.find(relation)]))


def freeze(
    graph: Graph, days: Sequence[str], last: str, *, created: tuple[str, ...] = (), fewest: int = 1
) -> FrozenGraph:
    """Cut a graph whose triples have dates (YYYY-MM-DD) into its state on the last day and the later links.

    In a relation whose name ends in one of `created`, the date is the day on which the head was created. An entity
    created after the last day is left out with all its links, because a link can be older than an end that it was moved
    to. Relations with fewer than `fewest` later links have none.
    """
    triples = graph.triples()
    dated = np.array(days)
    attribute = np.array([name.endswith(created) for name in graph.relations])[triples[:, 1]]
    young = np.unique(triples[attribute & (dated > last), 0])
    old = (dated <= last) & ~np.isin(triples[:, [0, 2]], young).any(1)
    if not old.any():
        raise FewlinkError(f"no link dates from {last} or before: choose a later day")
    of_old = Graph.of(graph.entities, graph.relations, triples[old], types=graph.types, labels=graph.labels)
    entities = np.flatnonzero(of_old.degrees)
    relations = np.unique(triples[old, 1])
    number = np.full(len(graph.entities), -1)
    number[entities] = np.arange(len(entities))
    new = ~old & (number[triples[:, [0, 2]]] >= 0).all(1) & np.isin(triples[:, 1], relations)
    later = {}
    when = {}
    for relation in relations.tolist():
        rows = np.flatnonzero(new & (triples[:, 1] == relation))
        rows = rows[np.argsort(number[triples[rows, 0]], kind="stable")]
        if len(rows) >= fewest:
            later[graph.relations[relation]] = number[triples[rows][:, [0, 2]]].astype(np.int32)
            when[graph.relations[relation]] = dated[rows].tolist()
    return FrozenGraph(of_old.renumbered(entities, relations), later, when)


@functools.cache
def frozen_attack() -> FrozenGraph:
    """ATT&CK and CAPEC at the end of 2023."""
    return freeze(attack_graph(), attack_dates(), LAST_DAY, created=CREATED, fewest=FEWEST)


# Ranking the later links


@dataclass(frozen=True)
class Setting:
    """The number of references, and the number of their draw; with `ALL`, all known pairs are references."""

    shots: int
    draw: int

    @property
    def chosen(self) -> str:
        """The name of the references in records."""
        return self.protocol.references if self.shots else "all"

    @property
    def protocol(self) -> Protocol:
        return Protocol("test", self.shots or 1, "full", self.draw)

    def references(self, task: Task) -> np.ndarray:
        """A draw of the pairs known on the last day, or all of them."""
        return task.split(self.shots, self.draw)[0] if self.shots else task.pairs


def rank_later(scorer: Scorer, task: Task, references: np.ndarray, later: np.ndarray) -> tuple[TaskRanks, np.ndarray]:
    """Rank the tails of the later links (n, 2) of a relation; pairs known on the last day do not compete.

    Other later links do not compete for the ranks of figures; they do for those (n,) in the list that an analyst reads.
    """
    heads = np.unique(later[:, 0]).astype(np.int32)
    grid = np.asarray(scorer(Question(task.name, references, heads, task.range)))  # (heads, candidates)
    ranks = []
    listed = []
    counts = []
    for head, scores in zip(heads.tolist(), grid, strict=True):
        new = later[later[:, 0] == head, 1]
        unknown = ~np.isin(task.range, task.known_tails.get(head, ()))
        every = scores[unknown]
        others = scores[unknown & ~np.isin(task.range, new)]
        for tail in new.tolist():
            own = scores[task.range == tail][0]
            ranks.append(realistic_rank((others > own).sum(), (others == own).sum()))
            listed.append(realistic_rank((every > own).sum(), (every == own).sum() - 1))
            counts.append(len(others) + 1)
    tasks = TaskRanks(task.name, later, np.array(ranks, float), np.array(counts), len(task.range))
    return tasks, np.array(listed, float)


def chances(linker: Linker, task: Task, references: np.ndarray, later: np.ndarray) -> dict[str, float]:
    """Count the answers with p ≥ .8 (`sure`), the first answers of all heads, and the right ones among both.

    A pair is right if it was known on the last day or added later. `expected` is the sum of the first answers'
    probabilities. All counts are 0 if trust is too low for probabilities.
    """
    names = linker.graph.entities
    pairs = [(names[head], names[tail]) for head, tail in references.tolist()]
    heads = [names[head] for head in np.unique(later[:, 0]).tolist()]
    tails = [names[tail] for tail in task.range.tolist()]
    true = {(names[head], names[tail]) for head, tail in np.concatenate([task.known, later]).tolist()}
    counts = dict.fromkeys(CHANCES, 0.0)
    for row in linker.predict(pairs, heads, k=FIRST, candidates=tails):
        if row.probability is None:
            continue
        right = (row.head, row.tail) in true
        if row.probability >= SURE:
            counts["sure"] += 1
            counts["sure_right"] += right
        if row.rank < 2:
            counts["first"] += 1
            counts["first_right"] += right
            counts["expected"] += row.probability
    return counts


def scorer_of(
    experiment: Experiment, name: str, model: str, setting: Setting, relation: str, frozen: FrozenGraph, weights: Any
) -> Scorer:
    """The scorer of a model for a relation. Those that get references read the graph without the relation."""
    as_references = setting.shots or model in PUBLISHED
    graph = frozen.hidden(relation) if as_references else frozen.graph
    if model in PUBLISHED:
        return PUBLISHED[model].scorer_on(name, weights.network(), graph, experiment.device)
    if model != "complex":
        return learning_free(model, graph)
    if not setting.shots:
        return link_complex(frozen, experiment.device)
    settings = link_settings("complex", len(frozen.graph.entities), device=experiment.device)
    benchmark = Benchmark(NAME, graph, {"train": [], "dev": [], "test": [frozen.task(relation)]})
    few_shot = settings.replace(dim=COMPLEX_DIM, n3=COMPLEX_N3)
    return train_baseline(benchmark, few_shot, shots=setting.shots, draw=setting.draw)


@functools.cache
def link_complex(frozen: FrozenGraph, device: str) -> Scorer:
    """ComplEx trained on the whole graph, a twentieth of which chooses the epoch."""
    graph = frozen.graph
    triples = graph.triples()
    held = np.zeros(len(triples), bool)
    held[generator(0, "attack in time").permutation(len(triples))[: len(triples) // 20]] = True
    settings = link_settings("complex", len(graph.entities), device=device).replace(n3=COMPLEX_N3)
    sizes = len(graph.entities), len(graph.relations)
    vectors, _ = train_with_validation(triples[~held], triples[held], *sizes, settings)
    return EmbeddingScorer(vectors, list(graph.relations), device)


def measure(
    experiment: Experiment, name: str, model: str, setting: Setting, frozen: FrozenGraph, weights: Any
) -> tuple[Record, QueryRanks]:
    """Evaluate a model; return its record and the ranks of its queries."""
    begin = time.monotonic()
    answers: dict[str, tuple[TaskRanks, np.ndarray]] = {}
    counted: dict[str, dict[str, float]] = {}
    for relation, later in frozen.later.items():
        task = frozen.task(relation)
        references = setting.references(task)
        if model == "trail":
            nothing: dict[str, list[Task]] = {"train": [], "dev": [], "test": []}
            # names are left out: they are today's, not those of the last day
            linker = Linker.shipped(Benchmark(NAME, frozen.hidden(relation), nothing), names=False)
            scorer = linker.scorer
            if setting.shots:
                counted[relation] = chances(linker, task, references, later)
        else:
            scorer = scorer_of(experiment, name, model, setting, relation, frozen, weights)
        answers[relation] = rank_later(scorer, task, references, later)
    evaluation = Evaluation(setting.protocol, [tasks for tasks, _ in answers.values()], time.monotonic() - begin)
    facts: dict[str, Any] = {}
    if model == "trail":
        facts = {"weights": shipped().facts}
    elif model in PUBLISHED:
        facts = {"checkpoint": weights.facts}
    record = make_record(evaluation, benchmark=NAME, data_sha256=frozen.fingerprint, model=name, config=facts)
    relations: dict[str, Any] = {relation: dict(row) for relation, row in record.relations.items()}
    for relation, (_, listed) in answers.items():
        relations[relation][f"recall@{FIRST}"] = float((listed <= FIRST).mean())
        relations[relation] |= counted.get(relation, {})
    metrics: dict[str, Any] = {average: dict(row) for average, row in record.metrics.items()}
    every = np.concatenate([listed for _, listed in answers.values()])
    metrics["micro"][f"recall@{FIRST}"] = float((every <= FIRST).mean())
    metrics["macro"][f"recall@{FIRST}"] = float(np.mean([row[f"recall@{FIRST}"] for row in relations.values()]))
    changes: dict[str, Any] = {"metrics": metrics, "relations": relations}
    if setting.shots == ALL:
        changes |= {"shots": ALL, "references": setting.chosen}
    return record.model_copy(update=changes), QueryRanks.of(evaluation)


# Tables


def tables(store: RecordStore, shots: Sequence[int], frozen: FrozenGraph) -> list[Table]:
    """A table for each number of references, one of probabilities, and one of the links that were found."""
    records = [r for r in store.records if r.benchmark == NAME and r.data_sha256 == frozen.fingerprint]
    records.sort(key=lambda record: place_of(record.model))
    return [
        *(relations_table(records, count, frozen) for count in (*shots, ALL)),
        probabilities_table(records),
        links_table(store, frozen),
    ]


def place_of(model: str) -> int:
    """The position of a model in tables; models that are not in ORDER come last."""
    name = next((kind for kind in PUBLISHED if model.startswith(kind)), model)
    return ORDER.index(name) if name in ORDER else len(ORDER)


def relations_table(records: Sequence[Record], shots: int, frozen: FrozenGraph) -> Table:
    """MRR and recall@20 of each model, for all links and for each relation with enough of them."""
    sizes = {relation: len(pairs) for relation, pairs in frozen.later.items() if len(pairs) >= MIN_LINKS_FOR_COLUMN}
    large = sorted(sizes, key=lambda relation: -sizes[relation])
    columns = [f"all {sum(map(len, frozen.later.values()))}"]
    columns += [f"{relation.replace('_', ' ')} {sizes[relation]}" for relation in large]
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.shots == shots:
            groups.setdefault(record.model, []).append(record)
    rows = []
    for model, each in groups.items():
        cells = []
        for relation in ["", *large]:
            draws = [r.relations[relation] if relation else r.metrics["micro"] for r in each]
            means = [float(np.mean([draw[metric] for draw in draws])) for metric in ("mrr", f"recall@{FIRST}")]
            cells.append(" · ".join(map(short, means)))
        rows.append([model, *cells])
    title = f"{shots} references, relation hidden" if shots else "All known pairs, relation in the graph"
    draw_count = max(map(len, groups.values()), default=0)
    note = f"MRR · recall@{FIRST}"
    if draw_count > 1:
        note += f"; mean of {draw_count} draws of references"
    return Table(title, ["model", *columns], rows, note)


def probabilities_table(records: Sequence[Record]) -> Table:
    """The reliability of the probabilities of answers, over the draws of references."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        rows = [row for row in record.relations.values() if "sure" in row]
        groups.setdefault((record.model, record.shots), []).extend(rows)
    cells = []
    for (model, shots), rows in groups.items():
        if rows:
            sure, sure_right, first, right, expected = (sum(row[key] for row in rows) for key in CHANCES)
            share_right = short(right / first) if first else ""
            mean_probability = short(expected / first) if first else ""
            counts = [f"{sure:.0f}", f"{sure_right:.0f}", f"{first:.0f}"]
            cells.append([model, str(shots), *counts, share_right, mean_probability])
    columns = ["model", "K", f"answers with p ≥ {SURE:g}", "of them right", "first answers with a p", "right", "mean p"]
    note = "right: in ATT&CK at the end of 2023 (hidden from the model) or added later; others may still be added"
    return Table("Probabilities", columns, cells, note)


@dataclass(frozen=True)
class FoundLink:
    """A link that was added later, and its rank."""

    relation: str
    head: str
    tail: str
    day: str
    rank: float


def found_links(store: RecordStore, model: str, frozen: FrozenGraph, shots: int = ALL) -> list[FoundLink]:
    """The later links with their ranks in a stored record with the first draw of references, best first."""
    for file, record in store.places:
        same = (record.benchmark, record.model, record.shots) == (NAME, model, shots)
        if not same or record.references not in ("draw-1", "all"):
            continue
        ranks = read_ranks(file, record)
        if ranks is None:
            continue
        split_ranks = np.split(ranks.ranks, np.cumsum(ranks.counts)[:-1])
        links = []
        for relation, of_relation in zip(ranks.relations, split_ranks, strict=True):
            pairs = frozen.later[relation].tolist()
            for (head, tail), day, rank in zip(pairs, frozen.days[relation], of_relation.tolist(), strict=True):
                links.append(FoundLink(relation, frozen.graph.name(head), frozen.graph.name(tail), day, rank))
        return sorted(links, key=lambda link: (link.rank, link.day, link.head, link.tail))
    return []


def links_table(store: RecordStore, frozen: FrozenGraph) -> Table:
    """The best-ranked later links with their names, one for each head, of weights that never saw ATT&CK."""
    links = found_links(store, BUILT_IN, frozen)
    heads: set[str] = set()
    rows: list[list[str]] = []
    for link in links:
        if link.head not in heads and len(rows) < MAX_LINKS_SHOWN:
            rows.append([link.day, link.head, link.relation.replace("_", " "), link.tail, f"{link.rank:g}"])
            heads.add(link.head)
    shares = ", ".join(f"{sum(link.rank <= k for link in links)} in the first {k}" for k in (5, 20, 100))
    first = sum(link.rank == 1 for link in links)
    note = f"of {len(links)} links: {first} first, {shares}" if links else ""
    columns = ["added on", "head", "relation", "tail", "rank"]
    return Table(f"Links found by {BUILT_IN}, relation in the graph", columns, rows, note)


def missing(
    experiment: Experiment, models: Sequence[str], shots: Sequence[int], frozen: FrozenGraph, checkpoint: Path | None
) -> Iterator[tuple[str, str, Setting]]:
    """Yield each missing measurement: the model's name in records, the model, and its references."""
    stored = {
        (record.model, record.shots, record.references)
        for record in experiment.store.records
        if (record.benchmark, record.data_sha256) == (NAME, frozen.fingerprint)
    }
    names = {"trail": BUILT_IN}
    if checkpoint is not None:
        given = model_of(checkpoint)
        names[given] = PUBLISHED[given].name_of(checkpoint)
    draws = 1 if experiment.tiny else DRAWS
    settings = [Setting(ALL, 0), *(Setting(count, draw) for count in shots for draw in range(1, draws + 1))]
    for model in models:
        if model in PUBLISHED and model not in names:
            if not any(name.startswith(model) for name, _, _ in stored):
                tell(f"skipping {model}: give its weights with --checkpoint FILE")
            continue
        name = names.get(model, model)
        for setting in settings:
            if (name, setting.shots, setting.chosen) not in stored:
                yield name, model, setting


def main() -> None:
    parser = options(__doc__, benchmark=NAME, tiny="two relations of ATT&CK")
    parser.add_argument("--checkpoint", type=Path, help="weights of ultra or trix, such as ultra_4g.pth")
    given = parser.parse_args()
    experiment = Experiment(given)
    frozen = frozen_attack().only(TINY_RELATIONS) if experiment.tiny else frozen_attack()
    shots = SHOTS[:1] if experiment.tiny else SHOTS
    models = experiment.chosen(TINY_MODELS if experiment.tiny else MODELS)
    planned = [] if experiment.show else list(missing(experiment, models, shots, frozen, given.checkpoint))
    weights = PUBLISHED[model_of(given.checkpoint)].read(given.checkpoint) if given.checkpoint and planned else None
    for name, model, setting in planned:
        tell(f"{name}, {f'K = {setting.shots}, draw {setting.draw}' if setting.shots else 'all known pairs'}")
        record, ranks = measure(experiment, name, model, setting, frozen, weights)
        experiment.store.add(record, ranks=ranks)
    print_tables(tables(experiment.store, shots, frozen))


if __name__ == "__main__":
    run(main)
