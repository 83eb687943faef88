"""A run folder: what was trained, on what and how, and the scorer that came of it.

config.json     settings, parts of the model, fingerprints of benchmark, graph and vectors, version
embeddings/     the vectors that were used, so that the folder needs nothing else but the graph
metrics.jsonl   a line for each evaluation, with seconds per phase
best/, last/    checkpoints
benchmark/      its own benchmark, where the run was made from a file of triples
serving/        a larger graph to answer with and its vectors, where there is one (`Deployed`)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fewlink import __version__
from fewlink.core import memory
from fewlink.core.distributed import use_device
from fewlink.core.errors import FewlinkError, InputError, reading, wrong_format
from fewlink.core.storage import (
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
from fewlink.data.benchmark import SPLITS, Benchmark
from fewlink.data.catalogue import open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.models import family_of, trained_family
from fewlink.models.family import BaselineFamily, PretrainedVectors, TrainedFamily
from fewlink.models.settings import ModelSettings
from fewlink.scorers import Scorer
from fewlink.training.checkpoints import (
    BENCHMARK,
    CONFIG,
    DEPLOYED,
    FIT,
    begun,
    check_belongs,
    check_complete,
    id_of,
    list_parts,
    load_best,
    parts_held,
    run_id,
)

FORMAT = "fewlink-run/1"
EMBEDDINGS = "embeddings"
BEGINNING = (EMBEDDINGS, BENCHMARK)  # what may be there before a run has a configuration
DEPLOYED_FORMAT = "fewlink-serving/1"
OF_DEPLOYED = f"{DEPLOYED}/benchmark"  # the source of a benchmark that is the deployed one
REMEDY = "restore the file from a copy, or train again in another folder"
PARTS: dict[str, dict[str, type]] = {  # of a configuration, and what each must have
    "settings": {"model": str},
    "benchmark": {"name": str, "fingerprint": str, "source": str, "train": list},
    "graph": {"fingerprint": str, "entities": int, "relations": int},
    "embeddings": {"model": str, "dim": int, "sha256": str},
    "parts": {},
}


@dataclass(frozen=True)
class RunConfig:
    """What decides a run: settings, the benchmark, its graph and the vectors, each with its fingerprint.

    benchmark     also has the `source` it was opened from and the names of its `train` relations
    parts         what else the run was trained with (`TrainedFamily.training_facts`)
    answers_with  a learning-free scorer that answers in place of the model because it was measured to be better
    names         whether predictions also read the names of entities
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
    names: bool = False
    weights: str = ""
    id: str = ""

    @property
    def family(self) -> TrainedFamily[Any, Any]:
        return trained_family(self.settings.model)

    @classmethod
    def of(cls, benchmark: Benchmark, vectors: PretrainedVectors, settings: ModelSettings) -> RunConfig:
        graph, family = benchmark.graph, trained_family(settings.model)
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
        facts = {"benchmark": self.benchmark, "graph": self.graph, "embeddings": self.embeddings, "parts": self.parts}
        instead: dict[str, Any] = {"answers_with": self.answers_with} if self.answers_with else {}
        instead |= {"names": True} if self.names else {}
        instead |= {name: getattr(self, name) for name in ("weights", "id") if getattr(self, name)}
        return {"format": FORMAT, "version": __version__, **facts, **instead, "settings": self.settings.as_dict()}

    @classmethod
    def read(cls, run: Path) -> RunConfig:
        """The configuration of a run folder."""
        path = Path(run) / CONFIG
        if not path.exists():
            raise InputError(run, "is not a training run: fewlink train makes one")
        content = read_json(path)
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise wrong_format(path, found, FORMAT, "train again")
        content = without_sha256(content, path, remedy=REMEDY)
        for name, kinds in PARTS.items():
            part = content.get(name)
            if not isinstance(part, dict) or not all(isinstance(part.get(key), kind) for key, kind in kinds.items()):
                raise InputError(path, f"is damaged ({name}): {REMEDY}")
        try:
            with reading(path, REMEDY):
                settings = trained_family(content["settings"]["model"]).settings(**content["settings"])
        except FewlinkError as error:
            raise error if isinstance(error, InputError) else InputError(path, str(error)) from None
        benchmark, graph, embeddings = (content[name] for name in ("benchmark", "graph", "embeddings"))
        texts = {name: str(content.get(name, "")) for name in ("answers_with", "weights", "id")}
        return cls(
            settings, benchmark, graph, embeddings, content["parts"], names=bool(content.get("names", False)), **texts
        )

    def write(self, run: Path, id: str = "", without: Sequence[str] = ()) -> None:
        """Write the configuration with its checksum; the `id` is that of the folder, if it has one.

        It names the optional parts that the folder has, except for those that are about to be removed.
        """
        with locked(run / CONFIG):
            named = replace(self, id=id or run_id(run) or self.id or self.new_id())
            write_json(run / CONFIG, with_sha256({**named.as_dict(), "holds": parts_held(run, without)}))

    def new_id(self) -> str:
        """The same for the same training, however long and wherever it runs."""
        settings = {k: v for k, v in self.settings.as_dict().items() if k not in ("steps", "patience", "device")}
        return id_of(settings, self.parts, self.benchmark["fingerprint"], self.embeddings["sha256"])

    def check_continues(self, run: Path, wanted: RunConfig) -> None:
        """Raise unless `wanted` continues this run; more steps or patience and another device are allowed."""
        self.check_same_benchmark(run, wanted.benchmark)
        if (mine := self.embeddings["sha256"]) != (other := wanted.embeddings["sha256"]):
            raise _trained_with_other(run, "embeddings", f"{self.embeddings['model']} vectors", mine, other)
        for name, part in json.loads(json.dumps(wanted.parts)).items():  # lists as they are stored
            if (mine := self.parts.get(name)) != part:
                raise FewlinkError(f"{run} was trained with {name} {mine}, not {part}: choose another folder")
        self.check_same_settings(run, wanted.settings)

    def check_same_benchmark(self, run: Path, wanted: Mapping[str, Any]) -> None:
        """Raise if this run was trained on another benchmark."""
        if (mine := self.benchmark["fingerprint"]) != (other := wanted["fingerprint"]):
            raise _trained_with_other(run, "benchmark", self.benchmark["name"], mine, other)

    def check_same_settings(self, run: Path, wanted: ModelSettings) -> None:
        """Raise unless these settings continue this run."""
        before, after = self.settings.as_dict(), wanted.as_dict()
        if before["model"] != after["model"]:
            raise FewlinkError(f"{run} is a run of {before['model']}, not of {after['model']}: choose another folder")
        for name, value in after.items():
            if name in ("steps", "patience") and value < before[name]:
                raise FewlinkError(f"{run} was trained with {name} = {before[name]}: {value} is less; give as much")
            if name not in ("steps", "patience", "device") and value != before[name]:
                raise FewlinkError(
                    f"{run} was trained with {name} = {before[name]!r}, not {value!r}: "
                    "give the same settings, or choose another folder"
                )

    def check_unseen(self, run: Path, benchmark: Benchmark, split: str) -> None:
        """Raise if another benchmark's split holds relations that this run was trained on."""
        if benchmark.fingerprint != self.benchmark["fingerprint"]:
            seen = {task.name for task in benchmark.split(split)} & set(self.benchmark["train"])
            if seen:
                raise FewlinkError(
                    f"{run} was trained on {', '.join(sorted(seen)[:3])}, which {benchmark.name} has in {split}: "
                    "evaluate it on the benchmark it was trained on"
                )


