"""The command `fewlink verify`."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fewlink.verification.report import Verified

LISTED = 10  # paths that are listed even if there is nothing to say about them
WHOLE, DAMAGED, UNCLEAR = 0, 1, 2  # exit codes


def verify(
    paths: list[Path] = typer.Argument(
        ...,
        metavar="PATH…",
        help="Graphs, benchmarks, embeddings, runs, saved models, results, project files, weights; or folders of them.",
    ),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Check stored folders and files against their checksums, and say what is damaged. Nothing is changed.

    A run is checked with its vectors, checkpoints, calibration and benchmark; results with their ranks. The exit code
    is 1 if something is damaged, otherwise 2 if it cannot be told (not stored by fewlink, or by a newer version).

    Example: `fewlink verify runs/umls results curation.decisions`
    """
    from fewlink.verification.verify import verify_all

    found = verify_all(paths)
    if json:
        print(json_format.dumps([each.as_dict() for each in found], indent=1, ensure_ascii=False))
    else:
        _print(found)
    statuses = {each.status for each in found}
    raise typer.Exit(DAMAGED if "damaged" in statuses else UNCLEAR if "unknown" in statuses else WHOLE)


def _print(found: list[Verified]) -> None:
    """A line for each path, of many only where there is something to say, then how many there are of each kind."""
    texts = {"whole": "no damage found", "damaged": "DAMAGED", "unknown": "cannot be checked"}
    for each in found:
        if each.status == "whole" and not each.notes and len(found) > LISTED:
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
        print(f"{len(found)} checked: {whole} without damage, {damaged} damaged, {unknown} that cannot be checked")
