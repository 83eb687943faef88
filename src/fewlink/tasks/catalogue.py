"""The catalogue of benchmarks and graphs, and opening one by name, folder or archive."""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fewlink.core.errors import FewlinkError, InputError, MissingExtra, check_file, choose, did_you_mean
from fewlink.core.files import cache_home, exists, is_folder_of, write_bytes
from fewlink.core.progress import tell
from fewlink.core.words import listed
from fewlink.graph import CompileReport, Graph
from fewlink.graph.graph import FORMAT as GRAPH_FORMAT
from fewlink.graph.source import GraphSource
from fewlink.tasks.benchmark import FORMAT, SPLITS, Benchmark, Task
from fewlink.tasks.nell_layout import is_layout, read_layout


@dataclass(frozen=True)
class Entry:
    """A benchmark, or a graph without tasks, whose `benchmark` names the entry carved out of it.

    `counts` are entities, background triples, background relations, and the tasks of each split. A download is checked
    against the published counts and, where they are known, the `sha256` of the archive and the `fingerprint` of the
    compiled benchmark.
    """

    about: str
    licence: str
    counts: tuple[int, int, int, tuple[int, int, int]] | None = None
    address: str | None = None  # None if it is built in
    size: str = ""
    sha256: str | None = None
    fingerprint: str | None = None
    benchmark: str | None = None  # only for a graph


CATALOGUE = {
    "attack": Entry(
        about="MITRE ATT&CK and CAPEC (November 2025) as a graph with names, types and dates (built in)",
        licence="MITRE's terms of use: LICENSE-attack.txt",
        benchmark="attack-few",
    ),
    "attack-few": Entry(
        about="ATT&CK and CAPEC carved into tasks (built in)",
        licence="MITRE's terms of use: LICENSE-attack.txt",
        fingerprint="36662b8027e50920310ccb0bf3db29f62d7d13c55d6337d40d3914b4e48ac097",
    ),
    "umls": Entry(
        about="UMLS semantic network carved into tasks: small and dense, for first steps (built in)",
        licence="MIT (copy from PyKEEN)",
    ),
    "nell-one": Entry(
        about="NELL-One (Xiong et al. 2018): the paper's first data set",
        licence="not stated by its publishers",
        counts=(68_544, 181_109, 291, (51, 5, 11)),
        address="https://sites.cs.ucsb.edu/~xwhan/datasets/nell.tar.gz",
        size="33 MB unpacked",
        fingerprint="33f0ef4961912fbd571e4a75d92bcbf37a98d37b7d9f0dde44484314efd50f12",
    ),
    "wiki-one": Entry(
        about="Wiki-One (Xiong et al. 2018): the paper's second data set",
        licence="not stated by its publishers (Wikidata is CC0)",
        counts=(4_838_244, 5_859_240, 639, (133, 16, 34)),
        address="https://sites.cs.ucsb.edu/~xwhan/datasets/wiki.tar.gz",
        size="about 1 GB unpacked",
    ),
}
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")


def data_home() -> Path:
    """The folder of fetched benchmarks: $FEWLINK_DATA, or else fewlink's cache folder."""
    home = os.environ.get("FEWLINK_DATA")
    return Path(home) if home else cache_home()


def open_benchmark(which: str | Path) -> Benchmark:
    """Open a benchmark: a name in the catalogue, a compiled folder, or a folder or archive in the NELL-One layout."""
    path = Path(which)
    shadowed = str(which) in CATALOGUE and path.is_dir() and not (is_folder_of(path, FORMAT) or is_layout(path))
    if exists(which) and not shadowed:  # a folder of results may have the name of its benchmark
        benchmark = _from_path(Path(which))
        source = os.path.abspath(which)
    else:
        benchmark = _from_catalogue(str(which))
        source = str(which)
    object.__setattr__(benchmark, "source", source)
    return benchmark


