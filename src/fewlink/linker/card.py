"""The model card, README.md of a run folder, as Markdown: data, metrics, calibration, use and limits."""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from fewlink import __version__
from fewlink.core.metrics import labelled
from fewlink.core.storage import read_json, without_sha256
from fewlink.data import Benchmark
from fewlink.evaluation import Evaluation
from fewlink.graph import Graph
from fewlink.linker.calibration import ROUGH, Calibration
from fewlink.linker.names import readable
from fewlink.linker.query import id_texts
from fewlink.linker.trust import Bin
from fewlink.training import RunConfig
from fewlink.training.folder import FIT

CARD = "README.md"
TAGS = ("knowledge-graph", "knowledge-graph-completion", "link-prediction", "few-shot-learning")
UNKNOWN_LICENSE = "unknown"  # the hub's word for a licence that is not stated
METRICS = labelled("mrr", "hits@1", "hits@5", "hits@10")
HELD_OUT = labelled("mrr", "hits@1", "hits@10")
ESCAPES = str.maketrans({"|": "\\|", "\n": " ", "\r": " ", "\t": " ", "<": "&lt;", "`": "\\`", "*": "\\*"})


def measured_card(
    run: Path,
    benchmark: Benchmark,
    shots: int,
    step: int,
    calibration: Calibration,
    evaluations: Sequence[Evaluation],
    graph: Graph | None,
) -> str:
    """The card of a run that was evaluated and calibrated on a benchmark with the weights of a training step.

    `graph` is the graph that the run makes predictions with, unless it is the benchmark's.
    """
    config = RunConfig.read(run)
    sections = [
        front_matter(config.settings.model, benchmark.name, list(_figures(evaluations))).rstrip("\n"),
        _introduction(benchmark, shots, config, run),
        "## Data\n",
        _data(benchmark, config),
        "## Metrics\n",
        _metrics(shots, evaluations),
        *_held_out(run),
        "## Probabilities\n",
        _calibration(calibration),
        "## Limits\n",
        _limits(config, graph),
        "## Versions and settings\n",
        _versions(config, step),
    ]
    return "\n".join(sections)


def saved_card(run: Path, benchmark: Benchmark, place: str, license: str) -> str:
    """The run's card, or a short one if it has none, for a model that is loaded from `place`."""
    model = RunConfig.read(run).settings.model
    if (run / CARD).is_file():
        text = (run / CARD).read_text("utf-8")
    else:
        graph, tasks = benchmark.graph, [task for split in ("dev", "test", "train") for task in benchmark.split(split)]
        pairs = tasks[0].pairs if tasks else graph.triples()[:4, [0, 2]]
        named = [(graph.entities[head], graph.entities[tail]) for head, tail in pairs[:4].tolist()]
        text = f"""{introduction(f"{model} on {benchmark.name}", place, named[:-1] or named, named[-1][0])}
## Data

Benchmark {benchmark.name}, sha256 `{benchmark.fingerprint}`: {len(graph.entities):,} entities, \
{len(graph.relations):,} relations, {graph.triple_count:,} triples.

## Figures

Not measured. `fewlink card RUN` measures a run, calibrates its probabilities and writes both into its card.
"""
    if not text.startswith("---\n"):
        text = front_matter(model, benchmark.name) + text
    for pattern, line in (
        (r"^linker = fewlink\.load\(.*\)$", f"linker = fewlink.load({place!r})"),
        (r"^fewlink predict (?:'[^']*'|\S+)", f"fewlink predict {shlex.quote(place)}"),
        *([] if license == UNKNOWN_LICENSE else [(r"^license: .*$", f"license: {license}")]),
    ):
        text = re.sub(pattern, line.replace("\\", r"\\"), text, count=1, flags=re.MULTILINE)
    return text


