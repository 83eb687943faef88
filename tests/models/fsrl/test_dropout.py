"""Dropout: none unless training, the same by the same seed, and on what it falls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.models.fsrl.oracle import ask, close, has_any, normal, parameters_of, random_surroundings
from torch import Tensor, nn

from fewlink.models.contract import Question
from fewlink.models.fsrl.compositions import COMPOSITIONS, build
from fewlink.models.fsrl.encoder import (
    AttentiveNeighbours,
    MeanNeighbours,
    OwnAndNeighbours,
    ProjectedMean,
    ReleasedNeighbours,
)
from fewlink.models.fsrl.exact import encode_all
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.pair import Concatenation, FeedForward
from fewlink.models.fsrl.scorer import FewShotScorer

ENCODERS = [AttentiveNeighbours, MeanNeighbours, OwnAndNeighbours, ProjectedMean, ReleasedNeighbours]
SURROUNDINGS = random_surroundings(2, 4, 4)
EVERY = torch.arange(7)
every_model = pytest.mark.parametrize("name", COMPOSITIONS)


def scores(model: FewShotModel, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(5)
    references, queries = (torch.randint(7, (2, n, 2), generator=draw) for n in (3, 4))
    return torch.cat([part.flatten() for part in ask(model, references, queries, SURROUNDINGS)])


def model_of(name: str, dropout: float) -> FewShotModel:
    return parameters_of(build(name, 4, dropout=dropout), 1)


@every_model
def test_there_is_none_unless_training_and_none_by_default(name: str) -> None:
    exact = scores(parameters_of(build(name, 4), 1))
    assert torch.equal(scores(model_of(name, 0.5).eval()), exact)
    assert torch.equal(scores(model_of(name, 0.0).train()), exact)


@every_model
def test_while_training_it_varies_with_the_seed_alone(name: str) -> None:
    model = model_of(name, 0.5).train()
    assert torch.equal(scores(model, 1), scores(model, 1))
    assert not torch.allclose(scores(model, 1), scores(model, 2))
    assert not torch.allclose(scores(model, 1), scores(model_of(name, 0.0)))


@every_model
def test_a_scorer_has_none(name: str) -> None:
    arrays = np.array([[0, 1], [2, 3]]), np.arange(3), np.arange(7)
    question = Question("relation", *(ids.astype(np.int32) for ids in arrays))
    exact, dropping = (FewShotScorer(name, model_of(name, p).train(), SURROUNDINGS)(question) for p in (0.0, 0.5))
    assert torch.equal(exact, dropping)


@every_model
def test_encoding_all_entities_has_none(name: str) -> None:
    model = model_of(name, 0.5).train()
    close(encode_all(model.encoder, SURROUNDINGS), model.eval().encoder(EVERY, SURROUNDINGS))


@pytest.mark.parametrize("kind", [*ENCODERS, FeedForward])
def test_every_part_with_a_rate_uses_it(kind: type[nn.Module]) -> None:
    def found(part: nn.Module, seed: int) -> Tensor:
        torch.manual_seed(seed)
        given = (normal(1, 5, 2, 4),) if kind is FeedForward else (EVERY, SURROUNDINGS)
        return part(*given)

    part, exact = parameters_of(kind(4, 0.5), 1), parameters_of(kind(4), 1)
    assert torch.equal(found(part, 1), found(part, 1)) and not torch.allclose(found(part, 1), found(part, 2))
    assert torch.equal(found(part.eval(), 1), found(exact, 1))


@pytest.mark.parametrize("kind", ENCODERS)
def test_what_is_left_when_all_is_dropped(kind: type[nn.Module]) -> None:
    # nothing of the neighbours; an entity without any (entity 0) keeps the own vector that stands in for them
    encoder, some = parameters_of(kind(4, 1.0), 1), has_any(SURROUNDINGS).unsqueeze(1)
    left = {
        "OwnAndNeighbours": lambda: torch.cat([encoder.own.bias.tanh(), torch.zeros(4, dtype=torch.float64)]),
        "ProjectedMean": lambda: encoder.projection.bias.tanh(),
    }
    expected = left.get(kind.__name__, lambda: torch.zeros(4, dtype=torch.float64))().detach().expand(7, -1)
    if kind in (AttentiveNeighbours, MeanNeighbours, ProjectedMean):
        expected = torch.where(some, expected, SURROUNDINGS.entities.tanh())
    close(encoder(EVERY, SURROUNDINGS), expected)


def test_a_pair_keeps_its_vectors_when_all_that_is_added_is_dropped() -> None:
    heads, tails = normal(1, 5, 4), normal(2, 5, 4)
    dropped, plain = parameters_of(FeedForward(4, 1.0), 1), parameters_of(FeedForward(4), 1)
    plain.outer.weight.data.zero_()
    plain.outer.bias.data.zero_()
    ends = torch.stack([heads, tails], 1)
    close(dropped(ends), plain(ends))
    close(Concatenation(4, 1.0)(ends), torch.cat([heads, tails], 1))


class WithoutSevens(nn.Module):
    """In place of a dropout: what it is given, 7 and −7 made 0."""

    def forward(self, x: Tensor) -> Tensor:
        return x.masked_fill(x.abs() == 7.0, 0.0)


@pytest.mark.parametrize("kind", [kind for kind in ENCODERS if kind is not MeanNeighbours])
def test_relations_are_dropped_too(kind: type[nn.Module]) -> None:
    encoder, s = parameters_of(kind(4), 1), random_surroundings(2, 4, 4)
    s.relations[:] = 7 * s.relations.sign()
    unlike = encoder(EVERY, s)
    without = random_surroundings(2, 4, 4)
    without.relations.zero_()
    expected = encoder(EVERY, without)
    for part in (encoder, getattr(encoder, "attention", encoder)):
        part.dropout = WithoutSevens()
    close(encoder(EVERY, s), expected)
    assert not torch.allclose(unlike, expected)


def test_relations_and_entities_are_dropped_separately() -> None:
    # vectors of ones, W = [I I]/2 for one neighbour: each number is the mean of what is left of e_r and of e_t, 0 or 2
    encoder, s = ProjectedMean(4, 0.5).double(), random_surroundings(1, 4, 1)
    s.entities[:], s.relations[:] = 1.0, 1.0
    encoder.projection.weight.data = torch.eye(4, dtype=torch.float64).repeat(1, 2) / 2
    encoder.projection.bias.data.zero_()
    torch.manual_seed(0)
    values = encoder(torch.ones(200, dtype=torch.long), s).detach().atanh().round(decimals=6)
    assert values.unique().tolist() == [0.0, 1.0, 2.0]
    assert abs(float(values.mean()) - 1) < 0.15  # and on average nothing is lost


@every_model
def test_the_rate_reaches_every_part(name: str) -> None:
    parts = {part: getattr(build(name, 4, dropout=0.3), part).modules() for part in ("encoder", "pair")}
    rates = {
        part: {module.p for module in modules if isinstance(module, nn.Dropout)} for part, modules in parts.items()
    }
    assert rates == {"encoder": {0.3}, "pair": {0.3} if name in ("fsrl-released", "fsrl-tuned") else set()}
