"""Run folders: their configuration, and the scorers that they open as.

config.json     settings, components of the model, fingerprints of benchmark, graph and vectors, version
embeddings/     the pretrained vectors of the run
metrics.jsonl   a line for each evaluation, with the seconds of each phase
best/, last/    checkpoints
benchmark/      the benchmark, if the run was made from a file of triples
serving/        the deployed graph and its vectors, if there is one (`Deployed`)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fewlink import __version__
from fewlink.core import machine
from fewlink.core.errors import FewlinkError, InputError, reading, wrong_format
from fewlink.core.files import (
    exists,
    locked,
    new_folder,
    place_of,
    read_folder,
    read_json,
    with_sha256,
    without_sha256,
    write_json,
)
from fewlink.core.machine import use_device
from fewlink.models import family_of, trained_family
from fewlink.models.checkpoints import load_best
from fewlink.models.contract import Scorer
from fewlink.models.family import BaselineFamily, PretrainedVectors, TrainedFamily
from fewlink.models.folder import (
    BENCHMARK,
    CONFIG,
    DEPLOYED,
    EMBEDDINGS,
    check_belongs,
    check_complete,
    hash_id,
    list_optional_files,
    optional_files,
    run_id,
)
from fewlink.models.settings import ModelSettings
from fewlink.tasks.benchmark import SPLITS, Benchmark
from fewlink.tasks.catalogue import open_benchmark

FORMAT = "fewlink-run/1"
DEPLOYED_FORMAT = "fewlink-serving/1"
OF_DEPLOYED = f"{DEPLOYED}/benchmark"  # the source of a benchmark that is the deployed one
REMEDY = "restore the file from a copy, or train again in another folder"
LIMITS = ("steps", "patience")  # settings that a continued run may raise
STATED = ("answers_with", "weights", "id")  # in a configuration, unless they are empty


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run.

    settings      the settings of the model
    benchmark     name, fingerprint, `source` that it was opened from, and names of its `train` relations
    graph         fingerprint, and numbers of entities and relations
    embeddings    model, dimension and sha256 of the pretrained vectors
    parts         the facts that a continued run must share (`TrainedFamily.training_facts`)
    answers_with  the learning-free scorer that answers in place of the model because it measured better
    weights       the sha256 of the weights in `best/` that a fit deployed
    id            identifies the run in its checkpoints, calibration and deployed graph

    The file also lists the optional files of the run.
    """

    settings: ModelSettings
    benchmark: dict[str, Any]
    graph: dict[str, Any]
    embeddings: dict[str, Any]
    parts: dict[str, Any] = field(default_factory=dict)
    answers_with: str = ""
    weights: str = ""
    id: str = ""

    @property
    def family(self) -> TrainedFamily[Any]:
        return trained_family(self.settings.model)

    @classmethod
    def of(cls, benchmark: Benchmark, vectors: PretrainedVectors, settings: ModelSettings) -> RunConfig:
        graph = benchmark.graph
        family = trained_family(settings.model)
        return cls(
            settings,
            {
                "name": benchmark.name,
                "fingerprint": benchmark.fingerprint,
                "source": benchmark.source,
                "train": [task.name for task in benchmark.split("train")],
            },
            {"fingerprint": graph.fingerprint, "entities": len(graph.entities), "relations": len(graph.relations)},
            {"model": vectors.model, "dim": vectors.dim, "sha256": vectors.digest()},
            family.training_facts(benchmark, settings),
        )

    def as_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "format": FORMAT,
            "version": __version__,
            "benchmark": self.benchmark,
            "graph": self.graph,
            "embeddings": self.embeddings,
            "parts": self.parts,
        }
        content |= {name: getattr(self, name) for name in STATED if getattr(self, name)}
        content["settings"] = self.settings.as_dict()
        return content

    @classmethod
    def read(cls, run: Path) -> RunConfig:
        """The configuration of a run folder."""
        path = Path(run) / CONFIG
        if not path.exists():
            raise InputError(run, "is not a run folder: create one with fewlink train")
        content = read_json(path)
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise wrong_format(path, found, FORMAT, "train again")
        content = without_sha256(content, path, remedy=REMEDY)
        try:
            with reading(path, REMEDY):
                settings = trained_family(content["settings"]["model"]).settings(**content["settings"])
                sections = (content[name] for name in ("benchmark", "graph", "embeddings", "parts"))
                stated: dict[str, Any] = {name: str(content.get(name, "")) for name in STATED}
                return cls(settings, *sections, **stated)
        except FewlinkError as error:
            raise error if isinstance(error, InputError) else InputError(path, str(error)) from None

    def write(self, run: Path, id: str = "", without: Sequence[str] = ()) -> None:
        """Write the configuration with its checksum and the optional files of the folder, except `without`.

        The id is `id` or, by default, the one that the folder already has.
        """
        with locked(run / CONFIG):
            named = replace(self, id=id or run_id(run) or self.id or self.new_id())
            write_json(run / CONFIG, with_sha256({**named.as_dict(), "holds": optional_files(run, without)}))

    def new_id(self) -> str:
        """An id that does not depend on the number of steps, the patience or the device."""
        settings = {k: v for k, v in self.settings.as_dict().items() if k not in (*LIMITS, "device")}
        return hash_id(settings, self.parts, self.benchmark["fingerprint"], self.embeddings["sha256"])

    def check_continues(self, run: Path, wanted: RunConfig) -> None:
        """Raise unless `wanted` continues this run; more steps or patience and another device are allowed."""
        self.check_same(run, wanted.benchmark["fingerprint"], wanted.settings)
        before = {"embeddings": self.embeddings["sha256"], **self.parts}
        after = {"embeddings": wanted.embeddings["sha256"], **json.loads(json.dumps(wanted.parts))}  # lists for tuples
        for name, value in after.items():
            if before.get(name) != value:
                raise FewlinkError(
                    f"{run} was trained with {name} {before.get(name)}, not {value}: use the same, or choose another "
                    "folder"
                )

    def check_same(self, run: Path, fingerprint: str, wanted: ModelSettings) -> None:
        """Raise unless this run was trained on the benchmark, and these settings continue it."""
        own = self.benchmark["fingerprint"]
        if own != fingerprint:
            raise FewlinkError(
                f"{run} was trained on another benchmark ({self.benchmark['name']}, {own[:12]}…, not "
                f"{fingerprint[:12]}…): use the same, or choose another folder"
            )
        before = self.settings.as_dict()
        after = wanted.as_dict()
        if before["model"] != after["model"]:
            raise FewlinkError(f"{run} is a run of {before['model']}, not of {after['model']}: choose another folder")
        for name, value in after.items():
            if name in LIMITS and value < before[name]:
                raise FewlinkError(f"{run} was trained with {name} = {before[name]}: give at least that, not {value}")
            if name not in (*LIMITS, "device") and value != before[name]:
                raise FewlinkError(
                    f"{run} was trained with {name} = {before[name]!r}, not {value!r}: "
                    "give the same settings, or choose another folder"
                )

    def check_unseen(self, run: Path, benchmark: Benchmark, split: str) -> None:
        """Raise if a split of another benchmark has relations that this run was trained on."""
        if benchmark.fingerprint == self.benchmark["fingerprint"]:
            return
        seen = {task.name for task in benchmark.split(split)} & set(self.benchmark["train"])
        if seen:
            raise FewlinkError(
                f"{run} was trained on {', '.join(sorted(seen)[:3])}, which {benchmark.name} has in {split}: "
                "evaluate it on the benchmark it was trained on"
            )


