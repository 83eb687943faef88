from __future__ import annotations

import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlink.core.errors import UnknownName
from fewlink.graph.vocabulary import Interner, Vocabulary

any_names = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True)


def test_ids_follow_the_order_of_first_appearance() -> None:
    interner = Interner()
    assert interner.ids([b"b", b"a", b"b", b"c"]).tolist() == [0, 1, 0, 2]
    assert list(Vocabulary.of(interner)) == ["b", "a", "c"]


def test_the_arrays_of_two_names() -> None:
    vocabulary = Vocabulary.of(["ab", "c"])
    assert vocabulary.text.tobytes() == b"abc"
    assert vocabulary.ends.tolist() == [2, 3]
    assert vocabulary.sums.tolist() == sorted([zlib.crc32(b"ab"), zlib.crc32(b"c")])


def test_names_with_the_same_checksum_have_different_ids() -> None:
    assert zlib.crc32(b"plumless") == zlib.crc32(b"buckeroo")
    vocabulary = Vocabulary.of(["plumless", "other", "buckeroo"])
    assert [vocabulary.find(n) for n in ("plumless", "other", "buckeroo")] == [0, 1, 2]
    assert Vocabulary.of(["plumless"]).find("buckeroo") is None


@pytest.mark.parametrize(("name", "checksum"), [("yZ7bCY", 0), ("kMAbB0", 2**32 - 1)])
def test_the_smallest_and_the_largest_checksum_are_found(name: str, checksum: int) -> None:
    assert zlib.crc32(name.encode()) == checksum
    assert Vocabulary.of(["x", name, "y"]).find(name) == 1
    assert Vocabulary.of(["x", "y"]).find(name) is None


@given(any_names, any_names)
def test_every_name_is_found_and_no_other(names: list[str], others: list[str]) -> None:
    vocabulary = Vocabulary.of(names)
    assert list(vocabulary) == [vocabulary[i] for i in range(len(vocabulary))] == names
    assert [vocabulary.find(n) for n in names] == list(range(len(names)))
    assert vocabulary.index() == {n: i for i, n in enumerate(names)}
    for other in others:
        assert (other in vocabulary) == (other in names)


@given(any_names)
def test_a_saved_vocabulary_opens_the_same(names: list[str]) -> None:
    vocabulary = Vocabulary.of(names)
    with tempfile.TemporaryDirectory() as place:
        vocabulary.save(Path(place), "some")
        opened = Vocabulary.open(Path(place), "some")
        assert opened == vocabulary
        assert list(opened) == names
        assert [opened.find(n) for n in names] == list(range(len(names)))


@given(any_names, st.data())
def test_taking_ids_renumbers_them_in_that_order(names: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.permutations(range(len(names))))[: len(names) // 2]
    assert list(Vocabulary.of(names).take(np.array(chosen, int))) == [names[i] for i in chosen]


def test_vocabularies_are_equal_if_their_names_are() -> None:
    assert Vocabulary.of(["a", "b"]) == Vocabulary.of([b"a", b"b"])
    assert Vocabulary.of(["a", "b"]) != Vocabulary.of(["b", "a"])
    assert Vocabulary.of(["ab"]) != Vocabulary.of(["a", "b"])


def test_an_unknown_name_suggests_the_nearest() -> None:
    vocabulary = Vocabulary.of(["norway", "sweden", "denmark"])
    assert vocabulary.id("sweden") == 1
    assert vocabulary.ids(["denmark", "norway"]).tolist() == [2, 0]
    with pytest.raises(UnknownName, match=r"entity 'norwya'.*'norway'"):
        vocabulary.id("norwya", "entity")
    with pytest.raises(UnknownName, match=r"'xyz'$"):
        vocabulary.id("xyz")


def test_a_name_that_is_not_text_is_not_found() -> None:
    assert Vocabulary.of(["a"]).find("\ud800") is None


@pytest.mark.parametrize("number", [-1, 2])
def test_an_id_out_of_range_is_an_error(number: int) -> None:
    with pytest.raises(IndexError, match=str(number)):
        Vocabulary.of(["a", "b"])[number]


def test_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    Vocabulary.of(["é", "b"]).save(tmp_path, "names")
    for text, ends in ((b"\xc3\xffb", [2, 3]), ("éb".encode(), [1, 3])):
        np.save(tmp_path / "names.text.npy", np.frombuffer(text, np.uint8))
        np.save(tmp_path / "names.ends.npy", np.array(ends))
        with pytest.raises(ValueError, match=r"decode|names"):
            Vocabulary.open(tmp_path, "names")
