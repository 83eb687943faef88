"""`fewlink predict`: rank the tails of new heads from a handful of references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fewlink.prediction import Linker, Predictions


def predict(
    run: Path = typer.Argument(..., metavar="RUN", help="A run of fewlink train, or a folder of save_pretrained."),
    references: Path = typer.Option(None, help="File of references: head, tab, tail on each line."),
    reference: list[str] = typer.Option(
        [], metavar="'HEAD => TAIL'", help="A reference; again for more. A tab in place of => is for names with arrows."
    ),
    heads: Path = typer.Option(None, help="File of heads, one on each line."),
    head: list[str] = typer.Option([], metavar="NAME", help="A head to find tails for; again for more."),
    of_type: str = typer.Option(
        None, metavar="TYPE", help="All heads of this type at once: the best pairs, not tails."
    ),
    top: int = typer.Option(10, "--top", "-k", help="Tails of each head; with --of-type, pairs in all."),
    candidates: str = typer.Option(
        "open",
        metavar="TYPE|FILE|WORD",
        help="Who competes: a type, a file of names; open: like the references' tails; full: --relation's range; all.",
    ),
    relation: str = typer.Option(
        None, help="A relation of the benchmark: its known pairs do not compete; without references, its first ones."
    ),
    shots: int = typer.Option(None, help="How many of the relation's pairs are references; as the run was trained."),
    with_known: bool = typer.Option(False, "--with-known", help="Show tails that are known already, too."),
    explain: bool = typer.Option(False, "--explain", help="Give the reasons of each prediction."),
    bench: str = typer.Option(None, help="Where the run's benchmark is, if it is not where it was."),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
    tsv: bool = typer.Option(False, "--tsv", help="Print tab-separated columns."),
) -> None:
    """Rank the tails that fit some heads, from a handful of references of a relation. Names may be ids or readable.

    Ranks are those of fewlink evaluate: known answers do not compete, tails with the same score share the mean of
    their places.

    Example: `fewlink predict runs/umls-trail --reference 'virus => cell' --reference 'fungus => plant' --head alga`

    Example: `fewlink predict runs/umls-trail --relation precedes --candidates full --head cell_function`
    """
    from fewlink.base.errors import FewlinkError
    from fewlink.cli import show
    from fewlink.cli.training import working_device
    from fewlink.prediction import load
    from fewlink.prediction.query import check_count, parse_pair, read_names, read_pairs

    if json and tsv:
        raise FewlinkError("--json and --tsv are given: choose one")
    check_count(top, "--top")
    pairs = [*(read_pairs(references) if references else []), *map(parse_pair, reference)]
    if not pairs and relation is None:
        raise FewlinkError("no references: give --references FILE, --reference 'HEAD => TAIL', or --relation NAME")
    if pairs and shots is not None:
        raise FewlinkError("--shots says how many of --relation's pairs are references, and references are given")
    asked = [*(read_names(heads) if heads else []), *head]
    if bool(asked) == (of_type is not None):
        raise FewlinkError("say which heads: --head NAME or --heads FILE, or all of --of-type TYPE")
    linker = load(run, bench=bench, device=working_device(device))
    among = _candidates(linker, candidates)
    ask = linker.predict if of_type is None else linker.predict_pairs
    found = ask(
        pairs or None,
        asked if of_type is None else of_type,
        top,
        candidates=among,
        exclude_known=not with_known,
        relation=relation,
        explain=explain,
        shots=shots,
    )
    show.remarks(found.notes)
    if json:
        print(found.to_json())
    elif tsv:
        print(found.to_tsv(), end="")
    else:
        _show(linker, found)


def _candidates(linker: Linker, choice: str) -> str | list[str]:
    """A word or a type as it is, the names in a file; a type goes before a file of the same name."""
    from fewlink.prediction.query import WORDS, read_names

    if choice in WORDS or linker.names.has_type(choice) or not Path(choice).is_file():
        return choice
    return read_names(Path(choice))


def _show(linker: Linker, found: Predictions) -> None:
    from fewlink.cli import show
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
        for row in found
    ]
    show.table(columns, rows, title=f"{linker.scorer.name} on {linker.benchmark.name}")
    for row in found:
        if row.reasons:
            print("\n".join(row.reasons.sentences()), end="\n\n")