@dataclass(frozen=True)
class Deployed:
    """The deployed graph of a run, and its vectors.

    A run is trained and evaluated on a benchmark, which hides some triples from it. To answer users it may read more:
    the whole graph that the benchmark was carved from, or triples that were added later. The run folder keeps the
    deployed graph apart from the evaluated one and replaces it in one step:

    serving/benchmark/   the graph and its task relations, if any
    serving/vectors/     vectors of that graph, if the model reads any, or an embedding model to mix it with
    """

    benchmark: Benchmark
    vectors: PretrainedVectors

    def save(self, run: Path, id: str = "") -> None:
        """Write the folder, or replace it in one step; give the `id` of a run that has no configuration yet."""
        fingerprint = self.benchmark.graph.fingerprint
        facts = {"fingerprint": self.benchmark.fingerprint, "run": id or run_id(Path(run))}
        with new_folder(Path(run) / DEPLOYED, DEPLOYED_FORMAT, facts) as draft:
            self.benchmark.save(draft / "benchmark")
            self.vectors.save(draft / "vectors", fingerprint, graph=self.benchmark.name)
        list_optional_files(Path(run))

    @classmethod
    def open(cls, run: Path) -> Deployed | None:
        """The deployed graph of a run; None if the run answers with the graph that it was trained on."""
        folder = Path(run) / DEPLOYED
        if not exists(folder):
            check_complete(Path(run), DEPLOYED)
            return None
        family = RunConfig.read(run).family

        def load(place: Path, manifest: dict[str, Any]) -> Deployed:
            check_belongs(manifest, Path(run), folder)
            benchmark = open_benchmark(place / "benchmark")
            fingerprint = benchmark.graph.fingerprint
            return cls(benchmark, family.open_vectors(place / "vectors", fingerprint))

        return read_folder(folder, DEPLOYED_FORMAT, load)

    def scorer(self, run: Path, *, device: str = "cpu") -> Scorer:
        """The best model of the run on this graph."""
        if RunConfig.read(run).embeddings["dim"] != self.vectors.dim:
            raise InputError(Path(run) / DEPLOYED, f"holds vectors of {self.vectors.dim} dimensions: fit the run again")
        return scorer_on(Path(run), self.benchmark, self.vectors, use_device(device))


