"""Explanations: existing paths, weights that add up, and readable sentences."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.conftest import benchmark_of, graph_of
from tests.linker.linkers import REFERENCES, fsrl, trail, umls
from tests.linker.markup import Markup, read_svg

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.graph import Graph, Vocabulary
from fewlink.linker import Linker
from fewlink.linker.explanation import explain_pair, with_one_stop
from fewlink.linker.names import short_relation
from fewlink.linker.paths import distance, simple_path
from fewlink.models.contract import Capabilities, Question, Reasons
from fewlink.models.trail.network import Shape, TrailNetwork
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.tasks.training_graph import known_graph


@functools.cache
def message_passing() -> Linker:
    """The shipped weights on umls."""
    network = TrailNetwork(Shape())
    with as_file(files("fewlink") / "builtin" / "trail.safetensors") as path:
        network.load_state_dict(load_file(path))
    graph = known_graph(umls())
    return Linker(umls(), TrailScorer("trail", network, ReadGraph.of(graph)))


def test_a_path_exists_and_prefers_entities_with_few_edges() -> None:
    graph = graph_of("a r b", "a r c", "b s d", "c s d", "b s e", "b s f", "d r a")
    ids = {name: i for i, name in enumerate(graph.entities)}
    named = [graph.entities[e] for e in simple_path(graph, ids["a"], [0, 1], ids["d"])]
    assert named == ["a", "c", "d"]  # c has fewer edges than b
    assert [graph.entities[e] for e in simple_path(graph, ids["d"], [3, 2], ids["a"])] == ["d", "c", "a"]
    assert simple_path(graph, ids["a"], [1], ids["d"]) == []


def test_a_path_has_no_entity_twice() -> None:
    graph = graph_of("romania capital bucharest", "romania city bucharest", "romania city cluj", "cluj near bucharest")
    romania, bucharest, cluj = range(3)
    assert simple_path(graph, romania, [0, 3, 0], bucharest) == []  # through romania again
    assert simple_path(graph, romania, [1, 4, 1], bucharest) == []  # cluj, and romania again
    assert simple_path(graph, romania, [1, 2], bucharest) == [romania, cluj, bucharest]
    assert simple_path(graph, romania, [0, 3], romania) == []
    # the best last step is through x, which leaves no way back without x: the search turns round
    graph = graph_of("h r x", "h r y", "y s x", "x s y", "x t end", "y t end", "y t more", "y t most")
    h, x, y, end, *_ = range(5)
    assert simple_path(graph, h, [0, 1, 2], end) == [h, y, x, end]
    assert simple_path(graph_of("h r x", "x s x", "x t end"), 0, [0, 1, 2], 2) == []


def test_the_hops_between_two_entities() -> None:
    graph = graph_of("a r b", "b r c", "d r c", "e r f")
    a, b, c, d, e, _ = range(6)
    assert [distance(graph, a, other) for other in (b, c, d, e)] == [1, 2, 3, 0]
    assert distance(graph, a, d, max_hops=2) == 0


def test_relations_written_as_paths_or_addresses_are_named_by_their_end() -> None:
    assert short_relation("/people/person/profession") == "profession"
    assert short_relation("/award/winner/awards won./award/honor/award winner") == "awards won / award winner"
    assert short_relation("http://www.w3.org/2000/01/rdf-schema#label") == "label"
    assert [short_relation(name) for name in ("has spouse", "and/or", "/")] == ["has spouse", "and/or", "/"]


def test_measured_paths_come_with_their_entities() -> None:
    linker = message_passing()
    row = linker.predict(REFERENCES, ["alga"], 1)[0]
    explanation = linker.explain(REFERENCES, "alga", row.tail)
    assert explanation.score == pytest.approx(row.score, rel=1e-3) and explanation.measured and explanation.paths
    graph = known_graph(umls())
    relations = [graph.relation_name(r) for r in range(len(graph.relations))]
    for path in explanation.paths:
        assert len(path.entities) == len(path.steps) + 1 == len(set(path.entities))
        assert path.entities[0].id in {"alga", *np.ravel(REFERENCES)} and path.entities[-1].id == row.tail
        assert (path.like is None) == (
            path.entities[0].id != "alga" or any(step.relation == "reference" for step in path.steps)
        )
        for step, before, after in zip(path.steps, path.entities, path.entities[1:], strict=False):
            pair = [e.id for e in ((after, before) if step.inverse else (before, after))]
            if step.relation == "reference":
                assert tuple(pair) in REFERENCES
            else:
                ends = [graph.entities.id(e) for e in pair]
                assert [ends[0], relations.index(step.relation), ends[1]] in graph.triples().tolist()
    assert {"head", "references"} <= set(explanation.shares)
    assert all(r.weight is not None for r in explanation.references)


class Told:
    """A scorer with given reasons."""

    name = "told"
    capabilities = Capabilities(evidence={"head": "paths from the head", "references": "paths from the references"})

    def __init__(self, reasons: Reasons) -> None:
        self.reasons = reasons

    def __call__(self, question: Question) -> np.ndarray:
        return np.zeros((len(question.heads), len(question.candidates)))

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        return self.reasons


VIRUSES = graph_of(
    "virus causes disease", "disease affects human", "flu causes fever", "fever affects ann", "ann is human"
)
CAUSES, AFFECTS, IS, REFERENCE = 0, 1, 2, 6  # AFFECTS + 3 is its inverse


def told(graph: Graph = VIRUSES, full: bool = True, **reasons: object) -> list[str]:
    virus, _, human, flu, _, ann = range(6)
    scorer = Told(Reasons(2.5, measured=True, **reasons))  # type: ignore[arg-type]
    explanation = explain_pair(scorer, graph, np.array([[flu, ann], [flu, human]]), virus, human)
    content = json.loads(json.dumps(explanation.to_dict()))
    assert content["sentences"] == explanation.sentences() and content["details"] == explanation.sentences(full=True)
    return explanation.sentences(full)


def test_measured_reasons_in_words() -> None:
    virus, disease, human, flu, _, ann = range(6)
    reasons = {
        "shares": {"head": 2.0, "references": -0.5},
        "paths": [((CAUSES, AFFECTS), 1.5), ((REFERENCE, IS), 0.25), ((AFFECTS, REFERENCE + 1, REFERENCE), 0.001)],
        "entities": [(virus, disease, human), (flu, ann, human), (virus, ann, flu, human)],
        "references": [0.75, -0.1],
        "together": 1.8,
    }
    lead = "virus causes disease, which affects human; 1 of your 2 examples is joined in the same way."
    assert told(**reasons, full=False) == [
        lead,
        "Also: from an example, flu —reference→ ann —is→ human.",
        "Of your examples, flu → ann counts most.",
    ]
    assert told(**reasons) == [
        lead,
        "Path: virus —causes→ disease —affects→ human (like 1 of your 2 examples).",
        "Path: from an example, flu —reference→ ann —is→ human.",
        "Without all of these paths the score would be 1.80 lower.",
        "Of your examples, flu → ann counts most: without it the score would be 0.75 lower.",
        "virus → human has a score of 2.50 = 2.00 (paths from the head) − 0.50 (paths from the references) "
        "+ 1.00 (the rest).",
    ]


@given(
    st.floats(-30, 30),
    st.dictionaries(st.sampled_from(["head", "references", "names", "decisions"]), st.floats(-20, 20)),
)
def test_the_parts_of_a_score_add_up_as_they_are_printed(score: float, shares: dict[str, float]) -> None:
    explanation = explain_pair(Told(Reasons(score, shares, measured=True)), VIRUSES, np.array([[3, 5]]), 0, 2)
    parts = explanation.parts()
    assert not parts or sum(parts.values()) == pytest.approx(round(score, 2), abs=1e-9)
    text = re.sub(r" \([^)]*\)", "", explanation.sentences(full=True)[-1].partition("score of ")[2]).rstrip(".")
    whole, _, printed = text.replace("+ ", "").replace("− ", "-").replace("−", "-").partition(" = ")
    assert not parts or sum(map(float, printed.split())) == pytest.approx(float(whole), abs=1e-9)


def test_a_short_explanation_has_four_lines_at_most_and_other_relations_first() -> None:
    rows = [row for x in range(5) for row in (f"a r{x // 2} m{x}", f"m{x} s b", f"c r{x // 2} n{x}", f"n{x} s d")]
    graph = graph_of(*rows)
    a, b, c, d = (graph.entities.id(name) for name in "abcd")
    walked = [(a, graph.entities.id(f"m{x}"), b) for x in range(5)]
    paths = [((graph.relations.id(f"r{x // 2}"), graph.relations.id("s")), 1.0 - x / 10) for x in range(5)]
    reasons = Reasons(1.0, {}, paths, references=[0.5, 0.1], entities=walked, measured=True)
    sentences = explain_pair(Told(reasons), graph, np.array([[c, d], [d, c]]), a, b).sentences()
    assert sentences[0] == "a —r0→ m0 —s→ b; 1 of your 2 examples is joined in the same way."
    assert sentences[1:3] == ["Also: a —r1→ m2 —s→ b.", "Also: a —r2→ m4 —s→ b."]
    assert sentences[3:] == ["Of your examples, c → d counts most."]


def test_the_shortest_convincing_path_is_first() -> None:
    graph = graph_of("a r x", "x s y", "y t b", "x u b", "a v z", "z w b", "c r m", "m s n", "n t d", "m u d")
    a, b, c, d, x, y, z = (graph.entities.id(name) for name in "abcdxyz")
    r, s, t, u, v, w = (graph.relations.id(name) for name in "rstuvw")
    found = [((r, s, t), (a, x, y, b), 1.0), ((v, w), (a, z, b), 0.9), ((r, u), (a, x, b), 0.5)]
    reasons = Reasons(
        1.0, paths=[(path, w) for path, _, w in found], entities=[walked for _, walked, _ in found], measured=True
    )
    explanation = explain_pair(Told(reasons), graph, np.array([[c, d]]), a, b)
    assert [path.weight for path in explanation.paths] == [0.5, 1.0, 0.9]  # no reference is joined by v, then w
    weak = replace(reasons, paths=[*reasons.paths[:2], ((r, u), 0.1)])
    assert [path.weight for path in explain_pair(Told(weak), graph, np.array([[c, d]]), a, b).paths] == [1.0, 0.1, 0.9]


def test_references_are_called_by_the_name_of_their_relation() -> None:
    virus, _, human, flu, _, ann = range(6)
    reasons = Reasons(1.0, paths=[((IS + 3, REFERENCE + 1, REFERENCE), 0.5)], entities=[(virus, ann, flu, human)])
    given = np.array([[flu, ann], [flu, human]])
    explanation = explain_pair(Told(reasons), VIRUSES, given, virus, human, relation="infects")
    assert [(step.relation, step.reference) for step in explanation.paths[0].steps] == [
        ("is", False),
        ("infects", True),
        ("infects", True),
    ]
    assert str(explanation.paths[0]) == "virus ←is— ann ←infects— flu —infects→ human"
    assert explanation.sentence() == "ann is virus, and flu infects ann and human."
    unnamed = explain_pair(Told(reasons), VIRUSES, given, virus, human)
    assert {step.relation for step in unnamed.paths[0].steps} == {"is", "reference"}


@pytest.mark.parametrize(
    ("tail", "other", "weight", "reason"),
    [
        ("Pegasus for iOS", "Pegasus for Android", 0.5, True),
        ("Pegasus for iOS", "Pegasus for Android", 0.1, False),
        ("Linux", "Windows", 0.5, False),
        ("Linux", "Windows", 1.5, True),  # names that have no word in common count only if they add much
    ],
)
def test_a_name_is_a_reason_only_if_it_convinces(tail: str, other: str, weight: float, reason: bool) -> None:
    graph = graph_of(f"a r {tail.replace(' ', '_')}", f"c r {other.replace(' ', '_')}")
    a, end, c, like = range(4)
    for of, entity in (("head", a), ("reference", like)):
        shares = {"head": 2.0, "names": weight}
        names = [(of, entity, weight if of == "reference" else 0.0)]
        given = Told(Reasons(3.0, shares, names=names, measured=True))
        text = " ".join(explain_pair(given, graph, np.array([[c, like]]), a, end).sentences(full=True))
        assert ("‘" in text) == (reason and of == "reference")
    same = Told(Reasons(3.0, {"head": 0.1}, names=[("reference", end, 2.0)], measured=True))
    assert "‘" not in " ".join(explain_pair(same, graph, np.array([[c, end]]), a, end).sentences(full=True))


def test_ids_that_tell_entities_apart_do_not_make_their_names_alike() -> None:
    plain = graph_of(
        "ann likes http://a/1", "eve likes http://a/2", "http://a/1 near http://a/3", "http://a/2 near http://a/4"
    )
    names = {"http://a/1": "Venus", "http://a/2": "Mars", "http://a/3": "Venus", "http://a/4": "Mars"}
    labels = [names.get(name, name) for name in plain.entities]
    graph = Graph.of(
        plain.entities, plain.relations, plain.triples(), labels=Vocabulary.of([*labels, *plain.relations])
    )
    ann, eve, venus, mars, *others = (graph.entities.id(name) for name in ("ann", "eve", *names))
    reasons = Reasons(1.0, {"head": 2.0}, names=[("reference", mars, 0.5)], measured=True)
    walked = [(venus, others[0]), (mars, others[1])]
    reasons = replace(reasons, paths=[((1,), 0.1)] * 2, entities=walked)
    explanation = explain_pair(Told(reasons), graph, np.array([[eve, mars]]), ann, venus)
    assert (explanation.tail.name, explanation.names[0].entity.name) == ("Venus (http://a/1)", "Mars (http://a/2)")
    assert "‘" not in " ".join(explanation.sentences(full=True))


def test_an_edge_between_head_and_tail_is_named_first_whatever_it_adds() -> None:
    virus, disease, human, *_ = range(6)
    sentences = told(
        paths=[((AFFECTS + 3,), -0.2), ((CAUSES, AFFECTS), 0.004)],
        entities=[(virus, human), (virus, disease, human)],
        references=[-0.1, 0.0],
    )
    assert sentences[:-1] == [
        "virus and human are joined directly: human affects virus; none of your examples is joined in the same way.",
        "Path: virus ←affects— human.",
        "The score would not be lower without any single one of your examples.",
    ]
    assert "flu → ann counts most" in told(references=[0.5])[-2]  # a second one that the model did not read


@pytest.mark.parametrize("measured", [True, False])
def test_an_edge_that_the_model_does_not_name_is_named_first(measured: bool) -> None:
    graph = graph_of("a r x", "x s b", "b likes a", "c r y", "y s d", "d likes c")
    a, x, b, c, _y, d = (graph.entities.id(name) for name in "axbcyd")
    entities = {"entities": [(a, x, b)]} if measured else {}
    reasons = Reasons(1.0, paths=[((0, 1), 0.5)], measured=measured, **entities)  # type: ignore[arg-type]
    explanation = explain_pair(Told(reasons), graph, np.array([[c, d]]), a, b)
    assert [path.weight for path in explanation.paths] == [None, 0.5]
    lead = "a and b are joined directly: b likes a; your example is joined in the same way."
    assert explanation.sentences()[0] == lead


def test_kinds_of_paths_are_named_only_where_one_has_no_entity_twice() -> None:
    graph = graph_of("a r b", "c r b", "e r f", "e s g", "f s g")
    a, b, _, e, f, _g = range(6)
    circular, simple = ((0, 2, 0), 2.0), ((0,), 1.0)  # r, r backwards, r; and r alone
    explanation = explain_pair(Told(Reasons(1.0, paths=[circular, simple])), graph, np.array([[e, f]]), a, b)
    assert [path.weight for path in explanation.paths] == [1.0]
    assert explanation.paths[0].like == 1
    around = Told(Reasons(1.0, paths=[((1, 3), 0.5)]))  # s, s backwards: from e to f over g
    assert explain_pair(around, graph, np.array([[a, b]]), e, f).paths[0].like is not None


def test_what_counts_if_no_path_leads_from_the_head() -> None:
    graph = graph_of(*("lone is planet", "ann born rome", "bob born rome", "rome in italy", "eve born oslo"))
    lone, _planet, ann, rome, _bob, italy, eve, oslo = range(8)
    reasons = Reasons(2.0, {"head": 0.0, "references": 1.0}, measured=True, at_tail=[(4, 2, 0.75), (2, 1, 0.001)])
    sentences = explain_pair(Told(reasons), graph, np.array([[ann, italy]]), lone, rome).sentences()
    assert sentences[0].startswith("lone → rome: no path of up to 6 steps")
    assert sentences[0].endswith("; the edges of rome count instead: 2 × ←born—.")
    sentences = explain_pair(Told(reasons), graph, np.array([[ann, rome]]), lone, rome).sentences()
    assert sentences[0].startswith("lone → rome: 1 of your 1 example has the same tail")
    beside = explain_pair(Told(Reasons(2.0, {"head": 0.3}, measured=True)), graph, np.array([[ann, italy]]), lone, rome)
    assert beside.sentences()[0].endswith("joins them in the graph, only paths through your examples.")
    nothing = Reasons(2.0, measured=True)
    sentences = explain_pair(Told(nothing), graph, np.array([[eve, oslo]]), ann, italy).sentences()
    assert sentences[0] == "ann → italy: no single path from ann counts much."
    sentences = explain_pair(Told(nothing), graph, np.array([[ann, italy]]), ann, italy).sentences()
    assert sentences[0] == "ann → italy is one of your examples."


def test_a_path_through_a_reference_or_unlike_all_references() -> None:
    graph = graph_of("ann born_in rome", "rome in italy", "bob likes ann", "eve born_in oslo")
    ann, rome, italy, bob, eve, oslo = range(6)
    count = 2 * len(graph.relations)
    through = Reasons(1.0, paths=[((2, count), 0.5)], entities=[(bob, ann, italy)], measured=True)
    sentences = explain_pair(Told(through), graph, np.array([[ann, italy]]), bob, italy).sentences()
    assert sentences == ["bob likes ann, and ann → italy is one of your examples."]
    alone = Reasons(1.0, paths=[((0, 1), 0.5)], entities=[(ann, rome, italy)], measured=True)
    by_tail = replace(alone, shares={"head": 0.1, "references": 2.0})
    sentences = explain_pair(Told(by_tail), graph, np.array([[eve, italy]]), ann, italy).sentences()
    assert sentences[0].startswith("ann → italy: 1 of your 1 example has the same tail, which counts more")
    assert sentences[1:] == ["Also: ann —born in→ rome —in→ italy."]
    sentences = explain_pair(Told(alone), graph, np.array([[eve, oslo]]), ann, italy).sentences()
    assert sentences == ["ann was born in rome, which is in italy; your example is not joined in the same way."]


def test_a_drawing_and_html_say_what_the_sentences_say() -> None:
    virus, disease, human, flu, _, ann = range(6)
    reasons = Reasons(
        2.5,
        {"head": 2.0, "references": -0.5},
        [((CAUSES, AFFECTS), 1.5), ((REFERENCE, IS), 0.25), ((AFFECTS, REFERENCE + 1, REFERENCE), 0.001)],
        references=[0.75, -0.1],
        measured=True,
        entities=[(virus, disease, human), (flu, ann, human), (virus, ann, flu, human)],
        together=1.8,
    )
    explanation = explain_pair(Told(reasons), VIRUSES, np.array([[flu, ann], [flu, human]]), virus, human)
    read_svg(explanation.to_svg())
    drawn = Markup(explanation.to_svg())
    for text in ("disease", "causes", "like 1 of your 2 examples", "from an example", "reference"):
        assert text in drawn.texts
    assert "1.50" not in drawn.text  # what single paths lose does not add up
    assert drawn.text.count("like 1 of your 2 examples") == 2 - (
        "aria" not in drawn.text
    )  # the third path adds nothing
    assert repr(explanation).splitlines() == explanation.sentences()
    page = Markup(explanation._repr_html_())
    assert page.texts[0] == explanation.sentences()[0] and page.count("svg") == 1
    parts = "paths from the head +2.00 paths from the references -0.50 the rest +1.00"
    assert f"The score of 2.50 is the sum of: {parts}" in page.text
    assert page.texts[-2:] == explanation.sentences(full=True)[3:5]


def test_html_without_paths_or_evidence_is_in_words() -> None:
    explanation = explain_pair(Told(Reasons(2.0)), VIRUSES, np.array([[3, 5]]), 0, 2)
    assert explanation.to_svg() == ""
    assert Markup(explanation._repr_html_()).text == "virus → human has a score of 2.00."
    row = fsrl().predict(REFERENCES, ["alga"], 1, explain=True)[0]
    assert "Neighbours of alga with most attention" in Markup(row._repr_html_()).text


def test_at_most_four_paths_are_drawn_and_the_others_named() -> None:
    graph = graph_of(*(f"a r{i} x{i}" for i in range(6)), *(f"x{i} s b" for i in range(6)), "c t d")
    a, b, c, d = (graph.entities.id(name) for name in "abcd")
    walked = [(a, graph.entities.id(f"x{i}"), b) for i in range(6)]
    paths = [((graph.relations.id(f"r{i}"), graph.relations.id("s")), 0.1 + i) for i in range(6)]
    reasons = Reasons(1.0, {}, paths, entities=walked, measured=True)
    explanation = explain_pair(Told(reasons), graph, np.array([[c, d]]), a, b)
    drawn = Markup(explanation.to_svg()).texts
    assert {"x5", "x4", "x3", "x2"} < set(drawn) and not {"x0", "x1"} & set(drawn)
    assert "Also: a —r1→ x1 —s→ b; a —r0→ x0 —s→ b." in Markup(explanation._repr_html_()).texts


def test_fsrl_explains_with_its_attention() -> None:
    linker = fsrl()
    row = linker.predict(REFERENCES, ["alga"], 1)[0]
    explanation = linker.explain(REFERENCES, "alga", row.tail)
    assert explanation.score == pytest.approx(row.score, rel=1e-5)
    assert (
        sum(r.weight or 0 for r in explanation.references) == pytest.approx(1)
        and not explanation.shares
        and not explanation.paths
    )
    for end in ("head", "tail"):
        weights = [n.weight for n in explanation.neighbours if n.of == end]
        assert weights == sorted(weights, reverse=True) and sum(weights) == pytest.approx(1)  # 4 neighbours at most
    graph = umls().graph
    for near in explanation.neighbours:
        own = graph.entities.id("alga" if near.of == "head" else row.tail)
        at, _ = graph.edges_of(np.array([own]))
        assert graph.entities.id(near.entity.id) in graph.tail_ids[at]


def test_a_model_without_attention_gives_its_score() -> None:
    explanation = fsrl("gmatching-meanp").explain(REFERENCES, "alga", "cell")
    assert [r.weight for r in explanation.references] == [None, None] and explanation.neighbours == ()
    assert explanation.sentences()[0].startswith("alga → cell has a score of")
    rules = Linker(umls(), fewlink.learning_free("rules", umls().graph))
    assert rules.explain(REFERENCES, "alga", "cell").sentences()[0].startswith("alga → cell has a score of")


@pytest.mark.parametrize("linker", [trail, fsrl, message_passing], ids=["trail-0.1", "fsrl", "trail"])
def test_reasons_come_with_predictions_and_are_exported(linker: object) -> None:
    found = linker().predict(REFERENCES, ["alga", "bird"], 2, explain=True)  # type: ignore[operator]
    assert [row.reasons is not None for row in found] == [True, False, True, False]
    every = linker().predict(REFERENCES, ["alga", "bird"], 2, explain="full")  # type: ignore[operator]
    assert all(row.reasons is not None for row in every) and every[2].reasons == found[2].reasons
    best = linker().predict_pairs(REFERENCES, ["alga", "bird"], 3, explain=True)  # type: ignore[operator]
    assert [row.reasons is not None for row in best] == [True, False, False]
    first = found[0].reasons
    assert first is not None and first.head.id == "alga" and first.tail.id == found[0].tail
    content = json.loads(found.to_json())
    assert content[0]["reasons"]["sentences"] == first.sentences()
    assert found.to_tsv().splitlines()[0].endswith("\treasons")
    assert len(first.sentences()) <= 4
    for sentence in [*first.sentences(), *first.sentences(full=True)]:
        assert sentence.endswith(".") and "\n" not in sentence
    assert sum(f"alga → {first.tail.name} has a score" in sentence for sentence in first.sentences(full=True)) == 1


def test_a_self_loop_is_explained() -> None:
    for linker in (trail(), fsrl(), message_passing()):
        explanation = linker.explain([("virus", "virus")], "virus", "virus")
        assert np.isfinite(explanation.score) and explanation.sentences()


def test_unknown_entities_raise() -> None:
    with pytest.raises(FewlinkError, match=r"'cel'.*'cell'"):
        fsrl().explain(REFERENCES, "alga", "cel")


def test_entities_of_one_name_are_told_apart_by_their_ids() -> None:
    plain = graph_of("asa_1 knows asa_2", "asa_1 likes rome", "asa_2 likes rome", "eve likes oslo")
    labels = [{"asa_1": "Asa", "asa_2": "Asa"}.get(name, name) for name in plain.entities]
    graph = Graph.of(
        plain.entities, plain.relations, plain.triples(), labels=Vocabulary.of([*labels, *plain.relations])
    )
    asa, other, rome, eve, oslo = (graph.entities.id(name) for name in ("asa_1", "asa_2", "rome", "eve", "oslo"))
    knows, likes = (graph.relations.id(name) for name in ("knows", "likes"))
    reasons = Reasons(1.0, paths=[((knows,), 0.5)], entities=[(asa, other)], measured=True)
    explanation = explain_pair(Told(reasons), graph, np.array([[eve, oslo]]), asa, other)
    assert explanation.sentence() == (
        "Asa (asa_1) and Asa (asa_2) are joined directly: Asa (asa_1) knows Asa (asa_2); "
        "your example is not joined in the same way."
    )
    assert (explanation.tail.id, explanation.tail.name) == ("asa_2", "Asa (asa_2)")
    alone = replace(reasons, paths=[((likes,), 0.5)], entities=[(asa, rome)])
    told = explain_pair(Told(alone), graph, np.array([[eve, oslo]]), asa, rome).sentence()
    assert told.startswith("Asa and rome are joined directly: Asa likes rome;")


def test_a_hidden_relation_is_no_reason_in_a_large_graph_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"a{i} spouse b{i}" for i in range(30)] + [f"a{i} house h{i}" for i in range(30)]
    lines += [f"b{i} house h{i}" for i in range(20)] + [f"b{i} club k{i % 4}" for i in range(30)]
    linkers = [Linker.shipped(benchmark_of(graph_of(*lines)))]
    monkeypatch.setattr("fewlink.graph.graph.LARGE", 0)
    monkeypatch.setattr("fewlink.models.trail.scorer.MAX_WHOLE_EDGES", 0)
    linkers.append(Linker.shipped(benchmark_of(Graph.open(linkers[0].graph.save(tmp_path / "graph")))))
    assert linkers[1].graph.counted is not None
    for head, tail, shots in (("b3", "a3", None), ("a9", "b9", 3), ("b25", "a25", None)):
        small, large = (each.explain(head=head, tail=tail, relation="spouse", shots=shots) for each in linkers)
        assert large.sentences(full=True) == small.sentences(full=True)
        assert large.distance == small.distance


def test_the_same_references_are_compared_whatever_their_order() -> None:
    graph = graph_of("h likes t", *(f"p{i} {'likes' if i < 20 else 'knows'} q{i}" for i in range(40)))
    pairs = np.array([[graph.entities.id(f"{end}{i}") for end in "pq"] for i in range(40)])
    head, tail = (graph.entities.id(name) for name in "ht")
    reasons = Told(Reasons(1.0, paths=[((0,), 0.5)], entities=[(head, tail)], measured=True))
    found = [explain_pair(reasons, graph, given, head, tail).paths[0].like for given in (pairs, pairs[::-1])]
    assert found[0] == found[1] is not None


def test_the_distance_is_one_over_relations_that_are_read() -> None:
    graph = graph_of("a near b", "a in c", "b in c")
    a, b, _ = range(3)
    far = [
        explain_pair(Told(Reasons(1.0, measured=True, visible=visible)), graph, np.array([[a, b]]), a, b).distance
        for visible in (None, np.array([False, True, False, True]))
    ]
    assert far == [1, 2]


def test_a_sentence_that_ends_with_a_name_has_one_full_stop() -> None:
    ends = {"has the speed 40 ft..": "has the speed 40 ft.", "likes wait....": "likes wait....", "uses b.": "uses b."}
    assert [with_one_stop(sentence) for sentence in ends] == [*ends.values()]


def test_a_father_with_several_children_is_the_head_of_the_relation() -> None:
    lines = [f"p{i} father c{i}x{j}" for i in range(3) for j in range(2)]
    fathers, children = graph_of(*lines), graph_of(*(" ".join(reversed(line.split())) for line in lines))
    for graph, told in ((fathers, "p0 is the father of c0x0."), (children, "c0x0 has the father p0.")):
        head, _, tail = told.rstrip(".").replace(" is the father of ", " x ").replace(" has the father ", " x ").split()
        h, t = graph.entities.id(head), graph.entities.id(tail)
        reasons = Reasons(1.0, paths=[((0,), 0.5)], entities=[(h, t)], measured=True)
        explanation = explain_pair(Told(reasons), graph, np.array([[h, t]]), h, t)
        assert explanation.paths[0].sentence() == told.rstrip(".")
    ends = [(f"c{i}x{j}", f"p{i}") for i in range(3) for j in range(2)]  # who is the father of c0x0?
    graph = graph_of(
        *(f"{child} near {parent}2" for child, parent in ends), *(f"{parent} is old" for _, parent in ends)
    )
    pairs = np.array([[graph.entities.id(child), graph.entities.id(parent)] for child, parent in ends])
    reasons = Reasons(1.0, paths=[((2 * len(graph.relations),), 0.5)], entities=[tuple(pairs[0])], measured=True)
    explanation = explain_pair(Told(reasons), graph, pairs, *pairs[0], inverse=True, relation="father")
    assert explanation.paths[0].sentence() == "p0 is the father of c0x0"
