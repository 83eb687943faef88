"""The model `fsrl-released` in one dimension, pairs two numbers wide, worked out by hand part by part and whole."""

from __future__ import annotations

import math

import pytest
import torch
from tests.models.fsrl.oracle import ask, close, surroundings_of
from torch import Tensor

from fewlink.models.fsrl.encoder import ReleasedNeighbours
from fewlink.models.fsrl.model import FewShotModel, build
from fewlink.models.fsrl.scorer import encode_all

HALF = math.atanh(0.5)
TANH_1, TANH_2 = math.tanh(1), math.tanh(2)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def encoder_of(of_relation: float, of_entity: float, b: float, u: float, c: float) -> ReleasedNeighbours:
    encoder = ReleasedNeighbours(1).double()
    encoder.projection.weight.data[:] = torch.tensor([[of_relation, of_entity]])
    encoder.projection.bias.data[:], encoder.u.weight.data[:], encoder.u.bias.data[:] = b, u, c
    return encoder


@pytest.mark.parametrize(
    ("slots", "b", "relations", "mean"),
    [
        # u = ln 9; relations 0 and atanh ½ have logits ln 9 · (0 and ½) and powers 1 and 3; padding has power 1
        (2, 0.0, (0.0, HALF), (1 * 1 + 3 * 2) / 4),
        (3, 0.0, (0.0, HALF), (1 * 1 + 3 * 2) / 5),
        (4, 0.0, (0.0, HALF), (1 * 1 + 3 * 2) / 6),
        # with b = atanh ½ a logit is ln 9 · tanh(e_r + b): relations −atanh ½ and 0 have powers 1 and 3, padding has 3
        (3, HALF, (-HALF, 0.0), (1 * 1 + 3 * 2) / 7),
        (4, HALF, (-HALF, 0.0), (1 * 1 + 3 * 2) / 10),
    ],
)
@pytest.mark.parametrize("c", [0.0, 17.0])
def test_attention_by_hand(c: float, slots: int, b: float, relations: tuple[float, float], mean: float) -> None:
    # entity 0 has neighbours 1 and 2 with vectors 1 and 2; the others have none, and their own vector is not looked at
    neighbours = [[(0, 1), (1, 2)], [], []]
    s = surroundings_of(column(0.5, 1.0, 2.0), column(*relations), neighbours, slots)
    encoder = encoder_of(1.0, 0.0, b, math.log(9), c)
    close(encoder(torch.arange(3), s), [[math.tanh(mean)], [0.0], [0.0]])


# Relation 0; two slots. Entity 0 has entity 3 and padding, entity 1 none, entity 2 entity 3 twice; without preference
# the encoded are tanh(½ · 2 atanh ½) = ½, 0 and tanh(2 atanh ½) = 2·½ / (1 + ¼) = ⅘; entity 3 has none.
BY_HAND = surroundings_of(column(9.0, 9.0, 9.0, 2 * HALF), column(9.0), [[(0, 3)], [], [(0, 3), (0, 3)], []], slots=2)
ENCODED = [0.5, 0.0, 0.8, 0.0]
# Pairs (0, 1) and (1, 0) are [½ ; 0] and [0 ; ½], normalised [z ; −z] and [−z ; z] with deviation ½/√2, and by
# a = [1 ; 2] and b = [0 ; 1] they are [z ; 1 − 2z] and [−z ; 1 + 2z]
Z = 0.25 / (0.5 / 2**0.5 + 0.001)
REFERENCES = torch.tensor([[[0, 1], [1, 0]]])
# The encoder counts, m = tanh 1 and tanh 2 in each number: f(R) = Σ (reference + m)
F_R = [TANH_1 + TANH_2, 2 + TANH_1 + TANH_2]
# The decoder counts down from 2, d = tanh 1 and tanh 0, against the references in this order
RECONSTRUCTION = ((TANH_1 - Z) ** 2 + (TANH_1 - 1 + 2 * Z) ** 2 + Z**2 + (1 + 2 * Z) ** 2) / 4
QUERIES = torch.tensor([[[2, 1], [2, 0], [1, 2], [1, 3]]])


def encoded_query(head: float, tail: float) -> list[float]:
    """[z' ; 1 − 2z'] with z' = ½(h − t) / (|h − t|/√2 + 0.001)."""
    z = (head - tail) / 2 / (abs(head - tail) / 2**0.5 + 0.001)
    return [z, 1 - 2 * z]


def model_by_hand(steps: int) -> FewShotModel:
    """No preference among slots, W₂ = 0, LSTMs that count up and down, and a matcher that reads f(R)'s first number.

    Matching: i = o = 1, f = 0, g = tanh of the first number of f(R) in the state.
    """
    model = build("fsrl-released", 1, steps=steps).double()
    for parameter in model.parameters():
        parameter.data.zero_()
    model.pair.inner.weight.data[:] = 7.0  # comes to nothing by W₂ = 0
    model.pair.a.data[:], model.pair.b.data[:] = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])
    model.aggregator.recurrence.encoder.bias_ih.data[:] = 100.0
    model.aggregator.decoder.bias_ih.data[:] = torch.tensor([100.0, 100.0, -100.0, 100.0]).repeat_interleave(2)
    model.matcher.bias.data[:] = torch.tensor([100.0, -100.0, 0.0, 100.0]).repeat_interleave(2)
    model.matcher.from_reference.data[4:6, 0] = 1.0
    return model


def scores_by_hand(steps: int, asked: list[tuple[float, float]]) -> list[float]:
    """⟨q + g', f(R)⟩: the state is zero in the first step, so g' = 0; in later ones g' = tanh tanh of f(R)'s first."""
    added = 0.0 if steps == 1 else math.tanh(math.tanh(F_R[0]))
    return [sum((q + added) * f for q, f in zip(encoded_query(*pair), F_R, strict=True)) for pair in asked]


def test_the_parts_by_hand() -> None:
    model = model_by_hand(2)
    encoded = encode_all(model.encoder, BY_HAND)
    close(encoded, column(*ENCODED))
    pairs = model.pair(encoded[REFERENCES[0]])
    close(pairs, [[Z, 1 - 2 * Z], [-Z, 1 + 2 * Z]])
    summary = model.aggregator(pairs)
    close(summary.vectors, [F_R])
    close(summary.reconstruction, RECONSTRUCTION)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_score_by_hand(steps: int) -> None:
    model = model_by_hand(steps)
    scores, reconstruction = ask(model, REFERENCES, QUERIES, BY_HAND)
    asked = [(0.8, 0.0), (0.8, 0.5), (0.0, 0.8), (0.0, 0.0)]
    close(scores, [scores_by_hand(steps, asked)])
    close(reconstruction, [RECONSTRUCTION])
