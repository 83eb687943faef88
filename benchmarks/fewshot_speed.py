"""Meta-training and evaluation compared with the reference implementation and with the limits of the machine.

    python benchmarks/fewshot_speed.py [BENCH] [--device cpu|cuda] [--seeds-together 8] [--threads 2] [--quick]

The reference ("plain") is `fewlink/models/fsrl/reference.py`: every neighbour passes through the attention's map, an
entity is encoded at each occurrence, the matching cell computes its whole state, episodes are drawn pair by pair in
Python, and each query is ranked separately. Both sides have the same parameters, random vectors of 100 reals, 30
neighbours, 3 references and 128 queries with one polluted tail each. Equal scores are checked before timing. The sides
run in turn, and figures are medians over the turns. Evaluation is on the test split; the reference ranks some of it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.machine import hardware
from fewlink.evaluation import Evaluation, Protocol, evaluate
from fewlink.models.contract import Question
from fewlink.models.embeddings import Embeddings
from fewlink.models.fsrl.learner import STEPS_AT_ONCE, FewShotLearner
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.reference import FSRL, Background, ReferenceScorer, episodes, train
from fewlink.models.fsrl.scorer import FewShotScorer, encode_all, initial_model, inputs_of
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.tasks import Benchmark, Task, candidates_of, open_benchmark
from fewlink.training.trainer import deterministic
from measure import RECORDS, gpu_kernels, print_table, write_record

DIM = 100
WARM_UP = 3  # calls that are not timed
ROUNDING = 1e-5  # largest difference of scores, as a share of the largest score, by the order of float32 sums
LARGE = 16_384  # rows of the product that measures the machine's limit


@dataclass(frozen=True, eq=False)
class Case:
    """The inputs of both sides; compared by identity, so that it can be the key of a cache."""

    benchmark: Benchmark
    embeddings: Embeddings
    settings: FewShotSettings

    @property
    def device(self) -> str:
        return self.settings.device


def case_of(name: str, device: str) -> Case:
    """A benchmark with random vectors, which suffice for measuring speed."""
    benchmark = open_benchmark(name)
    random = torch.Generator().manual_seed(0)
    sizes = (len(benchmark.graph.entities), DIM), (2 * len(benchmark.graph.relations), DIM)
    entities, relations = (torch.randn(size, generator=random) for size in sizes)
    return Case(benchmark, Embeddings(entities, relations, "transe"), FewShotSettings(device=device))


# The package's side


@functools.cache
def our_model(case: Case) -> tuple[FewShotModel, Neighbourhood]:
    model = initial_model(case.embeddings.dim, case.settings).to(case.device)
    return model, inputs_of(case.benchmark.graph, case.embeddings, case.settings).to(case.device)


@functools.cache
def our_learner(case: Case, seeds: int) -> FewShotLearner:
    return FewShotLearner(case.benchmark, case.embeddings, case.settings, range(seeds))


def our_episode(case: Case, number: int) -> tuple[Tensor, Tensor]:
    """References (K, 2) and pairs (2B, 2) of a training step."""
    learner = our_learner(case, 1)
    batch = learner.layout.batch(learner.ids(number, 1)[:, 0])
    return batch.ids[0][batch.references[0, 0]], batch.ids[0][batch.pairs[0, 0]]


@torch.no_grad()
def our_scores(case: Case, references: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (2B,) and reconstruction loss of an episode."""
    model, around = our_model(case)
    ids, places = torch.cat([references, pairs]).unique(return_inverse=True)
    shots = len(references)
    scores, reconstruction = model(ids, places[None, :shots], places[None, shots:], around)
    return scores[0], reconstruction[0]


def our_training_rate(case: Case, seconds: float, seeds: int = 1) -> float:
    """Steps per second of the package's trainer, sampling included, summed over `seeds` seeds."""
    learner = our_learner(case, seeds)
    most = STEPS_AT_ONCE[case.device]
    firsts = itertools.count(0, most)

    def block() -> None:
        first = next(firsts)
        learner.learn(first, learner.ids(first, most))

    with deterministic(case.device):
        return seeds * most * rate(block, seconds, case.device)


def our_evaluation_rate(case: Case, candidates: str) -> tuple[float, Evaluation]:
    """Queries per second over the whole test split, encoding all entities included, and the evaluation."""
    scorer = FewShotScorer("fsrl", *our_model(case))
    evaluation = evaluate(case.benchmark, scorer, Protocol("test", case.settings.shots, candidates))
    return evaluation.queries / evaluation.seconds, evaluation


