"""What the experiments share: options, measuring what has no record yet, tables and charts.

An experiment is a script of this folder. It asks `Experiment.records` for the records that its table needs. Those that
the folder of results lacks are measured first: models are trained where they must be, and every evaluation is stored.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import io
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from fewlink import __version__
from fewlink.core.errors import FewlinkError, MissingExtra, choose
from fewlink.core.files import write_bytes
from fewlink.core.machine import command_line, hardware
from fewlink.core.metrics import labelled
from fewlink.core.progress import tell
from fewlink.core.recipes import Vectors
from fewlink.core.settings import Settings
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.records import (
    QueryRanks,
    R,
    Record,
    RecordStore,
    StoredResult,
    make_record,
    without_per_run_settings,
)
from fewlink.models import families, family_of, trained_family
from fewlink.models.cached import CachedScorer
from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.embeddings.settings import MAX_DENSE_ENTITIES
from fewlink.models.family import BaselineFamily, Prepared, Reporter, TrainedFamily
from fewlink.models.run import RunConfig, open_run
from fewlink.models.settings import ModelSettings
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import Benchmark
from fewlink.training.trainer import Watch, train_runs

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
COLUMNS = labelled("mrr", "hits@10", "hits@5", "hits@1")
PROTOCOLS = ("paper", "full", "open")
FEW_SHOT = ("steps=6000",)  # the paper does not say how long it trains
SETTINGS: dict[str, Sequence[str]] = {  # changes of the recipes, with which the records of this repository were made
    **dict.fromkeys(("gmatching-maxp", "gmatching-meanp", "fsrl", "fsrl-as1", "fsrl-as2a", "fsrl-as2b"), FEW_SHOT),
    **dict.fromkeys(("fsrl-as2c", "fsrl-as3"), FEW_SHOT),
    "gmatching-max": ("steps=6000", "evaluate_every=1000"),
    "trail": (
        "also=fb15k-237-few,codex-s-few,attack-few,umls",
        "steps=6000",
        "evaluate_every=6000",
        "patience=1000000",
    ),
}
TINY: dict[str, Sequence[str]] = {  # by family: settings with which training takes seconds
    "embedding": ("epochs=3",),
    "fewshot": ("steps=40", "evaluate_every=20"),
    "trail": ("steps=2", "evaluate_every=2", "relations=2", "queries=4", "candidates=32"),
}
TOLD_EVERY = 10.0  # seconds between two lines about a training


# Measuring


def options(about: str | None, *, benchmark: str = "nell-one", tiny: str = "umls") -> argparse.ArgumentParser:
    """The options that every experiment has."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=f"--tiny measures {tiny}"
    )
    parser.add_argument("--tiny", action="store_true", help="built-in data and short trainings, in half a minute")
    parser.add_argument("--show", action="store_true", help="measure nothing, show the stored records")
    parser.add_argument("--benchmark", help=f"by default {benchmark}")
    parser.add_argument("--models", nargs="+", help="some of the models")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each model (default: 5)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--results", type=Path, help="folder of records (default: results, or runs/tiny with --tiny)")
    parser.add_argument("--work", type=Path, default=Path("runs/experiments"), help="folder of runs and vectors")
    parser.set_defaults(named=benchmark, named_tiny=tiny)
    return parser


def run(main: Callable[[], None]) -> None:
    """Run an experiment; errors that a user can mend are one line, and the exit code is 2."""
    try:
        main()
    except FewlinkError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped; the same command continues", file=sys.stderr)
        sys.exit(130)


