"""Meta-training, evaluation and prediction on a large graph and on a smaller one, on the CPU or a GPU.

python benchmarks/large_models.py WIKI nell-one [--device cuda] [--turns 3] [--stages …]

Both arguments are benchmarks, as in every command. Each stage of growth.py that has a model runs on both in turn, each
time in its own process; figures are medians over the turns. FSRL reads random vectors of 50 reals. The record is
records/large-models-DEVICE.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import stages
import summary
from growth import TORCH
from measure import Cost, in_fresh_process, print_table, write_record

MODELS = ("fsrl", "trail")
STAGES = tuple(stage for stage in summary.STAGES if stage.startswith(("train", "evaluate", "predict")))
ON_GPU = "peak GB on the GPU"


def prepare(bench: str, folder: Path) -> dict[str, Any]:
    """Compile the benchmark if necessary and write a run of each model into the folder; returns its size as well."""
    from fewlink.tasks import open_benchmark

    benchmark = open_benchmark(bench)
    compiled = Path(bench) if (Path(bench) / "manifest.json").exists() else benchmark.save(folder / "compiled")
    for model in MODELS:
        stages.write_run(compiled, folder / model, model)
    graph = benchmark.graph
    return {
        "compiled": compiled,
        "about": {"name": benchmark.name, "entities": len(graph.entities), "triples": graph.triple_count},
    }


def work(stage: str, compiled: Path, folder: Path, device: str) -> dict[str, float]:
    """The figures of a stage, on a GPU with its peak memory."""
    what, model = stage.lower().split()
    if what == "train":
        figures = (stages.train_fsrl if model == "fsrl" else stages.train_trail)(compiled, device)
    elif what == "evaluate":
        figures = stages.evaluate(compiled, model, device)
    else:
        figures = stages.predict(compiled, folder / model, device)
    if device != "cpu":
        import torch

        figures[ON_GPU] = torch.cuda.max_memory_allocated() / 1e9
    return figures


def rows(costs_of: Mapping[str, Sequence[Sequence[Cost]]], names: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each figure: its median on each benchmark, and the ratio of the first to the last."""
    memory = [*summary.MEMORY, *(summary.Measure(stage, ON_GPU, f"{stage}: on the GPU", "GB") for stage in STAGES)]
    table = []
    for measure in (*summary.TIMES, *memory):
        entries = [
            [{"seconds": cost.seconds, "peak GB": cost.peak_bytes / 1e9, "figures": cost.value} for cost in costs]
            for costs in costs_of.get(measure.stage, ())
        ]
        values = [[value for entry in mine if (value := measure.of(entry)) is not None] for mine in entries]
        if values and all(values):
            each = dict(zip(names, map(median, values), strict=True))
            first, *_, last = each.values()
            table.append({"what": measure.name, "unit": measure.unit, **each, "ratio": first / last})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", nargs=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, metavar="STAGE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / str(number) for number in range(len(options.bench))]
        prepared = [in_fresh_process(prepare, *both).value for both in zip(options.bench, folders, strict=True)]
        costs_of: dict[str, list[list[Cost]]] = {stage: [[] for _ in prepared] for stage in options.stages}
        for stage in options.stages:
            for _ in range(options.turns):
                for one, folder, costs in zip(prepared, folders, costs_of[stage], strict=True):
                    print(f"{stage}, {one['about']['name']}", file=sys.stderr, flush=True)
                    costs.append(in_fresh_process(work, stage, one["compiled"], folder, options.device, imports=TORCH))
    abouts = [one["about"] for one in prepared]
    table = rows(costs_of, [about["name"] for about in abouts])
    print_table(table)
    machine = in_fresh_process(_hardware).value
    settings = {"dim": stages.DIM, "turns": options.turns}
    write_record(
        f"large-models-{options.device}", {"hardware": machine, "benchmarks": abouts, **settings, "rows": table}
    )


def _hardware() -> str:
    from fewlink.core.memory import hardware

    return hardware()


if __name__ == "__main__":
    main()
