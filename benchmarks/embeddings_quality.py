"""Quality at equal time compared with PyKEEN: filtered test MRR on FB15k-237 after the same seconds of training.

    python benchmarks/embeddings_quality.py --data FOLDER [--seconds 60] [--dim 100]

FOLDER has train.tsv.gz, valid.tsv.gz and test.tsv.gz. ComplEx in all rows; one evaluator ranks the same test triples
in both directions against all entities, known triples filtered, ties at their mean rank. PyKEEN runs with its
defaults, with more negatives and a higher learning rate, and with reciprocal relations and cross-entropy over all
entities (where an example is a head with a relation, and all its tails).
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewlink.core.seeds import generator
from fewlink.models.embeddings import Embeddings, EmbeddingSettings, interaction
from fewlink.models.embeddings.trainer import EmbeddingTrainer
from links import rank_links
from measure import print_table, write_record

MAX_RANKED = 2000  # test triples; ranking more would take time and change little


def read(folder: Path) -> tuple[list[np.ndarray], int, int]:
    """Train, valid and test triples (n, 3), the number of entities and of relations."""
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    parts = []
    for name in ("train", "valid", "test"):
        with gzip.open(folder / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
        ids = [
            (
                entities.setdefault(h, len(entities)),
                relations.setdefault(r, len(relations)),
                entities.setdefault(t, len(entities)),
            )
            for h, r, t in rows
        ]
        parts.append(np.array(ids))
    return parts, len(entities), len(relations)


def ours(train: np.ndarray, entities: int, relations: int, seconds: float, dim: int) -> tuple[Embeddings, int]:
    """The table after so many seconds, and the number of examples (triples in one direction) it was trained on."""
    settings = EmbeddingSettings(dim=dim, batch_size=1024, negatives=1024, epochs=10**6)
    trainer = EmbeddingTrainer(train, entities, relations, settings)
    start = time.perf_counter()
    epoch = 0
    seen = 0
    while True:
        for batch in trainer.batches.epoch(epoch):
            trainer.step(batch, settings.learning_rate)
            seen += len(batch)
            if time.perf_counter() - start > seconds:
                return trainer.result(), seen
        epoch += 1


PYKEEN: dict[str, dict[str, Any]] = {
    "PyKEEN, its defaults": {"batch": 256, "loop": {"optimizer": "Adam"}},
    "PyKEEN, 32 negatives": {
        "batch": 1024,
        "loop": {
            "optimizer": "Adam",
            "optimizer_kwargs": {"lr": 0.01},
            "negative_sampler_kwargs": {"num_negs_per_pos": 32},
        },
    },
    "PyKEEN, one-vs-all, reciprocal": {
        "batch": 512,
        "loop": {"optimizer": "Adagrad", "optimizer_kwargs": {"lr": 0.1}},
        "model": {"loss": "crossentropy"},
        "all": True,
    },
}


def pykeen(
    train: np.ndarray, entities: int, relations: int, seconds: float, dim: int, setting: dict[str, Any]
) -> tuple[Embeddings, int]:
    from pykeen.models import ComplEx
    from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop, TrainingCallback
    from pykeen.triples import CoreTriplesFactory

    class Stop(Exception):
        pass

    class Clock(TrainingCallback):  # type: ignore[misc]
        start = 0.0
        batches = 0

        def on_batch(self, epoch: int, batch: object, batch_loss: float, **kwargs: object) -> None:
            self.batches += 1
            self.start = self.start or time.perf_counter()
            if time.perf_counter() - self.start > seconds:
                raise Stop

    both = setting.get("all", False)
    factory = CoreTriplesFactory(
        torch.from_numpy(train), num_entities=entities, num_relations=relations, create_inverse_triples=both
    )
    model = ComplEx(triples_factory=factory, embedding_dim=dim // 2, random_seed=0, **setting.get("model", {}))
    loop_class = LCWATrainingLoop if both else SLCWATrainingLoop
    loop = loop_class(model=model, triples_factory=factory, **setting["loop"])
    clock = Clock()  # type: ignore[no-untyped-call]
    batch = setting["batch"]
    with contextlib.suppress(Stop):
        loop.train(factory, num_epochs=10**6, batch_size=batch, use_tqdm=False, callbacks=clock, pin_memory=False)
    parts: list[Any] = [model.entity_representations[0], model.relation_representations[0]]
    vectors, relation_rows = (p._embeddings.weight.detach() for p in parts)  # numbers as (re, im) pairs
    vectors, relation_rows = (torch.cat([x[:, 0::2], x[:, 1::2]], dim=1) for x in (vectors, relation_rows))
    inverse = relation_rows[1::2] if both else interaction("complex").inverse(relation_rows)
    forward = relation_rows[0::2] if both else relation_rows
    return Embeddings(vectors, torch.cat([forward, inverse]), "complex"), clock.batches * batch


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/fb15k-237"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if not options.data.is_dir():
        raise SystemExit(f"skipped: no FB15k-237 in {options.data} (give its folder with --data)")
    parts, entities, relations = read(options.data)
    ranked = generator(0, "held-out", "ranked").choice(len(parts[2]), min(MAX_RANKED, len(parts[2])), replace=False)
    test = parts[2][np.sort(ranked)]
    arguments = parts[0], entities, relations, options.seconds, options.dim
    makers: dict[str, Callable[[], tuple[Embeddings, int]]] = {"fewlink": lambda: ours(*arguments)}
    makers |= {name: partial(pykeen, *arguments, setting) for name, setting in PYKEEN.items()}
    print(f"FB15k-237, ComplEx, dim {options.dim}, {options.seconds:.0f} s each, {2 * len(test)} test queries")
    rows = []
    for name, make in makers.items():
        table, seen = make()
        mrr = rank_links(table, test, np.concatenate(parts), "test").metrics()["micro"]["mrr"]
        rows.append({"trained by": name, "seconds": options.seconds, "examples": seen, "test MRR": mrr})
    print_table(rows)
    write_record("embeddings-quality", {"dim": options.dim, "queries": 2 * len(test), "rows": rows})