class Experiment:
    """A benchmark, a folder of records and a folder of runs, as the options of a script give them."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.tiny = bool(given.tiny)
        self.show = bool(given.show)
        self.name = str(given.benchmark or (given.named_tiny if self.tiny else given.named))
        self.models: list[str] | None = given.models
        self.seeds = 1 if self.tiny else int(given.seeds)
        self.device = str(given.device)
        self.store = RecordStore(given.results or (Path("runs/tiny") if self.tiny else RESULTS))
        self.work = Path(given.work) / ("tiny" if self.tiny else "") / Path(self.name).name

    @functools.cached_property
    def benchmark(self) -> Benchmark:
        """The benchmark, which is opened when something has to be measured."""
        return open_benchmark(self.name)

    @functools.cached_property
    def stored_as(self) -> str:
        """The name of the benchmark in records; that of a folder is in its manifest."""
        return self.benchmark.name if Path(self.name).exists() else self.name

    @functools.cached_property
    def is_here(self) -> bool:
        """Whether the benchmark is on this machine; without it, stored records are shown, and that is said."""
        try:
            _ = self.benchmark
        except FewlinkError as problem:
            if not select(self.store.records, benchmark=self.stored_as):
                raise
            tell(f"nothing is measured, these are the stored records: {problem}")
            return False
        return True

    def chosen(self, models: Sequence[str]) -> list[str]:
        """The models of the experiment that the user asked for, by default all."""
        for model in self.models or ():
            choose("model of this experiment", model, dict.fromkeys(models))
        return [model for model in models if self.models is None or model in self.models]

    def settings(self, model: str) -> Settings | None:
        """The settings to train a model with; None if it has none."""
        family = family_of(model)
        if family.settings is None:
            return None
        changes = TINY.get(family.name, ()) if self.tiny else SETTINGS.get(model, ())
        settings: Settings = family.recipe(model).settings.adjusted(list(changes))
        return settings

    def records(
        self,
        models: Sequence[str],
        *,
        splits: Sequence[str] = ("dev", "test"),
        candidates: Sequence[str] = ("full", "paper"),
        shots: Sequence[int] = (3,),
    ) -> list[Record]:
        """The records of models with each number of references, split, kind of candidates and seed."""
        for model in [] if self.show else models:
            for some in [shots] if family_of(model).any_shots else [[count] for count in shots]:
                # large sets of candidates come first: their cached scores include those of smaller sets
                self._measure(model, list(itertools.product(splits, some, candidates)))
        found = select(self.store.records, benchmark=self.stored_as, references="first")
        found = [r for r in found if r.model in models and r.split in splits and r.seed < self.seeds]
        found = [r for r in found if r.candidates in candidates and r.shots in shots]
        return sorted(found, key=lambda r: (models.index(r.model), r.split, r.candidates, r.shots, r.seed))

    def _measure(self, model: str, wanted: Sequence[tuple[str, int, str]]) -> None:
        """Train and evaluate a model under the protocols and seeds that have no record."""
        stored = select(self.store.records, benchmark=self.stored_as, model=model, references="first")
        done = {(record.seed, record.split, record.shots, record.candidates) for record in stored}
        missing = {seed: [each for each in wanted if (seed, *each) not in done] for seed in self.seeds_of(model)}
        seeds = [seed for seed, protocols in missing.items() if protocols]
        if not seeds or not self.is_here:
            return
        for seed, prepared in self.prepared(model, wanted[0][1], seeds):
            scorer = CachedScorer(prepared.scorer)
            for split, count, kind in missing[seed]:
                evaluation = evaluate(self.benchmark, scorer, Protocol(split, count, kind, 0, seed))
                record = make_record(
                    evaluation,
                    benchmark=self.benchmark.name,
                    data_sha256=self.benchmark.fingerprint,
                    model=model,
                    config=prepared.config,
                )
                self.store.add(record, ranks=QueryRanks.of(evaluation))

    def seeds_of(self, model: str) -> range:
        """The seeds of a model: 0 alone if a seed changes nothing."""
        return range(self.seeds if family_of(model).seeded else 1)

    def stored(self, kind: type[R], models: Sequence[str]) -> list[R]:
        """The stored results of another kind than records, of some models on the benchmark."""
        return [each for each in self.store.read(kind) if each.benchmark == self.stored_as and each.model in models]

    def prepared(self, model: str, shots: int, seeds: Sequence[int]) -> Iterator[tuple[int, Prepared]]:
        """The scorer of each seed, trained if necessary."""
        tell(f"{model}, K = {shots}, seeds {', '.join(map(str, seeds))}")
        settings = self.settings(model)
        if isinstance(settings, ModelSettings):
            yield from self.trained(settings, shots, seeds).items()
            return
        for seed in seeds:
            own = settings.replace(device=self.device) if settings else None
            yield seed, untrained(model, self.benchmark, self.device, settings=own, shots=shots, seed=seed)

    def trained(
        self,
        settings: ModelSettings,
        shots: int,
        seeds: Sequence[int],
        vectors: Vectors | None = None,
        watch: Watch | None = None,
    ) -> dict[int, Prepared]:
        """The best model of each seed's run, by seed; an interrupted run continues.

        Each number of references has runs of its own, unless the model takes any number. `watch` is called at each
        evaluation as `watch(run, step, scorer)`.
        """
        family = trained_family(settings.model)
        settings = settings.replace(shots=settings.shots if family.any_shots else shots, device=self.device)
        wanted = vectors or family.recipe(settings.model).vectors
        place = self.work / family.vectors_name(settings, wanted, self.benchmark)
        family.pretrain(self.benchmark, settings, wanted, place, reporter)
        pretrained = family.open_vectors(place, self.benchmark.graph.fingerprint)
        chosen = without_per_run_settings(settings.as_dict())
        facts = json.dumps([chosen, self.benchmark.fingerprint, pretrained.digest(), watch is not None])
        digest = hashlib.sha256(facts.encode()).hexdigest()[:8]
        folders = {seed: self.work / f"{settings.model}-{digest}" / f"seed-{seed}" for seed in seeds}
        on_event = reporter(settings.model)
        results = train_runs(self.benchmark, pretrained, settings, folders, on_event=on_event, watch=watch)
        prepared = {}
        for (seed, folder), result in zip(folders.items(), results, strict=True):
            config = RunConfig.read(folder)
            measured = {"best_step": result.best_step, "seconds": round(result.seconds, 1)}
            of_run = {"settings": config.settings.as_dict(), "embeddings": config.embeddings, "measured": measured}
            prepared[seed] = Prepared(open_run(folder, self.benchmark, device=self.device), of_run, folder)
        return prepared


def untrained(
    model: str, benchmark: Benchmark, device: str = "cpu", *, file: Path | None = None, **how: Any
) -> Prepared:
    """The scorer of a model that is not meta-trained: by `settings`, `shots`, `draw` and `seed` if it needs no run
    folder, with the published weights in a file, or with the built-in ones."""
    family = family_of(model)
    if isinstance(family, BaselineFamily):
        settings = how.pop("settings", None)
        on_epoch = reporter(f"{model} {how}")
        prepared = family.prepare(model, benchmark, settings, on_epoch=on_epoch, **{"shots": 1, **how})
        return Prepared(prepared.scorer, {**({"recipe": model} if settings else {}), **prepared.config})
    assert isinstance(family, TrainedFamily)
    return family.from_checkpoint(model, benchmark, file, device) if file else family.shipped(model, benchmark, device)


def reporter(title: str) -> Reporter:
    """A reporter of a training that tells its latest figures every ten seconds."""
    told = time.monotonic()

    def report(event: dict[str, Any]) -> None:
        nonlocal told
        if time.monotonic() - told >= TOLD_EVERY:
            told = time.monotonic()
            figures = (f"{name} {value:.6g}" for name, value in event.items() if isinstance(value, int | float))
            tell(f"{title}: {', '.join(figures)}")

    return report


@functools.cache
def published() -> dict[tuple[str, str, str], dict[str, float]]:
    """The paper's figures by benchmark, model and split, or `relation N` of Table 3."""
    head, *rows = (line.split("\t") for line in (HERE / "published.tsv").read_text("utf-8").splitlines())
    return {(row[0], row[1], row[2]): dict(zip(head[3:], map(float, row[3:]), strict=True)) for row in rows}


