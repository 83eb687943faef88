"""Compare TRAIL, with the weights that come with fewlink, with learning-free scorers on the built-in benchmark umls."""

import fewlink
from fewlink.cli.terminal import print_table
from fewlink.models.baselines import LEARNING_FREE

benchmark = fewlink.open_benchmark("umls")
graph = benchmark.graph
print(f"{benchmark.name}: {len(graph.entities)} entities, {graph.triple_count:,} background triples\n")

linker = fewlink.load("umls")  # nothing is trained; a file of triples works in the same way

protocol = fewlink.Protocol(split="test", shots=3, candidates="full")
rows = []
for scorer in [*(fewlink.learning_free(name, graph) for name in LEARNING_FREE), linker.scorer]:
    evaluation = fewlink.evaluate(benchmark, scorer, protocol)
    micro, macro = (evaluation.metrics()[average] for average in ("micro", "macro"))
    rows.append([scorer.name, *(micro[m] for m in ("mrr", "hits@1", "hits@5", "hits@10")), macro["mrr"]])
title = f"test, 3-shot, full candidates, {evaluation.queries} queries"
print_table(["scorer", "MRR", "Hits@1", "Hits@5", "Hits@10", "macro MRR"], rows, title=title)
