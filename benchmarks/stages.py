"""The stages whose growth with the graph is measured, each a function that runs in its own process.

A stage takes plain values and returns a small dictionary of figures; its caller measures wall seconds and peak memory.
FSRL reads random vectors, which take the same time as trained ones. Stages run on the CPU by default.
"""

from __future__ import annotations

import dataclasses
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fewlink.models.contract import Scorer
    from fewlink.models.embeddings import Embeddings
    from fewlink.tasks import Benchmark, Task

LIKE, SEED, DIM, SHOTS = "wiki-one", 0, 50, 3
QUERIES = 120  # of an evaluation, spread over all test relations
BLOCKS, WARM_UP = 12, 2  # of FSRL's steps
TURNS = 5  # of TRAIL's steps
PREDICTIONS = 10  # for new relations, and as many more for the last one

Figures = dict[str, float]


def generate(layout: Path, entities: int) -> Figures:
    """Generate a benchmark of Wiki-One's shape as a folder in the NELL-One layout."""
    from fewlink.tasks.synthetic.benchmark import generate as make

    counts = make(layout, LIKE, entities, None, SEED)
    return {"relations": counts["background relations"]}


def read(layout: Path) -> Figures:
    """Read the background triples into a graph in memory."""
    from fewlink.graph import compile_graph

    graph = compile_graph([layout / "path_graph"], literals="keep")
    return {"relations": len(graph.relations)}


def compile_benchmark(layout: Path, compiled: Path) -> Figures:
    """Compile a folder in the NELL-One layout, with all checks."""
    from fewlink.tasks.nell_layout import read_layout

    benchmark, _ = read_layout(layout)
    benchmark.save(compiled)
    return {"bytes": sum(f.stat().st_size for f in compiled.rglob("*") if f.is_file())}


def open_compiled(compiled: Path) -> Figures:
    """Open the compiled benchmark and read one edge."""
    from fewlink.tasks import Benchmark

    graph = Benchmark.open(compiled).graph
    return {"first tail": int(graph.tail_ids[0])}


def pretrain(compiled: Path, out: Path) -> Figures:
    """An epoch of ComplEx on the background and the train relations, and saving the vectors."""
    from fewlink.core.recipes import recipe
    from fewlink.models.embeddings import EmbeddingSettings
    from fewlink.models.vectors import pretrain as train_vectors
    from fewlink.tasks import Benchmark

    settings = recipe("complex-large", EmbeddingSettings).settings.replace(dim=DIM, epochs=1)
    traces: list[dict[str, Any]] = []
    train_vectors(Benchmark.open(compiled), settings, out=out, with_train_tasks=True, on_epoch=traces.append)
    return {"epoch seconds": sum(traces[0]["seconds"].values()), "triples/s": traces[0]["triples_per_second"]}


def train_fsrl(compiled: Path, device: str = "cpu") -> Figures:
    """Steps of FSRL with the paper's settings."""
    from fewlink.models.fsrl.learner import FewShotLearner
    from fewlink.models.fsrl.settings import FewShotSettings
    from fewlink.tasks import Benchmark

    benchmark = Benchmark.open(compiled)
    vectors = random_vectors(benchmark)
    warm_up()
    start = time.perf_counter()
    learner = FewShotLearner(benchmark, vectors, FewShotSettings(device=device), [SEED])
    set_up = time.perf_counter() - start
    most = learner.steps_at_once
    blocks = timed(BLOCKS + WARM_UP, lambda turn: learner.run_steps(turn * most, most), device)[WARM_UP:]
    return {"set-up seconds": set_up, "step ms": median(blocks) / most}


def train_trail(compiled: Path, device: str = "cpu") -> Figures:
    """Steps of TRAIL with the settings of its recipe."""
    from fewlink.models.trail.family import graphs_of
    from fewlink.models.trail.learner import TrailLearner
    from fewlink.models.trail.settings import TrailSettings
    from fewlink.tasks import Benchmark

    benchmark, settings = Benchmark.open(compiled), TrailSettings(device=device)
    warm_up()
    start = time.perf_counter()
    learner = TrailLearner(graphs_of(benchmark, settings), settings)
    set_up = time.perf_counter() - start
    steps = timed(TURNS + 1, lambda turn: learner.run_steps(turn, 1), device)[1:]
    return {"set-up seconds": set_up, "step ms": median(steps)}


