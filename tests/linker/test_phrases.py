"""Paths as English sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlink.linker import english
from fewlink.linker.phrases import EXAMPLE, Hop, predicate_of, sentence_of, without_kinds

LISTS = [words for words in vars(english).values() if isinstance(words, frozenset)]
EVERY_WORD = frozenset({"x", "of", "part", "member"}).union(*LISTS)


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


READINGS = {  # of relations of public graphs
    "f1db": {
        "drove for": "drove for",
        "drove for entrant": "drove for entrant",
        "raced in season": "raced in season",
        "used in season": "is used in season",
        "used chassis": "used chassis",
        "retired for": "retired for",
        "finished": "finished",
        "did not finish": "did not finish",
        "won": "won",
        "won award": "won award",
        "won by": "is won by",
        "active in": "is active in",
        "held at": "is held at",
        "in season": "is in season",
        "enters": "enters",
        "grand prix": "has the grand prix",
        "podium in": None,
        "pole in": None,
        "fastest lap in": None,
        "driver of the day in": None,
        "tyres from": None,
        "constructors country": None,
        "tyre-manufacturers country": None,
        "constructor won": None,
        "engine used in season": None,
    },
    "geonames": {
        "subdivision of": "is a subdivision of",
        "member of": "is a member of",
        "part of region": "is part of region",
        "uses currency": "uses currency",
        "city in country": None,
    },
    "kg20c": {"author write paper": None, "paper cite paper": None, "paper in domain": None},
    "dnd5e-srd": {
        "spells components": None,
        "monsters size": None,
        "features class": None,
        "equipment-categories equipment": None,
        "components": "has the component",
    },
    "attack": {
        "group uses technique": "uses",
        "tool uses technique": "uses",
        "attack pattern exploits weakness": "exploits",
        "analytic reads data component": "reads",
        "attack pattern can precede attack pattern": None,
        "attack pattern child of attack pattern": None,
        "sub-technique of": "is a sub-technique of",
        "detects": "detects",
    },
    "d3fend": {
        "used-by": "is used by",
        "may-contain": "may contain",
        "may-be-associated-with": "may be associated with",
        "identified-by": "is identified by",
        "broader": None,
        "filters": None,
    },
    "wikidata": {
        "follows": "follows",
        "followed by": "is followed by",
        "educated at": "is educated at",
        "country of citizenship": "has the country of citizenship",
        "place of death": "has the place of death",
        "said to be the same as": "is said to be the same as",
        "shares border with": "shares a border with",
        "part of the series": "is part of the series",
        "award received": None,
        "position held": None,
        "member of sports team": None,
        "languages spoken, written or signed": None,
    },
    "dbpedia": {
        "starring": "stars",
        "spokenIn": "is spoken in",
        "largestCity": "has the largest city",
        "associatedMusicalArtist": None,
        "leftTributary": None,
        "editing": None,
    },
    "families": {"uncleOf": "is an uncle of", "motherOf": "is the mother of", "daughterOf": "is a daughter of"},
    "fibo": {
        "isMemberOf": "is a member of",
        "isPlayedBy": "is played by",
        "isLegallyRecordedIn": "is legally recorded in",
        "isNarrowerThan": "is narrower than",
        "wasDerivedFrom": "was derived from",
        "isOpenSource": None,
        "subClassOf": "is a subclass of",
    },
    "others": {
        "IsA": "is a",
        "AtLocation": "is at location",
        "NotDesires": None,
        "directlyIncreases": "directly increases",
        "gene of disease": None,
        "sex limited": None,
        "biomarkerFor": None,
        "runsOnVm": "runs on vm",
        "sent off in": "is sent off in",
        "scored penalty in": "scored penalty in",
        "same as": "is the same as",
        "orthologous": None,
        "acted in": "acted in",
        "moved to": "moved to",
        "resulted in": "resulted in",
        "participates": None,
        "lives": None,
        "lives in": "lives in",
        "died": None,
        "consists of": "consists of",
        "forms of": None,
        "causes of": None,
        "because of": None,
        "one of": None,
        "north of": "is north of",
        "heir of": "is an heir of",
        "written": None,
        "born": None,
        "built": "built",
        "embed": "has the embed",
        "technique scores": None,
        "wife": None,
        "father": "has the father",
        "countries": "has the country",
        "filming locations": "has the filming location",
    },
}


@pytest.mark.parametrize(("words", "verb"), [each for graph in READINGS.values() for each in graph.items()])
def test_relations_of_public_graphs_are_read_as_english_or_not_at_all(words: str, verb: str | None) -> None:
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
        (f"—uses→ b —{EXAMPLE}→ c", "a uses b, and b → c is one of your examples"),
        (f"—uses→ b ←{EXAMPLE}— c —in→ d", "a uses b, and c → b is one of your examples, and c is in d"),
        ("—born in country→ b ←born in country— c", "a was born in country b, and c was also born in country b"),
        ("—born in country→ b ←drove for— c —in→ d", "a was born in country b, which c drove for, and c is in d"),
        ("—in→ b ←uses currency— c —uses→ d", "a is in b, and c uses currency b and uses d"),
        ("—in→ b ←event locations— c", "a is in b, which is an event location of c"),
        ("—in→ b ←contains the name of— c", "a is in b, and c contains the name of b"),
        ("—in→ b ←has the same name as— c —in→ d", "a is in b, which has the same name as c, which is in d"),
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


@given(st.lists(st.sampled_from(sorted(EVERY_WORD)), min_size=1, max_size=4))
def test_any_words_can_be_a_relation(words: list[str]) -> None:
    found = predicate_of(" ".join(words))
    assert found is None or found.verb
