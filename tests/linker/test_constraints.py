"""Constraints: what is read off known pairs, what a user gives, and the tails and pairs that they rule out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import benchmark_of, graph_of

from fewlink.core.errors import FewlinkError, UnknownName
from fewlink.graph import Graph, TypeTable
from fewlink.linker import Linker
from fewlink.linker.query import References, find_relation
from fewlink.linker.ranking import Constraints
from fewlink.models.contract import Question

PEOPLE = ["ann", "bob", "cy", "dan"]
PAIRS = [("ann", "oslo"), ("bob", "rome")]


class ByTail:
    """The score of a tail is its number, and a little more for later heads: all heads agree on the best tail."""

    name = "by-tail"

    def __call__(self, question: Question) -> torch.Tensor:
        heads, tails = (torch.from_numpy(ids.astype(np.float32)) for ids in (question.heads, question.candidates))
        return tails + heads[:, None] / 100


def linker(*more: str, types: bool = False) -> Linker:
    """ann, bob, cy and dan; oslo, rome, bonn and kiel, each in a land; whoever is married, is so both ways."""
    rows = (
        *(f"{name} is person" for name in PEOPLE),
        "oslo in norway",
        "rome in italy",
        "bonn in germany",
        "kiel in germany",
    )
    plain = graph_of(*rows, *more)
    table = None
    if types:
        kinds = {"oslo": 0, "rome": 0, "bonn": 0, "kiel": 0, **dict.fromkeys(PEOPLE, 1)}
        ids = np.array([plain.entities.id(name) for name in kinds])
        table = TypeTable.of([b"city", b"human"], ids, np.array(list(kinds.values())), len(plain.entities))
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=table)
    return Linker(benchmark_of(graph), ByTail())


def tails(found: Iterable[Any]) -> list[str]:
    return [row.tail for row in found]


def test_a_head_is_its_own_tail_only_if_a_reference_is() -> None:
    asked = linker()
    assert "cy" not in tails(asked.predict(PAIRS, ["cy"], 100, candidates="all"))
    assert "cy" in tails(asked.predict([*PAIRS, ("dan", "dan")], ["cy"], 100, candidates="all"))
    assert "cy" in tails(asked.predict(PAIRS, ["cy"], 100, candidates="all", constraints="none"))
    found = asked.predict_pairs(PAIRS, PEOPLE, 1000, candidates="all")
    assert len(found) and all(row.head != row.tail for row in found)
    # a relation of the graph in which somebody is his own tail
    others = linker("ann likes ann", "bob likes cy")
    assert "dan" in tails(others.predict([("bob", "cy")], ["dan"], 100, candidates="all", relation="likes"))


def test_the_answer_says_which_constraints_were_used() -> None:
    asked = linker()
    (note,) = asked.predict(PAIRS, ["cy"], candidates="all").notes
    assert note == "constraints: a head is not its own tail (irreflexive, read off the references)"
    assert asked.predict(PAIRS, ["cy"], candidates="all", constraints="none").notes == ()
    assert asked.predict(PAIRS, ["cy"], candidates=["oslo", "rome"]).notes == ()  # nothing was left out
    (note,) = asked.predict(PAIRS, ["cy"], candidates=["oslo", "rome"], constraints="functional").notes
    assert note == "constraints: a head has at most one tail (functional, given)"


def test_a_head_with_a_tail_is_not_asked_about_a_functional_relation() -> None:
    asked = linker("cy lives bonn")
    assert {row.head for row in asked.predict(PAIRS, PEOPLE, 2, candidates="all")} == set(PEOPLE)
    found = asked.predict(PAIRS, PEOPLE, 2, candidates="all", constraints=["functional"])
    assert [row.head for row in found] == ["cy", "cy", "dan", "dan"]
    assert found.notes[-1].endswith("'ann', 'bob'")
    assert asked.predict(PAIRS, ["ann"], candidates="all", constraints=["functional"]).rows == ()
    shown = asked.predict(PAIRS, ["ann"], candidates="all", constraints=["functional"], exclude_known=False)
    assert [(row.tail, row.known) for row in shown] == [("oslo", True)]
    # the best pairs of all heads have each head once
    cities = ["oslo", "rome", "bonn", "kiel"]
    best = asked.predict_pairs(PAIRS, PEOPLE, 10, candidates=cities, constraints="functional")
    assert [(row.head, row.tail) for row in best] == [("dan", "kiel"), ("cy", "kiel")]


def test_a_tail_has_one_head_if_the_relation_is_inverse_functional() -> None:
    asked, cities = linker(), ["oslo", "rome", "bonn", "kiel"]
    found = asked.predict(PAIRS, ["cy", "dan"], 2, candidates=cities, constraints="inverse-functional")
    # oslo and rome have their heads; dan gives kiel the higher score, so that cy has to take bonn
    assert [(row.head, row.tail) for row in found] == [("cy", "bonn"), ("dan", "kiel")]
    best = asked.predict_pairs(PAIRS, PEOPLE, 10, candidates=cities, constraints=["inverse-functional", "functional"])
    assert [(row.head, row.tail) for row in best] == [("dan", "kiel"), ("cy", "bonn")]
    one = asked.predict(PAIRS, ["cy", "dan"], 1, candidates=cities)
    assert tails(one) == ["kiel", "kiel"]


def test_pairs_of_a_symmetric_relation_are_known_both_ways() -> None:
    asked = linker()
    married = [("ann", "bob")]
    assert tails(asked.predict(married, ["bob"], candidates=PEOPLE)) == ["dan", "cy", "ann"]
    assert tails(asked.predict(married, ["bob"], candidates=PEOPLE, constraints="symmetric")) == ["dan", "cy"]
    best = asked.predict_pairs(married, ["cy", "dan"], 10, candidates=["cy", "dan"], constraints="symmetric")
    assert [(row.head, row.tail) for row in best] == [("cy", "dan")]
    assert len(asked.predict_pairs(married, ["cy", "dan"], 10, candidates=["cy", "dan"])) == 2


def test_tails_of_the_type_that_all_references_share() -> None:
    asked = linker(types=True)
    found = asked.predict(PAIRS, ["cy"], 100, candidates="all", constraints="types")
    assert tails(found) == ["kiel", "bonn", "rome", "oslo"]
    with pytest.raises(FewlinkError, match=r"'types'.*tails share no type"):
        asked.predict([*PAIRS, ("cy", "dan")], ["dan"], constraints="types")
    with pytest.raises(FewlinkError, match="'types'"):
        linker().predict(PAIRS, ["dan"], constraints="types")


def test_constraints_read_off_many_known_pairs() -> None:
    married = [f"{a} married {b}" for x in range(6) for a, b in ((f"m{x}", f"w{x}"), (f"w{x}", f"m{x}"))]
    asked = linker(*married, *(f"m{x} lives oslo" for x in range(12)), types=True)

    def read(relation: str, choice: Any = "auto") -> set[str]:
        named = find_relation(asked.benchmark, relation)
        first = tuple((int(h), int(t)) for h, t in named.pairs()[:2])
        return set(Constraints.of(choice, asked.graph, References(first, named)).kinds)

    assert read("married") == {"irreflexive", "functional", "inverse-functional", "symmetric"}
    assert read("lives") == {"irreflexive", "functional", "types"}
    assert read("in") == {"irreflexive"}  # too few pairs
    assert read("lives", None) == {"irreflexive"} and read("lives", "none") == set()
    assert read("lives", ["symmetric", "auto"]) == {"irreflexive", "functional", "types", "symmetric"}


def test_contradictions_and_unknown_names_raise() -> None:
    asked = linker()
    with pytest.raises(FewlinkError, match=r"'functional' .*'ann' has the tails 'oslo' and"):
        asked.predict([*PAIRS, ("ann", "rome")], ["cy"], constraints="functional")
    with pytest.raises(FewlinkError, match=r"'inverse-functional' .*: 'oslo' has the heads 'ann' and 'cy'"):
        asked.predict([*PAIRS, ("cy", "oslo")], ["dan"], constraints="inverse-functional")
    with pytest.raises(FewlinkError, match=r"'irreflexive' .*'ann'"):
        asked.predict([("ann", "ann")], ["cy"], constraints="irreflexive")
    with pytest.raises(UnknownName, match=r"'funtional'.*'functional'"):
        asked.predict(PAIRS, ["cy"], constraints=["funtional"])
    with pytest.raises(FewlinkError, match="'none'"):
        asked.predict(PAIRS, ["cy"], constraints=["none", "symmetric"])


def test_constraints_are_named_as_for_tails_when_heads_are_asked_for() -> None:
    asked = linker()
    cities = ["oslo", "rome", "bonn", "kiel"]
    one_city_each = {"constraints": "functional", "candidates": PEOPLE}
    found = asked.heads(cities[2:], PAIRS, k=4, **one_city_each)
    assert {row.head for row in found} == {"cy", "dan"}  # ann and bob have their city
    assert {row.tail for row in found} == {"bonn", "kiel"}
    assert any("a head has at most one tail (functional, given)" in note for note in found.notes)
    found = asked.heads(cities, PAIRS, k=4, constraints="inverse-functional", candidates=PEOPLE)
    assert {row.tail for row in found} == {"bonn", "kiel"}  # oslo and rome have their person
