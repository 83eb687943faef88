"""Fill the figures and tables of the documents from stored records, and write the pages that only the site has.

    python docs/generate.py            # rewrite figures and tables in place, and the pictures
    python docs/generate.py --check    # write nothing; exit code 1 if a figure or table is not as stored

In a document, `.220 ± .015<!--=fsrl test paper 3-->` is a figure, and what is between `<!-- NAME: begin -->` and
`<!-- NAME: end -->` is a table. The Sphinx build writes docs/results.md, trials.md, speed.md and commands.md,
which are not committed.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fewlink.core.errors import FewlinkError
from fewlink.core.recipes import recipe_texts
from fewlink.evaluation.curves import ReadingCurve
from fewlink.evaluation.records import Record, RecordStore, read_records
from fewlink.linker.probability import shipped_calibration
from fewlink.models import families
from fewlink.models.trail.shipped import shipped
from fewlink.studies import Workspace, open_study, published_figures, read_plan, tables
from fewlink.studies.attack_tables import stored_tables
from fewlink.studies.charts import Chart, LineChart, Point, ScatterChart, shots_lines
from fewlink.studies.later_links import frozen_attack
from fewlink.studies.readings import curves_of, figures_of, resolve
from fewlink.studies.tables import SELECTIONS, by_selection, select, spread, values
from fewlink.studies.unseen_tables import SIZES as REFERENCES
from fewlink.studies.unseen_tables import (
    UnseenRecord,
    complete,
    curve_chart,
    of_shared_relations,
    over_graphs,
    read_unseen,
    tables_of,
)
from fewlink.studies.workspace import StoredBenchmark
from fewlink.tasks import CATALOGUE

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path += [str(ROOT / "benchmarks"), str(DOCS / "site")]

import command_reference  # noqa: E402

import speed_page  # noqa: E402
import summary  # noqa: E402

TRIES = ROOT / "benchmarks" / "tries"
TRIES_0_2 = TRIES / "trail-0.2"
PROGRAM = "program+negatives-released+lists-released"  # what the authors' program does
COMPARED = ("gmatching-maxp", "fsrl", "complex", "trail-0.2", "trail")  # relation by relation
CARVED = ("fb15k-237-few", "codex-s-few")
BENCHMARKS = ("nell-one", *CARVED, "attack-few", "umls")  # of TRAIL

IN_README = {
    "popularity": "popularity",
    "rules": "rules (paths)",
    "complex": "ComplEx",
    "fsrl": "FSRL (2020), as in the paper",
    "fsrl-tuned": "FSRL, tuned here",
    "metar-in-train": "MetaR (2019)",
    "ultra-50g": "ULTRA (2024)",
    "trix-entity-prediction": "TRIX (2024)",
    "trail-no-names": "**TRAIL** without names",
    "trail": "**TRAIL** (fewlink)",
}
IN_TRAIL = {  # rows of docs/trail.md
    "trail": "**TRAIL**, fine-tuned",
    "trail-pretrained": "TRAIL, as pretrained",
    "trail-no-names": "**TRAIL without names**, fine-tuned",
    "trail-pretrained-no-names": "TRAIL without names, as pretrained",
    "trail-0.2": "TRAIL 0.2 (no names)",
    "complex": "ComplEx",
    "rules": "rules",
    "ultra-50g": "ULTRA (50g)",
    "trix-entity-prediction": "TRIX",
}
MEASURED = {  # columns of its table: benchmark, number of references, candidates
    **{f"K = {shots}": ("nell-one", shots, "full") for shots in (1, 3, 5, 10)},
    "K = 3, `paper`": ("nell-one", 3, "paper"),
    "FB15k-237, K = 3": ("fb15k-237-few", 3, "full"),
}
OF_LINKS = {  # rows of its table of ordinary link prediction: records of TRAIL, whether names are read
    "TRAIL, fine-tuned": ("trail", True),
    "TRAIL without names, fine-tuned": ("trail", False),
    "TRAIL without names, as pretrained": ("trail-pretrained", False),
}
IN_CURVES = (
    "trail",
    "trail-no-names",
    "ultra-50g",
    "trix-entity-prediction",
    "complex",
    "rules",
    "reference-tails",
    "popularity",
)
OF_PUBLISHED = {  # rows of ordinary link prediction: files of weights
    "ULTRA (3g)": "ultra_3g.pth",
    "ULTRA (50g)": "ultra_50g.pth",
    "TRIX": "entity_prediction.pth",
}
GRAPHS = {
    "nell-one": "NELL-One",
    "fb15k-237-few": "FB15k-237",
    "codex-s-few": "CoDEx-S",
    "umls": "UMLS",
    "attack-few": "ATT&CK",
}

NOTHING_STORED = "No results are stored yet.\n"
BY_DECISIONS = ("policy", "0", "10", "30", "100", "change", "±")
AREA = "area, mean of relations"
ERRORS = ("sets", "questions", "low trust", "right", "off", "by chance", "error", "first answers", "first ten")
SIZES = ("graph", "given", "coverage", "mean size", "median size")
NAMES = ("graph", "part", "relations", "queries", "MRR of TRAIL", "names, graph left out", "names, as shipped")


def overall(records: list[Record]) -> str:
    """K = 3: every model under every protocol, with the paper's figures."""
    records = [r for r in records if not r.model.startswith("trail-0.1-no-")]  # another table shows them
    shown = tables.overall(records, published_figures()["nell-one"])
    return "\n".join(f"### {table.title}\n\n{table.markdown()}" for table in shown)


