"""The speed of TRAIL: a new relation, a prediction, an episode, a training step, an evaluation, and a whole run.

python benchmarks/trail_speed.py nell-one RUN --device cpu

RUN is a training run of trail. Figures are medians over several turns, with their range. The record is
records/trail-speed-DEVICE.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from fewlink.trail_0_1.learner import Trail01Learner, Trail01Vectors
from fewlink.trail_0_1.model import Trail01Settings

from fewlink.core.memory import hardware
from fewlink.data import open_benchmark
from fewlink.evaluation import Protocol, evaluate
from fewlink.scorers import Question
from fewlink.training import RunConfig, open_run
from measure import print_table, write_record

TOGETHER = 16  # episodes made together in a turn


def turns(what: str, work: Callable[[int], Any], count: int, device: str) -> dict[str, Any]:
    """Milliseconds of work(0), work(1), …: median, least and most, after a turn that is not timed."""
    times = []
    for turn in range(-1, count):
        if device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work(turn if turn >= 0 else count)
        if device != "cpu":
            torch.cuda.synchronize()
        if turn >= 0:
            times.append(1000 * (time.perf_counter() - start))
    return {"what": what, "median ms": median(times), "least ms": min(times), "most ms": max(times), "turns": count}


def training_log(run: Path) -> dict[str, Any]:
    """From the run's log: seconds and steps to its best checkpoint and to its end, making episodes included."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    ends = list(itertools.accumulate(sum(line["seconds"].values()) for line in lines))
    best = max(range(len(lines)), key=lambda n: lines[n]["dev"]["mrr"])
    settings = RunConfig.read(run).settings
    return {
        "device": settings.device,
        "steps to best": lines[best]["step"],
        "seconds to best": ends[best],
        "steps": lines[-1]["step"],
        "of": settings.steps,
        "seconds": ends[-1],
        "of them lessons": sum(line["seconds"]["sampling"] for line in lines),
        "steps per second, lessons made": lines[-1]["steps_per_second"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()

    benchmark, device, count = open_benchmark(options.bench), options.device, options.turns
    scorer = open_run(options.run, benchmark, device=device)
    tasks = benchmark.split("dev")

    def ask(task_number: int, first: int, head: int) -> None:
        task = tasks[task_number % len(tasks)]
        question = Question(task.name, task.pairs[first : first + 3], task.pairs[head : head + 1, 0], task.range)
        np.asarray(torch.as_tensor(scorer(question)).cpu())

    settings = RunConfig.read(options.run).settings
    assert isinstance(settings, Trail01Settings)
    vectors = Trail01Vectors.open(options.run / "embeddings")
    learner = Trail01Learner(benchmark, vectors, dataclasses.replace(settings, device=device), [settings.seed])
    learner.run_steps(0, 1)
    store = learner.episodes
    new = iter(np.array_split(np.arange(64, len(store.index)), (len(store.index) - 64) // TOGETHER))
    rows = [
        turns("prediction, new relation", lambda turn: ask(turn, turn % 7, 20), count, device),
        turns("prediction, same relation", lambda turn: ask(0, 0, 20 + turn % 50), count, device),
        turns(f"{TOGETHER} lessons", lambda turn: store.get(next(new).tolist()), count, device),
        turns("step", lambda turn: learner.step(0, store.get(store.numbers(0))), count, device),
        turns("evaluation of dev", lambda turn: evaluate(benchmark, scorer, Protocol("dev", 3, "full")), 1, device),
    ]
    print_table(rows)
    peak = (
        torch.cuda.max_memory_allocated()
        if device != "cpu"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    print(f"peak memory {peak / 2**30:.2f} GiB")
    trained = training_log(options.run)
    print_table([trained])
    results = {"hardware": hardware(), "rows": rows, "peak_bytes": peak, "training": trained}
    write_record(f"trail-speed-{device}", {"bench": benchmark.name, **results})


if __name__ == "__main__":
    main()
