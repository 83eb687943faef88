"""The model card, README.md in a run folder: data, metrics, calibration, use and limits."""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from fewlink import __version__
from fewlink.core.files import read_json, without_sha256
from fewlink.core.metrics import labelled
from fewlink.core.words import percent
from fewlink.evaluation import Evaluation
from fewlink.graph import Graph
from fewlink.graph.name_index import readable
from fewlink.linker.calibration import ROUGH, Calibration
from fewlink.linker.query import id_texts
from fewlink.linker.trust import Bin
from fewlink.models.folder import FIT, FIT_FORMAT
from fewlink.models.run import RunConfig
from fewlink.tasks import Benchmark

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
    """The card of a run whose weights of training step `step` were evaluated and calibrated on a benchmark.

    `graph` is the graph that the run makes predictions with, unless it is the benchmark's.
    """
    config = RunConfig.read(run)
    sections = [
        front_matter(config.settings.model, benchmark.name, list(_figures(evaluations))).rstrip("\n"),
        _introduction(benchmark, shots, config, run),
        "## Data\n",
        _data(benchmark, config),
        "## Metrics\n",
        _metrics(shots, evaluations) if evaluations else _fit_metrics(fit_record(run)),
        "## Probabilities\n",
        _calibration(calibration),
        "## Limits\n",
        _limits(config, graph),
        "## Versions and settings\n",
        _versions(config, step),
    ]
    return "\n".join(sections)


def saved_card(run: Path, benchmark: Benchmark, place: str, license: str) -> str:
    """The card of a saved model that users load from `place`: the run's card, or a short one if it has none."""
    model = RunConfig.read(run).settings.model
    if (run / CARD).is_file():
        text = (run / CARD).read_text("utf-8")
    else:
        graph = benchmark.graph
        tasks = [task for split in ("dev", "test", "train") for task in benchmark.split(split)]
        pairs = tasks[0].pairs if tasks else graph.triples()[:4, [0, 2]]
        named = [(graph.entities[head], graph.entities[tail]) for head, tail in pairs[:4].tolist()]
        text = f"""{introduction(f"{model} on {benchmark.name}", place, named[:-1] or named, named[-1][0])}
## Data

Benchmark {benchmark.name}, sha256 `{benchmark.fingerprint}`: {len(graph.entities):,} entities, \
{len(graph.relations):,} relations, {graph.triple_count:,} triples.

## Figures

Not measured. `fewlink card RUN` measures a run, calibrates its probabilities, and writes the results to its card.
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
    """The YAML header of a card, which the hub reads. Each of `figures` is a split, a metric's name and its value."""
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
    """The first section of a card: what the model does, and how to use it from Python and the command line."""
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
    """The first section, with a dev relation as the example."""
    tasks = benchmark.split("dev") or benchmark.split("test")
    pairs = tasks[0].pairs
    references = id_texts(benchmark.graph, pairs[:shots])
    head = benchmark.graph.entities[int(pairs[-1, 0])]
    folder = run.resolve().name if run.is_absolute() else str(run)  # a shared card names no path of this machine
    return introduction(_plain(f"{config.settings.model} on {benchmark.name}"), folder, references, head)


def _figures(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, str, float]]:
    """The figures of the YAML header: a split, the name of a metric and its value."""
    for evaluation in evaluations:
        protocol = evaluation.protocol
        micro = evaluation.metrics()["micro"]
        for label, name in METRICS.items():
            yield protocol.split, f"{label}, {protocol.shots} references, {protocol.candidates} candidates", micro[name]


def _data(benchmark: Benchmark, config: RunConfig) -> str:
    graph = benchmark.graph
    tasks = benchmark.tasks
    counts = ", ".join(f"{len(tasks[split])} {split}" for split in ("train", "dev", "test"))
    return _bullets(
        f"benchmark {benchmark.name}, sha256 `{benchmark.fingerprint}`",
        f"{len(graph.entities):,} entities, {len(graph.relations):,} relations and {graph.triple_count:,} triples "
        f"in the background; task relations: {counts}",
        f"entity types: {f'{len(graph.types.names):,}' if graph.types else 'none'}",
        f"vectors: {config.embeddings['model']}{f', {dim} reals' if (dim := config.embeddings['dim']) else ''}",
    )


def _metrics(shots: int, evaluations: Sequence[Evaluation]) -> str:
    """The metrics of every protocol, overall and per relation."""
    rows = []
    for evaluation in evaluations:
        protocol = evaluation.protocol
        metrics = evaluation.metrics()
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
    """The record that `fewlink fit` wrote; empty for other runs, and for fits of earlier versions."""
    content = without_sha256(read_json(run / FIT), run / FIT) if (run / FIT).exists() else {}
    return content if isinstance(content, dict) and content.get("format") == FIT_FORMAT else {}


