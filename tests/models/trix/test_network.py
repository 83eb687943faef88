"""TRIX's network equals its equations taken literally, gradients included; what entities and relations it sums over."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from tests.conftest import id_graph
from tests.models.trail.cases import ENTITIES, LONELY, TaskCase, error, gradients, random_graph
from tests.models.trix.literal import LiteralTrix
from tests.models.ultra.literal import edges_with
from tests.models.ultra.test_network import (
    drawn,
    example,
    literal_scores,
    ramp,
    scores_of,
    some_seeds,
    some_sizes,
    tasks_of,
)
from torch import Tensor

from fewlink.core.errors import InputError
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trix.ends import Bags, Ends
from fewlink.models.trix.family import FAMILY
from fewlink.models.trix.network import TrixNetwork, TrixShape
from fewlink.models.ultra.network import PublishedTasks

PUBLISHED = Path(os.environ.get("FEWLINK_TRIX") or "entity_prediction.pth")
SMALL = TrixShape(width=8, layers=2, first_layers=2, relation_layers=3)


def network_of(shape: TrixShape = SMALL, seed: int = 0) -> TrixNetwork:
    """A network with every parameter drawn anew."""
    return drawn(TrixNetwork(shape), seed)


@some_sizes
@some_seeds
def test_scores_and_gradients_are_those_of_the_equations(seed: int, relations: int) -> None:
    graph, cases, tasks = example(seed, relations)
    network = network_of(seed=seed)
    twin = LiteralTrix(dict(network.named_parameters()))
    expected = literal_scores(twin, graph, cases)
    scores = network(ReadGraph.of(graph), tasks)
    assert error(scores, expected) < 1e-5
    (scores * ramp(scores)).sum().backward()
    (expected * ramp(expected)).sum().backward()
    found = gradients(network)
    for name, parameter in twin.p.items():
        slope = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert error(found[name], slope) < 1e-4, name


@pytest.mark.skipif(not PUBLISHED.exists(), reason="FEWLINK_TRIX does not name the published weights")
def test_published_weights_give_the_scores_of_the_equations() -> None:
    graph, cases, tasks = example(0)
    network = FAMILY.read(PUBLISHED).network()
    assert network.shape == TrixShape() and sum(p.numel() for p in network.parameters()) == 87_138
    with torch.no_grad():
        scores = network(ReadGraph.of(graph), tasks)
        expected = literal_scores(LiteralTrix(dict(network.named_parameters())), graph, cases)
    assert error(scores, expected) < 1e-6


@some_seeds
@pytest.mark.parametrize(("asked", "labelled"), [(2, 2), (4, 1)])
def test_a_relation_of_the_graph_can_be_asked_too(seed: int, asked: int, labelled: int) -> None:
    """Ordinary link prediction: no new relation, no references."""
    graph, network, heads = random_graph(seed), network_of(seed=seed), [2, 5]
    read, twin = ReadGraph.of(graph), LiteralTrix(dict(network.named_parameters()))
    nothing = torch.zeros(1, 0, 2, dtype=torch.long), torch.zeros(1, 0), torch.ones(1, 6)
    tasks = PublishedTasks(*nothing, torch.tensor([heads]), torch.arange(ENTITIES)[None])
    with torch.no_grad():
        scores = network.scores(read, tasks, network.encode_relation(read, asked))[0]
        edges = edges_with(graph, [])
        expected = torch.stack([twin.scores(edges, ENTITIES, 6, asked, head, labelled) for head in heads])
    assert error(scores, expected) < 1e-5


def test_sums_over_ends_worked_out_by_hand() -> None:
    """0 –r→ 1 twice over different edges, 2 –r→ 1 and 1 –s→ 2; references (0, 2), (1, 2), and r hidden in a second
    task."""
    graph = id_graph([(0, 0, 1), (2, 0, 1), (1, 1, 2)], 4, 2)
    cases = [TaskCase([(0, 2), (1, 2)], [], [0], [0]), TaskCase([(0, 3)], [0, 2], [0], [0])]
    ends = Ends(ReadGraph.of(graph), tasks_of(cases, 2))
    assert ends.inverse.tolist() == [2, 3, 0, 1, 5, 4]
    z = 10.0 ** torch.arange(6).expand(2, -1)[..., None]  # r, s, r⁻¹, s⁻¹, the new relation, its inverse
    first, second = ends.at_entities(z).squeeze(-1).T.round().long().tolist()
    assert first == [100100, 101001, 10110, 0]  # 0: tail of r⁻¹ and new⁻¹; 1: of r, s⁻¹, new⁻¹; 2: of s, r⁻¹, new
    assert second == [100000, 1000, 10, 10000]
    x = 10.0 ** torch.arange(4)[:, None, None].expand(-1, 2, -1)
    first, second = ends.at_relations(x).squeeze(-1).round().long().tolist()
    assert first == [10, 100, 101, 10, 100, 11]  # 2 is the tail of two references and counts once
    assert second[4:] == [1000, 1]


@some_seeds
def test_scores_follow_entities_and_relations_that_get_other_numbers(seed: int) -> None:
    graph, cases, _ = example(seed)
    draw, network = np.random.default_rng([seed, 2]), network_of(seed=seed)
    to, kind = draw.permutation(ENTITIES), draw.permutation(3)
    moved = id_graph([(to[h], kind[r], to[t]) for h, r, t in graph.triples()], ENTITIES, 3)
    others = [
        TaskCase(
            [(int(to[a]), int(to[b])) for a, b in case.references],
            [int(kind[r % 3]) + r // 3 * 3 for r in case.hidden],
            to[list(case.heads)].tolist(),
            to[list(case.candidates)].tolist(),
        )
        for case in cases
    ]
    assert error(scores_of(network, moved, *others), scores_of(network, graph, *cases)) < 1e-5


@some_seeds
def test_padding_and_other_tasks_do_not_matter(seed: int) -> None:
    graph, cases, _ = example(seed)
    network = network_of(seed=seed)
    together: Tensor = scores_of(network, graph, *cases, size=8)
    for i, case in enumerate(cases):
        alone = scores_of(network, graph, case, size=len(case.references))
        assert error(together[i : i + 1], alone) < 1e-5


def test_a_hidden_relation_is_as_if_it_were_not_there() -> None:
    graph, (case, _), _ = example(1)
    network, hidden = network_of(), case.hidden[0]
    left = [(h, r, t) for h, r, t in graph.triples().tolist() if r != hidden]
    assert error(scores_of(network, id_graph(left, ENTITIES, 3), case), scores_of(network, graph, case)) < 1e-5


def test_an_entity_without_edges_is_scored() -> None:
    graph, _, _ = example(0)
    assert torch.isfinite(scores_of(network_of(), graph, TaskCase([(1, 2)], [], [LONELY], [LONELY, 2]))).all()


def test_weights_are_read_from_files_of_both_kinds_and_those_of_other_models_are_refused(tmp_path: Path) -> None:
    from tests.models.ultra.test_network import network_of as ultra_network

    weights = network_of().state_dict()
    torch.save({"model": weights, "optimizer": {}}, tmp_path / "a.pth")
    safetensors.torch.save_file(weights, tmp_path / "a.safetensors")
    for file in (tmp_path / "a.pth", tmp_path / "a.safetensors"):
        checkpoint = FAMILY.read(file)
        found = checkpoint.network().state_dict()
        assert checkpoint.shape == SMALL and all(torch.equal(found[name], weights[name]) for name in weights)
    torch.save(ultra_network().state_dict(), tmp_path / "ultra.pth")
    with pytest.raises(InputError, match=r"ultra\.pth.*TRIX"):
        FAMILY.read(tmp_path / "ultra.pth")


def test_long_bags_are_added_up() -> None:
    bags = Bags.of(torch.tensor([1, 0, 3] * 700).int(), torch.tensor([0, 0, 1, 2098, 2098, 2100]))
    rows = torch.tensor([[1.0, 2], [10, 20], [100, 200], [1000, 2000]])
    assert bags.sums(rows)[:, 0].tolist() == [0, 10, 699 * 1011, 0, 1001]
