"""Reading triples into a graph, compared with PyKEEN; with --large also time and memory for millions of entities.

python benchmarks/reading.py [--large]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from measure import best_of, in_fresh_process, print_table, write_record

WORDS = ("northern", "harbour", "valley", "station", "museum", "county", "bridge", "forest", "castle", "school")
LARGE_ENTITIES = 5_000_000
LARGE_TRIPLES = 6_000_000

Sizes = tuple[int, int, int]  # entities, relations, triples


def write_graph(path: Path, entities: int, relations: int, triples: int, seed: int = 0) -> None:
    """A file of distinct triples with Zipf-like degrees in which every entity and relation occurs."""
    import numpy as np

    rng = np.random.default_rng(seed)

    def zipf(n: int, size: int) -> np.ndarray:
        return (n ** rng.random(size)).astype(np.int64) - 1  # id k with probability log((k + 2) / (k + 1)) / log n

    def keys(heads: np.ndarray, relation_ids: np.ndarray) -> np.ndarray:
        return np.asarray((heads * relations + relation_ids) * entities + zipf(entities, len(heads)))

    everyone = np.arange(entities)
    once = keys(everyone, everyone % relations)
    drawn = triples - entities
    more = np.setdiff1d(keys(zipf(entities, 2 * drawn), zipf(relations, 2 * drawn)), once)
    chosen = rng.permutation(np.concatenate([once, rng.choice(more, drawn, replace=False)]))

    a, b = rng.integers(len(WORDS), size=(2, entities)).tolist()
    names = [f"{WORDS[i]}_{WORDS[j]}_Q{k + 10_000_000}" for k, (i, j) in enumerate(zip(a, b, strict=True))]
    edges = [f"property_{WORDS[k % len(WORDS)]}_P{k + 10_000}" for k in range(relations)]
    columns = (chosen // entities // relations, chosen // entities % relations, chosen % entities)
    with path.open("w", encoding="utf-8") as file:
        for h, r, t in zip(*(column.tolist() for column in columns), strict=True):
            file.write(f"{names[h]}\t{edges[r]}\t{names[t]}\n")


def read_with_fewlink(path: Path) -> Sizes:
    from fewlink.graph import compile_graph

    graph = compile_graph([path])
    return len(graph.entities), len(graph.relations), graph.triple_count


def read_with_pykeen(path: Path) -> Sizes:
    from pykeen.triples import TriplesFactory

    factory = TriplesFactory.from_path(path)
    return factory.num_entities, factory.num_relations, factory.num_triples


def compile_to_folder(path: Path, folder: Path) -> None:
    from fewlink.graph import compile_graph

    compile_graph([path]).save(folder)


def open_folder(folder: Path) -> Sizes:
    from fewlink.graph import Graph

    graph = Graph.open(folder)
    return len(graph.entities), len(graph.relations), graph.triple_count


def generate(path: Path, sizes: Sizes) -> None:
    in_fresh_process(write_graph, path, *sizes)
    entities, relations, triples = (f"{n:,}" for n in sizes)
    size = path.stat().st_size / 1e6
    print(f"{triples} triples, {entities} entities, {relations} relations, {size:.0f} MB of TSV")


def compare(sizes: Sizes, repeats: int, folder: Path) -> dict[str, object]:
    """Read one file with both libraries; imports are not timed."""
    path = folder / "graph.tsv"
    generate(path, sizes)
    contenders = {
        "fewlink": (read_with_fewlink, ["fewlink.graph"]),
        "PyKEEN": (read_with_pykeen, ["pykeen.triples"]),
    }
    runs = [  # in turn, so that other load on the machine affects both
        {name: in_fresh_process(read, path, imports=modules) for name, (read, modules) in contenders.items()}
        for _ in range(repeats)
    ]
    costs = {name: min((run[name] for run in runs), key=lambda cost: cost.seconds) for name in contenders}
    for name, cost in costs.items():
        if cost.value != sizes:
            raise SystemExit(f"{name} read {cost.value} entities, relations and triples, but {sizes} were written")
    rows = [
        {
            "library": name,
            "seconds": cost.seconds,
            "CPU seconds": cost.cpu_seconds,
            "peak GB": cost.peak_bytes / 1e9,
            "triples/s": sizes[2] / cost.seconds,
        }
        for name, cost in costs.items()
    ]
    print_table(rows)
    wall = costs["PyKEEN"].seconds / costs["fewlink"].seconds
    cpu = costs["PyKEEN"].cpu_seconds / costs["fewlink"].cpu_seconds
    print(f"PyKEEN takes {wall:.2f} times as long and {cpu:.2f} times the CPU time (best of {repeats} each)")
    return {"sizes": sizes, "repeats": repeats, "rows": rows, "wall_ratio": wall, "cpu_ratio": cpu}


def large(sizes: Sizes, repeats: int, folder: Path) -> dict[str, object]:
    """Compile a large graph to a folder, then open it in new processes."""
    path = folder / "large.tsv"
    compiled = folder / "large"
    generate(path, sizes)
    compiling = in_fresh_process(compile_to_folder, path, compiled, imports=["fewlink.graph"])
    opening = best_of(repeats, open_folder, compiled, imports=["fewlink.graph"])
    if opening.value != sizes:
        raise SystemExit(f"the folder has {opening.value} entities, relations and triples, not {sizes}")
    steps = {"compile and save": compiling, "open": opening}
    rows = [{"step": s, "seconds": c.seconds, "peak GB": c.peak_bytes / 1e9} for s, c in steps.items()]
    print_table(rows)
    return {"sizes": sizes, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triples", type=int, default=1_000_000)
    parser.add_argument("--entities", type=int, default=200_000)
    parser.add_argument("--relations", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="also 5 million entities and 6 million triples")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes = (options.entities, options.relations, options.triples)
        write_record("reading", compare(sizes, options.repeats, Path(folder)))
        if options.large:
            sizes = (LARGE_ENTITIES, options.relations, LARGE_TRIPLES)
            write_record("reading-large", large(sizes, options.repeats, Path(folder)))


if __name__ == "__main__":
    main()
