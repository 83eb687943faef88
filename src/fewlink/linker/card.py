"""The model card: what a run was trained on, its metrics, the error of its probabilities, and how to use it."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from fewlink import __version__
from fewlink.core.errors import FewlinkError
from fewlink.core.metrics import labelled
from fewlink.core.storage import locked_inside, read_json, without_sha256, write_bytes
from fewlink.evaluation import Evaluation, Protocol, evaluate
from fewlink.graph import Graph
from fewlink.linker.calibration import ROUGH, Calibration
from fewlink.linker.linker import Linker, calibrate
from fewlink.linker.names import readable
from fewlink.linker.query import id_texts
from fewlink.linker.saving import CARD, check_not_saved, front_matter, introduction
from fewlink.linker.trust import Bin
from fewlink.training import RunConfig
from fewlink.training.folder import FIT
from fewlink.training.run import Deployed

PROTOCOLS = ("full", "open")
METRICS = labelled("mrr", "hits@1", "hits@5", "hits@10")
HELD_OUT = labelled("mrr", "hits@1", "hits@10")
ESCAPES = str.maketrans({"|": "\\|", "\n": " ", "\r": " ", "\t": " ", "<": "&lt;", "`": "\\`", "*": "\\*"})


def write_card(
    run: str | Path | Linker, *, test: bool = False, bench: str | Path | None = None, device: str = "cpu"
) -> Path:
    """Measure a run on dev, and on test if `test`, calibrate it if necessary, and write `README.md` into its folder."""
    linker = run if isinstance(run, Linker) else Linker.load(run, bench=bench, device=device, as_measured=True)
    return measure_and_write(linker, test=test)[0]


def measure_and_write(
    linker: Linker, *, test: bool = False, graph: Graph | None = None
) -> tuple[Path, list[Evaluation]]:
    """The card of an opened run, and the evaluations in it; test is measured if asked for, or if a fit measured it.

    `graph` is the graph that the run makes predictions with; by default it is read from the run's folder.
    """
    run = linker.run
    if run is None:
        raise FewlinkError(f"{linker.scorer.name} was not opened from a run: only a trained run has a card")
    check_not_saved(run)
    if graph is None and linker.benchmark is not linker.measured:
        graph = linker.graph
    elif graph is None and (deployed := Deployed.open(run)):
        graph = deployed.benchmark.graph
    given, linker, config = linker, linker.as_measured(), RunConfig.read(run)
    given.calibration = calibration = linker.calibration or calibrate(linker)
    test |= any(name.startswith("test ") for name in _fit_record(run).get("figures", {}))
    splits = ["dev", *(["test"] if test and linker.benchmark.split("test") else [])]
    for split in splits:
        config.check_unseen(run, linker.benchmark, split)
    evaluations = [
        evaluate(linker.benchmark, linker.scorer, Protocol(split, linker.shots, candidates))
        for split in splits
        for candidates in PROTOCOLS
    ]
    parts = [
        front_matter(config.settings.model, linker.benchmark.name, list(_figures(evaluations))).rstrip("\n"),
        *_introduction(linker, config, run),
        "## Data\n",
        _data(linker, config),
        "## Metrics\n",
        _metrics(linker, evaluations),
        *_held_out(run),
        "## Probabilities\n",
        _calibration(calibration),
        "## Limits\n",
        _limits(config, graph),
        "## Versions and settings\n",
        _versions(config, linker.step),
    ]
    with locked_inside(run):
        write_bytes(run / CARD, "\n".join(parts).encode())
    return run / CARD, evaluations


def _introduction(linker: Linker, config: RunConfig, run: Path) -> list[str]:
    """Title and purpose; three lines of Python and a command, with a relation of dev as the example."""
    tasks = linker.benchmark.split("dev") or linker.benchmark.split("test")
    pairs = tasks[0].pairs
    references, head = id_texts(linker.graph, pairs[: linker.shots]), linker.graph.entities[int(pairs[-1, 0])]
    folder = run.resolve().name if run.is_absolute() else str(run)  # no path of this machine in a card that is shared
    return [introduction(_plain(f"{config.settings.model} on {linker.benchmark.name}"), folder, references, head)]


def _figures(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, str, float]]:
    """The figures of the card's head: a split, the name of a metric and its value."""
    for evaluation in evaluations:
        protocol, micro = evaluation.protocol, evaluation.metrics()["micro"]
        for label, name in METRICS.items():
            yield protocol.split, f"{label}, {protocol.shots} references, {protocol.candidates} candidates", micro[name]


def _data(linker: Linker, config: RunConfig) -> str:
    graph, tasks = linker.graph, linker.benchmark.tasks
    counts = ", ".join(f"{len(tasks[split])} {split}" for split in ("train", "dev", "test"))
    return _bullets(
        f"benchmark {linker.benchmark.name}, sha256 `{linker.benchmark.fingerprint}`",
        f"{len(graph.entities):,} entities, {len(graph.relations):,} relations and {graph.triple_count:,} triples "
        f"in the background; task relations: {counts}",
        f"entity types: {f'{len(graph.types.names):,}' if graph.types else 'none'}",
        f"vectors: {config.embeddings['model']}{f', {dim} reals' if (dim := config.embeddings['dim']) else ''}",
    )


