"""Names as input: n-grams against a literal count, the encoder by hand and by its equation, and the user's own file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import graph_of
from tests.models.fsrl.oracle import (
    ask,
    assert_same,
    close,
    encoded,
    parameters_of,
    random_surroundings,
    scored,
    surroundings_of,
)
from tests.training.runs import quick as quick
from tests.training.runs import small, umls, vectors

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.seeds import scramble
from fewlink.models.fsrl.assembly import inputs_of, names_width
from fewlink.models.fsrl.compositions import build
from fewlink.models.fsrl.encoder import NamedNeighbours
from fewlink.models.fsrl.exact import encode_all
from fewlink.models.fsrl.names import ngram_vectors
from fewlink.models.run import open_run
from fewlink.training.trainer import train_run


def literal(name: str, numbers: int) -> np.ndarray:
    """The signed count of every 3-, 4- and 5-gram, one after another."""
    data, counts = b"\x02" + name.lower().encode() + b"\x03", np.zeros(numbers)
    for size in (3, 4, 5):
        for begin in range(len(data) - size + 1):
            key = int.from_bytes(data[begin : begin + size], "big")
            bits = int(scramble(np.array([key], np.uint64), seed=size)[0])
            counts[bits % numbers] += 1 if bits >> 63 else -1
    return counts / math.sqrt(np.square(counts).mean())


def test_ngrams_equal_a_literal_count() -> None:
    graph = graph_of("Oslo in Norway", "é in Tiger_Woods", "a in b")
    found = ngram_vectors(graph, 16)
    for entity in range(len(graph.entities)):
        np.testing.assert_allclose(found[entity], literal(graph.name(entity), 16), rtol=1e-5)


def test_similar_names_have_similar_vectors() -> None:
    graph = graph_of("New_York in new_york_city", "Oslo in Bergen")
    york, city, oslo, _ = ngram_vectors(graph, 128) / math.sqrt(128)
    assert york @ city > 0.5 > 0.3 > abs(york @ oslo)


def test_the_encoder_by_hand() -> None:
    # d = 1, one number a name. Entity 0: e 1, n 2; entity 1: e 3, n 4, whose only neighbour is entity 0. P ½, Q 2, c 1.
    s = surroundings_of(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2, 1), [[], [(0, 0)]])
    encoder = NamedNeighbours(1, names=1)
    with torch.no_grad():
        encoder.attention.name.weight.fill_(0.5)
        encoder.own.weight.fill_(2.0)
        encoder.own.bias.fill_(1.0)
        found = encoder(torch.tensor([0, 1]), s)
    close(found, [[math.tanh(1 + 0.5 * 2), math.tanh(2 * 2 + 1)], [math.tanh(1 + 0.5 * 2), math.tanh(2 * 4 + 1)]], 1e-6)


@pytest.mark.parametrize("slots", [1, 4])
def test_the_encoder_is_its_equation(slots: int) -> None:
    s = random_surroundings(3, 3, slots, names=2)
    encoder = parameters_of(NamedNeighbours(3, names=2), 5)
    leaves = [*encoder.parameters(), s.entities.requires_grad_(), s.relations.requires_grad_()]
    ids = torch.arange(7)
    assert_same([encoder(ids, s)], [encoded(encoder, ids, s)], leaves)
    alpha = encoder.weights(ids, s)
    close(alpha.sum(-1).detach(), [0.0, *[float(bool(n)) for n in s.neighbours.counts(ids)[1:]]])
    close(encode_all(encoder, s).detach(), encoder(ids, s).detach())


def test_the_model_is_the_reference() -> None:
    s = random_surroundings(2, 3, 4, names=2)
    model = parameters_of(build("fsrl-text", 3, names=2), 1)
    leaves = [*model.parameters(), s.entities.requires_grad_(), s.relations.requires_grad_()]
    references, queries = torch.tensor([[[0, 1], [2, 3], [4, 5]]]), torch.tensor([[[0, 6], [1, 2], [5, 5]]])
    assert_same(ask(model, references, queries, s), scored("fsrl-text", model, references, queries, s), leaves)


def test_a_run_reads_names_and_opens(tmp_path: Path) -> None:
    settings = small(model="fsrl-text", name_numbers=8)
    result = train_run(umls(), vectors(), settings, tmp_path / "run")
    scorer = open_run(tmp_path / "run", umls())
    assert result.step == 6 and scorer.name == "fsrl-text"
    around = inputs_of(umls().graph, vectors(), settings)
    assert around.dim == 8 and around.entities.shape == (123, 16)
    assert torch.equal(around.entities[:, 8:], torch.from_numpy(ngram_vectors(umls().graph, 8)))


def test_the_users_vectors(tmp_path: Path) -> None:
    file = tmp_path / "names.npy"
    own = np.random.default_rng(0).normal(size=(123, 5)).astype(np.float16)
    np.save(file, own)
    settings = small(model="fsrl-text", name_vectors=str(file))
    assert names_width(settings) == 5 and names_width(small()) == 0
    assert torch.equal(inputs_of(umls().graph, vectors(), settings).entities[:, 8:], torch.from_numpy(own).float())
    np.save(file, own[:100])
    with pytest.raises(InputError, match="123 entities"):
        inputs_of(umls().graph, vectors(), settings)
    np.save(file, np.arange(5))
    with pytest.raises(InputError, match="table of numbers"):
        names_width(settings)
    with pytest.raises(FewlinkError, match=r"missing\.npy"):
        names_width(small(model="fsrl-text", name_vectors=str(tmp_path / "missing.npy")))
