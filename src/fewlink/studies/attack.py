"""A proof in time: ATT&CK as it was at the end of 2023 is asked for the links that MITRE's analysts added later.

Both ends of these links were in the graph before. A relation is asked about as if it were new (hidden from the graph,
with a few of its pairs as references), and as it is (in the graph, with all its pairs). A tail is ranked among all
entities of its type that the head was not linked to by then.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewlink.base.metrics import realistic_rank
from fewlink.base.seeds import generator
from fewlink.baselines.embedding import EmbeddingScorer, link_settings, train_baseline, train_links
from fewlink.baselines.learning_free import learning_free
from fewlink.data.benchmark import Benchmark, Task
from fewlink.data.carving import FrozenGraph, freeze
from fewlink.data.catalogue import attack_dates, attack_graph
from fewlink.embeddings import EmbeddingSettings
from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks
from fewlink.evaluation.ranks import QueryRanks, read_ranks
from fewlink.evaluation.records import Record, RecordStore, make_record
from fewlink.graph import Graph
from fewlink.prediction.calibration import TOP, Calibration, open_calibration, shipped_calibration
from fewlink.prediction.predictions import RankedPairs, rank_head, score_heads
from fewlink.prediction.query import References
from fewlink.prediction.trust import head_fans, measure_trust
from fewlink.report.charts import figure
from fewlink.report.tables import Table
from fewlink.scorers import Question, Scorer
from fewlink.studies.runner import Plan, Study, StudyOutput, Workspace
from fewlink.trail.reading import MOST_REFERENCES, ReadGraph
from fewlink.trail.scorer import TrailScorer
from fewlink.trail.shipped import Shipped, read_weights, shipped
from fewlink.ultra.family import name_of, scorer_on
from fewlink.ultra.network import read_checkpoint

BUILTIN = files("fewlink") / "builtin"
NAME = "attack-2023"  # in records
LAST_DAY = "2023-12-31"  # of the frozen graph
WITHOUT_ATTACK = "trail-without-attack"  # weights that never saw ATT&CK
CREATED = ("_runs_on_platform", "_serves_tactic", "_in_sector", "technique_impacts")  # dated by the head's creation
ORDER = ("popularity", "rules", "complex", "ultra", WITHOUT_ATTACK, "trail-shipped")  # in tables
FEWEST = 15  # new links of a relation that is asked about
ENOUGH = 50  # new links of a relation that has a row of its own
DRAWS = 3  # of few references
FIRST = 20  # answers that an analyst looks at
SURE = 0.8  # a probability
COMPLEX_DIM, COMPLEX_N3 = 100, 0.03  # the latter as the search on the frozen graph chose it
MOST_FOUND = 15  # links that are shown
CHANCES = ("sure", "sure_right", "first", "first_right", "expected")
ALL = 0  # shots of a record: all known pairs are references, and the graph has the relation


@functools.cache
def frozen_attack() -> FrozenGraph:
    """ATT&CK and CAPEC at the end of 2023."""
    return freeze(attack_graph(), attack_dates(), LAST_DAY, created=CREATED, fewest=FEWEST)


class Answers(NamedTuple):
    """Ranks of later links, as evaluated and in the list that an analyst reads.

    `tasks.ranks` (n,): other later links do not compete; `listed` (n,): they do. `chances`: what the model's
    probabilities were worth, as `_chances` counts; empty without probabilities.
    """

    tasks: TaskRanks
    listed: np.ndarray
    chances: dict[str, float]


def ask(
    scorer: Scorer,
    graph: Graph,
    task: Task,
    references: np.ndarray,
    later: np.ndarray,
    calibration: Calibration | None = None,
) -> Answers:
    """Rank the later tails (n, 2) of a relation. Pairs known on the last day do not compete."""
    heads, range_ = np.unique(later[:, 0]), task.range
    ranks, listed, counts, ranked = [], [], [], []
    given = References(tuple((h, t) for h, t in references[:MOST_REFERENCES].tolist()))
    for place, scores in score_heads(scorer, Question(task.name, references, heads.astype(np.int32), range_)):
        head = int(heads[place])
        new = later[later[:, 0] == head, 1]
        unknown = ~np.isin(range_, task.known_tails.get(head, ()))
        others = scores[unknown & ~np.isin(range_, new)]
        for tail in new.tolist():
            own, every = scores[range_ == tail][0], scores[unknown]
            ranks.append(realistic_rank((others > own).sum(), (others == own).sum()))
            listed.append(realistic_rank((every > own).sum(), (every == own).sum() - 1))
            counts.append(len(others) + 1)
        if calibration is not None:
            ranked.append(rank_head(head, range_, scores, given.known_tails(head), TOP, False))
    tasks = TaskRanks(task.name, later, np.array(ranks, float), np.array(counts), len(range_))
    chances = {}
    if calibration is not None:
        chances = _chances(calibration, scorer, graph, given, task, later, RankedPairs.joined(ranked))
    return Answers(tasks, np.array(listed, float), chances)


def _chances(
    calibration: Calibration,
    scorer: Scorer,
    graph: Graph,
    references: References,
    task: Task,
    later: np.ndarray,
    pairs: RankedPairs,
) -> dict[str, float]:
    """The answers with p ≥ .8 (`sure`) and each head's first answer: how many, and how many are right.

    A pair is right if it was known on the last day or added later. `expected`: the sum of the first answers'
    probabilities. All are 0 where trust is too low for probabilities.
    """
    trust = measure_trust(scorer, graph, references, task.range)
    probabilities = calibration.probabilities(pairs, head_fans(graph)[pairs.heads], trust)
    first = pairs.ranks < 2
    if not calibration.note(trust, float(probabilities[first].mean())).shown:
        return dict.fromkeys(CHANCES, 0)
    true = {(h, t) for h, t in np.concatenate([task.known, later]).tolist()}
    right = np.array([pair in true for pair in zip(pairs.heads.tolist(), pairs.tails.tolist(), strict=True)])
    sure = probabilities >= SURE
    counts = (sure.sum(), (sure & right).sum(), first.sum(), (first & right).sum(), probabilities[first].sum())
    return dict(zip(CHANCES, map(float, counts), strict=True))


class Setting(NamedTuple):
    """How many references a relation is asked about with, and which draw of them; `ALL`: it is in the graph."""

    shots: int
    draw: int

    @property
    def protocol(self) -> Protocol:
        return Protocol("test", self.shots or MOST_REFERENCES, "full", self.draw)

    def references(self, task: Task, most: int | None = None) -> np.ndarray:
        """Random pairs of those known on the last day; all of them, or `most`, if the graph has the relation."""
        if self.shots:
            return task.split(self.shots, self.draw)[0]
        return task.pairs if most is None else task.split(most, 1)[0]


def settings_of(plan: Plan) -> list[Setting]:
    draws = min(DRAWS, plan.seeds)
    return [Setting(ALL, 0), *(Setting(shots, draw + 1) for shots in plan.shots for draw in range(draws))]


def weights_of(model: str = WITHOUT_ATTACK) -> Shipped:
    """TRAIL's weights as shipped, or those that were trained on the other four graphs only."""
    name = f"{model}.safetensors"
    return shipped() if model == "trail-shipped" else read_weights((BUILTIN / name).read_bytes(), name)


