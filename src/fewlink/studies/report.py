"""The report: all results in a folder as one self-contained HTML page."""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from fewlink import __version__
from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.files import write_bytes
from fewlink.evaluation.curves import LearningCurve
from fewlink.evaluation.maps import PairMap
from fewlink.evaluation.records import Record, RecordStore
from fewlink.evaluation.stored import R
from fewlink.studies import tables
from fewlink.studies.charts import Chart
from fewlink.studies.sections import Section, StoredResults, best_model, main_protocol, model_styles, sections_of
from fewlink.studies.tables import COLUMNS, Published, Table

MARKED = re.compile(r"(\*\*|\*|`)(.*)\1", re.DOTALL)
FIGURE = re.compile(r"[*`]*[+−-]?[\d,]*\.?\d+( ± [\d.]+)?[*`]*")


def write_report(folder: Path, out: Path, published: Mapping[str, Published] | None = None) -> None:
    """Write the report of all results in a folder; `published` has the paper's figures by benchmark."""
    folder = Path(folder)
    out = Path(out)
    if not folder.is_dir():
        raise FewlinkError(f"{folder} does not exist: give a folder of records, which fewlink evaluate creates")
    if out.is_dir():
        raise FewlinkError(f"{out} is a folder: give a file, such as {out / 'report.html'}")
    if not out.parent.is_dir():
        raise FewlinkError(f"{out.parent} does not exist: create it, or choose another folder for {out.name}")
    results = read_folder(folder)
    if not results.records:
        raise FewlinkError(f"no record in {folder}: create some with fewlink evaluate")
    write_bytes(out, page(results, published or {}).encode())


def read_folder(folder: Path) -> StoredResults:
    """Read the results in a folder; raise with the file and line of one that cannot be shown."""
    store = RecordStore(folder)
    records: dict[tuple[Any, ...], tuple[str, Record]] = {}
    for path, line, record in store.located(Record):
        rows = {"micro": record.metrics.get("micro", {}), "macro": record.metrics.get("macro", {}), **record.relations}
        for name, row in rows.items():
            for metric in COLUMNS.values():
                if not math.isfinite(row.get(metric, math.nan)):
                    raise InputError(path, f"has no finite {metric} for {name}: evaluate again", line)
        place, first = records.setdefault(record.key, (f"{path}{f':{line}' if line else ''}", record))
        if not first.same_figures(record):
            raise InputError(path, f"contradicts the figures of the same measurement in {place}: remove one", line)
    distinct = [record for _, record in records.values()]
    return StoredResults(_with_unique_names(distinct), _distinct(store.maps), _distinct(store.curves))


def _distinct(results: Sequence[R]) -> list[R]:
    """The results without repeated measurements."""
    return list({result.key: result for result in results}.values())


def _with_unique_names(records: Sequence[Record]) -> list[Record]:
    """The records, with numbers appended to benchmarks with other data and models with other settings."""
    data: dict[str, list[str]] = {}
    settings: dict[tuple[str, str], list[str]] = {}
    measured: dict[tuple[Any, ...], set[str]] = {}
    ambiguous = set()
    for r in records:
        _append_once(data, r.benchmark, r.data_sha256)
        _append_once(settings, (r.benchmark, r.model), r.choices())
        cell = (r.benchmark, r.data_sha256, r.model, r.split, r.shots, r.candidates, r.references, r.seed)
        measured.setdefault(cell, set()).add(r.choices())
        if len(measured[cell]) > 1:
            ambiguous.add((r.benchmark, r.model))
    renamed = []
    for r in records:
        names = (r.benchmark, r.model)
        benchmark = _numbered(r.benchmark, data[r.benchmark].index(r.data_sha256))
        model = _numbered(r.model, settings[names].index(r.choices()) if names in ambiguous else 0)
        renamed.append(r.model_copy(update={"benchmark": benchmark, "model": model}))
    return renamed


