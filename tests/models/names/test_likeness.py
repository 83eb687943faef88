"""Likeness of names: equality with a literal twin, memory, names that say nothing, and vectors of a text model."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.names.cases import NAMES, graph_of
from tests.models.names.literal import Likeness, grams, words

from fewlink.core.errors import InputError, MissingExtra
from fewlink.graph import Graph, Vocabulary
from fewlink.models.names import likeness
from fewlink.models.names.likeness import GramIndex, TextVectors, folded, gram_index, names_of, open_text_model


def index_of(names: Sequence[str], most: int = 1_000) -> GramIndex:
    return GramIndex(len(names), names.__getitem__, most)


def graph_with(ids: Sequence[str], labels: Sequence[str] | None = None) -> Graph:
    triples = np.array([(i, 0, (i + 1) % len(ids)) for i in range(len(ids))])
    named = Vocabulary.of([*labels, "r"]) if labels else None
    return Graph.of(Vocabulary.of(ids), Vocabulary.of(["r"]), triples, labels=named)


def test_words_are_folded() -> None:
    assert folded("Café-Répété: no_1!\n  ÅNGSTRÖM  \n\n東京") == "cafe repete no 1\nangstrom\n\n東京"
    assert words("Café-Répété: no_1!") == ["cafe", "repete", "no", "1"]


def test_a_product_by_hand() -> None:
    index = index_of(["ab", "ab cd", "xy"])
    rare, shared = np.log(4 / 2), np.log(4 / 3)  # of n-grams of one name and of two
    vector = index.vector("ab")  # " ab", "ab " and " ab "
    assert len(vector.buckets) == 3 and vector.length == pytest.approx(np.sqrt(3) * shared)
    expected = [1, np.sqrt(3) * shared / np.sqrt(3 * shared**2 + 3 * rare**2), 0]
    assert index.likeness(vector) == pytest.approx(expected, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("ab cdé-1_\n", max_size=12), min_size=1, max_size=8))
def test_likeness_equals_the_literal_twin(names: list[str]) -> None:
    index, twin = index_of(names), Likeness(names)
    for a, name in enumerate(names):
        expected = [twin.like(a, b) for b in range(len(names))]
        assert index.likeness(index.vector(name)) == pytest.approx(expected, abs=1e-5)


def test_hashes_of_real_names_do_not_collide() -> None:
    every = set().union(*map(grams, NAMES))
    assert len(np.unique(likeness.gram_keys([" ".join(NAMES)]))) == len(every)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = index_of(NAMES)
    monkeypatch.setattr(likeness, "CHUNK", 5)
    parts = index_of(NAMES)
    for array in ("offsets", "members", "rarity", "lengths"):
        assert np.array_equal(getattr(parts, array), getattr(whole, array)), array


def test_threads_that_cover_names_at_the_same_time_lose_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "LARGE", 5)
    index, offsets_of = index_of(NAMES), likeness.offsets_of
    began, other_is_done, first = threading.Event(), threading.Event(), iter([True])

    def slow(rows: np.ndarray, count: int) -> np.ndarray:
        if next(first, False):
            began.set()
            other_is_done.wait(0.3)  # it waits for this thread instead
        return offsets_of(rows, count)

    def cover_others() -> None:
        index.cover(np.arange(3, 6))
        other_is_done.set()

    monkeypatch.setattr(likeness, "offsets_of", slow)
    threads = [threading.Thread(target=index.cover, args=(np.arange(3),)), threading.Thread(target=cover_others)]
    threads[0].start()
    began.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join()
    alone = index_of(NAMES)
    alone.cover(np.arange(6))
    copied = copy.deepcopy(index)
    for each in (index, copied):
        assert np.flatnonzero(each.covered).tolist() == [0, 1, 2, 3, 4, 5]
        assert np.array_equal(np.sort(each.members), np.sort(alone.members))
        assert np.array_equal(each.likeness(each.vector(NAMES[4])), alone.likeness(alone.vector(NAMES[4])))
    copied.cover(np.arange(8))
    assert copied.number == 8


def test_only_the_rarest_grams_count_so_that_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(NAMES, 8)
    rarest = sorted(grams(NAMES[14]), key=lambda gram: sum(gram in grams(name) for name in NAMES))[:8]
    vector = index.vector(NAMES[14])
    assert len(vector.buckets) == 8 and len(index.members) == sum(min(8, len(grams(name))) for name in NAMES)
    shares = sorted(np.log((1 + len(NAMES)) / (1 + sum(gram in grams(n) for n in NAMES))) for gram in rarest)
    assert sorted(vector.weights.tolist()) == pytest.approx(shares)
    monkeypatch.setattr(likeness, "MAX_ENTRIES", 3 * len(NAMES))
    small = index_of(NAMES)
    assert len(small.members) <= 3 * len(NAMES)
    assert small.nbytes <= 16 * 2**20 + 4 * 3 * len(NAMES) + 4 * len(NAMES)


@pytest.mark.parametrize(
    "ids",
    [
        [f"Q{number}" for number in range(40)],
        [f"/m/0{number}bcd_x" for number in range(40)],
        [f"http://www.wikidata.org/entity/Q{number}" for number in range(40)],
        [f"ENSG{number:011}" for number in range(40)],
        [f"CWE-{number}" for number in range(40)],
        [f"concept:city:{number}" for number in range(40)],
        ["Phishing", *(str(number) for number in range(40))],
    ],
)
def test_ids_that_say_nothing_are_no_names(ids: list[str]) -> None:
    assert names_of(graph_with(ids)) is None and gram_index(graph_with(ids)) is None


def test_names_are_found_in_labels_and_in_ids() -> None:
    assert gram_index(graph_of(labels=False)) is None
    index = gram_index(graph_of())
    assert index is not None and index.name(14) == "Detection of Phishing"
    words_as_ids = names_of(graph_with(["plant_part", "cell", "tissue", "gene"]))
    assert words_as_ids is not None and words_as_ids(0) == "plant part"
    japanese = names_of(graph_with([f"Q{i}" for i in range(4)], ["東京", "大阪", "京都", "名古屋"]))
    assert japanese is not None


def test_a_kind_before_a_colon_is_left_out() -> None:
    ids = ["concept:athlete:tiger_woods", "concept:city:paris", "concept:city:rome"]
    name = names_of(graph_with(ids))
    assert name is not None and [name(i) for i in range(3)] == ["tiger woods", "paris", "rome"]
    name = names_of(graph_with(["a", "b", "c"], ["person : paavo nurmi", "city : turku", "city : oulu"]))
    assert name is not None and name(0).strip() == "paavo nurmi"
    name = names_of(graph_with(["a", "b", "c"], ["Alien: Covenant", "Gravity", "Arrival"]))
    assert name is not None and name(0) == "Alien: Covenant"


class FakeModel:
    """Vectors of letter counts, with the interface of both packages."""

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        return np.array([[text.lower().count(letter) for letter in "abcdefghij"] for text in sentences], np.float32)

    @classmethod
    def from_pretrained(cls, path: str) -> FakeModel:
        return cls()


def test_vectors_of_a_text_model(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["abc", "cba", "def", "ghi", ""]
    monkeypatch.setattr(likeness, "AT_ONCE", 2)
    vectors = TextVectors.of(FakeModel(), 5, texts.__getitem__)
    assert vectors.likeness(0) == pytest.approx([1, 1, 0, 0, 0], abs=1e-4)
    monkeypatch.setattr(vectors, "usual", 0.5)
    assert TextVectors.likeness(vectors, 0) == pytest.approx([1, 1, 0, 0, 0], abs=1e-4)
    usual = TextVectors(np.array([[1, 0.1], [1, 0.2], [1, 0.3], [1, 0.25]], np.float32))
    assert usual.usual > 0.9 and usual.likeness(0)[0] == pytest.approx(1, abs=1e-4)


def test_opening_a_text_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        open_text_model(tmp_path / "none")
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(MissingExtra, match=r"a model2vec model, needs the extra 'text': pip install 'fewlink\[text\]'"):
        open_text_model(tmp_path)
    module = ModuleType("model2vec")
    module.StaticModel = FakeModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "model2vec", module)
    assert isinstance(open_text_model(tmp_path), FakeModel)
    (tmp_path / "modules.json").write_text("[]")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match="a sentence-transformers model"):
        open_text_model(tmp_path)


def test_rarity_of_a_large_graph_is_estimated_from_some_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"common {'odd' if number % 10 == 3 else 'even'}" for number in range(100)]
    whole = index_of(names)
    monkeypatch.setattr(likeness, "LARGE", 10)
    monkeypatch.setattr(likeness, "SAMPLED_NAMES", 33)  # every third name
    some = index_of(names)
    assert some.number == 0 and whole.number == 100
    assert np.abs(some.vector("common").weights).max() < 0.03  # n-grams of all names say nothing
    assert whole.vector("odd").weights == pytest.approx(np.log(101 / 11))
    assert some.vector("odd").weights == pytest.approx(np.log(101 / 11), rel=0.1)
