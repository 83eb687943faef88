"""A model is one folder: open it, save it with everything it needs, and exchange it with the Hugging Face hub.

A saved model is a run folder without what only training needs, and with the checksum of every file:

config.json, best/, embeddings/   the header, the weights and the vectors
benchmark/, serving/              the graph that the model was measured on, and the one that it answers on, if another
calibration.json, README.md       the calibration, and the model card
manifest.json                     the checksums
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fewlink.core.errors import FewlinkError, InputError, MissingExtra
from fewlink.core.files import is_folder_of, new_folder, read_folder, write_bytes
from fewlink.graph.source import GraphSource
from fewlink.models.folder import BENCHMARK, CALIBRATION, EMBEDDINGS, check_complete, read_consistently
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.tasks.catalogue import open_graph

FORMAT = "fewlink-pretrained/1"
CARD = "README.md"
UNKNOWN_LICENSE = "unknown"  # the hub's word for a licence that is not stated
TAGS = ("knowledge-graph", "knowledge-graph-completion", "link-prediction", "few-shot-learning")
HUB = "hub:"
HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
T = TypeVar("T")


# Opening


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
    if not os.path.isdir(folder):
        return is_folder_of(folder, FORMAT)
    from fewlink.models.run import is_run, runs_in

    return is_folder_of(folder, FORMAT) or is_run(folder) or bool(runs_in(folder))


def check_not_saved(folder: Path) -> None:
    """Raise if the folder is a saved model: a change would break its checksums."""
    if is_folder_of(folder, FORMAT):
        raise InputError(folder, "is a saved model and cannot be changed: change its run, then save it again")


def answered_graph(source: GraphSource) -> Benchmark:
    """The graph on which `load` would answer, without its model."""
    if not is_model(source.file):
        return open_graph(source)
    from fewlink.models.run import Deployed

    def open_deployed(place: Path) -> Benchmark:
        deployed = Deployed.open(place)
        return deployed.benchmark if deployed else benchmark_of(place, source.bench)

    return read_model(fetch(source.file), open_deployed)


def benchmark_of(folder: Path, bench: str | Path | Benchmark | None = None) -> Benchmark:
    """The benchmark of a run or saved model: `bench` if given, else the one that it was trained on or saved with.

    Raises if `bench` names another benchmark.
    """
    from fewlink.models import run as runs

    if isinstance(bench, Benchmark):
        return bench
    if is_folder_of(folder, FORMAT):
        benchmark = open_benchmark(bench or folder / BENCHMARK)
    elif runs.is_run(folder):
        benchmark = runs.benchmark_of(folder, bench)
    else:
        if several := runs.runs_in(folder):
            raise InputError(folder, f"holds {len(several)} runs: choose one, such as {several[0]}")
        raise InputError(folder, "is not a training run: make one with fewlink train or fewlink fit")
    known = runs.RunConfig.read(folder).benchmark
    if bench is not None and known["fingerprint"] not in (benchmark.fingerprint, *benchmark.extended_from):
        raise InputError(
            folder,
            f"was trained on {known['name']}, and {bench} is another benchmark or has changed: give the one it was "
            "trained on, or leave out --bench",
        )
    return benchmark


# Saving


def save(run: Path, benchmark: Benchmark, folder: Path, *, place: str = "", license: str = UNKNOWN_LICENSE) -> Path:
    """Write a run as a self-contained folder, atomically; an existing saved model is replaced.

    The card says how to load the model from `place`, by default its folder.
    """
    from fewlink.models.checkpoints import load_best, save_best
    from fewlink.models.run import Deployed, RunConfig, vectors_of

    if folder.resolve() == run.resolve():
        raise FewlinkError(f"{folder} is the run itself: choose another folder")

    def read(place: Path) -> Any:
        calibration = (place / CALIBRATION).read_bytes() if (place / CALIBRATION).is_file() else None
        return RunConfig.read(place), *load_best(place), vectors_of(place), Deployed.open(place), calibration

    config, weights, step, vectors, deployed, calibration = read_model(run, read, complete=True)
    facts = {"model": config.settings.model, "benchmark": benchmark.name, "fingerprint": benchmark.fingerprint}
    with new_folder(folder, FORMAT, {**facts, "step": step}) as draft:
        replace(config, benchmark={**config.benchmark, "source": ""}, weights="").write(draft)
        save_best(draft, weights, step)
        vectors.save(draft / EMBEDDINGS, config.graph["fingerprint"], graph=benchmark.name)
        benchmark.save(draft / BENCHMARK)
        if deployed:
            deployed.save(draft)
        if calibration is not None:
            write_bytes(draft / CALIBRATION, calibration)
        write_bytes(draft / CARD, _saved_card(run, benchmark, place or folder.name, license).encode())
    return folder


def publish(
    run: Path, benchmark: Benchmark, name: str, *, private: bool = False, license: str = UNKNOWN_LICENSE
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
        folder = save(run, benchmark, Path(temporary) / "model", place=HUB + name, license=license)
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


# The parts of a model card that a run and a saved model share


def front_matter(title: str, model: str, license: str = UNKNOWN_LICENSE) -> str:
    """The YAML header of a card, which the hub reads."""
    tags = "".join(f"- {tag}\n" for tag in (*TAGS, json.dumps(model)))
    header = f"license: {license}\nlibrary_name: fewlink\npipeline_tag: graph-ml\ntags:\n{tags}"
    return f"---\n{header}---\n\n# {title}\n"


def how_to_use(place: str, references: Sequence[tuple[str, str]], head: str) -> str:
    """The section of a card that says how to use the model from Python and the command line."""
    options = " ".join(f"--reference {shlex.quote(f'{first} => {last}')}" for first, last in references)
    return f"""
Ranks the tails that fit a head, given a handful of pairs of a relation that the graph does not contain, without \
further training. Made with fewlink: `pip install 'fewlink[hub]'`.

## How to use it

```python
import fewlink
linker = fewlink.load({place!r})
print(linker.predict(references={list(references)!r}, heads=[{head!r}], k=10))
```

```
fewlink ask {shlex.quote(place)} {options} --head {shlex.quote(head)} --explain
```
"""


def _saved_card(run: Path, benchmark: Benchmark, place: str, license: str) -> str:
    """The card of a saved model that users load from `place`: that of the run, or a short one if it has none."""
    if (run / CARD).is_file():
        text = (run / CARD).read_text("utf-8")
    else:
        from fewlink.models.run import RunConfig

        model = RunConfig.read(run).settings.model
        graph = benchmark.graph
        tasks = [task for split in ("dev", "test", "train") for task in benchmark.split(split)]
        pairs = tasks[0].pairs if tasks else graph.triples()[:4, [0, 2]]
        named = [(graph.entities[head], graph.entities[tail]) for head, tail in pairs[:4].tolist()]
        text = front_matter(f"{model} on {benchmark.name}", model) + how_to_use(
            place, named[:-1] or named, named[-1][0]
        )
        text += "\n## Figures\n\nNot measured.\n"
    lines = [
        (r"^linker = fewlink\.load\(.*\)$", f"linker = fewlink.load({place!r})"),
        (r"^fewlink ask (?:'[^']*'|\S+)", f"fewlink ask {shlex.quote(place)}"),
    ]
    if license != UNKNOWN_LICENSE:
        lines.append((r"^license: .*$", f"license: {license}"))
    for pattern, line in lines:
        text = re.sub(pattern, line.replace("\\", r"\\"), text, count=1, flags=re.MULTILINE)
    return text
