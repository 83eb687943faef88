"""`fewlink study`: a table or figure of the paper, run where it is not finished, and shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fewlink.studies.plan import Plan
    from fewlink.studies.study import Shown


def study(
    context: typer.Context,
    name: str = typer.Argument(
        None, help="overall, relations, ablation, trail, shots, embedding, selection or datasets."
    ),
    bench: str = typer.Argument(None, metavar="[BENCH]", help="Another benchmark than the study's own, NELL-One."),
    plan: Path = typer.Option(None, help="A TOML file of the form of the study's recipe, in its place."),
    model: list[str] = typer.Option([], help="Only this model; may be given several times."),
    shots: list[int] = typer.Option([], "--shots", "-k", help="Only this number of references; several times."),
    seeds: int = typer.Option(None, help="How many seeds, instead of five."),
    tiny: bool = typer.Option(False, "--tiny", help="The same in seconds on built-in data, to see that it works."),
    todo: bool = typer.Option(False, "--todo", help="Only say what there is to run."),
    show_only: bool = typer.Option(False, "--show", help="Only show what is there."),
    results: Path = typer.Option(None, help="Folder of the records; results/BENCH by default."),
    work: Path = typer.Option(Path("runs/studies"), help="Folder for runs and vectors, to continue from."),
    out: Path = typer.Option(None, help="Also write the tables (Markdown) and pictures (SVG) into this folder."),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
    json: bool = typer.Option(False, "--json", help="Print the tables as JSON."),
) -> None:
    """Run a study of the paper and show it; without a name, list the studies.

    What has a record is not run again, and what was stopped continues.

    Example: `fewlink study overall --tiny`
    """
    from fewlink.base.errors import FewlinkError
    from fewlink.base.resolver import choose
    from fewlink.cli.common import epoch_reporter, reject_options, resolve_device, step_reporter
    from fewlink.data import open_benchmark
    from fewlink.studies.catalogue import STUDIES
    from fewlink.studies.catalogue import study as find
    from fewlink.studies.plan import read_plan
    from fewlink.studies.runner import Bench

    if name is None:
        _list(json)
        return
    choose("study", name, STUDIES)
    if tiny:
        reject_options(context, ("plan",), "cannot be given with --tiny, which has its own")
        if bench:
            raise FewlinkError("--tiny has its own benchmark: leave BENCH out")
    if todo and show_only:
        raise FewlinkError("--todo and --show: give one of them")
    whole = read_plan(str(plan) if plan else name)
    chosen = (whole.made_tiny() if tiny else whole).with_only(model, shots, seeds)
    benchmark = open_benchmark(bench or chosen.benchmark)
    folder = results or Path("runs/tiny" if tiny else "results") / benchmark.name
    where = Bench(
        benchmark,
        folder,
        work / benchmark.name,
        resolve_device(device),
        tell=lambda line: print(line, file=sys.stderr, flush=True),
        on_epoch=epoch_reporter,
        on_step=lambda title: step_reporter(title, chosen.seeds),
    )
    found = find(name)
    if todo:
        lines = found.todo(chosen, where)
        print("\n".join(lines) if lines else "nothing: all of it is finished")
        return
    if not show_only:
        try:
            found.run(chosen, where)
        except KeyboardInterrupt:
            print("stopped; the same command continues", file=sys.stderr)
            raise typer.Exit(130) from None
    shown = found.show(chosen, where)
    if out is not None:
        _write(shown, chosen, name, out)
    _print(shown, chosen, json)


def _list(json: bool) -> None:
    from fewlink.cli import common
    from fewlink.studies.catalogue import STUDIES
    from fewlink.studies.plan import read_plan

    plans = {name: read_plan(name) for name in STUDIES}
    if json:
        common.print_json([{"name": name, **plan.model_dump()} for name, plan in plans.items()])
        return
    common.print_table(["study", "what", "about"], [[n, p.title, p.about] for n, p in plans.items()])


def _print(shown: Shown, plan: Plan, json: bool) -> None:
    from fewlink.cli import common

    if json:
        tables = [{"title": t.title, "columns": t.columns, "rows": t.rows, "note": t.note} for t in shown.tables]
        common.print_json({"title": plan.title, "expect": plan.expect, "tables": tables})
        return
    print(f"{plan.title}\nexpected: {plan.expect}\n")
    for table in shown.tables:
        rows: list[list[Any]] = [[cell.replace("*", "") for cell in row] for row in table.rows]
        common.print_table([c.replace("`", "") for c in table.columns], rows, title=table.title)
        if table.note:
            print(f"{table.note}\n")


def _write(shown: Shown, plan: Plan, name: str, out: Path) -> None:
    """The study as a Markdown page with its pictures beside it."""
    from fewlink.base.storage import write_bytes
    from fewlink.report.charts import standalone

    out.mkdir(parents=True, exist_ok=True)
    parts = [f"# {plan.title}\n\n{plan.about}. Expected: {plan.expect}.\n"]
    parts += [f"## {table.title}\n\n{table.markdown()}" for table in shown.tables]
    for title, picture in shown.pictures.items():
        file = f"{name}-{title}.svg".replace("/", "-").replace(":", "-")
        write_bytes(out / file, standalone(picture).encode())
        parts.append(f"![{title}]({file})\n")
    write_bytes(out / f"{name}.md", "\n".join(parts).encode())
