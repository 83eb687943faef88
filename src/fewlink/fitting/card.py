"""Write the model card of a run: its data, what it measured, its calibration and its limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fewlink import __version__
from fewlink.core.files import write_bytes
from fewlink.core.metrics import labelled
from fewlink.evaluation import Evaluation, Protocol, evaluate
from fewlink.fitting.calibrating import calibrate
from fewlink.fitting.record import read_record
from fewlink.graph import Graph
from fewlink.linker.linker import Linker
from fewlink.linker.probability import Calibration
from fewlink.linker.query import id_texts
from fewlink.linker.saving import CARD, check_not_saved, front_matter, how_to_use
from fewlink.models.run import Deployed, RunConfig
from fewlink.tasks import Benchmark

PROTOCOLS = ("full", "open")
METRICS = labelled("mrr", "hits@1", "hits@5", "hits@10")
ESCAPES = str.maketrans({"|": "\\|", "\n": " ", "\r": " ", "\t": " ", "<": "&lt;", "`": "\\`", "*": "\\*"})


def write_card(run: str | Path, *, device: str = "cpu") -> Path:
    """Measure a run on dev, calibrate it if it is not, and write `README.md` into its folder.

    The card of a fit has the figures that the fit measured, and no others.
    """
    folder = Path(run)
    check_not_saved(folder)
    linker = Linker.load(folder, device=device, as_measured=True)
    calibration = linker.calibration or calibrate(linker)
    record = read_record(folder)
    evaluations = []
    if record is None:
        RunConfig.read(folder).check_unseen(folder, linker.benchmark, "dev")
        for candidates in PROTOCOLS:
            evaluations.append(evaluate(linker.benchmark, linker.scorer, Protocol("dev", linker.shots, candidates)))
    deployed = Deployed.open(folder)
    answered = deployed.benchmark.graph if deployed else None
    text = _card(folder, linker, calibration, evaluations, record, answered)
    write_bytes(folder / CARD, text.encode())
    return folder / CARD


def _card(
    run: Path,
    linker: Linker,
    calibration: Calibration,
    evaluations: Sequence[Evaluation],
    record: Mapping[str, Any] | None,
    answered: Graph | None,
) -> str:
    """The text of a card; `answered` is the graph that the run answers on, unless it is the benchmark's."""
    config = RunConfig.read(run)
    benchmark = linker.benchmark
    model = config.settings.model
    tasks = benchmark.split("dev") or benchmark.split("test")
    references = id_texts(benchmark.graph, tasks[0].pairs[: linker.shots])
    head = benchmark.graph.entities[int(tasks[0].pairs[-1, 0])]
    folder = run.resolve().name if run.is_absolute() else str(run)  # a shared card names no path of this machine
    return "\n".join(
        [
            front_matter(f"{_plain(model)} on {_plain(benchmark.name)}", model).rstrip("\n"),
            how_to_use(folder, references, head),
            "## Data\n",
            _data(benchmark),
            "## Metrics\n",
            _fit_metrics(record) if record is not None else _metrics(linker.shots, evaluations),
            "## Probabilities\n",
            _probabilities(calibration),
            "## Limits\n",
            _limits(config, answered),
            "## Versions and settings\n",
            _versions(config, linker.step),
        ]
    )


def _data(benchmark: Benchmark) -> str:
    graph = benchmark.graph
    counts = ", ".join(f"{len(benchmark.tasks[split])} {split}" for split in ("train", "dev", "test"))
    return _bullets(
        f"benchmark {benchmark.name}, sha256 `{benchmark.fingerprint}`",
        f"{len(graph.entities):,} entities, {len(graph.relations):,} relations and {graph.triple_count:,} triples "
        f"in the background; task relations: {counts}",
    )


