"""Few-shot link prediction in a minute: train FSRL, compare it with learning-free scorers, ask the best a question."""

import tempfile
from pathlib import Path

import fewlink
from fewlink.cli import show
from fewlink.cli.train import step_lines
from fewlink.cli.training import epoch_lines
from fewlink.scorers import LEARNING_FREE, Question, best_tails

benchmark = fewlink.open_benchmark("umls")
graph = benchmark.graph
print(f"{benchmark.name}: {len(graph.entities)} entities, {graph.triple_count:,} background triples\n")

with tempfile.TemporaryDirectory() as folder:
    # ComplEx vectors, trained on the background alone
    vectors = fewlink.pretrain(benchmark, out=Path(folder) / "vectors", on_epoch=epoch_lines("vectors"))
    settings = fewlink.TrainingSettings("fsrl", steps=1500, evaluate_every=250)
    fewlink.train(benchmark, vectors, settings, Path(folder) / "run", on_event=step_lines("fsrl"))
    fsrl = fewlink.open_run(Path(folder) / "run", benchmark)  # the step that was best on dev

protocol = fewlink.Protocol(split="test", shots=3, candidates="full")
rows = []
scorers = [*(fewlink.learning_free(name, graph) for name in LEARNING_FREE), fsrl]
for scorer in scorers:
    evaluation = fewlink.evaluate(benchmark, scorer, protocol)
    micro, macro = (evaluation.metrics()[average] for average in ("micro", "macro"))
    rows.append([scorer.name, *(micro[m] for m in ("mrr", "hits@1", "hits@5", "hits@10")), macro["mrr"]])
title = f"test, 3-shot, full candidates, {evaluation.queries} queries"
show.table(["scorer", "MRR", "Hits@1", "Hits@5", "Hits@10", "macro MRR"], rows, title=title)

best = scorers[max(range(len(rows)), key=lambda i: rows[i][1])]
task = benchmark.task("produces")
references, queries = task.split(shots=3)
head, answer = queries[0]
print(f"Three examples of '{task.name}', a relation the graph does not have:")
for pair in references:
    print(f"  {graph.name(pair[0])} → {graph.name(pair[1])}")
print(f"\nWhat does '{graph.name(head)}' produce? {best.name} says:")
question = Question(task.name, references, heads=queries[:1, 0], candidates=task.range)
for rank, (tail, score) in enumerate(best_tails(best, question, 5)[0], 1):
    note = "  (known to be true)" if tail in task.known_tails[head] else ""
    print(f"  {rank}. {graph.name(tail):45} {score:.3f}{note}")
