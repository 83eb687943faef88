"""The paper's relational-embedding baselines: an ordinary embedding model that has seen the references as triples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewlink.embeddings import Embeddings, EmbeddingSettings, train
from fewlink.errors import FewlinkError
from fewlink.scorers.question import Question
from fewlink.tasks.benchmark import Benchmark
from fewlink.tasks.triples import TrainingTriples, training_triples


class RelationalScorer:
    """score(h, c) = the model's score of (h, r, c), with r's vector trained on the references."""

    def __init__(self, embeddings: Embeddings, relations: Sequence[str], device: str = "cpu") -> None:
        self.name = embeddings.model
        self.embeddings = embeddings.to(device)
        self.device = device
        self.rows = {name: row for row, name in enumerate(relations)}

    def __call__(self, question: Question) -> torch.Tensor:
        if question.relation not in self.rows:
            raise FewlinkError(f"the embeddings were trained without references of '{question.relation}'")
        heads, candidates = (
            torch.from_numpy(ids.astype(np.int64)).to(self.device) for ids in (question.heads, question.candidates)
        )
        relation = torch.full_like(heads, self.rows[question.relation])
        return self.embeddings.score_all(heads, relation, candidates)


def train_baseline(
    benchmark: Benchmark,
    settings: EmbeddingSettings,
    *,
    shots: int,
    draw: int = 0,
    seed: int = 0,
    state: Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> RelationalScorer:
    """Train on background, meta-training relations and the K references of dev and test relations; hold none back.

    Early stopping, where the settings ask for it, looks at held-out background triples only.
    """
    data = training_triples(benchmark, with_train_tasks=True, shots=shots, draw=draw, seed=seed)
    embeddings = train_on(benchmark, data, settings, state=state, on_epoch=on_epoch)
    return RelationalScorer(embeddings, data.relations, settings.device)


def train_on(
    benchmark: Benchmark,
    data: TrainingTriples,
    settings: EmbeddingSettings,
    *,
    state: Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> Embeddings:
    """Vectors of a benchmark's entities and of the relations of these triples; only background is ever held out."""
    return train(
        data.triples,
        len(benchmark.graph.entities),
        len(data.relations),
        settings,
        resume=state,
        on_epoch=on_epoch,
        protected=~data.background,
    )