def by_relation(records: list[Record]) -> str:
    return tables.by_relation(records, COMPARED).markdown()


def ablations(records: list[Record]) -> str:
    shown = [tables.ablation(records, whole) for whole in tables.ablations()]
    return "\n".join(table.markdown() for table in shown if len(table.rows) > 1)


def carved() -> str:
    """Benchmarks carved from other graphs, with nothing tuned for them."""
    parts = []
    for name in CARVED:
        records = read_records(ROOT / "results" / name)
        shown = tables.overall(select(records, split="test"))
        parts += [f"### {name}, {table.title}\n\n{table.markdown()}" for table in shown]
    return "\n".join(parts)


def by_recipe(nell: list[Record], plain: list[Record]) -> str:
    """What each recipe reached, for `fewlink recipes`; weights that a program pretrained are of no recipe."""
    figures: dict[str, dict[str, str]] = {}
    for record in plain:
        figures[record.config["recipe"]] = {
            f"{record.benchmark} {record.split}, filtered MRR": spread(values([record]))
        }
    for name in recipe_texts():
        of_recipe = [r for r in nell if name in (r.config.get("recipe"), r.model) and "program" not in r.config]
        for protocol in tables.PROTOCOLS:
            if records := select(of_recipe, split="test", shots=3, references="first", candidates=protocol):
                what = f"nell-one test, K = 3, {protocol}, MRR over {len(records)} seeds"
                figures.setdefault(name, {})[what] = spread(values(records))
    return json.dumps(figures, indent=1, ensure_ascii=False) + "\n"


def tries() -> str:
    """What was tried for TRAIL: ordinary link prediction on CoDEx-S, and folds of NELL-One."""
    columns = ["network and training", "parameters", "steps", "CoDEx-S, K = all", "fold 0", "fold 1", "kept?"]
    rows = []
    for row in read_tries("trail-3.jsonl"):
        for place, found in enumerate(row["measured"]):
            own = [row["idea"], f"{row['parameters']:,}", f"{row['steps']:,}"]
            figures = [found["links"]["mrr"], *(found["folds"][fold]["micro_mrr"] for fold in ("0", "1"))]
            cells = [spread([figure]) for figure in figures]
            rows.append(
                ["… the same weights, names not read", "", "", *cells, ""] if place else [*own, *cells, row["kept"]]
            )
    return tables.Table("", columns, rows).markdown()


def tries_by_references() -> str:
    """The trials of TRAIL that were measured on all unseen graphs, by the number of references and with skewed ones."""
    skewed = {"3+10": "3 → 3 + 10 of one tail", "3+30": "3 → 3 + 30 of one tail", "3+own10": "3 → 3 + own 10"}
    columns = ["width", "names", *(f"K = {size}" for size in REFERENCES), *skewed.values()]
    rows = []
    for row in read_tries("trail-3.jsonl"):
        for found in row["measured"]:
            graphs = found["unseen_graphs"].values()
            if len(graphs) < len({record.graph for record in unseen()}):
                continue
            cells = [spread([mean(graph["mrr"][size] for graph in graphs)]) for size in REFERENCES]
            for kind in skewed:
                both = [graph["skewed"][kind]["mrr"] for graph in graphs if kind in graph["skewed"]]
                cells.append(" → ".join(spread([mean(figures)]) for figures in zip(*both, strict=True)))
            rows.append([str(row["settings"]["width"]), "read" if found["names"] else "not read", *cells])
    return tables.Table("", columns, rows).markdown()


def tries_of_tuning() -> str:
    """What some steps on a graph gain on its held-out questions, for several settings."""
    columns = ["graph", "triples", "held out", "steps", "learning rate", "relations × queries", "read"]
    columns += ["MRR before", "gain", "±"]
    rows = []
    for row in read_tries("tuning.jsonl"):
        settings = row["settings"]
        read = "whole graph" if row["edges"] is None else f"{row['edges']:,} edges"
        own = [row["graph"], f"{row['triples']:,}", row["held_out"], f"{settings['steps']:,}"]
        own += [f"{settings['learning_rate']:g}", f"{settings['relations']} × {settings['queries']}", read]
        figures = (row["before"]["mrr"], row["gain"], row["error"])
        rows.append([*own, *("–" if figure is None else spread([figure]) for figure in figures)])
    return tables.Table("", columns, rows).markdown()


