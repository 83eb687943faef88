"""Whole models: numbers by hand, every composition pair by pair, and scores under the common evaluator."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.models.fsrl.oracle import (
    ask,
    assert_same,
    close,
    neighbours_in,
    normal,
    parameters_of,
    random_surroundings,
    scored,
    surroundings_of,
)
from torch import Tensor

from fewlink.evaluation import evaluate
from fewlink.models.contract import Question
from fewlink.models.embeddings import Embeddings
from fewlink.models.fsrl.aggregator import EveryReference, MeanPooling
from fewlink.models.fsrl.encoder import MeanNeighbours
from fewlink.models.fsrl.matcher import Concatenation, InnerProduct
from fewlink.models.fsrl.model import COMPOSITIONS, FewShotModel, build
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.reference_variants import VARIANTS
from fewlink.models.fsrl.scorer import ExactEncoder, FewShotScorer, distinct, encode_all
from fewlink.models.registry import BUILT_IN
from fewlink.tasks import Benchmark, open_benchmark

every_model = pytest.mark.parametrize("name", COMPOSITIONS)


def pairs(seed: int, *shape: int, entities: int = 7) -> Tensor:
    """Pairs of ids (…, 2); the first has entity 0, which has no neighbour."""
    ids = torch.randint(entities, (*shape, 2), generator=torch.Generator().manual_seed(seed))
    ids.view(-1)[0] = 0
    return ids


def model_of(name: str, dim: int = 3, steps: int = 2, seed: int = 1) -> FewShotModel:
    return parameters_of(build(name, dim, steps=steps), seed)


def question(references: Tensor, heads: Tensor, candidates: Tensor) -> Question:
    return Question("relation", *(ids.numpy().astype(np.int32) for ids in (references, heads, candidates)))


# Entities atanh ½, atanh ¼, −atanh ½ and 5; no neighbour but entity 1's of entity 3: encoded ½, ¼, −½, ¼
ENTITIES = torch.tensor([[math.atanh(0.5)], [math.atanh(0.25)], [-math.atanh(0.5)], [5.0]], dtype=torch.float64)
BY_HAND = surroundings_of(ENTITIES, torch.zeros(2, 1, dtype=torch.float64), [[], [], [], [(0, 1)]])
REFERENCES, QUERIES = torch.tensor([[[0, 1], [0, 2]]]), torch.tensor([[[0, 0], [1, 2], [2, 3]]])


def test_a_mean_of_references_by_hand() -> None:
    # references [½ ; ¼] and [½ ; −½], mean [½ ; −⅛]; queries [½ ; ½], [¼ ; −½], [−½ ; ¼]
    model = FewShotModel(MeanNeighbours(1), Concatenation(1), MeanPooling(2), InnerProduct(2, 2))
    scores, reconstruction = ask(model, REFERENCES, QUERIES, BY_HAND)
    close(scores, [[1 / 4 - 1 / 16, 1 / 8 + 1 / 16, -1 / 4 - 1 / 32]])
    close(reconstruction, [0.0])


def test_the_best_reference_by_hand() -> None:
    # ⟨[½ ; ½], …⟩ is ¼ + ⅛ or 0, ⟨[¼ ; −½], …⟩ 0 or ⅛ + ¼, ⟨[−½ ; ¼], …⟩ −¼ + 1/16 or −¼ − ⅛
    model = FewShotModel(MeanNeighbours(1), Concatenation(1), EveryReference(2), InnerProduct(2, 2))
    close(ask(model, REFERENCES, QUERIES, BY_HAND)[0], [[3 / 8, 3 / 8, -3 / 16]])
    scorer = FewShotScorer("by hand", model, BY_HAND)
    # heads ½ and −½ with tails ¼, ½, −½
    found = scorer(question(REFERENCES[0], torch.tensor([0, 2]), torch.tensor([3, 0, 2])))
    close(found, [[1 / 4 + 1 / 16, 1 / 4 + 1 / 8, 1 / 4 + 1 / 4], [-1 / 4 + 1 / 16, -1 / 4 + 1 / 8, 0.0]])


@pytest.mark.parametrize(
    ("shots", "slots", "steps", "count"), [(1, 1, 1, 4), (1, 4, 2, 1), (3, 4, 2, 4), (5, 1, 3, 2), (2, 0, 2, 2)]
)
@pytest.mark.parametrize(
    ("name", "pair_block"),
    [*((name, False) for name in COMPOSITIONS), *((name, True) for name in COMPOSITIONS)],
)
def test_a_model_is_the_reference(name: str, pair_block: bool, shots: int, slots: int, steps: int, count: int) -> None:
    model = parameters_of(build(name, 3, steps=steps, pair_block=pair_block), 1)
    s = random_surroundings(2, 3, slots)
    leaves = [*model.parameters(), s.entities.requires_grad_(), s.relations.requires_grad_()]
    references, queries = pairs(3, 2, shots), pairs(4, 2, count)
    fast = ask(model, references, queries, s)
    assert (fast[0].shape, fast[1].shape) == ((2, count), (2,))
    assert_same(fast, scored(name, model, references, queries, s), leaves)


def moved(s: Neighbourhood, added: int, order: list[int]) -> Neighbourhood:
    """The same neighbours in another order, with further empty slots."""
    other = [[own[i] for i in order if i < len(own)] for own in neighbours_in(s)]
    return surroundings_of(s.entities, s.relations, other, s.neighbours.slots + added)


@pytest.mark.parametrize("name", [name for name in COMPOSITIONS if name != "fsrl-released"])
def test_padding_and_the_order_of_neighbours_change_no_score(name: str) -> None:
    model, s = model_of(name), random_surroundings(2, 3, 4)
    padded = moved(s, 2, [5, 2, 4, 0, 3, 1])
    references, queries = pairs(3, 2, 3), pairs(4, 2, 5)
    for a, b in zip(ask(model, references, queries, padded), ask(model, references, queries, s), strict=True):
        close(a, b)


@pytest.mark.parametrize(("shots", "heads", "candidates"), [(1, 1, 1), (3, 2, 5), (5, 7, 1)])
@every_model
def test_a_grid_holds_the_scores_of_all_pairs(name: str, shots: int, heads: int, candidates: int) -> None:
    model, s = model_of(name), random_surroundings(2, 3, 4)
    references, h, c = pairs(3, shots), torch.arange(heads), torch.arange(7).flip(0)[:candidates]
    grid = model.grid(encode_all(model.encoder, s), references, h, c)
    assert grid.shape == (heads, candidates) and not grid.requires_grad
    every = torch.stack([torch.stack([a, b]) for a in h for b in c])
    close(grid, ask(model, references[None], every[None], s)[0].view(heads, candidates))


@every_model
def test_no_score_and_no_gradient_is_nan_without_any_neighbour(name: str) -> None:
    model, s = build(name, 2), surroundings_of(normal(1, 4, 2), normal(2, 2, 2), [[], [], [], []], slots=3).float()
    scores, reconstruction = ask(model, pairs(3, 2, 1, entities=4), pairs(4, 2, 3, entities=4), s)
    assert scores.isfinite().all() and reconstruction.isfinite().all()
    (scores.sum() + reconstruction.sum()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.fixture(scope="module")
def umls() -> tuple[Benchmark, Neighbourhood]:
    benchmark = open_benchmark("umls")
    tables = normal(1, len(benchmark.graph.entities), 6), normal(2, 2 * len(benchmark.graph.relations), 6)
    return benchmark, Neighbourhood.of(benchmark.graph, Embeddings(*tables, "complex"), max_neighbours=10)


@pytest.mark.parametrize("name", ["fsrl", "fsrl-as3", "fsrl-released", "gmatching-max"])
def test_the_evaluator_ranks_by_the_model(name: str, umls: tuple[Benchmark, Neighbourhood]) -> None:
    benchmark, s = umls
    model = model_of(name, dim=6)
    scorer = FewShotScorer(name, model, s)
    assert scorer.name == name
    for task, ranked in zip(benchmark.split("test"), evaluate(benchmark, scorer).tasks, strict=True):
        references = torch.from_numpy(task.split(3)[0]).long()[None]
        for (head, tail), rank in list(zip(ranked.queries.tolist(), ranked.ranks.tolist(), strict=True))[::25]:
            rivals = [c for c in task.range.tolist() if c == tail or c not in task.known_tails[head]]
            with torch.no_grad():
                scores, _ = ask(model, references, torch.tensor([[[head, c] for c in rivals]]), s)
            ahead = scores[0] - scores[0, rivals.index(tail)]
            tied = int((ahead.abs() < 1e-10).sum()) - 1  # entities with the same neighbours are encoded alike
            assert rank == 1 + int((ahead >= 1e-10).sum()) + tied / 2


@every_model
def test_a_scorer_gives_what_forward_gives(name: str, umls: tuple[Benchmark, Neighbourhood]) -> None:
    benchmark, s = umls
    model, task = model_of(name, dim=6), benchmark.split("test")[0]
    references, queries = task.split(5)
    heads, candidates = np.unique(queries[:, 0])[:4], task.range
    found = FewShotScorer(name, model, s)(Question(task.name, references, heads, candidates))
    every = torch.tensor([[h, c] for h in heads.tolist() for c in candidates.tolist()])
    close(found, ask(model, torch.from_numpy(references).long()[None], every[None], s)[0].view_as(found))
    assert not found.requires_grad


@pytest.mark.parametrize("count", [5, 37, 123])
@every_model
def test_entities_with_the_same_neighbours_tie_exactly_in_single_precision(name: str, count: int) -> None:
    draw = torch.Generator().manual_seed(0)
    copies = torch.randperm(count, generator=draw)[: count // 2]
    tables = [torch.randint(n, (count, 10), generator=draw) for n in (20, count, 2)]
    for table in tables:
        table[copies] = table[copies[0]].clone()
    neighbours = [[(r, e) for r, e, here in zip(*own, strict=True) if here] for own in torch.stack(tables, 1).tolist()]
    vectors = normal(1, count, 50)
    if name == "fsrl-tuned":  # which sees the entity itself as well
        vectors[copies] = vectors[copies[0]].clone()
    s = surroundings_of(vectors, normal(2, 20, 50), neighbours, 10).float()
    asked = question(pairs(1, 3, entities=count), torch.arange(5), torch.arange(count))
    scores = FewShotScorer(name, model_of(name, dim=50).float(), s)(asked)
    assert torch.equal(scores[:, copies], scores[:, copies[:1]].expand(5, len(copies)))


@every_model
def test_slots_that_nobody_fills_are_left_out_and_change_no_vector(name: str) -> None:
    model = model_of(name)
    neighbours = [[(i % 6, (i + j) % 9) for j in range(count)] for i, count in enumerate((0, 3, 1, 5, 0, 1, 2, 5, 1))]
    s = surroundings_of(normal(1, 9, 3), normal(2, 6, 3), neighbours, 5)
    ids = torch.tensor([3, 0, 5, 8, 1, 2, 5, 4, 7, 6])
    for some in (ids, ids[:1], ids[[1, 7]], ids[[2, 3]]):  # all, one with most, two with none, two with one
        close(ExactEncoder(model.encoder, s)(some), model.encoder(some, s))


def test_parameters_by_hand() -> None:
    # d = 2, so pairs are 4 wide. Attentive: W 2·4, b 2, u 2. Autoencoder: two LSTMs of 4·4·(4 + 4) + 2·4·4 = 160,
    # W_R 2·4, b_R 2, u_R 2. Matching, the 4 units of 8 that are read: 4·4·(4 + 4 + 4) + 4·4 = 208.
    sizes = {part: sum(p.numel() for p in module.parameters()) for part, module in build("fsrl", 2).named_children()}
    assert sizes == {"encoder": 12, "pair": 0, "aggregator": 332, "matcher": 208}


def test_the_models_are_those_of_the_registry_and_each_has_a_reference() -> None:
    assert {*COMPOSITIONS} == {*BUILT_IN["fewshot"].models} == {*VARIANTS}


@every_model
def test_dropout_varies_with_the_seed_and_only_while_training(name: str) -> None:
    model, s = parameters_of(build(name, 3, dropout=0.5), 1), random_surroundings(2, 3, 4)

    def scores(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return ask(model, pairs(3, 2, 3), pairs(4, 2, 5), s)[0]

    model.train()
    assert torch.equal(scores(1), scores(1)) and not torch.allclose(scores(1), scores(2))
    model.eval()
    assert torch.equal(scores(1), ask(model_of(name), pairs(3, 2, 3), pairs(4, 2, 5), s)[0])


def test_rows_that_differ_are_told_apart_whatever_their_hash() -> None:
    table = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [0.0, -0.0], [-0.0, 0.0]])
    vectors, which = distinct(table)
    assert len(vectors) == 3 and torch.equal(vectors[which], table)
