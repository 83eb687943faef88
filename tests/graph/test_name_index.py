from __future__ import annotations

import random
from pathlib import Path

import pytest

from fewlink.graph import Vocabulary, name_index
from fewlink.graph.name_index import NameIndex, lines_of, readable, write_index

ALPHABET = "abc AB_é\u0130ﬁΩ\n:-1"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("words", [True, False])
def test_a_stored_index_is_the_one_that_is_made_in_memory(
    seed: int, words: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(name_index, "CHUNK_NAMES", chance.choice([1, 3, 1000]))
    monkeypatch.setattr(name_index, "CHUNK_BYTES", chance.choice([1, 5, 1000]))
    names = ["".join(chance.choices(ALPHABET, k=chance.randrange(1, 30))) for _ in range(chance.randrange(1, 60))]
    vocabulary = Vocabulary.of([*(f"{name}{number}" for number, name in enumerate(names)), "another"])
    lines = lines_of(vocabulary, 0, len(names))
    made = NameIndex.of(readable(lines) if words else lines, words=words)
    write_index(vocabulary, len(names), tmp_path, "index", words=words)
    stored = NameIndex.open(tmp_path, "index")
    for array in NameIndex.ARRAYS:
        assert getattr(stored, array).tolist() == getattr(made, array).tolist()
    assert [stored[name] for name in range(len(names))] == [made[name] for name in range(len(names))]


def test_misspelt_names_among_many_are_found_by_the_beginning_of_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    index = NameIndex.of("albert einstein\nalberta\nmarie curie\nmax planck\n", words=True)
    whole = index.similar("albert einstien", 2).tolist()
    monkeypatch.setattr(name_index, "SIMILAR_BYTES", 0)
    assert index.similar("albert einstien", 2).tolist() == whole == [0, 1]
    assert index.similar("mraie curei", 3).tolist() == [2]
    assert index.similar("xyz", 3).tolist() == []


def test_parts_of_words_are_not_searched_in_too_much_text(monkeypatch: pytest.MonkeyPatch) -> None:
    index = NameIndex.of("albert\nrobert\n", words=True)
    assert index.containing("ber", 5) == [0, 1]
    monkeypatch.setattr(name_index, "CONTAINING_BYTES", 0)
    assert index.containing("ber", 5) == []
