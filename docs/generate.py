"""Fill the figures and tables of the documents from stored records, and write the pages that only the site has.

    python docs/generate.py

In a document, `.220 ± .015<!--=fsrl test paper 3-->` is a figure, and what is between `<!-- NAME: begin -->` and
`<!-- NAME: end -->` is a table. The Sphinx build writes docs/results.md, speed.md and commands.md, which are not
committed.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from fewlink.core.recipes import recipe_texts
from fewlink.evaluation.records import Record, RecordStore
from fewlink.linker.probability import shipped_calibration
from fewlink.models import families
from fewlink.models.trail.shipped import shipped

sys.path.append(str(Path(__file__).resolve().parent.parent / "experiments"))
sys.path.append(str(Path(__file__).resolve().parent / "site"))

import command_reference

import ablation
import between
import by_relation
import embedding
import later_links
import leaderboard
import overall
import readings
import shots
import unseen_graphs
from common import (
    COLUMNS,
    PROTOCOLS,
    Point,
    Table,
    cells,
    emphasise,
    line_chart,
    scatter_chart,
    select,
    short,
    spread,
    values,
)
from unseen_graphs import complete, of_shared_relations, over_graphs

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
RESULTS = ROOT / "results"
BENCHMARKS = ROOT / "benchmarks"
COMPARED = ("gmatching-maxp", "fsrl", "complex", "trail")  # relation by relation
CARVED = ("fb15k-237-few", "codex-s-few")
IN_README = {
    "popularity": "popularity",
    "rules": "rules (paths)",
    "complex": "ComplEx",
    "fsrl-tuned": "FSRL (2020), tuned here",
    "ultra-50g": "ULTRA (2024)",
    "trix-entity-prediction": "TRIX (2024)",
    "trail-no-names": "**TRAIL** without names",
    "trail": "**TRAIL** (fewlink)",
}
SIZES_IN_README = ("1", "3", "10", "all")
IN_TRAIL = {  # rows of docs/trail.md
    "trail": "**TRAIL**, fine-tuned",
    "trail-pretrained": "TRAIL, as pretrained",
    "trail-no-names": "**TRAIL without names**, fine-tuned",
    "trail-pretrained-no-names": "TRAIL without names, as pretrained",
    "complex": "ComplEx",
    "rules": "rules",
    "ultra-50g": "ULTRA (50g)",
    "trix-entity-prediction": "TRIX",
}
MEASURED = {  # columns of its table: benchmark, number of references, candidates
    **{f"K = {number}": ("nell-one", number, "full") for number in (1, 3, 5, 10)},
    "K = 3, `paper`": ("nell-one", 3, "paper"),
    "FB15k-237, K = 3": ("fb15k-237-few", 3, "full"),
}
OF_LINKS = {  # rows of its table of ordinary link prediction: records of TRAIL, whether names are read
    "TRAIL, fine-tuned": ("trail", True),
    "TRAIL without names, fine-tuned": ("trail", False),
    "TRAIL without names, as pretrained": ("trail-pretrained", False),
}
OF_PUBLISHED = {  # rows of ordinary link prediction: files of weights
    "ULTRA (3g)": "ultra_3g.pth",
    "ULTRA (50g)": "ultra_50g.pth",
    "TRIX": "entity_prediction.pth",
}
IN_CURVES = (
    *("trail", "trail-no-names", "ultra-50g", "trix-entity-prediction"),
    *("complex", "rules", "reference-tails", "popularity"),
)
GRAPHS = {
    "nell-one": "NELL-One",
    "fb15k-237-few": "FB15k-237",
    "codex-s-few": "CoDEx-S",
    "umls": "UMLS",
    "attack-few": "ATT&CK",
}
OF_PARTS = {  # columns of tables of TRAIL without its parts: figures of a record, two where they are compared
    **{f"K = {size}": [size] for size in ("1", "3", "30", "all")},
    "3 + own 10": ["3 + own 10"],
    "3 → 3 + 10 of one tail": ["3, other tails", "3 + 10 of one tail"],
}
BY_DECISIONS = ("policy", "0", "10", "30", "100", "change", "±")
ERRORS = ("sets", "questions", "low trust", "right", "off", "by chance", "error", "first answers", "first ten")
WITH_HITS = ("graph", "weights", "triples", "mrr", "hits@1", "hits@10")


# What is stored


@functools.cache
def stored(benchmark: str) -> RecordStore:
    return RecordStore(RESULTS / benchmark)


@functools.cache
def unseen() -> list[unseen_graphs.UnseenRecord]:
    return unseen_graphs.read_unseen(RESULTS / "unseen-graphs")


def main_records(benchmark: str) -> list[Record]:
    """The records of a benchmark under the main protocol: test, three references, `full`."""
    return select(stored(benchmark).records, split="test", shots=3, candidates="full", references="first")


def results_of(record: str) -> dict[str, Any]:
    """The results of a benchmark's record."""
    found: dict[str, Any] = json.loads((BENCHMARKS / "records" / f"{record}.json").read_text("utf-8"))["results"]
    return found


