"""Named benchmarks and graphs, and opening a benchmark by name, folder or archive."""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from fewlink.core.errors import FewlinkError, InputError, MissingExtra, check_file, choose, did_you_mean
from fewlink.core.memo import cache_home
from fewlink.core.progress import tell
from fewlink.core.storage import exists, is_folder_of, write_bytes
from fewlink.data.benchmark import FORMAT, SPLITS, Benchmark
from fewlink.data.carving import CarveSettings, carve
from fewlink.data.nell_layout import is_layout, read_layout
from fewlink.graph import CompileReport, Graph, compile_graph
from fewlink.graph.graph import FORMAT as GRAPH_FORMAT


@dataclass(frozen=True)
class Entry:
    """A benchmark, or a graph without tasks whose `benchmark` is another entry.

    `counts`: entities, background triples, background relations, tasks of each split.

    A download is checked by the `sha256` of the archive if that is known, and by its content: the published counts, and
    the `fingerprint` of the compiled benchmark if that is known.
    """

    about: str
    licence: str
    counts: tuple[int, int, int, tuple[int, int, int]] | None = None
    address: str | None = None  # None: part of the package
    size: str = ""
    sha256: str | None = None
    fingerprint: str | None = None
    benchmark: str | None = None  # of a graph: the benchmark that is carved out of it


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
    """The folder of fetched benchmarks: $FEWLINK_DATA, or else the user's cache folder."""
    home = os.environ.get("FEWLINK_DATA")
    return Path(home) if home else cache_home()


def open_benchmark(which: str | Path, *, verify: bool | None = None) -> Benchmark:
    """A benchmark by catalogue name, compiled folder, NELL-One layout folder or archive of it."""
    path = Path(which)
    shadowed = str(which) in CATALOGUE and path.is_dir() and not (is_folder_of(path, FORMAT) or is_layout(path))
    if exists(which) and not shadowed:  # a folder of results has the name of its benchmark
        benchmark, source = _from_path(Path(which), verify), os.path.abspath(which)
    else:
        benchmark, source = _from_catalogue(str(which), verify), str(which)
    object.__setattr__(benchmark, "source", source)
    return benchmark


def open_graph(which: str | Path, *, types: Path | str | None = None, names: Path | str | None = None) -> Benchmark:
    """A benchmark as `open_benchmark` finds it; a graph (a file, a folder or a name) becomes one without tasks.

    `types` and `names` are files that describe a file of triples, as `compile_graph` reads them.
    """
    path = Path(which)
    if _is_built_in_graph(which) and types is names is None:
        return Benchmark(str(which), attack_graph(), {split: [] for split in SPLITS}, source=str(which))
    if os.path.isfile(path) and not is_benchmark(path):
        report = CompileReport()
        types, names = (Path(each) if each is not None else None for each in (types, names))
        graph = compile_graph([path], types=types, names=names, report=report)
        for remark in report.remarks():
            tell(f"{path}: {remark}")
    elif types is not None or names is not None:
        raise FewlinkError(f"types and names describe a file of triples, which {which} is not")
    elif is_folder_of(path, GRAPH_FORMAT):
        graph = Graph.open(path)
    else:
        return open_benchmark(which)
    return Benchmark(path.name, graph, {split: [] for split in SPLITS}, source=os.path.abspath(path))


def check_benchmark(which: str | Path) -> None:
    """Raise if `open_benchmark` would find nothing of this name; nothing is opened."""
    if os.path.exists(which) and not os.path.isdir(which):
        check_file(which)
    if not exists(which) or str(which) in CATALOGUE:
        _stored(str(which))
        _check_tasks(which)


def check_source(which: str | Path) -> None:
    """Raise if there is no file, folder or benchmark of this name to take a graph from; nothing is opened."""
    if str(which) not in CATALOGUE and not exists(which):
        problem = "does not exist: give a file of triples, a benchmark or a trained run"
        raise InputError(which, problem + did_you_mean(str(which), CATALOGUE))
    if not _is_built_in_graph(which):
        check_benchmark(which)


def _is_built_in_graph(which: str | Path) -> bool:
    """Whether this is the name of a graph of the catalogue; a compiled folder or file of this name comes first."""
    path, entry = Path(which), CATALOGUE.get(str(which))
    if entry is None or entry.benchmark is None:
        return False
    return not (path.is_file() or is_layout(path) or any(is_folder_of(path, each) for each in (FORMAT, GRAPH_FORMAT)))


def _check_tasks(which: str | Path) -> None:
    if _is_built_in_graph(which):
        raise FewlinkError(f"{which} is a graph without tasks: its benchmark is {CATALOGUE[str(which)].benchmark}")


def _from_catalogue(name: str, verify: bool | None) -> Benchmark:
    stored = _stored(name)
    _check_tasks(name)
    return BUILT_IN[name]() if stored is None else Benchmark.open(stored, verify)


def _stored(name: str) -> Path | None:
    """The folder of a benchmark of the catalogue; None if it is built in."""
    if name not in CATALOGUE:
        raise FewlinkError(
            f"'{name}' is neither a file or folder nor a name in the catalogue{did_you_mean(name, CATALOGUE)}"
            f" (names: {', '.join(CATALOGUE)}; to make a benchmark of your own graph: fewlink data carve)"
        )
    if CATALOGUE[name].address is None:
        return None
    stored = data_home() / name
    if not exists(stored):
        raise FewlinkError(f"{name} is not downloaded yet: fewlink data get {name} (or --from PATH if you have it)")
    return stored


