"""Numbers, dates and truth values as tails."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import compiled, named

from fewlink.core.errors import FewlinkError
from fewlink.graph.literals import MIN_SHARE, MIN_TRIPLES, is_literal

NAMES = ["ann", "bob", "7", "1.5", "2001-02-03", "yes", "oslo", "007"]


@pytest.mark.parametrize(
    "name",
    [
        "5",
        "-3.2",
        "+4",
        "1,234",
        "1.234,5",
        "1e5",
        "12%",
        "0",
        "0.5",
        "2020-01-02",
        "2020-01",
        "2020-01-02T03:04:05Z",
        "12/03/2020",
        "3.4.99",
        "2020/1/2",
        "12:30",
        "yes",
        "No",
        "TRUE",
        "false",
        '"a"@en',
        '"3"^^<x:int>',
    ],
)
def test_numbers_dates_times_truth_values_and_rdf_literals_are_literals(name: str) -> None:
    assert is_literal(name)


@pytest.mark.parametrize("name", ["Q5", "00123", "1.2.3", "5 km", "no way", "", "NO2", "1-2", "12/03", "-", '"a"', "٣"])
def test_ids_versions_quantities_and_words_are_no_literals(name: str) -> None:
    assert not is_literal(name)


def slow_literal_triples(triples: list[tuple[int, int, int]]) -> list[bool]:
    """The rule, relation by relation."""
    found = [False] * len(triples)
    heads = {head for head, _, _ in triples}
    for relation in {relation for _, relation, _ in triples}:
        rows = [number for number, triple in enumerate(triples) if triple[1] == relation]
        literal = [number for number in rows if is_literal(NAMES[triples[number][2]])]
        if (
            len(rows) >= MIN_TRIPLES
            and len(literal) / len(rows) >= MIN_SHARE
            and not any(is_literal(NAMES[triples[number][0]]) for number in rows)
            and not any(triples[number][2] in heads for number in literal)
            and {rows[0], rows[-1]} & {*literal}
        ):
            for number in literal:
                found[number] = True
    return found


ids = st.integers(0, len(NAMES) - 1)
likely = st.sampled_from([0, 1, 6])  # heads that are no literals
triples = st.lists(st.tuples(likely | ids, st.integers(0, 2), st.sampled_from([2, 3, 4, 5]) | ids), max_size=30)


@settings(max_examples=15)
@given(triples)
def test_triples_with_literals_are_left_out_by_the_rule(triples: list[tuple[int, int, int]]) -> None:
    names = [(NAMES[head], f"r{relation}", NAMES[tail]) for head, relation, tail in triples]
    kept = [name for name, left_out in zip(names, slow_literal_triples(triples), strict=True) if not left_out]
    text = "".join("\t".join(name) + "\n" for name in names).encode()
    try:
        graph, report = compiled(b"head\trelation\ttail\n" + text)
    except FewlinkError:
        assert not kept
        return
    assert named(graph) == list(dict.fromkeys(kept))
    assert report.literals == len(names) - len(kept)
    in_order = dict.fromkeys(end for head, _, tail in names for end in (head, tail))
    assert list(graph.entities) == [name for name in in_order if name in {end for h, _, t in kept for end in (h, t)}]


def test_one_entity_among_twenty_literals_stays() -> None:
    rows = [("ann", "r", "oslo"), *(("ann", "r", str(number)) for number in range(20))]
    graph, report = compiled("".join("\t".join(row) + "\n" for row in rows).encode())
    assert named(graph) == rows[:1]
    assert report.literals == 20