def tries_of_fine_tuning() -> str:
    """What TRAIL gains by episodes of one kind on the graph of a benchmark."""
    columns = ["episodes", "steps", "fold 0", "fold 1", "fold 0, no names", "fold 1, no names", "FB15k-237", "kept?"]
    rows = []
    for row in read_tries("fine-tuning.jsonl"):
        if row["benchmark"] == "nell-one":
            figures = [row[names].get(fold) for names in ("mrr", "mrr_no_names") for fold in ("0", "1")] + [None]
        else:
            figures = [None] * 4 + [row["mrr"]]
        cells = ["" if figure is None else spread([figure]) for figure in figures]
        rows.append([row["idea"], f"{row['steps']:,}", *cells, row["kept"]])
    return tables.Table("", columns, rows).markdown()


def tries_of_trace() -> str:
    """The MRR on unseen graphs with a trace of the hidden relation, and without it."""
    table = tables.Table("", ["weights", "asked", "seeds", *(f"K = {size}" for size in REFERENCES)], [])
    for row in read_tries("trace.jsonl"):
        cells = [spread(row["mrr"][size]) if size in row["mrr"] else "" for size in REFERENCES]
        table.rows.append([row["what"], row["asked"], str(row["seeds"]), *cells])
    return table.markdown()


def tries_on_test() -> str:
    """What TRAIL had on test after each round of training."""
    columns = {
        **{f"K = {shots}": f"nell-one {shots} full" for shots in (1, 3, 5, 10)},
        "K = 3, `paper`": "nell-one 3 paper",
        "FB15k-237, K = 3": "fb15k-237-few 3 full",
        "FB15k-237, all pairs": "fb15k-237 all",
    }
    table = tables.Table("", ["training", "names", *columns], [])
    for row in read_tries("test.jsonl"):
        cells = [spread(row["mrr"][of]) for of in columns.values()]
        table.rows.append([row["training"], "read" if row["names"] else "not read", *cells])
    return table.markdown()


def results_of(record: str) -> dict[str, Any]:
    """The results of a benchmark's record."""
    path = ROOT / "benchmarks" / "records" / f"{record}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))["results"]
    return found


def read_tries(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TRIES / name).read_text("utf-8").splitlines()]


def tries_0_2() -> str:
    """What was tried for TRAIL 0.2 on folds."""
    rows = read_tries("trail-0.2/nell-one.jsonl")
    table = tables.Table("", ["idea", "expected", "steps", "fold 0", "fold 1", "kept?"], [])
    for row in rows:
        figures = dict(zip(row["folds"], row["micro_mrr"], strict=True))
        cells = [f"{figures[fold]:.3f}".lstrip("0") if fold in figures else "–" for fold in (0, 1)]
        table.rows.append([row["idea"], row["expected"], f"{row['steps'] or '–'}", *cells, row["kept"]])
    return table.markdown()


def without_parts() -> str:
    """TRAIL 0.2 without one of its parts, on the held-out relations of each fold and on test."""
    rows = read_tries("trail-0.2/ablation.jsonl")
    table = tables.Table("", ["network", "fold 0", "fold 1", "test"], [])
    for variant in dict.fromkeys(row["variant"] for row in rows):
        own = [row for row in rows if row["variant"] == variant]
        groups = [[row for row in own if row["fold"] == fold] for fold in (0, 1)]
        cells = [spread([row["metrics"]["folds"]["micro"]["mrr"] for row in group]) for group in groups]
        table.rows.append([variant, *cells, spread([row["metrics"]["test"]["micro"]["mrr"] for row in own])])
    return table.markdown()


def record_table(
    name: str, part: str, columns: Sequence[str], folder: Path = ROOT / "benchmarks" / "records", **only: Any
) -> str:
    """Columns of the rows of a benchmark's record, those with these values."""
    rows = json.loads((folder / f"{name}.json").read_text("utf-8"))["results"][part]
    table = tables.Table("", list(columns), [])
    for row in rows:
        if all(row[key] == value for key, value in only.items()):
            table.rows.append([shown(row[column]) for column in columns])
    return table.markdown()


