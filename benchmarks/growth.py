"""The growth of the time and memory of every stage with the graph, and its exponents.

    python benchmarks/growth.py [--sizes 10000 100000 1000000 4838244] [--folder FOLDER] [--stages …] [--fresh]

Each size is a generated benchmark of Wiki-One's shape, the last one as large as Wiki-One. Each stage runs in its own
process, limited to the free memory; of a stage that takes seconds, the best of three processes counts. Entries of
records/growth.json are not measured again unless --fresh is given, so a stopped run can be resumed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stages
import summary
from fewlink.core.memory import free_bytes, keep_freed
from measure import Cost, in_fresh_process, print_table, read_record, write_record

SIZES = (10_000, 100_000, 1_000_000, 4_838_244)
RECORD = "growth"
REPEATS, QUICK = 3, 10.0  # processes of a stage, and seconds above which one is enough
SETTINGS = {"like": stages.LIKE, "seed": stages.SEED, "dim": stages.DIM}
TORCH = ("torch", "fewlink.training", "fewlink.linker")

Entry = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """The folder of one size, with the outputs of its stages."""

    folder: Path
    entities: int

    @property
    def layout(self) -> Path:
        return self.folder / "layout"

    @property
    def compiled(self) -> Path:
        return self.folder / "compiled"


@dataclass(frozen=True)
class Stage:
    """`work` and its arguments, the modules imported before timing, and the model of the run that it needs."""

    work: Callable[..., Any]
    arguments: Callable[[Place], tuple[Any, ...]]
    imports: Sequence[str] = TORCH
    run: str = ""


STAGES = {
    "generate": Stage(stages.generate, lambda p: (p.layout, p.entities), ["fewlink.tasks.synthetic.benchmark"]),
    "read": Stage(stages.read, lambda p: (p.layout,), ["fewlink.graph", "pyarrow.compute"]),
    "compile": Stage(stages.compile_benchmark, lambda p: (p.layout, p.compiled), ["fewlink.tasks", "pyarrow.compute"]),
    "open": Stage(stages.open_compiled, lambda p: (p.compiled,), ["fewlink.tasks"]),
    "pretrain": Stage(stages.pretrain, lambda p: (p.compiled, p.folder / "vectors")),
    "train FSRL": Stage(stages.train_fsrl, lambda p: (p.compiled,)),
    "train TRAIL": Stage(stages.train_trail, lambda p: (p.compiled,)),
    "evaluate FSRL": Stage(stages.evaluate, lambda p: (p.compiled, "fsrl")),
    "evaluate TRAIL": Stage(stages.evaluate, lambda p: (p.compiled, "trail")),
    "predict FSRL": Stage(stages.predict, lambda p: (p.compiled, p.folder / "run"), run="fsrl"),
    "predict TRAIL": Stage(stages.predict, lambda p: (p.compiled, p.folder / "run"), run="trail"),
}
MADE = {"generate": "layout", "compile": "compiled"}  # outputs that other stages need


def measure_size(place: Place, names: Sequence[str], limit: int) -> Iterator[Entry]:
    """An entry for each of these stages, and for those that make the inputs they need."""
    for name, stage in STAGES.items():
        missing = name in MADE and not (place.folder / MADE[name]).exists()
        if name not in names and not missing:
            continue
        print(f"{place.entities:,} entities: {name}", file=sys.stderr, flush=True)
        with _prepared(place, stage):
            yield _entry(place, name, _best(place, name, limit))


def _best(place: Place, name: str, limit: int) -> Cost | str:
    """The cost of a stage, or why it failed; of quick stages, the fastest of three processes."""
    stage, best = STAGES[name], None
    for _ in range(REPEATS):
        if name in MADE:
            shutil.rmtree(place.folder / MADE[name], ignore_errors=True)
        cost = limited(limit, stage.work, *stage.arguments(place), imports=stage.imports)
        if isinstance(cost, str):
            return cost
        best = cost if best is None else min(best, cost, key=lambda each: each.seconds)
        if cost.seconds > QUICK:
            break
    assert best is not None
    return best


@contextlib.contextmanager
def _prepared(place: Place, stage: Stage) -> Iterator[None]:
    """Provide the run that a stage needs; remove it and the outputs of the stage afterwards."""
    try:
        if stage.run:
            in_fresh_process(stages.write_run, place.compiled, place.folder / "run", stage.run)
        yield
    finally:
        for name in ("run", "vectors"):
            shutil.rmtree(place.folder / name, ignore_errors=True)


def _entry(place: Place, name: str, cost: Cost | str) -> Entry:
    from fewlink.tasks.synthetic.benchmark import shape_of

    about = {"stage": name, "entities": place.entities, "triples": shape_of(stages.LIKE, place.entities).triples}
    if isinstance(cost, str):
        print(f"{place.entities:,} entities: {name}: {cost}", file=sys.stderr, flush=True)
        return {**about, "failed": cost}
    return {**about, "seconds": cost.seconds, "peak GB": cost.peak_bytes / 1e9, "figures": cost.value}


def limited(limit: int, work: Callable[..., Any], *args: Any, imports: Sequence[str] = ()) -> Cost | str:
    """The cost of a call in its own process with at most `limit` bytes of memory, or why it failed."""
    try:
        cost = in_fresh_process(_within, limit, work, args, imports=imports)
    except BrokenProcessPool:
        return "no memory"
    return cost.value if isinstance(cost.value, str) else cost


def _within(limit: int, work: Callable[..., Any], args: Sequence[Any]) -> Any:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    keep_freed()  # as the command does
    try:
        return work(*args)
    except MemoryError:
        return "no memory"
    except RuntimeError as error:  # torch has no class for this error
        if "allocate memory" in str(error) or "not enough memory" in str(error):
            return "no memory"
        raise


def memory_left() -> int:
    """Nine tenths of the free memory, in bytes."""
    return int(0.9 * (free_bytes() or 8e9))


def kept_entries(settings: Mapping[str, Any], again: Collection[tuple[str, int]]) -> list[Entry]:
    """The entries of the record, if it has the same settings, without those (stage, size) to be measured again."""
    before = read_record(RECORD)
    same = before and all(before.get(name) == value for name, value in settings.items())
    entries = before["entries"] if before and same else []
    return [entry for entry in entries if (entry["stage"], entry["entities"]) not in again]


def store(settings: Mapping[str, Any], entries: Sequence[Entry], *, quiet: bool = True) -> list[Entry]:
    """Write the record of these entries, and return them sorted by size and stage."""
    order = list(STAGES)
    ordered = sorted(entries, key=lambda entry: (entry["entities"], order.index(entry["stage"])))
    tables = {"rows": summary.growth(ordered, summary.TIMES), "memory": summary.growth(ordered, summary.MEMORY)}
    write_record(RECORD, {**settings, "entries": ordered, **tables}, quiet=quiet)
    return ordered


def show(entries: Sequence[Entry]) -> None:
    """Print both tables, and the measures that grow faster than the triples."""
    for measures in (summary.TIMES, summary.MEMORY):
        print_table(summary.growth(entries, measures))
        steep = summary.too_steep(entries, measures)
        print(f"exponents over {summary.ALLOWED} at the end: {', '.join(steep) or 'none'}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="entities of each graph")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES), metavar="STAGE")
    parser.add_argument("--folder", type=Path, help="where graphs are stored; by default a temporary folder")
    parser.add_argument("--fresh", action="store_true", help="measure again what the record has")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch; 1 on a busy machine")
    parser.add_argument("--memory", type=float, help="GB that a stage may take; by default the free memory")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # of child processes
    limit = int(options.memory * 1e9) if options.memory else memory_left()
    settings = {**SETTINGS, "threads": options.threads}
    entries = kept_entries(settings, list(itertools.product(options.stages, options.sizes)) if options.fresh else ())
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for entities in sorted(options.sizes):
            known = {entry["stage"] for entry in entries if entry["entities"] == entities}
            missing = [name for name in STAGES if name in options.stages and name not in known]
            if not missing:
                continue
            place = Place(folder / str(entities), entities)
            place.folder.mkdir(parents=True, exist_ok=True)
            for entry in measure_size(place, missing, limit):
                same = (entry["stage"], entities)
                entries = [old for old in entries if (old["stage"], old["entities"]) != same] + [entry]
                store(settings, entries)
    show(store(settings, entries, quiet=False))


if __name__ == "__main__":
    main()
