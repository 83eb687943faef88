"""A run folder: what was trained, on what and how, and the scorer that came of it.

config.json     settings, fingerprints of benchmark, graph and embeddings, version
embeddings/     the vectors that were used, so that the folder needs nothing else but the graph
metrics.jsonl   a line for each evaluation, with seconds per phase
best/, last/    checkpoints
benchmark/      its own benchmark, and fit.json, serving/: where fewlink fit made it
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fewlink import __version__, memory
from fewlink.embeddings.table import Embeddings
from fewlink.errors import FewlinkError, InputError
from fewlink.graph import Graph
from fewlink.models import FewShotModel, FewShotScorer, Surroundings, TrailScorer, build
from fewlink.seeds import derive
from fewlink.storage import read_json, write_bytes, write_json
from fewlink.tasks.benchmark import Benchmark
from fewlink.tasks.catalogue import open_benchmark
from fewlink.together import use
from fewlink.training.checkpoints import begun, load_best
from fewlink.training.growing import grown_vectors
from fewlink.training.needs import needs
from fewlink.training.settings import AnySettings, TrailSettings, TrainingSettings, settings_of
from fewlink.training.trail_learner import open_trail
from fewlink.training.trail_vectors import TrailVectors

FORMAT = "fewlink-run/1"
CONFIG, METRICS, EMBEDDINGS, BENCHMARK = "config.json", "metrics.jsonl", "embeddings", "benchmark"
BEGINNING = (EMBEDDINGS, BENCHMARK, "fit.json", ".fit")  # what may be there before a run has a configuration
TUNED = ("entities", "relations")  # the pretrained vectors, as `around.NAME` among the weights where they were trained


@dataclass(frozen=True)
class RunConfig:
    """What decides a run: settings, the benchmark, its graph and the embeddings, each with its fingerprint.

    The benchmark also has the `source` it was opened by and the names of its `train` relations.
    """

    settings: AnySettings
    benchmark: dict[str, Any]
    graph: dict[str, Any]
    embeddings: dict[str, Any]

    @classmethod
    def of(cls, benchmark: Benchmark, embeddings: Embeddings | TrailVectors, settings: AnySettings) -> RunConfig:
        graph = benchmark.graph
        return cls(
            settings,
            {
                "name": benchmark.name,
                "fingerprint": benchmark.fingerprint,
                "source": benchmark.source,
                "train": [task.name for task in benchmark.split("train")],
            },
            {"fingerprint": graph.fingerprint, "entities": len(graph.entities), "relations": len(graph.relations)},
            {"model": embeddings.model, "dim": embeddings.dim, "sha256": embeddings.digest()},
        )

    def as_dict(self) -> dict[str, Any]:
        facts = {"benchmark": self.benchmark, "graph": self.graph, "embeddings": self.embeddings}
        return {"format": FORMAT, "version": __version__, **facts, "settings": self.settings.as_dict()}

    @classmethod
    def read(cls, run: Path) -> RunConfig:
        """The configuration of a run folder."""
        path = Path(run) / CONFIG
        if not path.exists():
            raise InputError(run, "is not a training run: fewlink train makes one")
        content = read_json(path)
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise InputError(path, f"has format {found!r}, this version of fewlink reads {FORMAT!r}: train again")
        parts = ("settings", "benchmark", "graph", "embeddings")
        if not all(isinstance(content.get(part), dict) for part in parts):
            raise InputError(path, "is damaged: train again, in another folder")
        settings, *facts = (content[part] for part in parts)
        return cls(settings_of(str(settings.get("model"))).from_dict(settings), *facts)

    def refuse_other(self, run: Path, asked: RunConfig) -> None:
        """An error where `asked` is not a continuation of this run; more steps or patience, another device are."""
        for what, mine, other in (
            ("benchmark", self.benchmark["fingerprint"], asked.benchmark["fingerprint"]),
            ("embeddings", self.embeddings["sha256"], asked.embeddings["sha256"]),
        ):
            if mine != other:
                told = {"benchmark": self.benchmark["name"], "embeddings": f"{self.embeddings['model']} vectors"}[what]
                raise FewlinkError(
                    f"{run} was trained with other {what} ({told}, {mine[:12]}…, not {other[:12]}…): "
                    "give the same, or choose another folder"
                )
        found, wanted = self.settings.as_dict(), asked.settings.as_dict()
        for name in wanted:
            if name in ("steps", "patience") and wanted[name] < found[name]:
                raise FewlinkError(
                    f"{run} was trained with {name} = {found[name]}, and {wanted[name]} is asked for: not less"
                )
            if name not in ("steps", "patience", "device") and wanted[name] != found[name]:
                raise FewlinkError(
                    f"{run} was trained with {name} = {found[name]!r}, and {wanted[name]!r} is asked for: "
                    "give the same settings, or choose another folder"
                )

    def refuse_seen(self, run: Path, benchmark: Benchmark, split: str) -> None:
        """An error where another benchmark's split holds relations this run was trained on."""
        if benchmark.fingerprint != self.benchmark["fingerprint"]:
            seen = {task.name for task in benchmark.split(split)} & set(self.benchmark["train"])
            if seen:
                raise FewlinkError(
                    f"{run} was trained on {', '.join(sorted(seen)[:3])}, which {benchmark.name} has in {split}: "
                    "evaluate it on the benchmark it was trained on"
                )


