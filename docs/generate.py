"""Write docs/results.md and README's table from the stored records.

python docs/generate.py [--check]
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fewlink.evaluation.records import Record, read_records
from fewlink.recipes import recipe_texts

ROOT = Path(__file__).resolve().parent.parent
LEARNING_FREE = ("random", "popularity", "reference-tails", "rules")
EMBEDDINGS = ("rescal", "transe", "distmult", "complex")
FEW_SHOT = (
    *("gmatching-maxp", "gmatching-meanp", "gmatching-max"),
    *("fsrl", "fsrl-as1", "fsrl-as2a", "fsrl-as2b", "fsrl-as2c", "fsrl-as3", "fsrl-released", "fsrl-tuned"),
)
MODELS = (*LEARNING_FREE, *EMBEDDINGS, *FEW_SHOT)
COLUMNS = {"MRR": "mrr", "Hits@10": "hits@10", "Hits@5": "hits@5", "Hits@1": "hits@1"}
README_MARKS = ("<!-- results: begin -->", "<!-- results: end -->")


def spread(values: Sequence[float]) -> str:
    """`.312 ± .014`, or the plain figure where there is one value or no spread."""
    mean = f"{statistics.fmean(values):.3f}".lstrip("0")
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{mean} ± {deviation:.3f}".replace("± 0.", "± .") if deviation else mean


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(['---'] * len(head))}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def chosen(records: list[Record], **wanted: Any) -> list[Record]:
    return [r for r in records if all(getattr(r, key) == value for key, value in wanted.items())]


def figures(records: list[Record], average: str = "micro") -> list[str]:
    return [spread([r.metrics[average][metric] for r in records]) for metric in COLUMNS.values()]


def mrr(records: list[Record]) -> str:
    return spread([r.metrics["micro"]["mrr"] for r in records]) if records else ""


def overall(records: list[Record], paper: dict[str, Any]) -> str:
    """NELL-One, K = 3: every model under every protocol, with the paper's figures."""
    parts = []
    for split in ("test", "dev"):
        rows = []
        for model in MODELS:
            for protocol in ("paper", "full", "open"):
                found = chosen(records, model=model, split=split, shots=3, candidates=protocol, references="first")
                if found:
                    macro = spread([r.metrics["macro"]["mrr"] for r in found])
                    rows.append([model, protocol, str(len(found)), *figures(found), macro])
            if model in paper:
                rows.append([f"*{model}, as published*", "*paper*", "", *published(paper[model][split]), ""])
        parts.append(f"### {split}\n\n" + table(["model", "candidates", "seeds", *COLUMNS, "macro MRR"], rows))
    return "\n".join(parts)


def published(row: dict[str, float]) -> list[str]:
    return [f"*{row[metric]:.3f}*".replace("*0.", "*.") for metric in COLUMNS.values()]


def by_shots(records: list[Record]) -> str:
    rows = []
    for model in MODELS:
        cells = []
        for shots in (1, 3, 5):
            found = chosen(records, model=model, split="test", shots=shots, candidates="full", references="first")
            cells.append(mrr(found))
        if sum(map(bool, cells)) > 1:
            rows.append([model, *cells])
    return table(["model", "K = 1", "K = 3", "K = 5"], rows)


def by_draws(records: list[Record]) -> str:
    rows = []
    for model in MODELS:
        found = [
            r for r in chosen(records, model=model, split="test", shots=3, candidates="full") if "draw" in r.references
        ]
        if found:
            rows.append([model, str(len(found)), *figures(found)])
    return table(["model", "draws", *COLUMNS], rows)


def links(records: list[Record]) -> str:
    rows = [[r.model, r.split, f"{r.queries:,}", *figures([r]), r.hardware] for r in records]
    return table(["model", "split", "queries", *COLUMNS, "hardware"], rows)


