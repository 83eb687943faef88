"""All results of a folder as one HTML page that needs nothing else."""

from __future__ import annotations

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
from fewlink.base.errors import FewlinkError, InputError
from fewlink.base.storage import write_bytes
from fewlink.evaluation.records import Record, read_records
from fewlink.report import charts, tables
from fewlink.report.sections import Found, Section, lead_of, sections_of, what_to_ask
from fewlink.report.tables import COLUMNS, Published, Table, chosen
from fewlink.studies.learning_curves import Course, read_courses
from fewlink.studies.pair_maps import PairMap, read_maps
from fewlink.studies.plan import read_plan

MARKED = re.compile(r"(\*\*|\*|`)(.*)\1", re.DOTALL)
FIGURE = re.compile(r"[*`]*[+−-]?[\d,]*\.?\d+( ± [\d.]+)?[*`]*")


def write_report(folder: Path, out: Path) -> None:
    """Write the page of all records under a folder, with the paper's figures of the same benchmarks."""
    folder, out = Path(folder), Path(out)
    if not folder.is_dir():
        raise FewlinkError(f"{folder} does not exist: fewlink evaluate makes records, or name another folder")
    if out.is_dir():
        raise FewlinkError(f"{out} is a folder: name a file, such as {out / 'report.html'}")
    if not out.parent.is_dir():
        raise FewlinkError(f"{out.parent} does not exist: make the folder, or name another place for {out.name}")
    found = read_folder(folder)
    if not found.records:
        raise FewlinkError(f"no record in {folder}: fewlink evaluate makes them")
    write_bytes(out, page(found, published()).encode())


def published() -> dict[str, Published]:
    """The paper's figures by benchmark, from the recipes of the studies."""
    found: dict[str, dict[str, Mapping[str, Mapping[str, float]]]] = {}
    for name in ("ablation", "overall"):
        for benchmark, models in read_plan(name).published.items():
            found.setdefault(benchmark, {}).update(models)
    return dict(found)


def read_folder(folder: Path) -> Found:
    """What lies under a folder, by file name; a file that is nothing of it is an error that names it."""
    records = read_records(folder)
    for record in records:
        _refuse_incomplete(folder / record.file_name, record)
    return Found(_told_apart(records), read_maps(folder), read_courses(folder))


def _refuse_incomplete(path: Path, record: Record) -> None:
    parts = {**{name: record.metrics.get(name, {}) for name in ("micro", "macro")}, **record.relations}
    for part, row in parts.items():
        for metric in COLUMNS.values():
            if not math.isfinite(row.get(metric, math.nan)):
                raise InputError(path, f"has no finite {metric} of {part}: evaluate again")


def _told_apart(records: Sequence[Record]) -> list[Record]:
    """The records, with a number after the name of a benchmark or model that stands for several."""
    data: dict[str, list[str]] = {}
    ways: dict[tuple[str, str], list[str]] = {}
    taken: dict[tuple[Any, ...], set[str]] = {}
    clash = set()
    for r in records:
        _listed(data, r.benchmark, r.data_sha256)
        _listed(ways, (r.benchmark, r.model), r.choices())
        what = (r.benchmark, r.data_sha256, r.model, r.split, r.shots, r.candidates, r.references, r.seed)
        taken.setdefault(what, set()).add(r.choices())
        if len(taken[what]) > 1:
            clash.add((r.benchmark, r.model))
    named = []
    for r in records:
        own = (r.benchmark, r.model)
        benchmark = _numbered(r.benchmark, data[r.benchmark].index(r.data_sha256))
        model = _numbered(r.model, ways[own].index(r.choices()) if own in clash else 0)
        named.append(r.model_copy(update={"benchmark": benchmark, "model": model}))
    return named


def _listed(lists: dict[Any, list[str]], key: Any, value: str) -> None:
    if value not in lists.setdefault(key, []):
        lists[key].append(value)


def _numbered(name: str, number: int) -> str:
    return f"{name} ({number + 1})" if number else name


def page(found: Found, published: Mapping[str, Published]) -> str:
    """The page as text; the same for the same results."""
    records = found.records
    names = [name for name, _ in Counter(r.benchmark for r in records).most_common()]
    parts = []
    for number, name in enumerate(names, 1):
        mine = chosen(records, benchmark=name)
        asked = what_to_ask(mine)
        lead = lead_of(mine, asked) if asked else None
        if asked:
            sections = sections_of(found.of(name), asked, published.get(name, {}))
        else:
            told = "Both directions of every triple, all entities as candidates, other known answers left out."
            sections = [Section("Ordinary link prediction", told, tables=[tables.links(mine)])]
        count = len({r.model for r in mine})
        parts.append(
            {
                "id": f"b{number}",
                "name": name,
                "asked": asked,
                "lead": lead,
                "records": len(mine),
                "models": count,
                "sections": sections,
            }
        )
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(inline=_inline, numeric=_numeric, spread=_spread, slug=_slug)
    source = files("fewlink.report").joinpath("report.html.j2").read_text("utf-8")
    return environment.from_string(source).render(
        benchmarks=parts,
        records=len(records),
        version=__version__,
        chart_style=Markup(charts.STYLE),
        light=Markup(charts.variables(charts.LIGHT)),
        dark=Markup(charts.variables(charts.DARK)),
        commands=_commands([*records, *found.maps, *found.courses]),
        sources=_sources(records),
    )


def _commands(made: Sequence[Record | PairMap | Course]) -> list[tuple[str, list[str]]]:
    """Every command once, under the models it measured."""
    behind: dict[str, list[str]] = {}
    for one in made:
        if one.command:
            _listed(behind, one.command, one.model)
    grouped: dict[str, list[str]] = {}
    for command, models in sorted(behind.items()):
        grouped.setdefault(", ".join(tables.in_order(models)), []).append(command)
    return sorted(grouped.items(), key=lambda item: tables.in_order(grouped).index(item[0]))


def _sources(records: Sequence[Record]) -> Table:
    """On which data, with which version and on which hardware the records were made."""
    found = Counter((r.benchmark, r.data_sha256, r.version, r.hardware) for r in records)
    rows = [[b, f"`{sha}`", version, hardware, f"{n:,}"] for (b, sha, version, hardware), n in sorted(found.items())]
    return Table("Where the records come from", ["benchmark", "data sha256", "fewlink", "hardware", "records"], rows)


def _inline(cell: str) -> Markup:
    """A cell with its marks as elements, the deviation set apart."""
    kind, text = (found[1], found[2]) if (found := MARKED.fullmatch(cell)) else ("", cell)
    mean, sign, deviation = text.partition(" ± ")
    content = escape(mean) + (Markup('&nbsp;<span class="deviation">± {}</span>').format(deviation) if sign else "")
    tag = {"**": "strong", "*": "em", "`": "code"}.get(kind)
    return Markup(f"<{tag}>{{}}</{tag}>").format(content) if tag else Markup(content)


def _numeric(table: Table) -> list[bool]:
    """Which columns hold figures and nothing else."""
    columns = [[row[i] for row in table.rows if row[i]] for i in range(len(table.columns))]
    return [bool(cells) and all(FIGURE.fullmatch(cell) for cell in cells) for cells in columns]


def _spread(table: Table) -> list[bool]:
    """Which columns hold a deviation."""
    return [any("±" in row[i] for row in table.rows) for i in range(len(table.columns))]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