def evaluate(compiled: Path, model: str, device: str = "cpu") -> Figures:
    """Rank a fixed number of test queries among all candidates of their relations."""
    from fewlink.evaluation import Protocol
    from fewlink.evaluation import evaluate as rank
    from fewlink.tasks import Benchmark

    whole = Benchmark.open(compiled)
    tasks = whole.split("test")
    most = max(1, QUERIES // len(tasks))
    fewer = [dataclasses.replace(task, pairs=task.pairs[: SHOTS + most]) for task in tasks]
    benchmark = dataclasses.replace(whole, tasks={**whole.tasks, "test": fewer})
    evaluation = rank(benchmark, _scorer(whole, model, device), Protocol("test", SHOTS, "full"))
    ranked = sum(int(task.candidates.sum()) for task in evaluation.tasks)
    return {
        "query ms": 1000 * evaluation.seconds / evaluation.queries,
        "queries/s": evaluation.queries / evaluation.seconds,
        "candidates": ranked / evaluation.queries,
    }


def predict(compiled: Path, run: Path, device: str = "cpu") -> Figures:
    """Predict for new relations, then for the last one again, with a loaded linker; and its resident memory."""
    from fewlink.linker import load
    from fewlink.tasks import candidates_of

    start = time.perf_counter()
    linker = load(run, bench=compiled, device=device)
    loading = time.perf_counter() - start
    loaded, name = resident(), linker.graph.entities
    tasks = _test_relations(linker.benchmark)

    def ask(task: Task, head: int) -> None:
        references = [(name[h], name[t]) for h, t in task.pairs[:SHOTS]]
        linker.predict(references, name[int(task.pairs[head, 0])], k=10)

    new = timed(len(tasks), lambda turn: ask(tasks[turn], SHOTS), device)
    same = timed(PREDICTIONS, lambda turn: ask(tasks[-1], SHOTS + turn % (len(tasks[-1].pairs) - SHOTS)), device)
    after = resident()
    candidates = [len(candidates_of("open", task, task.pairs[:SHOTS], linker.graph).ids) for task in tasks]
    return {
        "load seconds": loading,
        "first ms": new[0],
        "new relation ms": median(new[1:]),
        "same relation ms": median(same),
        "resident GB once loaded": loaded / 1e9,
        "resident GB after predictions": after / 1e9,
        "candidates": median(candidates),
    }


def write_run(compiled: Path, run: Path, model: str) -> None:
    """Write a run folder as training does, with random vectors and initial weights."""
    from fewlink.models.checkpoints import save_best
    from fewlink.models.family import NoVectors
    from fewlink.models.fsrl.model import build
    from fewlink.models.fsrl.settings import FewShotSettings
    from fewlink.models.settings import ModelSettings
    from fewlink.models.trail.learner import network_of
    from fewlink.models.trail.settings import TrailSettings
    from fewlink.tasks import open_benchmark
    from fewlink.training import RunConfig
    from fewlink.training.run import make_folder, start_or_continue

    benchmark = open_benchmark(compiled)
    settings: ModelSettings
    vectors: Embeddings | NoVectors
    if model == "trail":
        of_trail = TrailSettings()
        settings, vectors = of_trail, NoVectors()
        weights = network_of(of_trail).state_dict()
    else:
        own = FewShotSettings(model=model)
        settings, vectors = own, random_vectors(benchmark)
        weights = build(model, DIM, steps=own.matching_steps, dropout=own.dropout).state_dict()
    make_folder(run)
    start_or_continue(run, RunConfig.of(benchmark, vectors, settings), vectors)
    save_best(run, weights, 1)


def random_vectors(benchmark: Benchmark, model: str = "complex", more: int = 0, seed: int = SEED) -> Embeddings:
    """Vectors (E, d) and (2(R + more), d) for a benchmark's graph with R relations."""
    import torch

    from fewlink.models.embeddings import Embeddings

    random = torch.Generator().manual_seed(seed)
    sizes = (len(benchmark.graph.entities), DIM), (2 * (len(benchmark.graph.relations) + more), DIM)
    entities, relations = (torch.randn(size, generator=random) for size in sizes)
    return Embeddings(entities, relations, model)


def warm_up() -> None:
    """Make torch import the modules of its optimizers, which takes a second."""
    import torch

    torch.optim.Adam([torch.zeros(1, requires_grad=True)])


def timed(count: int, work: Callable[[int], Any], device: str = "cpu") -> list[float]:
    """Milliseconds of work(0), work(1), …, including the wait for the device."""
    import torch

    times = []
    for turn in range(count):
        start = time.perf_counter()
        work(turn)
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return times


def resident() -> int:
    """Resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _scorer(benchmark: Benchmark, model: str, device: str) -> Scorer:
    """A model with initial weights and, for FSRL, random vectors."""
    from fewlink.models.fsrl.model import initial_model, inputs_of
    from fewlink.models.fsrl.scorer import FewShotScorer
    from fewlink.models.fsrl.settings import FewShotSettings
    from fewlink.models.trail.learner import network_of
    from fewlink.models.trail.read_graph import ReadGraph
    from fewlink.models.trail.scorer import TrailScorer
    from fewlink.models.trail.settings import TrailSettings
    from fewlink.tasks.training_graph import known_graph

    if model == "trail":
        known = known_graph(benchmark)
        return TrailScorer(model, network_of(TrailSettings()).to(device), ReadGraph.of(known, names=False).to(device))
    vectors = random_vectors(benchmark)
    settings = FewShotSettings(model=model)
    return FewShotScorer(
        model,
        initial_model(vectors.dim, settings).to(device),
        inputs_of(benchmark.graph, vectors, settings).to(device),
    )


def _test_relations(benchmark: Benchmark) -> Sequence[Task]:
    """Relations with queries, those of test first."""
    tasks = [task for split in ("test", "dev", "train") for task in benchmark.split(split)]
    return [task for task in tasks if len(task.pairs) > SHOTS][: PREDICTIONS + 1]
