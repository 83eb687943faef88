"""Learn how much names count beside TRAIL's scores, and measure it on graphs and relations that were left out.

python benchmarks/names_gate.py WEIGHTS SAMPLES nell-one fb15k-237-few:5 attack-few umls

WEIGHTS is a folder with a file without-BENCH.safetensors for each benchmark: weights trained on the other graphs only.
With them, known relations that are hidden from the graph are asked about, never those of test: relations of both folds
of a benchmark with many train relations (BENCH:5 takes every fifth of a fold), else each known relation in turn; with 3
references, with another number, and inverted. Relations of dev, and those given by `--apart`, are measured only. Scores
are kept in the folder SAMPLES; those that exist are used.

A graph's figures (`graph left out`) come from weights learnt on the other graphs; `as shipped`, from those on all.
Writes src/fewlink/builtin/names.json and records/names.json, with a row for each relation.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from fewlink.core.metrics import realistic_rank
from fewlink.core.seeds import generator
from fewlink.data import Benchmark, Task, open_benchmark
from fewlink.data.benchmark import sorted_pairs
from fewlink.data.candidates import likely_tails
from fewlink.data.folds import fold_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from fewlink.models.names.columns import COLUMNS, NameColumns, ReferenceNames
from fewlink.models.names.gate import BUILT_IN, POWER, Gate
from fewlink.models.names.likeness import gram_index
from fewlink.models.trail.reading import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import read_weights
from fewlink.scorers import Question
from measure import print_table, write_record
from views import INVERSE

BUILTIN = Path(__file__).resolve().parent.parent / "src" / "fewlink" / "builtin"
FOLDS, MANY = 2, 20  # train relations from which folds are held out
LEAST = 17  # pairs of a relation
OTHER_SHOTS = (1, 2, 4, 5)
QUERIES, MORE = 20, 8  # of a relation with 3 references; with other ones or inverted
FEW_QUERIES, FEW_MORE = 12, 5  # where only some relations of a fold are taken
MEASURED, APART = 40, 200  # queries of relations that are only measured
TOP, RANDOM = 150, 150  # candidates that are learnt from: the best by each column, and random ones for all others
RIDGE = 1e-4
LEARNT = ("fold", "single")  # parts that are learnt from


class Hidden(NamedTuple):
    """A relation, a graph that does not have it, and the part of the figures that it belongs to."""

    graph: Graph
    task: Task
    part: str


class Query(NamedTuple):
    """A query: TRAIL's scores (C,), the columns (C, COLUMNS) and what the references say; `true` is a place in them."""

    graph: str
    part: str
    relation: str
    plain: bool  # 3 references, not inverted
    scores: np.ndarray
    columns: np.ndarray
    said: ReferenceNames
    true: int


def hidden_relations(benchmark: Benchmark, every: int, apart: Sequence[str]) -> Iterator[Hidden]:
    """Known relations to learn from, and those of dev and `apart` to measure."""
    known = known_graph(benchmark)
    if len(benchmark.split("train")) >= MANY:
        for index in range(FOLDS):
            fold = fold_benchmark(benchmark, index, FOLDS)
            yield from (Hidden(known_graph(fold), task, f"fold{index}") for task in fold.split("dev")[::every])
        yield from (Hidden(known, task, "dev") for task in benchmark.split("dev"))
        return
    train, triples = {task.name: task for task in benchmark.split("train")}, known.triples()
    for relation, name in enumerate(known.relations):
        graph = known.without(np.array([relation]))
        pairs = triples[triples[:, 1] == relation][:, [0, 2]]
        pairs = pairs[(graph.degrees[pairs] > 0).all(1)]
        if len(pairs) >= LEAST:
            pairs = generator(0, "single", name).permutation(pairs)
            own = Task(name, pairs, sorted_pairs(pairs), likely_tails(graph, pairs[:, 1]).astype(np.int32))
            yield Hidden(graph, train.get(name, own), "apart" if name in apart else "single")


def inverted(graph: Graph, task: Task) -> Task:
    back = task.known[:, ::-1]
    pairs, tails = np.ascontiguousarray(task.pairs[:, ::-1]), likely_tails(graph, back[:, 1])
    return Task(task.name + INVERSE, pairs, sorted_pairs(back), tails.astype(np.int32))