def _append_once(lists: dict[Any, list[str]], key: Any, value: str) -> None:
    """Append a value to the list of a key, unless the list has it."""
    if value not in lists.setdefault(key, []):
        lists[key].append(value)


def _numbered(name: str, number: int) -> str:
    return f"{name} ({number + 1})" if number else name


def page(results: StoredResults, published: Mapping[str, Published]) -> str:
    """The HTML of the report, a pure function of the results."""
    records = results.records
    parts = []
    counts = Counter(r.benchmark for r in records).most_common()
    styles = model_styles(results.of(name).records for name, _ in counts)
    for number, (name, count) in enumerate(counts, 1):
        of_benchmark = results.of(name)
        protocol = main_protocol(of_benchmark.records)
        if protocol:
            sections = sections_of(of_benchmark, protocol, published.get(name, {}), styles)
        else:
            intro = "Both directions of every triple, all entities as candidates, other known answers left out."
            sections = [Section("Ordinary link prediction", intro, tables=[tables.links(of_benchmark.records)])]
        parts.append(
            {
                "id": f"b{number}",
                "name": name,
                "protocol": protocol,
                "best": best_model(of_benchmark.records, protocol) if protocol else None,
                "records": count,
                "models": len({r.model for r in of_benchmark.records}),
                "sections": sections,
            }
        )
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(inline=_inline, numeric=_numeric, spread=_spread, slug=_slug, picture=_picture)
    source = files("fewlink.studies").joinpath("report.html.j2").read_text("utf-8")
    return environment.from_string(source).render(
        benchmarks=parts,
        records=len(records),
        version=__version__,
        commands=_commands([*records, *results.maps, *results.curves]),
        sources=_sources(records),
    )


def _commands(results: Sequence[Record | PairMap | LearningCurve]) -> list[tuple[str, list[str]]]:
    """Every command once, with the models that it measured."""
    models_of: dict[str, list[str]] = {}
    for result in results:
        if result.command:
            _append_once(models_of, result.command, result.model)
    grouped: dict[str, list[str]] = {}
    for command, models in sorted(models_of.items()):
        grouped.setdefault(", ".join(tables.in_order(models)), []).append(command)
    return sorted(grouped.items(), key=lambda item: tables.in_order(grouped).index(item[0]))


def _sources(records: Sequence[Record]) -> Table:
    """The data, version and hardware of the records."""
    counts = Counter((r.benchmark, r.data_sha256, r.version, r.hardware) for r in records)
    rows = [[b, f"`{sha}`", version, hardware, f"{n:,}"] for (b, sha, version, hardware), n in sorted(counts.items())]
    return Table("Where the records come from", ["benchmark", "data sha256", "fewlink", "hardware", "records"], rows)


def _picture(chart: Chart) -> Markup:
    """A chart as an image inside the page."""
    content = base64.b64encode(chart.svg().encode()).decode()
    alternative = f"{chart.title}: {chart.description()}"
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(content, alternative)


def _inline(cell: str) -> Markup:
    """A cell as HTML, with its marks as elements and the deviation in a span."""
    marked = MARKED.fullmatch(cell)
    kind, text = (marked[1], marked[2]) if marked else ("", cell)
    mean, sign, deviation = text.partition(" ± ")
    content = escape(mean) + (Markup('&nbsp;<span class="deviation">± {}</span>').format(deviation) if sign else "")
    tag = {"**": "strong", "*": "em", "`": "code"}.get(kind)
    return Markup(f"<{tag}>{{}}</{tag}>").format(content) if tag else Markup(content)


def _numeric(table: Table) -> list[bool]:
    """Whether each column has only figures."""
    columns = [[row[i] for row in table.rows if row[i]] for i in range(len(table.columns))]
    return [bool(cells) and all(FIGURE.fullmatch(cell) for cell in cells) for cells in columns]


def _spread(table: Table) -> list[bool]:
    """Whether each column has a deviation."""
    return [any("±" in row[i] for row in table.rows) for i in range(len(table.columns))]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
