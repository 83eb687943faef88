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

from fewlink.evaluation import Protocol, evaluate, evaluator, rank_split
from fewlink.models.contract import Question
from fewlink.models.embeddings import Embeddings
from fewlink.models.fsrl import exact
from fewlink.models.fsrl.aggregator import EveryReference, MeanPooling
from fewlink.models.fsrl.compositions import COMPOSITIONS, build
from fewlink.models.fsrl.encoder import MeanNeighbours
from fewlink.models.fsrl.exact import ExactEncoder, encode_all
from fewlink.models.fsrl.matcher import InnerProduct
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.pair import Concatenation
from fewlink.models.fsrl.scorer import FewShotScorer
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
    [*((name, False) for name in COMPOSITIONS), *((name, True) for name in COMPOSITIONS if name != "fsrl-text")],
)
def test_a_model_is_the_reference(name: str, pair_block: bool, shots: int, slots: int, steps: int, count: int) -> None:
    model = parameters_of(build(name, 3, steps=steps, pair_block=pair_block), 1)
    s = random_surroundings(2, 3, slots)
    leaves = [*model.parameters(), s.entities.requires_grad_(), s.relations.requires_grad_()]
    references, queries = pairs(3, 2, shots), pairs(4, 2, count)
    fast = ask(model, references, queries, s)
    assert (fast[0].shape, fast[1].shape) == ((2, count), (2,))
    assert_same(fast, scored(name, model, references, queries, s), leaves)


@every_model
def test_a_score_does_not_depend_on_what_else_is_asked(name: str) -> None:
    model, s = model_of(name), random_surroundings(2, 3, 4)
    references, queries = pairs(3, 3, 3), pairs(4, 3, 5)
    scores, reconstruction = ask(model, references, queries, s)
    alone = ask(model, references[1:2], queries[1:2, 3:4], s)
    close(alone[0], scores[1:2, 3:4])
    close(alone[1], reconstruction[1:2])
    close(ask(model, references, queries.flip(1), s)[0], scores.flip(1))


@every_model
def test_which_entities_are_encoded_and_in_which_order_changes_no_score(name: str) -> None:
    model, s = model_of(name), random_surroundings(2, 3, 4)
    references, queries = pairs(3, 2, 3), pairs(4, 2, 5)
    ids = torch.tensor([4, 6, 0, 2, 2, 5, 1, 3, 6])  # all entities, two of them twice
    places = torch.tensor([2, 6, 4, 7, 0, 5, 8])
    for a, b in zip(
        model(ids, places[references], places[queries], s), ask(model, references, queries, s), strict=True
    ):
        close(a, b)


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


def test_padding_but_not_the_order_of_neighbours_changes_the_scores_of_the_authors_program() -> None:
    model, s = model_of("fsrl-released"), random_surroundings(2, 3, 4)
    references, queries = pairs(3, 2, 3), pairs(4, 2, 5)
    before, after = (ask(model, references, queries, around)[0] for around in (s, moved(s, 2, [0, 1, 2, 3, 4, 5])))
    assert ((after - before).abs() > 1e-3).all()
    close(ask(model, references, queries, moved(s, 0, [2, 0, 3, 1]))[0], before)


@pytest.mark.parametrize("shots", [1, 2, 7])
@every_model
def test_a_model_trained_with_three_shots_takes_another_number(name: str, shots: int) -> None:
    model, s = model_of(name), random_surroundings(2, 3, 4)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(2):
        scores, reconstruction = ask(model, pairs(3, 2, 3), pairs(4, 2, 5), s)
        optimiser.zero_grad()
        (scores.sum() + reconstruction.sum()).backward()
        optimiser.step()
    references, query = pairs(5, 1, shots), pairs(6, 1, 1)
    close(ask(model, references, query, s)[0], scored(name, model, references, query, s)[0])


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


