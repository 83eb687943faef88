"""Aggregators: numbers by hand, the reference's Eqs. 3 to 7, and invariances."""

from __future__ import annotations

import math

import pytest
import torch
from tests.models.fsrl.oracle import close, normal, parameters_of
from torch import nn

from fewlink.models.fsrl.aggregator import (
    EveryReference,
    MaxPooling,
    MeanPooling,
    RecurrentAutoencoder,
    RecurrentWithoutAttention,
    RecurrentWithoutDecoder,
    ReleasedReferences,
)
from fewlink.models.fsrl.lstm import unrolled

TANH_1, TANH_2 = math.tanh(1), math.tanh(2)
# first components such that those of m'_1 and m'_2 are tanh 1 and tanh 1 + ln 3
BY_HAND = [[0.0, 3.0], [math.log(3) + TANH_1 - TANH_2, -1.0]]
M_1, M_2 = [TANH_1, 3 + TANH_1], [math.log(3) + TANH_1, TANH_2 - 1]
# d_2 = tanh 1 and d_1 = tanh 0 = 0
RECONSTRUCTION = (TANH_1 - BY_HAND[1][0]) ** 2 + (TANH_1 + 1) ** 2 + 0**2 + 3**2
# released: tanh 1 is held against the first reference and 0 against the second; the mean of four squares
RELEASED = (TANH_1**2 + (TANH_1 - 3) ** 2 + BY_HAND[1][0] ** 2 + 1**2) / 4


def counting(aggregator: nn.Module) -> nn.Module:
    """Parameters by hand, for pairs of two numbers.

    The encoder adds 1 to its cell in each step (i = f = g = o = 1), so m_k = tanh k; the decoder takes 1 away
    (g = −1), so that from c_K = K it gives tanh(K − 1), …, tanh 0. Attention reads the first number alone.
    """
    aggregator.double()
    for parameter in aggregator.parameters():
        parameter.data.zero_()
    aggregator.recurrence.encoder.bias_ih.data[:] = 100.0
    for name, module in aggregator.named_modules():
        if name.endswith("decoder"):
            module.bias_hh.data[:] = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0]) * 100
    if getattr(aggregator, "attention", None) is not None:
        aggregator.attention.projection.weight.data[:] = torch.tensor([[2.0, 0.0]])
        aggregator.attention.projection.bias.data[:] = -5.0
        aggregator.attention.u.data[:] = 0.5
    return aggregator


def weighted(first: float, second: float) -> list[list[float]]:
    return [[first * a + second * b for a, b in zip(M_1, M_2, strict=True)]]


@pytest.mark.parametrize(
    ("kind", "vectors", "reconstruction"),
    [
        (RecurrentAutoencoder, weighted(1 / 4, 3 / 4), RECONSTRUCTION),  # e^(ln 3) = 3 to 1
        (RecurrentWithoutAttention, weighted(1 / 2, 1 / 2), RECONSTRUCTION),
        (RecurrentWithoutDecoder, weighted(1 / 4, 3 / 4), 0.0),
        (ReleasedReferences, weighted(1, 1), RELEASED),
    ],
)
def test_recurrence_by_hand(kind: type[nn.Module], vectors: list[list[float]], reconstruction: float) -> None:
    found = counting(kind(2))(torch.tensor(BY_HAND, dtype=torch.float64))
    close(found.vectors, vectors)
    close(found.reconstruction, reconstruction)


@pytest.mark.parametrize(
    ("kind", "vectors"),
    [
        (MeanPooling, [[2.0, 0.0]]),
        (MaxPooling, [[3.0, 4.0]]),
        (EveryReference, [[1.0, 4.0], [3.0, -4.0]]),
    ],
)
def test_pooling_by_hand(kind: type[nn.Module], vectors: list[list[float]]) -> None:
    found = kind(2)(torch.tensor([[1.0, 4.0], [3.0, -4.0]], dtype=torch.float64))
    close(found.vectors, vectors)
    close(found.reconstruction, 0.0)


def test_the_authors_program_never_trains_its_decoder_and_draws_the_references_to_it() -> None:
    aggregator, references = parameters_of(ReleasedReferences(4), 1), normal(2, 3, 4).requires_grad_()
    aggregator(references).reconstruction.backward()
    assert all(parameter.grad is None for parameter in aggregator.parameters())  # nor the encoder, by this loss
    _, last, cell = aggregator.recurrence(references)
    drawn_to = references - 12 / 2 * references.grad  # the mean of 12 squares is least there
    close(drawn_to, unrolled(aggregator.decoder, last, cell, 3))