@dataclass(frozen=True)
class Deployed:
    """The larger graph that a run answers questions with, and its vectors.

    A run is trained and measured on a benchmark, part of which is hidden from it. To answer users it may read more: the
    whole graph it was carved from, or triples that were added later. That is kept in the run's folder, apart from what
    its figures were measured on, and replaced in one step:

    serving/benchmark/   the graph, with task relations where it has some
    serving/vectors/     vectors of that graph
    """

    benchmark: Benchmark
    vectors: PretrainedVectors

    def save(self, run: Path, id: str = "") -> None:
        """Write the folder, or replace it in one step; `id` is that of the run, if it has no configuration yet."""
        fingerprint = self.benchmark.graph.fingerprint
        facts = {"fingerprint": self.benchmark.fingerprint, "run": id or run_id(Path(run))}
        with new_folder(Path(run) / DEPLOYED, DEPLOYED_FORMAT, facts) as draft:
            self.benchmark.save(draft / "benchmark")
            self.vectors.save(draft / "vectors", fingerprint, graph=self.benchmark.name)
        list_parts(Path(run))

    @classmethod
    def open(cls, run: Path) -> Deployed | None:
        """What a run's folder holds; None where the run answers with what it was trained on."""
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
            raise InputError(Path(run) / DEPLOYED, f"holds vectors of {self.vectors.dim} reals: fit the run again")
        return scorer_on(Path(run), self.benchmark, self.vectors, use_device(device))