@functools.cache
def stored_curves() -> list[readings.ReadingCurve]:
    """The stored curves of readings of the paper on NELL-One."""
    return stored("nell-one").read(readings.ReadingCurve)


@functools.cache
def attack_tables() -> list[Table]:
    """The tables of links that were added to ATT&CK later."""
    return later_links.tables(stored("attack-2023"), later_links.SHOTS, later_links.frozen_attack())


@functools.cache
def unseen_tables() -> dict[str, str]:
    """The tables of unseen graphs by name."""
    return {name: each.markdown() for name, each in unseen_graphs.tables_of(unseen()).items()}


# Figures in a text


def stored_figure(query: str) -> str:
    """A figure by its query.

    `MODEL SPLIT CANDIDATES K [METRIC [AVERAGE]]`: from records, on NELL-One.
    `SELECTION MODEL METRIC`: what learning curves have on test at the step that is selected so.
    `calibration FACT`: of the calibration that comes with fewlink.
    `unseen MODEL K`: MRR on unseen graphs, the mean over graphs.
    `reading NAME SPLIT [METRIC [CHOICE]]`: MRR, or another metric, of a reading of the paper at the step that is best
    on dev, or as `CHOICE` says: best on `test`, or the mean of the `five` best.
    `silhouette MODEL RELATION`: of a relation's true and false pairs in the space of a model, on NELL-One.
    """
    kind, *words = query.split()
    if kind == "calibration":
        return calibration_figure(" ".join(words))
    if kind == "unseen":
        model, size = words
        return spread(over_graphs(complete(unseen())[model], size))
    if kind == "reading":
        name, split, metric, choice = (*words, *("mrr", "dev")[len(words) - 2 :])
        return spread([curve.figures_of(split, choice)[metric] for curve in readings.curves_of(name, stored_curves())])
    if kind == "silhouette":
        maps = stored("nell-one").read(embedding.PairMap)
        return spread([each.silhouette for each in maps if [each.model, each.relation] == words])
    if kind in readings.SELECTIONS:
        model, metric = words
        curves = stored("nell-one").read(readings.LearningCurve)
        return spread([curve.selected(kind)[metric] for curve in curves if curve.model == model])
    split, candidates, number, *metric_and_average = words
    records = select(stored("nell-one").records, model=kind, split=split, references="first")
    seeds = select(records, candidates=candidates, shots=int(number))
    if not seeds:
        raise SystemExit(f"no record has the figure <!--={query}-->")
    return spread(values(seeds, *metric_and_average))


def calibration_figure(fact: str) -> str:
    facts = shipped_calibration()
    error = {"first": facts.first_error, "over relations": facts.over_relations}
    count = {"count": facts.count, "relations": facts.relations}
    return f"{error[fact]:.2f}".lstrip("0") if fact in error else f"{count[fact]:,}"


def with_figures(text: str) -> str:
    """A text in which each figure before `<!--=QUERY-->` is the stored one."""
    figure = re.compile(r"(?:\?|[\d.,]+(?: ± [\d.]+)?)<!--=(.+?)-->", re.DOTALL)  # a query may be broken over lines
    return figure.sub(lambda match: f"{stored_figure(match[1])}<!--={match[1]}-->", text)


