"""TRAIL: its parts against loops over rules, neighbours and references; its scorer, and the reasons it gives."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pytest
import torch
from tests.conftest import id_graph
from tests.trail_0_1.test_evidence import (
    KINDS,
    LONELY,
    agree,
    context_of,
    cosine,
    ids,
    length,
    mean,
    random_graph,
    references_of,
)
from tests.trail_0_1.test_paths import Literal
from torch import Tensor, nn

from fewlink.base.errors import FewlinkError
from fewlink.graph import neighbour_table
from fewlink.scorers import Question
from fewlink.trail_0_1 import scorer as trail_scorer
from fewlink.trail_0_1.context import Features, GraphContext, ModelInputs, Pairs, TaskContext
from fewlink.trail_0_1.evidence import extract, kinds_of, matching, reliability
from fewlink.trail_0_1.evidence.base import ColumnEvidence, Evidence, Standardise
from fewlink.trail_0_1.evidence.matching import MatchingEvidence, TaskNeighbours
from fewlink.trail_0_1.evidence.paths import RULE_WIDTH, PathEvidence
from fewlink.trail_0_1.model import BlindWeighing, Trail, Weighing, build, compositions
from fewlink.trail_0_1.scorer import Trail01Scorer

SCORING = compositions()["trail-0.1"].scoring
RELIABILITY = 2 * len(SCORING) + 2
Module = TypeVar("Module", bound=nn.Module)

every_composition = pytest.mark.parametrize("name", list(compositions()))
every_count = pytest.mark.parametrize("shots", [1, 3, 5])


def filled(module: Module, seed: int = 0) -> Module:
    """The module, without dropout, with every parameter drawn anew."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=draw) / 2
    return module.eval()


def inputs_of(
    context: GraphContext, references: Tensor, heads: Sequence[int], candidates: Sequence[int]
) -> ModelInputs:
    task = TaskContext(context, references)
    features = extract(Pairs.of(task, ids(heads), ids(candidates)), KINDS)
    return ModelInputs(references, ids(heads), ids(candidates), features, reliability(task, SCORING))


@functools.cache
def example(shots: int = 3, seed: int = 0) -> tuple[GraphContext, ModelInputs]:
    """Some pairs of a small graph; a head, a candidate and the third reference's tail have no edges."""
    known, references = context_of(random_graph(seed), seed), references_of(seed, shots)
    heads = [int(references[0, 0]), 3, LONELY[1]]
    return known, inputs_of(known, references, heads, sorted({int(references[0, 1]), 2, 5, 9, *LONELY}))


def trail_of(name: str = "trail-0.1", seed: int = 0) -> Trail:
    """A model with random parameters that is set by two lessons."""
    model = filled(build(name), seed)
    model.fit_scale([example(shots, seed)[1] for shots in (2, 4)])
    return model


def with_features(inputs: ModelInputs, **features: Features) -> ModelInputs:
    """The inputs with other features of some kinds."""
    return inputs._replace(features={**inputs.features, **features})


# Parts as loops


def through(network: nn.Sequential, x: Sequence[float]) -> list[float]:
    """Linear layers with max(0, ·) between them."""
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    for i, layer in enumerate(layers):
        rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        x = [sum(w * x_j for w, x_j in zip(row, x, strict=True)) + b for row, b in rows]
        if i + 1 < len(layers):
            x = [max(0.0, x_i) for x_i in x]
    return list(x)


def scaled(standard: Standardise, x: Sequence[float]) -> list[float]:
    means, deviations = standard.mean.tolist(), standard.deviation.tolist()
    return [(x_i - m) / s for x_i, m, s in zip(x, means, deviations, strict=True)]


def softmax(logits: Sequence[float]) -> list[float]:
    powers = [math.exp(x) for x in logits]
    return [power / sum(powers) for power in powers]


def weighted(weights: Sequence[float], vectors: Sequence[Sequence[float]], width: int) -> list[float]:
    return [sum(w * v[i] for w, v in zip(weights, vectors, strict=True)) for i in range(width)]


def unit(vector: Sequence[float]) -> list[float]:
    return [x / length(vector) if any(vector) else 0.0 for x in vector]


