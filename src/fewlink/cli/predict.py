"""`fewlink ask`, `fewlink predict` and `fewlink serve`: rank tails from a handful of references, here or over HTTP.

`ask` and `predict` are one function under two names, for a graph and for a trained run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fewlink.cli import common
from fewlink.cli.data import NAMES, NO_NAMES, TYPES, names_choice

if TYPE_CHECKING:
    from fewlink.prediction import Linker, Predictions

SOURCE = typer.Argument(
    ...,
    metavar="GRAPH|RUN",
    help="A file of triples, a compiled graph or a benchmark; or a run folder, or one written by save_pretrained.",
)


def predict(
    source: str = SOURCE,
    references: Path = typer.Option(None, help="File of references: a head, a tab and a tail per line."),
    reference: list[str] = typer.Option(
        [], metavar="'HEAD => TAIL'", help="A reference; repeatable. If a name has an arrow: a tab instead of =>."
    ),
    rejected: Path = typer.Option(None, "--rejected", help="File of pairs that are wrong, written as references are."),
    not_: list[str] = typer.Option(
        [], "--not", metavar="'HEAD => TAIL'", help="A wrong pair: what resembles it ranks lower; repeatable."
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
        None, help="A relation of the graph: its known pairs are left out; the first are the default references."
    ),
    shots: int = typer.Option(None, help="References to take from --relation; by default as in training, or 3."),
    with_known: bool = typer.Option(False, "--with-known", help="Include tails that are known already."),
    constraint: list[str] = typer.Option(
        [],
        metavar="KIND",
        help="functional, inverse-functional, symmetric, types, irreflexive (used unless a known pair is reflexive), "
        "auto (read off the known pairs) or none; repeatable.",
    ),
    explain: bool = typer.Option(False, "--explain", help="Explain each prediction."),
    edges: int = typer.Option(
        None, metavar="N", help="Edges of the graph to read around each head, such as 20000: quicker for many heads."
    ),
    types: Path = TYPES,
    names: Path = NAMES,
    no_names: bool = NO_NAMES,
    text_model: Path = typer.Option(
        None, metavar="FOLDER", help="A sentence-transformers or model2vec model: its vectors of the names count too."
    ),
    bench: str = common.MOVED_BENCH,
    device: str = common.DEVICE,
    json: bool = common.JSON,
    tsv: bool = typer.Option(False, "--tsv", help="Print tab-separated columns."),
) -> None:
    """Rank tails for some heads, given a handful of references of a relation. Entities are ids or readable names.

    A run answers with its own model. A graph needs no training: TRAIL answers with the weights that come with fewlink.
    Ranks are those of fewlink evaluate, except that a head is not its own tail: known tails are left out, and tails
    with equal scores share their mean rank.

    Example: `fewlink ask my-graph.tsv --reference 'virus => cell' --reference 'fungus => plant' --head alga --explain`

    Example: `fewlink predict runs/umls-trail --relation precedes --candidates full --head cell_function`
    """
    from fewlink.base.errors import FewlinkError
    from fewlink.prediction.constraints import check_kinds
    from fewlink.prediction.query import check_count, parse_pair, read_names, read_pairs

    if json and tsv:
        raise FewlinkError("--json and --tsv exclude each other: choose one")
    check_count(top, "--top")
    check_kinds(constraint)
    pairs = [*(read_pairs(references) if references else []), *map(parse_pair, reference)]
    wrong = [*(read_pairs(rejected) if rejected else []), *map(parse_pair, not_)]
    if not pairs and relation is None:
        raise FewlinkError("no references: give --references FILE, --reference 'HEAD => TAIL', or --relation NAME")
    if pairs and shots is not None:
        raise FewlinkError("--shots is for references taken from --relation, and references are given")
    queries = [*(read_names(heads) if heads else []), *head]
    if bool(queries) == (of_type is not None):
        raise FewlinkError("no heads, or two kinds: give --head NAME or --heads FILE, or else --of-type TYPE")
    common.check_graph_or_run(source)
    common.check_files(types, names, text_model)
    common.check_benchmarks(bench)
    common.check_device(device)
    from fewlink.prediction import load

    device, chosen = common.resolve_device(device), names_choice(names, no_names)
    linker = load(source, bench=bench, types=types, names=chosen, device=device, text_model=text_model)
    if edges is not None:
        linker.limit_edges(edges)
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
        constraints=constraint,
        rejected=wrong,
    )
    trust = [predictions.trust.sentence] if predictions.trust else []
    common.print_notes([*trust, *predictions.notes])
    if json:
        print(predictions.to_json())
    elif tsv:
        print(predictions.to_tsv(), end="")
    else:
        _print_predictions(linker, predictions)


def _candidates(linker: Linker, choice: str) -> str | list[str]:
    """A word or type as it is, or the names in a file; a type takes precedence over a file of the same name."""
    from fewlink.prediction.query import WORDS, read_names

    if choice in WORDS or linker.names.has_type(choice) or not Path(choice).is_file():
        return choice
    return read_names(Path(choice))


def _print_predictions(linker: Linker, predictions: Predictions) -> None:
    from fewlink.prediction.predictions import plain_rank

    calibrated = any(row.probability is not None for row in predictions)
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


def serve(
    source: str = SOURCE,
    host: str = typer.Option("127.0.0.1", help="Address to listen on; 0.0.0.0 accepts other machines."),
    port: int = typer.Option(8000, min=0, max=65535, help="Port to listen on; 0 chooses a free one."),
    token: str = typer.Option(
        None, envvar="FEWLINK_TOKEN", show_envvar=False, help="Token that clients must send; or set FEWLINK_TOKEN."
    ),
    types: Path = TYPES,
    names: Path = NAMES,
    no_names: bool = NO_NAMES,
    bench: str = common.MOVED_BENCH,
    device: str = common.DEVICE,
    most_heads: int = typer.Option(5_000, min=1, max=100_000, help="Most heads in one request."),
    most_k: int = typer.Option(100, min=1, max=1_000, help="Most tails per head in one request."),
    workers: int = typer.Option(1, min=1, max=64, help="Number of processes, each with its own model."),
    references: Path = typer.Option(
        None, help="File of triples whose relations the graph lacks: OpenRefine can add columns of their tails."
    ),
    reference: list[str] = typer.Option(
        [], metavar="'HEAD => RELATION => TAIL'", help="One more of these triples; repeatable."
    ),
    project: Path = typer.Option(
        None, metavar="FILE", help="File that decisions are kept in; by default beside the graph or run."
    ),
) -> None:
    """Serve predictions over HTTP, with a page to review them and a description of the interface at /docs.

    OpenRefine reconciles names with the graph's entities at /reconcile, and adds columns of known and predicted tails.

    A graph needs no training: TRAIL answers with the weights that come with fewlink. Concurrent requests are scored
    together. Decisions of curators are kept in a project file (see fewlink project); nothing else is written, and no
    path is accepted from a request.

    Example: `fewlink serve my-graph.tsv`, or `fewlink serve runs/umls-trail`

    Example: `FEWLINK_TOKEN=secret fewlink serve runs/umls-trail --host 0.0.0.0 --port 80`
    """
    from fewlink.base.errors import FewlinkError, MissingExtra
    from fewlink.prediction.query import parse_triple

    more = tuple(map(parse_triple, reference))
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise FewlinkError("the token is empty, has spaces around it or is not printable ASCII: use letters or digits")
    common.check_graph_or_run(source)
    common.check_files(types, names, references)
    common.check_benchmarks(bench)
    common.check_device(device)
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingExtra("fewlink serve", "serve") from None
    from fewlink.graph.compile import read_names_of
    from fewlink.web import ServerSettings
    from fewlink.web.server import ServeOptions, serve

    chosen = names_choice(names, no_names)
    options = ServeOptions(
        source,
        common.resolve_device(device),
        host,
        port,
        workers,
        bench,
        types=None if types is None else str(types),
        names=str(chosen) if isinstance(chosen, Path) else chosen,
        project=None if project is None else str(project),
        extensions=("fewlink.bridges.openrefine:install",),
    )
    triples = (*(read_names_of(references) if references else ()), *more)
    serve(options, ServerSettings(heads=most_heads, k=most_k, token=token, references=triples))
