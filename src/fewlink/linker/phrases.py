"""Paths as English: what a relation says of its two ends, and a path as one sentence.

A relation is read as a verb ("uses"), as a state ("is part of", from "part of") or as a noun ("has the genre", from
"genre"; "has the child", from "children"). Other names, such as two paths of Freebase in one, are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LONGEST = 3  # hops of a path that one sentence tells
EXAMPLE = "is joined by your example to"
PREPOSITIONS = frozenset({"at", "by", "for", "from", "in", "into", "of", "on", "through", "to", "under", "with"})
AUXILIARIES = frozenset({"can", "did", "had", "has", "is", "may", "was", "will"})
NO_VERB = ("ss", "us", "is")  # endings of nouns that a third person does not have
PARTICIPLES = frozenset({"born", "built", "found", "held", "known", "made", "spoken", "written"})
INTRANSITIVE = frozenset(  # verbs in the past that are not passive before a preposition: "died in"
    {
        "appeared",
        "belonged",
        "competed",
        "died",
        "graduated",
        "happened",
        "lived",
        "occurred",
        "participated",
        "played",
        "served",
        "studied",
        "worked",
    }
)
STATES = {"related": "is related to", "associated": "is associated with", "connected": "is connected to"}
SINGULAR = {  # nouns that are not verbs in the third person
    "aliases": "alias",
    "authors": "author",
    "categories": "category",
    "children": "child",
    "countries": "country",
    "creators": "creator",
    "domains": "domain",
    "events": "event",
    "friends": "friend",
    "groups": "group",
    "languages": "language",
    "locations": "location",
    "members": "member",
    "parents": "parent",
    "participants": "participant",
    "partners": "partner",
    "platforms": "platform",
    "products": "product",
    "siblings": "sibling",
    "spouses": "spouse",
    "tags": "tag",
    "topics": "topic",
}

_HUMP = re.compile(r"(?<=[a-z])[A-Z](?=[a-z])")
_WORDS = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")


class Hop(NamedTuple):
    """A step of a path in words: what it says, whether it is read against its direction, and where it leads."""

    words: str
    inverse: bool
    to: str


class Predicate(NamedTuple):
    """What stands between a subject and an object; the `noun` in it, if it names what the object is."""

    verb: str
    noun: str = ""

    def also(self) -> str:
        """The verb of a second subject of which the same is said."""
        first, _, others = self.verb.partition(" ")
        return f"{first} also {others}" if first in AUXILIARIES else f"also {self.verb}"


def without_kinds(relation: str, heads: Iterable[str], tails: Iterable[str]) -> str:
    """A relation without the kinds of its ends: "uses" for "group uses malware" between a group and malware."""
    words = relation.split()
    lower = [word.lower() for word in words]
    begin = max((n for kind in heads if (n := len(kind.split())) and lower[:n] == kind.lower().split()), default=0)
    end = max((n for kind in tails if (n := len(kind.split())) and lower[-n:] == kind.lower().split()), default=0)
    inner = words[begin : len(words) - end]
    return " ".join(inner) if inner and begin and end else relation


def predicate_of(words: str) -> Predicate | None:
    """How a relation is read; None if it cannot be."""
    text = _HUMP.sub(lambda letter: f" {letter[0].lower()}", words).strip()
    if words == EXAMPLE:
        return Predicate(EXAMPLE)
    if not _WORDS.fullmatch(text):
        return None
    text = text.lower() if text.isupper() else text
    if text in STATES:
        return Predicate(STATES[text])
    first, *others = text.split()
    last, inner = (others or [first])[-1], others[:-1]
    if first in AUXILIARIES | INTRANSITIVE or (_is_verb(first) and text not in SINGULAR):
        return Predicate(text)
    past = first.endswith("ed") or first in PARTICIPLES
    if last in PREPOSITIONS or (past and PREPOSITIONS.intersection(others[:1])):
        return Predicate(f"{'was' if first == 'born' else 'is'} {text}")
    if PREPOSITIONS.intersection(inner) - {"of"}:
        return None  # "place in chapter"
    if past and last not in SINGULAR:
        return Predicate(text)
    noun = text.removesuffix(last) + SINGULAR.get(last, last)
    return Predicate(f"has the {noun}", noun)


def _is_verb(word: str) -> bool:
    return len(word) > 3 and word.endswith("s") and not word.endswith(NO_VERB)


def sentence_of(start: str, hops: Sequence[Hop]) -> str | None:
    """A path as a sentence without its full stop: "A uses B, which runs on C"; None if it is long or cannot be read.

    A step backwards is told of its other end: "B uses A and runs on C", "A uses B, which C also uses".
    """
    predicates = [predicate_of(hop.words) for hop in hops]
    if not 0 < len(hops) <= LONGEST or not all(predicates):
        return None
    text, here, told = "", start, ""  # `told`: how the sentence ended on the entity that the next step leaves
    for place, (hop, predicate) in enumerate(zip(hops, predicates, strict=True)):
        assert predicate is not None
        same = place > 0 and hop.words == hops[place - 1].words
        if hop.inverse and told == "object":
            if predicate.noun:
                text += f", which is {'also ' * same}the {predicate.noun} of {hop.to}"
            else:
                text += f", which {hop.to} {predicate.also() if same else predicate.verb}"
                told = "relative"
        elif hop.inverse:
            text += f"{', and ' if text else ''}{hop.to} {predicate.verb} {here}"
            told = "subject"
        else:
            joint = {"": here, "object": ", which", "subject": " and", "relative": f", and {here}"}[told]
            text += f"{joint} {hop.to}" if told == "subject" and same else f"{joint} {predicate.verb} {hop.to}"
            told = "object"
        here = hop.to
    return text