def with_tables(text: str, contents: Mapping[str, str]) -> str:
    """A text with each content between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""
    for name, content in contents.items():
        begin = f"<!-- {name}: begin -->"
        end = f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"no place for the table '{name}': {begin} {end}")
        text = f"{before}{begin}\n{content}{end}{after}"
    return text


# Tables


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return Table("", columns, rows).markdown()


def titled(tables: Sequence[Table], prefix: str = "") -> str:
    """Tables with their titles as headings; those without rows are left out."""
    shown = [f"### {prefix}{each.title}\n\n{each.markdown()}" for each in tables if each.rows]
    return "\n".join(shown) or "No results are stored yet.\n"


def record_table(name: str, part: str, columns: Sequence[str], **only: Any) -> str:
    """Columns of the rows of a benchmark's record, those with these values."""
    rows = [row for row in results_of(name)[part] if all(row[key] == value for key, value in only.items())]
    return table(columns, [[shown(row[column]) for column in columns] for row in rows])


def shown(value: Any) -> str:
    """A cell of a record: .123, 12.3 or a text."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return short(value) if abs(value) < 1 else f"{value:,.1f}"


def readme_table() -> str:
    """A row for each kind of model: its MRR on unseen graphs by the number of references, and on NELL-One.

    Of the unseen graphs, it has the relations that every model was asked about.
    """
    models = of_shared_relations(complete(unseen()))
    nell = main_records("nell-one")
    rows = []
    for model, label in IN_README.items():
        row = [spread(over_graphs(models.get(model, []), size)) for size in SIZES_IN_README]
        row.append(spread(values(select(nell, model=model))))
        if any(row):
            rows.append([label, *row])
    head = ["model", *(f"K = {size}" for size in SIZES_IN_README), "NELL-One, K = 3"]
    return table(head, emphasise(rows, range(1, len(head))))


def leaderboard_table() -> str:
    """A row for each model of the leaderboard, the best on NELL-One first: 3-shot `full` MRR on every benchmark."""
    of_graph = [main_records(name) for name in GRAPHS]
    figures = {model: [values(select(records, model=model)) for records in of_graph] for model in leaderboard.names()}
    order = sorted(figures, key=lambda model: [-mean(cell) if cell else 1 for cell in figures[model]])
    rows = [[model, *map(spread, figures[model])] for model in order if any(figures[model])]
    return table(["model", *GRAPHS.values()], emphasise(rows, range(1, 1 + len(GRAPHS))))


def leaderboards() -> str:
    """A table of every protocol for each benchmark of the leaderboard."""
    store = RecordStore(RESULTS)
    sections = []
    for name in leaderboard.benchmarks():
        record = main_records(name)[0]
        size = f"{len(record.relations)} test relations, {record.queries:,} queries for K = 3."
        sections.append(f"### {name}\n\n{size}\n\n{leaderboard.table(store, name, leaderboard.names()).markdown()}")
    return "\n".join(sections)


def knowledge() -> str:
    """Where the models of the leaderboard are from, and what they have learnt from."""
    taught = [each for each in leaderboard.rivals() if each["learnt"]]
    rows = [[", ".join(each["models"]), each["source"], each["learnt"]] for each in taught]
    return table(["models", "from", "learnt from"], rows)


def left_out() -> str:
    """Where the leaderboard has fewer than all protocols and five seeds, and why."""
    rows = []
    for each in leaderboard.rivals():
        if each["why"]:
            lists = [each["models"], each["benchmarks"], each["shots"], [f"`{name}`" for name in each["candidates"]]]
            rows.append([*(", ".join(map(str, values)) for values in lists), str(each["seeds"]), each["why"]])
    return table(["models", "benchmarks", "K", "candidates", "seeds", "why not more"], rows)


def weights_facts() -> str:
    """What the built-in weights are, in a line."""
    facts = shipped().facts
    count = sum(tensor.numel() for tensor in shipped().weights.values())
    shape = ", ".join(f"{name.replace('_', ' ')} {size}" for name, size in facts["shape"].items())
    trained = f", {facts['step']:,} steps on {len(facts['graphs'])} graphs" if "step" in facts else ""
    return f"{count:,} parameters ({shape}){trained}; sha256 `{facts['sha256']}`.\n"


def weights_figures() -> str:
    """What the built-in weights reach on test, with and without names, from the records of these very weights."""
    records = select(RecordStore(RESULTS).records, split="test", references="first")
    records = [r for r in records if r.config.get("weights", {}).get("sha256") == shipped().facts["sha256"]]
    rows = []
    for benchmark, model, number in sorted({(r.benchmark, r.model, r.shots) for r in records}):
        own = select(records, benchmark=benchmark, model=model, shots=number)
        figures = [spread(values(select(own, candidates=protocol))) for protocol in PROTOCOLS]
        rows.append([benchmark, f"`{model}`", str(number), *figures])
    return table(["benchmark, test", "model", "K", *(f"MRR `{protocol}`" for protocol in PROTOCOLS)], rows)


def few_shot() -> str:
    """TRAIL on the test splits of benchmarks beside other models: mean and deviation over seeds."""
    rows = []
    for model, label in IN_TRAIL.items():
        row = [label]
        for name, number, candidates in MEASURED.values():
            found = select(stored(name).records, model=model, split="test", references="first")
            row.append(spread(values(select(found, shots=number, candidates=candidates))))
        rows.append(row)
    return table(["model", *MEASURED], rows)


def ordinary_links() -> str:
    """TRAIL with all known pairs as references in ordinary link prediction, beside other models."""
    graphs = ("codex-s", "fb15k-237")
    trail = results_of("trail-links")["rows"]
    others = [*results_of("ultra-links")["rows"], *results_of("trix-links")["rows"]]
    own = {
        **{label: [r for r in trail if (r["weights"], r["names"]) == key] for label, key in OF_LINKS.items()},
        **{label: [r for r in others if r["weights"] == file] for label, file in OF_PUBLISHED.items()},
    }
    rows = [
        [label, *(spread([r["mrr"] for r in found if r["graph"] == graph]) for graph in graphs)]
        for label, found in own.items()
    ]
    rows.append(["ComplEx", *(spread(values(stored(graph).records)) for graph in graphs)])
    return table(["model", "CoDEx-S", "FB15k-237"], rows)


def links(benchmark: str) -> str:
    """A row for each record of ordinary link prediction, without references."""
    records = stored(benchmark).records
    rows = [[r.model, r.split, f"{r.queries:,}", *cells([r]), r.hardware] for r in records]
    return table(["model", "split", "queries", *COLUMNS, "hardware"], rows)


def by_draws() -> str:
    """Models with random draws of references in place of the first pairs: mean and deviation over the draws."""
    records = select(stored("nell-one").records, split="test", shots=3, candidates="full")
    drawn = [record for record in records if record.references.startswith("draw")]
    rows = []
    for model in overall.models_of(drawn):
        draws = select(drawn, model=model)
        rows.append([model, str(len(draws)), *cells(draws)])
    return table(["model", "draws", *COLUMNS], emphasise(rows, range(2, 2 + len(COLUMNS))))


def parts(record: str, columns: Mapping[str, Sequence[str]]) -> str:
    """TRAIL without one of its parts: mean and deviation over seeds."""
    networks: dict[str, list[dict[str, Any]]] = {}
    for row in results_of(record)["rows"]:
        networks.setdefault(row["network"], []).append(row)
    rows = []
    for network, seeds in networks.items():
        cells = [" → ".join(spread([seed[key] for seed in seeds]) for key in keys) for keys in columns.values()]
        rows.append([network, str(len(seeds)), *cells])
    return table(["network", "seeds", *columns], rows)


def overlap() -> str:
    """The graphs that have triples in common with graphs that TRAIL was trained on."""
    counts: dict[str, dict[str, list[int]]] = {}
    for row in results_of("overlap")["overlap"]:
        for kind in {"asked": ["asked"], "test": ["all", "asked"]}.get(row["part"], ["all"]):
            sums = counts.setdefault(row["graph"], {}).setdefault(kind, [0, 0, 0])
            for place, column in enumerate(("triples", "in training graphs", "joined in training graphs")):
                sums[place] += row[column]
    rows = []
    for graph, of in counts.items():
        if of["all"][2]:
            rows.append([graph, *(f"{count:,}" for kind in ("all", "asked") for count in of[kind])])
    shared = ["in training graphs", "joined there"]
    return table(["graph", "triples", *shared, "asked", *(f"asked, {each}" for each in shared)], rows)


def by_recipe() -> str:
    """What each recipe reached; weights that a program pretrained are of no recipe."""
    figures: dict[str, dict[str, str]] = {}
    for record in stored("fb15k-237").records:
        what = f"{record.benchmark} {record.split}, filtered MRR"
        figures[record.config["recipe"]] = {what: spread(values([record]))}
    for name in recipe_texts():
        of_recipe = [
            record
            for record in stored("nell-one").records
            if name in (record.config.get("recipe"), record.model) and "program" not in record.config
        ]
        for protocol in PROTOCOLS:
            if records := select(of_recipe, split="test", shots=3, references="first", candidates=protocol):
                what = f"nell-one test, K = 3, {protocol}, MRR over {len(records)} seeds"
                figures.setdefault(name, {})[what] = spread(values(records))
    return json.dumps(figures, indent=1, ensure_ascii=False) + "\n"


# Documents that are committed


def documents() -> dict[Path, str]:
    """The committed files with figures, as they should be."""
    attack = attack_tables()
    of_unseen = unseen_tables()
    ends = ("graph", "wrong ends", "relations", "triples", "area, mean of relations")
    sets = ("graph", "given", "coverage", "mean size", "median size")
    relations = ("graph", "relations", "triples", "MRR", "Hits@1")
    contents = {
        ROOT / "README.md": {"results": readme_table()},
        DOCS / "leaderboard.md": {"leaderboard": leaderboard_table()},
        DOCS / "unseen-graphs.md": {
            **{name: of_unseen[name] for name in ("mrr", "three", "graphs")},
            "overlap": overlap(),
        },
        DOCS / "findings.md": {},
        DOCS / "tutorials" / "comparing-models.md": {},
        DOCS / "fsrl.md": {},
        DOCS / "concepts" / "calibration.md": {
            "references": record_table("calibration", "by references", ("references", *ERRORS)),
            "choice": record_table("calibration", "by choice", ("references", *ERRORS)),
        },
        DOCS / "attack.md": {"few": attack[0].markdown(), "known": attack[2].markdown()},
        DOCS / "trail.md": {"few-shot": few_shot(), "links": ordinary_links()},
        DOCS / "curating.md": {
            "right": record_table("curation", "right", BY_DECISIONS, graph="all"),
            "error": record_table("curation", "error", BY_DECISIONS, graph="all"),
        },
        DOCS / "questions.md": {
            "check": record_table("check", "measured", ends),
            "relations": record_table("relations", "measured", relations),
            "sets": record_table("answer_sets", "measured", sets, level=0.9, graph="all"),
        },
        ROOT / "src" / "fewlink" / "builtin" / "trail.md": {"facts": weights_facts(), "figures": weights_figures()},
    }
    texts = {path: with_tables(with_figures(path.read_text("utf-8")), own) for path, own in contents.items()}
    texts[ROOT / "src" / "fewlink" / "recipes" / "measured.json"] = by_recipe()
    return texts


def pictures() -> dict[str, str]:
    """The committed pictures by file name, as SVG."""
    bins = [each for each in shipped_calibration().first_bins if each.count]
    reliability = {
        "first answers": [Point(each.predicted, each.observed) for each in bins],
        "perfect": [Point(0.0, 0.0), Point(1.0, 1.0)],
    }
    title = "Probabilities on graphs that were left out"
    nell = select(stored("nell-one").records, split="test", candidates="full", references="first")
    by_shots = shots.lines(nell, ("fsrl", "gmatching-maxp", "trail-no-names"))
    drawn = {
        "calibration.svg": line_chart(title, reliability, "probability", "share of right answers"),
        "few-shot-size.svg": line_chart("NELL-One, test, full candidates", by_shots, "references (K)", "MRR"),
        "unseen-graphs.svg": unseen_graphs.curve_chart(unseen(), IN_CURVES),
    }
    for each in stored("nell-one").read(embedding.PairMap):
        relation = each.relation.split(":")[-1]
        drawn[f"map-{relation}-{each.model}.svg"] = scatter_chart(f"{relation}, {each.model}", each.points)
    return drawn


# Pages that only the site has


def results_page() -> str:
    """docs/site/results.md with the content of each `{{NAME}}`."""
    store = stored("nell-one")
    nell = store.records
    trained = [r for r in nell if r.model in families()["embedding"].models and "measured" in r.config]
    seconds = {(r.model, r.shots, r.seed): r.config["measured"]["seconds"] for r in trained}
    carved = [(name, overall.tables(select(stored(name).records, split="test"))) for name in CARVED]
    of_unseen = unseen_tables()
    contents = {
        "embedding runs": str(len(seconds)),
        "embedding minutes": f"{sum(seconds.values()) / 60:.0f}",
        "overall": titled(overall.tables(nell, benchmark="nell-one")),
        "by relation": by_relation.table(nell, COMPARED).markdown(),
        "by shots": shots.table(nell).markdown(),
        "by draws": by_draws(),
        "ablations": ablation.table(nell).markdown(),
        "selection": readings.by_selection(store.read(readings.LearningCurve)).markdown(),
        "readings": titled(readings.tables(store)),
        "between": titled(between.tables(store.read(between.BetweenRecord), between.MODELS)),
        "parts": parts("trail-ablations", OF_PARTS),
        "training parts": parts("trail-training-ablations", OF_PARTS),
        "fold parts": parts("trail-fold-ablations", {"fold 0": ["fold 0"], "fold 1": ["fold 1"]}),
        **{name: of_unseen[name] for name in ("seen", "unseen", "skewed")},
        "later links": titled(attack_tables()),
        "carved": "\n".join(titled(tables, f"{name}, ") for name, tables in carved),
        "fb15k-237 links": links("fb15k-237"),
        "codex-s links": links("codex-s"),
        "leaderboards": leaderboards(),
        "models": knowledge(),
        "left out": left_out(),
        "ultra": record_table("ultra-links", "rows", WITH_HITS),
        "trix": record_table("trix-links", "rows", WITH_HITS),
    }
    text = (DOCS / "site" / "results.md").read_text("utf-8")
    return re.sub(r"\{\{(.+?)\}\}", lambda match: contents[match[1]], text)


def speed_page() -> str:
    """A section for each record of a benchmark: what its script does, and its rows."""
    sections = [
        "# Speed and memory\n\nFrom the records in `benchmarks/records/`, which the scripts in `benchmarks/` write. "
        "Both sides of a ratio were measured in one run on one machine.\n"
    ]
    for path in sorted((BENCHMARKS / "records").glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        rows = record["results"].get("rows")
        script = script_of(path.stem)
        if not isinstance(rows, list) or not rows or script is None:
            continue
        about = (ast.get_docstring(ast.parse(script.read_text("utf-8"))) or "").partition("\n\n")[0]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        lines = [[shown(row.get(column, "")) for column in columns] for row in rows]
        machine = f"{record['cores']} cores, {record['date']}"
        sections.append(f"## {path.stem}\n\n`{script.name}`: {about} ({machine})\n\n{table(columns, lines)}")
    return "\n".join(sections)


def script_of(record: str) -> Path | None:
    """The script that writes a record: that with the longest name with which the record's begins."""
    scripts = sorted(BENCHMARKS.glob("*.py"), key=lambda script: -len(script.stem))
    name = record.replace("-", "_")
    return next((script for script in scripts if name.startswith(script.stem)), None)


def write_site_pages() -> None:
    """Write the pages that are not committed; the Sphinx build calls this first."""
    pages = {
        "results.md": results_page(),
        "speed.md": speed_page(),
        "commands.md": command_reference.page(),
    }
    for name, text in pages.items():
        path = DOCS / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def main() -> None:
    for path, text in documents().items():
        path.write_text(text, "utf-8")
    for name, svg in pictures().items():
        (DOCS / "pictures" / name).write_text(svg, "utf-8")


if __name__ == "__main__":
    main()