def shown(value: Any) -> str:
    """A cell of a record: .123, 12.3 or a text."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:,.1f}"


def few_shot() -> str:
    """TRAIL on the test splits of benchmarks beside other models: mean and deviation over seeds."""
    table = tables.Table("", ["model", *MEASURED], [])
    for model, label in IN_TRAIL.items():
        cells = []
        for name, shots, candidates in MEASURED.values():
            found = select(stored(name).records, model=model, split="test", references="first")
            cells.append(spread(values(select(found, shots=shots, candidates=candidates))))
        table.rows.append([label, *cells])
    return table.markdown()


def ordinary_links() -> str:
    """TRAIL with all known pairs as references in ordinary link prediction, beside other models."""
    graphs = ("codex-s", "fb15k-237")
    trail, ultra, trix = (results_of(f"{name}-links")["rows"] for name in ("trail", "ultra", "trix"))
    rows = []
    for label, key in OF_LINKS.items():
        own = [row for row in trail if (row["weights"], row["names"]) == key]
        rows.append([label, *(spread([row["mrr"] for row in own if row["graph"] == graph]) for graph in graphs)])
    for label, file in OF_PUBLISHED.items():
        own = [row for row in (*ultra, *trix) if row["weights"] == file]
        rows.append([label, *(spread([row["mrr"] for row in own if row["graph"] == graph]) for graph in graphs)])
    rows.append(["ComplEx", *(spread(values(stored(graph).records)) for graph in graphs)])
    return tables.Table("", ["model", "CoDEx-S", "FB15k-237"], rows).markdown()


def mixing() -> str:
    """Relations of the graph after `fewlink fit`: held-out pairs by the built-in weights and by the fitted run."""
    rows = results_of("mixing")["rows"]
    columns = ["graph", "triples", "asked", "built-in", "fitted", "gain over relations", "mixed in", "minutes"]
    table = tables.Table("", columns, [])
    for row in rows:
        found = [shown(row[name]["mrr"]) for name in ("shipped", "fitted")]
        gain = f"{row['gain']:+.3f} ± {row['error']:.3f}".replace("0.", ".")
        mixed = "no" if row["mixed"].startswith("no ") else "yes"
        asked = f"{row['queries']:,} queries, {row['split']}"
        table.rows.append([row["graph"], shown(row["triples"]), asked, *found, gain, mixed, shown(row["minutes"])])
    return table.markdown()


def trail_parts(record: str) -> str:
    """TRAIL without one of its parts on unseen graphs: mean and deviation over seeds."""
    columns = {"K = 1": "1", "K = 3": "3", "K = 30": "30", "K = all": "all", "3 + own 10": "3 + own 10"}
    table = tables.Table("", ["network", "seeds", *columns, "3 → 3 + 10 of one tail"], [])
    for network, own in rows_by_network(record).items():
        cells = [spread([row[of] for row in own]) for of in columns.values()]
        skewed = " → ".join(spread([row[of] for row in own]) for of in ("3, other tails", "3 + 10 of one tail"))
        table.rows.append([network, str(len(own)), *cells, skewed])
    return table.markdown()


def fold_parts() -> str:
    """TRAIL without one of its parts on the folds of NELL-One: mean and deviation over seeds."""
    folds = ["fold 0", "fold 1"]
    table = tables.Table("", ["network", "seeds", *folds], [])
    for network, own in rows_by_network("trail-fold-ablations").items():
        table.rows.append([network, str(len(own)), *(spread([row[fold] for row in own]) for fold in folds)])
    return table.markdown()


def rows_by_network(record: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of a record of networks with a part left out, a row for each seed."""
    rows = results_of(record)["rows"]
    networks: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        networks.setdefault(row["network"], []).append(row)
    return networks


def own_training() -> str:
    """TRAIL on unseen graphs before and after a training on the rest of each: the mean over graphs."""
    rows = results_of("own-training")["rows"]
    graphs = dict.fromkeys(row["graph"] for row in rows)

    def over_graphs(size: str, after: bool) -> float:
        return mean([mean([row["mrr"][size][after] for row in rows if row["graph"] == graph]) for graph in graphs])

    before, after = ([over_graphs(size, trained) for size in REFERENCES] for trained in (False, True))
    shares = [f"{100 * b / a:.0f} %" for b, a in zip(before, after, strict=True)]
    labels = ["built-in weights", "fine-tuned on the rest of the graph", "share"]
    cells = [*([tables.figure(each) for each in row] for row in (before, after)), shares]
    columns = ["TRAIL", *(f"K = {size}" for size in REFERENCES)]
    return tables.Table("", columns, [[label, *row] for label, row in zip(labels, cells, strict=True)]).markdown()


def overlap() -> str:
    """The graphs that have triples in common with graphs that TRAIL was trained on."""
    counts: dict[str, dict[str, list[int]]] = {}
    for row in results_of("overlap")["overlap"]:
        kinds = {"asked": ["asked"], "test": ["all", "asked"]}.get(row["part"], ["all"])
        for kind in kinds:
            sums = counts.setdefault(row["graph"], {}).setdefault(kind, [0, 0, 0])
            for place, column in enumerate(("triples", "in training graphs", "joined in training graphs")):
                sums[place] += row[column]
    shared = ["in training graphs", "joined there"]
    table = tables.Table("", ["graph", "triples", *shared, "asked", *(f"asked, {each}" for each in shared)], [])
    for graph, of in counts.items():
        if of["all"][2]:
            table.rows.append([graph, *(f"{count:,}" for kind in ("all", "asked") for count in of[kind])])
    return table.markdown()


def overlap_mrr() -> str:
    """The MRR of triples of CoDEx-S that TRAIL's training graphs have, and of the others."""
    rows = results_of("overlap")["codex-s, test"]
    parts = dict.fromkeys(row["part"] for row in rows)
    counts = {row["part"]: row["triples"] for row in rows}
    table = tables.Table("", ["model", *(f"{part} ({counts[part]:,})" for part in parts)], [])
    for model in dict.fromkeys(row["model"] for row in rows):
        own = {row["part"]: row["mrr"] for row in rows if row["model"] == model}
        table.rows.append([model, *(spread([own[part]]) for part in parts)])
    return table.markdown()