def _fit_metrics(record: Mapping[str, Any]) -> str:
    """What a fit measured: what to expect, and what its scorer was chosen on."""
    if not record.get("figures"):
        return "Nothing is measured yet. The same `fewlink fit` command continues the fit.\n"
    expected = [
        ["a relation of the graph" if shots == "known" else f"{shots} references", *_fit_row(row)]
        for shots, row in record["figures"].items()
    ]
    mixing = record.get("mixing", {}).items()
    chosen = [
        [f"{name}{', deployed' if name == record['deployed'] else ''}", *_fit_row(row)]
        for name, row in record["held_out"].items()
    ]
    columns = ["relations", "queries", "MRR", "± standard error", *list(HELD_OUT)[1:]]
    return "\n".join(
        [
            "What to expect: means over relations that were held out of the graph and of fine-tuning (some of their "
            "pairs if the graph has few relations), with `open` candidates. Nothing was chosen on these queries.\n",
            _table(["question", *columns], expected),
            "The scorer was chosen on other queries of the same relations. `shipped` means the weights that come with "
            "fewlink; `rules` is a learning-free scorer. Another scorer replaces the shipped weights only if it is "
            "better by two standard errors.\n",
            _table(["scorer", *columns], chosen),
            f"Deployed: {record['deployed']} ({record['why']}).\n",
            *([f"For relations of the graph: {record['mixed']}.\n"] if record.get("mixed") else []),
            *([_table(["TRAIL", *columns], [[name, *_fit_row(row)] for name, row in mixing])] if mixing else []),
        ]
    )


def _fit_row(row: Mapping[str, float]) -> list[Any]:
    return [row["relations"], row["queries"], row["mrr"], row.get("error", "unknown"), row["hits@1"], row["hits@10"]]


def _calibration(calibration: Calibration) -> str:
    crossed = {
        "relation": f"The {calibration.relations} relations were left out in turn",
        "head": "There is one relation, so its heads were left out in turn",
        "graph": f"The {calibration.relations} relations come from several graphs, which were left out in turn",
    }[calibration.crossed]
    weights = " ".join(f"{weight:+.3f} · {name}" for name, weight in calibration.weights.items() if weight)
    text = [
        f"A logistic regression on {calibration.count:,} predictions on held-out relations, the best "
        f"{calibration.top} `open` tails of each head, of which {100 * calibration.base:.1f} % were right: "
        f"{weights}.\n",
        f"{crossed}, and each was predicted with weights fitted without it.\n",
    ]
    text.append(
        f"Over relations, the mean probability of first answers differs from their hit rate by "
        f"**{calibration.over_relations:.3f}** on average.\n"
    )
    text.append(f"Expected calibration error of first answers: **{calibration.first_error:.3f}**.\n")
    text.append(_bins(calibration.first_bins))
    text.append(
        f"Expected calibration error of the first {calibration.top} answers: **{calibration.error:.3f}**; on the rows "
        f"that the weights were fitted to, it is {calibration.own_error:.3f}.\n"
    )
    text.append(_bins(calibration.bins))
    if calibration.rough:
        text.append(f"**No percentages are shown: an error above {ROUGH} makes them misleading. Use the ranks.**\n")
    if calibration.least:
        text.append(
            "Answers with low trust are marked. A question has low trust if at most half of its "
            f"references are found in the first ten when they are held out, and its first answers have a mean "
            f"probability under {percent(calibration.least)}.\n"
        )
    return "\n".join(text)


def _bins(bins: Sequence[Bin]) -> str:
    rows = [[f"{b.low:.1f}–{b.high:.1f}", b.count, b.predicted, b.observed] for b in bins]
    return _table(["probability", "predictions", "mean probability", "share that were right"], rows)


def _limits(config: RunConfig, graph: Graph | None) -> str:
    """`graph` is the graph that the run makes predictions with, unless it is the benchmark's."""
    trained = len(config.benchmark["train"])
    if graph is None:
        scope = "It ranks only entities of its graph, and knows only the background and the train relations."
    else:
        scope = (
            f"Predictions use more than the metrics: a graph of {len(graph.entities):,} entities, "
            f"{len(graph.relations):,} relations and {graph.triple_count:,} triples. The metrics and the calibration "
            "above come from the benchmark, whose dev and test relations, except for the references, were hidden. It "
            "ranks only entities of its graph."
        )
    return _bullets(
        scope,
        "Probabilities assume that the head has a tail in the relation; for a head that has none, they are too high.",
        "Probabilities were fitted with the `open` candidates; with others they are less accurate.",
        "Evaluation and calibration count pairs that are not in the data as wrong, though some of them are true.",
        *([f"It was trained on {trained} relations, on which it does better than on new ones."] if trained else []),
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
        else "the built-in weights, trained on other graphs",
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
    """Escape text so that Markdown shows it unchanged."""
    return text.translate(ESCAPES)