def calibration_without_attack() -> Calibration:
    """The calibration of TRAIL's weights, fitted without the questions about ATT&CK."""
    with as_file(BUILTIN / f"{WITHOUT_ATTACK}.calibration.json") as path:
        return open_calibration(path)


def record_names(plan: Plan, workspace: Workspace) -> dict[str, str]:
    """The models of a plan as records call them, with the model that each is."""
    names: dict[str, str] = {}
    for model in plan.models:
        if model == "trail":
            names |= {WITHOUT_ATTACK: model, "trail-shipped": model}
        elif model != "ultra":
            names[model] = model
        elif workspace.checkpoint is not None:
            names[name_of(workspace.checkpoint)] = model
    return names


def answer(name: str, model: str, setting: Setting, relation: str, frozen: FrozenGraph, space: Workspace) -> Answers:
    """The answers of one model about one relation."""
    task, later = frozen.task(relation), frozen.later[relation]
    graph = frozen.hidden(relation) if setting.shots else frozen.graph
    references, calibration = setting.references(task), None
    if model == "trail":
        network, read = weights_of(name).network().to(space.device), ReadGraph.of(graph).to(space.device)
        scorer: Scorer = TrailScorer(name, network, read, graph)
        references = setting.references(task, MOST_REFERENCES)
        if setting.shots:
            calibration = shipped_calibration() if name == "trail-shipped" else calibration_without_attack()
    elif model == "ultra":
        assert space.checkpoint is not None
        graph = frozen.hidden(relation)  # all pairs as references are the relation itself
        scorer = scorer_on(name, read_checkpoint(space.checkpoint).network(), graph, space.device)
    elif model == "complex":
        scorer = _complex(setting, relation, frozen, task, space)
    else:
        scorer = learning_free(model, graph)
    return ask(scorer, graph, task, references, later, calibration)


def few_shot_complex(graph: Graph, device: str = "cpu") -> EmbeddingSettings:
    """Smaller than for link prediction, as there is one training for each relation and draw."""
    settings = link_settings("complex", len(graph.entities), device=device)
    return dataclasses.replace(settings, dim=COMPLEX_DIM, n3=COMPLEX_N3)