def our_pairs(case: Case, candidates: str) -> dict[str, int]:
    """The number of (query, candidate) pairs of the test split, and how many of them differ in a vector."""
    model, around = our_model(case)
    vectors = encode_all(model.encoder, around)
    ranked = 0
    distinct = 0

    def distinct_vectors(ids: np.ndarray) -> int:
        return len(vectors[torch.from_numpy(np.unique(ids)).long().to(vectors.device)].unique(dim=0))

    for task in case.benchmark.split("test"):
        references, queries = task.split(case.settings.shots)
        ids = candidates_of(candidates, task, references, case.benchmark.graph).ids
        ranked += len(queries) * len(ids)
        distinct += distinct_vectors(queries[:, 0]) * distinct_vectors(ids)
    return {"ranked": ranked, "distinct": distinct}


class Query(NamedTuple):
    """A test query with its relation's references (K, 2) and candidates (c,)."""

    task: Task
    references: np.ndarray
    candidates: np.ndarray
    head: int
    tail: int

    def question(self) -> Question:
        """The true tail, followed by the candidates that are not known answers."""
        rivals = np.setdiff1d(self.candidates, self.task.known_tails[self.head])
        tails = np.concatenate([[self.tail], rivals])
        return Question(self.task.name, self.references, np.array([self.head]), tails)


def test_queries(benchmark: Benchmark, shots: int, count: int) -> list[Query]:
    """`count` queries spread evenly over the test split, with their `paper` candidates."""
    queries = []
    for task in benchmark.split("test"):
        references, pairs = task.split(shots)
        pool = candidates_of("paper", task, references, benchmark.graph)
        queries += [Query(task, references, pool.ids[pool.counted], int(h), int(t)) for h, t in pairs]
    places = np.linspace(0, len(queries) - 1, min(count, len(queries))).astype(int)
    return [queries[place] for place in places]


# The reference's side

SAME = {  # parameters of the reference by their names in the package's `fsrl`
    "encoder.attention.projection": "encoder.W_rt",
    "encoder.attention.u": "encoder.u_rt.weight",
    "aggregator.recurrence.encoder": "aggregator.rnn_encoder",
    "aggregator.reconstruction.decoder": "aggregator.rnn_decoder",
    "aggregator.attention.projection": "aggregator.W_R",
    "aggregator.attention.u": "aggregator.u_R.weight",
}


@torch.no_grad()
def plain_model(case: Case) -> tuple[FSRL, Background]:
    """The reference with the parameters of the package's model, on the device."""
    model = FSRL(DIM, case.settings.matching_steps)
    parameters = dict(model.named_parameters())
    ours = our_model(case)[0].state_dict()
    for name, values in ours.items():
        for mine, theirs in SAME.items():
            if name == mine or name.startswith(f"{mine}."):
                parameter = parameters[theirs + name.removeprefix(mine)]
                parameter.copy_(values.view_as(parameter))
    hidden = torch.cat([ours["matcher.from_state"], ours["matcher.from_reference"]], 1)
    read = {"weight_ih": ours["matcher.from_query"], "weight_hh": hidden, "bias_ih": ours["matcher.bias"]}
    width = 2 * DIM
    for name, values in read.items():  # the package has only the units of each gate that are read
        whole = parameters[f"matcher.rnn_match.{name}"].unflatten(0, (4, 2 * width))
        whole[:, :width] = values.unflatten(0, (4, width))
    parameters["matcher.rnn_match.bias_hh"].zero_()
    background = Background.of(case.benchmark.graph, case.embeddings, case.settings.neighbours, case.settings.seed)
    return model.to(case.device), Background(*(table.to(case.device) for table in background))


def plain_training_rate(case: Case, seconds: float) -> float:
    settings = case.settings
    steps = train(*plain_model(case), case.benchmark.split("train"), settings.shots, settings.batch)
    return rate(lambda: next(steps), seconds, case.device)


def plain_rank(scorer: ReferenceScorer, query: Query) -> int:
    """The rank of the true tail, by sorting; every entity is encoded again."""
    order: list[int] = scorer(query.question())[0].argsort(descending=True).tolist()
    return order.index(0) + 1