@every_model
def test_a_query_may_be_a_reference_and_a_reference_may_come_twice(name: str) -> None:
    model, s = model_of(name), random_surroundings(2, 3, 4)
    references = torch.tensor([[[0, 0], [1, 2], [1, 2]]])
    scores, _ = ask(model, references, references, s)
    close(scores[0, 1], scores[0, 2].item())
    close(scores, scored(name, model, references, references, s)[0])


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


def test_single_precision_ranks_alike(umls: tuple[Benchmark, Neighbourhood]) -> None:
    benchmark, s = umls
    single = Neighbourhood(s.entities.float(), s.relations.float(), s.neighbours)
    models = (model_of("fsrl", dim=6), s), (model_of("fsrl", dim=6).float(), single)
    found = [evaluate(benchmark, FewShotScorer("fsrl", *m), Protocol("dev")).metrics()["micro"]["mrr"] for m in models]
    assert found[0] == pytest.approx(found[1], abs=1e-3)


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


@pytest.mark.parametrize("name", ["fsrl", "fsrl-as3", "fsrl-released", "gmatching-max"])
def test_ranks_do_not_depend_on_how_the_heads_are_batched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = open_benchmark("umls")
    tables = normal(1, len(benchmark.graph.entities), 50), normal(2, 2 * len(benchmark.graph.relations), 50)
    s = Neighbourhood.of(benchmark.graph, Embeddings(*(t.float() for t in tables), "complex"))
    scorer = FewShotScorer(name, model_of(name, dim=50).float(), s)
    whole = rank_split(benchmark, scorer, Protocol())
    monkeypatch.setattr(evaluator, "HEADS_PER_BATCH", 1)
    batched = rank_split(benchmark, scorer, Protocol())
    for one, other in zip(whole, batched, strict=True):
        assert np.array_equal(one.ranks, other.ranks), one.relation


@every_model
def test_encoding_all_entities_in_pieces_is_encoding_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, s = model_of(name), random_surroundings(2, 3, 4)
    monkeypatch.setattr(exact, "ENCODED_AT_ONCE", 3)  # of 7
    with torch.no_grad():
        close(encode_all(model.encoder, s), model.encoder(torch.arange(7), s))
    single = encode_all(model.float().encoder, s.float())
    assert single.dtype == s.entities.dtype == torch.float32


def test_entities_are_encoded_once_and_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    model, s = model_of("fsrl"), random_surroundings(2, 3, 4)
    asked: list[int] = []
    everyone, encode = encode_all(model.encoder, s), ExactEncoder.__call__

    def listening(self: ExactEncoder, ids: Tensor) -> Tensor:
        asked.extend(ids.tolist())
        return encode(self, ids)

    monkeypatch.setattr(ExactEncoder, "__call__", listening)
    scorer = FewShotScorer("fsrl", model, s)
    assert not asked
    references = torch.tensor([[0, 1], [2, 3]])
    for candidates in ([1, 4], [4, 1], [5, 1, 4]):
        found = scorer(question(references, torch.tensor([1, 2]), torch.tensor(candidates)))
        close(found, model.grid(everyone, references, torch.tensor([1, 2]), torch.tensor(candidates)))
    assert asked == [0, 1, 2, 3, 4, 5] and not model.training


@every_model
def test_slots_that_nobody_fills_are_left_out_and_change_no_vector(name: str) -> None:
    model = model_of(name)
    neighbours = [[(i % 6, (i + j) % 9) for j in range(count)] for i, count in enumerate((0, 3, 1, 5, 0, 1, 2, 5, 1))]
    s = surroundings_of(normal(1, 9, 3), normal(2, 6, 3), neighbours, 5)
    ids = torch.tensor([3, 0, 5, 8, 1, 2, 5, 4, 7, 6])
    for some in (ids, ids[:1], ids[[1, 7]], ids[[2, 3]]):  # all, one with most, two with none, two with one
        close(ExactEncoder(model.encoder, s)(some), model.encoder(some, s))