def ask(benchmark: Benchmark, name: str, every: int, weights: Path, folder: Path, apart: Sequence[str]) -> None:
    """Write the scores of all questions about a benchmark, one file for each."""
    network, scorer = read_weights(weights.read_bytes(), weights.name).network(), None
    queries, more = (QUERIES, MORE) if every == 1 else (FEW_QUERIES, FEW_MORE)
    for number, (graph, task, part) in enumerate(hidden_relations(benchmark, every, apart)):
        shots = int(generator(5, "k", task.name).choice(OTHER_SHOTS))
        plan = [(task, 3, 0, {"dev": MEASURED, "apart": APART}.get(part, queries))]
        if part != "dev":
            plan.append((task, shots, 1, more))
        if part.startswith(LEARNT):
            plan.append((inverted(graph, task), 3, 1, more))
        for asked, count, draw, most in plan:
            file = folder / f"{name}.{part}.{number}.{count}.{draw}.{int(asked is not task)}.npz"
            if file.exists() or len(asked.pairs) < count + 3 or len(asked.range) < 2:
                continue
            if scorer is None or scorer.source is not graph:
                scorer = TrailScorer("trail", network, ReadGraph.of(graph), graph)
            references, rest = asked.split(count, draw)
            rest = rest[np.sort(generator(3, "q", asked.name, draw).permutation(len(rest))[:most])]
            heads, rows = np.unique(rest[:, 0], return_inverse=True)
            scores = scorer(Question(asked.name, references, heads.astype(np.int32), asked.range)).numpy()
            facts = {"name": asked.name, "part": part, "refs": references, "queries": rest, "rows": rows}
            np.savez(file, z=scores, range=asked.range, known=asked.known, **facts)
            print(f"{name}  {part}  {asked.name}", flush=True)


def read_queries(benchmark: Benchmark, name: str, folder: Path) -> Iterator[Query]:
    """All queries about a benchmark with their columns; other known tails of the head and the head are left out."""
    graph = known_graph(benchmark)
    index = gram_index(graph)
    assert index is not None, f"the names of {name} say nothing"
    names = NameColumns(index, graph)
    for file in sorted(folder.glob(f"{name}.*.npz")):
        content = np.load(file)
        references, candidates, known = content["refs"], content["range"], content["known"]
        said, relation = names.references(references), str(content["name"])
        plain = len(references) == 3 and not relation.endswith(INVERSE)
        for (head, tail), row in zip(content["queries"].tolist(), content["rows"].tolist(), strict=True):
            others = np.append(known[known[:, 0] == head, 1], head)
            kept = ~np.isin(candidates, others) | (candidates == tail)
            true = np.flatnonzero(candidates[kept] == tail)
            if len(true):
                columns = names.of(said, head, candidates[kept]).astype(np.float32)
                part, scores = str(content["part"]), content["z"][row][kept]
                yield Query(name, part, relation, plain, scores, columns, said._replace(like_tail=None), int(true[0]))


class Examples(NamedTuple):
    """Queries with some of their candidates, one after the other in a padded block.

    Shapes: `scores`, `offsets` (n, m); `columns` (n, m, COLUMNS); `gates` (n, 2); `true` (n,); `weights` (n,): each
    graph counts the same, and so does each relation of a graph.
    """

    scores: Tensor
    offsets: Tensor
    columns: Tensor
    gates: Tensor
    true: Tensor
    weights: Tensor

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Examples:
        random = generator(0, "candidates")
        chosen = [_some(query, random) for query in queries]
        most = max(len(places) for places, _ in chosen)
        scores, offsets = np.zeros((2, len(queries), most), np.float32)
        columns, true = np.zeros((len(queries), most, len(COLUMNS)), np.float32), []
        offsets[:] = -1e9
        for row, (query, (places, offset)) in enumerate(zip(queries, chosen, strict=True)):
            scores[row, : len(places)], columns[row, : len(places)] = query.scores[places], query.columns[places]
            offsets[row, : len(places)] = offset
            true.append(int(np.flatnonzero(places == query.true)[0]))
        gates = np.array([[query.said.by_head, query.said.by_tails] for query in queries], np.float32)
        counts = Counter((query.graph, query.relation) for query in queries)
        relations = Counter(graph for graph, _ in counts)
        weights = np.array([1 / counts[q.graph, q.relation] / relations[q.graph] for q in queries], np.float32)
        arrays = scores, offsets, columns, gates, np.array(true), weights / weights.sum()
        return cls(*map(torch.from_numpy, arrays))


