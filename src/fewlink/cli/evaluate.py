"""`fewlink evaluate`: rank a split's queries with a scorer and store the result."""

from __future__ import annotations

from pathlib import Path

import typer

RESULTS = Path("results")


def evaluate(
    bench: str = typer.Argument(..., metavar="BENCH", help="A catalogue name, a benchmark folder, or an archive."),
    scorer: str = typer.Option("rules", help="random, popularity, reference-tails or rules."),
    split: str = typer.Option("dev", help="train, dev or test. Choose on dev; look at test once."),
    shots: int = typer.Option(3, "--shots", "-k", help="References of each relation."),
    candidates: str = typer.Option(
        "full", help="paper (at most 1000), full (all of the right type) or open (no oracle)."
    ),
    draws: int = typer.Option(0, help="Random draws of the references; 0 takes the first K of each relation."),
    seed: int = typer.Option(0, help="Seed of the draws and of the scorer."),
    processes: int = typer.Option(1, help="Processes to share the work; the figures stay the same."),
    results: Path = typer.Option(RESULTS, help="Folder for the result records."),
    json: bool = typer.Option(False, "--json", help="Print the records as JSON."),
) -> None:
    """Rank the true tails of a split and store the figures.

    Example: `fewlink evaluate umls --scorer rules --split test --shots 3 --candidates full`
    """
    from fewlink.choices import choose
    from fewlink.cli import show
    from fewlink.cli.results import result_row, result_table
    from fewlink.errors import FewlinkError
    from fewlink.evaluation import Protocol
    from fewlink.evaluation import evaluate as run
    from fewlink.evaluation.records import make_record
    from fewlink.scorers import LEARNING_FREE
    from fewlink.tasks import PROTOCOLS, SPLITS, open_benchmark

    make = choose("scorer", scorer, LEARNING_FREE)
    choose("split", split, dict.fromkeys(SPLITS))
    choose("candidates protocol", candidates, dict.fromkeys(PROTOCOLS))
    if draws < 0:
        raise FewlinkError(f"draws must be 0 or more, got {draws}")
    benchmark = open_benchmark(bench)
    ranker = make(benchmark.graph, seed)
    records = []
    for draw in range(1, draws + 1) if draws else [0]:
        evaluation = run(benchmark, ranker, Protocol(split, shots, candidates, draw, seed), processes=processes)
        record = make_record(
            evaluation, benchmark=benchmark.name, data_sha256=benchmark.fingerprint, model=scorer, seed=seed
        )
        records.append(record)
        record.save(results)
    if json:
        show.as_json([r.model_dump() for r in records] if draws else records[0].model_dump())
        return
    result_table([result_row([r]) for r in records] + ([result_row(records)] if draws > 1 else []))
    if not draws:
        rows = [
            [n, f["queries"], f["candidates"], f["mrr"], f["hits@1"], f["hits@10"]]
            for n, f in records[0].relations.items()
        ]
        show.table(["relation", "queries", "candidates", "MRR", "Hits@1", "Hits@10"], rows)
