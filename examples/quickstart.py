"""Few-shot link prediction in a minute: compare the learning-free scorers, then ask one of them a question."""

import fewlink
from fewlink.cli import show
from fewlink.scorers import LEARNING_FREE, Question, best_tails

benchmark = fewlink.open_benchmark("umls")
graph = benchmark.graph
print(f"{benchmark.name}: {len(graph.entities)} entities, {graph.triple_count:,} background triples\n")

rows = []
for name in LEARNING_FREE:
    scorer = fewlink.learning_free(name, graph)
    evaluation = fewlink.evaluate(benchmark, scorer, fewlink.Protocol(split="test", shots=3, candidates="full"))
    figures = evaluation.metrics()
    rows.append([name, *(figures["micro"][m] for m in ("mrr", "hits@1", "hits@5", "hits@10")), figures["macro"]["mrr"]])
title = f"test, 3-shot, full candidates, {evaluation.queries} queries"
show.table(["scorer", "MRR", "Hits@1", "Hits@5", "Hits@10", "macro MRR"], rows, title=title)

task = benchmark.task("produces")
references, queries = task.split(shots=3)
head, answer = queries[0]
print(f"Three examples of '{task.name}', a relation the graph does not have:")
for pair in references:
    print(f"  {graph.name(pair[0])} → {graph.name(pair[1])}")
print(f"\nWhat does '{graph.name(head)}' produce?")
question = Question(task.name, references, heads=queries[:1, 0], candidates=task.range)
best = best_tails(fewlink.learning_free("reference-tails", graph), question, 5)[0]
for rank, (tail, score) in enumerate(best, 1):
    note = "  (known to be true)" if tail in task.known_tails[head] else ""
    print(f"  {rank}. {graph.name(tail):45} {score:.3f}{note}")
