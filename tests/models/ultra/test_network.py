"""ULTRA's network equals its equations taken literally, gradients included; files of weights; what follows."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from tests.conftest import id_graph
from tests.models.trail.cases import ENTITIES, LONELY, TaskCase, error, gradients, random_cases, random_graph
from tests.models.ultra.literal import LiteralUltra, edges_with
from torch import Tensor

from fewlink.core.errors import InputError
from fewlink.graph import Graph
from fewlink.models.trail.features import ReadGraph
from fewlink.models.ultra.checkpoint import NetworkT
from fewlink.models.ultra.family import FAMILY
from fewlink.models.ultra.network import PublishedNetwork, PublishedTasks, UltraNetwork, UltraShape, shared_heads

PUBLISHED = Path(os.environ.get("FEWLINK_ULTRA") or Path(__file__).parents[3] / "shared" / "data" / "ultra")
SMALL = UltraShape(width=8, layers=3, relation_layers=2)
some_seeds = pytest.mark.parametrize("seed", range(3))
some_sizes = pytest.mark.parametrize("relations", [1, 3])
published = pytest.mark.skipif(not (PUBLISHED / "ultra_4g.pth").exists(), reason=f"{PUBLISHED} is not there")


def network_of(shape: UltraShape = SMALL, seed: int = 0) -> UltraNetwork:
    """A network with every parameter drawn anew."""
    return drawn(UltraNetwork(shape), seed)


def drawn(network: NetworkT, seed: int) -> NetworkT:
    draw = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.5
        parameter.data = torch.randn(parameter.shape, generator=draw) * scale
    return network


def literal_scores(twin: LiteralUltra, graph: Graph, cases: list[TaskCase]) -> Tensor:
    """Scores (L, Q, C) by loops."""
    half, found = len(graph.relations), []
    for case in cases:
        edges = edges_with(graph, case.references, [r for r in case.hidden if r < half])
        sizes = len(graph.entities), 2 * half + 2, 2 * half
        found.append(torch.stack([twin.scores(edges, *sizes, head)[list(case.candidates)] for head in case.heads]))
    return torch.stack(found)


def tasks_of(cases: Sequence[TaskCase], relations: int, size: int = 4) -> PublishedTasks:
    """Cases as one batch, references padded to `size`."""
    references = np.zeros((len(cases), size, 2), np.int64)
    weights, visible = np.zeros((len(cases), size), np.float32), np.ones((len(cases), 2 * relations), np.float32)
    for i, case in enumerate(cases):
        references[i, : len(case.references)] = case.references
        weights[i, : len(case.references)] = 1
        visible[i, list(case.hidden)] = 0
    columns = [torch.tensor([list(getattr(case, name)) for case in cases]) for name in ("heads", "candidates")]
    return PublishedTasks(*map(torch.from_numpy, (references, weights, visible)), *columns)


@functools.cache
def example(seed: int, relations: int = 3) -> tuple[Graph, list[TaskCase], PublishedTasks]:
    cases = random_cases(seed, relations)
    return random_graph(seed, relations), cases, tasks_of(cases, relations)


def ramp(scores: Tensor) -> Tensor:
    return torch.arange(1, scores.numel() + 1, dtype=scores.dtype).view_as(scores)


@some_sizes
@some_seeds
def test_scores_and_gradients_are_those_of_the_equations(seed: int, relations: int) -> None:
    graph, cases, tasks = example(seed, relations)
    network = network_of(seed=seed)
    twin = LiteralUltra(dict(network.named_parameters()))
    expected = literal_scores(twin, graph, cases)
    scores = network(ReadGraph.of(graph), tasks)
    assert error(scores, expected) < 1e-5
    (scores * ramp(scores)).sum().backward()
    (expected * ramp(expected)).sum().backward()
    found = gradients(network)
    for name, parameter in twin.p.items():
        slope = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert error(found[name], slope) < 1e-4, name


@published
@pytest.mark.parametrize("name", ["ultra_3g", "ultra_4g", "ultra_50g"])
def test_published_weights_give_the_scores_of_the_equations(name: str) -> None:
    graph, cases, tasks = example(0)
    network = FAMILY.read(PUBLISHED / f"{name}.pth").network()
    assert network.shape == UltraShape() and sum(p.numel() for p in network.parameters()) == 168_705
    with torch.no_grad():
        scores = network(ReadGraph.of(graph), tasks)
        expected = literal_scores(LiteralUltra(dict(network.named_parameters())), graph, cases)
    assert error(scores, expected) < 1e-6


@some_seeds
@pytest.mark.parametrize(("asked", "labelled"), [(2, 2), (4, 1)])
def test_a_relation_of_the_graph_can_be_asked_too(seed: int, asked: int, labelled: int) -> None:
    """Ordinary link prediction: no new relation, no references."""
    graph, network, head = random_graph(seed), network_of(seed=seed), 2
    read = ReadGraph.of(graph)
    tasks = PublishedTasks(
        torch.zeros(1, 0, 2, dtype=torch.long),
        torch.zeros(1, 0),
        torch.ones(1, 6),
        torch.tensor([[head]]),
        torch.arange(ENTITIES)[None],
    )
    with torch.no_grad():
        scores = network.scores(read, tasks, network.encode_relation(read, asked))[0, 0]
        twin = LiteralUltra(dict(network.named_parameters()))
        expected = twin.scores(edges_with(graph, []), ENTITIES, 6, asked, head, labelled)
    assert error(scores, expected) < 1e-5


def test_relations_that_share_heads_worked_out_by_hand() -> None:
    """0 –r→ 1 and 1 –s→ 2 with the reference (0, 2), and r hidden in a second task."""
    graph = id_graph([(0, 0, 1), (1, 1, 2)], 4, 2)
    cases = [TaskCase([(0, 2)], [], [0], [0]), TaskCase([(0, 2), (2, 3)], [0, 2], [0], [0])]
    first, second = shared_heads(ReadGraph.of(graph), tasks_of(cases, 2)).tolist()
    r, s, r_inverse, s_inverse, new, new_inverse = range(6)
    found = {(i, j) for i in range(6) for j in range(6) if first[i][j]}
    assert found == {
        *((i, i) for i in range(6)),
        *{(r, new), (new, r)},  # at entity 0
        *{(s, r_inverse), (r_inverse, s)},  # at 1
        *{(s_inverse, new_inverse), (new_inverse, s_inverse)},  # at 2
    }
    found = {(i, j) for i in range(6) for j in range(6) if second[i][j]}
    assert {r, r_inverse}.isdisjoint(i for pair in found for i in pair)
    assert {(new, new_inverse), (new_inverse, new), (new, s_inverse), (s, s)} <= found and (s, new) not in found


def scores_of(network: PublishedNetwork, graph: Graph, *cases: TaskCase, size: int = 4) -> Tensor:
    with torch.no_grad():
        return network(ReadGraph.of(graph), tasks_of(cases, len(graph.relations), size))


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
    together = scores_of(network, graph, *cases, size=8)
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


# Files of weights


def saved(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


def test_weights_are_read_from_files_of_both_kinds(tmp_path: Path) -> None:
    network = network_of()
    weights = network.state_dict()
    plain = saved(tmp_path / "ultra_a.pth", weights)
    beside = saved(tmp_path / "ultra_b.pth", {"model": weights, "optimizer": {"state": {}, "param_groups": []}})
    safe = tmp_path / "ultra.safetensors"
    safetensors.torch.save_file(weights, safe)
    for file in (plain, beside, safe):
        checkpoint = FAMILY.read(file)
        assert checkpoint.shape == SMALL and checkpoint.facts["file"] == file.name
        assert len(checkpoint.facts["sha256"]) == 64
        found = checkpoint.network().state_dict()
        assert all(torch.equal(found[name], weights[name]) for name in weights)


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("made-by-a-file-of-weights",)


def test_other_files_give_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights = dict(network_of().state_dict())
    (tmp_path / "text.pth").write_text("no weights at all")
    (tmp_path / "empty.pth").write_bytes(b"")
    files = [tmp_path / "absent.pth", tmp_path, tmp_path / "text.pth", tmp_path / "empty.pth"]
    for file in (*files, saved(tmp_path / "evil.pth", {"model": Evil()})):
        with pytest.raises(InputError) as error:
            FAMILY.read(file)
        assert error.value.path == file
    assert not (tmp_path / "made-by-a-file-of-weights").exists()
    name = "entity_model.mlp.0.weight"
    cases = [{}, [1, 2], {"a": torch.ones(3)}, {**weights, name: torch.ones(2, 2)}, {**weights, "more": torch.ones(1)}]
    cases.append({other: value for other, value in weights.items() if other != name})
    for content in cases:
        with pytest.raises(InputError, match=r"other\.pth.*ULTRA"):
            FAMILY.read(saved(tmp_path / "other.pth", content))
