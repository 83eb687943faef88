"""`fewlink study`: run what is missing of a table or figure of the paper, and show it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fewlink.studies import Plan, StudyOutput


def study(
    context: typer.Context,
    name: str = typer.Argument(
        None, help="overall, relations, ablation, trail-0.1, shots, embedding, selection or datasets."
    ),
    bench: str = typer.Argument(None, metavar="[BENCH]", help="A benchmark in place of the study's own, NELL-One."),
    plan: Path = typer.Option(None, help="A TOML file in place of the study's own plan."),
    model: list[str] = typer.Option([], help="Only this model; may be given several times."),
    shots: list[int] = typer.Option([], "--shots", "-k", help="Only this number of references; several times."),
    seeds: int = typer.Option(None, help="Number of seeds, instead of five."),
    tiny: bool = typer.Option(False, "--tiny", help="A version that runs in seconds on built-in data."),
    todo: bool = typer.Option(False, "--todo", help="Only list what is not finished."),
    show_only: bool = typer.Option(False, "--show", help="Only show the results that are stored."),
    results: Path = typer.Option(
        None, help="Folder to read and store records; results by default (in a clone, the repository's), or runs/tiny."
    ),
    work: Path = typer.Option(Path("runs/studies"), help="Folder for runs and vectors, to continue from."),
    out: Path = typer.Option(None, help="Also write the tables (Markdown) and pictures (SVG) to this folder."),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
    json: bool = typer.Option(False, "--json", help="Print the tables as JSON."),
) -> None:
    """Run a study of the paper and show it; without a name, list the studies.

    Finished parts, those with a record, are not run again; a study that was stopped continues.

    Example: `fewlink study overall --tiny`
    """
    from fewlink.base.errors import FewlinkError
    from fewlink.base.resolver import choose
    from fewlink.cli.common import epoch_reporter, reject_options, resolve_device, step_reporter
    from fewlink.data import open_benchmark
    from fewlink.studies import STUDIES, Workspace, read_plan

    if name is None:
        _list(json)
        return
    chosen = choose("study", name, STUDIES)
    if tiny:
        reject_options(context, ("plan",), "cannot be given with --tiny, which has its own")
        if bench:
            raise FewlinkError("--tiny has its own benchmark: leave BENCH out")
    if todo and show_only:
        raise FewlinkError("--todo and --show: give one of them")
    full = read_plan(str(plan) if plan else name)
    part = (full.as_tiny() if tiny else full).with_only(model, shots, seeds)
    benchmark = open_benchmark(bench or part.benchmark)
    workspace = Workspace(
        benchmark,
        results or Path("runs/tiny" if tiny else "results"),
        work / benchmark.name,
        resolve_device(device),
        tell=lambda line: print(line, file=sys.stderr, flush=True),
        on_epoch=epoch_reporter,
        on_step=lambda title: step_reporter(title, part.seeds),
    )
    if todo:
        print("\n".join(chosen.pending(part, workspace)) or "nothing: everything is finished")
        return
    if not show_only:
        try:
            chosen.run(part, workspace)
        except KeyboardInterrupt:
            print("stopped; the same command continues", file=sys.stderr)
            raise typer.Exit(130) from None
    output = chosen.show(part, workspace)
    if out is not None:
        _write(output, part, name, out)
    _print(output, part, json)


def _list(json: bool) -> None:
    from fewlink.cli import common
    from fewlink.studies import STUDIES, read_plan

    plans = {name: read_plan(name) for name in STUDIES}
    if json:
        common.print_json([{"name": name, **plan.model_dump()} for name, plan in plans.items()])
        return
    common.print_table(["study", "what", "about"], [[n, p.title, p.about] for n, p in plans.items()])


def _print(output: StudyOutput, plan: Plan, json: bool) -> None:
    from fewlink.cli import common

    if json:
        tables = [{"title": t.title, "columns": t.columns, "rows": t.rows, "note": t.note} for t in output.tables]
        common.print_json({"title": plan.title, "expect": plan.expect, "tables": tables})
        return
    print(f"{plan.title}\nexpected: {plan.expect}\n")
    for table in output.tables:
        rows: list[list[Any]] = [[cell.replace("*", "") for cell in row] for row in table.rows]
        common.print_table([c.replace("`", "") for c in table.columns], rows, title=table.title)
        if table.note:
            print(f"{table.note}\n")


def _write(output: StudyOutput, plan: Plan, name: str, out: Path) -> None:
    """The study as a Markdown page with its pictures beside it."""
    from fewlink.base.storage import write_bytes
    from fewlink.report.charts import standalone

    out.mkdir(parents=True, exist_ok=True)
    parts = [f"# {plan.title}\n\n{plan.about}. Expected: {plan.expect}.\n"]
    parts += [f"## {table.title}\n\n{table.markdown()}" for table in output.tables]
    for title, picture in output.pictures.items():
        file = f"{name}-{title}.svg".replace("/", "-").replace(":", "-")
        write_bytes(out / file, standalone(picture).encode())
        parts.append(f"![{title}]({file})\n")
    write_bytes(out / f"{name}.md", "\n".join(parts).encode())
