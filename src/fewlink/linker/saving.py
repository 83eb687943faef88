"""Save a trained model as one self-contained folder, open it, and exchange it with the Hugging Face hub.

config.json, best/, embeddings/   as in a run folder, without what only training needs
benchmark/                        the compiled benchmark
serving/                          the graph used for predictions and its vectors, if it is not the benchmark's
README.md                         the model card
calibration.json, reliability.svg if the run has them
manifest.json                     the sha256 of every file
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fewlink.core.distributed import use_device
from fewlink.core.errors import FewlinkError, InputError, MissingExtra
from fewlink.core.files import is_folder_of, new_folder, open_folder, read_folder, write_bytes
from fewlink.core.words import listed
from fewlink.graph.graph import FORMAT as GRAPH_FORMAT
from fewlink.graph.source import GraphSource
from fewlink.linker.card import CARD, UNKNOWN_LICENSE, saved_card
from fewlink.models import run as training_run
from fewlink.models.checkpoints import load_best, save_best
from fewlink.models.contract import GraphScorer, Scorer
from fewlink.models.folder import BENCHMARK, CALIBRATION, EMBEDDINGS, check_complete, read_consistently
from fewlink.models.run import Deployed, RunConfig, is_run, open_run, runs_in, vectors_of
from fewlink.models.trail.family import FAMILY as TRAIL
from fewlink.models.trail.text import open_text_model, read_descriptions, text_vectors
from fewlink.tasks import CATALOGUE, Benchmark, open_benchmark
from fewlink.tasks.benchmark import FORMAT as BENCHMARK_FORMAT
from fewlink.tasks.catalogue import check_source, open_graph
from fewlink.tasks.nell_layout import is_layout
from fewlink.tasks.training_graph import known_graph

FORMAT = "fewlink-pretrained/1"
RELIABILITY = "reliability.svg"
T = TypeVar("T")
HUB = "hub:"
HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


def save(
    run: Path, benchmark: Benchmark, folder: Path, *, origin: str = "", place: str = "", license: str = UNKNOWN_LICENSE
) -> Path:
    """Write a run as a self-contained folder, atomically; an existing folder of this format is replaced.

    `origin` is what `origin_of` returns. The card says how to load the model from `place`, by default its folder.
    """
    if folder.resolve() == run.resolve():
        raise FewlinkError(f"{folder} is the run itself: choose another folder")

    def read(place: Path) -> Any:
        files = {name: (place / name).read_bytes() for name in (CALIBRATION, RELIABILITY) if (place / name).is_file()}
        return RunConfig.read(place), *load_best(place), vectors_of(place), Deployed.open(place), files

    config, weights, step, vectors, deployed, files = read_model(run, read, complete=True)
    facts = {"model": config.settings.model, "benchmark": benchmark.name, "fingerprint": benchmark.fingerprint}
    facts |= {"origin": origin} if origin.startswith(HUB) else {}
    with new_folder(folder, FORMAT, {**facts, "step": step}) as draft:
        replace(config, benchmark={**config.benchmark, "source": ""}, weights="").write(draft)
        save_best(draft, weights, step)
        vectors.save(draft / EMBEDDINGS, config.graph["fingerprint"], graph=benchmark.name)
        benchmark.save(draft / BENCHMARK)
        if deployed:
            deployed.save(draft)
        for name, content in files.items():
            write_bytes(draft / name, content)
        write_bytes(draft / CARD, saved_card(run, benchmark, place or folder.name, license).encode())
    return folder


def check_not_saved(folder: Path) -> None:
    """Raise if the folder is a saved model: a change would break its checksums."""
    if is_folder_of(folder, FORMAT):
        raise InputError(folder, "is a saved model and cannot be changed: change its run, then save it again")


def fetch(model: str | Path) -> Path:
    """The folder of a model: the path itself, or the local copy of `hub:owner/name`, which is downloaded once.

    `hub:owner/name@revision` names a branch, tag or commit.
    """
    if not str(model).startswith(HUB):
        return Path(model)
    found = HUB_NAME.fullmatch(str(model).removeprefix(HUB))
    if not found:
        raise FewlinkError(f"'{model}' is not of the form {HUB}owner/name or {HUB}owner/name@revision")
    name, revision = found.groups()
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtra("loading a model from the hub", "hub") from None
    try:
        return Path(snapshot_download(name, revision=revision))
    except Exception as error:  # many types: no network, no such model, no permission
        message = " ".join(str(error).split())
        what = f"{name} at {revision}" if revision else name
        raise FewlinkError(f"{what} cannot be fetched from the hub ({type(error).__name__}: {message})") from None


def origin_of(model: str | Path, folder: Path) -> str:
    """Where a model was loaded from: its path, or its name on the hub with the commit that was fetched.

    A saved copy of a model from the hub keeps that origin.
    """
    if not str(model).startswith(HUB):
        stored = open_folder(folder, FORMAT).get("origin") if is_folder_of(folder, FORMAT) else None
        return str(stored or model)
    name = str(model).removeprefix(HUB).partition("@")
    commit = folder.name if COMMIT.fullmatch(folder.name) else name[2]  # the hub's copies are named by their commit
    return f"{HUB}{name[0]}@{commit}" if commit else f"{HUB}{name[0]}"


def read_model(folder: Path, load: Callable[[Path], T], *, complete: bool = False) -> T:
    """Call `load` on the folder of a model so that all files it reads are of one version.

    The checksums of a saved model are verified. If `complete`, raises if a file of a run is missing.
    """
    if is_folder_of(folder, FORMAT):
        return read_folder(folder, FORMAT, lambda place, manifest: load(place))

    def of_run() -> T:
        if complete:
            check_complete(folder)
        return load(folder)

    return read_consistently(folder, of_run)


def is_model(source: str | Path) -> bool:
    """Whether `source` is a run, a folder of runs, a saved model, or a model on the hub."""
    if str(source).startswith(HUB):
        return True
    folder = Path(source)
    return is_folder_of(folder, FORMAT) or (os.path.isdir(folder) and (is_run(folder) or bool(runs_in(folder))))


def check_model_options(source: GraphSource, **described: str | Path | None) -> None:
    """Raise if a trained model is to be opened with options that describe a graph or say how to read its file."""
    given = [*source.given(), *(name for name, value in described.items() if value is not None)]
    if given:
        raise FewlinkError(f"{source.file} is a trained model: leave out {listed(given)}")


def check_graph_options(source: GraphSource) -> None:
    """Raise if a graph is to be opened with the benchmark of a trained model."""
    if source.bench is not None:
        raise FewlinkError(f"{source.file} is not a trained model: leave out bench, the benchmark of a trained model")


def answered_graph(source: GraphSource) -> Benchmark:
    """The graph on which `load` would answer, without its model."""
    if not is_model(source.file):
        check_graph_options(source)
        return graph_of(source)
    check_model_options(source)

    def open_deployed(place: Path) -> Benchmark:
        deployed = Deployed.open(place)
        return deployed.benchmark if deployed else benchmark_of(place, source.bench)

    return read_model(fetch(source.file), open_deployed)


def graph_of(source: GraphSource) -> Benchmark:
    """Open a file of triples, a compiled graph or a benchmark."""
    path = Path(source.file)
    named = source.file in CATALOGUE
    check_source(source.file)
    formats = (BENCHMARK_FORMAT, GRAPH_FORMAT)
    if not named and path.is_dir() and not is_layout(path) and not any(is_folder_of(path, each) for each in formats):
        raise InputError(path, "is not a training run, a saved model, a compiled graph or a benchmark")
    return open_graph(source)


def benchmark_of(folder: Path, bench: str | Path | Benchmark | None = None) -> Benchmark:
    """The benchmark of a run or saved model: `bench` if given, else the one that it was trained on or saved with.

    Raises if `bench` names another benchmark.
    """
    if isinstance(bench, Benchmark):
        return bench
    if is_folder_of(folder, FORMAT):
        benchmark = read_model(folder, lambda place: open_benchmark(bench or place / BENCHMARK))
    elif is_run(folder):
        benchmark = training_run.benchmark_of(folder, bench)
    else:
        if several := runs_in(folder):
            raise InputError(folder, f"holds {len(several)} runs: choose one, such as {several[0]}")
        raise InputError(folder, "is not a training run: make one with fewlink train or fewlink fit")
    known = RunConfig.read(folder).benchmark
    if bench is not None and known["fingerprint"] not in (benchmark.fingerprint, *benchmark.extended_from):
        raise InputError(
            folder,
            f"was trained on {known['name']}, and {bench} is another benchmark or has changed: give the one it was "
            "trained on, or leave out --bench",
        )
    return benchmark


def open_scorer(
    run: Path, benchmark: Benchmark, deployed: Deployed | None = None, *, device: str = "cpu", names: bool = True
) -> Scorer:
    """The best model of a run, on its benchmark or on the graph that it was deployed with.

    If the model reads names, they are evidence unless `names` is False.
    """
    scorer = deployed.scorer(run, device=device) if deployed else open_run(run, benchmark, device=device)
    if not names and isinstance(scorer, GraphScorer):
        return scorer.without_names()
    return scorer


def shipped_scorer(
    benchmark: Benchmark,
    *,
    device: str = "cpu",
    names: bool = True,
    text_model: str | Path | None = None,
    descriptions: str | Path | None = None,
) -> Scorer:
    """TRAIL with the built-in weights; the names of entities are evidence unless `names` is False.

    `text_model` is the folder of a text model whose vectors of names, and of the texts in the file `descriptions`, are
    evidence too.
    """
    if text_model is not None and not names:
        raise FewlinkError(
            "a text model needs names, and names are switched off (--no-names): leave out one of the two"
        )
    if descriptions is not None and text_model is None:
        raise FewlinkError("descriptions need a text model: give its folder too (--text-model)")
    graph = known_graph(benchmark)
    described = None if descriptions is None else read_descriptions(Path(descriptions), graph)
    scorer = TRAIL.shipped_on(graph, use_device(device), names=names)
    if text_model is not None:
        return scorer.with_vectors(text_vectors(open_text_model(text_model), graph, described))
    return scorer


def publish(
    run: Path,
    benchmark: Benchmark,
    name: str,
    *,
    origin: str = "",
    private: bool = False,
    license: str = UNKNOWN_LICENSE,
) -> str:
    """Save a run and publish it on the Hugging Face hub as `owner/name`; returns its address."""
    name = name.removeprefix(HUB)
    if "@" in name or not HUB_NAME.fullmatch(name):
        raise FewlinkError(f"'{name}' is not of the form owner/name")
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise MissingExtra("push_to_hub", "hub") from None
    with tempfile.TemporaryDirectory() as temporary:
        folder = save(run, benchmark, Path(temporary) / "model", origin=origin, place=HUB + name, license=license)
        try:
            hub = HfApi()
            hub.create_repo(name, private=private, exist_ok=True)
            hub.upload_folder(
                repo_id=name, folder_path=folder, commit_message="Model written by fewlink", delete_patterns="*"
            )
        except Exception as error:  # many types: no network, not logged in, no permission
            message = " ".join(str(error).split())
            raise FewlinkError(f"{name} cannot be published ({type(error).__name__}: {message})") from None
    return f"https://huggingface.co/{name}"