def _complex(setting: Setting, relation: str, frozen: FrozenGraph, task: Task, space: Workspace) -> Scorer:
    """ComplEx as the few-shot baseline, or trained on the frozen graph as for ordinary link prediction."""
    if setting.shots:
        settings = few_shot_complex(frozen.graph, space.device)
        benchmark = Benchmark(NAME, frozen.hidden(relation), {"train": [], "dev": [], "test": [task]})
        return train_baseline(benchmark, settings, shots=setting.shots, draw=setting.draw)
    return _link_complex(frozen, space.work, space.device)


@functools.cache
def _link_complex(frozen: FrozenGraph, work: Path, device: str) -> Scorer:
    graph, triples = frozen.graph, frozen.graph.triples()
    held = np.zeros(len(triples), bool)
    held[generator(0, "attack in time").permutation(len(triples))[: len(triples) // 20]] = True
    sizes = len(graph.entities), len(graph.relations)
    settings = link_settings("complex", sizes[0], device=device)
    vectors, _ = train_links(triples[~held], triples[held], *sizes, settings, work / "complex-links")
    return EmbeddingScorer(vectors, list(graph.relations), device)


def measure(name: str, model: str, setting: Setting, frozen: FrozenGraph, space: Workspace) -> tuple[Record, Any]:
    """The record of a model, and the ranks of its queries."""
    begin, answers = time.monotonic(), {}
    for relation in frozen.later:
        answers[relation] = answer(name, model, setting, relation, frozen, space)
    tasks = [each.tasks for each in answers.values()]
    evaluation = Evaluation(setting.protocol, tasks, time.monotonic() - begin)
    config = _config(name, model, setting, frozen, space)
    record = make_record(evaluation, benchmark=NAME, data_sha256=frozen.fingerprint, model=name, config=config)
    relations: dict[str, Any] = {name: dict(row) for name, row in record.relations.items()}
    for relation, each in answers.items():
        relations[relation][f"recall@{FIRST}"] = float((each.listed <= FIRST).mean())
        relations[relation] |= each.chances
    metrics: dict[str, Any] = {average: dict(row) for average, row in record.metrics.items()}
    listed = np.concatenate([each.listed for each in answers.values()])
    metrics["micro"][f"recall@{FIRST}"] = float((listed <= FIRST).mean())
    metrics["macro"][f"recall@{FIRST}"] = float(np.mean([row[f"recall@{FIRST}"] for row in relations.values()]))
    changes: dict[str, Any] = {"metrics": metrics, "relations": relations}
    if setting.shots == ALL:
        changes |= {"shots": ALL, "references": "all"}
    return record.model_copy(update=changes), QueryRanks.of(evaluation)


def _config(name: str, model: str, setting: Setting, frozen: FrozenGraph, space: Workspace) -> dict[str, Any]:
    if model == "trail":
        return {"weights": weights_of(name).facts}
    if model == "ultra":
        assert space.checkpoint is not None
        return {"checkpoint": read_checkpoint(space.checkpoint).facts}
    if model == "complex" and setting.shots:
        return {"settings": few_shot_complex(frozen.graph).as_dict()}
    return {}


def _missing(plan: Plan, workspace: Workspace, frozen: FrozenGraph) -> Iterator[tuple[str, str, Setting]]:
    held = {
        (r.model, r.shots, r.references)
        for r in workspace.store.records
        if r.benchmark == NAME and r.data_sha256 == frozen.fingerprint
    }
    for name, model in record_names(plan, workspace).items():
        for setting in settings_of(plan):
            if (name, setting.shots, f"draw-{setting.draw}" if setting.shots else "all") not in held:
                yield name, model, setting


def _frozen(plan: Plan) -> FrozenGraph:
    """The frozen graph with the relations of the plan, or all."""
    whole = frozen_attack()
    if not plan.relations:
        return whole
    later, days = ({r: part[r] for r in plan.relations} for part in (whole.later, whole.days))
    return FrozenGraph(whole.graph, later, days)  # type: ignore[arg-type]


def pending_attack(plan: Plan, workspace: Workspace) -> list[str]:
    return [_title(name, setting) for name, _, setting in _missing(plan, workspace, _frozen(plan))]


def run_attack(plan: Plan, workspace: Workspace) -> None:
    """Ask each model for the later links, with each number of references that has no record."""
    if "ultra" in plan.models and workspace.checkpoint is None:
        workspace.tell("ultra is left out: give its weights with --checkpoint FILE")
    frozen = _frozen(plan)
    for name, model, setting in list(_missing(plan, workspace, frozen)):
        workspace.tell(_title(name, setting))
        record, ranks = measure(name, model, setting, frozen, workspace)
        workspace.store.add(record, ranks=ranks)


def _title(name: str, setting: Setting) -> str:
    return f"{name}, K = {setting.shots}, draw {setting.draw}" if setting.shots else f"{name}, all known pairs"


def stored_tables(plan: Plan, store: RecordStore) -> list[Table]:
    """A table for each number of references, one of probabilities, and one of the links that were found."""
    frozen = _frozen(plan)
    records = [r for r in store.records if r.benchmark == NAME and r.data_sha256 == frozen.fingerprint]
    records.sort(key=lambda r: ORDER.index("ultra" if r.model.startswith("ultra") else r.model))
    shown = [by_class(records, shots, frozen) for shots in (*plan.shots, ALL)]
    return [*shown, sure_answers(records), links_table(store)]


def by_class(records: list[Record], shots: int, frozen: FrozenGraph) -> Table:
    """MRR and recall@20 of each model: all links, and each relation with enough of them."""
    sizes = {relation: len(pairs) for relation, pairs in frozen.later.items() if len(pairs) >= ENOUGH}
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
            parts = [r.relations[relation] if relation else r.metrics["micro"] for r in each]
            cells.append(" · ".join(figure(float(np.mean([p[m] for p in parts]))) for m in ("mrr", f"recall@{FIRST}")))
        rows.append([model, *cells])
    title = f"{shots} references, relation hidden" if shots else "all known pairs, relation in the graph"
    draws = max(map(len, groups.values()), default=0)
    note = f"MRR · recall@{FIRST}" + (f"; mean of {draws} draws of references" if draws > 1 else "")
    return Table(title, ["model", *columns], rows, note)


def sure_answers(records: list[Record]) -> Table:
    """What the probabilities of answers were worth, over the draws of references."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        rows = [row for row in record.relations.values() if "sure" in row]
        groups.setdefault((record.model, record.shots), []).extend(rows)
    cells = []
    for (model, shots), rows in groups.items():
        if rows:
            sure, sure_right, first, right, expected = (sum(row[key] for row in rows) for key in CHANCES)
            shares = [figure(part / whole) if whole else "" for part, whole in ((right, first), (expected, first))]
            cells.append([model, str(shots), f"{sure:.0f}", f"{sure_right:.0f}", f"{first:.0f}", *shares])
    sure_name = f"answers with p ≥ {SURE:g}"
    columns = ["model", "K", sure_name, "of them right", "first answers with a p", "right", "mean p"]
    note = "right: in ATT&CK at the end of 2023 (hidden from the model) or added later; others may come yet"
    return Table("probabilities", columns, cells, note)


class Found(NamedTuple):
    """A link that was added later, and its rank."""

    relation: str
    head: str
    tail: str
    day: str
    rank: float


def found_links(store: RecordStore, model: str = WITHOUT_ATTACK, shots: int = ALL) -> list[Found]:
    """The later links with the ranks of a stored record, of the first draw of references, the best first."""
    frozen = frozen_attack()
    for file, record in store.places:
        same = (record.benchmark, record.model, record.shots) == (NAME, model, shots)
        if same and record.references in ("draw-1", "all") and (ranks := read_ranks(file, record)) is not None:
            parts = dict(zip(ranks.relations, np.split(ranks.ranks, np.cumsum(ranks.counts)[:-1]), strict=True))
            links = [
                Found(relation, frozen.graph.name(head), frozen.graph.name(tail), day, rank)
                for relation in ranks.relations
                for (head, tail), day, rank in zip(
                    frozen.later[relation].tolist(), frozen.days[relation], parts[relation].tolist(), strict=True
                )
            ]
            return sorted(links, key=lambda link: (link.rank, link.day, link.head, link.tail))
    return []


def links_table(store: RecordStore) -> Table:
    """The best-ranked later links with their names, one for each head."""
    links, heads, rows = found_links(store), set[str](), list[list[str]]()
    for link in links:
        if link.head not in heads and len(rows) < MOST_FOUND:
            rows.append([link.day, link.head, link.relation.replace("_", " "), link.tail, f"{link.rank:g}"])
            heads.add(link.head)
    shares = ", ".join(f"{sum(link.rank <= k for link in links)} in the first {k}" for k in (1, 5, 20, 100))
    note = f"of {len(links)} links: {shares}" if links else ""
    columns = ["added on", "head", "relation", "tail", "rank"]
    return Table(f"links found by {WITHOUT_ATTACK}, relation in the graph", columns, rows, note)


ATTACK = Study(lambda plan, workspace: StudyOutput(stored_tables(plan, workspace.store)), pending_attack, run_attack)
