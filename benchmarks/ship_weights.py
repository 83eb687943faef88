"""Make the file of weights that comes with fewlink from a trained run of `trail`.

python benchmarks/ship_weights.py RUN [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

from fewlink.core.errors import FewlinkError
from fewlink.core.storage import sha256_file
from fewlink.models.trail import shipped
from fewlink.models.trail.network import Shape
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.trail.shipped import BUILT_IN, write_weights
from fewlink.training.checkpoints import load_best
from fewlink.training.run import RunConfig


def write_shipped(run: Path, path: Path) -> Path:
    """Write the best weights of a trained run as the file to ship."""
    config = RunConfig.read(run)
    settings = config.settings
    if not isinstance(settings, TrailSettings):
        raise FewlinkError(f"{run} is a run of {settings.model}: only those of trail have weights for any graph")
    weights, step = load_best(run)
    graphs = [config.benchmark["name"], *(Path(name).name for name in settings.also.split(",") if name)]
    shape = Shape(settings.width, settings.layers, settings.relation_layers)
    return write_weights(path, weights, shape, graphs=graphs, step=step)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    built_in = Path(shipped.__file__).parents[2] / "builtin" / BUILT_IN
    place = write_shipped(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else built_in)
    print(f"{place} ({place.stat().st_size / 1e3:.0f} kB), sha256 {sha256_file(place)}: enter it in CHECKSUMS")
    print("next: fewlink evaluate BENCH --scorer trail, then make docs")
