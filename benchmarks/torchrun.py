"""TRAIL trained by one process and by two of torchrun, with one thread each: steps a second, and equal weights.

python benchmarks/torchrun.py attack-few [umls …] [--steps 60] [--set queries=2 …]

Two processes share the relations of each step and average gradients. `steps/s` is that of the run's own log, without
evaluations. `load` is the number of processes that wanted a core in the minute before: the cores must be idle, or two
processes get more of them than one. `core seconds` are those of all processes from start to end. `largest difference`
is that of a weight after so many steps. Writes records/torchrun.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from measure import print_table, write_record


def trained(benchmark: str, run: Path, processes: int, settings: Sequence[str]) -> tuple[float, float]:
    """Train into a folder; steps a second, and core seconds."""
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [*start, "-m", "fewlink", "train", benchmark, "--out", str(run), *(f"--set={each}" for each in settings)]
    subprocess.run([sys.executable, *words], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    line = json.loads((run / "metrics.jsonl").read_text("utf-8").splitlines()[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return float(line["steps_per_second"]), used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    options = parser.parse_args()
    settings = [f"steps={options.steps}", f"evaluate_every={options.steps}", *options.settings]
    rows: list[dict[str, Any]] = []
    for benchmark in options.benchmarks:
        with tempfile.TemporaryDirectory() as folder:
            runs = {processes: Path(folder) / str(processes) for processes in (1, 2)}
            load = os.getloadavg()[0]
            pace = {processes: trained(benchmark, run, processes, settings) for processes, run in runs.items()}
            one, two = (load_file(run / "last" / "weights.safetensors") for run in runs.values())
            rows.append(
                {
                    "benchmark": benchmark,
                    "settings": " ".join(settings),
                    "load": load,
                    "steps/s, 1 process": pace[1][0],
                    "steps/s, 2 processes": pace[2][0],
                    "times as fast": pace[2][0] / pace[1][0],
                    "core seconds, 1 process": pace[1][1],
                    "core seconds, 2 processes": pace[2][1],
                    "largest difference": max(float((two[name] - one[name]).abs().max()) for name in one),
                }
            )
        print_table(rows[-1:])
    print_table(rows)
    write_record("torchrun", {"rows": rows})


if __name__ == "__main__":
    main()