def link_settings(model: str, entities: int, seed: int = 0, device: str = "cpu") -> EmbeddingSettings:
    """The settings of an embedding model for ordinary link prediction on a graph with this number of entities."""
    dense: dict[str, Any] = {"regime": "k-vs-all", "batch_size": 200} if entities <= MAX_DENSE_ENTITIES else {}
    return EmbeddingSettings(model=model, dim=512, epochs=20, n3=0.01, **dense, seed=seed, device=device)


class Result(StoredResult):
    """A measurement of a script that is no `Record`; `parts` are the fields that, with its settings, identify it."""

    parts: ClassVar[tuple[str, ...]] = ()

    seed: int
    shots: int
    settings: dict[str, Any] = Field(default_factory=dict)
    command: str = Field(default_factory=command_line)
    version: str = __version__
    data_sha256: str
    hardware: str = Field(default_factory=hardware)

    @property
    def key(self) -> tuple[Any, ...]:
        settings = json.dumps(without_per_run_settings(self.settings), sort_keys=True)
        own = [json.dumps(getattr(self, part), sort_keys=True) for part in self.parts]
        return (self.benchmark, self.model, *own, self.shots, self.seed, self.data_sha256, settings)


# Tables


@dataclass(frozen=True)
class Table:
    """A table of text in Markdown, with `**best**` and `*published*` figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """The table and its note, without the title."""
        lines = [_line(self.columns), f"|{'|'.join(['---'] * len(self.columns))}|", *map(_line, self.rows)]
        note = f"\n{self.note}\n" if self.note else ""
        return "\n".join(lines) + "\n" + note


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables with their titles, and say so if nothing is stored."""
    filled = [table for table in tables if table.rows]
    print("\n".join(f"## {table.title}\n\n{table.markdown()}" for table in filled) or "no records: run without --show")


