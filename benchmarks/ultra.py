"""ULTRA and TRIX in ordinary link prediction, to compare with their authors' figures; and ULTRA's speed against plain
torch.

    python benchmarks/ultra.py links TRAIN VALID TEST --checkpoint FILE [--model trix] [--most 500] [--name GRAPH]
    python benchmarks/ultra.py speed [BENCH] --checkpoint FILE [--heads 20]

`links` ranks both ends of the test triples (or of a sample of `--most` of them) among all entities, other known triples
filtered. `speed` scores all candidates of some heads of each test relation with the package and with a transcription in
plain torch, which multiplies a message for each edge in each layer. That both give the same scores is checked; the
sides run in turn on one thread, and seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.graph import Graph
from fewlink.models.contract import Question
from fewlink.models.published import PUBLISHED
from fewlink.models.trail.features import ReadGraph
from fewlink.models.ultra.network import EncodedRelations, PublishedNetwork, PublishedTasks, UltraNetwork
from fewlink.models.ultra.scorer import PublishedScorer
from fewlink.tasks import open_benchmark
from links import rank_links, read_splits
from measure import print_table, read_record, write_record

SHOTS = 3
HEADS = 8


class Links:
    """A network in the place of a table of vectors."""

    def __init__(self, network: PublishedNetwork, graph: Graph) -> None:
        self.network = network
        self.graph = ReadGraph.of(graph, names=False)
        self.entities = torch.zeros(len(graph.entities), 0)
        self.relations = torch.zeros(self.graph.relations, 0)
        self.encoded: dict[int, EncodedRelations] = {}

    @torch.no_grad()
    def score_all(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Scores (rows, entities)."""
        scores = torch.empty(len(heads), len(self.entities))
        everyone = torch.arange(len(self.entities))[None]
        nothing = torch.zeros(1, 0, 2, dtype=torch.long), torch.zeros(1, 0), torch.ones(1, self.graph.relations)
        for relation in relations.unique().tolist():
            if relation not in self.encoded:
                self.encoded[relation] = self.network.encode_relation(self.graph, relation)
            encoded = self.encoded[relation]
            for rows in (relations == relation).nonzero().flatten().split(HEADS):
                scores[rows] = self.network.scores(
                    self.graph, PublishedTasks(*nothing, heads[rows][None], everyone), encoded
                )[0]
        return scores


def links(options: argparse.Namespace) -> None:
    graph, splits = read_splits(*map(Path, options.files))
    known = np.concatenate(list(splits.values()))
    test = splits["test"]
    if options.most and len(test) > options.most:
        test = test[np.sort(np.random.default_rng(0).choice(len(test), options.most, replace=False))]
    ranked: Any = Links(PUBLISHED[options.model].read(options.checkpoint).network(), graph)
    figures = rank_links(ranked, test, known, "test").metrics()["micro"]
    row = {"graph": options.name, "weights": options.checkpoint.name, "triples": len(test)}
    row |= {name: round(figures[name], 3) for name in ("mrr", "hits@1", "hits@10")}
    print_table([row])
    if options.name:
        record = f"{options.model}-links"
        before = (read_record(record) or {"rows": []})["rows"]
        others = [old for old in before if (old["graph"], old["weights"]) != (row["graph"], row["weights"])]
        write_record(record, {"rows": [*others, row]})


@torch.no_grad()
def plain_scores(
    network: UltraNetwork, graph: ReadGraph, encoded: EncodedRelations, question: Question, head: int
) -> Tensor:
    """Scores (C,) with a message for each edge."""
    order = graph.edges.by_relation
    (a, b) = torch.from_numpy(question.references.astype(np.int64)).T
    heads = torch.cat([order.first.long(), a, b])
    tails = torch.cat([order.second.long(), b, a])
    new = [torch.full_like(a, graph.relations), torch.full_like(a, graph.relations + 1)]
    relations = torch.cat([order.row.long(), *new])
    labels = torch.zeros(graph.edges.nodes, network.shape.width)
    labels[head] = encoded.task[0]
    x = labels
    for layer, known, fresh in zip(network.entity_model.entity_layers, encoded.relations, encoded.new, strict=True):
        weights = torch.cat([known[0], fresh[0]])
        sums = labels.index_add(0, tails, x[heads] * weights[relations])
        x = x + torch.relu(layer.layer_norm(layer.linear(torch.cat([x, sums], -1))))
    states = x[torch.from_numpy(question.candidates.astype(np.int64))]
    both: Tensor = network.entity_model.mlp(torch.cat([states, encoded.task.expand(len(states), -1)], -1))
    return both.squeeze(-1)


def speed(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    benchmark = open_benchmark(options.files[0] if options.files else "nell-one")
    network: Any = PUBLISHED["ultra"].read(options.checkpoint).network()
    graph = ReadGraph.of(benchmark.known_graph, names=False)
    scorer = PublishedScorer("ultra", network, graph)
    rows = list[dict[str, Any]]()
    for task in benchmark.split("test"):
        references, queries = task.split(SHOTS)
        heads = np.unique(queries[:, 0])[: options.heads]
        question = Question(task.name, references, heads, task.range)
        first = seconds(lambda asked=question: scorer._task(asked.references))
        encoded = scorer._task(references).encoded
        ours = theirs = 0.0
        for head in heads:
            one = Question(task.name, references, np.array([head], np.int32), task.range)
            ours += seconds(lambda asked=one: scorer(asked))
            theirs += seconds(lambda e=encoded, asked=one, h=head: plain_scores(network, graph, e, asked, int(h)))
            expected = plain_scores(network, graph, encoded, one, int(head)) if head == heads[0] else None
            if expected is not None and float((scorer(one)[0] - expected).abs().max()) > 1e-3:
                raise SystemExit("the two sides give different scores: nothing is recorded")
        row = {"relation": task.name, "heads": len(heads), "candidates": len(task.range), "references ms": 1000 * first}
        rows.append({**row, "fewlink ms": 1000 * ours / len(heads), "plain ms": 1000 * theirs / len(heads)})
    print_table(rows)
    ratio = sum(row["plain ms"] for row in rows) / sum(row["fewlink ms"] for row in rows)
    print(f"a head takes plain torch {ratio:.1f} times as long")
    write_record("ultra-speed-cpu", {"benchmark": benchmark.name, "rows": rows, "ratio": ratio})


@torch.no_grad()
def seconds(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["links", "speed"])
    parser.add_argument("files", nargs="*", help="train, valid and test triples; or a benchmark")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--model", choices=PUBLISHED, default="ultra", help="of links")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--name", default="", help="of the graph; with it, links stores a record")
    parser.add_argument("--heads", type=int, default=20)
    options = parser.parse_args()
    links(options) if options.what == "links" else speed(options)


if __name__ == "__main__":
    main()
