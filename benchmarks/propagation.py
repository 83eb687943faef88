"""The speed of message passing: the relational product, its gradients, a layer, questions and training steps.

python benchmarks/propagation.py nell-one --device cpu

Both sides of a row run in turn in one process: this package's, and plain torch. Plain is the product as one gather and
one `index_add` on the CPU, and `without_kernels` on a GPU. Bytes of a product are what it has to move: for each edge
the state of its source, its ids and its constants, and each state that is written once. They are compared with a copy
of a tensor in the same run. Figures are medians over the turns. The record is records/propagation-DEVICE.json.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.core.machine import hardware
from fewlink.graph import Graph
from fewlink.models.contract import Question
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.learn import TrailLearner, bands_of, network_of
from fewlink.models.trail.network import HEAD, TrailNetwork
from fewlink.models.trail.propagate import MessageEdges, head_places, marked, propagate
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import Norms, relation_sums, relational_product, transposed_product, without_kernels
from fewlink.tasks import open_benchmark
from measure import print_table, write_record

COPIED = 1 << 28  # bytes of the tensor that is copied on a CPU; a GPU copies four times as much
EDGE_BYTES = 16  # two ids and two constants
BATCHES = 4  # different batches of training steps


def in_turns(works: Mapping[str, Callable[[], Any]], turns: int, device: str) -> dict[str, float]:
    """Median seconds of each work, after a call that is not timed; all of them in every turn."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name, work in works.items():
            if device != "cpu":
                torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            if device != "cpu":
                torch.cuda.synchronize()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def row(what: str, seconds: Mapping[str, float], moved: float = 0, copy: float = 0) -> dict[str, Any]:
    """Milliseconds of both sides; bytes moved a second, and their share of those of a copy."""
    own = seconds["fewlink"]
    plain = seconds.get("plain")
    return {
        "what": what,
        "ms": 1000 * own,
        "plain ms": 1000 * plain if plain else "–",
        "times plain": plain / own if plain else "–",
        "GB/s": moved / own / 1e9 if moved else "–",
        "share of copy": moved / own / copy if moved else "–",
    }


def plainly(device: str) -> Any:
    """Torch's operations on a GPU."""
    return without_kernels() if device != "cpu" else nullcontext()


