"""Compile the built-in graphs from their triples, so that the package opens them in milliseconds.

python benchmarks/ship_graphs.py

The result depends on the triples alone. Run it after a change of the triples, of the format of folders, or of what
TRAIL reads of names.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from safetensors.numpy import save

from fewlink.core.files import write_bytes
from fewlink.graph import compile_graph
from fewlink.graph.source import GraphSource
from fewlink.models.trail.names import ATTACK_FILE, digest_of_names, made_of_names
from fewlink.tasks.carving import CarveSettings, carve
from ship_weights import enter_checksum

BUILTIN = Path(str(files("fewlink"))) / "builtin"
ATTACK = GraphSource.of(
    BUILTIN / "attack.tsv.xz",
    types=BUILTIN / "attack.types.tsv.xz",
    names=BUILTIN / "attack.names.tsv.xz",
    literals="keep",
)
UMLS = CarveSettings(dev_share=0.2, test_share=0.3)  # about half of its relations become tasks


def main() -> None:
    attack = compile_graph(ATTACK)
    attack.save(BUILTIN / "attack")
    names = made_of_names(attack)
    assert names is not None
    write_bytes(BUILTIN / ATTACK_FILE, save(names._asdict()))
    enter_checksum(BUILTIN / ATTACK_FILE)
    print(f"ATTACK_NAMES in fewlink/models/trail/names.py: {digest_of_names(attack)}")
    benchmark, _ = carve(compile_graph(BUILTIN / "umls.tsv.gz", literals="keep"), "umls", UMLS)
    benchmark.save(BUILTIN / "umls")


if __name__ == "__main__":
    main()
