"""Several runs of a model at once: parameters stacked, one call under `vmap`, scores and gradients of each alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

import pytest
import torch
from tests.models.fsrl.oracle import close, neighbours_in, normal, parameters_of, random_surroundings, surroundings_of
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from fewlink.models.fsrl.compositions import COMPOSITIONS, build
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood, Neighbours

RUNS, EPISODES = 3, 2
TABLES = ("entities", "relations", "neighbours.relations", "neighbours.entities")
Asked = tuple[Tensor, Tensor, Tensor]
Found = tuple[Tensor, Tensor]
every_model = pytest.mark.parametrize("name", COMPOSITIONS)
every_size = pytest.mark.parametrize(("shots", "count"), [(1, 1), (3, 5)])


def models_of(name: str, dropout: float = 0.0) -> list[FewShotModel]:
    return [parameters_of(build(name, 3, dropout=dropout), 50 * run).train() for run in range(RUNS)]


def asked(shots: int, count: int) -> Asked:
    """Entities (S, U), and places of references (S, B, K, 2) and queries (S, B, Q, 2) in them."""
    draw = torch.Generator().manual_seed(3)
    ids = torch.stack([torch.randperm(7, generator=draw)[:6] for _ in range(RUNS)])
    return ids, *(torch.randint(6, (RUNS, EPISODES, n, 2), generator=draw) for n in (shots, count))


def loss_of(found: Found) -> Tensor:
    """A random weighting of all that was found, for every run the same."""
    scores, reconstruction = found
    return (scores * normal(100, *scores.shape[-2:])).sum() + (reconstruction * normal(101, EPISODES)).sum()


def gradients(found: Found, leaves: Sequence[Tensor]) -> Sequence[Tensor]:
    return torch.autograd.grad(loss_of(found), leaves, allow_unused=True, materialize_grads=True)


def assert_alike(together: Sequence[Tensor], alone: Sequence[Sequence[Tensor]]) -> None:
    """The stacked (S, …) of what each run gave."""
    for stacked, *each in zip(together, *alone, strict=True):
        close(stacked, torch.stack(each))


@every_size
@every_model
def test_scores_and_gradients_are_those_of_each_alone(name: str, shots: int, count: int) -> None:
    models, s, (ids, references, queries) = models_of(name), random_surroundings(2, 3, 4), asked(shots, count)
    stacked, _ = stack_module_state(models)

    def one(parameters: Mapping[str, Tensor], *given: Tensor) -> Found:
        return functional_call(models[0], parameters, (*given, s))

    together = vmap(one)(stacked, ids, references, queries)
    assert (together[0].shape, together[1].shape) == ((RUNS, EPISODES, count), (RUNS, EPISODES))
    alone = [model(ids[i], references[i], queries[i], s) for i, model in enumerate(models)]
    assert_alike(together, alone)
    each = [gradients(found, list(model.parameters())) for found, model in zip(alone, models, strict=True)]
    assert_alike(gradients(together, list(stacked.values())), each)


@every_model
def test_each_run_may_have_its_own_neighbours_and_vectors(name: str) -> None:
    models, (ids, references, queries) = models_of(name), asked(3, 5)
    first = random_surroundings(0, 3, 4)
    around = [
        surroundings_of(
            normal(run, 7, 3),
            normal(10 + run, 6, 3),
            [[((r + run) % 6, (e + run) % 7) for r, e in own] for own in neighbours_in(first)],  # as many of each
            4,
        )
        for run in range(RUNS)
    ]
    stacked, _ = stack_module_state(models)
    tables = [torch.stack([attrgetter(table)(s) for s in around]) for table in TABLES]
    vectors = [table.requires_grad_() for table in tables[:2]]

    def one(parameters: Mapping[str, Tensor], given: Sequence[Tensor], *own: Tensor) -> Found:
        neighbours = Neighbours(4, first.neighbours.offsets, *own[2:])
        return functional_call(models[0], parameters, (*given, Neighbourhood(*own[:2], neighbours)))

    together = vmap(one)(stacked, (ids, references, queries), *tables)
    alone, each = [], []
    for i, (model, s) in enumerate(zip(models, around, strict=True)):
        leaves = [*model.parameters(), s.entities.requires_grad_(), s.relations.requires_grad_()]
        alone.append(model(ids[i], references[i], queries[i], s))
        each.append(gradients(alone[-1], leaves))
    assert_alike(together, alone)
    assert_alike(gradients(together, [*stacked.values(), *vectors]), each)


@every_model
def test_runs_drop_differently_and_by_the_seed(name: str) -> None:
    models, s = models_of(name, dropout=0.5), random_surroundings(2, 3, 4)
    stacked, _ = stack_module_state([models[0]] * RUNS)
    given = [part[:1].expand_as(part) for part in asked(3, 5)]  # all runs the same but for their dropout

    def found(seed: int) -> Tensor:
        torch.manual_seed(seed)
        together = vmap(lambda p, *own: functional_call(models[0], p, (*own, s)), randomness="different")
        return together(stacked, *given)[0]

    scores = found(1)
    assert torch.equal(scores, found(1)) and not torch.allclose(scores, found(2))
    assert not torch.allclose(scores[0], scores[1]) and not torch.allclose(scores[1], scores[2])