def _metrics(linker: Linker, evaluations: Sequence[Evaluation]) -> str:
    """The metrics of every protocol, and those of each relation."""
    rows = []
    for evaluation in evaluations:
        protocol, metrics = evaluation.protocol, evaluation.metrics()
        micro = [metrics["micro"][name] for name in METRICS.values()]
        rows.append([protocol.split, protocol.candidates, evaluation.queries, *micro, metrics["macro"]["mrr"]])
    text = [
        f"References are the first {linker.shots} pairs of each relation, queries its other pairs. `full` ranks the "
        "relation's whole range, `open` the tails that resemble those of the references, with all other entities tied "
        "behind them. Other known answers do not compete. Tied tails share the mean of their ranks. Metrics are means "
        "over queries; macro MRR is the mean over relations. The weights were chosen on dev, so dev metrics are "
        "optimistic.\n",
        _table(["split", "candidates", "queries", *METRICS, "macro MRR"], rows),
    ]
    for evaluation in evaluations:
        rows = [
            [readable(name), row["queries"], row["candidates"], *(row[metric] for metric in METRICS.values())]
            for name, row in evaluation.relations().items()
        ]
        text.append(f"Each {evaluation.protocol.split} relation, `{evaluation.protocol.candidates}`:\n")
        text.append(_table(["relation", "queries", "candidates", *METRICS], rows))
    return "\n".join(text)


def _fit_record(run: Path) -> dict[str, Any]:
    """What `fewlink fit` wrote about a run; empty for other runs."""
    content = without_sha256(read_json(run / FIT), run / FIT) if (run / FIT).exists() else {}
    return content if isinstance(content, dict) else {}


def _held_out(run: Path) -> list[str]:
    """What a fit measured on held-out relations, and what it deployed; nothing for other runs."""
    content = _fit_record(run)
    if not content.get("ranks"):
        return []
    ranks = content["ranks"][content["deployed"]]
    relations, queries = len(ranks), sum(map(len, ranks))
    rows = [
        [f"{name}{', deployed' if name == content['deployed'] else ''}", *(row[metric] for metric in HELD_OUT.values())]
        for name, row in content["held_out"].items()
    ]
    return [
        "## What was chosen\n",
        f"What to expect of a new relation: means over held-out relations ({relations}, with those of dev), which "
        f"were hidden from the graph and from fine-tuning, with {queries:,} queries in all and `open` candidates. "
        "`shipped` are the weights that come with fewlink, `rules` is a learning-free scorer.\n",
        _table(["scorer", *HELD_OUT], rows),
        f"Deployed: {content['deployed']} ({content['why']}).\n",
    ]


def _calibration(calibration: Calibration) -> str:
    crossed = {
        "relation": f"The {calibration.relations} relations were left out in turn",
        "head": "There is one relation, so its heads were left out in turn",
        "graph": f"The {calibration.relations} relations are of several graphs, which were left out in turn",
    }[calibration.crossed]
    weights = " ".join(f"{weight:+.3f} · {name}" for name, weight in calibration.weights.items() if weight)
    text = [
        f"A logistic regression on {calibration.count:,} predictions on held-out relations, the best "
        f"{calibration.top} `open` tails of each head, of which {calibration.base:.1%} were right: {weights}.\n",
        f"{crossed}, and each was predicted by weights fitted without it.\n",
    ]
    text.append(
        f"Over relations, the mean probability of first answers differs from their hit rate by "
        f"**{calibration.over_relations:.3f}** on average.\n"
    )
    text.append(f"Expected calibration error of first answers: **{calibration.first_error:.3f}**.\n")
    text.append(_bins(calibration.first_bins))
    text.append(
        f"Expected calibration error of the first {calibration.top} answers: **{calibration.error:.3f}**; on the rows "
        f"that the weights were fitted to it is {calibration.own_error:.3f}.\n"
    )
    text.append(_bins(calibration.bins))
    if calibration.rough:
        text.append(f"**No percentages are shown: an error above {ROUGH} makes them misleading. Use the ranks.**\n")
    if calibration.least:
        text.append(
            "No percentages are shown either if the references themselves are not found when they are held out: a "
            f"question is of low trust if at most half of them are found in the first ten and its first answers have a "
            f"probability under {calibration.least:.0%} on average.\n"
        )
    return "\n".join(text)


def _bins(bins: Sequence[Bin]) -> str:
    rows = [[f"{b.low:.1f}–{b.high:.1f}", b.count, b.predicted, b.observed] for b in bins]
    return _table(["probability", "predictions", "mean probability", "share of right predictions"], rows)


def _limits(config: RunConfig, graph: Graph | None) -> str:
    """`graph` is the graph that the run makes predictions with, unless it is the benchmark's."""
    trained = len(config.benchmark["train"])
    if graph is None:
        scope = "It ranks entities of its graph only, and knows only the background and the train relations."
    else:
        scope = (
            f"Predictions use more than the metrics: a graph of {len(graph.entities):,} entities, "
            f"{len(graph.relations):,} relations and {graph.triple_count:,} triples. The metrics and the calibration "
            "above come from the benchmark, whose dev and test relations, except for the references, were hidden. It "
            "ranks entities of its graph only."
        )
    return _bullets(
        scope,
        "A probability is for heads that have some tail in the relation; for a head that has none it is too high.",
        "Probabilities were fitted with the `open` candidates; with others they are less accurate.",
        "Evaluation and calibration count pairs that are not in the data as wrong; some of them are true.",
        *([f"Relations it was trained on, where it does better than on new ones: {trained}."] if trained else []),
    )


def _versions(config: RunConfig, step: int) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in config.settings.as_dict().items() if name != "device")
    return _bullets(
        f"fewlink {__version__}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"numpy {numpy.__version__}",
        f"weights of step {step}; settings: {settings}"
        if step
        else f"the learning-free {config.answers_with}"
        if config.answers_with
        else "the shipped weights, trained on other graphs",
    )


def _bullets(*lines: str) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else _plain(str(value))


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return text.translate(ESCAPES)
