"""The model card: what a run was trained on, how good it is, how far to trust its probabilities, how to use it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy
import torch

from fewlink import __version__
from fewlink.base.errors import FewlinkError
from fewlink.base.metrics import labelled
from fewlink.base.storage import write_bytes
from fewlink.evaluation import Evaluation, Protocol, evaluate
from fewlink.prediction.calibration import Calibration, calibrate
from fewlink.prediction.linker import Linker
from fewlink.prediction.pretrained import CARD, RELIABILITY, refuse_saved
from fewlink.report.charts import Point, lines, standalone
from fewlink.training import RunConfig
from fewlink.training.checkpoints import load_best
from fewlink.training.run import Deployed

PROTOCOLS = ("full", "open")
FIGURES = labelled("mrr", "hits@1", "hits@5", "hits@10")
ESCAPES = str.maketrans({"|": "\\|", "\n": " ", "\r": " ", "\t": " ", "<": "&lt;", "`": "\\`", "*": "\\*"})


def write_card(
    run: str | Path | Linker, *, test: bool = False, bench: str | Path | None = None, device: str = "cpu"
) -> Path:
    """Measure a run on dev, and on test if asked, calibrate it if it is not, and write `README.md` into its folder."""
    linker = run if isinstance(run, Linker) else Linker.load(run, bench=bench, device=device, as_measured=True)
    return measure_and_write(linker, test=test)[0]


def measure_and_write(linker: Linker, *, test: bool = False) -> tuple[Path, list[Evaluation]]:
    """The card of an opened run, and what was measured for it."""
    if linker.run is None:
        raise FewlinkError(f"{linker.scorer.name} was not opened from a run: only a trained run has a card")
    refuse_saved(linker.run)
    calibration, config = linker.calibration or calibrate(linker), RunConfig.read(linker.run)
    linker = linker.as_measured()
    assert linker.run is not None
    splits = ["dev", *(["test"] if test else [])]
    for split in splits:
        config.check_unseen(linker.run, linker.benchmark, split)
    measured = [
        evaluate(linker.benchmark, linker.scorer, Protocol(split, linker.shots, candidates))
        for split in splits
        for candidates in PROTOCOLS
    ]
    write_bytes(linker.run / RELIABILITY, standalone(_reliability(calibration)).encode())
    path = linker.run / CARD
    write_bytes(path, card(linker, config, calibration, measured).encode())
    return path, measured


def card(linker: Linker, config: RunConfig, calibration: Calibration, measured: Sequence[Evaluation]) -> str:
    """The text of a card, in Markdown."""
    assert linker.run is not None
    name = f"{config.settings.model} on {linker.benchmark.name}"
    parts = [
        f"# {_plain(name)}\n",
        "Ranks the tails that fit a head, given a handful of pairs of a relation that the graph does not know, without "
        "being trained anew. Made with fewlink.\n",
        *("## How to use it\n", _use(linker)),
        *("## Data\n", _data(linker, config)),
        *("## How good it is\n", _figures(linker, measured)),
        *("## Probabilities\n", _calibration(calibration)),
        *("## Limits\n", _limits(linker, config)),
        *("## Made with\n", _versions(config, load_best(linker.run)[1])),
    ]
    return "\n".join(parts)


def _use(linker: Linker) -> str:
    """Three lines of Python and a command, with a relation of dev as the example."""
    tasks = linker.benchmark.split("dev") or linker.benchmark.split("test")
    entities, pairs = linker.graph.entities, tasks[0].pairs
    references = [(entities[int(head)], entities[int(tail)]) for head, tail in pairs[: linker.shots]]
    head = entities[int(pairs[-1, 0])]
    assert linker.run is not None
    folder = linker.run.resolve().name
    return (
        "```python\nimport fewlink\n"
        f"linker = fewlink.load({folder!r})\n"
        f"print(linker.predict(references={references!r}, heads=[{head!r}], k=10))\n```\n\n"
        "```\n"
        f"fewlink predict {shlex.quote(folder)} --references pairs.tsv --head {shlex.quote(head)} --top 10 --explain\n"
        "```\n"
    )


def _data(linker: Linker, config: RunConfig) -> str:
    graph, tasks = linker.graph, linker.benchmark.tasks
    counts = ", ".join(f"{len(tasks[split])} {split}" for split in ("train", "dev", "test"))
    return _bullets(
        f"benchmark {linker.benchmark.name}, sha256 `{linker.benchmark.fingerprint}`",
        f"{len(graph.entities):,} entities, {len(graph.relations):,} relations and {graph.triple_count:,} triples "
        f"in the background; task relations: {counts}",
        f"entity types: {f'{len(graph.types.names):,}' if graph.types else 'none'}",
        f"vectors: {config.embeddings['model']}, {config.embeddings['dim']} reals",
    )


def _figures(linker: Linker, measured: Sequence[Evaluation]) -> str:
    """Figures of every protocol, and those of each relation."""
    rows = []
    for each in measured:
        metrics = each.metrics()
        figures = [metrics["micro"][figure] for figure in FIGURES.values()]
        rows.append([each.protocol.split, each.protocol.candidates, each.queries, *figures, metrics["macro"]["mrr"]])
    text = [
        f"References are the first {linker.shots} pairs of each relation, queries its other pairs. `full` ranks the "
        "relation's whole range, `open` what is like the references' tails, all other entities tied behind them. Other "
        "known answers do not compete. Tied tails share the mean of their places. Figures are means over queries; "
        "macro MRR is the mean over relations. The weights were chosen on dev, so dev flatters them.\n",
        _table(["split", "candidates", "queries", *FIGURES, "macro MRR"], rows),
    ]
    for each in measured:
        relations = each.relations().items()
        rows = [
            [name, row["queries"], row["candidates"], *(row[f] for f in FIGURES.values())] for name, row in relations
        ]
        text.append(f"Each {each.protocol.split} relation, `{each.protocol.candidates}`:\n")
        text.append(_table(["relation", "queries", "candidates", *FIGURES], rows))
    return "\n".join(text)


def _calibration(calibration: Calibration) -> str:
    rows = [[f"{b.low:.1f}–{b.high:.1f}", b.count, b.predicted, b.observed] for b in calibration.bins]
    crossed = {
        "relation": f"The {calibration.relations} dev relations were left out in turn",
        "head": "Dev has one relation, so its heads were left out in turn",
    }[calibration.crossed]
    first, second, third = calibration.weights
    warning = "**Relations differ too much here: take probabilities for an order, not for odds.**\n"
    return "\n".join(
        [
            f"A logistic regression of {calibration.count:,} predictions on dev, the best {calibration.top} `open` "
            f"tails of each head with {calibration.shots} references, of which {calibration.base:.1%} were right: "
            f"{first:.3f} {second:+.3f} · log softmax {third:+.3f} · log rank.\n",
            f"Expected calibration error: **{calibration.error:.3f}**. {crossed}, and each was predicted by weights "
            f"fitted without it; on the rows it was fitted to the error is {calibration.own_error:.3f}.\n",
            *([warning] if calibration.rough else []),
            f"![Reliability: probabilities against shares that were right]({RELIABILITY})\n",
            _table(["probability", "predictions", "mean probability", "share that was right"], rows),
        ]
    )


def _served(linker: Linker) -> str:
    """What it answers with, where that is not what it was measured on."""
    assert linker.run is not None
    deployed = Deployed.open(linker.run)
    if deployed is None:
        return "It ranks entities of its graph only, and knows of them what the background and the train relations say."
    graph = deployed.benchmark.graph
    return (
        f"It answers with more than it was measured on: a graph of {len(graph.entities):,} entities, "
        f"{len(graph.relations):,} relations and {graph.triple_count:,} triples, and vectors of all of that. The "
        "figures and the calibration above come from the benchmark: there the dev and test relations, but for the "
        "references, were hidden from its graph and its vectors. It ranks entities of its graph only."
    )


def _reliability(calibration: Calibration) -> str:
    """The bins as a chart, beside what they would be if every probability were right."""
    found = [Point(b.predicted, b.observed, 0.0) for b in calibration.bins]
    series = {"found on dev": found, "as promised": [Point(0.0, 0.0, 0.0), Point(1.0, 1.0, 0.0)]}
    title = f"Reliability, calibration error {calibration.error:.3f}"
    return lines(series, title=title, x_label="probability", y_label="share that was right")


def _limits(linker: Linker, config: RunConfig) -> str:
    return _bullets(
        _served(linker),
        "A probability is for heads that have some tail in the relation; for a head that has none it is too high.",
        "Probabilities were fitted with the `open` candidates; with others, or another number of references, they are "
        "rougher.",
        "What counted as wrong in evaluation and calibration is what the data does not hold; some of it is true.",
        f"Relations it learnt on, where it does better than on new ones: {len(config.benchmark['train'])}.",
    )


def _versions(config: RunConfig, step: int) -> str:
    changed = ", ".join(f"{name} {value}" for name, value in config.settings.as_dict().items() if name != "device")
    return _bullets(
        f"fewlink {__version__}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"numpy {numpy.__version__}",
        f"weights of step {step}; settings: {changed}",
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