def plain_evaluation_rate(case: Case, queries: list[Query]) -> float:
    """Queries per second, one after the other; computing a rank waits for the device."""
    scorer = ReferenceScorer(*plain_model(case))
    plain_rank(scorer, queries[0])
    start = time.perf_counter()
    for query in queries:
        plain_rank(scorer, query)
    return len(queries) / (time.perf_counter() - start)


def check(case: Case, query: Query) -> dict[str, float]:
    """Raises if the two sides do not compute the same; returns the largest differences.

    Compared are the scores and the reconstruction loss of one episode, and the scores of one test query.
    """
    plain, background = plain_model(case)
    references, pairs = our_episode(case, 0)
    scores, restored = our_scores(case, references, pairs)
    with torch.no_grad():
        plain_scores, plain_restored = plain(references, pairs, background)
    question = query.question()
    ours = torch.as_tensor(FewShotScorer("fsrl", *our_model(case))(question))
    differences = {
        "episode's scores": _difference(scores, plain_scores),
        "episode's reconstruction": _difference(restored, plain_restored),
        "query's scores": _difference(ours, ReferenceScorer(plain, background)(question)),
    }
    for what, difference in differences.items():
        if not difference < ROUNDING:
            raise SystemExit(
                f"the {what} of the two sides differ by {difference:.1e} of the largest: nothing was timed"
            )
    return differences


def _difference(ours: Tensor, plain: Tensor) -> float:
    return float((ours - plain).abs().max() / plain.abs().max())


# The amount of work, and the limits of the machine


@dataclass(frozen=True)
class Work:
    """Floating-point operations and bytes."""

    operations: float
    bytes: float


def plain_pair(d: int, neighbours: int, steps: int) -> float:
    """Operations of scoring one pair with the reference.

    For two entities, each neighbour's map of 2d × d, logit of d and weighted sum of d; in each matching step a cell of
    8w gate units over w inputs and 2w hidden ones. A product with an m × n map has 2mn operations.
    """
    w = 2 * d
    encoding = 2 * neighbours * (2 * 2 * d * d + 2 * d + 2 * d)
    matching = steps * 2 * (w + 2 * w) * 8 * w
    return encoding + matching


def plain_step(d: int, neighbours: int, steps: int, shots: int, batch: int) -> float:
    """Operations of a training step of the reference: 2B pairs and K references, forward and backward.

    The backward pass has a product for the weights and one for the inputs: three times the forward pass in all. The
    neighbours' vectors are frozen and need no gradient, so the encoding counts twice, not three times.
    """
    w = 2 * d
    encoding = plain_pair(d, neighbours, 0)
    matching = plain_pair(d, neighbours, steps) - encoding
    references = shots * (2 * 2 * (w + w) * 4 * w + 2 * w * d)
    return (2 * batch + shots) * encoding * 2 + 2 * batch * matching * 3 + references * 3


def our_pair(d: int, steps: int) -> Work:
    """The work of scoring one distinct pair, given the heads' and tails' parts of the gates.

    The 4w gate units that are read are a sum of two parts in the first step and need a product with w in each later
    one. A step applies 4w + w non-linear functions and about 4w products and sums; the score is 2w. Bytes: the sum of
    the parts, each later product's gates and the refined query are written once and read once.
    """
    w = 2 * d
    operations = (steps - 1) * 2 * w * 4 * w + steps * (4 * w + 5 * w + 4 * w) + 2 * w
    return Work(operations, 4 * 2 * (steps * 4 * w + steps * w))


def our_step(
    d: int, neighbours: float, steps: int, shots: int, batch: int, entities: int, relations: int, parameters: int
) -> Work:
    """The work of a training step with `entities` distinct entities, forward and backward.

    Operations: for each entity's neighbours a logit and a weighted sum of d each, twice (the vectors are frozen); a
    logit for each of the relations (both directions), twice; for each of 2B pairs a product of w × 4w in each matching
    step, the first one with the query itself, three times; the references' two LSTMs and attention, three times; Adam,
    about 12 per parameter.

    Bytes: parameters are read in forward and in backward, their gradients written, and Adam reads four and writes three
    numbers for each; neighbours' vectors and ids (8 bytes) are read in forward and in backward; the pairs' gates and
    their gradients are written once and read once.
    """
    w = 2 * d
    encoding = 2 * (entities * neighbours * 4 * d + relations * 2 * d)
    matching = 3 * 2 * batch * steps * 2 * w * 4 * w
    references = 3 * shots * (2 * 2 * (w + w) * 4 * w + 2 * w * d)
    moved = 4 * parameters * (2 + 1 + 7) + 2 * entities * neighbours * (4 * d + 2 * 8)
    return Work(encoding + matching + references + 12 * parameters, moved + 4 * 4 * 2 * batch * steps * 4 * w)