def short(value: float) -> str:
    """Three decimals without a leading zero."""
    text = f"{value:.3f}"
    return text[1:] if text.startswith("0.") else text.replace("-0.", "-.", 1)


def signed(value: float) -> str:
    """Three decimals with a sign, which zero does not have."""
    size = short(abs(value))
    if float(size) == 0:
        return size
    return f"−{size}" if value < 0 else f"+{size}"


def moments(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation, which is 0 for a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def spread(values: Sequence[float]) -> str:
    """`.312 ± .014`; the mean alone without a deviation, and an empty text without values."""
    if not values:
        return ""
    mean, deviation = moments(values)
    return f"{short(mean)} ± {short(deviation)}" if deviation else short(mean)


def select(records: Iterable[Record], **fields: Any) -> list[Record]:
    """The records whose fields have these values."""
    return [r for r in records if all(getattr(r, name) == value for name, value in fields.items())]


def values(records: Iterable[Record], metric: str = "mrr", average: str = "micro") -> list[float]:
    """A metric of each record, averaged over queries (micro) or relations (macro)."""
    return [record.metrics[average][metric] for record in records]


def figures(rows: Sequence[Mapping[str, float]], metrics: Iterable[str] = COLUMNS.values()) -> list[str]:
    """A cell for each metric: mean ± deviation over rows of figures."""
    return [spread([row[metric] for row in rows]) for metric in metrics]


def cells(records: Sequence[Record]) -> list[str]:
    """A cell for each column of `COLUMNS`: mean ± deviation over the records."""
    return figures([record.metrics["micro"] for record in records])


def published_row(model: str, split: str, *between: str, benchmark: str = "nell-one") -> list[str] | None:
    """A row with the paper's figures in italics, after some other cells; None if it has none."""
    figures = published().get((benchmark, model, split))
    if figures is None:
        return None
    return [f"*{model}, as published*", *between, *(f"*{short(figures[metric])}*" for metric in COLUMNS.values())]


def in_order(models: Iterable[str]) -> list[str]:
    """Distinct models in the order of their families, then those that only records know, by name."""
    known = [model for family in families().values() for model in family.models]
    places = {model: place for place, model in enumerate(known)}
    return sorted(set(models), key=lambda model: (places.get(model, len(places)), model))


def models_of(records: Iterable[Record]) -> list[str]:
    """The models of records, in order."""
    return in_order(record.model for record in records)


def is_ablation(model: str) -> bool:
    """Whether a model is an ablation, also one that only records know (`MODEL-no-COMPONENT`)."""
    return "-no-" in model or model.startswith("fsrl-as")


def emphasise(
    rows: Sequence[Sequence[str]], columns: Iterable[int], group: int | None = None, *, with_ablations: bool = False
) -> list[list[str]]:
    """Make the best figure of each column bold, among rows with the same cell in column `group`; mark all ties.

    Published figures (`*.318*`), single rows and, unless `with_ablations`, rows of ablations are not marked.
    """
    marked = [list(row) for row in rows]
    groups: dict[str, list[list[str]]] = {}
    for row in marked:
        if with_ablations or not is_ablation(row[0]):
            groups.setdefault(row[group] if group is not None else "", []).append(row)
    for column in columns:
        for members in groups.values():
            compared = [row for row in members if row[column] and not row[column].startswith("*")]
            best = max((_mean(row[column]) for row in compared), default=0.0)
            for row in compared if len(compared) > 1 else ():
                if _mean(row[column]) == best:
                    row[column] = f"**{row[column]}**"
    return marked


def _mean(cell: str) -> float:
    return float(cell.partition(" ")[0])


# Charts, as SVG texts


class Point(NamedTuple):
    """A mean and its standard deviation at x."""

    x: float
    mean: float
    deviation: float = 0.0


COLOURS = ("#1f5fa8", "#b8540c", "#0b7558", "#86399f", "#b21e3f", "#69690a", "#0d7189", "#5b5e68")
MARKERS = ("o", "s", "^", "D", "v", "P", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (6, 3)), (0, (2, 3)), (0, (9, 3, 2, 3)), (0, (12, 4)))
MAX_MARKERS = 20  # on a line
SIZE = (5.6, 3.2)  # inches
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.size": 9,
    "grid.color": "#dedbd3",
    "legend.frameon": False,
    "svg.fonttype": "none",  # letters stay text
    "svg.hashsalt": "fewlink",  # the same chart is the same text
    "text.parse_math": False,  # a name may contain dollar signs
}