class Neighbourly:
    """How like references entities are with their neighbours, one neighbour at a time."""

    def __init__(self, part: TaskNeighbours, known: GraphContext) -> None:
        self.sharpness, self.crowd = part.sharpness.item(), part.crowd.item()
        self.vectors = [unit(row) for row in known.translation.double().tolist()]
        self.table = neighbour_table(known.graph, 30)
        self.count = Literal(
            [(h, r, t) for h, r, t in known.graph.triples().tolist()], len(known.graph.relations)
        ).count

    def around(self, entity: int, task: Sequence[float] | None) -> list[float]:
        vectors, logits = [], []
        for relation, other in self.table.of(entity):
            e = self.vectors[other]
            like = 0.0 if task is None else sum(x * g for x, g in zip(e, task, strict=True))
            logits.append(self.sharpness * like - self.crowd * math.log(self.count[entity, relation]))
            vectors.append(e)
        return weighted(softmax(logits), vectors, len(self.vectors[0]))

    def like(self, entities: Sequence[int], references: Sequence[int]) -> list[list[float]]:
        task = unit([mean(numbers) for numbers in zip(*(self.around(e, None) for e in references), strict=True)])

        def likeness(one: int, other: int) -> float:
            around = cosine(self.around(one, task), self.around(other, task))
            return (cosine(self.vectors[one], self.vectors[other]) + around) / 2

        return [[likeness(e, reference) for reference in references] for e in entities]


def cells(asked: ModelInputs, told: Callable[[int, int], Sequence[float]]) -> list[Sequence[float]]:
    """What each place of head and candidate gives."""
    return [told(i, j) for i in range(len(asked.heads)) for j in range(len(asked.candidates))]


@every_count
def test_path_evidence_is_the_sum_over_rules_of_a_network(shots: int) -> None:
    known, asked = example(shots)
    columns, cells_of_rules, _, facts = asked.features["paths"]
    part = filled(PathEvidence())
    part.fit_scale([asked.features["paths"]])
    rows = list(zip(cells_of_rules.tolist(), facts.tolist(), strict=True))
    assert len({place for place, _ in rows}) < len(rows), "no two rules lead to one place"

    def told(i: int, j: int) -> list[float]:
        led = [through(part.network, row) for place, row in rows if place == i * len(asked.candidates) + j]
        near = scaled(part.standard, columns[i, j].tolist())
        return [*(sum(each[w] for each in led) for w in range(8)), *near]

    evidence = part(asked, known)
    assert evidence.shape == (3, len(asked.candidates), part.width)
    agree(evidence, cells(asked, told))


def test_a_pair_that_no_rule_joins_has_no_evidence_from_rules() -> None:
    known, asked = example()
    part = filled(PathEvidence())
    alone = asked.heads.tolist().index(LONELY[1])
    assert not part(asked, known)[alone, :, :8].any()
    nothing = (asked.features["paths"][0], ids([]), ids([]), torch.zeros(0, RULE_WIDTH))
    assert not part(with_features(asked, paths=nothing), known)[..., :8].any()


def test_columns_have_mean_0_and_deviation_1_in_the_episodes() -> None:
    episodes = [example(shots, shots)[1] for shots in (1, 2, 5)]
    known, asked = example(3, 7)
    for kind in kinds_of(KINDS):
        if not issubclass(kind, ColumnEvidence):
            continue
        part = kind()
        part.fit_scale([episode.features[kind.kind] for episode in episodes])
        assert part.width == len(kind.columns)
        evidence = part(asked, known)
        for i in range(part.width):
            seen = [x for e in episodes for x in e.features[kind.kind][0][..., i].flatten().double().tolist()]
            deviation = statistics.stdev(seen) + 1e-3
            expected = (asked.features[kind.kind][0][..., i].double() - statistics.fmean(seen)) / deviation
            torch.testing.assert_close(evidence[..., i].double(), expected, rtol=1e-3, atol=1e-4)


