"""Write docs/results.md, leaderboard.md, findings.md, speed.md and its pictures, commands.md, and README's table.

Also the figures of recipes and weights. Figures come from stored records, the reference of commands from the commands.

python docs/generate.py [--check]
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from fewlink.core.recipes import recipe_texts
from fewlink.evaluation.records import LearningCurve, Record, RecordStore, read_records
from fewlink.linker.calibration import shipped_calibration
from fewlink.models import families
from fewlink.models.trail.learner import TrailSettings, network_of
from fewlink.models.trail.shipped import NAME, shipped
from fewlink.studies import charts, published_figures, read_plan, tables
from fewlink.studies.attack import frozen_attack
from fewlink.studies.attack_tables import stored_tables
from fewlink.studies.tables import SELECTIONS, by_selection, select, spread, values

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "docs" / "site")]

import command_reference  # noqa: E402

import page  # noqa: E402
import summary  # noqa: E402

COMPARED = ("gmatching-maxp", "fsrl", "complex", "trail-0.1", "trail")  # relation by relation
CARVED = ("fb15k-237-few", "codex-s-few")
BENCHMARKS = ("nell-one", *CARVED, "attack-few", "umls")  # of TRAIL

IN_README = {
    "popularity": "popularity",
    "rules": "rules (paths)",
    "complex": "ComplEx",
    "fsrl": "FSRL (2020)",
    "metar-in-train": "MetaR (2019)",
    "gana": "GANA (2021)",
    "ultra-50g": "ULTRA (2024)",
    "trail": "**TRAIL** (fewlink)",
}
GRAPHS = {
    "nell-one": "NELL-One",
    "fb15k-237-few": "FB15k-237",
    "codex-s-few": "CoDEx-S",
    "umls": "UMLS",
    "attack-few": "ATT&CK",
}

ADJUSTED = ("graph", "relations of", "relations", "probabilities", "log loss", "Brier", "error", "error of first")
AREA = "area, mean of relations"
SIZES = ("coverage", "mean size", "median size")
NAMES = ("relations", "queries", "MRR of TRAIL", "names, graph left out", "names, as shipped")


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
    """What each recipe reached, for `fewlink recipes`."""
    figures: dict[str, dict[str, str]] = {}
    for record in plain:
        figures[record.config["recipe"]] = {
            f"{record.benchmark} {record.split}, filtered MRR": spread(values([record]))
        }
    for name in recipe_texts():
        of_recipe = [r for r in nell if name in (r.config.get("recipe"), r.model)]
        for protocol in tables.PROTOCOLS:
            if records := select(of_recipe, split="test", shots=3, references="first", candidates=protocol):
                what = f"nell-one test, K = 3, {protocol}, MRR over {len(records)} seeds"
                figures.setdefault(name, {})[what] = spread(values(records))
    return json.dumps(figures, indent=1, ensure_ascii=False) + "\n"


def tries() -> str:
    """What was tried for TRAIL on folds."""
    place = ROOT / "benchmarks" / "tries" / "nell-one.jsonl"
    rows = [json.loads(line) for line in place.read_text("utf-8").splitlines()]
    table = tables.Table("", ["idea", "expected", "steps", "fold 0", "fold 1", "kept?"], [])
    for row in rows:
        figures = dict(zip(row["folds"], row["micro_mrr"], strict=True))
        cells = [f"{figures[fold]:.3f}".lstrip("0") if fold in figures else "–" for fold in (0, 1)]
        table.rows.append([row["idea"], row["expected"], f"{row['steps'] or '–'}", *cells, row["kept"]])
    return table.markdown()


def without_parts() -> str:
    """TRAIL without one of its parts, on the held-out relations of each fold and on test."""
    lines = (ROOT / "benchmarks" / "tries" / "ablation.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    table = tables.Table("", ["network", "fold 0", "fold 1", "test"], [])
    for variant in dict.fromkeys(row["variant"] for row in rows):
        own = [row for row in rows if row["variant"] == variant]
        groups = [[row for row in own if row["fold"] == fold] for fold in (0, 1)]
        cells = [spread([row["metrics"]["folds"]["micro"]["mrr"] for row in group]) for group in groups]
        table.rows.append([variant, *cells, spread([row["metrics"]["test"]["micro"]["mrr"] for row in own])])
    return table.markdown()


def trail_picture(figure: str, setting: Callable[[dict[str, Any]], float], title: str, x_label: str) -> str:
    """A chart of the MRR on each fold against a setting, from the tries that belong to this figure."""
    place = ROOT / "benchmarks" / "tries" / "nell-one.jsonl"
    rows = [row for row in map(json.loads, place.read_text("utf-8").splitlines()) if figure in row.get("figure", "")]
    series = {}
    for fold in (0, 1):
        found: dict[float, list[float]] = {}
        for row in rows:
            found.setdefault(setting(row), []).append(row["micro_mrr"][fold])
        series[f"fold {fold}"] = [charts.Point(x, *tables.moments(values)) for x, values in sorted(found.items())]
    return charts.standalone(charts.lines(series, title=title, x_label=x_label, y_label="MRR, K = 3, full"))


def record_table(name: str, part: str, columns: Sequence[str], **only: Any) -> str:
    """Columns of the rows of a benchmark's record, those with these values."""
    rows = json.loads((ROOT / "benchmarks" / "records" / f"{name}.json").read_text("utf-8"))["results"][part]
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