def benchmarks(folder: Path) -> str:
    """The tables that the benchmark scripts recorded."""
    parts = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        rows = record["results"].get("rows", [])
        if rows:
            cells = [[_cell(value) for value in row.values()] for row in rows]
            parts.append(f"### {path.stem}\n\n" + table(list(rows[0]), cells))
            for name in ("whole test split, full", "against the limits"):
                if more := record["results"].get(name):
                    more = more if isinstance(more, list) else [more]
                    parts.append(
                        f"{name}:\n\n" + table(list(more[0]), [[_cell(v) for v in row.values()] for row in more])
                    )
            ratios = {k: v for k, v in record["results"].items() if k.endswith("ratio")}
            parts.extend(f"{name.replace('_', ' ')}: {value:.1f} ×\n" for name, value in ratios.items())
    return "\n".join(parts)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def in_short(records: list[Record]) -> list[list[str]]:
    """A row a model: its MRR under each protocol."""
    rows = []
    for model in MODELS:
        asked = chosen(records, model=model, split="test", shots=3, references="first")
        found = [chosen(asked, candidates=protocol) for protocol in ("paper", "full", "open")]
        rows.append([model, *map(mrr, found)])
    return rows


def by_recipe(nell: list[Record], plain: list[Record]) -> str:
    """What each recipe reached, for `fewlink recipes`."""
    found: dict[str, dict[str, str]] = {}
    for record in plain:
        figure = spread([record.metrics["micro"]["mrr"]])
        found[record.config["recipe"]] = {f"{record.benchmark} {record.split}, filtered MRR": figure}
    for name in recipe_texts():
        mine = [r for r in nell if name in (r.config.get("recipe"), r.model) and r.split == "test" and r.shots == 3]
        for protocol in ("paper", "full", "open"):
            if records := chosen(mine, candidates=protocol):
                what = f"nell-one test, K = 3, {protocol}, MRR over {len(records)} seeds"
                found.setdefault(name, {})[what] = mrr(records)
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def documents() -> dict[Path, str]:
    """What each generated document should hold."""
    nell = read_records(ROOT / "results" / "nell-one")
    paper = json.loads((ROOT / "docs" / "paper.json").read_text("utf-8"))["figures"]
    runs = {(r.model, r.shots, r.seed): r.config["measured"]["seconds"] for r in nell if "measured" in r.config}
    minutes = sum(runs.values()) / 60
    text = f"""# Results

Generated by `make docs` from the records under `results/` and `benchmarks/records/`; do not edit. How everything is
measured: [protocol.md](protocol.md). Figures are means ± standard deviation over training seeds; learning-free scorers
have none. Each record holds the command that makes it again.

## NELL-One, K = 3

Settings were chosen on dev and on a fold of the train relations; test was evaluated once with the chosen ones. The four
embedding models were trained {len(runs)} times in all, {minutes:.0f} minutes on a GPU that up to 14 runs shared. *As
published* rows are the paper's own figures, beside the protocol nearest to theirs.

The few-shot models look at vectors that were pretrained once, on the background (100-dimensional ComplEx) or, for
`fsrl-tuned`, on background and train relations (TransE); their seeds are those of meta-training. FSRL, its ablations
and GMatching have the paper's settings and at most 6,000 steps, `fsrl-released` those of the authors' program and at
most 40,000; each run keeps the step with the best dev MRR under `full`, and stops after ten evaluations, 500 steps
apart, without a better one (`gmatching-max`: 1,000 apart; `fsrl-tuned`, as its recipe says, chosen under `paper`). Why
the faithful models do not reach the published figure, and what does: [fsrl.md](fsrl.md).

{overall(nell, paper)}
## NELL-One, test, MRR under `full` by number of references

{by_shots(nell)}
## NELL-One, test, K = 3, `full`: other references

{by_draws(nell)}
## FB15k-237, ordinary link prediction

Filtered, both directions, all entities as candidates; shows that the embedding trainer is sound.

{links(read_records(ROOT / "results" / "fb15k-237"))}
## Speed and memory

{benchmarks(ROOT / "benchmarks" / "records")}"""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text("utf-8").partition(README_MARKS[0])
    _, _, after = rest.partition(README_MARKS[1])
    middle = table(["NELL-One test, K = 3, MRR", "`paper`", "`full`", "`open`"], in_short(nell))
    plain = read_records(ROOT / "results" / "fb15k-237")
    return {
        ROOT / "src" / "fewlink" / "recipes" / "measured.json": by_recipe(nell, plain),
        ROOT / "docs" / "results.md": text,
        readme: f"{before}{README_MARKS[0]}\n{middle}{README_MARKS[1]}{after}",
    }


def main() -> None:
    stale = [path for path, text in documents().items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(p.name for p in stale)}; run make docs" if stale else 0)
    for path, text in documents().items():
        path.write_text(text, "utf-8")
    print(f"written: {', '.join(p.name for p in stale) or 'nothing had changed'}")


if __name__ == "__main__":
    main()
