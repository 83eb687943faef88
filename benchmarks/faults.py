"""Kill commands before every operation on the disk, and see that nothing is lost and nothing is left.

Operations are counted that change the disk: opening a file to write, renaming, removing, making folders, changing
permissions, and writing files to the disk. A command is killed (SIGKILL) before its first operation, in a fresh copy of
the same folder before its second, and so on to its last. After each kill

- what it writes opens as the version before or as the new one, and reading changes nothing on disk;
- the same command succeeds, and gives what a command gives that was not killed;
- no hidden file or folder is left, but perhaps an empty lock file.

`python benchmarks/faults.py` runs all commands, `python benchmarks/faults.py append save` some. With `--copies` a
command runs once, and the folder is copied before each operation that finds it changed: that is what a kill leaves, in
a third of the time. A fit, which takes seconds, is always checked so. With `--appends N` the script runs N rounds of
concurrent appends instead: 4 processes, each adding 12 triples one by one.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib.util
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # forking is safe as long as there is one thread

import filelock  # noqa: F401
import numpy as np
import safetensors.torch
import torch

from fewlink import cli
from fewlink.core.errors import FewlinkError
from fewlink.evaluation.records import RecordStore
from fewlink.fitting import fit as fit_module
from fewlink.fitting import tuning
from fewlink.fitting.append import append
from fewlink.fitting.card import write_card
from fewlink.fitting.record import RULES, TUNED
from fewlink.graph import Graph, compile_graph
from fewlink.linker import Linker
from fewlink.models import checkpoints
from fewlink.models.embeddings import Embeddings
from fewlink.models.run import Deployed, RunConfig
from fewlink.tasks import Benchmark

with suppress(ImportError):
    import pyarrow.compute  # noqa: F401

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
QUICK_FIT = ("steps=2", "relations=1", "queries=2", "candidates=16")
BOUNDS = ("--smallest", "10", "--largest", "30")  # of what is carved out of `towns`
# of a round of concurrent appends: processes, and triples that each adds
PROCESSES = 4
EACH = 12


@dataclass(frozen=True)
class Command:
    """What makes the folder before the command, the command, and what identifies the version that it wrote.

    The folder is the working folder of all three. `version` returns None if nothing was written yet.
    """

    prepare: Callable[[], Any]
    run: Callable[[], Any]
    version: Callable[[], str | None]
    copied: bool = False  # whether the folder is copied before each operation, and nothing is killed


def towns(relations: int = 6) -> list[str]:
    """Lines of a small graph, with relations to carve."""
    random = np.random.default_rng(0)
    home = random.integers(0, 6, 40)
    lines = [f"p{p}\tlives in\tt{home[p]}" for p in range(40)]
    lines += [f"p{p}\tknows\tp{(7 * p + 3) % 40}" for p in range(40)] + [f"t{t}\tis in\tl{t % 3}" for t in range(6)]
    for task in range(relations):
        lines += [f"p{p}\ttask {task}\tt{(home[p] + task) % 6}" for p in range(task, 40, 2)]
    return lines


def write_lines(name: str, lines: Iterable[str]) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines))


def fewlink_command(*words: str) -> None:
    """Run the command with these words; raises if it does not succeed."""
    sys.argv = ["fewlink", *words]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"fewlink {' '.join(words)} ended with {end.code}") from None


def make_once(place: str, *words: str) -> None:
    """Run a command that makes a new folder and refuses one that is there."""
    there = Path(place).exists()
    try:
        fewlink_command(*words, "--out", place)
    except RuntimeError:
        if not there:
            raise


def make_layout() -> None:
    """A benchmark in the NELL-One layout."""
    Path("layout").mkdir()
    write_lines("layout/path_graph", [line for line in towns() if "\ttask " not in line])
    for number, split in enumerate(("train", "dev", "test")):
        rows = [line.split("\t") for line in towns() if f"\ttask {number}\t" in line]
        Path(f"layout/{split}_tasks.json").write_text(json.dumps({f"task {number}": rows}))


def make_graph() -> None:
    write_lines("towns.tsv", towns())
    write_lines("more.tsv", ["p1\tknows\tnew person"])
    compile_graph("towns.tsv").save(Path("graph"))


def make_benchmark() -> None:
    write_lines("towns.tsv", towns())
    fewlink_command("data", "carve", "towns.tsv", "--out", "bench", *BOUNDS)
    write_lines("new.tsv", ["p1\tknows\tnew person", "p2\ttask 0\tt0"])


def make_run() -> None:
    """A run that answers with the shipped weights; nothing is measured."""
    make_benchmark()
    write_lines("graph.tsv", towns())
    fit_module.fit("graph.tsv", "run", change=QUICK_FIT, minutes=10)


def make_old_card() -> None:
    make_run()
    Path("run/README.md").write_text("An older card.\n")


def make_saved() -> None:
    make_run()
    Linker.load("run").save_pretrained("saved")
    append("run", [Path("new.tsv")])


def train_vectors() -> None:
    words = ("--set", "epochs=3", "--set", "dim=4")
    fewlink_command("train", "bench", "--model", "complex", "--out", "vectors", *words)


def evaluate_rules() -> None:
    fewlink_command("evaluate", "bench", "--scorer", "rules", "--results", "results", "--replace")


def make_results() -> None:
    make_benchmark()
    fewlink_command("evaluate", "bench", "--scorer", "popularity", "--results", "results")


def results_version() -> str:
    """The figures of all results, and that their ranks can be read."""
    store = RecordStore(Path("results"))
    return str(sorted((record.model, record.metrics) for record in store.records))


def card_version() -> str | None:
    Linker.load("run")
    return text("run/README.md")


def text(name: str) -> str | None:
    path = Path(name)
    return path.read_text() if path.exists() else None


def deployed_version() -> str:
    deployed = Deployed.open(Path("run"))
    assert deployed is not None
    return deployed.benchmark.fingerprint


def saved_version() -> str:
    linker = Linker.load("saved")
    return f"{linker.graph.fingerprint} {linker.step}"


def fit_version() -> str | None:
    """What answers, and what the configuration says of it; a fit that was killed before it answers has no version."""
    if not Path("run/config.json").exists():
        return None
    linker = Linker.load("run")
    config = RunConfig.read(Path("run"))
    weights, step = checkpoints.load_best(Path("run"))
    digest = hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights))).hexdigest()
    parts = (linker.graph.fingerprint, linker.measured.fingerprint, linker.scorer.name, linker.step, step, digest)
    return " ".join(str(part)[:8] for part in (*parts, config.answers_with, config.weights))


def best_in_turn(fit: Any) -> str:
    """In the place of `Fit.best`: the rules are deployed first, then the fine-tuned weights."""
    measured_best(fit)
    return TUNED if TUNED in fit.record["ranks"] else RULES


measured_best = fit_module.Fit.best


def run_fit() -> None:
    fit_module.Fit.best = best_in_turn  # type: ignore[method-assign, assignment]
    try:
        fit_module.fit("towns.tsv", "run", change=QUICK_FIT, minutes=10)
    finally:
        fit_module.Fit.best = measured_best  # type: ignore[method-assign, assignment]


COMMANDS = {
    "compile": Command(
        make_graph,
        lambda: compile_graph(["towns.tsv", "more.tsv"]).save(Path("graph")),
        lambda: Graph.open(Path("graph")).fingerprint,
    ),
    "carve": Command(
        lambda: write_lines("towns.tsv", towns()),
        lambda: make_once("new/bench", "data", "carve", "towns.tsv", *BOUNDS),
        lambda: Benchmark.open(Path("new/bench")).fingerprint if Path("new/bench").exists() else None,
    ),
    "data compile": Command(
        make_layout,
        lambda: make_once("new/bench", "data", "compile", "layout"),
        lambda: Benchmark.open(Path("new/bench")).fingerprint if Path("new/bench").exists() else None,
    ),
    "append": Command(
        make_benchmark,
        lambda: append("bench", [Path("new.tsv")]),
        lambda: Benchmark.open(Path("bench")).fingerprint,
    ),
    "append to a run": Command(make_run, lambda: append("run", [Path("new.tsv")]), deployed_version),
    "save": Command(make_saved, lambda: Linker.load("run").save_pretrained("saved"), saved_version),
    "vectors": Command(
        make_benchmark,
        train_vectors,
        lambda: Embeddings.open(Path("vectors")).digest() if Path("vectors").exists() else None,
    ),
    "card": Command(make_old_card, lambda: write_card("run"), card_version),
    "evaluate": Command(make_results, evaluate_rules, results_version),
    "fit": Command(lambda: write_lines("towns.tsv", towns(20)), run_fit, fit_version, copied=True),
}


class Operations:
    """Counts the operations of this process that change a folder, and kills it before one of them.

    With `copies` the folder is copied there before each operation, unless it is as it was before the one before.
    """

    def __init__(self, folder: Path, deadly: int, copies: Path | None = None) -> None:
        self.folder = str(folder)
        self.deadly = deadly
        self.count = 0
        self.names = list[str]()
        self.copies = copies
        self.copying = False
        self.state = set[tuple[Any, ...]]()
        sys.addaudithook(self.audit)
        os.fsync = lambda fd: self.step("fsync")  # what a killed process has written is not lost
        torch_module: Any = safetensors.torch
        serialize = torch_module.serialize_file

        def serialize_file(tensors: Any, file: Path, **options: Any) -> None:
            """What safetensors does: another file is written and renamed."""
            part = Path(file).with_name(".tmpAbCdEf")
            self.step("serialize")
            if self.deadly == self.count + 1:
                part.write_bytes(b"half")
            self.step("half of serialize")
            serialize(tensors, file, **options)

        torch_module.serialize_file = serialize_file

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and arguments[2] & WRITING and self.is_inside(arguments[0])):
            self.step(event, arguments[0])

    def is_inside(self, path: Any) -> bool:
        return not isinstance(path, int) and os.path.abspath(os.fsdecode(path)).startswith(self.folder)

    def step(self, name: str, path: Any = "") -> None:
        if self.copying:
            return
        self.count += 1
        if self.copies is not None:
            self.copying = True
            before = self.state
            self.state = _state(Path(self.folder))
            if self.state != before:
                shutil.copytree(self.folder, self.copies / str(self.count))
            self.copying = False
        if self.count == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        self.names.append(f"{name} {path}")


def _state(folder: Path) -> set[tuple[Any, ...]]:
    """What changes if anything in a folder does."""
    stats = ((path, path.lstat()) for path in folder.rglob("*"))
    return {(str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_mode) for path, stat in stats}


def killed_before(folder: Path, number: int, command: Command) -> Callable[[], Any]:
    """A command that is killed before an operation of this number."""
    return lambda: (Operations(folder, number), command.run())


def forked(folder: Path, work: Callable[[], Any]) -> tuple[int, str]:
    """Work in a child process whose working folder is this one: its exit status, and what it returned as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        said = io.StringIO()
        try:
            os.chdir(folder)
            with redirect_stdout(said), redirect_stderr(said):
                answer = str(work())
            status = 0
        except BaseException:
            answer = said.getvalue()[-500:] + traceback.format_exc()
        with os.fdopen(writer, "w") as file:
            file.write(answer)
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), answer


