"""Explanations: existing paths, weights that add up, and readable sentences."""

from __future__ import annotations

import functools
import json
from importlib.resources import as_file, files

import numpy as np
import pytest
from safetensors.torch import load_file
from tests.conftest import graph_of
from tests.prediction.linkers import REFERENCES, fsrl, trail, umls

import fewlink
from fewlink.base.errors import FewlinkError
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from fewlink.prediction import Linker
from fewlink.prediction.explanation import explain_pair, instance
from fewlink.scorers import Question, Reasons
from fewlink.trail.network import Shape, TrailNetwork
from fewlink.trail.reading import ReadGraph
from fewlink.trail.scorer import TrailScorer
from fewlink.trail_0_1.scorer import Trail01Scorer


@functools.cache
def message_passing() -> Linker:
    """The shipped weights on umls."""
    network = TrailNetwork(Shape())
    with as_file(files("fewlink") / "builtin" / "trail.safetensors") as path:
        network.load_state_dict(load_file(path))
    graph = known_graph(umls())
    return Linker(umls(), TrailScorer("trail", network, ReadGraph.of(graph), graph))


def test_a_path_exists_and_prefers_entities_with_few_edges() -> None:
    graph = graph_of("a r b", "a r c", "b s d", "c s d", "b s e", "b s f", "d r a")
    ids = {name: i for i, name in enumerate(graph.entities)}
    named = [graph.entities[e] for e in instance(graph, ids["a"], [0, 1], ids["d"])]
    assert named == ["a", "c", "d"]  # c has fewer edges than b
    assert [graph.entities[e] for e in instance(graph, ids["d"], [3, 2], ids["a"])] == ["d", "c", "a"]
    assert instance(graph, ids["a"], [1], ids["d"]) == []
    # a r b r⁻¹ a r c: the only path goes through a again
    assert [graph.entities[e] for e in instance(graph, ids["a"], [0, 2, 0], ids["c"])][-1] == "c"


def test_trail_explains_with_paths_shares_references_and_neighbours() -> None:
    linker = trail()
    assert isinstance(linker.scorer, Trail01Scorer)
    row = linker.predict(REFERENCES, ["alga"], 1)[0]
    explanation = linker.explain(REFERENCES, "alga", row.tail)
    assert explanation.score == pytest.approx(row.score, rel=1e-4)
    assert (
        list(explanation.shares) == sorted(explanation.shares, key=lambda kind: -explanation.shares[kind])
        and len(explanation.shares) == 5
    )
    assert sum(r.weight or 0 for r in explanation.references) == pytest.approx(1)
    assert [(r.head.id, r.tail.id) for r in explanation.references] == REFERENCES
    graph = linker.scorer.graph.graph
    assert explanation.paths
    for path in explanation.paths:
        assert len(path.entities) == len(path.steps) + 1
        assert path.entities[0].id == "alga" and path.entities[-1].id == row.tail
        relations = [graph.relation_name(r) for r in range(len(graph.relations))]
        for step, before, after in zip(path.steps, path.entities, path.entities[1:], strict=False):
            ends = [graph.entities.id(e.id) for e in ((after, before) if step.inverse else (before, after))]
            assert [ends[0], relations.index(step.relation), ends[1]] in graph.triples().tolist()
    for near in explanation.neighbours:
        assert near.of == "tail" and near.weight > 0


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
    assert set(explanation.shares) == {"head", "references"}
    assert all(r.weight is not None for r in explanation.references)


class Told:
    """A scorer with given reasons."""

    name, evidence = "told", {"head": "paths from the head", "references": "paths from the references"}

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
    ) == [
        "virus → human has a score of 2.50.",
        "From virus: virus —causes→ disease —affects→ human (like 1 of 2 references, +1.50).",
        "From the references: flu —reference→ ann —is→ human (+0.25).",
        "Evidence for it: paths from the head (+2.00).",
        "Evidence against it: paths from the references (-0.50).",
        "Of the references, flu → ann counts most: without it the score would be 0.75 lower.",
    ]


def test_an_edge_between_head_and_tail_is_told_first_whatever_it_adds() -> None:
    virus, disease, human, *_ = range(6)
    sentences = told(
        paths=[((AFFECTS + 3,), -0.2), ((CAUSES, AFFECTS), 0.004)],
        entities=[(virus, human), (virus, disease, human)],
        references=[-0.1, 0.0],
    )
    assert sentences[1:] == [
        "virus and human are joined directly: virus ←affects— human (-0.20).",
        "The score would not be lower without any single reference.",
    ]
    assert told() == ["virus → human has a score of 2.50."]
    assert "flu → ann counts most" in told(references=[0.5])[-1]  # a second one that the model did not read


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
    assert len(explanation.sentences()) == 1
    rules = Linker(umls(), fewlink.learning_free("rules", umls().graph))
    assert rules.explain(REFERENCES, "alga", "cell").sentences()[0].startswith("alga → cell has a score of")


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
    assert f"alga → {first.tail.name} has a score" in first.sentences()[0]


def test_a_self_loop_is_explained() -> None:
    for linker in (trail(), fsrl(), message_passing()):
        explanation = linker.explain([("virus", "virus")], "virus", "virus")
        assert np.isfinite(explanation.score) and explanation.sentences()


def test_unknown_entities_raise() -> None:
    with pytest.raises(FewlinkError, match="unknown tail 'cel'; did you mean 'cell'"):
        fsrl().explain(REFERENCES, "alga", "cel")