def front_matter(model: str, benchmark: str, figures: Sequence[tuple[str, str, float]] = ()) -> str:
    """The head of a card, which the hub reads. `figures`: a split, the name of a metric and its value."""
    lines = [f"license: {UNKNOWN_LICENSE}", "library_name: fewlink", "pipeline_tag: graph-ml", "tags:"]
    lines += [f"- {tag}" for tag in (*TAGS, json.dumps(model))]
    if figures:
        lines += ["model-index:", f"- name: {json.dumps(f'{model} on {benchmark}')}", "  results:"]
    for split in dict.fromkeys(split for split, _, _ in figures):
        lines += ["  - task:", "      type: graph-ml", "      name: Few-shot link prediction"]
        lines += ["    dataset:", f"      type: {json.dumps(benchmark)}", f"      name: {json.dumps(benchmark)}"]
        lines += [f"      split: {split}", "    metrics:"]
        for _, name, value in (figure for figure in figures if figure[0] == split):
            kind = name.partition(",")[0].lower()
            lines += [f"    - type: {kind}", f"      name: {json.dumps(name)}", f"      value: {value:.4f}"]
    return "\n".join(["---", *lines, "---", ""])


def introduction(title: str, place: str, references: Sequence[tuple[str, str]], head: str) -> str:
    """The first part of a card: what the model does, and how to use it in three lines of Python or with a command."""
    return f"""# {title}

Ranks the tails that fit a head, given a handful of pairs of a relation that the graph does not contain, without \
further training. Made with fewlink: `pip install 'fewlink[hub]'`.

## How to use it

```python
import fewlink
linker = fewlink.load({place!r})
print(linker.predict(references={list(references)!r}, heads=[{head!r}], k=10))
```

```
fewlink predict {shlex.quote(place)} --references pairs.tsv --head {shlex.quote(head)} --top 10 --explain
```
"""


def _introduction(benchmark: Benchmark, shots: int, config: RunConfig, run: Path) -> str:
    """Title and purpose; three lines of Python and a command, with a relation of dev as the example."""
    tasks = benchmark.split("dev") or benchmark.split("test")
    pairs = tasks[0].pairs
    references, head = id_texts(benchmark.graph, pairs[:shots]), benchmark.graph.entities[int(pairs[-1, 0])]
    folder = run.resolve().name if run.is_absolute() else str(run)  # no path of this machine in a card that is shared
    return introduction(_plain(f"{config.settings.model} on {benchmark.name}"), folder, references, head)


def _figures(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, str, float]]:
    """The figures of the card's head: a split, the name of a metric and its value."""
    for evaluation in evaluations:
        protocol, micro = evaluation.protocol, evaluation.metrics()["micro"]
        for label, name in METRICS.items():
            yield protocol.split, f"{label}, {protocol.shots} references, {protocol.candidates} candidates", micro[name]


def _data(benchmark: Benchmark, config: RunConfig) -> str:
    graph, tasks = benchmark.graph, benchmark.tasks
    counts = ", ".join(f"{len(tasks[split])} {split}" for split in ("train", "dev", "test"))
    return _bullets(
        f"benchmark {benchmark.name}, sha256 `{benchmark.fingerprint}`",
        f"{len(graph.entities):,} entities, {len(graph.relations):,} relations and {graph.triple_count:,} triples "
        f"in the background; task relations: {counts}",
        f"entity types: {f'{len(graph.types.names):,}' if graph.types else 'none'}",
        f"vectors: {config.embeddings['model']}{f', {dim} reals' if (dim := config.embeddings['dim']) else ''}",
    )


def _metrics(shots: int, evaluations: Sequence[Evaluation]) -> str:
    """The metrics of every protocol, and those of each relation."""
    rows = []
    for evaluation in evaluations:
        protocol, metrics = evaluation.protocol, evaluation.metrics()
        micro = [metrics["micro"][name] for name in METRICS.values()]
        rows.append([protocol.split, protocol.candidates, evaluation.queries, *micro, metrics["macro"]["mrr"]])
    text = [
        f"References are the first {shots} pairs of each relation, queries its other pairs. `full` ranks the "
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


def fit_record(run: Path) -> dict[str, Any]:
    """What `fewlink fit` wrote about a run; empty for other runs."""
    content = without_sha256(read_json(run / FIT), run / FIT) if (run / FIT).exists() else {}
    return content if isinstance(content, dict) else {}


def _held_out(run: Path) -> list[str]:
    """What a fit measured on held-out relations, and what it deployed; nothing for other runs."""
    content = fit_record(run)
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
