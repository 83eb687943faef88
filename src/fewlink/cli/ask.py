"""Commands that query a graph or a run: `ask`, `complete`, `relations` and `check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fewlink.cli import options, terminal
from fewlink.cli.options import AskedGraph, AskedRelation, OutputOptions, SomeGraph
from fewlink.core.words import plural

if TYPE_CHECKING:
    from fewlink.linker import Linker, Prediction, Predictions

FIT_NOTE = "fit, from 0 to 1, is how well a relation suits the two entities by everything else that the graph says"


def ask(
    graph: AskedGraph,
    asked: AskedRelation,
    output: OutputOptions,
    head: list[str] = typer.Option([], metavar="NAME", help="A head to find tails for; repeatable."),
    heads: Path = typer.Option(None, metavar="FILE", help="File of heads, one per line."),
    tail: list[str] = typer.Option([], metavar="NAME", help="A tail to find heads for; repeatable."),
    tails: Path = typer.Option(None, metavar="FILE", help="File of tails to find heads for, one per line."),
    of_type: str = typer.Option(None, metavar="TYPE", help="Rank the pairs of all heads of this type."),
    top: int = typer.Option(
        10, "--top", "-k", metavar="NUMBER", help="Number of tails per head; with --of-type, of pairs in all."
    ),
    shots: int = typer.Option(
        None,
        metavar="NUMBER",
        min=0,
        help="Number of references to take from --relation, 0 to take only those that you give; by default all, or, "
        "for a model trained with a fixed number, that many.",
    ),
    wrong: list[str] = typer.Option(
        [],
        "--not",
        "--rejected",
        metavar="PAIR|FILE",
        help="A wrong pair 'HEAD => TAIL', or a file of them: pairs that resemble it rank lower; repeatable.",
    ),
    with_known: bool = typer.Option(
        False, "--with-known", help="Include known tails; as in fewlink evaluate, they do not lower other ranks."
    ),
    explain: bool = typer.Option(False, "--explain", help="Explain the first prediction of each head in a few lines."),
    explain_full: bool = typer.Option(False, "--explain-full", help="Explain every prediction in full."),
) -> None:
    """Rank tails for heads, given references of a relation, one or thousands. Entities are ids or readable names.

    With --tail, rank heads for tails instead; --candidates are then heads.

    A run uses its trained model. A graph needs no training: TRAIL uses its built-in weights.
    Ranks are those of fewlink evaluate, except that a head is not its own tail: known tails are left out, and tails
    with equal scores share their mean rank.

    Example: `fewlink ask my-graph.tsv --reference 'virus => cell' --reference 'fungus => plant' --head alga --explain`

    Example: `fewlink ask runs/umls-trail --relation precedes --candidates full --head cell_function`
    """
    from fewlink.core.errors import FewlinkError
    from fewlink.core.progress import progress
    from fewlink.linker.query import check_count

    output.check()
    if shots is not None and asked.relation is None:
        raise FewlinkError("--shots counts references from --relation: name the relation, or leave it out")
    check_count(top, "--top")
    pairs = asked.pairs()
    rejected = options.pairs_of(wrong)
    queries = _names(head, heads)
    inverse = _names(tail, tails)
    _check_asked({"--head": bool(queries), "--tail": bool(inverse), "--of-type": of_type is not None})
    linker, relation = asked.with_project(graph.open())
    query = linker.resolve(
        pairs or None,
        inverse or queries,
        top,
        candidates=asked.candidates_in(linker),
        exclude_known=not with_known,
        relation=relation,
        explain="full" if explain_full else explain,
        shots=shots,
        constraints=asked.constraint,
        rejected=rejected,
        heads_of_type=of_type,
        across_heads=of_type is not None,
        inverse=bool(inverse),
    )
    with progress("heads", len(query.heads)) as advance:
        predictions = linker.answer(query, options.open_engine(None, linker.device), advance)
    trust = [predictions.trust.sentence] if predictions.trust else []
    terminal.print_notes([*trust, *predictions.set_sentences(), *predictions.notes])
    if not output.print(predictions):
        _print_predictions(linker, predictions, explain_full)


def _names(given: list[str], file: Path | None) -> list[str]:
    """The names in a file, and those given one by one."""
    from fewlink.linker.names import read_names

    return [*(read_names(file) if file else []), *given]


def _check_asked(asked: dict[str, bool]) -> None:
    """Raise unless exactly one of the ways to ask is used."""
    from fewlink.core.errors import FewlinkError

    if sum(asked.values()) != 1:
        raise FewlinkError("give one of --head or --heads, --of-type, and, to find heads, --tail or --tails")


def _print_predictions(linker: Linker, predictions: Predictions, full: bool) -> None:
    """Print a table, and the reasons below it; entities that share a name are shown with their ids."""
    from fewlink.linker.predictions import plain_rank

    title = f"{linker.scorer.name} on {linker.benchmark.name}"
    if not len(predictions):
        print(f"{title}: nothing found")
        return
    calibrated = any(row.probability is not None for row in predictions)
    asked, found = ("tail", "head") if predictions.inverse else ("head", "tail")
    entities = linker.graph.entities
    shared = linker.names.with_shared_names(entities.id(getattr(row, asked)) for row in predictions)
    ambiguous = {entities[number] for number in shared}

    def asked_name(row: Prediction) -> str:
        id = getattr(row, asked)
        name = getattr(row, f"{asked}_name")
        return f"{name} ({id})" if id in ambiguous else name

    columns = [asked, "rank", found, "score", *(["probability"] if calibrated else []), "known", "id"]
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
    terminal.print_table(columns, rows, title=title)
    terminal.print_paragraphs([row.reasons.lines(full) for row in predictions if row.reasons])


def complete(
    graph: AskedGraph,
    asked: AskedRelation,
    out: Path = typer.Option(
        ...,
        metavar="FILE",
        help="File to write: .tsv, .jsonl, or .csv with a column to decide in. An interrupted run resumes.",
    ),
    top: int = typer.Option(1000, "--top", "-k", metavar="NUMBER", min=1, help="Number of pairs."),
    min_probability: float = typer.Option(
        0.0, metavar="SHARE", min=0.0, max=1.0, help="Minimum probability of a pair."
    ),
    per_head: int = typer.Option(10, metavar="NUMBER", min=1, help="Maximum number of pairs per head."),
    of_type: str = typer.Option(None, metavar="TYPE", help="Only heads of this type."),
    engine: str = options.ENGINE,
) -> None:
    """Find all missing links of a relation, and write the best pairs of all entities like its heads to a file.

    Name a relation of the graph, or describe a new one by references. Heads are entities of the same kind as the known
    ones; those without any tail come first. Each gets the tails that fewlink ask would give. Known pairs and the
    decided pairs of a project are left out. The first line of the file records the query.

    Example: `fewlink complete my-graph.tsv --relation treats --out missing.tsv --top 500`
    """
    from fewlink.core.progress import progress
    from fewlink.linker.complete import check_out

    pairs = asked.pairs()
    check_out(out)
    linker, relation = asked.with_project(graph.open())
    with progress("heads", 1.0) as advance:

        def on_heads(done: int, count: int) -> None:
            advance(done / max(count, 1), f"{done:,} of {plural(count, 'head')}")

        found = linker.complete(
            pairs or None,
            relation=relation,
            top=top,
            min_probability=min_probability,
            k=per_head,
            heads=of_type,
            candidates=asked.candidates_in(linker),
            constraints=asked.constraint,
            out=out,
            on_heads=on_heads,
            engine=options.open_engine(engine, linker.device),
        )
    terminal.print_notes([*([found.trust.sentence] if found.trust else []), *found.notes])
    print(f"{plural(len(found), 'pair')} written to {out}")


def relations(
    graph: AskedGraph,
    head: str = typer.Argument(..., metavar="HEAD", help="The first entity."),
    tail: str = typer.Argument(..., metavar="TAIL", help="The second entity."),
    references: list[Path] = typer.Option(
        [],
        metavar="FILE",
        help="File of references that describe another relation, named after the file; repeatable.",
    ),
    top: int = typer.Option(10, "--top", "-k", metavar="NUMBER", min=1, help="Number of relations."),
    json: bool = options.JSON,
) -> None:
    """Find which relation holds from one entity to another: relations of the graph, the best fit first.

    A triple of the graph is marked as known, and does not count as evidence for itself.

    Example: `fewlink relations my-graph.tsv aspirin headache`
    """
    from fewlink.core.errors import FewlinkError
    from fewlink.linker.names import read_pairs

    described = {path.stem: read_pairs(path) for path in references}
    if len(described) < len(references):
        raise FewlinkError("two --references files have the same name, which names their relation: rename one")
    linker = graph.open()
    found = linker.relations(head, tail, described, top)
    terminal.print_notes([FIT_NOTE, *found.notes])
    if json:
        print(found.to_json())
        return
    title = " → ".join(linker.graph.name(linker.names.find(end)) for end in (head, tail))
    rows = [[row.relation_name, row.fit, "yes" if row.known else "", row.by] for row in found]
    terminal.print_table(["relation", "fit", "known", "by"], rows, title=title)


def check(
    graph: SomeGraph,
    output: OutputOptions,
    relation: str = typer.Option(None, metavar="NAME", help="Check this relation only."),
    top: int = typer.Option(20, "--top", "-k", metavar="NUMBER", min=1, help="Number of triples."),
    engine: str = options.ENGINE,
) -> None:
    """Find triples of a graph that look wrong: the oddest first, each with the evidence against it.

    Each triple is compared with wrong pairs as if it were not in the graph: by the paths between its entities, the
    links of similar entities, and their kinds. An odd triple may be right: look before you remove it.

    Example: `fewlink check my-graph.tsv --relation born_in`
    """
    from fewlink.core.progress import progress

    output.check()
    from fewlink.linker.check import check as find_odd_triples
    from fewlink.linker.saving import answered_graph

    with progress("relations", None) as advance:
        found = find_odd_triples(
            answered_graph(graph.source(graph.graph)), relation, top, advance, options.open_engine(engine, "cpu")
        )
    terminal.print_notes(found.notes)
    if not output.print(found):
        rows = [[row.oddness, row.head_name, row.relation_name, row.tail_name, row.reason] for row in found]
        terminal.print_table(["oddness", "head", "relation", "tail", "evidence against it"], rows)
