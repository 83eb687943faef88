"""The command `fewlink verify`."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fewlink.verification.report import Verified

MAX_LISTED_WHOLE = 10  # with more paths, whole ones without notes are not listed
WHOLE = 0
DAMAGED = 1
UNCLEAR = 2  # exit codes


def verify(
    paths: list[Path] = typer.Argument(
        ...,
        metavar="PATH…",
        help="Graphs, benchmarks, embeddings, runs, saved models, results, project files, weights; or folders of them.",
    ),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Check stored folders and files against their checksums, and report damage. Nothing is changed.

    A run is checked with its vectors, checkpoints, calibration and benchmark; results with their ranks. The exit code
    is 1 if something is damaged, or else 2 if something cannot be checked (fewlink or this version did not write it).

    Example: `fewlink verify runs/umls results curation.decisions`
    """
    from fewlink.verification.verify import verify_all

    found = verify_all(paths)
    if json:
        print(json_format.dumps([each.as_dict() for each in found], indent=1, ensure_ascii=False))
    else:
        _print(found)
    statuses = {each.status for each in found}
    if "damaged" in statuses:
        raise typer.Exit(DAMAGED)
    raise typer.Exit(UNCLEAR if "unknown" in statuses else WHOLE)


def _print(found: list[Verified]) -> None:
    """Print a line for each path (among many, only for those with problems or notes), then the totals."""
    texts = {"whole": "no damage found", "damaged": "DAMAGED", "unknown": "cannot be checked"}
    for each in found:
        if each.status == "whole" and not each.notes and len(found) > MAX_LISTED_WHOLE:
            continue
        files = f"{each.files} file{'s' if each.files != 1 else ''}"
        what = f" ({each.kind}, {files})" if each.kind != "unknown" else ""
        print(f"{each.path}{what}: {texts[each.status]}")
        for line in (*each.problems, *each.unclear):
            print(f"  {line}")
        for line in each.notes:
            print(f"  note: {line}")
    if len(found) > 1:
        whole, damaged, unknown = (sum(each.status == status for each in found) for status in texts)
        print(f"{len(found)} checked: {whole} without damage, {damaged} damaged, {unknown} cannot be checked")
