"""Compile the built-in graphs from their triples, so that the package opens them in milliseconds.

python benchmarks/ship_graphs.py

The result depends on the triples alone. Run it after a change of the triples or of the format of folders.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fewlink.graph import compile_graph
from fewlink.graph.source import GraphSource
from fewlink.tasks.carving import CarveSettings, carve

BUILTIN = Path(str(files("fewlink"))) / "builtin"
ATTACK = GraphSource.of(
    BUILTIN / "attack.tsv.xz",
    types=BUILTIN / "attack.types.tsv.xz",
    names=BUILTIN / "attack.names.tsv.xz",
    literals="keep",
)
UMLS = CarveSettings(dev_share=0.2, test_share=0.3)  # about half of its relations become tasks


def main() -> None:
    compile_graph(ATTACK).save(BUILTIN / "attack")
    benchmark, _ = carve(compile_graph(BUILTIN / "umls.tsv.gz", literals="keep"), "umls", UMLS)
    benchmark.save(BUILTIN / "umls")


if __name__ == "__main__":
    main()
