"""A graph of Wikidata's shape on one machine: compile it out of core, open it, ask it and search its names.

python benchmarks/huge.py [--triples 5000000 50000000 500000000] [--memory 8GB] [--folder FOLDER] [--cold]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from measure import print_table, read_record, write_record

RELATIONS = 5_000
KINDS = 64  # of entities
COMMON = 72  # relations of all kinds of entities; the others are of one kind
USUAL = 0.4  # share of triples with a relation of all kinds
DEGREE = 10  # triples of an entity, on average
CHUNK = 1_000_000  # rows that are written together
WORDS = ("northern", "harbour", "valley", "station", "museum", "county", "bridge", "forest", "castle", "school")
RECORD = "huge"
SIZES = (5_000_000, 50_000_000, 500_000_000)
INTERVAL = 0.2  # seconds between two looks at the memory
QUESTIONS = 6
SEARCHES = 20


def write_triples(path: Path, triples: int, seed: int = 0) -> None:
    """Write triples of a graph of Wikidata's shape, head by head as in its dumps.

    An entity has a tenth of its `DEGREE` to many times it; a relation's size falls with its rank, as Zipf's law says;
    each has a range of entities as tails, of which the first are much more frequent.
    """
    rng = np.random.default_rng(seed)
    entities = triples // DEGREE
    own = (RELATIONS - COMMON) // KINDS
    ranges = np.maximum(2, entities ** (0.3 + 0.7 * rng.random(RELATIONS))).astype(np.int64)
    starts = (_hashes(np.arange(RELATIONS), 1) % np.uint64(entities)).astype(np.int64)
    head = 0.0
    with _text_file(path) as file:
        for done in range(0, triples, CHUNK):
            count = min(CHUNK, triples - done)
            steps = np.where(rng.random(count) < 0.1, rng.exponential(1.0, count), 0)
            places = np.minimum(head + np.cumsum(steps * 10 / DEGREE), entities - 1)
            head = float(places[-1])
            heads = places.astype(np.int64)
            kinds = (_hashes(heads, 2) % np.uint64(KINDS)).astype(np.int64)
            usual = rng.random(count) < USUAL
            draw = rng.random(count)
            relations = np.where(usual, COMMON**draw - 1, COMMON + own * kinds + own**draw - 1).astype(np.int64)
            tails = starts[relations] + (ranges[relations] ** rng.random(count)).astype(np.int64) - 1
            text = np.empty((count, 29), np.uint8)
            text[:] = np.frombuffer(b"Q1________\tP1____\tQ1________\n", np.uint8)
            for column, first, width in ((heads, 2, 8), (relations, 13, 4), (tails % entities, 20, 8)):
                _write_digits(text, column, first, width)
            file.write(text.tobytes())


def write_names(path: Path, triples: int) -> None:
    """Write a readable name of each entity: three words and a number."""
    entities = triples // DEGREE
    words = np.array(WORDS)
    with _text_file(path) as file:
        for first in range(0, entities, CHUNK):
            ids = np.arange(first, min(first + CHUNK, entities))
            picked = [words[(_hashes(ids, seed) % np.uint64(len(WORDS))).astype(np.int64)].tolist() for seed in (3, 4)]
            rows = zip(ids.tolist(), *picked, strict=True)
            file.write("".join(f"Q1{k:08}\t{one.title()} {other} {k % 9973}\n" for k, one, other in rows).encode())


@contextmanager
def _text_file(path: Path) -> Iterator[IO[bytes]]:
    import pyarrow

    with path.open("wb") as raw, pyarrow.CompressedOutputStream(raw, "zstd") as file:
        yield file


def _write_digits(text: np.ndarray, numbers: np.ndarray, first: int, width: int) -> None:
    for place in range(first + width - 1, first - 1, -1):
        numbers, digits = np.divmod(numbers, 10)
        text[:, place] = digits + 48


def _hashes(numbers: np.ndarray, seed: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        mixed = (numbers.astype(np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def memory_of(process: int) -> tuple[int, int]:
    """The resident bytes of a process and its children: without, and of, mapped files, which are the page cache's."""
    own = shared = 0
    for one in (process, *_children(process)):
        try:
            lines = Path(f"/proc/{one}/status").read_text().splitlines()
        except OSError:  # it has ended
            continue
        sizes = {
            name: int(rest.split()[0]) << 10
            for name, _, rest in (line.partition(":") for line in lines if "kB" in line)
        }
        own += sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0)
        shared += sizes.get("RssFile", 0)
    return own, shared