def trail_figures(model: str) -> str:
    """The records of a version of TRAIL on every benchmark: mean and deviation over seeds."""
    columns = [
        "benchmark",
        "K",
        *(f"test `{protocol}`" for protocol in tables.PROTOCOLS),
        "Hits@1 `full`",
        "dev `full`",
    ]
    table = tables.Table("", columns, [])
    for name in BENCHMARKS:
        records = select(read_records(ROOT / "results" / name), model=model, references="first")
        for shots in sorted({record.shots for record in records}):
            test, dev = (select(records, shots=shots, split=split) for split in ("test", "dev"))
            cells = [spread(values(select(test, candidates=protocol))) for protocol in tables.PROTOCOLS]
            cells += [spread(values(select(test, candidates="full"), "hits@1"))]
            table.rows.append([name, str(shots), *cells, spread(values(select(dev, candidates="full")))])
    return table.markdown() if table.rows else NOTHING_STORED


def transfer() -> str:
    """Each benchmark with weights of TRAIL 0.2 trained on the others, beside those trained on all and other models."""
    lines = read_tries("trail-0.2/transfer.jsonl")
    rows = [row for row in lines if row["split"] == "test" and row["weights"] == "without"]
    table = tables.Table(
        "", ["benchmark", "trained on all five", "on the other four", "share", "ComplEx", "`rules`"], []
    )
    for name in BENCHMARKS:
        records = select(
            read_records(ROOT / "results" / name), split="test", shots=3, candidates="full", references="first"
        )
        whole = values(select(records, model="trail-0.2"))
        others = [row["metrics"]["micro"]["mrr"] for row in rows if row["benchmark"] == name]
        share = f"{100 * mean(others) / mean(whole):.0f} %"
        cells = [spread(found) if (found := values(select(records, model=m))) else "–" for m in ("complex", "rules")]
        table.rows.append([name, spread(whole), ", ".join(spread([other]) for other in others), share, *cells])
    return table.markdown()


def knowledge() -> str:
    """Where the models of the leaderboard are from, and what they have learnt from."""
    described = [rivals for rivals in read_plan("rivals").rivals if rivals.learnt]
    rows = [[", ".join(rivals.models), rivals.source, rivals.learnt] for rivals in described]
    return tables.Table("", ["models", "from", "learnt from"], rows).markdown()


def left_out() -> str:
    """Where the leaderboard's plan has fewer than all protocols and five seeds, and why."""
    rows = []
    for rivals in (rivals for rivals in read_plan("rivals").rivals if rivals.why):
        protocols = [", ".join(map(str, rivals.shots)), ", ".join(f"`{c}`" for c in rivals.candidates)]
        names = [", ".join(rivals.models), ", ".join(rivals.benchmarks)]
        rows.append([*names, *protocols, str(rivals.seeds), rivals.why])
    return tables.Table("", ["models", "benchmarks", "K", "candidates", "seeds", "why not more"], rows).markdown()


def weights_facts() -> str:
    """What the built-in weights are, in a line."""
    facts, count = shipped().facts, sum(tensor.numel() for tensor in shipped().weights.values())
    shape = ", ".join(f"{name.replace('_', ' ')} {size}" for name, size in facts["shape"].items())
    trained = f", {facts['step']:,} steps on {len(facts['graphs'])} graphs" if "step" in facts else ""
    return f"{count:,} parameters ({shape}){trained}; sha256 `{facts['sha256']}`.\n"


def weights_figures(folder: Path) -> str:
    """What the built-in weights reach on test, with and without names, from the records of these very weights."""
    records = [r for r in RecordStore(folder).records if (r.split, r.references) == ("test", "first")]
    records = [r for r in records if r.config.get("weights", {}).get("sha256") == shipped().facts["sha256"]]
    if not records:
        return NOTHING_STORED
    rows = []
    for benchmark, model, shots in sorted({(r.benchmark, r.model, r.shots) for r in records}):
        mine = select(records, benchmark=benchmark, model=model, shots=shots)
        cells = [spread(values(select(mine, candidates=p))) for p in tables.PROTOCOLS]
        rows.append([benchmark, f"`{model}`", str(shots), *cells])
    columns = ["benchmark, test", "model", "K", *(f"MRR `{protocol}`" for protocol in tables.PROTOCOLS)]
    return tables.Table("", columns, rows).markdown()


@functools.cache
def unseen() -> list[UnseenRecord]:
    return read_unseen(ROOT / "results" / "unseen-graphs")


def readme_table() -> str:
    """A row for each kind of model: its MRR on unseen graphs by the number of references, and on NELL-One.

    Of the unseen graphs, it has the relations that every model was asked about.
    """
    models, nell = of_shared_relations(complete(unseen())), main_records("nell-one")
    rows = []
    for model, label in IN_README.items():
        cells = [spread(over_graphs(models.get(model, []), size)) for size in REFERENCES]
        if any(row := [*cells, spread(values(select(nell, model=model)))]):
            rows.append([label, *row])
    head = ["model", *(f"K = {size}" for size in REFERENCES), "NELL-One, K = 3"]
    return tables.Table("", head, tables.emphasise(rows, range(1, len(head)))).markdown()


