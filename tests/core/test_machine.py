"""Long work reports how much memory it needs, and raises if less is free."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import id_graph

from fewlink.core import machine
from fewlink.core.errors import FewlinkError
from fewlink.models import trained_family
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.embeddings.trainer import train as train_vectors
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import training_triples


def test_insufficient_memory_is_an_error_that_names_the_largest_purposes() -> None:
    with pytest.raises(FewlinkError) as error:
        machine.ensure("training", {"vectors": 1e15, "neighbours": 2e15, "edges": 3e7}, advice="use a smaller dim")
    message = str(error.value)
    assert all(token in message for token in ("training", "use a smaller dim"))
    assert message.index("for neighbours") < message.index("for vectors") < message.index("30 MB for edges")


def test_pretraining_raises_before_it_allocates() -> None:
    data = training_triples(open_benchmark("umls"))
    with pytest.raises(FewlinkError, match="pretraining"):
        train_vectors(data.triples, 10**13, len(data.relations), EmbeddingSettings(epochs=1))


def test_pretraining_on_a_missing_gpu_is_a_clear_error() -> None:
    data = training_triples(open_benchmark("umls"))
    with pytest.raises(FewlinkError, match="cuda:97"):
        train_vectors(data.triples, 135, len(data.relations), EmbeddingSettings(epochs=1, device="cuda:97"))


def test_neighbours_need_memory_for_those_there_are_up_to_the_limit() -> None:
    graph = id_graph(
        [(0, 0, tail) for tail in range(1, 41)], entities=100
    )  # one entity has 40, 40 others have one each
    table = Embeddings(torch.zeros(100, 2), torch.zeros(6, 2), "complex")
    needed = [
        trained_family("fsrl").memory(graph, table, FewShotSettings(neighbours=most))["neighbours"]
        for most in (10, 30, 50)
    ]
    assert needed == [12 * (most + 40) + 8 * 100 for most in (10, 30, 40)]
