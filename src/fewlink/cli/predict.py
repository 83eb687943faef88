"""`fewlink predict`: rank tails for new heads from a handful of references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fewlink.cli import common

if TYPE_CHECKING:
    from fewlink.prediction import Linker, Predictions


def predict(
    run: Path = typer.Argument(..., metavar="RUN", help="A run folder, or a folder written by save_pretrained."),
    references: Path = typer.Option(None, help="File of references: a head, a tab and a tail per line."),
    reference: list[str] = typer.Option(
        [], metavar="'HEAD => TAIL'", help="A reference; repeatable. Names with arrows: write a tab instead of =>."
    ),
    heads: Path = typer.Option(None, help="File of heads, one per line."),
    head: list[str] = typer.Option([], metavar="NAME", help="A head to find tails for; repeatable."),
    of_type: str = typer.Option(None, metavar="TYPE", help="Take all entities of this type as heads; rank pairs."),
    top: int = typer.Option(10, "--top", "-k", help="Number of tails per head; with --of-type, of pairs in all."),
    candidates: str = typer.Option(
        "open",
        metavar="TYPE|FILE|WORD",
        help="Tails to rank: a type, a file, open (like the references' tails), full (--relation's range) or all.",
    ),
    relation: str = typer.Option(
        None, help="A relation of the benchmark: its known pairs are left out; the first are the default references."
    ),
    shots: int = typer.Option(None, help="References to take from --relation; by default as in training."),
    with_known: bool = typer.Option(False, "--with-known", help="Include tails that are known already."),
    explain: bool = typer.Option(False, "--explain", help="Explain each prediction."),
    bench: str = common.MOVED_BENCH,
    device: str = common.DEVICE,
    json: bool = common.JSON,
    tsv: bool = typer.Option(False, "--tsv", help="Print tab-separated columns."),
) -> None:
    """Rank tails for some heads, given a handful of references of a relation. Entities are ids or readable names.

    Ranks are those of fewlink evaluate: known tails are left out, and tails with equal scores share their mean rank.

    Example: `fewlink predict runs/umls-trail --reference 'virus => cell' --reference 'fungus => plant' --head alga`

    Example: `fewlink predict runs/umls-trail --relation precedes --candidates full --head cell_function`
    """
    from fewlink.base.errors import FewlinkError
    from fewlink.prediction import load
    from fewlink.prediction.query import check_count, parse_pair, read_names, read_pairs

    if json and tsv:
        raise FewlinkError("--json and --tsv exclude each other: choose one")
    check_count(top, "--top")
    pairs = [*(read_pairs(references) if references else []), *map(parse_pair, reference)]
    if not pairs and relation is None:
        raise FewlinkError("no references: give --references FILE, --reference 'HEAD => TAIL', or --relation NAME")
    if pairs and shots is not None:
        raise FewlinkError("--shots is for references taken from --relation, and references are given")
    queries = [*(read_names(heads) if heads else []), *head]
    if bool(queries) == (of_type is not None):
        raise FewlinkError("no heads, or two kinds: give --head NAME or --heads FILE, or else --of-type TYPE")
    linker = load(run, bench=bench, device=common.resolve_device(device))
    rank = linker.predict if of_type is None else linker.predict_pairs
    predictions = rank(
        pairs or None,
        queries if of_type is None else of_type,
        top,
        candidates=_candidates(linker, candidates),
        exclude_known=not with_known,
        relation=relation,
        explain=explain,
        shots=shots,
    )
    common.print_notes(predictions.notes)
    if json:
        print(predictions.to_json())
    elif tsv:
        print(predictions.to_tsv(), end="")
    else:
        _print(linker, predictions)


def _candidates(linker: Linker, choice: str) -> str | list[str]:
    """A word or type as it is, or the names in a file; a type takes precedence over a file of the same name."""
    from fewlink.prediction.query import WORDS, read_names

    if choice in WORDS or linker.names.has_type(choice) or not Path(choice).is_file():
        return choice
    return read_names(Path(choice))


def _print(linker: Linker, predictions: Predictions) -> None:
    from fewlink.prediction.predictions import plain_rank

    calibrated = linker.calibration is not None
    columns = ["head", "rank", "tail", "score", *(["probability"] if calibrated else []), "known", "id"]
    rows = [
        [
            row.head_name,
            str(plain_rank(row.rank)),
            row.tail_name,
            row.score,
            *([row.probability] if calibrated else []),
            "yes" if row.known else "",
            row.tail,
        ]
        for row in predictions
    ]
    common.print_table(columns, rows, title=f"{linker.scorer.name} on {linker.benchmark.name}")
    for row in predictions:
        if row.reasons:
            print("\n".join(row.reasons.sentences()), end="\n\n")