def mean_sizes(case: Case, count: int = 100) -> tuple[int, float]:
    """Mean number of distinct entities in an episode, and of neighbours of an entity."""
    settings = case.settings
    neighbours = our_model(case)[1].neighbours
    drawn = itertools.islice(episodes(case.benchmark.split("train"), settings.shots, settings.batch, 0), count)
    ids = torch.cat([torch.cat(parts).unique() for parts in drawn]).to(neighbours.offsets.device)
    return round(len(ids) / count), float(neighbours.counts(ids).double().mean())


def kernels(case: Case, seeds: int) -> dict[str, Any]:
    """The kernels of a step of all seeds."""
    learner = our_learner(case, seeds)
    steps = STEPS_AT_ONCE["cuda"]
    ids = learner.ids(0, steps)
    return {"seeds": seeds, **gpu_kernels(lambda: learner.learn(0, ids), steps)}


def limits(device: str, batch: int) -> dict[str, float]:
    """The machine's limits in float32: operations/s of the matching's product, and bytes/s of a copy."""
    big = torch.randn(1 << (24 if device == "cpu" else 28), device=device)
    other = torch.empty_like(big)
    return {
        "op/s, large": product_rate(LARGE, device),
        "op/s, one step's shape": product_rate(2 * batch, device),
        "copy bytes/s": 2 * big.nbytes / seconds_of(lambda: other.copy_(big), device),
    }


def product_rate(rows: int, device: str) -> float:
    """Operations/s of (rows, w) times (w, 4w)."""
    w = 2 * DIM
    queries = torch.randn(rows, w, device=device)
    weights = torch.randn(w, 4 * w, device=device)
    gates = torch.empty(rows, 4 * w, device=device)
    return 2 * rows * w * 4 * w / seconds_of(lambda: torch.mm(queries, weights, out=gates), device)


def shares(work: Work, per_second: float, limit: dict[str, float]) -> dict[str, float]:
    """Work done `per_second` times per second as shares of the limits of arithmetic and memory."""
    arithmetic = work.operations * per_second / limit["op/s, large"]
    memory = work.bytes * per_second / limit["copy bytes/s"]
    return {"arithmetic": arithmetic, "memory": memory, "of limit": max(arithmetic, memory)}


# Measuring