def _trained_with_other(run: Path, what: str, name: str, mine: str, other: str) -> FewlinkError:
    return FewlinkError(
        f"{run} was trained with other {what} ({name}, {mine[:12]}…, not {other[:12]}…): "
        "give the same, or choose another folder"
    )


def runs_in(folder: Path) -> list[Path]:
    """The runs of several seeds that were trained into one folder."""
    found = [path for path in Path(folder).glob("seed-*") if is_run(path)]
    return sorted(found, key=lambda path: RunConfig.read(path).settings.seed)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a training run."""
    try:
        content = read_json(Path(folder) / CONFIG)
    except InputError:
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def benchmark_of(run: Path, bench: str | Path | None = None) -> Benchmark:
    """The benchmark of a run: where the user says it is, where it was, or the one of its name."""
    known, source = RunConfig.read(run).benchmark, benchmark_place(run)
    try:
        benchmark = open_benchmark(bench or source)
    except FewlinkError as error:
        if bench:
            raise
        raise FewlinkError(
            f"{run} was trained on {known['name']}, which cannot be opened from {source} ({error}): say where it is, "
            "with --bench PATH (fewlink train PATH --resume RUN), or bench=PATH"
        ) from None
    same = known["fingerprint"] in (benchmark.fingerprint, *benchmark.extended_from)
    if not bench and not same and Path(source).is_relative_to(run):
        raise InputError(source, f"is another benchmark than the run was trained on: {REMEDY}")
    return benchmark


def benchmark_place(run: Path) -> str:
    """Where to open a run's benchmark: its own (of a run made from a file of triples), where it was, or its name."""
    known = RunConfig.read(run).benchmark
    if known["source"] == OF_DEPLOYED:
        return str(run / OF_DEPLOYED)
    if place_of(run / BENCHMARK).is_dir():
        return str(run / BENCHMARK)
    check_complete(run, BENCHMARK)
    return str(known["source"] or known["name"])


def open_run(folder: Path, benchmark: Benchmark, *, device: str = "cpu") -> Scorer:
    """The best model of a run as a scorer, on the graph it was trained on or on one that has grown since."""
    folder, device = Path(folder), use_device(device)
    config = RunConfig.read(folder)
    if extended := config.graph["fingerprint"] in benchmark.extended_from:
        config.family.check_fold_in(folder, load_best(folder)[0])
    elif config.graph["fingerprint"] != benchmark.graph.fingerprint and not config.family.any_graph:
        raise InputError(
            folder,
            f"was trained on the graph of {config.benchmark['name']} ({config.graph['entities']} entities), which is "
            f"not that of {benchmark.name} ({len(benchmark.graph.entities)} entities): use the one it was trained on",
        )
    vectors = vectors_of(folder)
    if extended:
        sizes = config.graph["entities"], config.graph["relations"]
        vectors = config.family.fold_in(vectors, benchmark, *sizes)
    return scorer_on(folder, benchmark, vectors, device)


