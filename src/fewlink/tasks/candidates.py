"""Which tails may be asked about: the range of a relation, and the three protocols `paper`, `full` and `open`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.choices import choose
from fewlink.graph import Graph
from fewlink.seeds import generator
from fewlink.tasks.benchmark import Task

PAPER_SIZE = 1000
PAPER_SEED = 0  # part of the protocol: everybody's 1000 are the same
PROTOCOLS = ("paper", "full", "open")


@dataclass(frozen=True)
class Candidates:
    """The tails to score for one relation.

    Shapes: `ids` (c,) int32 sorted; `counted` (c,) bool, False for tails that are only in as the answer of some query;
    `outside`: how many further entities stand behind the scored ones, all tied (0 where the range is closed).
    """

    ids: np.ndarray
    counted: np.ndarray
    outside: int = 0


def candidates_of(protocol: str, task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    """The candidates of a task under a protocol.

    - `full`: the whole range (types of all the relation's tails: an oracle that published results share).
    - `paper`: 1000 of that range, the same for everybody; each query's own answer is added for that query.
    - `open`: entities that share a type or a relation slot with a reference's tail; all others tie behind them.
    """
    return choose("candidates protocol", protocol, {"full": _full, "paper": _paper, "open": _open})(
        task, references, graph
    )


def likely_tails(graph: Graph, tails: np.ndarray) -> np.ndarray:
    """The type constraint: entities of the same kind as these tails, sorted, the tails themselves included.

    For a tail with types: the entities that share one of them. For a tail without: those that occur in the same
    relation slots (as head, or as tail, of the same background relation).
    """
    tails = np.unique(tails).astype(np.int32)
    alike, untyped = [tails], tails
    if graph.types is not None:
        alike.append(graph.types.members(graph.types.of_entities(tails)))
        untyped = tails[~graph.types.typed(tails)]
    alike.append(_same_slots(graph, untyped))
    return np.unique(np.concatenate(alike)).astype(np.int32)


def _same_slots(graph: Graph, tails: np.ndarray) -> np.ndarray:
    at, _ = graph.edges_of(tails)
    shared = np.zeros(2 * len(graph.relations), bool)
    shared[graph.relation_ids[at]] = True
    return np.unique(graph.head_ids[shared[graph.relation_ids]])


def _full(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    return Candidates(task.range, np.ones(len(task.range), bool))


def _paper(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    if len(task.range) <= PAPER_SIZE:
        return _full(task, references, graph)
    sample = generator(PAPER_SEED, "paper candidates", task.name).choice(task.range, PAPER_SIZE, replace=False)
    ids = np.union1d(sample, task.pairs[:, 1]).astype(np.int32)
    return Candidates(ids, np.isin(ids, sample))


def _open(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    tails = references[:, 1]
    # few references show few of a relation's types, so slots are asked as well
    ids = np.union1d(likely_tails(graph, tails), _same_slots(graph, tails)).astype(np.int32)
    return Candidates(ids, np.ones(len(ids), bool), outside=len(graph.entities) - len(ids))
