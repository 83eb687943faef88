"""Paths as English sentences."""

from __future__ import annotations

import pytest

from fewlink.linker.phrases import EXAMPLE, Hop, predicate_of, sentence_of, without_kinds


@pytest.mark.parametrize(
    ("relation", "heads", "tails", "words"),
    [
        ("group uses malware", ["group"], ["malware"], "uses"),
        ("malware runs on platform", ["Malware"], ["platform"], "runs on"),
        ("attack pattern used by group", ["pattern", "attack pattern"], ["group"], "used by"),
        ("group uses malware", ["group"], ["tool"], "group uses malware"),  # both ends, or none
        ("group group", ["group"], ["group"], "group group"),
        ("uses", [], [], "uses"),
    ],
)
def test_relations_are_read_without_the_kinds_of_their_ends(
    relation: str, heads: list[str], tails: list[str], words: str
) -> None:
    assert without_kinds(relation, heads, tails) == words


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("uses", "uses"),
        ("runs on", "runs on"),
        ("has part", "has part"),
        ("contains the name of", "contains the name of"),
        ("part of", "is part of"),
        ("in", "is in"),
        ("made by", "is made by"),
        ("bornIn", "was born in"),
        ("genre", "has the genre"),
        ("birthPlace", "has the birth place"),
        ("class", "has the class"),
        ("TREATS", "treats"),
        ("visited", "visited"),
        ("related", "is related to"),
        ("siblings", "has the sibling"),
        ("event locations", "has the event location"),
        ("children", "has the child"),
        ("hasMembers", "has members"),
        ("targets countries", "targets countries"),
        ("targets", "targets"),
        ("mentioned in chapter", "is mentioned in chapter"),
        ("born in country", "was born in country"),
        ("died in", "died in"),
        ("place of birth", "has the place of birth"),
        ("place in chapter", None),
        ("awards won / award winner", None),
        ("P31", None),
    ],
)
def test_a_relation_is_a_verb_a_state_or_a_noun(words: str, verb: str | None) -> None:
    predicate = predicate_of(words)
    assert (predicate and predicate.verb) == verb


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("—uses→ b", "a uses b"),
        ("←uses— b", "b uses a"),
        ("—uses→ b —runs on→ c", "a uses b, which runs on c"),
        ("←uses— b —runs on→ c", "b uses a and runs on c"),
        ("←uses— b —uses→ c —runs on→ d", "b uses a and c, which runs on d"),
        ("—uses→ b ←uses— c", "a uses b, which c also uses"),
        ("—uses→ b ←contains— c —runs on→ d", "a uses b, which c contains, and c runs on d"),
        ("←uses— b ←contains— c —runs on→ d", "b uses a, and c contains b and runs on d"),
        ("—part of→ b ←part of— c", "a is part of b, which c is also part of"),
        ("—genre→ b ←genre— c —uses→ d", "a has the genre b, which is also the genre of c, which uses d"),
        ("—uses→ b ←uses— c ←contains— d", "a uses b, which c also uses, and d contains c"),
        (f"—uses→ b —{EXAMPLE}→ c", "a uses b, which is joined by your example to c"),
        ("—uses→ b —uses→ c —uses→ d —uses→ e", None),
        ("—uses→ b —x/y→ c", None),
        ("", None),
    ],
)
def test_a_path_is_told_from_its_start(path: str, sentence: str | None) -> None:
    hops, words = [], path
    while words:
        inverse = words.startswith("←")
        relation, _, rest = words[1:].partition("— " if inverse else "→ ")
        name, _, words = rest.partition(" ")
        hops.append(Hop(relation, inverse, name))
    assert sentence_of("a", hops) == sentence