def leaderboard() -> str:
    """A row for each model of the leaderboard, the best on NELL-One first: 3-shot `full` MRR on every benchmark."""
    models = read_plan("rivals").names
    of_graph = [main_records(name) for name in GRAPHS]
    figures = {model: [values(select(records, model=model)) for records in of_graph] for model in models}
    order = sorted(models, key=lambda model: [-mean(cell) if cell else 1 for cell in figures[model]])
    rows = [[model, *map(spread, figures[model])] for model in order if any(figures[model])]
    return tables.Table("", ["model", *GRAPHS.values()], tables.emphasise(rows, range(1, 1 + len(GRAPHS)))).markdown()


def main_records(benchmark: str) -> list[Record]:
    """The records of a benchmark under the main protocol: test, three references, `full`."""
    records = read_records(ROOT / "results" / benchmark)
    return select(records, split="test", shots=3, candidates="full", references="first")


def leaderboards() -> str:
    """A table of every protocol for each benchmark of the leaderboard."""
    store, plan, sections = RecordStore(ROOT / "results"), read_plan("rivals"), []
    for name in dict.fromkeys(name for rivals in plan.rivals for name in rivals.benchmarks):
        records = select(store.records, benchmark=name, split="test", shots=3, references="first")
        relations, queries = len(records[0].relations), records[0].queries
        size = f"{relations} test relation{'s' * (relations > 1)}, {queries:,} queries for K = 3."
        sections.append(f"### {name}\n\n{size}\n\n{tables.leaderboard(store, name, plan.names).markdown()}")
    return "\n".join(sections)


def attack_tables() -> str:
    """The tables of the study `attack`."""
    store = RecordStore(ROOT / "results" / "attack-2023")
    shown = stored_tables(store, read_plan("attack").shots, frozen_attack())
    return "\n".join(f"### {table.title[0].upper()}{table.title[1:]}\n\n{table.markdown()}" for table in shown)


# Documents that are committed


@functools.cache
def stored(benchmark: str) -> RecordStore:
    return RecordStore(ROOT / "results" / benchmark)


def stored_figure(query: str) -> str:
    """A figure by its query.

    `[BENCHMARK/]MODEL SPLIT CANDIDATES K [METRIC [AVERAGE]]`: from records, on NELL-One by default.
    `SELECTION MODEL METRIC`: what learning curves have on test at the step that is selected so.
    `calibration FACT`: of the calibration that comes with fewlink.
    `unseen MODEL K`: MRR on unseen graphs, the mean over graphs; `shared MODEL K`: on relations that all models have.
    `reading NAME SPLIT [METRIC [CHOICE]]`: MRR, or another metric, of a reading of the paper at the step that is best
    on dev, or as `CHOICE` says: best on `test`, or the mean of the `five` best.
    `silhouette MODEL RELATION`: of a relation's true and false pairs in the space of a model, on NELL-One.
    """
    first, *words = query.split()
    if first == "calibration":
        facts = shipped_calibration()
        return {
            "count": f"{facts.count:,}",
            "relations": str(facts.relations),
            "first": f"{facts.first_error:.2f}".lstrip("0"),
            "over relations": f"{facts.over_relations:.2f}".lstrip("0"),
        }[" ".join(words)]
    if first in ("unseen", "shared"):
        model, size = words
        models = complete(unseen())
        return spread(over_graphs((of_shared_relations(models) if first == "shared" else models)[model], size))
    if first == "reading":
        name, split, metric, choice = (*words, *("mrr", "dev")[len(words) - 2 :])
        return spread([figures_of(curve, split, choice)[metric] for curve in curves_of_reading(name)])
    if first == "silhouette":
        model, relation = words
        maps = stored("nell-one").maps
        return spread([each.silhouette for each in maps if (each.model, each.relation) == (model, relation)])
    if first in SELECTIONS:
        model, metric = words
        return spread([SELECTIONS[first](curve)[metric] for curve in stored("nell-one").curves if curve.model == model])
    benchmark, _, model = first.rpartition("/")
    split, candidates, shots, *metric = words
    records = stored(benchmark or "nell-one").records
    seeds = select(records, model=model, split=split, candidates=candidates, shots=int(shots), references="first")
    if not seeds:
        raise SystemExit(f"no record has the figure <!--={query}-->")
    return spread(values(seeds, *metric))


def curves_of_reading(name: str) -> list[ReadingCurve]:
    """The stored curves of a reading of the paper on NELL-One."""
    plan, every = read_plan("readings"), stored("nell-one").read(ReadingCurve)
    return curves_of(plan, resolve(plan, name), every, CATALOGUE["nell-one"].fingerprint or "")


