"""Explanations: existing paths, weights that add up, and readable sentences."""

from __future__ import annotations

import functools
import json
from importlib.resources import as_file, files

import numpy as np
import pytest
from safetensors.torch import load_file
from tests.conftest import graph_of
from tests.linker.linkers import REFERENCES, fsrl, trail, umls
from tests.linker.markup import Markup, read_svg

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from fewlink.linker import Linker
from fewlink.linker.explanation import explain_pair
from fewlink.linker.names import short_relation
from fewlink.linker.paths import distance, simple_path
from fewlink.models.trail.network import Shape, TrailNetwork
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.scorers import Capabilities, Question, Reasons


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


def told(graph: Graph = VIRUSES, **reasons: object) -> list[str]:
    virus, _, human, flu, _, ann = range(6)
    scorer = Told(Reasons(2.5, measured=True, **reasons))  # type: ignore[arg-type]
    explanation = explain_pair(scorer, graph, np.array([[flu, ann], [flu, human]]), virus, human)
    assert json.loads(json.dumps(explanation.to_dict()))["sentences"] == explanation.sentences()
    return explanation.sentences()


def test_measured_reasons_in_words() -> None:
    virus, disease, human, flu, _, ann = range(6)
    assert told(
        shares={"head": 2.0, "references": -0.5},
        paths=[((CAUSES, AFFECTS), 1.5), ((REFERENCE, IS), 0.25), ((AFFECTS, REFERENCE + 1, REFERENCE), 0.001)],
        entities=[(virus, disease, human), (flu, ann, human), (virus, ann, flu, human)],
        references=[0.75, -0.1],
        together=1.8,
    ) == [
        "virus → human: 1 of 2 references is joined in the same way, by causes, then affects.",
        "From the head: virus —causes→ disease —affects→ human (like 1 of 2 references, +1.50).",
        "From the references: flu —reference→ ann —is→ human (+0.25).",
        "Without all of these paths the score would be 1.80 lower; the numbers are for each path alone.",
        "Evidence for it: paths from the head (+2.00).",
        "Evidence against it: paths from the references (-0.50).",
        "Of the references, flu → ann counts most: without it the score would be 0.75 lower.",
        "virus → human has a score of 2.50.",
    ]


def test_an_edge_between_head_and_tail_is_named_first_whatever_it_adds() -> None:
    virus, disease, human, *_ = range(6)
    sentences = told(
        paths=[((AFFECTS + 3,), -0.2), ((CAUSES, AFFECTS), 0.004)],
        entities=[(virus, human), (virus, disease, human)],
        references=[-0.1, 0.0],
    )
    assert sentences[:-1] == [
        "virus and human are joined directly: virus ←affects— human (-0.20).",
        "The score would not be lower without any single reference.",
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
    assert explanation.sentences()[0] == "a and b are joined directly: a ←likes— b (like 1 of 1 references)."


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
    assert sentences[0].endswith("The edges of rome count instead: 2 × ←born— (+0.75).")
    sentences = explain_pair(Told(reasons), graph, np.array([[ann, rome]]), lone, rome).sentences()
    assert sentences[0].startswith("lone → rome: 1 of 1 references has the same tail")
    beside = explain_pair(Told(Reasons(2.0, {"head": 0.3}, measured=True)), graph, np.array([[ann, italy]]), lone, rome)
    assert beside.sentences()[0].endswith("joins them in the graph, only paths through references.")
    nothing = Reasons(2.0, measured=True)
    sentences = explain_pair(Told(nothing), graph, np.array([[eve, oslo]]), ann, italy).sentences()
    assert sentences[0] == "ann → italy: no single path from ann counts much."
    sentences = explain_pair(Told(nothing), graph, np.array([[ann, italy]]), ann, italy).sentences()
    assert sentences[0] == "ann → italy is one of the references."


def test_a_path_through_a_reference_or_unlike_all_references() -> None:
    graph = graph_of("ann born rome", "rome in italy", "bob likes ann", "eve born oslo")
    ann, rome, italy, bob, eve, oslo = range(6)
    count = 2 * len(graph.relations)
    through = Reasons(1.0, paths=[((2, count), 0.5)], entities=[(bob, ann, italy)], measured=True)
    sentences = explain_pair(Told(through), graph, np.array([[ann, italy]]), bob, italy).sentences()
    assert sentences[:2] == [
        "bob → italy: a path through the reference ann → italy counts most.",
        "From the head: bob —likes→ ann —reference→ italy (+0.50).",
    ]
    alone = Reasons(1.0, paths=[((0, 1), 0.5)], entities=[(ann, rome, italy)], measured=True)
    sentences = explain_pair(Told(alone), graph, np.array([[eve, oslo]]), ann, italy).sentences()
    assert sentences[0] == "ann → italy: joined by born, then in; no reference is joined in this way."


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
    for text in ("disease", "causes", "+1.50, like 1 of 2 references", "+0.25, from a reference", "reference"):
        assert text in drawn.texts
    assert "-0.10" not in drawn.text and "0.00" not in drawn.text  # the third path adds nothing
    assert repr(explanation).splitlines() == explanation.sentences()
    page = Markup(explanation._repr_html_())
    assert page.texts[0] == explanation.sentences()[0] and page.count("svg") == 1
    assert "Evidence in the score of 2.50: paths from the head +2.00 paths from the references -0.50" in page.text
    assert page.texts[-2:] == [explanation.sentences()[3], explanation.sentences()[-2]]
    assert explanation.summary() == "1 of 2 references is joined in the same way, by causes, then affects."


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
    assert "Also: a —r0→ x0 —s→ b (+0.10); a —r1→ x1 —s→ b (+1.10)." in Markup(explanation._repr_html_()).texts


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
    assert explanation.sentences()[-1].startswith("alga → cell has a score of")
    rules = Linker(umls(), fewlink.learning_free("rules", umls().graph))
    assert rules.explain(REFERENCES, "alga", "cell").sentences()[-1].startswith("alga → cell has a score of")


@pytest.mark.parametrize("linker", [trail, fsrl, message_passing], ids=["trail-0.1", "fsrl", "trail"])
def test_reasons_come_with_predictions_and_are_exported(linker: object) -> None:
    found = linker().predict(REFERENCES, ["alga"], 2, explain=True)  # type: ignore[operator]
    first = found[0].reasons
    assert first is not None and first.head.id == "alga" and first.tail.id == found[0].tail
    content = json.loads(found.to_json())
    assert content[0]["reasons"]["sentences"] == first.sentences()
    assert found.to_tsv().splitlines()[0].endswith("\treasons")
    for sentence in first.sentences():
        assert sentence.endswith(".") and "\n" not in sentence
    assert f"alga → {first.tail.name} has a score" in first.sentences()[-1]


def test_a_self_loop_is_explained() -> None:
    for linker in (trail(), fsrl(), message_passing()):
        explanation = linker.explain([("virus", "virus")], "virus", "virus")
        assert np.isfinite(explanation.score) and explanation.sentences()


def test_unknown_entities_raise() -> None:
    with pytest.raises(FewlinkError, match=r"'cel'.*'cell'"):
        fsrl().explain(REFERENCES, "alga", "cel")