def open_graph(file: str | Path | GraphSource) -> Benchmark:
    """Open a graph (a file, folder or name) as a benchmark without tasks, or a benchmark as `open_benchmark` does."""
    source = GraphSource.of(file)
    which = source.file
    path = Path(which)
    left_out: list[str] = []
    as_usual = not source.given()
    if _is_built_in_graph(which) and as_usual:
        return Benchmark(which, attack_graph(), {split: [] for split in SPLITS}, source=which)
    if os.path.isfile(path) and not is_benchmark(path):
        from fewlink.graph.compile import compile_graph

        report = CompileReport()
        graph = compile_graph(source, report=report)
        for remark in report.remarks():
            tell(f"{path}: {remark}")
        left_out = report.literal_relations
    elif not as_usual:
        raise FewlinkError(f"{which} is not a file of triples: leave out {listed(source.given())}")
    elif is_folder_of(path, GRAPH_FORMAT):
        graph = Graph.open(path)
    else:
        return open_benchmark(which)
    nothing = {split: list[Task]() for split in SPLITS}
    return Benchmark(path.name, graph, nothing, os.path.abspath(path), literal_relations=tuple(left_out))


def check_benchmark(which: str | Path) -> None:
    """Raise if `open_benchmark` would find nothing of this name. Opens nothing."""
    if os.path.exists(which) and not os.path.isdir(which):
        check_file(which)
    if not exists(which) or str(which) in CATALOGUE:
        _stored(str(which))
        _check_tasks(which)


def check_source(which: str | Path) -> None:
    """Raise if no file, folder or benchmark of this name has a graph. Opens nothing."""
    if str(which) not in CATALOGUE and not exists(which):
        problem = "does not exist: give a file of triples, a benchmark or a trained run"
        raise InputError(which, problem + did_you_mean(str(which), CATALOGUE))
    if not _is_built_in_graph(which):
        check_benchmark(which)


def _is_built_in_graph(which: str | Path) -> bool:
    """Whether this names a graph of the catalogue, and not a file or compiled folder of the same name."""
    path = Path(which)
    entry = CATALOGUE.get(str(which))
    if entry is None or entry.benchmark is None:
        return False
    if not path.is_dir():
        return not path.is_file()
    return not (is_layout(path) or any(is_folder_of(path, each) for each in (FORMAT, GRAPH_FORMAT)))


def _check_tasks(which: str | Path) -> None:
    if _is_built_in_graph(which):
        raise FewlinkError(f"{which} is a graph without tasks: use the benchmark {CATALOGUE[str(which)].benchmark}")


def _from_catalogue(name: str) -> Benchmark:
    stored = _stored(name)
    _check_tasks(name)
    return BUILT_IN[name]() if stored is None else Benchmark.open(stored)


def _stored(name: str) -> Path | None:
    """The folder of a benchmark in the catalogue; None if it is built in."""
    if name not in CATALOGUE:
        raise FewlinkError(
            f"'{name}' is neither a file or folder nor a name in the catalogue{did_you_mean(name, CATALOGUE)}"
            f" (names: {', '.join(CATALOGUE)}; fewlink data carve makes a benchmark of your graph)"
        )
    if CATALOGUE[name].address is None:
        return None
    stored = data_home() / name
    if not exists(stored):
        raise FewlinkError(
            f"{name} is not downloaded yet: run fewlink data get {name} (with --from PATH if you have it)"
        )
    return stored


def is_benchmark(path: Path) -> bool:
    """Whether a path may be a benchmark: a folder or an archive."""
    return path.is_dir() or path.name.lower().endswith(ARCHIVES)


def fetch_benchmark(name: str, source: Path | None = None) -> tuple[Path, Benchmark, list[str]]:
    """Download a benchmark of the catalogue, or read it from `source`; check, compile and save it in the data home."""
    entry = choose("benchmark", name, CATALOGUE)
    if entry.address is None:
        raise FewlinkError(f"{name} is built in: use its name directly")
    home = data_home()
    benchmark, remarks = read_layout(source or _download(name, entry, home), name)
    remarks += _differences(entry, benchmark)
    return benchmark.save(home / name), benchmark, remarks