def is_benchmark(path: Path) -> bool:
    """Whether a path may be a benchmark: a compiled folder, the NELL-One layout or an archive of it."""
    return path.is_dir() or path.name.lower().endswith(ARCHIVES)


def fetch_benchmark(
    name: str, source: Path | None = None, home: Path | None = None
) -> tuple[Path, Benchmark, list[str]]:
    """Download a named benchmark (or read it from `source`), check it, compile it, and save it in the data home."""
    entry = choose("benchmark", name, CATALOGUE)
    if entry.address is None:
        raise FewlinkError(f"{name} is built in: use its name directly")
    home = home or data_home()
    benchmark, remarks = read_layout(source or _download(name, entry, home), name)
    remarks += _differences(entry, benchmark)
    return benchmark.save(home / name), benchmark, remarks


def write_attack(folder: Path) -> Benchmark:
    """Write the built-in ATT&CK graph as text, with MITRE's licence, and the benchmark attack-few as a folder in it.

    `attack.dates.tsv` has the triples with a fourth column, the date of each.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    triples = _text("attack.tsv.xz")
    write_bytes(folder / "attack.tsv", triples.encode())
    for each in ("names", "types"):
        write_bytes(folder / f"attack.{each}.tsv", _text(f"attack.{each}.tsv.xz").encode())
    rows = zip(triples.splitlines(), attack_dates(), strict=True)
    write_bytes(folder / "attack.dates.tsv", "".join(f"{triple}\t{date}\n" for triple, date in rows).encode())
    write_bytes(folder / "LICENSE.txt", (files("fewlink") / "builtin" / "LICENSE-attack.txt").read_bytes())
    benchmark = open_attack_few()
    benchmark.save(folder / benchmark.name)
    return benchmark


def attack_graph() -> Graph:
    """ATT&CK and CAPEC: groups, campaigns, malware, tools, techniques, mitigations, attack patterns and more."""
    builtin = files("fewlink") / "builtin"
    with ExitStack() as stack:
        path, names, types = (
            stack.enter_context(as_file(builtin / f"attack.{each}tsv.xz")) for each in ("", "names.", "types.")
        )
        return compile_graph([path], types=types, names=names)


def attack_dates() -> list[str]:
    """The day (YYYY-MM-DD) of each triple of `attack_graph`, in their order.

    It is the day on which MITRE created the link; for an attribute such as a platform, that of its object.
    """
    return _text("attack.dates.xz").splitlines()


def open_attack_few() -> Benchmark:
    """ATT&CK and CAPEC with the relations of 50 to 500 triples carved into tasks."""
    benchmark, _ = carve(attack_graph(), "attack-few", CarveSettings())
    return benchmark


def open_umls() -> Benchmark:
    """UMLS, with about half of its relations carved into tasks."""
    with as_file(files("fewlink") / "builtin" / "umls.tsv.gz") as path:
        graph = compile_graph([path])
    benchmark, _ = carve(graph, "umls", CarveSettings(dev_share=0.2, test_share=0.3))
    return benchmark


BUILT_IN: dict[str, Callable[[], Benchmark]] = {"umls": open_umls, "attack-few": open_attack_few}


def _text(name: str) -> str:
    return lzma.decompress((files("fewlink") / "builtin" / name).read_bytes()).decode()


def _from_path(path: Path, verify: bool | None) -> Benchmark:
    if is_folder_of(path, FORMAT):
        return Benchmark.open(path, verify)
    if path.is_file() and not is_benchmark(path):
        raise InputError(path, f"is a file of triples, not a benchmark; carve one: fewlink data carve {path} --out DIR")
    if path.is_dir() and not is_layout(path):
        raise InputError(
            path, "is neither a compiled benchmark nor in the NELL-One layout (fewlink data carve makes one)"
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
        return _readable(Path(file))
    except (OSError, ValueError) as error:
        raise FewlinkError(
            f"{name} could not be downloaded from {entry.address} ({error}). If you have the folder or archive already:"
            f" fewlink data get {name} --from PATH"
        ) from None


def _readable(file: Path) -> Path:
    """Give a download, which pooch makes for its owner alone, the permissions of any new file."""
    probe = file.with_name(f".{file.name}.mode")
    probe.touch()
    file.chmod(probe.stat().st_mode)
    probe.unlink()
    return file


def _differences(entry: Entry, benchmark: Benchmark) -> list[str]:
    graph = benchmark.graph
    tasks = tuple(len(benchmark.tasks[split]) for split in SPLITS)
    counts = (len(graph.entities), graph.triple_count, len(graph.relations), tasks)
    remarks = []
    if entry.counts and counts != entry.counts:
        remarks.append(f"counts {counts} differ from the published {entry.counts}: results will not be comparable")
    if entry.fingerprint and benchmark.fingerprint != entry.fingerprint:
        remarks.append("content differs from the NELL-One the project's results were measured on")
    return remarks