def with_figures(text: str) -> str:
    """A text in which each figure before `<!--=QUERY-->` is the stored one."""
    figure = re.compile(r"(?:\?|[\d.,]+(?: ± [\d.]+)?)<!--=(.+?)-->", re.DOTALL)  # a query may be broken over lines
    return figure.sub(lambda m: f"{stored_figure(m[1])}<!--={m[1]}-->", text)


def with_tables(text: str, contents: Mapping[str, str]) -> str:
    """A text with each content between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""
    for name, content in contents.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"no place for the table '{name}': {begin} {end}")
        text = f"{before}{begin}\n{content}{end}{after}"
    return text


def documents() -> dict[Path, str]:
    """The committed files with figures, as they should be."""
    ends = ("graph", "wrong ends", "relations", "triples", AREA)
    contents = {
        ROOT / "README.md": {"results": readme_table()},
        DOCS / "leaderboard.md": {"leaderboard": leaderboard()},
        DOCS / "unseen-graphs.md": {
            **{name: table.markdown() for name, table in tables_of(unseen()).items()},
            "overlap": overlap(),
            "overlap-mrr": overlap_mrr(),
        },
        DOCS / "findings.md": {},
        DOCS / "fsrl.md": {},
        DOCS / "between.md": {"between": stored_study("between")[0].markdown()},
        DOCS / "trail-0.1.md": {},
        DOCS / "concepts" / "calibration.md": {
            "references": record_table("calibration", "by references", ("references", *ERRORS)),
            "choice": record_table("calibration", "by choice", ("references", *ERRORS)),
            "names": record_table("calibration", "by names", ("names", *ERRORS)),
        },
        DOCS / "training.md": {"mixing": mixing()},
        DOCS / "attack.md": {"study": f"\n{attack_tables()}\n"},
        DOCS / "trail.md": {
            "few-shot": few_shot(),
            "links": ordinary_links(),
            "parts": trail_parts("trail-ablations"),
            "training-parts": trail_parts("trail-training-ablations"),
            "fold-parts": fold_parts(),
            "own": own_training(),
            **{name: tables_of(unseen())[name].markdown() for name in ("mrr", "skewed")},
        },
        DOCS / "trail-0.2.md": {
            "figures": trail_figures("trail-0.2"),
            "transfer": transfer(),
            "parts": without_parts(),
            "names": record_table("names", "rows", NAMES, TRIES_0_2, kind="3 references"),
        },
        DOCS / "curating.md": {
            "right": record_table("curation", "right", ("graph", *BY_DECISIONS)),
            "error": record_table("curation", "error", ("graph", *BY_DECISIONS)),
            "variants": record_table("curation", "right of variants", ("references", *BY_DECISIONS)),
            "variants-error": record_table("curation", "error of variants", ("references", *BY_DECISIONS)),
        },
        DOCS / "questions.md": {
            "check": record_table("check", "measured", ends),
            "relations": record_table("relations", "measured", ("graph", "relations", "triples", "MRR", "Hits@1")),
            "sets": record_table("answer_sets", "measured", SIZES, level=0.9),
        },
        ROOT / "src" / "fewlink" / "builtin" / "trail.md": {
            "facts": weights_facts(),
            "figures": weights_figures(ROOT / "results"),
        },
    }
    texts = {path: with_tables(with_figures(path.read_text("utf-8")), own) for path, own in contents.items()}
    nell, links = (read_records(ROOT / "results" / name) for name in ("nell-one", "fb15k-237"))
    texts[ROOT / "src" / "fewlink" / "recipes" / "measured.json"] = by_recipe(nell, links)
    return texts


def reliability_chart() -> LineChart:
    """The share of right first answers against their probability, and the diagonal."""
    bins = shipped_calibration().first_bins
    points = [Point(each.predicted, each.observed, 0.0) for each in bins if each.count]
    series = {"first answers": points, "perfect": [Point(0.0, 0.0, 0.0), Point(1.0, 1.0, 0.0)]}
    return LineChart("Probabilities on graphs that were left out", series, "probability", "share of right answers")


def pictures() -> dict[str, Chart]:
    """The committed pictures by file name."""
    return {
        "calibration.svg": reliability_chart(),
        "few-shot-size.svg": shots_chart(),
        "program.svg": program_chart(),
        "unseen-graphs.svg": curve_chart(unseen(), IN_CURVES),
        **pair_maps(),
    }


def shots_chart() -> LineChart:
    """The paper's figure "Impact of few-shot size" for FSRL and GMatching, with TRAIL beside them."""
    records = select(read_records(ROOT / "results" / "nell-one"), split="test", candidates="full", references="first")
    models = ("fsrl", "gmatching-maxp", "trail-no-names")
    return LineChart("NELL-One, test, full candidates", shots_lines(records, models, "mrr"), "references (K)", "MRR")


