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
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from common import HERE, Experiment, Table, link_settings, options, print_tables, run, select, short, untrained
from fewlink.core.errors import FewlinkError
from fewlink.core.progress import tell
from fewlink.core.seeds import generator
from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks, rank_queries
from fewlink.evaluation.records import QueryRanks, Record, RecordStore, make_record, read_ranks
from fewlink.graph import Graph
from fewlink.linker import Linker
from fewlink.models.cached import CachedScorer
from fewlink.models.contract import Scorer
from fewlink.models.embeddings.family import EmbeddingScorer
from fewlink.models.embeddings.trainer import EmbeddingTrainer
from fewlink.models.published import PUBLISHED, model_of
from fewlink.models.trail.shipped import shipped
from fewlink.tasks.benchmark import Benchmark, Task, sorted_pairs
from fewlink.tasks.candidates import Candidates, task_of_pairs
from fewlink.tasks.catalogue import attack_dates, attack_graph

sys.path.append(str(HERE.parent / "benchmarks"))

from links import rank_links

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
RECALL = f"recall@{FIRST}"
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
        return replace(self, later={name: self.later[name] for name in relations})

    def task(self, relation: str) -> Task:
        """A task of a relation's pairs on the last day; its range is given by the types of their tails."""
        triples = self.graph.triples()
        pairs = triples[triples[:, 1] == self.graph.relations.find(relation)][:, [0, 2]]
        return task_of_pairs(self.graph, relation, pairs)

    def benchmark(self, relation: str, *, hidden: bool) -> Benchmark:
        """The graph, without the relation if it is `hidden`, and the relation's task."""
        graph = self.graph
        if hidden:
            graph = graph.without(np.array([graph.relations.find(relation)]))
        return Benchmark(NAME, graph, {"train": [], "dev": [], "test": [self.task(relation)] if hidden else []})


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


