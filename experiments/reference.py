"""Train the plain FSRL of `fewlink/models/fsrl/reference.py` for a minute on `umls`, and print its score on dev."""

from __future__ import annotations

import time

import torch

from fewlink import Protocol, evaluate, open_benchmark
from fewlink.models.baselines import PopularityScorer
from fewlink.models.contract import Scorer
from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.embeddings.trainer import train as pretrain
from fewlink.models.fsrl.reference import FSRL, Background, ReferenceScorer, train


def main(seconds: float = 60.0) -> None:
    """Pre-train ComplEx on the background of `umls`, meta-train FSRL on its train relations, and evaluate on dev."""
    torch.manual_seed(0)
    benchmark = open_benchmark("umls")
    graph = benchmark.graph
    settings = EmbeddingSettings(model="complex", regime="one-vs-all", epochs=50)
    vectors = pretrain(graph.triples(), len(graph.entities), len(graph.relations), settings)
    background = Background.of(graph, vectors)
    model = FSRL(vectors.dim)

    def dev_mrr(scorer: Scorer) -> float:
        return float(evaluate(benchmark, scorer, Protocol("dev")).metrics()["micro"]["mrr"])

    untrained = dev_mrr(ReferenceScorer(model, background))
    end = time.monotonic() + seconds
    for step, loss in enumerate(train(model, background, benchmark.split("train")), 1):
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.3f}")
        if time.monotonic() > end:
            break
    print(f"dev MRR of FSRL: {dev_mrr(ReferenceScorer(model, background)):.3f} (before training: {untrained:.3f})")
    print(f"dev MRR of candidates ranked by their degree: {dev_mrr(PopularityScorer(graph)):.3f}")


if __name__ == "__main__":
    main()