def runs_in(folder: Path) -> list[Path]:
    """The runs of several seeds that were trained into one folder."""
    found = [path for path in Path(folder).glob("seed-*") if is_run(path)]
    return sorted(found, key=lambda path: RunConfig.read(path).settings.seed)


def benchmark_of(run: Path, bench: str | Path | None = None) -> Benchmark:
    """The benchmark of a run: where the user says it is, where it was, or the one of its name."""
    known, source = RunConfig.read(run).benchmark, benchmark_place(run)
    try:
        return open_benchmark(bench or source)
    except FewlinkError as error:
        if bench:
            raise
        raise FewlinkError(
            f"{run} was trained on {known['name']}, which is not to be had from {source} any more ({error}): say where "
            "it is, with --bench PATH (fewlink train PATH --resume RUN), or bench=PATH"
        ) from None


def is_run(folder: Path) -> bool:
    """Whether a folder holds a training run."""
    try:
        content = read_json(Path(folder) / CONFIG)
    except InputError:
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def open_run(folder: Path, benchmark: Benchmark, *, device: str = "cpu") -> FewShotScorer | TrailScorer:
    """The best model of a run as a scorer, on the graph it was trained on, or one that grew from it, and no other."""
    folder, device = Path(folder), use(device)
    config = RunConfig.read(folder)
    if grew := config.graph["fingerprint"] in benchmark.grown_from:
        refuse_tuned(folder)
    elif config.graph["fingerprint"] != benchmark.graph.fingerprint:
        raise InputError(
            folder,
            f"was trained on the graph of {config.benchmark['name']} ({config.graph['entities']} entities), which is "
            f"not that of {benchmark.name} ({len(benchmark.graph.entities)} entities): use the one it was trained on",
        )
    same = config.benchmark["fingerprint"] in (benchmark.fingerprint, *benchmark.grown_from)
    if isinstance(config.settings, TrailSettings) and not same:
        raise InputError(folder, f"knows the train relations of {config.benchmark['name']}: use that benchmark")
    vectors = vectors_of(folder)
    if grew:
        vectors = grown_vectors(vectors, benchmark, config.graph["entities"], config.graph["relations"])
    return scorer_on(folder, benchmark, vectors, device)


def vectors_of(run: Path) -> Embeddings | TrailVectors:
    """The vectors that a run answers with."""
    config, place = RunConfig.read(run), run / EMBEDDINGS
    if isinstance(config.settings, TrailSettings):
        return TrailVectors.open(place, config.graph["fingerprint"], for_training=False)
    return Embeddings.open(place, config.graph["fingerprint"])


def scorer_on(
    folder: Path, benchmark: Benchmark, vectors: Embeddings | TrailVectors, device: str
) -> FewShotScorer | TrailScorer:
    """The best model of a run as a scorer that looks at what a benchmark knows and at these vectors of it."""
    settings, (weights, _) = RunConfig.read(folder).settings, load_best(folder)
    memory.ensure(settings.model, needs(benchmark.graph, vectors, replace(settings, device=device)), device)
    if isinstance(settings, TrailSettings) and isinstance(vectors, TrailVectors):
        trail, known = open_trail(benchmark, vectors, settings, device)
        check_weights(trail.state_dict(), weights, folder)
        trail.load_state_dict(weights)
        return TrailScorer(settings.model, trail, known)
    assert isinstance(vectors, Embeddings) and not isinstance(settings, TrailSettings)
    model, surroundings = assemble(benchmark.graph, vectors, settings, device)
    load_weights(model, surroundings, weights, folder)
    return FewShotScorer(settings.model, model, surroundings)