def _drawn(title: str, draw: Callable[[Any], None], size: tuple[float, float] = SIZE) -> str:
    """The SVG of a chart with a legend below it."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("a chart", "plots") from None
    file = io.StringIO()
    with matplotlib.rc_context(STYLE):
        page = Figure(figsize=size)
        axes = page.add_subplot()
        axes.set_title(title)
        draw(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.5 / size[1]), ncols=3)
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        page.savefig(file, format="svg", bbox_inches="tight", metadata=no_metadata)
    return file.getvalue()


def line_chart(
    title: str, lines: Mapping[str, Sequence[Point]], x_label: str, y_label: str, x_names: Sequence[str] = ()
) -> str:
    """Lines with markers, and a band of ± one standard deviation around each; `x_names` stand in place of 0, 1, 2, …

    Lines differ in colour, marker and dashes, so that they also differ in black and white.
    """

    def draw(axes: Any) -> None:
        for number, (name, points) in enumerate(lines.items()):
            x, mean, deviation = zip(*sorted(points), strict=True)
            colour = COLOURS[number % len(COLOURS)]
            look = {"marker": MARKERS[number % len(MARKERS)], "linestyle": DASHES[number % len(DASHES)]}
            every = max(1, len(points) // MAX_MARKERS)
            axes.plot(x, mean, label=name, color=colour, markersize=4, markevery=every, **look)
            if any(deviation):
                low = [m - d for m, d in zip(mean, deviation, strict=True)]
                high = [m + d for m, d in zip(mean, deviation, strict=True)]
                axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
        if x_names:
            axes.set_xticks(range(len(x_names)), x_names)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)

    return _drawn(title, draw)


def scatter_chart(title: str, points: Iterable[tuple[float, float, str]]) -> str:
    """A map of points (x, y, name of the class), without labels on its axes."""
    classes: dict[str, list[tuple[float, float]]] = {}
    for x, y, name in sorted(points, key=lambda point: point[2]):
        classes.setdefault(name, []).append((x, y))

    def draw(axes: Any) -> None:
        for number, (name, places) in enumerate(classes.items()):
            xs, ys = zip(*places, strict=True)
            look = {"marker": MARKERS[number], "color": COLOURS[number], "markersize": 4, "alpha": 0.75}
            axes.plot(xs, ys, linestyle="none", label=f"{name} ({len(places):,})", **look)
        axes.set_aspect("equal", "datalim")
        axes.set_xticks([])
        axes.set_yticks([])

    return _drawn(title, draw, (SIZE[0], SIZE[0]))


def write_chart(path: Path, svg: str) -> None:
    """Write a chart, and say where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, svg.encode())
    print(f"written: {path}")