def _some(query: Query, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Places of candidates, and what is added to the score of each: random ones stand for all that are left out."""
    count = len(query.scores)
    best = [np.argsort(-column, kind="stable")[:TOP] for column in (query.scores, *query.columns.T)]
    best_of_all = np.unique(np.concatenate([[query.true], *best]))
    rest = np.setdiff1d(np.arange(count), best_of_all)
    drawn = random.choice(rest, min(RANDOM, len(rest)), replace=False)
    stands_for = np.log(len(rest) / max(len(drawn), 1)) if len(rest) else 0.0
    return np.append(best_of_all, drawn), np.append(np.zeros(len(best_of_all)), np.full(len(drawn), stands_for))


def learn(examples: Examples, steps: int = 100) -> Gate:
    """The gate with the least softmax loss; weights are kept positive by softplus."""
    weights = torch.full((len(COLUMNS),), -1.0, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=steps, line_search_fn="strong_wolfe")
    gates = examples.gates[:, [0] * (len(COLUMNS) - 1) + [1]] ** POWER

    def loss() -> Tensor:
        optimizer.zero_grad()
        names = torch.einsum("nmc,nc->nm", examples.columns, gates * softplus(weights))
        scores = examples.scores + examples.offsets + names
        each = cross_entropy(scores, examples.true, reduction="none")
        total: Tensor = (examples.weights * each).sum() + RIDGE * softplus(weights).square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[arg-type]
    return Gate(softplus(weights).detach().numpy().astype(float))


def reciprocal_ranks(queries: Iterable[Query], gate: Gate | None) -> dict[tuple[str, ...], list[float]]:
    """By graph, part, kind and relation; without a gate those of TRAIL."""
    found: dict[tuple[str, ...], list[float]] = {}
    for query in queries:
        scores = query.scores
        if gate is not None:
            scores = scores + query.columns @ gate.column_weights(query.said)
        own = scores[query.true]
        rank = realistic_rank((scores > own).sum(), (scores == own).sum() - 1)
        kind = "3 references" if query.plain else "other or inverted"
        found.setdefault((query.graph, query.part, kind, query.relation), []).append(1 / rank)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("benchmarks", nargs="+", metavar="BENCH[:EVERY]")
    parser.add_argument("--apart", action="append", default=["detection_detects_technique"], metavar="RELATION")
    parser.add_argument("--out", type=Path, default=BUILTIN / BUILT_IN)
    options = parser.parse_args()
    options.samples.mkdir(parents=True, exist_ok=True)
    queries: dict[str, list[Query]] = {}
    for given in options.benchmarks:
        place, _, every = given.partition(":")
        name, benchmark = Path(place).name, open_benchmark(place)
        weights = options.weights / f"without-{name}.safetensors"
        ask(benchmark, name, int(every or 1), weights, options.samples, options.apart)
        queries[name] = list(read_queries(benchmark, name, options.samples))

    def gate_of(graphs: Iterable[str]) -> Gate:
        return learn(Examples.of([q for name in graphs for q in queries[name] if q.part.startswith(LEARNT)]))

    shipped = gate_of(queries)
    rows: list[dict[str, Any]] = []
    by_relation: list[list[Any]] = []
    for name, some in queries.items():
        without = gate_of([other for other in queries if other != name])
        ranks = [reciprocal_ranks(some, gate) for gate in (None, without, shipped)]
        for group in dict.fromkeys(key[:3] for key in ranks[0]):
            keys = [key for key in ranks[0] if key[:3] == group]
            figures = [float(np.mean([rank for key in keys for rank in each[key]])) for each in ranks]
            count = sum(len(ranks[0][key]) for key in keys)
            titles = (
                "graph",
                "part",
                "kind",
                "relations",
                "queries",
                "MRR of TRAIL",
                "names, graph left out",
                "names, as shipped",
            )
            values = (*group, len(keys), count, *(round(figure, 3) for figure in figures))
            rows.append(dict(zip(titles, values, strict=True)))
        by_relation += [[*key, *(round(float(np.mean(each[key])), 3) for each in ranks)] for key in ranks[0]]
    print_table(rows)
    learnt = sum(query.part.startswith(LEARNT) for some in queries.values() for query in some)
    facts = {"graphs": [*queries], "queries": learnt, "left_out": options.apart}
    Gate(shipped.weights, facts).write(options.out)
    weights = dict(zip(COLUMNS, shipped.weights.round(4).tolist(), strict=True))
    columns = ["graph", "part", "kind", "relation", "MRR of TRAIL", "names, graph left out", "names, as shipped"]
    write_record("names", {"rows": rows, "weights": weights, "columns": columns, "all": by_relation})
    print(weights)


if __name__ == "__main__":
    main()
