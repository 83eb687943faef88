"""`fewlink embeddings …`: vectors from and for other programs."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(help="Vectors from and for other programs: import, export.", no_args_is_help=True)

BENCH = typer.Argument(..., metavar="BENCH", help="The benchmark whose graph the vectors belong to.")


@app.command("import")
def import_(
    bench: str = BENCH,
    source: Path = typer.Argument(..., help="A PyKEEN folder, a folder of the NELL-One release, or entities.npy."),
    out: Path = typer.Option(..., help="Folder for the embeddings."),
    kind: str = typer.Option("pykeen", help="pykeen, nell-one (entity2vec.ComplEx, …) or numpy."),
    relations: Path = typer.Option(None, help="relations.npy, for numpy."),
    model: str = typer.Option(None, help="complex, transe, distmult or rescal, where the source does not tell."),
    norm: int = typer.Option(None, help="p of TransE's distance, where the source does not tell."),
) -> None:
    """Take over trained vectors, put in the order of a benchmark's graph.

    Example: `fewlink embeddings import nell-one downloads/nell-embeddings --kind nell-one --out runs/complex`
    """
    from fewlink.base.errors import FewlinkError
    from fewlink.base.resolver import choose
    from fewlink.data import open_benchmark
    from fewlink.embeddings import from_nell_one, from_numpy, from_pykeen

    choose("kind of source", kind, dict.fromkeys(("pykeen", "nell-one", "numpy")))
    graph = open_benchmark(bench).graph
    names = list(graph.entities), list(graph.relations)
    if kind == "pykeen":
        taken = from_pykeen(source, *names, model=model, norm=norm)
    elif kind == "nell-one":
        taken = from_nell_one(source, *names, model=model or "complex", norm=norm or 2)
    elif relations is None:
        raise FewlinkError("numpy vectors are two files: name the second with --relations")
    else:
        taken = from_numpy(source, relations, model or "complex", norm=norm or 2)
    taken.save(out, graph.fingerprint, graph=bench, relation_names=names[1])
    print(f"{len(taken.entities):,} entities of {taken.dim} reals, {len(names[1]):,} relations: {taken.model} in {out}")


@app.command()
def export(
    bench: str = BENCH,
    embeddings: Path = typer.Argument(..., help="A folder made by fewlink pretrain or fewlink embeddings import."),
    out: Path = typer.Option(..., help="Folder for the exported files."),
    to: str = typer.Option("numpy", help="numpy, word2vec or projector (TensorBoard)."),
) -> None:
    """Write vectors for other programs, with the entities' readable names where there are any.

    Example: `fewlink embeddings export umls runs/umls-complex --to word2vec --out exported`
    """
    from fewlink.base.resolver import choose
    from fewlink.data import open_benchmark
    from fewlink.embeddings import Embeddings, to_numpy, to_projector, to_word2vec

    choose("export format", to, dict.fromkeys(("numpy", "word2vec", "projector")))
    graph = open_benchmark(bench).graph
    table = Embeddings.open(embeddings, graph.fingerprint)
    if to == "numpy":
        to_numpy(table, out / "entities.npy", out / "relations.npy")
    elif to == "word2vec":
        to_word2vec(out / "entities.txt", list(graph.entities), table.entities)
    else:
        to_projector(out, [graph.name(e) for e in range(len(graph.entities))], table.entities)
    print(f"{len(table.entities):,} vectors as {to} in {out}")
