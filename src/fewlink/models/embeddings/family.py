"""The embedding family: the paper's baselines, which are trained on the references as triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fewlink.core.errors import FewlinkError
from fewlink.models.contract import Question
from fewlink.models.embeddings import INTERACTIONS, Embeddings, EmbeddingSettings
from fewlink.models.family import BaselineFamily, Prepared, Reporter
from fewlink.tasks.benchmark import Benchmark, training_triples


class EmbeddingScorer:
    """score(h, c) = the model's score of (h, r, c), with r's vector trained on the references."""

    def __init__(self, embeddings: Embeddings, relations: Sequence[str], device: str = "cpu") -> None:
        self.name = embeddings.model
        self.embeddings = embeddings.to(device)
        self.device = device
        self.rows = {name: row for row, name in enumerate(relations)}

    def __call__(self, question: Question) -> torch.Tensor:
        if question.relation not in self.rows:
            raise FewlinkError(
                f"the embeddings were trained without references of '{question.relation}': train them with references"
            )
        heads = torch.from_numpy(question.heads.astype(np.int64)).to(self.device)
        candidates = torch.from_numpy(question.candidates.astype(np.int64)).to(self.device)
        relation = torch.full_like(heads, self.rows[question.relation])
        return self.embeddings.score_all(heads, relation, candidates)


class EmbeddingFamily(BaselineFamily):
    """RESCAL, TransE, DistMult and ComplEx."""

    name = "embedding"
    settings = EmbeddingSettings

    @property
    def models(self) -> Mapping[str, str]:
        return {name: (kind.__doc__ or "").split("\n")[0] for name, kind in INTERACTIONS.items()}

    def prepare(
        self,
        model: str,
        benchmark: Benchmark,
        settings: Any,
        *,
        shots: int,
        draw: int = 0,
        seed: int = 0,
        on_epoch: Reporter | None = None,
    ) -> Prepared:
        settings = settings.replace(seed=seed)
        scorer = train_baseline(benchmark, settings, shots=shots, draw=draw, seed=seed, on_epoch=on_epoch)
        return Prepared(scorer, {"settings": settings.as_dict(), "measured": scorer.embeddings.facts})


def train_baseline(
    benchmark: Benchmark,
    settings: EmbeddingSettings,
    *,
    shots: int,
    draw: int = 0,
    seed: int = 0,
    on_epoch: Reporter | None = None,
) -> EmbeddingScorer:
    """Train on the background graph, all meta-training pairs and the K references of each dev and test relation."""
    from fewlink.models.embeddings.trainer import train

    data = training_triples(benchmark, with_train_tasks=True, shots=shots, draw=draw, seed=seed)
    embeddings = train(
        data.triples,
        len(benchmark.graph.entities),
        len(data.relations),
        settings,
        on_epoch=on_epoch,
    )
    return EmbeddingScorer(embeddings, data.relations, settings.device)


FAMILY = EmbeddingFamily()
