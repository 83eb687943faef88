"""Paths as English: what a relation says of its two ends, and a path as one sentence.

A relation is read as a verb ("uses"), as a state ("is part of", from "part of") or as a noun ("has the genre", from
"genre"; "has the child", from "children"). A name that does not clearly fit is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fewlink.linker import english
from fewlink.linker.english import AUXILIARIES, PREPOSITIONS

LONGEST = 3  # hops of a path that one sentence tells
EXAMPLE = "is one of your examples"  # a step between the ends of a reference without a name
SHORTEST = 3  # letters of a word in a noun

_HUMP = re.compile(r"(?<=[a-z])[A-Z](?=[a-z]|$)")
_WORDS = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")


class Hop(NamedTuple):
    """A step of a path in words: what it says, whether it is read against its direction, and where it leads."""

    words: str
    inverse: bool
    to: str


class Predicate(NamedTuple):
    """What stands between a subject and an object; the `noun` in it, if it names what the object is, one of `several`
    if the relation is a plural."""

    verb: str
    noun: str = ""
    several: bool = False

    def also(self) -> str:
        """The verb of a second subject of which the same is said."""
        first, _, others = self.verb.partition(" ")
        return f"{first} also {others}" if first in AUXILIARIES else f"also {self.verb}"

    def may_follow(self) -> bool:
        """Whether the verb may come after its object: "which A uses", "which A is part of"."""
        words = self.verb.split()
        return len(words) == 1 or (words[-1] in PREPOSITIONS and not english.ARTICLES.intersection(words))

    def noun_of(self) -> str:
        """What its object is of its subject: "the genre of", "an event location of"."""
        return f"{_article(self.noun) if self.several else 'the'} {self.noun} of"


def without_kinds(relation: str, heads: Iterable[str], tails: Iterable[str]) -> str:
    """A relation without the kinds of its ends: "uses" for "group uses malware" between a group and malware."""
    words = relation.split()
    lower = [word.lower() for word in words]
    begin = max((n for kind in heads if (n := len(kind.split())) and lower[:n] == kind.lower().split()), default=0)
    end = max((n for kind in tails if (n := len(kind.split())) and lower[-n:] == kind.lower().split()), default=0)
    inner = words[begin : len(words) - end]
    return " ".join(inner) if inner and begin and end else relation


def predicate_of(words: str) -> Predicate | None:
    """How a relation is read; None if that is not clear."""
    if words == EXAMPLE:
        return Predicate(EXAMPLE)
    text = _plain(words)
    if not _WORDS.fullmatch(text):
        return None
    if text in english.STATES:
        return Predicate(english.STATES[text])
    if verb := _as_verb(text.split()) or _as_state(text.split()):
        return Predicate(verb)
    noun = _as_noun(text.split())
    if noun is None or text in english.EITHER_WAY:
        return None
    return Predicate(f"has the {noun}", noun, noun != text)


def _plain(words: str) -> str:
    """A name in words: "is a" for "IsA", "used by" for "used-by", "depends on" for "DEPENDS ON"."""
    text = _HUMP.sub(lambda letter: f" {letter[0].lower()}", words).strip()
    text = text.lower() if text.isupper() else text
    parts = text.split("-")
    if " " not in text and (parts[0] in AUXILIARIES or parts[-1] in PREPOSITIONS):
        text = " ".join(parts)
    first, space, others = text.partition(" ")
    small = first.istitle() and (others or _is_verb(first.lower()))
    return (first.lower() if small else first) + space + others


def _as_verb(words: Sequence[str]) -> str | None:
    """A relation that says what its head does: "uses", "runs on", "has part", "won", "may modify"."""
    text = " ".join(words)
    first, *others = words
    if first in AUXILIARIES:
        return _with_auxiliary(first, others)
    for place in range(1, len(words) - 1):
        if words[place] in english.VERBS and _as_noun(words[:place]) and _as_noun(words[place + 1 :]):
            return words[place]  # "campaign uses tool"
    if first.endswith("ly") and others:
        return text if _is_verb(others[0]) else None
    if not others and first in english.NEEDS_MORE | english.PASSIVE:
        return None
    if others[:1] == ["of"] and first != "consists":
        return None  # "forms of" is no verb
    before = not others or others[0] in PREPOSITIONS  # nothing, or more than a noun
    if _is_verb(first) or (first in english.OFTEN_NOUNS and before):
        return text
    if first in english.PAST and others[:1] != ["by"]:
        return text
    return text if _is_past(first) and (not others or (first in english.BEFORE_NOUNS and not before)) else None


def _with_auxiliary(first: str, others: Sequence[str]) -> str | None:
    """A relation that begins with "is", "has", "may" and the like."""
    begin = [first, "be"] if others[:1] == ["be"] else [first]
    rest = others[len(begin) - 1 :]
    if len(begin) == 1 and first not in ("is", "was"):
        return " ".join([first, *others]) if not PREPOSITIONS.intersection(others[:1]) else None
    if not rest or rest[0] in english.ARTICLES:
        return " ".join([*begin, *rest])
    state = _as_state(rest)
    return state and " ".join([*begin, *state.split()[1:]])


def _as_state(words: Sequence[str]) -> str | None:
    """A relation that says what its head is: "is part of", "is made by", "is a member of", "is in season"."""
    text = " ".join(words)
    first, *others = words
    last = words[-1]
    if first.endswith("ly") and others:
        state = _as_state(others) if _is_past(others[0]) else None
        return state and f"is {first} {state.partition(' ')[2]}"
    after = others[1:] if _is_past(first) and english.OUT.intersection(others[:1]) else others
    if (_is_past(first) or first in english.QUALITIES) and PREPOSITIONS.intersection(after[:1]):
        return f"{'was' if first == 'born' else 'is'} {text}"
    if first in english.COMPARED and others == ["than"]:
        return f"is {text}"
    if first in english.DIRECTIONS and others == ["of"]:
        return f"is {text}"
    if first in english.PLACES and (not others or _as_noun(others) == " ".join(others)):
        return f"is {text}"
    of = " ".join(words[:-1])
    if last != "of" or not others or words[-2] in english.QUALITIES or _as_noun(words[:-1]) != of:
        return None
    return f"is {'the' if of in english.ONLY_ONE else _article(first)} {text}"


def _article(word: str) -> str:
    """The indefinite article before a word."""
    vowel = word[0] in "aeiou" and not word.startswith(("eu", "uni", "use"))
    return "an" if vowel or word.startswith(english.VOWELS) else "a"


def _as_noun(words: Sequence[str]) -> str | None:
    """A relation that names what its tail is, in the singular: "genre", "birth place", "place of death"."""
    if words[-2:-1] == ["of"] and words[-1] in english.AFTER_OF:
        noun = _as_noun(words[:-2])
        return noun and f"{noun} of {words[-1]}"
    *before, last = words
    if not all(map(_may_be_noun, words)) or any(map(_is_plural, before)):
        return None
    if last in english.QUALITIES | english.COMPARED or last.endswith(("ous", "ful", "ible")):
        return None
    if last.endswith("ing") and last not in english.THINGS:
        return None
    one = _singular(last)
    if one != last and (last in english.OFTEN_NOUNS or (not before and one not in english.NOUNS)):
        return None  # "filters" may be a verb
    return " ".join([*before, one])


def _may_be_noun(word: str) -> bool:
    """Whether a word may be part of a noun: neither a verb nor a small word."""
    if len(word) < SHORTEST or not word.isascii() or not (word.islower() or word.isupper() or word.istitle()):
        return False
    if "-" in word:
        return not any(_is_past(part) or part in PREPOSITIONS for part in word.split("-"))
    if _is_verb(word) or _is_past(word):
        return False
    if word.endswith("ly") and word not in english.LIKE_ADVERBS:
        return False
    return word not in PREPOSITIONS | english.NO_NOUNS | english.ARTICLES | english.BASES | english.PAST


def _is_verb(word: str) -> bool:
    """Whether a word is surely a verb in the third person."""
    return word in english.VERBS or word.endswith(("izes", "ifies"))


def _is_past(word: str) -> bool:
    """Whether a word is a past participle."""
    return word in english.PARTICIPLES or (word.endswith("ed") and len(word) > 3 and word not in english.NOT_PAST)


def _is_plural(word: str) -> bool:
    """Whether a word is a plural, or a verb in the third person."""
    return any(
        part in english.SINGULAR or (part.endswith("s") and not part.endswith(("ss", "us", "is")))
        for part in word.split("-")
        if part not in english.PLURAL_NOUNS
    )


def _singular(word: str) -> str:
    """The singular of a noun."""
    if word in english.SINGULAR or not _is_plural(word):
        return english.SINGULAR.get(word, word)
    for ending, one in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if word.endswith(ending):
            return word.removesuffix(ending) + one
    return word.removesuffix("s")


def sentence_of(start: str, hops: Sequence[Hop]) -> str | None:
    """A path as a sentence without its full stop: "A uses B, which runs on C"; None if it is long or cannot be read.

    A step backwards is told of its other end: "B uses A and runs on C", "A uses B, which C also uses".
    """
    predicates = [predicate_of(hop.words) for hop in hops]
    if not 0 < len(hops) <= LONGEST or not all(predicates):
        return None
    text = ""
    here = start
    told = ""  # `told`: how the sentence ended on the entity that the next step leaves
    for place, (hop, predicate) in enumerate(zip(hops, predicates, strict=True)):
        assert predicate is not None
        inverse = hop.inverse and hop.words not in english.BOTH_WAYS
        same = place > 0 and hop.words == hops[place - 1].words
        if hop.words == EXAMPLE:
            first, last = (hop.to, here) if hop.inverse else (here, hop.to)
            text += f"{', and ' if text else ''}{first} → {last} {EXAMPLE}"
            told = "relative"
        elif inverse and told == "object":
            if predicate.noun:
                text += f", which is {'also ' * same}{predicate.noun_of()} {hop.to}"
            elif predicate.may_follow():
                text += f", which {hop.to} {predicate.also() if same else predicate.verb}"
                told = "relative"
            else:
                text += f", and {hop.to} {predicate.also() if same else predicate.verb} {here}"
                told = "subject"
        elif inverse:
            text += f"{', and ' if text else ''}{hop.to} {predicate.verb} {here}"
            told = "subject"
        else:
            joint = {"": here, "object": ", which", "subject": " and", "relative": f", and {here}"}[told]
            text += f"{joint} {hop.to}" if told == "subject" and same else f"{joint} {predicate.verb} {hop.to}"
            told = "object"
        here = hop.to
    return text