def write_attack(folder: Path) -> Benchmark:
    """Write the built-in ATT&CK graph as text, with MITRE's licence and the benchmark attack-few, to a folder.

    `attack.dates.tsv` has the triples with their dates in a fourth column. Raise before anything is written if one of
    the files exists.
    """
    folder = Path(folder)
    triples = _text("attack.tsv.xz")
    dated = "".join(f"{triple}\t{date}\n" for triple, date in zip(triples.splitlines(), attack_dates(), strict=True))
    contents = {
        "attack.tsv": triples.encode(),
        "attack.names.tsv": _text("attack.names.tsv.xz").encode(),
        "attack.types.tsv": _text("attack.types.tsv.xz").encode(),
        "attack.dates.tsv": dated.encode(),
        "LICENSE.txt": (files("fewlink") / "builtin" / "LICENSE-attack.txt").read_bytes(),
    }
    benchmark = open_attack_few()
    others = [name for name in (*contents, benchmark.name) if exists(folder / name)]
    if others:
        raise InputError(folder / others[0], "exists already: remove it, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    benchmark.save(folder / benchmark.name)
    return benchmark


def attack_graph() -> Graph:
    """ATT&CK and CAPEC: groups, campaigns, malware, tools, techniques, mitigations, attack patterns and more."""
    return Graph.open(_shipped("attack"))


def attack_dates() -> list[str]:
    """The date (YYYY-MM-DD) of each triple of `attack_graph`, in the graph's order.

    It is the day on which MITRE created the link or, for an attribute such as a platform, its object.
    """
    return _text("attack.dates.xz").splitlines()


def open_attack_few() -> Benchmark:
    """ATT&CK and CAPEC, with their relations of 50 to 500 triples carved into tasks."""
    from fewlink.tasks.carving import CarveSettings, carve

    benchmark, _ = carve(attack_graph(), "attack-few", CarveSettings())
    return benchmark


def open_umls() -> Benchmark:
    """UMLS, with about half of its relations carved into tasks."""
    return Benchmark.open(_shipped("umls"))


def _shipped(name: str) -> Path:
    """The folder of a built-in graph, which benchmarks/ship_graphs.py compiles."""
    return Path(str(files("fewlink"))) / "builtin" / name


BUILT_IN: dict[str, Callable[[], Benchmark]] = {"umls": open_umls, "attack-few": open_attack_few}


def _text(name: str) -> str:
    return lzma.decompress((files("fewlink") / "builtin" / name).read_bytes()).decode()


def _from_path(path: Path) -> Benchmark:
    if is_folder_of(path, FORMAT):
        return Benchmark.open(path)
    if path.is_file() and not is_benchmark(path):
        raise InputError(path, f"is a file of triples, not a benchmark: run fewlink data carve {path} --out DIR")
    if path.is_dir() and not is_layout(path):
        raise InputError(
            path,
            "is no trained run, saved model, compiled graph or benchmark, and not in the NELL-One layout",
        )
    benchmark, remarks = read_layout(path)
    for remark in remarks:
        tell(f"{path}: {remark}")
    return benchmark


def _download(name: str, entry: Entry, home: Path) -> Path:
    try:
        import pooch
    except ImportError:
        raise MissingExtra("downloading a benchmark", "download") from None
    known = f"sha256:{entry.sha256}" if entry.sha256 else None
    try:
        file = pooch.retrieve(entry.address, known, fname=f"{name}.tar.gz", path=home / "downloads", progressbar=False)
        return Path(file)
    except (OSError, ValueError) as error:
        raise FewlinkError(
            f"{name} could not be downloaded from {entry.address} ({error}): if you have the folder or archive, "
            f"run fewlink data get {name} --from PATH"
        ) from None


def _differences(entry: Entry, benchmark: Benchmark) -> list[str]:
    graph = benchmark.graph
    tasks = tuple(len(benchmark.tasks[split]) for split in SPLITS)
    counts = (len(graph.entities), graph.triple_count, len(graph.relations), tasks)
    remarks = []
    if entry.counts and counts != entry.counts:
        remarks.append(
            f"its counts {counts} differ from the published {entry.counts}, so results will not be comparable"
        )
    if entry.fingerprint and benchmark.fingerprint != entry.fingerprint:
        remarks.append("its content differs from the data that fewlink's results were measured on")
    return remarks