def test_standardised_columns_have_mean_0_and_deviation_1() -> None:
    draw = torch.Generator().manual_seed(0)
    lessons = [5 + 3 * torch.randn(*shape, 4, generator=draw) for shape in ((2, 9), (7, 30), (1, 1))]
    standard = Standardise(4)
    torch.testing.assert_close(standard(lessons[0]), lessons[0])
    standard.fit(lessons)
    every = torch.cat([standard(lesson).flatten(0, -2) for lesson in lessons])
    torch.testing.assert_close(every.mean(0), torch.zeros(4), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(every.std(0), torch.ones(4), rtol=0.0, atol=2e-3)


def test_a_column_that_is_always_the_same_stays_finite() -> None:
    standard = Standardise(2)
    standard.fit([torch.full((3, 4, 2), 7.0)])
    assert not standard(torch.full((1, 2), 7.0)).any()
    assert standard(torch.full((1, 2), 8.0)).isfinite().all()


@every_count
def test_an_entity_with_its_neighbours_is_attention_over_those_that_are_there(shots: int) -> None:
    known, references = context_of(random_graph(1)), references_of(1, shots)
    part = filled(TaskNeighbours(), shots)
    everyone, tails = range(14), references[:, 1]
    agree(part(ids(everyone), tails, known), Neighbourly(part, known).like(everyone, tails.tolist()))


def test_a_crowd_is_counted_whole_though_thirty_neighbours_are_looked_at() -> None:
    crowd = [(0, 0, t) for t in range(1, 45)] + [(0, 1, t) for t in range(1, 6)] + [(7, 1, 8), (8, 1, 7), (9, 0, 9)]
    known = context_of(id_graph(crowd, 50, 2))
    first = known.neighbours.places(torch.tensor(0))
    assert known.neighbours.present(first).sum() == 30 and known.neighbour_groups[first].max() == 44
    part = filled(TaskNeighbours(), 3)
    some = [0, 1, 7, 9, 49]
    agree(part(ids(some), ids([0, 2, 8]), known), Neighbourly(part, known).like(some, [0, 2, 8]))


def test_many_entities_are_looked_at_by_how_many_neighbours_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = [(0, 0, t) for t in range(1, 45)] + [(7, 1, 8), (8, 1, 7), (9, 0, 9), (9, 1, 3), (5, 0, 5)]
    known = context_of(id_graph(crowd, 50, 2))
    part, everyone, references = filled(TaskNeighbours(), 3), range(50), [0, 2, 8, 49]
    expected = Neighbourly(part, known).like(everyone, references)
    monkeypatch.setattr(matching, "AT_ONCE", 3)
    with torch.no_grad():
        agree(part(ids(everyone), ids(references), known), expected)


def test_an_entity_without_neighbours_is_its_own_vector_alone() -> None:
    known, references = context_of(random_graph(2)), ids([0, 4])
    found = filled(TaskNeighbours())(ids(LONELY), references, known)
    torch.testing.assert_close(found, known.unit_transe(ids(LONELY)) @ known.unit_transe(references).T / 2)
    alone = filled(TaskNeighbours())(ids(LONELY), ids(LONELY), known)
    torch.testing.assert_close(alone.diagonal(), torch.full((2,), 0.5))


def test_attention_prefers_what_stands_around_the_references_and_small_crowds() -> None:
    # 0 and 1 both lead to 2; 0 also to 3, and with another relation to 4, 5 and 6
    known = context_of(id_graph([(0, 0, 2), (1, 0, 2), (0, 1, 3), *((0, 2, t) for t in (4, 5, 6))], 8))
    known.translation = torch.eye(8)  # so that what stands around an entity shows the attention each neighbour has
    part = TaskNeighbours()
    (task,) = part._around(ids([1]), None, known)
    (weights,) = part._around(ids([0]), task, known)
    assert weights[2] > weights[3] > weights[4] == weights[5] == weights[6] > 0
    torch.testing.assert_close(weights.sum(), torch.tensor(1.0))
    torch.testing.assert_close(weights[2] / weights[3], torch.tensor(math.exp(4)))  # a = 4, and 2 is g itself
    torch.testing.assert_close(weights[3] / weights[4], torch.tensor(3.0))  # b = 1 and n = 3


@every_count
def test_matching_is_attention_over_references(shots: int) -> None:
    known, asked = example(shots)
    part = filled(MatchingEvidence(), 5)
    part.fit_scale([asked.features["matching"]])
    heads, tails = (
        Neighbourly(side, known).like(entities.tolist(), asked.references[:, end].tolist())
        for side, entities, end in ((part.heads, asked.heads, 0), (part.tails, asked.candidates, 1))
    )

    def told(i: int, j: int) -> list[list[float]]:
        """The logit and the values of each reference."""
        beside = asked.features["matching"][0][i, j].tolist()
        return [
            through(part.network, [*scaled(part.standard, row), heads[i][k], tails[j][k]])
            for k, row in enumerate(beside)
        ]

    def beta(i: int, j: int) -> list[float]:
        return softmax([row[0] for row in told(i, j)])

    weights = part.weights(asked, known)
    agree(weights, cells(asked, beta))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    values = cells(asked, lambda i, j: weighted(beta(i, j), [row[1:] for row in told(i, j)], part.width))
    agree(part(asked, known), values)


def test_matching_is_the_same_with_candidates_states_computed_before() -> None:
    known, asked = example()
    part = filled(MatchingEvidence())
    state = part.candidate_state(TaskContext(known, asked.references), asked.candidates)
    torch.testing.assert_close(part(asked._replace(states={"matching": state}), known), part(asked, known))
    other = asked._replace(states={"matching": torch.zeros(len(asked.candidates), 3)})
    assert not torch.allclose(part(other, known), part(asked, known))


def test_the_order_of_references_moves_nothing_but_their_attention() -> None:
    known, asked = example(5)
    part, order = filled(MatchingEvidence()), [4, 2, 0, 1, 3]
    turned = with_features(asked, matching=(asked.features["matching"][0][:, :, order],))
    turned = turned._replace(references=asked.references[order])
    torch.testing.assert_close(part(turned, known), part(asked, known), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(part.weights(turned, known), part.weights(asked, known)[..., order])


def weigh(weighing: Weighing, x: Sequence[float], context: Sequence[float]) -> float:
    gates = zip(weighing.weights.tolist(), through(weighing.gate, context), strict=True)
    linear: float = sum(x_i * (w + gate) for x_i, (w, gate) in zip(x, gates, strict=True))
    return linear + through(weighing.network, [*x, *context])[0]


def test_weighing_is_its_equation() -> None:
    weighing, draw = filled(Weighing(6, RELIABILITY)), torch.Generator().manual_seed(1)
    evidence, context = torch.randn(2, 3, 6, generator=draw), torch.randn(RELIABILITY, generator=draw)
    expected = [weigh(weighing, x, context.tolist()) for x in evidence.view(-1, 6).tolist()]
    found = weighing(evidence, context)
    assert found.shape == (2, 3)
    agree(found, expected)
    assert not torch.allclose(weighing(evidence, -context), found)


def test_weighing_starts_without_gates() -> None:
    weighing, x = Weighing(6, RELIABILITY), torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    for context in (torch.zeros(RELIABILITY), torch.ones(RELIABILITY)):
        assert not weighing.gate(context).any()
    assert weighing.training and not torch.equal(weighing(x, context), weighing(x, context))  # dropout
    assert torch.equal(weighing.eval()(x, context), weighing(x, context))


def test_context_has_no_influence_on_blind_weighing() -> None:
    blind, seeing = filled(BlindWeighing(6, RELIABILITY)), filled(Weighing(6, RELIABILITY))
    evidence, contexts = torch.randn(2, 3, 6), torch.randn(4, RELIABILITY)
    scores = [blind(evidence, context) for context in contexts]
    assert all(torch.equal(score, scores[0]) for score in scores)
    torch.testing.assert_close(scores[0], seeing(evidence, torch.zeros(RELIABILITY)))
    context = contexts[0].requires_grad_()
    (gradient,) = torch.autograd.grad(
        blind(evidence, context).sum(), [context], allow_unused=True, materialize_grads=True
    )
    assert not gradient.any()


# The whole


def test_compositions_are_trail_and_trail_without_each_of_its_kinds() -> None:
    assert list(compositions()) == [
        "trail-0.1",
        *(f"trail-0.1-no-{kind}" for kind in KINDS),
        "trail-0.1-no-reliability",
    ]
    for name, composition in compositions().items():
        model = build(name)
        left = name.removeprefix("trail-0.1-no-")
        assert tuple(model.parts) == composition.kinds == tuple(kind for kind in KINDS if kind != left)
        assert type(model.weighing) is (BlindWeighing if left == "reliability" else Weighing)
    assert build("trail-0.1").widths == {"paths": 12, "bilinear": 2, "translation": 3, "profile": 11, "matching": 4}
    with pytest.raises(FewlinkError, match=r"trail-0\.1-no-matching"):
        build("trial")


def flow(model: Trail, known: GraphContext, asked: ModelInputs) -> Tensor:
    """Scores, and gradients of a loss that looks at every one."""
    model.zero_grad()
    scores = model(asked, known)
    assert scores.shape == (len(asked.heads), len(asked.candidates)) and scores.isfinite().all()
    (scores.logsumexp(1) - scores.mean(1)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    found: Tensor = scores.detach()
    return found


@every_composition
def test_every_composition_runs_forward_and_backward(name: str) -> None:
    known, asked = example(3)
    fresh = build(name)
    fresh.fit_scale([asked])
    for model in (fresh, trail_of(name)):
        flow(model.train(), known, asked)
        flow(model.eval(), known, asked)
    if name != "trail-0.1-no-reliability":  # which does not see its context
        assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_one_to_twenty_references_are_weighed() -> None:
    known, model = context_of(random_graph(3, entities=30, triples=40)), trail_of()
    draw = np.random.default_rng(0)
    pairs = ids([draw.permutation(28)[:20].tolist(), draw.permutation(28)[:20].tolist()]).T
    for shots in (*range(1, 8), 12, 20):
        flow(model, known, inputs_of(known, pairs[:shots], [0, 29, 4], [1, 5, 20, 28]))


@every_composition
def test_a_score_is_its_evidence_weighed(name: str) -> None:
    known, asked = example(3)
    model = trail_of(name)
    parts = [part(asked, known) for part in model.parts.values()]
    evidence = torch.cat(parts, -1)
    assert [part.shape[-1] for part in parts] == list(model.widths.values())
    assert torch.equal(model.evidence(asked, known), evidence)
    context = [0.0] * RELIABILITY if name == "trail-0.1-no-reliability" else asked.reliability.tolist()
    rows = evidence.flatten(0, 1).tolist()
    agree(model(asked, known), [weigh(model.weighing, row, context) for row in rows])


def test_all_kinds_are_scaled_by_episodes() -> None:
    episodes, model = [example(shots)[1] for shots in (2, 4)], trail_of()
    standards = [part for part in model.modules() if isinstance(part, Standardise)]
    assert [len(part.mean) for part in standards] == [4, 2, 3, 11, 8]
    for kind, standard in zip(KINDS, standards, strict=True):
        columns = torch.cat([episode.features[kind][0].flatten(0, -2) for episode in episodes])
        torch.testing.assert_close(standard.mean, columns.mean(0))
        torch.testing.assert_close(standard.deviation, columns.std(0) + 1e-3)
    assert {name for name in model.state_dict() if "mean" in name} == {f"parts.{kind}.standard.mean" for kind in KINDS}


def test_features_in_half_precision_give_nearly_the_same_scores() -> None:
    known, asked = example(5)
    model = trail_of()
    half = {
        kind: tuple(part.half() if part.is_floating_point() else part for part in parts)
        for kind, parts in asked.features.items()
    }
    scores = model(asked._replace(features=half), known)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, model(asked, known), rtol=0.05, atol=0.1)


class Nothing(Evidence):
    """Evidence that is not there."""

    kind, words = "nothing", "nothing"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    @classmethod
    def extract(cls, pairs: Pairs) -> Features:
        return ()

    def fit_scale(self, features: Sequence[Features]) -> None:
        pass

    def forward(self, inputs: ModelInputs, graph: GraphContext) -> Tensor:
        return torch.zeros(*inputs.shape, self.width)


@every_composition
def test_a_share_is_what_the_score_loses_without_that_evidence(name: str) -> None:
    known, asked = example(3)
    model = trail_of(name)
    scores, shares = model(asked, known), model.shares(asked, known)
    assert tuple(shares) == compositions()[name].kinds
    for kind, share in shares.items():
        without = trail_of(name)
        without.parts[kind] = Nothing(model.widths[kind])
        torch.testing.assert_close(share, scores - without(asked, known), rtol=1e-4, atol=1e-4)
        assert share.any()


# The scorer

KNOWN = context_of(random_graph(0, typed=True, entities=20, triples=50))
REFERENCES = np.array([[0, 4], [1, 7], [5, 4], [11, 19]], np.int32)  # 18 and 19 have no edges
HEADS, CANDIDATES = np.array([0, 3, 18, 6, 9], np.int32), np.array([2, 4, 7, 8, 12, 18, 19], np.int32)
PATHS = Literal([(h, r, t) for h, r, t in KNOWN.graph.triples().tolist()], len(KNOWN.graph.relations))


def ask(
    scorer: Trail01Scorer,
    references: np.ndarray = REFERENCES,
    heads: Sequence[int] | np.ndarray = HEADS,
    candidates: Sequence[int] | np.ndarray = CANDIDATES,
) -> Tensor:
    return scorer(Question("task", references, np.array(heads, np.int32), np.array(candidates, np.int32)))


@functools.cache
def asked_here() -> ModelInputs:
    return inputs_of(KNOWN, ids(REFERENCES.tolist()), HEADS.tolist(), CANDIDATES.tolist())


def near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@every_composition
def test_a_scorer_gives_the_models_scores(name: str) -> None:
    model = trail_of(name).train()
    scorer = Trail01Scorer(name, model, KNOWN)
    assert scorer.name == name and not model.training
    scores = ask(scorer)
    assert scores.shape == (5, 7) and scores.isfinite().all() and not scores.requires_grad
    near(scores, model(asked_here(), KNOWN).detach())


def test_candidates_may_come_in_any_order_and_more_than_once() -> None:
    scorer = Trail01Scorer("trail-0.1", trail_of(), KNOWN)
    scores = ask(scorer)
    order = [6, 0, 3, 3, 1, 6, 5, 2, 4, 0]
    near(ask(scorer, candidates=CANDIDATES[order]), scores[:, order])
    near(ask(scorer, candidates=CANDIDATES[[2]]), scores[:, [2]])


@every_composition
def test_scores_do_not_depend_on_what_else_is_asked(name: str) -> None:
    scorer = Trail01Scorer(name, trail_of(name), KNOWN)
    scores = ask(scorer)
    order = [4, 0, 4, 2, 3, 1]
    near(ask(scorer, heads=HEADS[order]), scores[order])
    for i in range(len(HEADS)):
        near(ask(scorer, heads=HEADS[[i]]), scores[[i]])
        near(ask(scorer, heads=HEADS[[i]], candidates=CANDIDATES[[i]]), scores[i : i + 1, i : i + 1])


def test_no_candidates_give_no_scores_and_inference_mode_gives_the_same() -> None:
    scorer = Trail01Scorer("trail-0.1", trail_of(), KNOWN)
    assert ask(scorer, candidates=[]).shape == (5, 0)
    whole = ask(scorer)
    with torch.inference_mode():
        near(ask(Trail01Scorer("trail-0.1", trail_of(), KNOWN)), whole)


@pytest.mark.parametrize("cells", [1, 15, 28])
def test_many_heads_are_scored_some_at_a_time(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Trail01Scorer("trail-0.1", trail_of(), KNOWN)
    whole = ask(scorer)
    monkeypatch.setattr(trail_scorer, "CELLS", cells)
    near(ask(scorer), whole)


def test_scores_do_not_depend_on_what_was_asked_before() -> None:
    model = trail_of()
    scorer = Trail01Scorer("trail-0.1", model, KNOWN)
    others = [REFERENCES[1:], REFERENCES[:, ::-1]]
    fresh = [ask(Trail01Scorer("trail-0.1", model, KNOWN), references) for references in (REFERENCES, *others)]
    for _ in range(2):
        for references, expected in zip((REFERENCES, *others), fresh, strict=True):
            assert torch.equal(ask(scorer, references), expected)
            assert torch.equal(ask(scorer, references), expected)
    assert len({tuple(scores.flatten().tolist()) for scores in fresh}) == len(fresh)


def test_several_tasks_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = []

    def counted(task: TaskContext, names: Sequence[str]) -> Tensor:
        tasks.append(task)
        return reliability(task, names)

    monkeypatch.setattr(trail_scorer, "reliability", counted)
    monkeypatch.setattr(trail_scorer, "MOST_TASKS", 2)
    scorer = Trail01Scorer("trail-0.1", trail_of(), KNOWN)
    for references in (REFERENCES, REFERENCES[1:], REFERENCES, REFERENCES[1:]):
        ask(scorer, references)
    assert len(tasks) == 2
    ask(scorer, REFERENCES[:, ::-1])  # in the place of the one that was used longest ago
    ask(scorer, REFERENCES[1:])
    assert len(tasks) == 3
    ask(scorer, REFERENCES)
    assert len(tasks) == 4


def test_candidates_of_other_relations_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trail_of()
    scorer = Trail01Scorer("trail-0.1", model, KNOWN)
    monkeypatch.setattr(trail_scorer, "MOST_CANDIDATES", 1)
    for references in (REFERENCES, REFERENCES[1:], REFERENCES):
        assert torch.equal(ask(scorer, references), ask(Trail01Scorer("trail-0.1", model, KNOWN), references))
        assert sum(each.candidates > 0 for each in scorer._tasks.values()) == 1


def test_new_weights_are_seen_at_once() -> None:
    model = trail_of()
    scorer = Trail01Scorer("trail-0.1", model, KNOWN)
    before = ask(scorer)
    model.load_state_dict(trail_of(seed=1).state_dict())
    after = ask(scorer)
    assert not torch.allclose(after, before)
    assert torch.equal(after, ask(Trail01Scorer("trail-0.1", model, KNOWN)))


@every_composition
@pytest.mark.parametrize("references", [[[18, 19]], [[0, 19], [18, 4]]], ids=["one", "two"])
def test_entities_without_edges_get_finite_scores(name: str, references: list[list[int]]) -> None:
    scorer = Trail01Scorer(name, trail_of(name), KNOWN)
    scores = ask(scorer, np.array(references, np.int32), [18, 19, 0], [18, 19, 1])
    assert scores.isfinite().all()
    assert math.isfinite(scorer.explain(np.array(references), 18, 19).score)


@every_composition
def test_parts_of_heads_and_candidates_say_what_all_of_them_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, heads, candidates = Trail01Scorer(name, trail_of(name), KNOWN), [0, 6, 18, 3, 3], list(range(20))
    whole = ask(scorer, REFERENCES, heads, candidates)
    pairs = np.array([[h, c] for h in heads for c in candidates])
    vectors = scorer.pair_vectors(REFERENCES, pairs)
    for cells in (1, 7, 20, 45):
        monkeypatch.setattr(trail_scorer, "CELLS", cells)
        parts = Trail01Scorer(name, trail_of(name), KNOWN)
        assert torch.allclose(ask(parts, REFERENCES, heads, candidates), whole, atol=1e-5)
        assert np.allclose(parts.pair_vectors(REFERENCES, pairs), vectors, atol=1e-5)


# Reasons


def joined(head: int, tail: int) -> set[tuple[int, ...]]:
    return {KNOWN.paths.relations_of(trail) for trail in KNOWN.paths.joining(ids([[head, tail]])).paths.tolist()}


@every_composition
@pytest.mark.parametrize("shots", [1, 4])
def test_reasons_belong_to_the_pair(name: str, shots: int) -> None:
    scorer, references = Trail01Scorer(name, trail_of(name), KNOWN), REFERENCES[:shots]
    heads, tails = [0, 6, 18], [4, 8, 18]
    scores = ask(scorer, references, heads, tails)
    ruled = set().union(*(joined(head, tail) for head, tail in references.tolist()))
    for (i, head), (j, tail) in itertools.product(enumerate(heads), enumerate(tails)):
        reasons = scorer.explain(references, head, tail, most=1000)
        assert reasons.score == pytest.approx(float(scores[i, j]), rel=1e-4, abs=1e-4)
        assert tuple(reasons.shares) == compositions()[name].kinds
        assert all(math.isfinite(share) for share in reasons.shares.values())
        if "matching" in reasons.shares:
            assert len(reasons.references) == shots and sum(reasons.references) == pytest.approx(1, abs=1e-5)
            assert min(reasons.references) >= 0
        else:
            assert not reasons.references
        trails = [trail for trail, _ in reasons.paths]
        assert len(set(trails)) == len(trails)
        assert set(trails) == (joined(head, tail) & ruled if "paths" in reasons.shares else set())
        worth = [lost for _, lost in reasons.paths]
        assert worth == sorted(worth, reverse=True)


def test_neighbours_are_edges_that_the_tail_shares_with_references_tails_rarest_first() -> None:
    scorer = Trail01Scorer("trail-0.1", trail_of(), KNOWN)
    tails, seen = {tail for _, tail in REFERENCES.tolist()}, 0
    for tail in range(20):
        shared = scorer.explain(REFERENCES, 3, tail, most=1000).neighbours
        own, theirs = ({(r, t) for h, r, t in PATHS.edges if h in heads} for heads in ({tail}, tails))
        assert {(relation, entity) for _, relation, entity, _ in shared} == own & theirs
        assert len(shared) == len(own & theirs)
        weights = [weight for *_, weight in shared]
        assert weights == sorted(weights, reverse=True)
        expected = [1 / PATHS.count[entity, PATHS.inverse(relation)] for _, relation, entity, _ in shared]
        assert weights == pytest.approx(expected)
        seen += tail not in tails and bool(shared)
    assert seen


def test_no_more_reasons_are_given_than_asked_for() -> None:
    scorer = Trail01Scorer("trail-0.1", trail_of(), KNOWN)
    everything = scorer.explain(REFERENCES, 0, 4, most=1000)
    assert len(everything.paths) > 5 and len(everything.neighbours) > 2
    for most in (0, 1, 2, 5):
        some = scorer.explain(REFERENCES, 0, 4, most=most)
        assert some.paths == everything.paths[:most] and some.neighbours == everything.neighbours[:most]
    assert len(scorer.explain(REFERENCES, 0, 4).paths) == 5


def test_where_nothing_but_weights_counts_shares_and_trails_add_up() -> None:
    model = trail_of()
    for parameter in (*model.weighing.network.parameters(), *model.weighing.gate.parameters()):
        parameter.data.zero_()
    scorer, part = Trail01Scorer("trail-0.1", model, KNOWN), model.parts["paths"]
    assert isinstance(part, PathEvidence)
    weights = model.weighing.weights.tolist()[:8]
    for head, tail in ((0, 4), (3, 8), (6, 12)):
        reasons = scorer.explain(REFERENCES, head, tail, most=1000)
        assert sum(reasons.shares.values()) == pytest.approx(reasons.score, abs=1e-3)
        asked = next(scorer.inputs(ids(REFERENCES.tolist()), ids([head]), ids([tail])))
        each = [
            sum(w * x for w, x in zip(weights, through(part.network, row), strict=True))
            for row in asked.features["paths"][3].tolist()
        ]
        assert [lost for _, lost in reasons.paths] == pytest.approx(sorted(each, reverse=True), abs=1e-3)
        near_columns = part(asked, KNOWN)[0, 0, 8:].tolist()
        rest = sum(w * x for w, x in zip(model.weighing.weights.tolist()[8:12], near_columns, strict=True))
        assert reasons.shares["paths"] == pytest.approx(sum(each) + rest, abs=1e-3)


def test_evidence_is_as_wide_as_it_says() -> None:
    known, asked = example()
    for part, width in zip(trail_of().evidence_parts().values(), trail_of().widths.values(), strict=True):
        assert part(asked, known).shape[-1] == part.width == width
