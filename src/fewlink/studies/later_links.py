"""Ranks of the links that MITRE's analysts added to ATT&CK after 2023, in the graph as it was at the end of 2023.

Both ends of these links were already in the graph. Each relation is queried in two ways: as a new one, hidden from the
graph and with a few of its pairs as references; and as it is, with all its pairs. A tail is ranked among all entities
of its type that the head had no link to.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewlink.core.metrics import realistic_rank
from fewlink.core.seeds import generator
from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks
from fewlink.evaluation.ranks import QueryRanks
from fewlink.evaluation.records import Record, make_record
from fewlink.fitting.calibrating import TOP
from fewlink.graph import Graph
from fewlink.linker.probability import Calibration, HeadFans, shipped_calibration
from fewlink.linker.query import References
from fewlink.linker.ranking import RankedPairs, rank_head, score_heads
from fewlink.linker.trust import measure_trust
from fewlink.models.baselines.embedding import EmbeddingScorer, train_baseline
from fewlink.models.baselines.learning_free import learning_free
from fewlink.models.baselines.links import link_settings, train_links
from fewlink.models.contract import Question, Scorer
from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.published import PUBLISHED
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import shipped
from fewlink.tasks.benchmark import Benchmark, Task
from fewlink.tasks.carving import FrozenGraph, freeze
from fewlink.tasks.catalogue import attack_dates, attack_graph

NAME = "attack-2023"  # of the benchmark in records
LAST_DAY = "2023-12-31"  # of the frozen graph
BUILT_IN = "trail-no-names-built-in"  # in records: the built-in weights, which were not trained on ATT&CK
CREATED = ("_runs_on_platform", "_serves_tactic", "_in_sector", "technique_impacts")  # dated by the head's creation
FEWEST = 15  # later links of an evaluated relation
FIRST = 20  # answers that an analyst reads
SURE = 0.8  # the probability of a sure answer
COMPLEX_DIM = 100
COMPLEX_N3 = 0.03  # the latter as the search on the frozen graph chose it
CHANCES = ("sure", "sure_right", "first", "first_right", "expected")
ALL = 0  # shots of a record: all known pairs are references


class Place(NamedTuple):
    """A folder for vectors, a device, and a file of published weights, if any."""

    work: Path
    device: str = "cpu"
    checkpoint: Path | None = None


@functools.cache
def frozen_attack() -> FrozenGraph:
    """ATT&CK and CAPEC at the end of 2023."""
    return freeze(attack_graph(), attack_dates(), LAST_DAY, created=CREATED, fewest=FEWEST)


class LaterRanks(NamedTuple):
    """Ranks of later links.

    tasks    ranks (n,) for figures, where other later links do not compete
    listed   (n,) ranks in the list that an analyst reads, where they do
    chances  the counts of `_chances`; empty without probabilities
    """

    tasks: TaskRanks
    listed: np.ndarray
    chances: dict[str, float]


def rank_later(
    scorer: Scorer,
    graph: Graph,
    task: Task,
    references: np.ndarray,
    later: np.ndarray,
    calibration: Calibration | None = None,
) -> LaterRanks:
    """Rank the tails of the later links (n, 2) of a relation; pairs known on the last day do not compete."""
    heads = np.unique(later[:, 0])
    range_ = task.range
    ranks = []
    listed = []
    counts = []
    ranked = []
    given = References(tuple((h, t) for h, t in references.tolist()))
    for place, scores in score_heads(scorer, Question(task.name, references, heads.astype(np.int32), range_)):
        head = int(heads[place])
        new = later[later[:, 0] == head, 1]
        unknown = ~np.isin(range_, task.known_tails.get(head, ()))
        others = scores[unknown & ~np.isin(range_, new)]
        for tail in new.tolist():
            own = scores[range_ == tail][0]
            every = scores[unknown]
            ranks.append(realistic_rank((others > own).sum(), (others == own).sum()))
            listed.append(realistic_rank((every > own).sum(), (every == own).sum() - 1))
            counts.append(len(others) + 1)
        if calibration is not None:
            ranked.append(rank_head(head, range_, scores, given.known_tails(head), TOP, False))
    tasks = TaskRanks(task.name, later, np.array(ranks, float), np.array(counts), len(range_))
    chances = {}
    if calibration is not None:
        chances = _chances(calibration, scorer, graph, given, task, later, RankedPairs.joined(ranked))
    return LaterRanks(tasks, np.array(listed, float), chances)


def _chances(
    calibration: Calibration,
    scorer: Scorer,
    graph: Graph,
    references: References,
    task: Task,
    later: np.ndarray,
    pairs: RankedPairs,
) -> dict[str, float]:
    """Count the answers with p ≥ .8 (`sure`), the first answers of all heads, and the right ones among both.

    A pair is right if it was known on the last day or added later. `expected` is the sum of the first answers'
    probabilities. All counts are 0 if trust is too low for probabilities.
    """
    trust = measure_trust(scorer, graph, references, task.range)
    probabilities = calibration.probabilities(pairs, HeadFans(graph)[pairs.heads], trust)
    first = pairs.ranks < 2
    if not calibration.note(trust, float(probabilities[first].mean())).shown:
        return dict.fromkeys(CHANCES, 0)
    true = {(h, t) for h, t in np.concatenate([task.known, later]).tolist()}
    right = np.array([pair in true for pair in zip(pairs.heads.tolist(), pairs.tails.tolist(), strict=True)])
    sure = probabilities >= SURE
    counts = (sure.sum(), (sure & right).sum(), first.sum(), (first & right).sum(), probabilities[first].sum())
    return dict(zip(CHANCES, map(float, counts), strict=True))


class Setting(NamedTuple):
    """The number of references, and the number of their draw; with `ALL`, all known pairs are references."""

    shots: int
    draw: int

    def __str__(self) -> str:
        return f"K = {self.shots}, draw {self.draw}" if self.shots else "all known pairs"

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


def rank_relation(
    name: str, model: str, setting: Setting, relation: str, frozen: FrozenGraph, place: Place
) -> LaterRanks:
    """Rank the later links of one relation with one model."""
    task = frozen.task(relation)
    later = frozen.later[relation]
    references = setting.references(task)
    calibration = None
    as_references = setting.shots or model in ("trail", *PUBLISHED)  # to them, all pairs as references are the relation
    graph = frozen.hidden(relation) if as_references else frozen.graph
    if model == "trail":
        network = shipped().network().to(place.device)
        read = ReadGraph.of(graph, names=False)  # names are today's, not those of the last day
        scorer: Scorer = TrailScorer(name, network, read.to(place.device))
        calibration = shipped_calibration() if setting.shots else None
    elif model in PUBLISHED:
        assert place.checkpoint is not None
        family = PUBLISHED[model]
        scorer = family.scorer_on(name, family.read(place.checkpoint).network(), graph, place.device)
    elif model == "complex":
        scorer = _complex(setting, relation, frozen, task, place)
    else:
        scorer = learning_free(model, graph)
    return rank_later(scorer, graph, task, references, later, calibration)


def few_shot_complex(graph: Graph, device: str = "cpu") -> EmbeddingSettings:
    """Settings smaller than for link prediction, because each relation and draw needs its own training."""
    settings = link_settings("complex", len(graph.entities), device=device)
    return settings.replace(dim=COMPLEX_DIM, n3=COMPLEX_N3)


def _complex(setting: Setting, relation: str, frozen: FrozenGraph, task: Task, place: Place) -> Scorer:
    """ComplEx as a few-shot baseline or, with all known pairs, trained for ordinary link prediction."""
    if setting.shots:
        settings = few_shot_complex(frozen.graph, place.device)
        benchmark = Benchmark(NAME, frozen.hidden(relation), {"train": [], "dev": [], "test": [task]})
        return train_baseline(benchmark, settings, shots=setting.shots, draw=setting.draw)
    return _link_complex(frozen, place.work, place.device)


@functools.cache
def _link_complex(frozen: FrozenGraph, work: Path, device: str) -> Scorer:
    graph, triples = frozen.graph, frozen.graph.triples()
    held = np.zeros(len(triples), bool)
    held[generator(0, "attack in time").permutation(len(triples))[: len(triples) // 20]] = True
    sizes = len(graph.entities), len(graph.relations)
    settings = link_settings("complex", sizes[0], device=device)
    vectors, _ = train_links(triples[~held], triples[held], *sizes, settings, work / "complex-links")
    return EmbeddingScorer(vectors, list(graph.relations), device)


def measure(name: str, model: str, setting: Setting, frozen: FrozenGraph, place: Place) -> tuple[Record, Any]:
    """Evaluate a model; return its record and the ranks of its queries."""
    begin = time.monotonic()
    answers = {}
    for relation in frozen.later:
        answers[relation] = rank_relation(name, model, setting, relation, frozen, place)
    tasks = [each.tasks for each in answers.values()]
    evaluation = Evaluation(setting.protocol, tasks, time.monotonic() - begin)
    config = _config(model, setting, frozen, place)
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
        changes |= {"shots": ALL, "references": setting.chosen}
    return record.model_copy(update=changes), QueryRanks.of(evaluation)


def _config(model: str, setting: Setting, frozen: FrozenGraph, place: Place) -> dict[str, Any]:
    if model == "trail":
        return {"weights": shipped().facts}
    if model in PUBLISHED:
        assert place.checkpoint is not None
        return {"checkpoint": PUBLISHED[model].read(place.checkpoint).facts}
    if model == "complex" and setting.shots:
        return {"settings": few_shot_complex(frozen.graph).as_dict()}
    return {}
