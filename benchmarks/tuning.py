"""What fine-tuning gains on held-out questions of a graph, for several settings; appended to tries/tuning.jsonl.

    python benchmarks/tuning.py GRAPH.tsv --names NAMES.tsv --set learning_rate=0.0003 --edges 15000

Questions are held out as `fewlink fit` does, both halves of them are asked, and the average of the weights is measured.
Without --edges a step reads the whole graph.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch

from fewlink.fitting.held_out import (
    CHOOSING,
    EXPECTING,
    Ranks,
    figures_by_shots,
    figures_of,
    gain,
    hides_relations,
    hold_out,
    rank_held_out,
)
from fewlink.fitting.tuning import NeighbourhoodLearner, trail_scorer, tuning_settings
from fewlink.graph import compile_graph
from fewlink.models.contract import Scorer
from fewlink.models.trail.family import graphs_of
from fewlink.models.trail.learn import TrailLearner
from fewlink.models.trail.shipped import shipped
from fewlink.tasks import Benchmark

SETTINGS = ("learning_rate", "relations", "queries", "candidates", "average", "steps")
TRIES = Path(__file__).parent / "tries" / "tuning.jsonl"


def ranks_of(held: Benchmark, scorer: Scorer) -> list[Ranks]:
    """The ranks of all queries of each held-out relation, by the number of references."""
    halves = [rank_held_out(held, [scorer], half, math.inf)[0] for half in (CHOOSING, EXPECTING)]
    return [
        {name: [*own.get(name, []), *other.get(name, [])] for name in {**own, **other}}
        for own, other in zip(*halves, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("--names", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--edges", type=int)
    words = parser.parse_args()
    torch.set_num_threads(1)
    name = words.graph.name.partition(".")[0]
    held = hold_out(compile_graph([words.graph], names=words.names, literals="keep"), name, 0)
    settings = tuning_settings(words.set)
    start = shipped().weights
    before = ranks_of(held, trail_scorer(held, settings, start, Path(name)))
    graphs = graphs_of(held, settings)
    learner = (NeighbourhoodLearner if words.edges else TrailLearner)(graphs, settings, start)
    if isinstance(learner, NeighbourhoodLearner):
        learner.part_edges = words.edges
    began = time.process_time()
    for step in range(settings.steps):
        learner.run_steps(step, 1)
    seconds = (time.process_time() - began) / settings.steps
    after = ranks_of(held, trail_scorer(held, settings, learner.averaged, Path(name)))
    rise, error = gain(before, after)
    by_shots = [figures_by_shots(ranks) for ranks in (before, after)]
    record: dict[str, Any] = {
        "graph": name,
        "triples": held.graph.triple_count,
        "held_out": "relations" if hides_relations(held) else "pairs",
        "settings": {name: getattr(settings, name) for name in SETTINGS},
        "edges": words.edges,
        "weights": shipped().facts["sha256"],
        "before": figures_of(before),
        "gain": rise,
        "error": error if math.isfinite(error) else None,  # of one relation it is not known
        "by_references": {shots: figures["mrr"] - by_shots[0][shots]["mrr"] for shots, figures in by_shots[1].items()},
        "by_relation": {
            task.name: gain([old], [new]).mean for task, old, new in zip(held.split("dev"), before, after, strict=True)
        },
        "cpu_seconds_of_a_step": round(seconds, 3),
    }
    with TRIES.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    print(f"{name}: {rise:+.4f} ± {error:.4f} MRR, {seconds:.2f} s of CPU a step")


if __name__ == "__main__":
    main()
