"""Reasons: paths that exist, drawn with arrows, the best first, and parts of the score that add up."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import graph_of
from tests.linker.linkers import REFERENCES, fsrl, trail, umls

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.graph import Graph, Vocabulary
from fewlink.linker import Linker
from fewlink.linker.names import short_relation, without_kinds
from fewlink.linker.reasons import explain_pair, simple_path
from fewlink.models.contract import Capabilities, Question, Reasons


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
VIRUS, DISEASE, HUMAN, FLU, FEVER, ANN = range(6)
GIVEN = np.array([[FLU, ANN], [FLU, HUMAN]])


@pytest.mark.parametrize(
    ("relations", "walked", "relation", "drawn"),
    [
        ((CAUSES, AFFECTS), (VIRUS, DISEASE, HUMAN), None, "virus —causes→ disease —affects→ human"),
        ((AFFECTS + 3,), (VIRUS, HUMAN), None, "virus ←affects— human"),
        ((REFERENCE, IS), (FLU, ANN, HUMAN), None, "flu (example) → ann —is→ human"),
        (
            (IS + 3, REFERENCE + 1, REFERENCE),
            (VIRUS, ANN, FLU, HUMAN),
            "infects",
            "virus ←is— ann (example) ←infects— flu (example) —infects→ human",
        ),
    ],
)
def test_a_path_is_drawn_with_arrows(
    relations: tuple[int, ...], walked: tuple[int, ...], relation: str | None, drawn: str
) -> None:
    reasons = Reasons(1.0, paths=[(relations, 0.5)], entities=[walked], measured=True)
    explanation = explain_pair(Told(reasons), VIRUSES, GIVEN, VIRUS, HUMAN, relation=relation)
    assert str(explanation.paths[0]) == drawn and explanation.lines()[0].startswith(drawn)
    path = json.loads(json.dumps(explanation.to_dict()))["paths"][0]
    assert path["text"] == drawn
    names = [VIRUSES.entities[entity] for entity in walked]
    assert [(step["from"], step["to"]) for step in path["steps"]] == list(itertools.pairwise(names))
    arrows = [part for part in drawn.split() if "→" in part or "←" in part]
    assert [step["forward"] for step in path["steps"]] == ["→" in arrow for arrow in arrows]
    assert [entity["id"] for entity in path["entities"]] == names


def test_the_kinds_of_the_ends_are_left_out_of_a_relation() -> None:
    assert without_kinds("group uses malware", ["group"], ["malware"]) == "uses"
    assert without_kinds("group uses malware", ["person"], ["malware"]) == "group uses malware"


def test_relations_written_as_paths_or_addresses_are_named_by_their_end() -> None:
    assert short_relation("/people/person/profession") == "profession"
    assert short_relation("/award/winner/awards won./award/honor/award winner") == "awards won / award winner"
    assert short_relation("http://www.w3.org/2000/01/rdf-schema#label") == "label"
    assert [short_relation(name) for name in ("has spouse", "and/or", "/")] == ["has spouse", "and/or", "/"]


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
    assert simple_path(graph, romania, [1, 2], bucharest) == [romania, cluj, bucharest]
    # the best last step is through x, which leaves no way back without x: the search turns round
    graph = graph_of("h r x", "h r y", "y s x", "x s y", "x t end", "y t end", "y t more", "y t most")
    h, x, y, end, *_ = range(5)
    assert simple_path(graph, h, [0, 1, 2], end) == [h, y, x, end]


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


@pytest.mark.parametrize("measured", [True, False])
def test_an_edge_between_head_and_tail_is_first_whether_the_model_names_it_or_not(measured: bool) -> None:
    graph = graph_of("a r x", "x s b", "b likes a", "c r y", "y s d", "d likes c")
    a, x, b, c, _y, d = (graph.entities.id(name) for name in "axbcyd")
    entities = {"entities": [(a, x, b)]} if measured else {}
    reasons = Reasons(1.0, paths=[((0, 1), 0.5)], measured=measured, **entities)  # type: ignore[arg-type]
    explanation = explain_pair(Told(reasons), graph, np.array([[c, d]]), a, b)
    assert [(str(path), path.alike) for path in explanation.paths] == [("a ←likes— b", 1), ("a —r→ x —s→ b", 1)]


@given(
    st.floats(-30, 30),
    st.dictionaries(st.sampled_from(["head", "references", "names", "decisions"]), st.floats(-20, 20)),
)
def test_the_parts_of_a_score_add_up(score: float, shares: dict[str, float]) -> None:
    explanation = explain_pair(Told(Reasons(score, shares, measured=True)), VIRUSES, np.array([[3, 5]]), 0, 2)
    parts = explanation.parts
    assert not parts or sum(parts.values()) == pytest.approx(round(score, 2), abs=1e-9)


def test_evidence_that_is_no_path_is_noted() -> None:
    graph = graph_of("lone is planet", "ann born rome", "bob born rome", "rome in italy", "eve born oslo")
    lone, _planet, ann, rome, _bob, italy, eve, oslo = range(8)
    names = [("reference", oslo, 0.9)]
    reasons = Reasons(2.0, {"names": 1.0}, measured=True, names=names, neighbours=[("tail", 4, ann, 0.7)], shared=True)
    lines = explain_pair(Told(reasons), graph, np.array([[ann, rome], [eve, oslo]]), lone, rome).lines()
    for text in ("no path from lone", "1 of 2 references", "rome, oslo", "←born— ann"):
        assert any(text in line for line in lines), text
    known = explain_pair(Told(Reasons(2.0)), graph, np.array([[ann, italy]]), ann, italy)
    assert "one of the references" in known.lines()[0]
    silent = explain_pair(Told(Reasons(2.0)), graph, np.array([[eve, oslo]]), ann, italy)
    assert silent.lines() == ["score 2.00"]


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
    assert str(explanation.paths[0]) == "Asa (asa_1) —knows→ Asa (asa_2)"
    assert (explanation.tail.id, explanation.tail.name) == ("asa_2", "Asa (asa_2)")
    alone = replace(reasons, paths=[((likes,), 0.5)], entities=[(asa, rome)])
    assert str(explain_pair(Told(alone), graph, np.array([[eve, oslo]]), asa, rome).paths[0]) == "Asa —likes→ rome"


def test_measured_paths_are_in_the_graph() -> None:
    linker = trail()
    row = linker.predict(REFERENCES, ["alga"], 1)[0]
    explanation = linker.explain(REFERENCES, "alga", row.tail)
    assert explanation.score == pytest.approx(row.score, rel=1e-3) and explanation.paths
    graph = umls().known_graph
    triples = {(graph.name(h), graph.relation_name(r), graph.name(t)) for h, r, t in graph.triples().tolist()}
    for path in explanation.paths:
        assert len(path.entities) == len(path.steps) + 1 == len(set(path.entities))
        assert path.entities[0].id in {"alga", *np.ravel(REFERENCES)} and path.entities[-1].id == row.tail
        for step in path.steps:
            ends = (step.start, step.end) if step.forward else (step.end, step.start)
            if step.example:
                assert tuple(name.replace(" ", "_") for name in ends) in REFERENCES
            else:
                assert (ends[0], step.relation, ends[1]) in triples or "name" in step.relation


def test_fsrl_explains_with_its_attention() -> None:
    linker = fsrl()
    row = linker.predict(REFERENCES, ["alga"], 1)[0]
    explanation = linker.explain(REFERENCES, "alga", row.tail)
    assert explanation.score == pytest.approx(row.score, rel=1e-5) and not explanation.paths
    assert sum(reference.weight or 0 for reference in explanation.references) == pytest.approx(1)
    for end in ("head", "tail"):
        weights = [near.weight for near in explanation.neighbours if near.of == end]
        assert weights == sorted(weights, reverse=True) and sum(weights) == pytest.approx(1)  # 4 neighbours at most
    graph = umls().graph
    for near in explanation.neighbours:
        own = graph.entities.id("alga" if near.of == "head" else row.tail)
        at, _ = graph.edges_of(np.array([own]))
        assert graph.entities.id(near.entity.id) in graph.tail_ids[at]


def test_a_model_without_reasons_gives_its_score() -> None:
    for linker in (fsrl("gmatching-meanp"), Linker(umls(), fewlink.learning_free("rules", umls().graph))):
        explanation = linker.explain(REFERENCES, "alga", "cell")
        assert explanation.neighbours == () and explanation.lines(full=True)[-1].startswith("score ")


@pytest.mark.parametrize("linker", [fsrl, trail], ids=["fsrl", "trail"])
def test_reasons_come_with_predictions_and_are_exported(linker: object) -> None:
    found = linker().predict(REFERENCES, ["alga", "bird"], 2, explain=True)  # type: ignore[operator]
    assert [row.reasons is not None for row in found] == [True, False, True, False]
    every = linker().predict(REFERENCES, ["alga", "bird"], 2, explain="full")  # type: ignore[operator]
    assert all(row.reasons is not None for row in every) and every[2].reasons == found[2].reasons
    best = linker().predict_pairs(REFERENCES, ["alga", "bird"], 3, explain=True)  # type: ignore[operator]
    assert [row.reasons is not None for row in best] == [True, False, False]
    first = found[0].reasons
    assert first is not None and first.head.id == "alga" and first.tail.id == found[0].tail
    assert json.loads(found.to_json())[0]["reasons"]["lines"] == first.lines()
    assert found.to_tsv().splitlines()[0].endswith("\treasons")
    assert str(first) == "\n".join(first.lines())
    assert first.lines()[0] in found._repr_html_().replace("&amp;", "&")


def test_the_heads_of_a_tail_are_explained_from_that_tail() -> None:
    explanation = trail().explain(REFERENCES, "alga", "cell", inverse=True)
    assert (explanation.head.id, explanation.tail.id) == ("cell", "alga")


def test_a_self_loop_is_explained() -> None:
    for linker in (fsrl(), trail()):
        explanation = linker.explain([("virus", "virus")], "virus", "virus")
        assert np.isfinite(explanation.score) and explanation.lines()


def test_unknown_entities_raise() -> None:
    with pytest.raises(FewlinkError, match=r"'cel'.*'cell'"):
        fsrl().explain(REFERENCES, "alga", "cel")


def test_the_same_references_are_compared_whatever_their_order() -> None:
    graph = graph_of("h likes t", *(f"p{i} {'likes' if i < 20 else 'knows'} q{i}" for i in range(40)))
    pairs = np.array([[graph.entities.id(f"{end}{i}") for end in "pq"] for i in range(40)])
    head, tail = (graph.entities.id(name) for name in "ht")
    reasons = Told(Reasons(1.0, paths=[((0,), 0.5)], entities=[(head, tail)], measured=True))
    found = [explain_pair(reasons, graph, given, head, tail).paths[0].alike for given in (pairs, pairs[::-1])]
    assert found[0] == found[1] is not None
