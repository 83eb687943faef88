"""The weights α and β that a model tells are those it scores with."""

from __future__ import annotations

import pytest
import torch
from tests.models.fsrl.oracle import normal, random_surroundings

from fewlink.models.fsrl.aggregator import (
    MeanPooling,
    RecurrentAutoencoder,
    RecurrentWithoutAttention,
    RecurrentWithoutDecoder,
    reference_weights,
)
from fewlink.models.fsrl.encoder import AttentiveNeighbours, MeanNeighbours, OwnAndNeighbours, ReleasedNeighbours

EVERY = torch.arange(7)


@pytest.mark.parametrize("kind", [AttentiveNeighbours, OwnAndNeighbours, ReleasedNeighbours])
def test_the_neighbours_weights_give_the_encoders_vectors(kind: type) -> None:
    around = random_surroundings(3, dim=4, slots=5)
    encoder = kind(around.dim).double().eval()
    weights = encoder.weights(EVERY, around)
    _, others, present = around.neighbours_of(EVERY)
    assert weights.shape == present.shape and not weights[~present].any()
    summed = torch.einsum("en,end->ed", weights, around.entities[others]).tanh()
    some = present.any(1)
    torch.testing.assert_close(encoder(EVERY, around)[some, -around.dim :], summed[some])


def test_an_encoder_without_attention_tells_no_weights() -> None:
    around = random_surroundings(3, dim=4, slots=5)
    assert MeanNeighbours(around.dim).double().weights(EVERY, around) is None


@pytest.mark.parametrize("kind", [RecurrentAutoencoder, RecurrentWithoutDecoder])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_the_references_weights_give_the_aggregators_vector(kind: type, count: int) -> None:
    aggregator, references = kind(6).double(), normal(0, 5, count, 6)
    weights = reference_weights(aggregator, references)
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(5, dtype=weights.dtype))
    states = aggregator.recurrence(references)[0]
    torch.testing.assert_close(aggregator(references).vectors[:, 0], torch.einsum("bk,bkw->bw", weights, states))


@pytest.mark.parametrize("kind", [MeanPooling, RecurrentWithoutAttention])
def test_an_aggregator_without_attention_tells_no_weights(kind: type) -> None:
    assert reference_weights(kind(6).double(), normal(0, 3, 6)) is None
