"""Few-shot link prediction in seconds: TRAIL with the weights that come with fewlink, beside learning-free scorers."""

import fewlink
from fewlink.baselines.learning_free import LEARNING_FREE
from fewlink.cli.common import print_table

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

relation = "produces"
references = linker.references_of(relation)
task = benchmark.task(relation)
query = int(task.pairs[len(references), 0])
head, answers = graph.entities[query], {graph.entities[int(tail)] for tail in task.known_tails[query]}
print(f"Three references of '{relation}', a relation that is not in the graph:")
for reference_head, reference_tail in references:
    print(f"  {reference_head} → {reference_tail}")
print(f"\nWhat does '{head}' produce?")
predictions = linker.predict(references, [head], k=5)
for row in predictions:
    note = "  (known to be true)" if row.tail in answers else ""
    amount = f"{row.score:5.2f}" if row.probability is None else f"{row.probability:5.0%}"
    print(f"  {row.rank:g}. {row.tail_name:45} {amount}{note}")
if predictions.trust:
    print(f"  {predictions.trust.sentence}")
print(f"\nWhy {predictions[0].tail_name}?")
for sentence in linker.explain(references, head, predictions[0].tail).sentences():
    print(f"  {sentence}")
print("\nTo see this in a browser:\n  .venv/bin/pip install -c constraints.txt -e '.[serve]'")
print("  .venv/bin/fewlink serve umls")
