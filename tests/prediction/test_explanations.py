"""Explanations: existing paths, weights that add up, and readable sentences."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.conftest import graph_of
from tests.prediction.linkers import REFERENCES, fsrl, trail, umls

import fewlink
from fewlink.base.errors import FewlinkError
from fewlink.prediction import Linker
from fewlink.prediction.explanation import instance
from fewlink.trail_0_1.scorer import Trail01Scorer


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


@pytest.mark.parametrize("linker", [trail, fsrl], ids=["trail-0.1", "fsrl"])
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
    for linker in (trail(), fsrl()):
        explanation = linker.explain([("virus", "virus")], "virus", "virus")
        assert np.isfinite(explanation.score) and explanation.sentences()


def test_unknown_entities_raise() -> None:
    with pytest.raises(FewlinkError, match="unknown tail 'cel'; did you mean 'cell'"):
        fsrl().explain(REFERENCES, "alga", "cel")
