from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from fewlink.graph import Vocabulary
from fewlink.graph.name_index import NameIndex, lines_of, readable, write_index

ALPHABET = "abc AB_é\u0130ﬁΩ\n:-1"


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, True), (60, True), (60, False), (1 << 18 | 1, True)],  # the last ones are written in several parts
)
def test_a_stored_index_is_the_one_that_is_made_in_memory(count: int, words: bool, tmp_path: Path) -> None:
    chance = random.Random(count)
    names = ["".join(chance.choices(ALPHABET, k=chance.randrange(1, 16))) for _ in range(count)]
    vocabulary = Vocabulary.of([*(f"{name}{number}" for number, name in enumerate(names)), "another"])
    lines = lines_of(vocabulary, 0, len(names))
    made = NameIndex.of(readable(lines) if words else lines, words=words)
    write_index(vocabulary, len(names), tmp_path, "index", words=words)
    stored = NameIndex.open(tmp_path, "index")
    for array in NameIndex.ARRAYS:
        assert np.array_equal(getattr(stored, array), getattr(made, array))
    some = range(0, count, 1 + count // 60)
    assert [stored[name] for name in some] == [made[name] for name in some]


def test_misspelt_names_among_many_are_found_by_the_beginning_of_a_word() -> None:
    index = NameIndex.of("albert einstein\nalberta\nmarie curie\nmax planck\n", words=True)
    whole = index.similar("albert einstien", 2).tolist()
    assert index.similar("albert einstien", 2, most_bytes=0).tolist() == whole == [0, 1]
    assert index.similar("mraie curei", 3, most_bytes=0).tolist() == [2]
    assert index.similar("xyz", 3, most_bytes=0).tolist() == []


def test_parts_of_words_are_not_searched_in_too_much_text() -> None:
    index = NameIndex.of("albert\nrobert\n", words=True)
    assert index.containing("ber", 5) == [0, 1]
    assert index.containing("ber", 5, most_bytes=5) == []
