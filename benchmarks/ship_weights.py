"""Make the file of weights that comes with fewlink, and enter its checksum.

python benchmarks/ship_weights.py WEIGHTS [NAME]

WEIGHTS is a file of `benchmarks/pretrain.py`, or a run of `trail`. NAME is the name of the file below
src/fewlink/builtin, by default trail.safetensors.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fewlink.core.errors import FewlinkError
from fewlink.core.files import sha256_file
from fewlink.models.checkpoints import load_best
from fewlink.models.run import RunConfig
from fewlink.models.trail import built_in
from fewlink.models.trail.network import Shape
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.trail.shipped import BUILT_IN, read_weights, write_weights

MODULE = Path(built_in.__file__)
FOLDER = MODULE.parents[2] / "builtin"
KEPT = ("graphs", "step", "seed")  # facts


def from_run(run: Path, path: Path) -> Path:
    """Write the best weights of a trained run as the file to ship."""
    config = RunConfig.read(run)
    settings = config.settings
    if not isinstance(settings, TrailSettings):
        raise FewlinkError(f"{run} is a run of {settings.model}: only those of trail have weights for any graph")
    weights, step = load_best(run)
    graphs = [config.benchmark["name"], *(Path(name).name for name in settings.also.split(",") if name)]
    shape = Shape(settings.width, settings.layers, settings.relation_layers)
    return write_weights(path, weights, shape, graphs=graphs, step=step, seed=settings.seed)


def from_weights(source: Path, path: Path) -> Path:
    """Write the weights of a file as the file to ship."""
    found = read_weights(source.read_bytes(), source.name)
    return write_weights(path, found.weights, found.shape, **{name: found.facts[name] for name in KEPT})


def enter_checksum(path: Path) -> None:
    """Enter the checksum of a built-in file into CHECKSUMS."""
    entry = f'    "{path.name}": "{sha256_file(path)}",\n'
    text = MODULE.read_text("utf-8")
    others = re.sub(rf'    "{re.escape(path.name)}": ".*",\n', "", text)
    MODULE.write_text(others.replace("CHECKSUMS = {  # sha256\n", f"CHECKSUMS = {{  # sha256\n{entry}"), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    source = Path(sys.argv[1])
    place = FOLDER / (sys.argv[2] if len(sys.argv) > 2 else BUILT_IN)
    place = from_run(source, place) if source.is_dir() else from_weights(source, place)
    enter_checksum(place)
    print(f"{place}: {place.stat().st_size / 1e3:.0f} kB; its checksum is in {MODULE}")
    print("next: fewlink evaluate BENCH --scorer trail, then make docs")
