"""Run every benchmark, then print a table of ratios and a table of growth.

    python benchmarks/suite.py [--quick] [--only NAME …] [--run RUN] [--bench BENCH] [--fresh]

RUN is a training run of trail on BENCH; by default a short run is trained, which has the same speed. Benchmarks whose
GPU, data or package is missing are skipped with a message. Records go to benchmarks/records; with --quick, which tries
everything on small sizes, to a temporary folder. Recorded growth is not measured again unless --fresh is given.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import summary
from measure import RECORDS, print_table

HERE = Path(__file__).parent
RECORDS_VARIABLE = "FEWLINK_BENCH_RECORDS"
SMALL = ("--like", "nell-one", "--entities", "600", "--triples", "3000")  # a generated benchmark for --quick
SHORT = ("steps=16", "evaluate_every=16")  # settings of a run for measuring speed
SHORTER = ("steps=2", "evaluate_every=2")


@dataclass(frozen=True)
class Part:
    """A script with its arguments, and those for --quick or None; {bench} and {run} are replaced."""

    name: str
    script: str
    full: Sequence[str]
    quick: Sequence[str] | None

    def needs(self, what: str, quick: bool) -> bool:
        return any(f"{{{what}}}" in word for word in (self.quick if quick else self.full) or ())


PARTS = (
    Part(
        "reading",
        "reading.py",
        ["--large"],
        ["--triples", "5000", "--entities", "1000", "--relations", "20", "--repeats", "1"],
    ),
    Part("pretraining", "embeddings_speed.py", [], ["--seconds", "0.5", "--sizes", "2000"]),
    Part("pretraining-memory", "embeddings_speed.py", ["--memory"], None),
    Part("pretraining-quality", "embeddings_quality.py", [], None),
    Part("pretraining-gpu", "embeddings_gpu.py", ["{bench}"], None),
    Part("fewshot", "fewshot_speed.py", ["{bench}"], ["{bench}", "--quick"]),
    Part("fewshot-gpu", "fewshot_speed.py", ["{bench}", "--device", "cuda", "--seeds-together", "16"], None),
    Part("propagation", "propagation.py", ["{bench}"], ["{bench}", "--turns", "1", "--steps"]),
    Part("propagation-gpu", "propagation.py", ["{bench}", "--device", "cuda"], None),
    Part("explanations", "explanations.py", ["umls"], ["umls", "--heads", "1", "--draws", "1"]),
    Part("explanation-check", "explanation_check.py", ["umls"], ["umls", "--each", "4"]),
    Part(
        "serving",
        "serving.py",
        ["{run}", "--bench", "{bench}"],
        ["{run}", "--bench", "{bench}", "--clients", "4", "--seconds", "2"],
    ),
    Part("growth", "growth.py", [], ["--sizes", "2000", "8000"]),
)


class NotMeasured(Exception):
    """Why a benchmark was not measured: `skipped`, or failed."""

    def __init__(self, reason: str, skipped: bool) -> None:
        super().__init__(reason)
        self.skipped = skipped


def call(words: Sequence[str], *, shown: bool = True) -> None:
    """Run Python with these arguments; if it fails, raises with its last line of error output."""
    process = subprocess.Popen(
        [sys.executable, *words], stdout=None if shown else subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    last = ""
    for line in process.stderr:
        last = line.strip() or last
        if shown:
            print(line, end="", file=sys.stderr, flush=True)
    if process.wait():
        missing = last.startswith(("skipped:", "ModuleNotFoundError:"))
        reason = last.removeprefix("skipped:").removeprefix("ModuleNotFoundError:").strip()
        raise NotMeasured(reason or f"ended with {process.returncode}", missing)


class Prepared:
    """The benchmark and the run for all parts, made when a part first needs them."""

    def __init__(self, folder: Path, bench: str, run: str | None, quick: bool) -> None:
        self.folder, self.quick = folder, quick
        self._bench, self._run = None if quick else bench, run
        self._checked = False

    def bench(self) -> str:
        if self._bench is None:
            generated = self.folder / "small"
            call(["-m", "fewlink", "data", "generate", *SMALL, "--out", str(generated)], shown=False)
            self._bench, self._checked = str(generated), True
        if not self._checked:
            try:
                call(["-m", "fewlink", "data", "info", self._bench, "--json"], shown=False)
            except NotMeasured as error:
                raise NotMeasured(str(error), skipped=True) from None
            self._checked = True
        return self._bench

    def run(self) -> str:
        if self._run is None:
            trained = self.folder / "run"
            print("training a short run of trail to measure its speed", file=sys.stderr, flush=True)
            changes = [word for change in (SHORTER if self.quick else SHORT) for word in ("--set", change)]
            words = ["train", self.bench(), "--model", "trail", "--device", "cpu", "--out", str(trained), *changes]
            call(["-m", "fewlink", *words])
            self._run = str(trained)
        return self._run


def do(part: Part, prepared: Prepared, quick: bool, more: Sequence[str]) -> None:
    """Run one part."""
    words = part.quick if quick else part.full
    if words is None:
        raise NotMeasured("not part of --quick", skipped=True)
    if not (HERE / part.script).exists():
        raise NotMeasured(f"there is no {part.script}", skipped=True)
    filled = {what: getattr(prepared, what)() for what in ("bench", "run") if part.needs(what, quick)}
    call([str(HERE / part.script), *(word.format(**filled) for word in words), *more])


def show(folder: Path) -> None:
    """Print ratios and growth from all records of a folder."""
    records = summary.read_records(folder)
    if rows := summary.ratios(records):
        print("\nRatios\n")
        print_table(rows)
    if "growth" in records:
        entries = records["growth"]["results"]["entries"]
        for title, measures in (("Growth of time", summary.TIMES), ("Growth of memory", summary.MEMORY)):
            print(f"\n{title}, by entities; exponents are of the triples\n")
            print_table(summary.growth(entries, measures))
            steep = summary.too_steep(entries, measures)
            print(f"exponents over {summary.ALLOWED} at the end: {', '.join(steep) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to test that everything works")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], metavar="NAME")
    parser.add_argument("--bench", default="nell-one")
    parser.add_argument("--run", help="a training run of trail on BENCH")
    parser.add_argument("--sizes", nargs="+", help="of growth, in entities")
    parser.add_argument("--stages", nargs="+", help="of growth")
    parser.add_argument("--fresh", action="store_true", help="measure recorded growth again")
    options = parser.parse_args()
    outcomes, failed = [], False
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        records = RECORDS
        if options.quick:
            records = folder / "records"
            os.environ[RECORDS_VARIABLE] = str(records)  # of child processes
        prepared = Prepared(folder, options.bench, options.run, options.quick)
        for part in PARTS:
            if options.only and part.name not in options.only:
                continue
            print(f"\n{part.name}", flush=True)
            more = ["--fresh"] * options.fresh
            for name in ("sizes", "stages"):
                more += [f"--{name}", *getattr(options, name)] if getattr(options, name) else []
            start = time.perf_counter()
            try:
                do(part, prepared, options.quick, more if part.name == "growth" else [])
                outcome = "measured"
            except NotMeasured as error:
                outcome = f"{'skipped' if error.skipped else 'FAILED'}: {error}"
                failed |= not error.skipped
                print(outcome, flush=True)
            outcomes.append({"part": part.name, "seconds": round(time.perf_counter() - start), "outcome": outcome})
        show(records)
    print()
    print_table(outcomes)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
