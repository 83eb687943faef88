"""The HTTP interface: the answers of each endpoint equal those of the linker."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from tests.conftest import benchmark_of, graph_of
from tests.linker.linkers import references_of
from tests.server.servers import PAIRS, Known, asking, fsrl, namesakes, small, trail

from fewlink.graph import Vocabulary
from fewlink.linker import Linker, Predictions
from fewlink.linker.probability import ROUGH
from fewlink.linker.trust import MAX_IN_TURN
from fewlink.models.contract import capabilities
from fewlink.server import schema
from fewlink.tasks import SPLITS, Benchmark


def rows_of(answer: Any) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


def plain(rows: Any) -> Any:
    """Values after a round trip through JSON."""
    return json.loads(json.dumps(rows))


def alone(predictions: Predictions) -> list[dict[str, Any]]:
    """The rows of the linker as the server writes them in a graph in which every name is unique."""
    return [{**row, "head_name_shared": False, "tail_name_shared": False} for row in predictions.to_dicts()]


def test_health_and_about() -> None:
    with asking(small()) as client:
        assert client.get("/health").json()["status"] == "ok"
        about = client.get("/about").json()
        schema.About(**about)
        assert about["graph"] == {"name": "small", "entities": 5, "relations": 3, "triples": 5, "types": 3}
        assert about["relations"]["test"] == ["visited"] and about["calibration"] is None
        assert about["limits"]["k"] == 100 and about["limits"]["seconds"] == 150 and about["evidence"] == {}
    with asking(trail()) as client:
        assert client.get("/about").json()["evidence"] == capabilities(trail().scorer).evidence


def test_completion_of_entities_and_types() -> None:
    with asking(small()) as client:
        assert client.get("/entities", params={"q": "OS"}).json()[0]["name"] == "oslo"
        assert client.get("/entities").json() == []
        everyone = [{"name": "person", "members": 3}, {"name": "city", "members": 2}]
        assert client.get("/types").json() == everyone  # types without members are left out
        assert client.get("/types", params={"q": "IT", "limit": 1}).json() == everyone[1:]
    with asking(trail()) as client:
        assert client.get("/types").json() == []


@pytest.mark.parametrize("linker", [trail, fsrl], ids=["trail", "fsrl"])
def test_predictions_and_reasons_equal_the_linkers(linker: Any) -> None:
    found, pairs = linker(), [tuple(pair) for pair in PAIRS]
    query = {"references": PAIRS, "heads": ["alga", "Bacterium"], "k": 3}
    with asking(found) as client:
        answer = client.post("/predict", json={**query, "explain": True})
        content = schema.PredictAnswer(**answer.json())
        expected = found.predict(pairs, ["alga", "bacterium"], 3, explain="full")
        assert plain(alone(expected)) == rows_of(answer)
        assert content.predictions[0].reasons and content.predictions[0].reasons.lines
        shown = rows_of(client.post("/predict", json={**query, "heads": ["virus"], "exclude_known": False, "k": 100}))
        assert [row["tail"] for row in shown if row["known"]] == ["cell"]
        reasons = client.post("/explain", json={"references": PAIRS, "head": "alga", "tail": "plant"}).json()
        assert reasons == plain(found.explain(pairs, "alga", "plant").to_dict())


def test_best_pairs_are_joined_from_turns() -> None:
    found, pairs = trail(), [tuple(pair) for pair in PAIRS]
    everyone = list(found.graph.entities)
    with asking(found) as client:
        answer = client.post("/predict", json={"references": PAIRS, "heads_of_type": "all", "k": 20})
        assert [(row["head"], row["tail"]) for row in rows_of(answer)] == [
            (row.head, row.tail) for row in found.predict_pairs(pairs, everyone, 20)
        ]
        listed = rows_of(client.post("/predict", json={"references": PAIRS, "heads": everyone[:20], "k": 2}))
        assert [(row["tail"], row["rank"]) for row in listed] == [
            (row["tail"], row["rank"]) for row in plain(found.predict(pairs, everyone[:20], 2).to_dicts())
        ]


def test_candidates_by_type_list_and_keyword() -> None:
    query = {"references": [["ann", "rome"]], "heads": ["bob"]}

    def tails(client: Any, **more: Any) -> list[str]:
        return [row["tail"] for row in rows_of(client.post("/predict", json={**query, **more}))]

    with asking(small()) as client:
        assert tails(client) == tails(client, candidates="open") == ["rome", "oslo"]
        assert tails(client, candidates="person") == ["cy", "ann"]
        assert tails(client, candidates=["oslo", "ann"]) == ["oslo", "ann"]
        assert tails(client, candidates="all", k=2) == ["cy", "rome"]
        assert tails(client, candidates="full", relation="visited", exclude_known=False) == ["rome", "oslo"]
        pairs = rows_of(client.post("/predict", json={"references": [["ann", "rome"]], "heads_of_type": "person"}))
        assert [(row["head"], row["tail"]) for row in pairs][:2] == [("cy", "rome"), ("bob", "rome")]
        without = client.post("/predict", json={"relation": "visited", "heads": ["cy"], "k": 1})
        assert rows_of(without)[0]["tail"] == "oslo"


def test_the_example_is_a_relation_of_the_benchmark() -> None:
    with asking(trail()) as client:
        first, second = (client.get("/example", params={"number": number}).json() for number in (0, 1))
        assert first["relation"] == "associated_with" and second["relation"] == "produces"
        assert len(first["references"]) == trail().shots and 1 <= len(first["heads"]) <= 4
        ids = [[entity["id"] for entity in pair] for pair in first["references"]]
        heads = [head["id"] for head in first["heads"]]
        assert rows_of(client.post("/predict", json={"references": ids, "heads": heads, "relation": first["relation"]}))
    lone = small()
    with asking(Linker(lone.benchmark, lone.scorer, shots=9)) as client:
        assert client.get("/example").status_code == 422


def test_relations_are_listed_with_an_example_and_how_complete_they_look() -> None:
    with asking(small()) as client:
        listed = client.get("/relations").json()
        schema.RelationList(**listed)
        assert [one["name"] for one in listed["relations"]] == ["visited", "lives", "near", "knows"]
        lives = listed["relations"][1]
        assert (lives["type"], lives["heads"], lives["of_kind"], lives["split"]) == ("person", 3, 3, None)
        assert listed["relations"][0]["split"] == "test" and lives["pairs"] == lives["heads"] == 3
        order = [one["name"] for one in client.get("/relations", params={"order": "missing"}).json()["relations"]]
        assert order[0] == "knows"  # two of three people know nobody
        page = client.get("/relations", params={"order": "name", "first": 1, "count": 2, "q": "s"}).json()
        assert (page["matching"], [one["name"] for one in page["relations"]]) == (3, ["lives", "visited"])


def test_heads_are_found_for_tails() -> None:
    linker = trail()
    body = {"references": PAIRS, "tails": ["plant", "cell"], "k": 4}
    with asking(linker) as client:
        answer = client.post("/predict", json=body).json()
        schema.PredictAnswer(**answer)
        pairs = [(head, tail) for head, tail in PAIRS]
        expected = linker.heads(["plant", "cell"], pairs, 4)
        assert plain(answer["predictions"]) == plain(alone(expected)) and answer["heads"] == 2
        assert [row["tail"] for row in answer["predictions"]] == ["plant"] * 4 + ["cell"] * 4
        first = answer["predictions"][0]
        ends = {"head": first["head"], "tail": first["tail"]}
        reasons = client.post("/explain", json={"references": PAIRS, **ends, "inverse": True}).json()
        assert reasons["score"] == pytest.approx(first["score"], abs=1e-4)
        assert plain(reasons) == plain(linker.explain(pairs, first["head"], first["tail"], inverse=True).to_dict())
        unknown = client.post("/predict", json={**body, "tails": ["plnt"]})
        assert (unknown.status_code, unknown.json()["error"]["field"]) == (404, "tails.0")


def test_some_tails_of_each_of_many_heads() -> None:
    linker = trail()
    body = {"references": PAIRS, "heads_of_type": "open", "per_head": 2, "first": 3, "count": 5}
    with asking(linker, rows=20) as client:
        answer = client.post("/predict", json=body).json()
        heads = list(dict.fromkeys(row["head"] for row in answer["predictions"]))
        expected = linker.predict([(head, tail) for head, tail in PAIRS], heads, 2)
        assert plain(answer["predictions"]) == plain(alone(expected))
        assert len(heads) == answer["heads"] == 5 < answer["heads_in_all"]
        completed = linker.complete([(head, tail) for head, tail in PAIRS], top=1000, k=1)
        assert answer["heads_in_all"] == len({row.head for row in completed})  # the heads of `fewlink complete`
        refused = client.post("/predict", json={**body, "per_head": 30})
        assert (refused.status_code, refused.json()["error"]["field"]) == (422, "per_head")


def test_a_graph_is_served_without_a_run() -> None:
    graph = trail().graph
    linker = Linker.shipped(Benchmark("graph.tsv", graph, {split: [] for split in SPLITS}))
    with asking(linker) as client:
        about = client.get("/about").json()
        assert (about["model"], about["graph"]["name"]) == ("trail", "graph.tsv")
        schema.About(**about)
        assert about["calibration"]["rough"] == (about["calibration"]["error"] > ROUGH)
        example = client.get("/example").json()
        assert example["relation"] in graph.relations and example["in_graph"] and example["references"] == []
        ids = [list(pair) for pair in references_of(linker, example["relation"], linker.shots)]
        heads = [head["id"] for head in example["heads"]]
        answer = client.post("/predict", json={"references": ids, "heads": heads, "k": 2})
        rows, trust = rows_of(answer), answer.json()["trust"]
        schema.PredictAnswer(**answer.json())
        assert len(rows) == 2 * len(heads) and trust["tested"] == MAX_IN_TURN
        assert all((row["probability"] is not None) == trust["shown"] for row in rows)
        in_python = linker.predict([tuple(pair) for pair in ids], heads, 2)
        assert in_python.trust is not None and trust == vars(in_python.trust)
        named = {"relation": example["relation"], "heads_of_type": "all", "k": 2}
        best = client.post("/predict", json=named).json()
        assert best["trust"]["sentence"] and best["trust"]["tested"] > 2  # the model does not see the relation
        everything = [graph.entities[number] for number in range(len(graph.entities))]
        in_python = linker.predict_pairs(type_or_heads=everything, relation=example["relation"], k=2)
        assert [row["tail"] for row in best["predictions"]] == [row.tail for row in in_python]


def test_every_endpoint_is_in_the_schema() -> None:
    with asking(small()) as client:
        openapi = client.get("/openapi.json").json()
        assert client.get("/redoc").status_code == 404
    endings = ("", "/decisions", "/undo", "/log", "/export", "/import", "/next")
    projects = {"/formats", "/projects", *(f"/projects/{{number}}{ending}" for ending in endings)}
    lookups = {"/about", "/entities", "/entity", "/relations", "/types", "/example"}
    questions = {"/health", *lookups, "/predict", "/explain"}
    assert set(openapi["paths"]) == questions | projects
    for path, methods in openapi["paths"].items():
        for method in methods.values():
            good = method["responses"].get("200") or method["responses"]["201"]
            assert path in ("/health", *projects) or good["content"]["application/json"]["schema"], path
            assert method["description"], path
            for status in ("401", "404", "413", "422", "503"):
                error = method["responses"][status]["content"]["application/json"]["schema"]
                assert error == {"$ref": "#/components/schemas/ErrorAnswer"}, (path, status)
    properties = openapi["components"]["schemas"]["PredictRequest"]["properties"]
    assert properties["k"]["maximum"] == 100


def test_many_heads_are_ranked_some_at_a_time_those_without_a_tail_first() -> None:
    query = {"references": [["ann", "rome"]], "k": 3, "exclude_known": False}
    with asking(small()) as client:

        def ranked(**more: Any) -> Any:
            return client.post("/predict", json={**query, **more})

        parts = [ranked(heads_of_type="all", first=first, count=2).json() for first in (0, 2, 4, 6)]
        assert [(part["heads"], part["heads_in_all"]) for part in parts] == [(2, 5), (2, 5), (1, 5), (0, 5)]
        heads = [list(dict.fromkeys(row["head"] for row in part["predictions"])) for part in parts]
        assert sorted(head for part in heads for head in part) == ["ann", "bob", "cy", "oslo", "rome"]
        assert {*heads[0]} == {"bob", "cy"} and heads[3] == []  # of the kind of the reference's head, without a tail
        persons = [ranked(heads_of_type="open", first=first, count=1).json() for first in range(4)]
        assert [part["predictions"][0]["head"] if part["heads"] else "" for part in persons] == ["bob", "cy", "ann", ""]


def test_hints_distinguish_entities_of_one_name() -> None:
    graph = graph_of("city:paris in france", "person:paris likes music", "france has music")
    names = ["Paris", "France", "Paris", "Music"]
    labels = Vocabulary.of([*names, *graph.relations])
    linker = Linker(benchmark_of(dataclasses.replace(graph, labels=labels)), Known())
    with asking(linker) as client:
        offers = client.get("/entities", params={"q": "paris"}).json()
        assert {offer["id"]: offer["hint"] for offer in offers} == {
            "city:paris": "—in→ France",
            "person:paris": "—likes→ Music",
        }
        error = client.post("/predict", json={"references": [["Paris", "France"]], "heads": ["France"]}).json()["error"]
        assert {offer["hint"] for offer in error["suggestions"][:2]} == {"—in→ France", "—likes→ Music"}
    with asking(small()) as client:
        assert client.get("/entities", params={"q": "cy"}).json()[0]["hint"] == "person · —lives→ oslo"


def test_rows_say_which_names_other_entities_have() -> None:
    with asking(namesakes()) as client:
        body = {"relation": "lives", "heads": ["bob_1", "cy"]}
        rows = rows_of(client.post("/predict", json=body))
        shared = {(row["head"], row["tail"]): (row["head_name_shared"], row["tail_name_shared"]) for row in rows}
        assert shared == {
            ("bob_1", "paris_1"): (True, True),
            ("bob_1", "oslo"): (True, False),
            ("cy", "paris_1"): (False, True),
            ("cy", "oslo"): (False, False),
        }
        heads = rows_of(client.post("/predict", json={"relation": "lives", "tails": ["oslo"]}))
        assert {row["head"] for row in heads if row["head_name_shared"]} == {"bob_1"}
        assert not any(row["tail_name_shared"] for row in heads)


def test_constraints_rule_out_tails_and_answers_have_tail_types() -> None:
    query = {"references": [["ann", "oslo"]], "heads": ["bob", "cy"], "k": 1, "candidates": "city"}
    with asking(small()) as client:
        assert "functional" in client.get("/about").json()["constraints"]
        free = client.post("/predict", json=query).json()
        assert [row["tail"] for row in free["predictions"]] == ["rome", "rome"]
        assert free["tail_types"] == {"rome": ["city"]}
        bound = client.post("/predict", json={**query, "constraints": ["inverse-functional"]}).json()
        assert [row["tail"] for row in bound["predictions"]] == ["rome"]
        assert any("inverse-functional" in note for note in bound["notes"])
        wrong = client.post("/predict", json={**query, "constraints": ["functionall"]})
        assert wrong.status_code == 404 and "functional" in wrong.json()["error"]["message"]
