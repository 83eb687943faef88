"""Reasons: paths that are there, weights that add up, and sentences that people can read."""

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
from fewlink.trail.scorer import TrailScorer


def test_a_path_is_one_that_is_there_and_goes_over_rare_entities() -> None:
    graph = graph_of("a r b", "a r c", "b s d", "c s d", "b s e", "b s f", "d r a")
    ids = {name: i for i, name in enumerate(graph.entities)}
    named = [graph.entities[e] for e in instance(graph, ids["a"], [0, 1], ids["d"])]
    assert named == ["a", "c", "d"]  # c has fewer edges than b
    assert [graph.entities[e] for e in instance(graph, ids["d"], [3, 2], ids["a"])] == ["d", "c", "a"]
    assert instance(graph, ids["a"], [1], ids["d"]) == []
    # a r b r⁻¹ a r c: the only way back is over a itself
    assert [graph.entities[e] for e in instance(graph, ids["a"], [0, 2, 0], ids["c"])][-1] == "c"


def test_trail_tells_paths_shares_references_and_neighbours() -> None:
    linker = trail()
    assert isinstance(linker.scorer, TrailScorer)
    row = linker.predict(REFERENCES, ["alga"], 1)[0]
    told = linker.explain(REFERENCES, "alga", row.tail)
    assert told.score == pytest.approx(row.score, rel=1e-4)
    assert list(told.shares) == sorted(told.shares, key=lambda kind: -told.shares[kind]) and len(told.shares) == 5
    assert sum(r.weight or 0 for r in told.references) == pytest.approx(1)
    assert [(r.head.id, r.tail.id) for r in told.references] == REFERENCES
    graph = linker.scorer.known.graph
    assert told.paths
    for path in told.paths:
        assert len(path.entities) == len(path.steps) + 1
        assert path.entities[0].id == "alga" and path.entities[-1].id == row.tail
        relations = [graph.relation_name(r) for r in range(len(graph.relations))]
        for step, before, after in zip(path.steps, path.entities, path.entities[1:], strict=False):
            ends = [graph.entities.id(e.id) for e in ((after, before) if step.inverse else (before, after))]
            assert [ends[0], relations.index(step.relation), ends[1]] in graph.triples().tolist()
    for near in told.neighbours:
        assert near.of == "tail" and near.weight > 0


def test_fsrl_tells_what_it_attended_to() -> None:
    linker = fsrl()
    row = linker.predict(REFERENCES, ["alga"], 1)[0]
    told = linker.explain(REFERENCES, "alga", row.tail)
    assert told.score == pytest.approx(row.score, rel=1e-5)
    assert sum(r.weight or 0 for r in told.references) == pytest.approx(1) and not told.shares and not told.paths
    for end in ("head", "tail"):
        weights = [n.weight for n in told.neighbours if n.of == end]
        assert weights == sorted(weights, reverse=True) and sum(weights) == pytest.approx(1)  # 4 neighbours at most
    graph = umls().graph
    for near in told.neighbours:
        own = graph.entities.id("alga" if near.of == "head" else row.tail)
        at, _ = graph.edges_of(np.array([own]))
        assert graph.entities.id(near.entity.id) in graph.tail_ids[at]


def test_a_model_without_attention_tells_what_it_has() -> None:
    told = fsrl("gmatching-meanp").explain(REFERENCES, "alga", "cell")
    assert [r.weight for r in told.references] == [None, None] and told.neighbours == ()
    assert len(told.sentences()) == 1
    rules = Linker(umls(), fewlink.learning_free("rules", umls().graph))
    assert rules.explain(REFERENCES, "alga", "cell").sentences()[0].startswith("alga → cell has a score of")


@pytest.mark.parametrize("linker", [trail, fsrl], ids=["trail", "fsrl"])
def test_reasons_come_with_predictions_and_can_be_written(linker: object) -> None:
    found = linker().predict(REFERENCES, ["alga"], 2, explain=True)  # type: ignore[operator]
    first = found[0].reasons
    assert first is not None and first.head.id == "alga" and first.tail.id == found[0].tail
    content = json.loads(found.to_json())
    assert content[0]["reasons"]["sentences"] == first.sentences()
    assert found.to_tsv().splitlines()[0].endswith("\treasons")
    for sentence in first.sentences():
        assert sentence.endswith(".") and "\n" not in sentence
    assert f"alga → {first.tail.name} has a score" in first.sentences()[0]


def test_a_reference_to_itself_is_explained_too() -> None:
    for linker in (trail(), fsrl()):
        told = linker.explain([("virus", "virus")], "virus", "virus")
        assert np.isfinite(told.score) and told.sentences()


def test_unknown_ends_are_refused() -> None:
    with pytest.raises(FewlinkError, match="unknown tail 'cel'; did you mean 'cell'"):
        fsrl().explain(REFERENCES, "alga", "cel")