def plain_product(x: Tensor, w: Tensor, edges: EdgeTable, norms: Norms, transposed: bool = False) -> Tensor:
    """The product as one gather and one `index_add`."""
    order = edges.by_head if transposed else edges.by_tail
    fans = [order.fan_out, order.fan_in, (order.fan_out * order.fan_in).sqrt(), torch.ones_like(order.fan_in)]
    constants = torch.stack(fans[: norms.value], 1).repeat_interleave(x.shape[-1] // norms.value, 1).to(x.dtype)
    weights = w.transpose(0, 1)[order.second] * constants[:, None]
    return torch.zeros_like(x).index_add_(0, order.row, x[order.first] * weights[:, :, None])


def products(edges: EdgeTable, sizes: tuple[int, int, int], dtype: torch.dtype, options: Any) -> list[dict[str, Any]]:
    """The product, its transpose and the sums by relation, against a copy."""
    device = options.device
    (tasks, queries, width) = sizes
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(edges.nodes, tasks, queries, width, generator=draw).to(device, dtype) for _ in range(2))
    w = torch.randn(tasks, edges.relations, width, generator=draw).to(device, dtype)
    source = torch.zeros(COPIED * (1 if device == "cpu" else 4), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    state = tasks * queries * width * x.element_size()
    moved = edges.edges * (state + EDGE_BYTES) + edges.nodes * state

    def plain(work: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> None:
            with plainly(device):
                work()

        return call

    on_cpu = device == "cpu"
    forward = plain_product if on_cpu else relational_product
    back: Callable[..., Tensor] = functools.partial(plain_product, transposed=True) if on_cpu else transposed_product
    works: dict[str, dict[str, Callable[[], Any]]] = {
        "copy": {"fewlink": lambda: target.copy_(source)},
        "product": {
            "fewlink": lambda: relational_product(x, w, edges),
            "plain": plain(lambda: forward(x, w, edges, Norms.FOUR)),
        },
        "product, transposed": {
            "fewlink": lambda: transposed_product(x, w, edges),
            "plain": plain(lambda: back(x, w, edges, Norms.FOUR)),
        },
        "sums by relation": {"fewlink": lambda: relation_sums(x, y, edges)},
    }
    if not on_cpu:
        works["sums by relation"]["plain"] = plain(lambda: relation_sums(x, y, edges))
    flat = {f"{what}/{side}": work for what, sides in works.items() for side, work in sides.items()}
    with torch.no_grad():
        seconds = in_turns(flat, options.turns, device)
    copy = 2 * source.numel() / seconds["copy/fewlink"]
    bytes_of = {"copy": 2.0 * source.numel(), "sums by relation": float(edges.edges * (2 * state + EDGE_BYTES))}
    name = f"{tasks} × {queries} × {width} {str(dtype).removeprefix('torch.')}"
    return [
        row(
            what if what == "copy" else f"{what}, {name}",
            {side: seconds[f"{what}/{side}"] for side in sides},
            bytes_of.get(what, float(moved)),
            copy,
        )
        for what, sides in works.items()
    ]


def questions(graph: Graph, network: TrailNetwork, options: Any) -> list[dict[str, Any]]:
    """Reading references, the propagation of one block of heads, and a question of one head and of many."""
    read = ReadGraph.of(graph, names=False).to(options.device)
    scorer = TrailScorer("trail", network, read)
    draw = np.random.default_rng(0)
    triples = graph.triples()
    pairs = triples[triples[:, 1] == np.bincount(triples[:, 1]).argmax()][:, [0, 2]]
    references = pairs[:3].astype(np.int32)
    heads = draw.integers(0, len(graph.entities), options.heads).astype(np.int32)
    candidates = draw.integers(0, len(graph.entities), 1000).astype(np.int32)
    queries = 1 if options.device == "cpu" else 8
    (known,) = scorer.known_tasks([references])
    some = torch.from_numpy(heads[:queries].astype(np.int64)).to(options.device)[None]
    edges = MessageEdges(read.edges, known.local.edges())
    weights = network.weights(known.local, known.encoded, HEAD)
    marks = network.head_marks(known.encoded, queries)
    begin = marked(head_places(some), marks, read.edges.nodes, 1, queries).to(scorer.dtype)
    turn = itertools.count()

    def ask(count: int) -> Tensor:
        return torch.as_tensor(scorer(Question("", references, heads[:count], candidates)))

    def ask_anew() -> Tensor:  # more relations than a scorer remembers
        first = next(turn) * 3 % (len(pairs) - 3)
        return torch.as_tensor(scorer(Question("", pairs[first : first + 3], heads[:1], candidates)))

    works: dict[str, Callable[[], Any]] = {
        "a new relation with 3 references": lambda: scorer._read_tasks([references]),
        f"a new relation with {len(pairs):,} references": lambda: scorer._read_tasks([pairs]),
        f"propagation, {queries} heads": lambda: propagate(edges, begin, weights),
        "question, new relation": ask_anew,
        "question, same relation": lambda: ask(1),
        f"question, {len(heads)} heads": lambda: ask(len(heads)),
    }
    rows = []
    for what, work in works.items():
        sides = {"fewlink": work}
        if options.device != "cpu":
            sides["plain"] = lambda work=work: _plain(work, options.device)  # type: ignore[misc]
        with torch.no_grad():
            seconds = in_turns(sides, options.turns, options.device)
        moved = 0.0
        if what.startswith("propagation"):
            state = queries * network.shape.width * (2 if options.device != "cpu" else 4)
            moved = network.shape.layers * float(read.edges.edges * (state + EDGE_BYTES) + 3 * read.edges.nodes * state)
        found = row(what, seconds, moved, options.copy)
        rows.append(found | {"queries/s": len(heads) / seconds["fewlink"] if "heads" in what and moved == 0 else "–"})
    return rows


def _plain(work: Callable[[], Any], device: str) -> None:
    with plainly(device):
        work()


def steps(graph: Graph, settings: TrailSettings, options: Any) -> list[dict[str, Any]]:
    """Training steps a second: recorded as a CUDA graph, launched kernel by kernel, and with plain torch."""
    learner = TrailLearner([graph], settings)
    every = (learner.episodes[step] for step in itertools.count())
    few = min(bands_of(settings))
    some = itertools.islice((batch for batch in every if batch.tasks.references.pairs.shape[1] == few), BATCHES)
    batches = [batch.to(learner.device) for batch in some]

    def each(step: Callable[[Any], Any]) -> Callable[[], None]:
        def call() -> None:
            for batch in batches:
                step(batch)

        return call

    def plain(batch: Any) -> None:
        _plain(lambda: learner.move(batch), options.device)

    works = {"recorded": each(lambda batch: learner.step(0, batch))} if options.device != "cpu" else {}
    works |= {"eager": each(learner.move)} | ({"plain torch": each(plain)} if options.device != "cpu" else {})
    seconds = in_turns(works, options.turns, options.device)
    slowest = seconds.get("plain torch", seconds["eager"])
    return [
        {
            "step": name,
            "steps/s": len(batches) / value,
            "episodes/s": len(batches) * settings.relations / value,
            "queries/s": len(batches) * settings.relations * settings.queries / value,
            "times plain": slowest / value,
        }
        for name, value in seconds.items()
    ]


def training(graph: Graph, settings: TrailSettings, options: Any) -> dict[str, Any]:
    """Training as users run it on a GPU, with episodes drawn meanwhile."""
    torch.cuda.reset_peak_memory_stats()
    learner = TrailLearner([graph], settings)
    turn = itertools.count()
    work = {"fewlink": lambda: learner.run_steps(learner.steps_at_once * next(turn), learner.steps_at_once)}
    rate = learner.steps_at_once / in_turns(work, options.turns, options.device)["fewlink"]
    memory = torch.cuda.max_memory_reserved() / 1e9
    return {"training": "one run", "steps/s": rate, "episodes/s": rate * settings.relations, "GPU memory, GB": memory}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--heads", type=int, default=None, help="heads of the long question")
    parser.add_argument("--steps", action="store_true", help="training steps on the CPU as well")
    options = parser.parse_args(arguments)
    on_cpu = options.device == "cpu"
    if not on_cpu and not torch.cuda.is_available():
        raise SystemExit("skipped: torch finds no GPU")
    options.heads = options.heads or (4 if on_cpu else 256)

    benchmark = open_benchmark(options.bench)
    graph = benchmark.known_graph
    settings = TrailSettings(device=options.device)
    torch.manual_seed(0)
    network = network_of(settings).to(options.device).eval()
    edges = EdgeTable.of(graph).to(options.device)
    print(f"{benchmark.name}: {edges.nodes:,} entities, {edges.edges:,} edges, {edges.relations:,} relations")

    width = settings.width
    shapes = [(1, 1)] if on_cpu else [(4, 8), (1, 8), (1, 1)]
    rows = products(edges, (*shapes[0], width), torch.float32 if on_cpu else torch.bfloat16, options)
    options.copy = rows[0]["GB/s"] * 1e9
    for shape in shapes[1:]:
        rows += products(edges, (*shape, width), torch.bfloat16, options)[1:]
    if on_cpu:
        rows += products(edges, (1, 4, width), torch.float32, options)[1:]
    print_table(rows)
    asked = questions(graph, network, options)
    print_table(asked)
    trained = steps(graph, settings, options) if options.steps or not on_cpu else []
    if trained:
        print_table(trained)
    course = [] if on_cpu else [training(graph, settings, options)]
    if course:
        print_table(course)
    results = {"bench": benchmark.name, "hardware": hardware(), "device": options.device, "rows": rows}
    results |= {"questions": asked, "steps": trained, "training": course}
    write_record(f"propagation-{options.device}", results)


if __name__ == "__main__":
    main()
