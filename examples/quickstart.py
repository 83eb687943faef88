"""Few-shot link prediction in a minute or two: train TRAIL, compare it with learning-free scorers, ask it a question.

The run stays in runs/demo, so a second time there is nothing to train.
"""

from pathlib import Path

import fewlink
from fewlink.baselines.learning_free import LEARNING_FREE
from fewlink.cli import show
from fewlink.cli.train import step_lines

HOME = Path("runs/demo")

benchmark = fewlink.open_benchmark("umls")
graph = benchmark.graph
print(f"{benchmark.name}: {len(graph.entities)} entities, {graph.triple_count:,} background triples\n")

# The vectors that TRAIL looks at, and TRAIL itself, with fewer lessons and steps than its recipe has.
settings = fewlink.TrailSettings(lessons=2, steps=200, evaluate_every=100)
fewlink.train(benchmark, "trail", settings=settings, out=HOME / "trail", on_event=step_lines("trail"))
linker = fewlink.load(HOME / "trail")  # the step that was best on dev
linker.calibration or fewlink.calibrate(linker)

protocol = fewlink.Protocol(split="test", shots=3, candidates="full")
rows = []
for scorer in [*(fewlink.learning_free(name, graph) for name in LEARNING_FREE), linker.scorer]:
    evaluation = fewlink.evaluate(benchmark, scorer, protocol)
    micro, macro = (evaluation.metrics()[average] for average in ("micro", "macro"))
    rows.append([scorer.name, *(micro[m] for m in ("mrr", "hits@1", "hits@5", "hits@10")), macro["mrr"]])
title = f"test, 3-shot, full candidates, {evaluation.queries} queries"
show.table(["scorer", "MRR", "Hits@1", "Hits@5", "Hits@10", "macro MRR"], rows, title=title)

relation = "produces"
references = linker.references_of(relation)
task = benchmark.task(relation)
asked = int(task.pairs[len(references), 0])
head, answers = graph.entities[asked], {graph.entities[int(tail)] for tail in task.known_tails[asked]}
print(f"Three examples of '{relation}', a relation the graph does not have:")
for one, other in references:
    print(f"  {one} → {other}")
print(f"\nWhat does '{head}' produce?")
found = linker.predict(references, [head], k=5)
for row in found:
    note = "  (known to be true)" if row.tail in answers else ""
    print(f"  {row.rank:g}. {row.tail_name:45} {row.probability:.2f}{note}")
print(f"\nWhy {found[0].tail_name}?")
for sentence in linker.explain(references, head, found[0].tail).sentences():
    print(f"  {sentence}")
print("\nThe same in a browser:\n  .venv/bin/pip install -c constraints.txt -e '.[serve]'")
print(f"  .venv/bin/fewlink serve {HOME / 'trail'}")