def _children(process: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        found = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return found + [grandchild for child in found for grandchild in _children(child)]


def run(command: list[str], work: Path | None = None) -> dict[str, Any]:
    """Run a command; its seconds, peak memory and output, and of a `work` folder its peak size and finished stages."""
    begin = time.monotonic()
    cpu = _cpu_seconds()
    most = [0, 0]
    disk = 0
    stages: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reader.start()
        while process.poll() is None:
            most = [max(pair) for pair in zip(most, memory_of(process.pid), strict=True)]
            if work is not None:
                disk = max(disk, size_of(work))
                for file in work.glob("*.json"):
                    stages.setdefault(file.stem, time.monotonic() - begin)
            time.sleep(INTERVAL)
        reader.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    seconds = time.monotonic() - begin
    facts = {
        "seconds": seconds,
        "CPU seconds": _cpu_seconds() - cpu,
        "peak GB": most[0] / 1e9,
        "peak GB of mapped files": most[1] / 1e9,
    }
    return {**facts, "work GB": disk / 1e9, "stages": stages, "output": "".join(lines)}


def _cpu_seconds() -> float:
    """The CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size_of(folder: Path) -> int:
    """The bytes of the files in a folder."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:  # it was removed meanwhile
            continue
    return total


def ask(folder: Path) -> dict[str, Any]:
    """Open a graph, and ask and search it, in this process."""
    import fewlink

    begin = time.monotonic()
    linker = fewlink.load(folder)
    opened = time.monotonic() - begin
    graph = linker.graph
    rng = np.random.default_rng(0)
    large = np.argsort(-graph.relation_sizes[: len(graph.relations)], kind="stable")
    answers = []
    read = []
    for place in np.linspace(10, len(large) // 2, QUESTIONS).astype(int):
        relation = int(large[place])
        heads = rng.choice(graph.slots[relation], 5, replace=False).tolist()
        pairs = [(graph.entities[head], graph.entities[_tail(graph, head, relation)]) for head in heads[:4]]
        start = time.monotonic()
        mapped = memory_of(os.getpid())[1]
        linker.predict(pairs, heads=[graph.entities[heads[4]]], k=10)
        answers.append(time.monotonic() - start)
        read.append((memory_of(os.getpid())[1] - mapped) / 1e6)
        if len(answers) == 1:
            first = time.monotonic() - begin
    find: dict[str, Callable[[str], Any]] = {
        "exact": linker.names.matches,
        "beginning": linker.names.complete,
        "misspelt": linker.names.nearest,
    }
    searches: dict[str, list[float]] = {"exact": [], "beginning": [], "misspelt": []}
    for entity in rng.integers(len(graph.entities), size=SEARCHES).tolist():
        name = graph.name(entity)
        for kind, text in (("exact", name.lower()), ("beginning", name[:-2]), ("misspelt", f"{name[:3]}x{name[4:]}")):
            start = time.monotonic()
            found = find[kind](text)
            searches[kind].append(time.monotonic() - start)
            if kind == "exact" and entity not in found:
                raise SystemExit(f"{name} was not found")
    own, shared = memory_of(os.getpid())
    return {
        "open": opened,
        "first answer": first,
        "next answers": answers[1:],
        "MB newly mapped by answers": read,
        "search": {kind: float(np.median(each)) for kind, each in searches.items()},
        "GB": own / 1e9,
        "GB of mapped files": shared / 1e9,
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "triples": graph.triple_count,
    }


def _tail(graph: Any, head: int, relation: int) -> int:
    first = int(graph.offsets[head])
    last = int(graph.offsets[head + 1])
    return int(graph.tail_ids[first + int(np.searchsorted(graph.relation_ids[first:last], relation))])


def measure(triples: int, folder: Path, memory: str) -> dict[str, Any]:
    """Generate and compile a graph of this size; the files of triples and names are used again."""
    triples_file = folder / f"{triples}.tsv.zst"
    names_file = folder / f"{triples}.names.tsv.zst"
    for file, write in ((triples_file, write_triples), (names_file, write_names)):
        if not file.exists():
            start = time.monotonic()
            write(file.with_suffix(".draft"), triples)
            file.with_suffix(".draft").rename(file)
            print(f"{file.name} in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    out = folder / str(triples)
    shutil.rmtree(out, ignore_errors=True)
    program = [sys.executable, "-m", "fewlink", "data", "compile"]
    options = ["--names", str(names_file), "--out", str(out), "--memory", memory]
    compiling = run([*program, str(triples_file), *options], folder / f".{triples}.work")
    compiling.pop("output")
    sizes = {"input GB": triples_file.stat().st_size / 1e9, "folder GB": size_of(out) / 1e9}
    files = {file.name: file.stat().st_size for file in sorted(out.iterdir())}
    return {"written": triples, **sizes, "memory": memory, "compile": compiling, "files": files}


def measure_asking(folder: Path) -> dict[str, Any]:
    """Ask a graph in a new process."""
    asking = run([sys.executable, __file__, "--ask", str(folder)])
    found = json.loads(asking["output"].splitlines()[-1])
    return {**found, **{name: asking[name] for name in ("peak GB", "peak GB of mapped files")}}


def forget_files() -> None:
    """Empty the system's cache of files, as after a restart; needs the rights of root."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def growth(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The exponents with which costs grow from each size to the next: 1 is linear."""
    costs: dict[str, Callable[[dict[str, Any]], float]] = {
        "compile": lambda e: e["compile"]["seconds"],
        "CPU seconds of compiling": lambda e: e["compile"]["CPU seconds"],
        "folder": lambda e: e["folder GB"],
        "first answer": lambda e: e["ask"]["first answer"],
        "next answer": lambda e: float(np.median(e["ask"]["next answers"])),
        "memory of asking": lambda e: e["ask"]["peak GB"],
    }
    return [
        {
            "from": before["written"],
            "to": after["written"],
            **{
                name: math.log(cost(after) / cost(before)) / math.log(after["written"] / before["written"])
                for name, cost in costs.items()
            },
        }
        for before, after in itertools.pairwise(entries)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triples", type=int, nargs="+", default=SIZES)
    parser.add_argument("--memory", default="8GB", help="for compiling")
    parser.add_argument("--folder", type=Path, help="to keep files in; by default a temporary one")
    parser.add_argument("--note", default="", help="about the machine, for the record")
    parser.add_argument("--asking", action="store_true", help="measure asking again, of graphs in the folder")
    parser.add_argument("--cold", action="store_true", help="measure asking also with an empty cache of files, as root")
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(ask(options.ask)))
        return
    with contextlib.ExitStack() as kept:
        folder = options.folder or Path(kept.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        found = {entry["written"]: entry for entry in (read_record(RECORD) or {"sizes": []})["sizes"]}
        for triples in options.triples:
            if not options.asking:
                found[triples] = {**measure(triples, folder, options.memory), "note": options.note}
            if options.cold:
                forget_files()
                found[triples]["ask, cold"] = measure_asking(folder / str(triples))
            found[triples]["ask"] = measure_asking(folder / str(triples))
            entries = [found[size] for size in sorted(found)]
            write_record(RECORD, {"sizes": entries, "growth": growth(entries)})
    rows = [
        {
            "triples": entry["written"],
            "compile s": entry["compile"]["seconds"],
            "CPU s": entry["compile"]["CPU seconds"],
            "peak GB": entry["compile"]["peak GB"],
            "folder GB": entry["folder GB"],
            "open s": entry["ask"]["open"],
            "first s": entry["ask"]["first answer"],
            "next s": float(np.median(entry["ask"]["next answers"])),
            "asking GB": entry["ask"]["peak GB"],
        }
        for entry in entries
    ]
    print_table(rows)
    if len(entries) > 1:
        print_table(growth(entries))


if __name__ == "__main__":
    main()