def tree(folder: Path) -> dict[str, str]:
    """All files and folders below a folder, with a hash of each file's content.

    Lock files are left out: they are empty, and one may stay until the next writer.
    """
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
        if not (path.name.startswith(".") and path.suffix == ".lock")
    }


def hidden(names: Iterable[str]) -> list[str]:
    return [name for name in names if any(part.startswith(".") for part in Path(name).parts)]


def check(
    command: Command, place: Path, every: int = 1, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Kill one command before each operation, or each `every`-th; the number of points and what went wrong."""
    template = place / "template"
    whole = place / "work"
    template.mkdir(parents=True)
    _must(forked(template, command.prepare))
    before = version_in(template, command)
    shutil.copytree(template, whole)
    copies = place / "copies"
    log = _must(forked(whole, lambda: _counted(whole, command.run, copies if command.copied else None)))
    operations = log.splitlines()
    after = version_in(whole, command)
    end = tree(whole)
    problems = [f"{left} is left by a command that was not killed" for left in hidden(end)]
    seen = {"before": 0, "after": 0, "nothing": 0, "between": 0}
    versions = set[str | None]()
    points = sorted(int(copy.name) for copy in copies.iterdir()) if command.copied else range(1, len(operations) + 1)
    for number in points[::every]:
        shutil.rmtree(whole)
        problem = ""
        if command.copied:
            (copies / str(number)).rename(whole)
        else:
            shutil.copytree(template, whole)
            status, answer = forked(whole, killed_before(whole, number, command))
            problem = "" if status == -signal.SIGKILL else f"it ended with {status}: {answer}"
        state = tree(whole)
        version = version_in(whole, command)
        kind = {before: "before", after: "after", None: "nothing"}.get(version, "between")
        seen[kind] += 1
        versions.add(version)
        if "Error: " in str(version) or (kind == "between" and command.run is not run_fit):
            problem = problem or f"reading afterwards gives {version}"
        if kind == "nothing" and before is not None:
            problem = problem or f"reading afterwards gives {version}"
        if tree(whole) != state:
            problem = problem or "reading changed the folder"
        status, answer = forked(whole, command.run)
        if status:
            problem = problem or f"the next command fails: {answer}"
        elif (last := version_in(whole, command)) != after:
            problem = problem or f"the next command gives {last}"
        elif left := hidden(tree(whole)):
            problem = problem or f"left: {left}"
        elif missing := set(end) ^ set(tree(whole)):
            problem = problem or f"other files: {sorted(missing)}"
        if problem:
            problems.append(f"killed before {number}, {operations[number - 1]}: {problem}")
            tell(problems[-1])
    facts = {"operations": len(operations), "points": len(points[::every]), "versions": len(versions)}
    return {**facts, **seen, "problems": problems}


def version_in(folder: Path, command: Command) -> str | None:
    """The version in a folder, or an error as text."""
    os.chdir(folder)
    try:
        return command.version()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _counted(folder: Path, run: Callable[[], Any], copies: Path | None = None) -> str:
    operations = Operations(folder, 0, copies)
    run()
    return "\n".join(operations.names)


def _must(answer: tuple[int, str]) -> str:
    if answer[0]:
        raise FewlinkError(f"ended with {answer[0]}: {answer[1]}")
    return answer[1]


def appends(place: Path) -> int:
    """One round of concurrent appends to one benchmark: the number of triples that are in it afterwards."""
    place.mkdir()
    _must(forked(place, make_benchmark))
    children = []
    for process in range(PROCESSES):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.chdir(place)
                with redirect_stderr(io.StringIO()):
                    for number in range(EACH):
                        write_lines(f"{process}-{number}.tsv", [f"new {process} {number}\tknows\tp1"])
                        append("bench", [Path(f"{process}-{number}.tsv")])
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    if any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children):
        raise FewlinkError("an append failed")
    graph = Benchmark.open(place / "bench").graph
    kept = sum(graph.entities.find(f"new {p} {n}") is not None for p in range(PROCESSES) for n in range(EACH))
    if left := hidden(tree(place)):
        raise FewlinkError(f"left: {left}")
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", help=f"by default all: {', '.join(COMMANDS)}")
    parser.add_argument("--every", type=int, default=1, help="Kill before every N-th operation only.")
    parser.add_argument(
        "--copies", action="store_true", help="Copy the folder before each operation; nothing is killed."
    )
    parser.add_argument("--appends", type=int, default=0, help="Rounds of concurrent appends, in place of kills.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    importlib.util.find_spec = lambda name, package=None: None  # a TensorBoard writer is a thread
    tuning.SAVE_EVERY = 0.0
    os.fsync = lambda fd: None  # no power is lost here
    gc.freeze()  # forks share what is loaded
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CACHE_HOME"] = str(Path(place) / "cache")
        begin = time.monotonic()
        if options.appends:
            rounds = [appends(Path(place) / str(number)) for number in range(options.appends)]
            found["appends"] = {"rounds": len(rounds), "kept": rounds.count(PROCESSES * EACH), "fewest": min(rounds)}
        for name in () if options.appends else options.commands or COMMANDS:
            start = time.monotonic()
            command = replace(COMMANDS[name], copied=COMMANDS[name].copied or options.copies)
            found[name] = check(command, Path(place) / name, options.every, lambda line: print(line, file=sys.stderr))
            found[name]["seconds"] = round(time.monotonic() - start, 1)
            print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
        found["seconds"] = round(time.monotonic() - begin, 1)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