def _metrics(shots: int, evaluations: Sequence[Evaluation]) -> str:
    """The metrics of every protocol on dev."""
    rows = []
    for evaluation in evaluations:
        metrics = evaluation.metrics()
        micro = [metrics["micro"][name] for name in METRICS.values()]
        rows.append([evaluation.protocol.candidates, evaluation.queries, *micro, metrics["macro"]["mrr"]])
    return (
        f"References are the first {shots} pairs of each dev relation, queries its other pairs. `full` ranks the "
        "relation's whole range, `open` the tails that resemble those of the references. Metrics are means over "
        "queries; macro MRR is the mean over relations. The weights were chosen on dev, so these are optimistic.\n\n"
        + _table(["candidates", "queries", *METRICS, "macro MRR"], rows)
    )


def _fit_metrics(record: Mapping[str, Any]) -> str:
    """What a fit measured: what to expect, and what its scorer was chosen on."""
    if not record.get("figures"):
        return "Nothing is measured yet. The same `fewlink fit` command continues the fit.\n"
    asked = {
        shots: "a relation of the graph" if shots == "known" else f"{shots} references" for shots in record["figures"]
    }
    scorers = {name: f"{name}, deployed" if name == record["deployed"] else name for name in record["held_out"]}
    text = [
        "What to expect: means over relations that were held out of the graph and of fine-tuning (some of their "
        "pairs if the graph has few relations), with `open` candidates. Nothing was chosen on these queries.\n",
        _figures("question", asked, record["figures"]),
        "The scorer was chosen on other queries of the same relations. `shipped` means the weights that come with "
        "fewlink; `rules` is a learning-free scorer.\n",
        _figures("scorer", scorers, record["held_out"]),
        f"Deployed: {record['deployed']} ({record['why']}).\n",
    ]
    if record.get("mixed"):
        text.append(f"For relations of the graph: {record['mixed']}.\n")
    if mixing := record.get("mixing"):
        text.append(_figures("TRAIL", {name: name for name in mixing}, mixing))
    return "\n".join(text)


def _figures(what: str, labels: Mapping[str, str], figures: Mapping[str, Mapping[str, float]]) -> str:
    """A table of means over relations, with a row for each label."""
    rows = []
    for name, row in figures.items():
        means = (row["mrr"], row.get("error", "unknown"), row["hits@1"], row["hits@10"])
        rows.append([labels[name], row["relations"], row["queries"], *means])
    return _table([what, "relations", "queries", "MRR", "± standard error", "Hits@1", "Hits@10"], rows)


def _probabilities(calibration: Calibration) -> str:
    text = (
        f"A logistic regression on {calibration.count:,} answers about {calibration.relations} held-out relations, of "
        f"which {100 * calibration.base:.1f} % were right. Over relations, the mean probability of first answers "
        f"differs from their hit rate by **{calibration.over_relations:.3f}** on average, measured on what was left "
        f"out in turn (by {calibration.crossed}).\n"
    )
    if calibration.rough:
        text += "\n**No percentages are shown: the error makes them misleading. Use the ranks.**\n"
    return text


def _limits(config: RunConfig, answered: Graph | None) -> str:
    lines = [
        "It ranks only entities of its graph.",
        "Probabilities assume that the head has a tail in the relation; for a head that has none, they are too high.",
        "Pairs that are not in the data count as wrong, though some of them are true.",
    ]
    if answered is not None:
        lines.append(
            f"Predictions use more than the metrics: a graph of {len(answered.entities):,} entities, "
            f"{len(answered.relations):,} relations and {answered.triple_count:,} triples."
        )
    if trained := len(config.benchmark["train"]):
        lines.append(f"It was trained on {trained} relations, on which it does better than on new ones.")
    return _bullets(*lines)


def _versions(config: RunConfig, step: int) -> str:
    weights = "the built-in weights, trained on other graphs"
    if step:
        settings = ", ".join(f"{name} {value}" for name, value in config.settings.as_dict().items() if name != "device")
        weights = f"weights of step {step}; settings: {settings}"
    elif config.answers_with:
        weights = f"the learning-free {config.answers_with}"
    return _bullets(f"fewlink {__version__}, torch {torch.__version__}", weights)


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