def program_chart() -> LineChart:
    """The MRR of the authors' program as it trains, in the lists that it draws negatives from and in other lists."""
    series = {}
    for lists, name in (("its lists", PROGRAM), ("other lists", PROGRAM.removesuffix("+lists-released"))):
        curves = curves_of_reading(name)
        for split in ("test", "dev"):
            at_steps = zip(
                *([(point.step, getattr(point, split)["mrr"]) for point in c.points] for c in curves), strict=True
            )
            found = [(steps[0][0], [mrr for _, mrr in steps]) for steps in at_steps]
            series[f"{split}, {lists}"] = [Point(step / 1000, mean(own), stdev(own)) for step, own in found]
    return LineChart("The authors' program on NELL-One", series, "thousand steps", "MRR")


def pair_maps() -> dict[str, ScatterChart]:
    """The paper's figure of pair embeddings: a picture for each relation and model with a stored map."""
    maps = RecordStore(ROOT / "results" / "nell-one").maps
    chosen = [each for each in maps if each.model in read_plan("embedding").models]
    return {
        f"map-{each.relation.split(':')[-1]}-{each.model}.svg": ScatterChart(
            f"{each.relation.split(':')[-1]}, {each.model}", each.points
        )
        for each in chosen
    }


def study_tables(name: str) -> str:
    """The tables of a study of NELL-One, from its stored records."""
    shown = [f"### {table.title}\n\n{table.markdown()}" for table in stored_study(name) if table.rows]
    return "\n".join(shown) or NOTHING_STORED


def stored_study(name: str) -> Sequence[tables.Table]:
    fingerprint = CATALOGUE["nell-one"].fingerprint or ""
    stored = StoredBenchmark("nell-one", fingerprint, FewlinkError("only stored records are shown"))
    workspace = Workspace(stored, ROOT / "results" / "nell-one", ROOT / "runs")
    return open_study(name).show(read_plan(name), workspace).tables


# Pages that only the site has


def results_page() -> str:
    """docs/site/results.md with its tables."""
    nell, links = (read_records(ROOT / "results" / name) for name in ("nell-one", "fb15k-237"))
    curves = RecordStore(ROOT / "results" / "nell-one").curves
    trained = [r for r in nell if r.model in families()["embedding"].models and "measured" in r.config]
    seconds = {(r.model, r.shots, r.seed): r.config["measured"]["seconds"] for r in trained}
    contents = {
        "embedding runs": str(len(seconds)),
        "embedding minutes": f"{sum(seconds.values()) / 60:.0f}",
        "overall": overall(nell),
        "by relation": by_relation(nell),
        "by shots": tables.by_shots(nell).markdown(),
        "by draws": tables.by_draws(nell).markdown(),
        "ablations": ablations(nell),
        "selection": by_selection(curves, read_plan("selection").published["nell-one"]).markdown(),
        "readings": study_tables("readings"),
        "between": study_tables("between"),
        "carved": carved(),
        "fb15k-237 links": tables.links(links).markdown(),
        "codex-s links": tables.links(read_records(ROOT / "results" / "codex-s")).markdown(),
        "leaderboards": leaderboards(),
        "models": knowledge(),
        "left out": left_out(),
        "ultra": record_table("ultra-links", "rows", ("graph", "weights", "triples", "mrr", "hits@1", "hits@10")),
        "trix": record_table("trix-links", "rows", ("graph", "weights", "triples", "mrr", "hits@1", "hits@10")),
    }
    return filled("results.md", contents)


def trials_page() -> str:
    """docs/site/trials.md with its tables."""
    contents = {
        "tries": tries(),
        "by references": tries_by_references(),
        "fine-tuning": tries_of_fine_tuning(),
        "trace": tries_of_trace(),
        "rounds": tries_on_test(),
        "tuning": tries_of_tuning(),
        "tries of 0.2": tries_0_2(),
    }
    return filled("trials.md", contents)


def filled(name: str, contents: Mapping[str, str]) -> str:
    """A page of docs/site with the content of each `{{NAME}}`."""
    text = (DOCS / "site" / name).read_text("utf-8")
    return re.sub(r"\{\{(.+?)\}\}", lambda match: contents[match[1]], text)


def write_site_pages() -> None:
    """Write the pages and pictures that are not committed; the Sphinx build calls this first."""
    speed = summary.read_records(ROOT / "benchmarks" / "records")
    pages = {
        "results.md": results_page(),
        "trials.md": trials_page(),
        "speed.md": speed_page.page(speed),
        "commands.md": command_reference.page(),
        **{f"pictures/{name}": svg for name, svg in speed_page.pictures(speed).items()},
    }
    for name, text in pages.items():
        path = DOCS / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill the figures and tables of the documents from stored records.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if a figure or table is not as stored"
    )
    check = parser.parse_args().check
    stale = {path: text for path, text in documents().items() if path.read_text("utf-8") != text}
    if check:
        sys.exit(f"stale: {', '.join(path.name for path in stale)}; run make docs" if stale else 0)
    for path, text in stale.items():
        path.write_text(text, "utf-8")
    for name, chart in pictures().items():
        (DOCS / "pictures" / name).write_text(chart.svg(), "utf-8")
    print(f"written: {', '.join(path.name for path in stale) or 'nothing had changed'}")


if __name__ == "__main__":
    main()
