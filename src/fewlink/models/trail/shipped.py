"""The weights that come with fewlink, in one small file: TRAIL on any graph, without training.

`benchmarks/ship_weights.py` makes the file from trained weights. Its card is `builtin/trail.md`.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fewlink import __version__
from fewlink.core import machine
from fewlink.core.errors import InputError, wrong_format
from fewlink.core.files import write_bytes
from fewlink.core.machine import PROGRAM, Parts
from fewlink.graph import Graph
from fewlink.models.trail.built_in import built_in_file
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.names import MOST_NAMES
from fewlink.models.trail.network import Shape, TrailNetwork
from fewlink.models.trail.scorer import MAX_WHOLE_EDGES, PART_EDGES, TrailScorer

NAME = "trail"  # in titles and answers
FORMAT = "fewlink-trail/2"
METADATA = "fewlink"  # one entry of metadata: several have no order
BUILT_IN = "trail.safetensors"
EDGE = 60  # bytes of an edge in three orders
CONSTANTS = 16  # bytes of an edge if only the surroundings of a head are read
PAIR = 28  # bytes of a pair of relations while their co-occurrences are counted
STATES = 6  # tensors of the size of the states that answering needs at once


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
    return read_weights(built_in_file(BUILT_IN), BUILT_IN)


def shipped_scorer(graph: Graph, device: str = "cpu", *, names: bool = True) -> TrailScorer:
    """TRAIL with the shipped weights on a graph that fits into memory; without `names` it reads the structure alone."""
    machine.ensure(NAME, answering_memory(graph, shipped().shape.width, device), device)
    return TrailScorer(NAME, shipped().network().to(device), ReadGraph.of(graph, names=names).to(device))


def answering_memory(graph: Graph, width: int, device: str, *, whole: bool = False) -> Parts:
    """The bytes that answering on a graph takes; a CPU reads parts of a large graph unless it is read `whole`."""
    on_cpu = device == "cpu"
    partial = on_cpu and not whole and 2 * graph.triple_count > MAX_WHOLE_EDGES
    mapped = partial and graph.counted is not None and len(graph.entities) > MOST_NAMES
    nodes = min(len(graph.entities), 2 * PART_EDGES) if partial else len(graph.entities)
    return {
        "states": float(nodes) * width * (4 if on_cpu else 2) * STATES,
        "edges": 0.0 if mapped else (CONSTANTS if partial else EDGE) * 2.0 * graph.triple_count,
        "relations": (4 if mapped else PAIR) * (2.0 * len(graph.relations)) ** 2,
        "the program": PROGRAM,
    }


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
        raise wrong_format(Path(name), found, FORMAT, "install fewlink again")
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


def _damaged(name: str, error: Exception) -> InputError:
    return InputError(name, f"is damaged ({' '.join(str(error).split())[:200]}): install fewlink again")
