"""The weights that come with fewlink, in one small file: TRAIL on any graph, without training.

`python -m fewlink.trail.shipped RUN [FILE]` makes the file from a trained run. Its card is `builtin/trail.md`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fewlink import __version__
from fewlink.base.errors import FewlinkError, InputError, reading
from fewlink.base.storage import sha256_file, write_bytes
from fewlink.graph import Graph
from fewlink.trail.learner import TrailSettings
from fewlink.trail.network import Shape, TrailNetwork
from fewlink.trail.reading import ReadGraph
from fewlink.trail.scorer import TrailScorer
from fewlink.training.checkpoints import load_best
from fewlink.training.run import RunConfig

NAME = "trail-shipped"  # in results and titles, beside `trail` as it was trained on one benchmark
FORMAT, METADATA = "fewlink-trail/1", "fewlink"  # one entry of metadata: several have no order
BUILT_IN = "trail.safetensors"
CHECKSUMS = {  # sha256 of the files that come with fewlink
    "trail.safetensors": "b629d25ca6e7f56ac63088762f66c978bf05bb77d7bbdc4bca8197a4da3a6f81",
    "trail-without-attack.safetensors": "5edc6aa4b795dbd0f91c38d422453ed9f08e9801ee20bd01491ae3935c44044e",
}


class Shipped(NamedTuple):
    """Weights by name, and what is known about them: `file`, `sha256`, `version` and `shape`; of a run's also the
    `graphs` they were trained on and the `step`."""

    weights: dict[str, Tensor]
    facts: dict[str, Any]

    @property
    def shape(self) -> Shape:
        return Shape(**self.facts["shape"])

    def network(self) -> TrailNetwork:
        """A network with a copy of the weights."""
        network = TrailNetwork(self.shape)
        network.load_state_dict(self.weights)
        return network


@functools.cache
def shipped() -> Shipped:
    """The weights that come with this version of fewlink."""
    return built_in_weights(BUILT_IN)


def built_in_weights(name: str) -> Shipped:
    """Weights that come with fewlink, by the name of their file; raises if the file has changed."""
    with reading(name, "install fewlink again"):
        content = (files("fewlink") / "builtin" / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != CHECKSUMS[name]:
        raise InputError(name, "is damaged (it has another checksum): install fewlink again")
    return read_weights(content, name)


def shipped_scorer(graph: Graph, device: str = "cpu") -> TrailScorer:
    """TRAIL with the shipped weights on a graph."""
    return TrailScorer(NAME, shipped().network().to(device), ReadGraph.of(graph).to(device), graph)


def read_weights(content: bytes, name: str) -> Shipped:
    """The weights in the content of a file; `name` is the file's, for errors."""
    try:
        weights = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        facts = json.loads(header.get("__metadata__", {}).get(METADATA, "{}"))
        found = facts.get("format")
    except (SafetensorError, ValueError, AttributeError) as error:  # AttributeError: JSON of another kind
        raise _damaged(name, error) from None
    if found != FORMAT:
        raise InputError(name, f"has format {found!r}, this version of fewlink reads {FORMAT!r}: install fewlink again")
    known = {key: value for key, value in facts.items() if key != "format"}
    made = Shipped(weights, {"file": name, "sha256": hashlib.sha256(content).hexdigest(), **known})
    try:
        made.network()
    except (KeyError, TypeError, ValueError, RuntimeError) as error:  # no shape, or weights of another one
        raise _damaged(name, error) from None
    return made


def write_weights(path: Path, weights: dict[str, Tensor], shape: Shape, **facts: Any) -> Path:
    """Write weights and facts as a file that `read_weights` reads."""
    facts = {"format": FORMAT, "version": __version__, "shape": asdict(shape), **facts}
    tensors = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    content = save(tensors, {METADATA: json.dumps(facts)})
    read_weights(content, path.name)
    write_bytes(path, content)
    return path


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


def _damaged(name: str, error: Exception) -> InputError:
    return InputError(name, f"is damaged ({' '.join(str(error).split())[:200]}): install fewlink again")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    built_in = Path(__file__).parents[1] / "builtin" / BUILT_IN
    place = write_shipped(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else built_in)
    print(f"{place} ({place.stat().st_size / 1e3:.0f} kB), sha256 {sha256_file(place)}: enter it in CHECKSUMS above")
    print("now: fewlink evaluate BENCH --scorer trail, then make docs")