def benchmark_place(run: Path) -> str:
    """Where to open a run's benchmark: its own, which a run of fewlink fit has, where it was, or its name."""
    if (run / BENCHMARK).is_dir():
        return str(run / BENCHMARK)
    known = RunConfig.read(run).benchmark
    return str(known["source"] or known["name"])


def refuse_tuned(run: Path) -> None:
    """An error where a run trained its vectors along with the model: it has none for entities that came later."""
    if any(name.startswith("around.") for name in load_best(run)[0]):
        raise InputError(run, "trained its vectors with the model, and has none for new entities: train it again")


def start_or_continue(run: Path, asked: RunConfig, embeddings: Embeddings | TrailVectors) -> None:
    """Make a run folder ready for training: `config.json` is written last, so a folder that has one is a run's.

    A run that nothing came of yet may begin anew with other settings.
    """
    place, fingerprint, known = run / EMBEDDINGS, asked.graph["fingerprint"], (run / CONFIG).exists()
    if known and begun(run):
        RunConfig.read(run).refuse_other(run, asked)
    elif not place.exists() or type(embeddings).open(place).digest() != asked.embeddings["sha256"]:
        if place.exists() and not known:  # never replace a user's vectors
            raise FewlinkError(f"{run} exists, holds other embeddings and is not a training run: choose another folder")
        embeddings.save(place, fingerprint, graph=asked.benchmark["name"])
    write_json(run / CONFIG, asked.as_dict())


def make_folder(run: Path) -> None:
    """The folder of a run."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FewlinkError(f"{run} cannot be made ({error.strerror})") from None


def refuse_other_folder(run: Path) -> None:
    """An error where a folder holds anything but a run, or the beginning of one."""
    if run.exists() and not run.is_dir():
        raise FewlinkError(f"{run} is a file: choose another folder")
    if not run.exists():
        return
    ours = tuple(f".{name}." for name in (*BEGINNING, CONFIG))
    others = [p.name for p in run.iterdir() if p.name not in BEGINNING and not p.name.startswith(ours)]
    if others and CONFIG not in others:
        raise FewlinkError(f"{run} exists and is not a training run: choose another folder")


def assemble(
    graph: Graph, embeddings: Embeddings, settings: TrainingSettings, device: str
) -> tuple[FewShotModel, Surroundings]:
    """A model with its first parameters, a pure function of the seed, and what it looks at."""
    surroundings = Surroundings.of(
        graph,
        embeddings.whole() if settings.embedding_rate else embeddings,
        most=settings.neighbours,
        rule=settings.neighbour_rule,
        seed=settings.seed,
        standardise=settings.standardise,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(settings.seed, "start"))
        model = build(settings.model, embeddings.dim, steps=settings.matching_steps, dropout=settings.dropout)
    return model.to(device), surroundings.to(device)


def load_weights(model: FewShotModel, around: Surroundings, weights: dict[str, torch.Tensor], run: Path) -> None:
    """Put the weights of a checkpoint into a model, and into its surroundings where they were trained too."""
    tuned = {name: weights[f"around.{name}"] for name in TUNED if f"around.{name}" in weights}
    for name, table in tuned.items():
        getattr(around, name).copy_(table)
    own = {name: weight for name, weight in weights.items() if not name.startswith("around.")}
    check_weights(model.state_dict(), own, run)
    model.load_state_dict(own)


def check_weights(expected: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor], run: Path) -> None:
    """An error where a checkpoint's weights have other names or shapes than the model's."""
    mine, theirs = ({name: tuple(w.shape) for name, w in weights.items()} for weights in (expected, found))
    if mine != theirs:
        names = ", ".join(name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name))
        raise InputError(run, f"holds weights of another version of its model ({names}): train again")


def keep_lines(run: Path, last: dict[str, Any]) -> None:
    """Bring metrics.jsonl to where a run stands: its lines up to the last committed evaluation, and none twice."""
    lines: list[dict[str, Any]] = []
    path = run / METRICS
    for text in path.read_text("utf-8").splitlines() if path.exists() else []:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:  # cut off by a kill
            break
        if not isinstance(line, dict) or "step" not in line:
            break
        if line["step"] <= last.get("step", 0):
            lines.append(line)
    if last and (not lines or lines[-1]["step"] != last["step"]):
        lines.append(last)
    write_bytes(path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def add_line(run: Path, line: dict[str, Any]) -> None:
    with (run / METRICS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
