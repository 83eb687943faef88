"""The columns and what references say, beside a literal twin; numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.models.names.cases import NAMES, REFERENCES, THREATS, graph_of
from tests.models.names.literal import Likeness

from fewlink.core.errors import InputError
from fewlink.data.candidates import likely_tails
from fewlink.models.names.columns import COLUMNS, NameColumns, ReferenceNames, above_chance
from fewlink.models.names.gate import Gate, read_gate, shipped_gate
from fewlink.models.names.likeness import GramIndex, TextVectors

SHARED_TAIL = np.array([[14, 0], [15, 0], [15, 3], [20, 28]], np.int32)


def columns_of() -> NameColumns:
    return NameColumns(GramIndex(len(NAMES), NAMES.__getitem__, 1_000), graph_of())


def test_a_rank_above_chance_by_hand() -> None:
    assert above_chance(np.array([0.1, 0.2]), 0.9) == 1.0
    mean = np.mean(1 / np.arange(1, 41))
    second = (0.5 - mean) / (1 - mean)
    assert above_chance(np.append(np.zeros(38), 0.95), 0.9) == pytest.approx(second, abs=1e-4)
    assert above_chance(np.array([1.0] * 50), 0.9) == 0.0
    assert above_chance(np.zeros(40), 0.0) == 0.0, "names that share nothing are tied"
    assert above_chance(np.zeros(0), 1.0) == 0.0, "a tail without rivals says nothing"


@pytest.mark.parametrize("references", [REFERENCES, REFERENCES[:1], SHARED_TAIL])
def test_columns_and_gates_equal_the_literal_twin(references: np.ndarray) -> None:
    names, twin = columns_of(), Likeness(NAMES)
    pairs, peers = [tuple(pair) for pair in references.tolist()], likely_tails(names.graph, references[:, 1]).tolist()
    said = names.references(references)
    assert (said.by_head, said.by_tails) == pytest.approx(twin.gates(pairs, peers), abs=1e-6)
    candidates = np.arange(len(NAMES))
    for head in (14, 19, 3):
        expected = np.array([twin.columns(pairs, head, tail) for tail in candidates])
        if said.like_tail is None:
            expected[:, -1] = 0
        assert names.of(said, head, candidates) == pytest.approx(expected, abs=1e-5)


def test_tails_that_are_named_like_their_heads_are_found() -> None:
    names = columns_of()
    said = names.references(REFERENCES)
    mixed = names.references(np.array([[14, 5], [18, 7], [23, 1]], np.int32))
    assert said.by_head > 0.06 > 0.01 > mixed.by_head  # of 14 peers, three quarters of 14 / 114 at most
    columns = names.of(said, 20, np.arange(len(THREATS)))
    assert columns[:, COLUMNS.index("like head")].argmax() == 6
    assert columns[6, COLUMNS.index("in head")] == pytest.approx(1)


def test_the_last_reference_alone_says_nothing_of_tails() -> None:
    said = columns_of().references(REFERENCES[:1])
    assert said.by_tails == 0 and said.like_tail is None


def test_a_text_model_counts_beside_n_grams() -> None:
    names = columns_of()
    vectors = np.eye(len(NAMES), dtype=np.float32)
    vectors[28] = vectors[14]  # the model finds Windows and a detection alike, whose names share nothing
    with_text = NameColumns(names.index, names.graph, TextVectors(vectors))
    said = with_text.references(REFERENCES)
    plain, both = (each.of(said, 14, np.array([0, 28])) for each in (names, with_text))
    assert plain[:, 0] == pytest.approx([both[0, 0], 0]) and both[1, 0] == pytest.approx(1, abs=1e-3)


def test_weights_depend_on_what_references_say() -> None:
    gate = Gate(np.array([1.0, 2.0, 3.0, 4.0]))
    assert gate.column_weights(ReferenceNames(0.0, 0.0, None)).tolist() == [0, 0, 0, 0]
    expected = [0.125, 0.25, 0.375, 4 * 0.5**1.5]  # the power that the shipped weights were learnt with
    assert gate.column_weights(ReferenceNames(0.25, 0.5, None)) == pytest.approx(expected)


def test_the_shipped_gate() -> None:
    gate = shipped_gate()
    assert (gate.weights >= 0).all() and gate.weights.shape == (len(COLUMNS),)
    assert "detection_detects_technique" in gate.facts["left_out"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "fewlink-names/1", "weights": {}}'])
def test_a_damaged_gate_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"gate\.json: is damaged"):
        read_gate(text, "gate.json")


def test_a_gate_of_another_format_is_refused() -> None:
    with pytest.raises(InputError, match="has format 'fewlink-names/9'"):
        read_gate('{"format": "fewlink-names/9"}', "gate.json")