def runs_in(folder: Path) -> list[Path]:
    """The runs of several seeds that were trained into one folder."""
    runs = [path for path in Path(folder).glob("seed-*") if is_run(path)]
    return sorted(runs, key=lambda path: RunConfig.read(path).settings.seed)


def is_run(folder: Path) -> bool:
    """Whether a folder is a run folder."""
    try:
        content = read_json(Path(folder) / CONFIG)
    except InputError:
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def benchmark_of(run: Path, bench: str | Path | None = None) -> Benchmark:
    """The benchmark of a run, opened from `bench` or from `benchmark_source`."""
    trained_on = RunConfig.read(run).benchmark
    source = benchmark_source(run)
    try:
        benchmark = open_benchmark(bench or source)
    except FewlinkError as error:
        if bench:
            raise
        raise FewlinkError(
            f"{run} was trained on {trained_on['name']}, which cannot be opened from {source} ({error}): give its path "
            "with --bench PATH (to continue training: fewlink train PATH --resume RUN), or bench=PATH"
        ) from None
    same = trained_on["fingerprint"] in (benchmark.fingerprint, *benchmark.extended_from)
    if not bench and not same and Path(source).is_relative_to(run):
        raise InputError(source, f"is not the benchmark that the run was trained on: {REMEDY}")
    return benchmark


def benchmark_source(run: Path) -> str:
    """The path or name to open a run's benchmark from.

    This is the benchmark in the run folder if there is one, else the source at training time, else the name.
    """
    trained_on = RunConfig.read(run).benchmark
    if trained_on["source"] == OF_DEPLOYED:
        return str(run / OF_DEPLOYED)
    if place_of(run / BENCHMARK).is_dir():
        return str(run / BENCHMARK)
    check_complete(run, BENCHMARK)
    return str(trained_on["source"] or trained_on["name"])


def open_run(folder: Path, benchmark: Benchmark, *, device: str = "cpu") -> Scorer:
    """The best model of a run as a scorer, on the graph that it was trained on or on an extension of it."""
    folder = Path(folder)
    device = use_device(device)
    config = RunConfig.read(folder)
    extended = config.graph["fingerprint"] in benchmark.extended_from
    if extended:
        config.family.check_fold_in(folder, load_best(folder)[0])
    elif config.graph["fingerprint"] != benchmark.graph.fingerprint and not config.family.any_graph:
        raise InputError(
            folder,
            f"was trained on the graph of {config.benchmark['name']} ({config.graph['entities']} entities), not on "
            f"that of {benchmark.name} ({len(benchmark.graph.entities)} entities): use the graph it was trained on",
        )
    vectors = vectors_of(folder)
    if extended:
        vectors = config.family.fold_in(vectors, benchmark, config.graph["entities"], config.graph["relations"])
    return scorer_on(folder, benchmark, vectors, device)


def vectors_of(run: Path) -> PretrainedVectors:
    """The pretrained vectors of a run."""
    config = RunConfig.read(run)
    vectors: PretrainedVectors = config.family.open_vectors(run / EMBEDDINGS, config.graph["fingerprint"])
    if vectors.digest() != config.embeddings["sha256"]:
        raise InputError(run / EMBEDDINGS, f"does not hold the vectors that the run was trained with: {REMEDY}")
    return vectors


def scorer_on(folder: Path, benchmark: Benchmark, vectors: PretrainedVectors, device: str) -> Scorer:
    """The best model of a run as a scorer on a benchmark's graph, with the vectors of that graph.

    For a run that answers with a learning-free scorer, this is that scorer on the known graph of the benchmark.
    """
    config = RunConfig.read(folder)
    if name := config.answers_with:
        baseline = family_of(name)
        if not isinstance(baseline, BaselineFamily):
            raise InputError(folder / CONFIG, f"answers with {name}, which is not a learning-free scorer: fit again")
        whole = Benchmark(benchmark.name, benchmark.known_graph, {split: [] for split in SPLITS})
        return baseline.prepare(name, whole, None, shots=config.settings.shots).scorer
    family = config.family
    settings = config.settings.replace(device=device)
    weights, _ = load_best(folder)
    machine.ensure(settings.model, family.memory(benchmark.graph, vectors, settings), device)
    return family.scorer(benchmark, vectors, settings, weights, run=folder)
