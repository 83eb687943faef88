"""Engines that number names and sort edges out of core, DuckDB and Polars, beside reading the whole graph at once.

python benchmarks/engines.py [--triples 5000000] [--memory 1GB]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from huge import run, write_triples
from measure import print_table, write_record

RECORD = "engines"


def read_at_once(file: Path, folder: Path, memory: str) -> None:
    """Read the graph in memory, and write its edges: everything but what is counted of it."""
    import numpy as np

    from fewlink.graph import compile_graph

    graph = compile_graph([file])
    for array in ("offsets", "relation_ids", "tail_ids", "positions"):
        np.save(folder / f"{array}.npy", getattr(graph, array))
    graph.entities.save(folder, "entities")


def read(file: Path, folder: Path, memory: str) -> Any:
    """What both engines begin with: the names of each block in order of appearance, and triples of places."""
    import duckdb

    from fewlink.core.memory import size_in_bytes
    from fewlink.graph.out_of_core import NOTHING, Compiler, Work
    from fewlink.graph.source import GraphSource

    work, engine = Work(folder / "work", "key"), duckdb.connect()
    engine.execute(f"SET memory_limit = '{size_in_bytes(memory, '--memory') >> 20}MiB'")
    engine.execute("SET temp_directory = ?", [str(folder / "spill")])
    engine.execute("SET preserve_insertion_order = false")
    compiler = Compiler(work, engine, GraphSource.of(file))
    return compiler, compiler.read(0, NOTHING)


def with_duckdb(file: Path, folder: Path, memory: str) -> None:
    """The stages of `fewlink data compile` up to the edges and the names of entities."""
    compiler, found = read(file, folder, memory)
    compiler.number_names()
    compiler.map_names()
    compiler.write_triples(found["blocks"])
    compiler.sort_edges(len(found["relations"]))
    compiler.write_names([name.encode() for name in found["relations"]])


def with_polars(file: Path, folder: Path, memory: str) -> None:
    """The same stages with the streaming engine of Polars, which has no limit of memory."""
    import polars as pl

    compiler, found = read(file, folder, memory)
    work = compiler.folder
    names, relations = pl.scan_parquet(work / "names-0.parquet"), len(found["relations"])
    first = names.group_by("name").agg(pl.col("row").min()).sort("row").select("name").with_row_index("id")
    first.select(pl.col("id").cast(pl.Int32), "name").sink_parquet(work / "ids.parquet", engine="streaming")
    ids = names.join(pl.scan_parquet(work / "ids.parquet"), on="name").sort("row").select("id")
    ids.sink_parquet(work / "map.parquet", engine="streaming")
    (work / "map.bin").write_bytes(pl.read_parquet(work / "map.parquet")["id"].to_numpy().astype("int32").tobytes())
    compiler.write_triples(found["blocks"])
    triples = pl.scan_parquet(work / "triples.parquet").with_row_index("p")
    inverse = triples.select(p="p", h="t", r=pl.col("r") + relations, t="h")
    edges = pl.concat([triples.select("p", "h", "r", "t"), inverse]).sort("h", "r", "t", "p")
    edges.sink_parquet(work / "edges.parquet", engine="streaming")
    for at, batch in enumerate(pl.scan_parquet(work / "edges.parquet").collect_batches(chunk_size=1 << 20)):
        (folder / f"edges-{at}.bin").write_bytes(batch.select("r", "t", "p").to_numpy().tobytes())
    compiler.write_names([name.encode() for name in found["relations"]])


WAYS = {"at once": read_at_once, "DuckDB": with_duckdb, "Polars": with_polars}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triples", type=int, nargs="+", default=[5_000_000])
    parser.add_argument("--memory", default="1GB", help="the limit of DuckDB")
    parser.add_argument("--folder", type=Path, help="for temporary files")
    parser.add_argument("--note", default="", help="about the machine, for the record")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        way, file, folder, memory = options.run
        WAYS[way](Path(file), Path(folder), memory)
        return
    rows = []
    for triples in options.triples:
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            file = Path(place) / "graph.tsv.zst"
            write_triples(file, triples)
            for way in WAYS:
                folder = Path(place) / "out"
                folder.mkdir()
                command = [sys.executable, __file__, "--run", way, str(file), str(folder), options.memory]
                cost = run(command, folder)
                numbers = {"seconds": cost["seconds"], "peak GB": cost["peak GB"], "disk GB": cost["work GB"]}
                rows.append({"triples": triples, "way": way, **numbers, "triples/s": triples / cost["seconds"]})
                shutil.rmtree(folder)
    print_table(rows)
    write_record(RECORD, json.loads(json.dumps({"memory": options.memory, "note": options.note, "rows": rows})))


if __name__ == "__main__":
    main()
