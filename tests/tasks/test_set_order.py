"""The order of Python 2's sets, against what Python 2.7 prints and a literal table."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import graph_of, id_graph

from fewlink.tasks.set_order import WORD, in_set_order, name_hash, set_order


def literal_order(hashes: list[int]) -> list[int]:
    """`set_add_key` and `set_table_resize` of Python 2.7, slot by slot."""
    mask, table = 7, dict[int, int]()

    def insert(number: int) -> None:
        i = hashes[number] & mask
        full, perturb = i, hashes[number]
        while full & mask in table:
            i = ((i << 2) + i + perturb + 1) % 2**64
            full, perturb = i, perturb >> 5
        table[full & mask] = number

    for number in range(len(hashes)):
        insert(number)
        if len(table) * 3 >= (mask + 1) * 2:
            wanted = len(table) * (2 if len(table) > 50000 else 4)
            members = [table[slot] for slot in sorted(table)]
            mask, table = 7, {}
            while mask + 1 <= wanted:
                mask = 2 * mask + 1
            for member in members:
                insert(member)
    return [table[slot] for slot in sorted(table)]


def listed(*names: str) -> list[str]:
    """The names as Python 2 lists a set of them."""
    graph = graph_of(*(f"{name} is {name}" for name in names))
    return [graph.entities[i] for i in in_set_order(graph, graph.entities.ids(list(names)))]


def test_the_order_is_what_python_2_prints() -> None:
    assert listed(*"abc") == ["a", "c", "b"]
    assert listed(*dict.fromkeys("abracadabra")) == ["a", "r", "b", "c", "d"]
    assert listed("apple", "orange", "pear", "banana") == ["orange", "pear", "apple", "banana"]


def test_the_hash_of_a_letter_is_python_2s() -> None:
    assert name_hash("a") == 12416037344


@given(st.lists(st.integers(0, WORD) | st.integers(0, 40).map(lambda x: x << 20), max_size=400))
def test_the_order_equals_that_of_a_literal_table(hashes: list[int]) -> None:
    assert set_order(hashes) == literal_order(hashes)


def test_relations_with_large_tables_of_one_size_have_the_same_first_entities() -> None:
    """Why the lists of the authors' program overlap: the order depends on names alone."""
    graph = id_graph([(0, 0, 1)], entities=5000)
    many, fewer = (in_set_order(graph, np.arange(n))[:1000].tolist() for n in (5000, 4500))
    assert len({*many} & {*fewer}) > 800
