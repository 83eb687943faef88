"""Commands that query a graph or a run: `ask`, `predict`, `complete`, `relations` and `check`.

`ask` and `predict` are one function under two names, for a graph and for a trained run.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fewlink.cli import common
from fewlink.core.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fewlink.core.progress import Advance
    from fewlink.linker import Linker, Prediction, Predictions

SOURCE = typer.Argument(
    ...,
    metavar="GRAPH|RUN",
    help="A graph: a file of triples, a compiled graph, a benchmark, or a name such as attack. Or a trained model: a "
    "run folder, a folder of save_pretrained, or hub:OWNER/NAME@REVISION.",
    autocompletion=common.complete_source,
)


EXACT = typer.Option(
    False, "--exact", help="In TSV, write names that begin with = + - or @ without an apostrophe for spreadsheets."
)


PROJECT = typer.Option(
    None, metavar="FILE", help="A project file: use its pairs, and adjust percentages to its decisions."
)
PROJECT_NAME = typer.Option(None, metavar="NAME", help="The project; needed if the file has several.")
FIT_NOTE = "fit, from 0 to 1, is how well a relation suits the two entities by everything else that the graph says"


def predict(
    source: str = SOURCE,
    references: Path = typer.Option(None, help="File of references: a head, a tab and a tail per line."),
    reference: list[str] = typer.Option(
        [], metavar="'HEAD => TAIL'", help="A reference; repeatable. If a name contains =>, write a tab instead."
    ),
    rejected: Path = typer.Option(None, "--rejected", help="File of wrong pairs, in the format of --references."),
    not_: list[str] = typer.Option(
        [], "--not", metavar="'HEAD => TAIL'", help="A wrong pair: pairs that resemble it rank lower; repeatable."
    ),
    project: Path = PROJECT,
    project_name: str = PROJECT_NAME,
    heads: Path = typer.Option(None, help="File of heads, one per line."),
    head: list[str] = typer.Option([], metavar="NAME", help="A head to find tails for; repeatable."),
    tails: Path = typer.Option(None, help="File of tails to find heads for, one per line."),
    tail: list[str] = typer.Option([], metavar="NAME", help="A tail to find heads for; repeatable."),
    of_type: str = typer.Option(None, metavar="TYPE", help="Rank the pairs of all heads of this type."),
    top: int = typer.Option(10, "--top", "-k", help="Number of tails per head; with --of-type, of pairs in all."),
    candidates: str = typer.Option(
        "open",
        metavar="TYPE|FILE|WORD",
        help="Tails to rank: a type, a file, open (like the references' tails), full (--relation's range) or all.",
    ),
    relation: str | None = typer.Option(
        None, help="A relation of the graph: its known pairs are references, and left out of the answers."
    ),
    shots: int = typer.Option(
        None,
        min=0,
        help="Number of references from --relation, 0 if you give others; default: all, for FSRL and its like as in "
        "training.",
    ),
    with_known: bool = typer.Option(
        False, "--with-known", help="Include known tails; as in fewlink evaluate, they do not lower other ranks."
    ),
    constraint: list[str] = typer.Option(
        [],
        metavar="KIND",
        help="functional, inverse-functional, symmetric, types, irreflexive (used unless a known pair is reflexive), "
        "auto (inferred from the known pairs) or none; repeatable.",
    ),
    explain: bool = typer.Option(False, "--explain", help="Explain the first prediction of each head in a few lines."),
    explain_full: bool = typer.Option(False, "--explain-full", help="Explain every prediction in full."),
    edges: int = typer.Option(
        None,
        metavar="N",
        min=1,
        help="Edges to read near each head, such as 10000: faster for many heads in a large graph.",
    ),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    on_error: str = common.ON_ERROR,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    no_names: bool = common.NO_NAMES,
    text_model: Path = typer.Option(
        None,
        metavar="FOLDER",
        help="A sentence-transformers or model2vec model; its vectors of names are evidence.",
    ),
    descriptions: Path = typer.Option(
        None, metavar="FILE", help="Descriptions for --text-model: an id, a tab and a text per line."
    ),
    bench: str = common.MOVED_BENCH,
    device: str = common.DEVICE,
    engine: str = common.ENGINE,
    json: bool = common.JSON,
    tsv: bool = typer.Option(False, "--tsv", help="Print tab-separated columns."),
    exact: bool = EXACT,
) -> None:
    """Rank tails for heads, given references of a relation, one or thousands. Entities are ids or readable names.

    With --tail, rank heads for tails instead; --candidates are then heads.

    A run uses its trained model. A graph needs no training: TRAIL uses its built-in weights.
    Ranks are those of fewlink evaluate, except that a head is not its own tail: known tails are left out, and tails
    with equal scores share their mean rank.

    Example: `fewlink ask my-graph.tsv --reference 'virus => cell' --reference 'fungus => plant' --head alga --explain`

    Example: `fewlink predict runs/umls-trail --relation precedes --candidates full --head cell_function`
    """
    from fewlink.core.errors import FewlinkError
    from fewlink.core.progress import progress
    from fewlink.linker.constraints import check_kinds
    from fewlink.linker.parsing import parse_pair, read_names, read_pairs
    from fewlink.linker.query import check_count

    if json and tsv:
        raise FewlinkError("--json and --tsv exclude each other: choose one")
    check_count(top, "--top")
    check_kinds(constraint)
    pairs = [*(read_pairs(references) if references else []), *map(parse_pair, reference)]
    wrong = [*(read_pairs(rejected) if rejected else []), *map(parse_pair, not_)]
    _check_project(project, project_name)
    if not pairs and relation is None and project is None:
        raise FewlinkError("no references: give --references FILE, --reference 'HEAD => TAIL', or --relation NAME")
    if shots is not None and relation is None:
        raise FewlinkError("--shots counts references from --relation: name the relation, or leave it out")
    if shots == 0 and not pairs and project is None:
        raise FewlinkError("--shots 0 leaves no references: give --reference 'HEAD => TAIL', or a larger number")
    queries = [*(read_names(heads) if heads else []), *head]
    inverse = [*(read_names(tails) if tails else []), *tail]
    asked = {"--head": bool(queries), "--tail": bool(inverse), "--of-type": of_type is not None}
    given = [option for option, is_given in asked.items() if is_given]
    if not given:
        raise FewlinkError(
            "give --head NAME, --heads FILE or --of-type TYPE; to find heads, give --tail NAME or --tails FILE"
        )
    if len(given) > 1:
        raise FewlinkError(f"give {given[0]} or {given[1]}, not both")
    how = common.how_to_read(columns, on_error, literals)
    common.check_graph_or_run(source)
    common.check_files(types, names, text_model, descriptions, project)
    common.check_benchmarks(bench)
    common.check_device(device)
    device = common.resolve_device(device)
    workers = common.open_engine(engine, device)
    from fewlink.linker import load

    linker = load(
        source,
        bench=bench,
        types=types,
        names=names,
        read_names=not no_names,
        device=device,
        text_model=text_model,
        descriptions=descriptions,
        **how,
    )
    if edges is not None:
        linker.limit_edges(edges)
    if project is not None:
        linker = linker.with_project(project, project_name)
        relation = relation or _relation_of_project(linker)
    query = linker.resolve(
        pairs or None,
        inverse or queries,
        top,
        candidates=_candidates(linker, candidates),
        exclude_known=not with_known,
        relation=relation,
        explain="full" if explain_full else explain,
        shots=shots,
        constraints=constraint,
        rejected=wrong,
        heads_of_type=of_type,
        across_heads=of_type is not None,
        inverse=bool(inverse),
    )
    with progress("heads", len(query.heads)) as advance:
        predictions = linker.answer(query, workers, advance)
    trust = [predictions.trust.sentence] if predictions.trust else []
    common.print_notes([*trust, *predictions.set_sentences(), *predictions.notes])
    if json or tsv:
        print(predictions.to_json() if json else predictions.to_tsv(exact=exact), end="\n" if json else "")
        return
    _print_predictions(linker, predictions, explain_full)


def _check_project(file: Path | None, name: str | None) -> None:
    from fewlink.core.errors import FewlinkError

    if name is not None and file is None:
        raise FewlinkError("--project-name needs --project FILE")


def _relation_of_project(linker: Linker) -> str | None:
    """The relation of the graph that has the name of the project, as on the page; None if there is none."""
    from fewlink.core.errors import UnknownName
    from fewlink.linker.query import find_relation

    assert linker.project is not None
    try:
        relation = find_relation(linker.benchmark, linker.project.name).name
    except UnknownName:
        return None
    common.print_notes([f"the graph has the relation {relation} of this project: its known pairs are references, too"])
    return relation


def _candidates(linker: Linker, choice: str) -> str | list[str]:
    """A word or type as it is, or the names in a file; a type takes precedence over a file of the same name."""
    from fewlink.core.errors import FewlinkError
    from fewlink.linker.parsing import read_names
    from fewlink.linker.query import CANDIDATE_WORDS

    if choice in CANDIDATE_WORDS or linker.names.has_type(choice):
        return choice
    if os.path.isfile(choice):
        return read_names(Path(choice))
    try:
        linker.names.members(choice)
    except FewlinkError as error:
        raise FewlinkError(
            f"--candidates {choice}: no such file, and not one of {', '.join(CANDIDATE_WORDS)}; {error}"
        ) from None
    return choice


def _print_predictions(linker: Linker, predictions: Predictions, full: bool) -> None:
    from fewlink.linker.predictions import plain_rank

    calibrated = any(row.probability is not None for row in predictions)
    asked, found = ("tail", "head") if predictions.inverse else ("head", "tail")
    columns = [asked, "rank", found, "score", *(["probability"] if calibrated else []), "known", "id"]
    entities = linker.graph.entities
    shared = linker.names.with_shared_names(entities.id(getattr(row, asked)) for row in predictions)
    ambiguous = {entities[number] for number in shared}

    def asked_name(row: Prediction) -> str:
        id = getattr(row, asked)
        name = getattr(row, f"{asked}_name")
        return f"{name} ({id})" if id in ambiguous else name

    rows = [
        [
            asked_name(row),
            str(plain_rank(row.rank)),
            getattr(row, f"{found}_name"),
            row.score,
            *([row.probability] if calibrated else []),
            "yes" if row.known else "",
            getattr(row, found),
        ]
        for row in predictions
    ]
    title = f"{linker.scorer.name} on {linker.benchmark.name}"
    if not rows:
        print(f"{title}: nothing found")
        return
    common.print_table(columns, rows, title=title)
    reasons = [row.reasons.sentences(full) for row in predictions if row.reasons]
    common.print_paragraphs(reasons)


def complete(
    source: str = SOURCE,
    relation: str | None = typer.Option(None, help="A relation of the graph or benchmark to complete."),
    references: Path = typer.Option(None, help="File of references, as in fewlink ask."),
    reference: list[str] = typer.Option([], metavar="'HEAD => TAIL'", help="A reference; repeatable."),
    project: Path = PROJECT,
    project_name: str = PROJECT_NAME,
    out: Path = typer.Option(
        ..., help="File to write: .tsv, .jsonl, or .csv with a column to decide in. An interrupted run resumes."
    ),
    top: int = typer.Option(1000, min=1, help="Number of pairs."),
    min_probability: float = typer.Option(0.0, min=0.0, max=1.0, help="Minimum probability of a pair."),
    per_head: int = typer.Option(10, min=1, help="Maximum number of pairs per head."),
    of_type: str = typer.Option(None, metavar="TYPE", help="Only heads of this type."),
    candidates: str = typer.Option("open", metavar="TYPE|FILE|WORD", help="Tails, as in fewlink ask."),
    constraint: list[str] = typer.Option([], metavar="KIND", help="As in fewlink ask; repeatable."),
    fast: bool = typer.Option(
        False, "--fast", help="Read the 10,000 most promising edges near each head: for many heads in a large graph."
    ),
    edges: int = typer.Option(
        None, metavar="N", min=1, help="As --fast, with N edges: fewer are faster and less accurate."
    ),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    on_error: str = common.ON_ERROR,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    no_names: bool = common.NO_NAMES,
    bench: str = common.MOVED_BENCH,
    device: str = common.DEVICE,
    engine: str = common.ENGINE,
    exact: bool = EXACT,
) -> None:
    """Find all missing links of a relation, and write the best pairs of all entities like its heads to a file.

    Name a relation of the graph, or describe a new one by references. Heads are entities of the same kind as the known
    ones; those without any tail come first. Each gets the tails that fewlink ask would give. Known pairs and the
    decided pairs of a project are left out. The first line of the file records the query.

    Example: `fewlink complete my-graph.tsv --relation treats --out missing.tsv --top 500`
    """
    from fewlink.core.errors import FewlinkError
    from fewlink.core.progress import progress
    from fewlink.linker.complete import FAST_EDGES, check_out
    from fewlink.linker.constraints import check_kinds
    from fewlink.linker.parsing import parse_pair, read_pairs

    check_kinds(constraint)
    pairs = [*(read_pairs(references) if references else []), *map(parse_pair, reference)]
    _check_project(project, project_name)
    if not pairs and relation is None and project is None:
        raise FewlinkError("no relation: give --relation NAME, --reference 'HEAD => TAIL' or --references FILE")
    check_out(out)
    how = common.how_to_read(columns, on_error, literals)
    common.check_graph_or_run(source)
    common.check_files(types, names, project)
    common.check_benchmarks(bench)
    common.check_device(device)
    device = common.resolve_device(device)
    workers = common.open_engine(engine, device)
    from fewlink.linker import load

    linker = load(
        source,
        bench=bench,
        types=types,
        names=names,
        read_names=not no_names,
        device=device,
        **how,
    )
    if fast or edges is not None:
        linker.limit_edges(FAST_EDGES if edges is None else edges)
    if project is not None:
        linker = linker.with_project(project, project_name)
        relation = relation or _relation_of_project(linker)
    with _telling_what_stays(out), progress("heads", 1.0) as advance:
        found = linker.complete(
            pairs or None,
            relation=relation,
            top=top,
            min_probability=min_probability,
            k=per_head,
            heads=of_type,
            candidates=_candidates(linker, candidates),
            constraints=constraint,
            out=out,
            exact=exact,
            on_heads=_pace_reporter(advance),
            engine=workers,
        )
    common.print_notes([*([found.trust.sentence] if found.trust else []), *found.notes])
    print(f"{plural(len(found), 'pair')} written to {out}")


@contextlib.contextmanager
def _telling_what_stays(out: Path) -> Iterator[None]:
    """If the work is interrupted, name the file that keeps its finished part."""
    from fewlink.linker.complete import unfinished

    try:
        yield
    except KeyboardInterrupt:
        kept = f"{unfinished(out)} keeps the finished heads, and " if unfinished(out).exists() else ""
        print(f"stopped; {kept}the same command continues", file=sys.stderr)
        raise typer.Exit(130) from None


def _pace_reporter(advance: Advance) -> Callable[[int, int], None]:
    """A reporter for `on_heads`."""
    return lambda done, count: advance(done / max(count, 1), f"{done:,} of {plural(count, 'head')}")


def relations(
    source: str = SOURCE,
    head: str = typer.Argument(..., help="The first entity."),
    tail: str = typer.Argument(..., help="The second entity."),
    references: list[Path] = typer.Option(
        [], help="File of references that describe another relation, named after the file; repeatable."
    ),
    top: int = typer.Option(10, "--top", "-k", min=1, help="Number of relations."),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    on_error: str = common.ON_ERROR,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    no_names: bool = common.NO_NAMES,
    bench: str = common.MOVED_BENCH,
    json: bool = common.JSON,
) -> None:
    """Find which relation holds from one entity to another: relations of the graph, the best fit first.

    A triple of the graph is marked as known, and does not count as evidence for itself.

    Example: `fewlink relations my-graph.tsv aspirin headache`
    """
    from fewlink.core.errors import FewlinkError
    from fewlink.linker.parsing import read_pairs

    described = {path.stem: read_pairs(path) for path in references}
    if len(described) < len(references):
        raise FewlinkError("two --references files have the same name, which names their relation: rename one")
    how = common.how_to_read(columns, on_error, literals)
    common.check_graph_or_run(source)
    common.check_files(types, names)
    common.check_benchmarks(bench)
    from fewlink.linker import load

    linker = load(source, bench=bench, types=types, names=names, read_names=not no_names, **how)
    found = linker.relations(head, tail, described, top)
    common.print_notes([FIT_NOTE, *found.notes])
    if json:
        print(found.to_json())
        return
    title = " → ".join(linker.graph.name(linker.names.find(end)) for end in (head, tail))
    rows = [[row.relation_name, row.fit, "yes" if row.known else "", row.by] for row in found]
    common.print_table(["relation", "fit", "known", "by"], rows, title=title)


def check(
    source: str = SOURCE,
    relation: str = typer.Option(None, help="Check this relation only."),
    top: int = typer.Option(20, "--top", "-k", min=1, help="Number of triples."),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    on_error: str = common.ON_ERROR,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    bench: str = common.MOVED_BENCH,
    engine: str = common.ENGINE,
    json: bool = common.JSON,
    tsv: bool = typer.Option(False, "--tsv", help="Print tab-separated columns."),
    exact: bool = EXACT,
) -> None:
    """Find triples of a graph that look wrong: the oddest first, each with the evidence against it.

    Each triple is compared with wrong pairs as if it were not in the graph: by the paths between its entities, the
    links of similar entities, and their kinds. An odd triple may be right: look before you remove it.

    Example: `fewlink check my-graph.tsv --relation born_in`
    """
    from fewlink.core.errors import FewlinkError
    from fewlink.core.progress import progress

    if json and tsv:
        raise FewlinkError("--json and --tsv exclude each other: choose one")
    how = common.how_to_read(columns, on_error, literals)
    common.check_graph_or_run(source)
    common.check_files(types, names)
    common.check_benchmarks(bench)
    workers = common.open_engine(engine, "cpu")
    from fewlink.graph.source import GraphSource
    from fewlink.linker.check import check as find_odd_triples
    from fewlink.linker.saving import answered_graph

    graph = answered_graph(GraphSource.of(source, bench=bench, types=types, names=names, **how))
    with progress("relations", None) as advance:
        found = find_odd_triples(graph, relation, top, advance, workers)
    common.print_notes(found.notes)
    if json or tsv:
        print(found.to_json() if json else found.to_tsv(exact=exact), end="\n" if json else "")
        return
    rows = [[row.oddness, row.head_name, row.relation_name, row.tail_name, row.reason] for row in found]
    common.print_table(["oddness", "head", "relation", "tail", "what speaks against it"], rows)
