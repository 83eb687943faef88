"""Training speed compared with PyKEEN in one run, and the memory for a large graph.

    python benchmarks/embeddings_speed.py [--seconds 20] [--sizes 68544 1000000]
    python benchmarks/embeddings_speed.py --memory

Both train ComplEx with 100 complex numbers, batch 1024, one negative per triple, on a random graph with as many triples
and relations as NELL-One. Both columns count triples in one direction with their negative: an epoch of PyKEEN has every
triple once, an epoch of this package every triple in both directions.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import time
from typing import Literal

import numpy as np
import torch

from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.embeddings.trainer import EmbeddingTrainer
from measure import print_table, write_record

RELATIONS, TRIPLES, BATCH = 291, 181_109, 1024


def random_graph(entities: int, triples: int, relations: int = RELATIONS) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, n, triples) for n in (entities, relations, entities)], axis=1)


def ours(graph: np.ndarray, entities: int, seconds: float, optimizer: Literal["adagrad", "adam"]) -> tuple[float, int]:
    """Triples per second and number of steps, sampling included."""
    settings = EmbeddingSettings(
        dim=200,
        batch_size=BATCH,
        corrupt="each",
        negatives=1,
        loss="logistic",
        optimizer=optimizer,
        n3=0.0,
        epochs=10**6,
    )
    trainer = EmbeddingTrainer(graph, entities, RELATIONS, settings)
    steps, epoch, start = -20, 0, 0.0
    while True:
        for batch in trainer.batches.epoch(epoch):
            trainer.step(batch, 1e-3)
            steps += 1
            if steps == 0:  # the first steps warm up
                start = time.perf_counter()
            elif steps > 0 and time.perf_counter() - start > seconds:
                return steps * BATCH / (time.perf_counter() - start), steps
        epoch += 1


def pykeen(graph: np.ndarray, entities: int, seconds: float) -> tuple[float, int]:
    """The same from PyKEEN's training loop, stopped by a callback."""
    from pykeen.models import ComplEx
    from pykeen.training import SLCWATrainingLoop, TrainingCallback
    from pykeen.triples import CoreTriplesFactory

    class Stop(Exception):
        pass

    class Clock(TrainingCallback):  # type: ignore[misc]
        steps, start, stop = -3, 0.0, 0.0

        def on_batch(self, epoch: int, batch: object, batch_loss: float, **kwargs: object) -> None:
            self.steps += 1
            if self.steps == 0:
                self.start = time.perf_counter()
            elif self.steps > 0 and time.perf_counter() - self.start > seconds:
                self.stop = time.perf_counter()
                raise Stop

    factory = CoreTriplesFactory(torch.from_numpy(graph), num_entities=entities, num_relations=RELATIONS)
    model = ComplEx(triples_factory=factory, embedding_dim=100, random_seed=0)
    loop = SLCWATrainingLoop(
        model=model, triples_factory=factory, optimizer="Adam", negative_sampler_kwargs={"num_negs_per_pos": 1}
    )
    clock = Clock()  # type: ignore[no-untyped-call]
    with contextlib.suppress(Stop):
        loop.train(factory, num_epochs=1000, batch_size=BATCH, use_tqdm=False, callbacks=clock, pin_memory=False)
    return clock.steps * BATCH / (clock.stop - clock.start), clock.steps


def speed(sizes: list[int], seconds: float) -> None:
    print(f"{torch.get_num_threads()} threads, batch {BATCH}, 1 negative, 100 complex numbers")
    rows = []
    for entities in sizes:
        graph = random_graph(entities, TRIPLES)
        adagrad, steps = ours(graph, entities, seconds, "adagrad")
        adam, _ = ours(graph, entities, seconds, "adam")
        theirs, their_steps = pykeen(graph, entities, seconds)
        rows.append(
            {
                "entities": entities,
                "PyKEEN, Adam: triples/s": theirs,
                "its steps": their_steps,
                "fewlink, Adagrad: triples/s": adagrad,
                "steps": steps,
                "ratio": adagrad / theirs,
                "fewlink, Adam: triples/s": adam,
                "ratio with Adam": adam / theirs,
            }
        )
    print_table(rows)
    write_record("embeddings-speed", {"threads": torch.get_num_threads(), "seconds": seconds, "rows": rows})


def memory(seconds: float) -> None:
    """Peak memory of training on 4.84 million entities and 5.86 million triples at dim 100."""
    entities, relations = 4_840_000, 1000
    graph = random_graph(entities, 5_860_000, relations)
    settings = EmbeddingSettings(dim=100, negatives=1024, epochs=1)
    start = time.perf_counter()
    trainer = EmbeddingTrainer(graph, entities, relations, settings)
    set_up = time.perf_counter() - start
    start, examples = time.perf_counter(), 0
    for batch in trainer.batches.epoch(0):
        trainer.step(batch, 0.1)
        examples += len(batch)
        if time.perf_counter() - start > seconds:
            break
    rate = examples / (time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = {"entities": entities, "triples": len(graph), "dim": settings.dim, "set-up seconds": set_up}
    rows = [{**row, "triples/s": rate, "peak GiB": peak}]
    print_table(rows)
    write_record("embeddings-memory", {"seconds": seconds, "rows": rows})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--sizes", type=int, nargs="+", default=[68_544, 1_000_000])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory:
        memory(options.seconds)
    else:
        speed(options.sizes, options.seconds)