def wait_for(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def rate(step: Callable[[], object], seconds: float, device: str) -> float:
    """Calls per second, over at least `seconds`."""
    for _ in range(WARM_UP):
        step()
    wait_for(device)
    done = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        step()
        done += 1
    wait_for(device)
    return done / (time.perf_counter() - start)


def seconds_of(work: Callable[[], object], device: str, repeats: int = 7, seconds: float = 0.1) -> float:
    """Median seconds of one call."""
    return statistics.median(1 / rate(work, seconds, device) for _ in range(repeats))


def in_turns(repeats: int, sides: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Measure every side once in each turn, so that other load on the machine affects all sides."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            rates[name].append(side())
    return rates


def compared(what: str, rates: dict[str, list[float]]) -> list[dict[str, Any]]:
    """A row for each side: its median, extremes, and the median ratio to the reference in the same turn."""
    return [
        {
            "what": what,
            "side": name,
            "median": statistics.median(values),
            "least": min(values),
            "most": max(values),
            "times plain": statistics.median(v / p for v, p in zip(values, rates["plain"], strict=True)),
        }
        for name, values in rates.items()
    ]


def main() -> None:
    options = arguments()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("skipped: --device cuda needs a GPU")
    torch.backends.cudnn.allow_tf32 = False  # in the reference's LSTM; the package does not use cuDNN
    torch.set_num_threads(options.threads)
    case = case_of(options.benchmark, options.device)
    seeds = options.seeds_together
    queries = test_queries(case.benchmark, case.settings.shots, options.queries)
    differences = check(case, queries[0])
    sides: dict[str, Callable[[], float]] = {
        "plain": lambda: plain_training_rate(case, options.seconds),
        "fewlink": lambda: our_training_rate(case, options.seconds),
    }
    if options.device == "cuda":
        sides[f"fewlink, {seeds} seeds"] = lambda: our_training_rate(case, options.seconds, seeds)
    training = in_turns(options.repeats, sides)
    our_evaluation_rate(case, "paper")  # warm-up
    ranking = in_turns(
        options.repeats,
        {
            "plain": lambda: plain_evaluation_rate(case, queries),
            "fewlink": lambda: our_evaluation_rate(case, "paper")[0],
        },
    )
    rows = compared("steps/s", training) + compared("queries/s", ranking)
    whole = whole_evaluation(case, 1 if options.quick else options.repeats)
    limit = limits(options.device, case.settings.batch)
    against = against_limit(case, training, ranking, whole, limit)
    launched = [kernels(case, each) for each in (1, seeds)] if options.device == "cuda" else []
    for table in filter(None, (rows, [whole], [limit], against, launched)):
        print_table(table)
        print()
    results = {
        "hardware": hardware(),
        "device": options.device,
        "threads": torch.get_num_threads(),
        "benchmark": case.benchmark.name,
        "dim": DIM,
        "settings": case.settings.as_dict(),
        "turns": options.repeats,
        "seconds a turn": options.seconds,
        "plain queries": len(queries),
        "largest difference of the two sides": differences,
        "rows": rows,
        "whole test split, full": whole,
        "limits": limit,
        "against the limits": against,
        **({"kernels": launched} if launched else {}),
    }
    write_record(str(options.out.resolve().with_suffix("")), results)


def whole_evaluation(case: Case, repeats: int) -> dict[str, float]:
    """The test split against whole ranges: median seconds, and pairs per second."""
    evaluations = [our_evaluation_rate(case, "full")[1] for _ in range(repeats)]
    seconds = statistics.median(e.seconds for e in evaluations)
    pairs = our_pairs(case, "full")
    return {
        "queries": evaluations[0].queries,
        "seconds": seconds,
        "pairs": pairs["ranked"],
        "pairs/s": pairs["ranked"] / seconds,
        "distinct pairs": pairs["distinct"],
        "distinct pairs/s": pairs["distinct"] / seconds,
    }


def against_limit(
    case: Case,
    training: dict[str, list[float]],
    ranking: dict[str, list[float]],
    whole: dict[str, float],
    limit: dict[str, float],
) -> list[dict[str, Any]]:
    """The work of a training step and of a distinct pair, its rate, and its shares of the limits."""
    settings = case.settings
    (model, around) = our_model(case)
    size = {"d": DIM, "steps": settings.matching_steps}
    more = {"shots": settings.shots, "batch": settings.batch}
    parameters = sum(p.numel() for p in model.parameters())
    entities, neighbours = mean_sizes(case)
    step = our_step(
        **size,
        **more,
        neighbours=neighbours,
        entities=entities,
        relations=len(around.relations),
        parameters=parameters,
    )
    pair = our_pair(**size)
    pairs = our_pairs(case, "paper")
    distinct_rate = statistics.median(ranking["fewlink"]) * pairs["distinct"] / whole["queries"]
    done = [(f"step, {side}", step, statistics.median(rates)) for side, rates in training.items() if side != "plain"]
    done += [("pair, paper", pair, distinct_rate), ("pair, full", pair, whole["distinct pairs/s"])]
    slots = {"neighbours": settings.neighbours}
    literal = {"step": plain_step(**size, **more, **slots), "pair": plain_pair(**size, **slots)}
    return [
        {
            "what": what,
            **asdict(work),
            "operations, plain": literal[what.split(",")[0]],
            "done/s": often,
            **shares(work, often, limit),
        }
        for what, work, often in done
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", nargs="?", default="nell-one")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seeds-together", type=int, default=8, help="runs trained at once on a GPU")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    parser.add_argument("--seconds", type=float, default=4.0, help="of training in a turn")
    parser.add_argument("--queries", type=int, default=30, help="ranked by the reference in a turn")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch on the CPU")
    parser.add_argument("--quick", action="store_true", help="one short turn, to test that it works")
    parser.add_argument("--out", type=Path, help="default: benchmarks/records/fewshot-speed-DEVICE.json")
    options = parser.parse_args()
    options.out = options.out or RECORDS / f"fewshot-speed-{options.device}.json"
    if options.quick:
        options.repeats = 1
        options.seconds = 1.0
        options.queries = 5
    return options


if __name__ == "__main__":
    main()