def parameters(row: dict[str, Any]) -> float:
    """How many parameters the network of a try has."""
    settings = TrailSettings().adjusted([f"{name}={value}" for name, value in row["settings"].items()])
    return float(sum(p.numel() for p in network_of(settings).parameters()))


def trail_figures() -> str:
    """TRAIL's records on every benchmark: mean and deviation over seeds."""
    columns = [
        "benchmark",
        "K",
        *(f"test `{protocol}`" for protocol in tables.PROTOCOLS),
        "Hits@1 `full`",
        "dev `full`",
    ]
    table = tables.Table("", columns, [])
    for name in BENCHMARKS:
        records = select(read_records(ROOT / "results" / name), model="trail", references="first")
        for shots in sorted({record.shots for record in records}):
            test, dev = (select(records, shots=shots, split=split) for split in ("test", "dev"))
            cells = [spread(values(select(test, candidates=protocol))) for protocol in tables.PROTOCOLS]
            cells += [spread(values(select(test, candidates="full"), "hits@1"))]
            table.rows.append([name, str(shots), *cells, spread(values(select(dev, candidates="full")))])
    return table.markdown()


def transfer() -> str:
    """Each benchmark with the weights trained on the others, beside those trained on all and other models."""
    lines = (ROOT / "benchmarks" / "tries" / "transfer.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["split"] == "test" and row["weights"] == "without"]
    table = tables.Table(
        "", ["benchmark", "trained on all five", "on the other four", "share", "ComplEx", "`rules`"], []
    )
    for name in BENCHMARKS:
        records = select(
            read_records(ROOT / "results" / name), split="test", shots=3, candidates="full", references="first"
        )
        whole = values(select(records, model="trail"))
        others = [row["metrics"]["micro"]["mrr"] for row in rows if row["benchmark"] == name]
        share = f"{100 * mean(others) / mean(whole):.0f} %"
        cells = [spread(found) if (found := values(select(records, model=m))) else "–" for m in ("complex", "rules")]
        table.rows.append([name, spread(whole), ", ".join(spread([other]) for other in others), share, *cells])
    return table.markdown()


def leaderboards() -> str:
    """A table for each benchmark of the leaderboard."""
    store, plan, parts = RecordStore(ROOT / "results"), read_plan("rivals"), []
    for name in dict.fromkeys(name for rivals in plan.rivals for name in rivals.benchmarks):
        records = select(store.records, benchmark=name, split="test", shots=3, references="first")
        relations, queries = len(records[0].relations), records[0].queries
        size = f"{relations} test relation{'s' * (relations > 1)}, {queries:,} queries for K = 3."
        parts.append(f"## {name}\n\n{size}\n\n{tables.leaderboard(store, name, plan.names).markdown()}")
    return "\n".join(parts)


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


def filled(template: str, records: list[Record], curves: list[LearningCurve]) -> str:
    """A text with `{{model split candidates K}}` replaced by the MRR of these records.

    `{{selection model metric}}` is what the model's learning curves have on test at the step that is selected so.
    """

    def figure(match: re.Match[str]) -> str:
        if (first := match[1].split()[0]) in SELECTIONS:
            _, model, metric = match[1].split()
            return spread([SELECTIONS[first](curve)[metric] for curve in curves if curve.model == model])
        model, split, candidates, shots, *metric = match[1].split()
        seeds = select(records, model=model, split=split, candidates=candidates, shots=int(shots), references="first")
        if not seeds:
            raise SystemExit(f"there is no record for {{{{{match[1]}}}}}")
        return spread(values(seeds, *metric))

    return re.sub(r"\{\{(.+?)\}\}", figure, template)


def with_parts(text: str, parts: dict[str, str]) -> str:
    """A text with each mark replaced by its part."""
    return functools.reduce(lambda text, part: text.replace(*part), parts.items(), text)


def between(text: str, mark: str, middle: str) -> str:
    """A text with another part between `<!-- mark: begin -->` and `<!-- mark: end -->`."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{middle}{end}{after}"


def attack_page() -> str:
    """The page on ATT&CK with the tables of its study."""
    store = RecordStore(ROOT / "results" / "attack-2023")
    shown = stored_tables(store, read_plan("attack").shots, frozen_attack())
    middle = "\n".join(f"### {table.title[0].upper()}{table.title[1:]}\n\n{table.markdown()}" for table in shown)
    return between((ROOT / "docs" / "attack.md").read_text("utf-8"), "study", f"\n{middle}\n")


def reliability() -> str:
    """A chart of the share of right first answers against their probability, and the diagonal."""
    bins = shipped_calibration().first_bins
    points = [charts.Point(each.predicted, each.observed, 0.0) for each in bins if each.count]
    series = {"first answers": points, "perfect": [charts.Point(0.0, 0.0, 0.0), charts.Point(1.0, 1.0, 0.0)]}
    title = "Probabilities on graphs that were left out"
    return charts.standalone(charts.lines(series, title=title, x_label="probability", y_label="right"))


def calibration_page() -> str:
    """The page on probabilities, with the figures of the calibration that comes with fewlink."""
    facts = shipped_calibration()
    figures = {
        "{{count}}": f"{facts.count:,}",
        "{{relations}}": str(facts.relations),
        "{{over relations}}": f"{facts.over_relations:.2f}".lstrip("0"),
    }
    return with_parts((ROOT / "docs" / "concepts" / "calibration.in.md").read_text("utf-8"), figures)


def weights_facts() -> str:
    """What the shipped weights are, in a line."""
    facts, count = shipped().facts, sum(tensor.numel() for tensor in shipped().weights.values())
    shape = ", ".join(f"{name.replace('_', ' ')} {size}" for name, size in facts["shape"].items())
    trained = f", {facts['step']:,} steps on {', '.join(facts['graphs'])}" if "step" in facts else ""
    return f"{count:,} parameters ({shape}){trained}; sha256 `{facts['sha256']}`.\n"


def weights_figures(folder: Path) -> str:
    """What the shipped weights reach on test, from the records of these very weights."""
    places = sorted(path.parent for path in folder.glob(f"*/{NAME}.jsonl"))
    records = [r for place in places for r in select(read_records(place), model=NAME, split="test", references="first")]
    records = [r for r in records if r.config["weights"]["sha256"] == shipped().facts["sha256"]]
    if not records:
        return "These weights have no stored results yet.\n"
    rows = []
    for benchmark, shots in sorted({(r.benchmark, r.shots) for r in records}):
        mine = select(records, benchmark=benchmark, shots=shots)
        rows.append([benchmark, str(shots), *(spread(values(select(mine, candidates=p))) for p in tables.PROTOCOLS)])
    columns = ["benchmark, test", "K", *(f"MRR `{protocol}`" for protocol in tables.PROTOCOLS)]
    return tables.Table("", columns, rows).markdown()


def readme_table() -> str:
    """A row for each kind of model: its MRR on test of every benchmark, 3-shot `full`."""
    of_graph = [
        select(read_records(ROOT / "results" / name), split="test", shots=3, candidates="full", references="first")
        for name in GRAPHS
    ]
    rows = [
        [label, *(spread(found) if (found := values(select(r, model=model))) else "" for r in of_graph)]
        for model, label in IN_README.items()
    ]
    head = ["model", *GRAPHS.values()]
    return tables.Table("", head, tables.emphasise(rows, range(1, len(head)))).markdown()


def documents() -> dict[Path, str]:
    """The content of each generated document."""
    nell, plain = (read_records(ROOT / "results" / name) for name in ("nell-one", "fb15k-237"))
    curves = RecordStore(ROOT / "results" / "nell-one").curves
    trained = [r for r in nell if r.model in families()["embedding"].models and "measured" in r.config]
    runs = {(r.model, r.shots, r.seed): r.config["measured"]["seconds"] for r in trained}
    minutes = sum(runs.values()) / 60
    text = f"""# Results

Generated by `make docs` from the records under `results/`; do not edit. How everything is measured:
[protocol.md](protocol.md); what it means: [findings.md](findings.md). Figures are means ± standard deviation
over training seeds; learning-free scorers have none. The best figure of each kind of candidates is bold. Each record
holds the command that repeats it.

## NELL-One, K = 3

Settings were chosen on dev and on a fold of the train relations; test was evaluated once with the chosen ones. The four
embedding models were trained {len(runs)} times in all, {minutes:.0f} minutes on a GPU that up to 14 runs shared. *As
published* rows are the paper's own figures, beside the protocol nearest to theirs.

The few-shot models read vectors that were pretrained once, on the background (100-dimensional ComplEx) or, for
`fsrl-tuned`, on background and train relations (TransE); their seeds are those of meta-training. FSRL, its ablations
and GMatching have the paper's settings and at most 6,000 steps, `fsrl-released` those of the authors' program and at
most 40,000; each run keeps the step with the best dev MRR under `full`, and stops after ten evaluations, 500 steps
apart, without a better one (`gmatching-max`: 1,000 apart; `fsrl-tuned`, as its recipe says, chosen under `paper`). Why
the faithful models do not reach the published figure, and what does: [fsrl.md](fsrl.md). `trail`
needs no vectors: each seed was trained on the known part of five graphs at once, [trail.md](trail.md). The vectors of
`trail-0.1` were pretrained once too, on what is known and on three views of it: [trail-0.1.md](trail-0.1.md).

{overall(nell)}
## NELL-One, test, K = 3, `full`, relation by relation

{by_relation(nell)}
## NELL-One, test, MRR under `full` by number of references

{tables.by_shots(nell).markdown()}
## NELL-One, test, K = 3, `full`: other references

Random draws of the references; TRAIL with its first seed.

{tables.by_draws(nell).markdown()}
## NELL-One, test, K = 3, `full`: models without their parts

{ablations(nell)}
## NELL-One, test, K = 3, `paper`: what choosing on test is worth

The same five runs of each model, trained to their end and evaluated every 500 steps, at the step each choice keeps.

{by_selection(curves, read_plan("selection").published["nell-one"]).markdown()}
## Other graphs: tasks carved from FB15k-237 and CoDEx-S

`fewlink data carve` with its defaults; every model with the recipe that was chosen on NELL-One, nothing tuned again.

{carved()}
## FB15k-237, ordinary link prediction

Filtered, both directions, all entities as candidates; shows that the embedding trainer is sound.

{tables.links(plain).markdown()}
## CoDEx-S, ordinary link prediction

`fewlink links train.tsv --valid valid.tsv --test test.tsv` with its defaults, which it chooses by the graph: three
seeds. CoDEx's authors report .465 for ComplEx after a search over many settings.

{tables.links(read_records(ROOT / "results" / "codex-s")).markdown()}
How quick everything is, and what memory it takes: [speed.md](speed.md).
"""
    speed = summary.read_records(ROOT / "benchmarks" / "records")
    readme, template = ROOT / "README.md", ROOT / "docs" / "findings.in.md"
    trail = (ROOT / "docs" / "trail.in.md").read_text("utf-8")
    parts = {
        "{{tries}}": tries(),
        "{{figures}}": trail_figures(),
        "{{transfer}}": transfer(),
        "{{parts}}": without_parts(),
    }
    links = record_table("ultra-links", "rows", ("graph", "weights", "triples", "mrr", "hits@1", "hits@10"))
    board = {"{{ultra}}": links, "{{tables}}": leaderboards(), "{{models}}": knowledge(), "{{left out}}": left_out()}
    rivals = (ROOT / "docs" / "leaderboard.in.md").read_text("utf-8")
    curating = (ROOT / "docs" / "curating.in.md").read_text("utf-8")
    measured = {
        "{{curation}}": record_table("curation", "summary", ("bench", "policy", "relations", "accepted of 30", "gain")),
        "{{recalibration}}": record_table("recalibration", "measured", ADJUSTED),
        "{{check}}": record_table("check", "measured", ("graph", "wrong ends", "relations", "triples", AREA)),
        "{{relations}}": record_table("relations", "measured", ("graph", "relations", "triples", "MRR", "Hits@1")),
        "{{sets}}": record_table("answer_sets", "measured", ("left out", "graph", *SIZES), level=0.9),
        "{{names}}": record_table("names", "rows", ("graph", "part", *NAMES), kind="3 references"),
    }
    card = ROOT / "src" / "fewlink" / "builtin" / "trail.md"
    figures = weights_figures(ROOT / "results")
    return {
        ROOT / "src" / "fewlink" / "recipes" / "measured.json": by_recipe(nell, plain),
        ROOT / "docs" / "results.md": text,
        ROOT / "docs" / "speed.md": page.page(speed),
        ROOT / "docs" / "commands.md": command_reference.page(),
        **{ROOT / "docs" / "pictures" / name: picture for name, picture in page.pictures(speed).items()},
        ROOT / "docs" / "pictures" / "trail-steps.svg": trail_picture(
            "steps", lambda row: row["steps"], "What training brings", "training steps"
        ),
        ROOT / "docs" / "pictures" / "trail-parameters.svg": trail_picture(
            "width", parameters, "What a larger network brings", "parameters"
        ),
        ROOT / "docs" / "pictures" / "calibration.svg": reliability(),
        ROOT / "docs" / "concepts" / "calibration.md": calibration_page(),
        ROOT / "docs" / "trail.md": with_parts(trail, parts),
        ROOT / "docs" / "leaderboard.md": functools.reduce(
            lambda text, part: text.replace(*part), board.items(), rivals
        ),
        ROOT / "docs" / "curating.md": with_parts(curating, measured),
        ROOT / "docs" / "attack.md": attack_page(),
        ROOT / "docs" / "findings.md": filled(template.read_text("utf-8"), nell, curves),
        readme: between(readme.read_text("utf-8"), "results", readme_table()),
        card: between(between(card.read_text("utf-8"), "facts", weights_facts()), "figures", figures),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write the pages, pictures and tables that are made of records and commands."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if a file is not as it would be"
    )
    check = parser.parse_args().check
    stale = {p: text for p, text in documents().items() if not p.exists() or p.read_text("utf-8") != text}
    if check:
        sys.exit(f"stale: {', '.join(p.name for p in stale)}; run make docs" if stale else 0)
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    print(f"written: {', '.join(p.name for p in stale) or 'nothing had changed'}")


if __name__ == "__main__":
    main()