def rank_later(scorer: Scorer, task: Task, references: np.ndarray, later: np.ndarray) -> tuple[TaskRanks, np.ndarray]:
    """Rank the tails of the later links (n, 2) of a relation; pairs known on the last day do not compete.

    Other later links do not compete for the ranks of figures; they do for those (n,) in the list that an analyst reads.
    """
    pool = Candidates(task.range, np.ones(len(task.range), bool))
    kept = CachedScorer(scorer)

    def ranked(asked: np.ndarray, known_as_well: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        known = sorted_pairs(np.concatenate([task.known, known_as_well]))
        return rank_queries(kept, replace(task, known=known), references, pool, asked)

    ranks, counts = ranked(later, later)
    listed = [float(ranked(link, link)[0][0]) for link in later[:, None]]
    return TaskRanks(task.name, later, ranks, counts, len(task.range)), np.array(listed)


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


def link_complex(frozen: FrozenGraph, device: str) -> Scorer:
    """ComplEx trained on the whole graph; a twentieth of its triples chooses the epoch."""
    graph = frozen.graph
    triples = graph.triples()
    held = np.zeros(len(triples), bool)
    held[generator(0, "attack in time").permutation(len(triples))[: len(triples) // 20]] = True
    settings = link_settings("complex", len(graph.entities), device=device).replace(n3=COMPLEX_N3)
    trainer = EmbeddingTrainer(triples[~held], len(graph.entities), len(graph.relations), settings)
    best: dict[str, Tensor] = {}
    best_mrr = 0.0
    while not trainer.finished:
        trainer.epoch()
        mrr = rank_links(trainer.result(), triples[held], triples, "valid").metrics()["micro"]["mrr"]
        if mrr > best_mrr:
            best_mrr = mrr
            best = {name: table.clone() for name, table in trainer.vectors.items()}
    trainer.vectors = best
    return EmbeddingScorer(trainer.result(), list(graph.relations), device)


def measure(
    experiment: Experiment, name: str, model: str, shots: int, draw: int, frozen: FrozenGraph, file: Path | None = None
) -> tuple[Record, QueryRanks]:
    """Evaluate a model with some references, or with all pairs; return its record and the ranks of its queries."""
    begin = time.monotonic()
    evaluated = []
    relations: dict[str, dict[str, float]] = {}
    lists = []
    facts: dict[str, Any] = {}
    on_whole = link_complex(frozen, experiment.device) if model == "complex" and not shots else None
    for relation, later in frozen.later.items():
        task = frozen.task(relation)
        references = task.split(shots, draw)[0] if shots else task.pairs
        counted = {}
        if model == "trail":
            # names are left out: they are today's, not those of the last day
            linker = Linker.shipped(frozen.benchmark(relation, hidden=True), names=False)
            scorer = linker.scorer
            facts = {"weights": shipped().facts}
            if shots:
                counted = chances(linker, task, references, later)
        elif on_whole is not None:
            scorer = on_whole
        else:
            settings = link_settings("complex", len(frozen.graph.entities), device=experiment.device)
            prepared = untrained(
                model,
                # models that get references read the graph without the relation
                frozen.benchmark(relation, hidden=bool(shots) or file is not None),
                experiment.device,
                file=file,
                settings=settings.replace(dim=COMPLEX_DIM, n3=COMPLEX_N3),
                shots=shots or 1,
                draw=draw,
            )
            scorer = prepared.scorer
            facts = prepared.config if file else {}
        ranked, listed = rank_later(scorer, task, references, later)
        evaluated.append(ranked)
        lists.append(listed)
        relations[relation] = {RECALL: float((listed <= FIRST).mean()), **counted}
    protocol = Protocol("test", shots or 1, "full", draw)
    evaluation = Evaluation(protocol, evaluated, time.monotonic() - begin)
    record = make_record(evaluation, benchmark=NAME, data_sha256=frozen.fingerprint, model=name, config=facts)
    for relation, more in relations.items():
        record.relations[relation].update(more)
    record.metrics["micro"][RECALL] = float((np.concatenate(lists) <= FIRST).mean())
    record.metrics["macro"][RECALL] = float(np.mean([row[RECALL] for row in relations.values()]))
    record.shots = shots
    record.references = references_of(shots, draw)
    return record, QueryRanks.of(evaluation)


def references_of(shots: int, draw: int) -> str:
    """The name of the references in records."""
    return Protocol("test", shots, "full", draw).references if shots else "all"


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
    return next((place for place, kind in enumerate(ORDER) if model.startswith(kind)), len(ORDER))


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
            means = [float(np.mean([draw[metric] for draw in draws])) for metric in ("mrr", RECALL)]
            cells.append(" · ".join(map(short, means)))
        rows.append([model, *cells])
    title = f"{shots} references, relation hidden" if shots else "All known pairs, relation in the graph"
    draw_count = max(map(len, groups.values()), default=0)
    note = f"MRR · {RECALL}"
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


class FoundLink(NamedTuple):
    """A link that was added later, and its rank, by which links are sorted."""

    rank: float
    day: str
    head: str
    tail: str
    relation: str


def found_links(store: RecordStore, model: str, frozen: FrozenGraph, shots: int = ALL) -> list[FoundLink]:
    """The later links with their ranks in a stored record with the first draw of references, best first."""
    links = []
    for file, record in store.places:
        wanted = (NAME, model, shots, references_of(shots, 1))
        same = (record.benchmark, record.model, record.shots, record.references) == wanted
        ranks = read_ranks(file, record) if same else None
        if ranks is None:
            continue
        split_ranks = np.split(ranks.ranks, np.cumsum(ranks.counts)[:-1])
        for relation, of_relation in zip(ranks.relations, split_ranks, strict=True):
            pairs = frozen.later[relation].tolist()
            for (head, tail), day, rank in zip(pairs, frozen.days[relation], of_relation.tolist(), strict=True):
                links.append(FoundLink(rank, day, frozen.graph.name(head), frozen.graph.name(tail), relation))
    return sorted(links)


def links_table(store: RecordStore, frozen: FrozenGraph) -> Table:
    """The best-ranked later links with their names, one for each head, of weights that never saw ATT&CK."""
    links = found_links(store, BUILT_IN, frozen)
    best_of_head: dict[str, FoundLink] = {}
    for link in links:
        best_of_head.setdefault(link.head, link)
    rows = [
        [link.day, link.head, link.relation.replace("_", " "), link.tail, f"{link.rank:g}"]
        for link in list(best_of_head.values())[:MAX_LINKS_SHOWN]
    ]
    shares = ", ".join(f"{sum(link.rank <= k for link in links)} in the first {k}" for k in (5, 20, 100))
    first = sum(link.rank == 1 for link in links)
    note = f"of {len(links)} links: {first} first, {shares}" if links else ""
    columns = ["added on", "head", "relation", "tail", "rank"]
    return Table(f"Links found by {BUILT_IN}, relation in the graph", columns, rows, note)


def measure_missing(experiment: Experiment, shots: Sequence[int], frozen: FrozenGraph, file: Path | None) -> None:
    """Store the records that are missing: of each model with all pairs, and with some draws of references."""
    records = select(experiment.store.records, benchmark=NAME, data_sha256=frozen.fingerprint)
    stored = {(record.model, record.shots, record.references) for record in records}
    draws = range(1, 2 if experiment.tiny else DRAWS + 1)
    settings = [(ALL, 0), *itertools.product(shots, draws)]
    given = model_of(file) if file else ""
    for model in experiment.chosen(TINY_MODELS if experiment.tiny else MODELS):
        name = BUILT_IN if model == "trail" else model
        if model in PUBLISHED:
            if file is None or model != given:
                tell(f"skipping {model}: give its weights with --checkpoint FILE")
                continue
            name = PUBLISHED[model].name_of(file)
        for count, draw in settings:
            if (name, count, references_of(count, draw)) not in stored:
                tell(f"{name}, {f'K = {count}, draw {draw}' if count else 'all known pairs'}")
                checkpoint = file if model in PUBLISHED else None
                record, ranks = measure(experiment, name, model, count, draw, frozen, checkpoint)
                experiment.store.add(record, ranks=ranks)


def main() -> None:
    parser = options(__doc__, benchmark=NAME, tiny="two relations of ATT&CK")
    parser.add_argument("--checkpoint", type=Path, help="weights of ultra or trix, such as ultra_4g.pth")
    given = parser.parse_args()
    experiment = Experiment(given)
    frozen = frozen_attack().only(TINY_RELATIONS) if experiment.tiny else frozen_attack()
    shots = SHOTS[:1] if experiment.tiny else SHOTS
    if not experiment.show:
        measure_missing(experiment, shots, frozen, given.checkpoint)
    print_tables(tables(experiment.store, shots, frozen))


if __name__ == "__main__":
    run(main)