def vectors_of(run: Path) -> PretrainedVectors:
    """The vectors that a run answers with."""
    config = RunConfig.read(run)
    vectors: PretrainedVectors = config.family.open_vectors(run / EMBEDDINGS, config.graph["fingerprint"])
    if vectors.digest() != config.embeddings["sha256"]:
        raise InputError(run / EMBEDDINGS, f"holds other vectors than the run was trained with: {REMEDY}")
    return vectors


def scorer_on(folder: Path, benchmark: Benchmark, vectors: PretrainedVectors, device: str) -> Scorer:
    """The best model of a run as a scorer that reads a benchmark's graph and these vectors of it.

    A run that answers with a learning-free scorer gives that one, on all that is known of the benchmark.
    """
    config = RunConfig.read(folder)
    if name := config.answers_with:
        baseline = family_of(name)
        if not isinstance(baseline, BaselineFamily):
            raise InputError(folder / CONFIG, f"answers with {name}, which is not a learning-free scorer: fit again")
        whole = Benchmark(benchmark.name, known_graph(benchmark), {split: [] for split in SPLITS})
        return baseline.prepare(name, whole, None, shots=config.settings.shots).scorer
    family = config.family
    settings, (weights, _) = config.settings.replace(device=device), load_best(folder)
    memory.ensure(settings.model, family.memory(benchmark.graph, vectors, settings), device)
    return family.scorer(benchmark, vectors, settings, weights, run=folder)


def start_or_continue(run: Path, wanted: RunConfig, vectors: PretrainedVectors) -> None:
    """Make a run folder ready for training: `config.json` is written last, so a folder that has one is a run's.

    A run without an evaluation may begin again with other settings.
    """
    place, known = run / EMBEDDINGS, (run / CONFIG).exists()
    if known and begun(run):
        RunConfig.read(run).check_continues(run, wanted)
    elif _digest_of(wanted.family, place) != wanted.embeddings["sha256"]:
        if place.exists() and not known:  # never replace a user's vectors
            raise FewlinkError(f"{run} exists, holds other embeddings and is not a training run: choose another folder")
        vectors.save(place, wanted.graph["fingerprint"], graph=wanted.benchmark["name"])
    wanted.write(run, id="" if known and begun(run) else wanted.new_id())


def _digest_of(family: TrainedFamily[Any, Any], folder: Path) -> str | None:
    """The digest of the vectors in a folder; None if there are none that the family can open."""
    try:
        return str(family.open_vectors(folder).digest()) if exists(folder) else None
    except InputError:
        return None


def make_folder(run: Path) -> None:
    """The folder of a run."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FewlinkError(f"{run} cannot be made ({error.strerror})") from None


def check_folder(run: Path) -> None:
    """Raise if a folder holds anything but a run or the beginning of one."""
    if run.exists() and not run.is_dir():
        raise FewlinkError(f"{run} is a file: choose another folder")
    if not run.exists():
        return
    if (run / FIT).exists():
        raise FewlinkError(
            f"{run} was made by fewlink fit: fewlink fit GRAPH --out {run} --minutes N continues it; or choose another "
            "folder"
        )
    check_complete(run, FIT)
    ours = (".lock", *(f".{name}." for name in (*BEGINNING, CONFIG)))
    others = [p.name for p in run.iterdir() if p.name not in BEGINNING and not p.name.startswith(ours)]
    if others and not (CONFIG in others and _is_ours(run / CONFIG)):
        raise FewlinkError(f"{run} exists and is not a training run: choose another folder")


def _is_ours(config: Path) -> bool:
    """Whether a configuration is a run's; a damaged one may be, and is reported where it is read."""
    try:
        content = read_json(config)
    except InputError:
        return True
    return isinstance(content, dict) and str(content.get("format")).startswith("fewlink-run/")


def check_may_train(run: Path, benchmark: Benchmark, settings: ModelSettings) -> None:
    """Raise if a folder cannot take a run on this benchmark with these settings, before anything is trained."""
    check_folder(run)
    if (run / CONFIG).exists() and begun(run):
        config = RunConfig.read(run)
        config.check_same_benchmark(run, {"fingerprint": benchmark.fingerprint})
        config.check_same_settings(run, settings)
