"""The reconciliation service at /reconcile: answers follow the protocol and agree with the graph."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bridges import schemas
from tests.conftest import benchmark_of, graph_of
from tests.server.servers import PAIRS, Known, small, trail

from fewlink.bridges import openrefine
from fewlink.bridges.reconciliation import Reconciler
from fewlink.graph import Graph, TypeTable, Vocabulary
from fewlink.linker import Linker
from fewlink.server import ServerSettings
from fewlink.server.app import make_app

jsonschema = pytest.importorskip("jsonschema")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
LIKES = {"name": "likes", "references": [["ann", "oslo"], ["bob", "rome"]]}


@contextmanager
def serving(linker: Linker | None = None, project: Path | None = None, **settings: Any) -> Iterator[TestClient]:
    app = make_app(linker or small(), ServerSettings(**settings), project, extensions=[openrefine.install])
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def valid(answer: Any, schema: dict[str, Any]) -> Any:
    assert answer.status_code == 200, answer.text
    jsonschema.Draft202012Validator(schema).validate(answer.json())
    return answer.json()


def matched(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    answer = client.post("/reconcile", data={"queries": json.dumps({"q0": query})})
    result: list[dict[str, Any]] = valid(answer, schemas.RESULTS)["q0"]["result"]
    return result


def extended(client: TestClient, ids: list[str], *properties: dict[str, Any]) -> dict[str, Any]:
    body = {"extend": json.dumps({"ids": ids, "properties": properties})}
    answer: dict[str, Any] = valid(client.post("/reconcile", data=body), schemas.EXTENDED)
    assert answer == client.get("/reconcile", params=body).json()
    return answer


def test_the_manifest_describes_the_service_and_its_addresses_answer() -> None:
    with serving() as client:
        manifest = valid(client.get("/reconcile"), schemas.MANIFEST)
        assert [kind["id"] for kind in manifest["defaultTypes"]] == ["person", "city"]
        entity, kind, of = (manifest["suggest"][each] for each in ("entity", "type", "property"))
        found = valid(
            client.get(entity["service_url"] + entity["service_path"] + "?prefix=an"), schemas.SUGGESTED_ENTITIES
        )
        assert [(row["id"], row["notable"]) for row in found["result"]] == [
            ("ann", [{"id": "person", "name": "person"}])
        ]
        found = valid(client.get(kind["service_url"] + kind["service_path"] + "?prefix=c"), schemas.SUGGESTED_TYPES)
        assert [row["id"] for row in found["result"]] == ["city"]
        found = valid(client.get(of["service_url"] + of["service_path"] + "?prefix="), schemas.SUGGESTED_PROPERTIES)
        assert [row["id"] for row in found["result"]] == ["lives", "near", "knows", "visited"]
        page = client.get(manifest["preview"]["url"].replace("{{id}}", "ann"))
        assert page.headers["content-type"].startswith("text/html") and "lives → oslo" in page.text
        assert client.get("/reconcile/preview?id=nobody").status_code == 404


def test_properties_are_proposed_for_a_type(tmp_path: Path) -> None:
    with serving(project=tmp_path / "decisions") as client:
        client.post("/projects", json=LIKES)
        proposed = valid(client.get("/reconcile/properties?type=person"), schemas.PROPOSED)
        names = [row["id"] for row in proposed["properties"]]
        assert names == ["likes", "likes (probability)", "lives", "knows"]
        proposed = valid(client.get("/reconcile/properties?type=city&limit=1"), schemas.PROPOSED)
        assert (proposed["limit"], len(proposed["properties"])) == (1, 1)


def test_a_name_or_an_id_finds_its_entity() -> None:
    with serving() as client:
        [best] = matched(client, query="Ann")
        assert (best["id"], best["score"], best["match"], best["type"][0]["id"]) == ("ann", 100.0, True, "person")
        first = matched(client, query="osla")[0]
        assert first["id"] == "oslo" and 60 < first["score"] < 100 and not first["match"]
        assert matched(client, query="zzzz") == matched(client, query="z" * 5_000) == []
        batch = {"a": {"query": "ann"}, "b": {"query": "rome", "limit": 1}}
        both = valid(client.get("/reconcile", params={"queries": json.dumps(batch)}), schemas.RESULTS)
        assert [both[key]["result"][0]["id"] for key in "ab"] == ["ann", "rome"]


def namesakes() -> Linker:
    """Two entities named Paris: a city in France and a person who lives in Rome."""
    plain = graph_of("p1 in france", "p2 lives rome")
    names = ["Paris" if name in ("p1", "p2") else name for name in [*plain.entities, *plain.relations]]
    order = list(plain.entities)
    kinds = np.array([{"p1": 0, "p2": 1, "france": 2, "rome": 0}[name] for name in order])
    types = TypeTable.of([b"city", b"person", b"state"], np.arange(4), kinds, 4)
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=types, labels=Vocabulary.of(names))
    return Linker(benchmark_of(graph), Known())


def test_types_and_properties_distinguish_namesakes() -> None:
    with serving(namesakes()) as client:
        assert [(row["score"], row["match"]) for row in matched(client, query="paris")] == [(100.0, False)] * 2
        assert [(row["id"], row["match"]) for row in matched(client, query="paris", type="city")] == [("p1", True)]
        should = matched(client, query="paris", type=["person"], type_strict="should")
        assert [(row["id"], row["score"]) for row in should] == [("p2", 100.0), ("p1", 50.0)]
        for value in ("Rome", {"id": "rome", "name": "Rome"}, ["nowhere", {"id": "rome"}]):
            found = matched(client, query="paris", properties=[{"pid": "lives", "v": value}])
            assert [(row["id"], row["match"]) for row in found] == [("p2", True), ("p1", False)]
            assert found[0]["score"] > found[1]["score"]


def test_known_tails_extend_and_predicted_ones_on_demand() -> None:
    with serving() as client:
        answer = extended(client, ["ann", "bob", "nobody"], {"id": "lives"}, {"id": "visited"})
        assert answer["meta"] == [{"id": "lives", "name": "lives"}, {"id": "visited", "name": "visited"}]
        rows = answer["rows"]
        assert rows["ann"] == {
            "lives": [{"id": "oslo", "name": "oslo"}],
            "visited": [{"id": "oslo", "name": "oslo"}, {"id": "rome", "name": "rome"}],
        }
        assert rows["nobody"] == {"lives": [], "visited": []}
        answer = extended(client, ["bob"], {"id": "lives", "settings": {"limit": "1"}})
        known, predicted = answer["rows"]["bob"]["lives"]
        assert known == {"id": "rome", "name": "rome"}
        assert predicted["description"] == "predicted, rank 1"
        assert extended(client, ["bob"], {"id": "lives", "settings": {"limit": 0}})["rows"]["bob"]["lives"] == [known]


def test_described_relations_extend_by_predictions(tmp_path: Path) -> None:
    with serving(project=tmp_path / "decisions") as client:
        client.post("/projects", json=LIKES)
        [cell] = extended(client, ["cy"], {"id": "likes"})["rows"]["cy"]["likes"]
        assert cell["id"] in ("oslo", "rome") and cell["description"].startswith("predicted, ")
        cells = extended(client, ["ann"], {"id": "likes"})["rows"]["ann"]["likes"]
        assert cells[0] == {"id": "oslo", "name": "oslo"}  # a reference
        both = extended(client, ["cy"], {"id": "likes"}, {"id": "likes (probability)"})["rows"]["cy"]
        assert [len(column) for column in both.values()] == [1, 1]
        assert both["likes (probability)"] == [{}]  # this linker is not calibrated
        assert extended(client, ["cy"], {"id": "likes", "settings": {"least": 0.5}})["rows"]["cy"]["likes"] == []


def test_relations_of_projects_are_properties(tmp_path: Path) -> None:
    with serving(project=tmp_path / "decisions") as client:
        assert client.post("/projects", json=LIKES).status_code == 201
        names = [row["id"] for row in client.get("/reconcile/suggest/property?prefix=lik").json()["result"]]
        assert names == ["likes", "likes (probability)"]
        [cell] = extended(client, ["cy"], {"id": "likes"})["rows"]["cy"]["likes"]
        assert cell["id"] in ("oslo", "rome")
        number = client.get("/projects").json()["projects"][0]["number"]
        wrong = {"decisions": [{"decision": "rejected", "head": "cy", "tail": cell["id"]}]}
        assert client.post(f"/projects/{number}/decisions", json=wrong).status_code == 200
        lost = {"text": "cy,lost,rejected\n", "format": "csv"}  # an entity that the graph lacks
        assert client.post(f"/projects/{number}/import", json=lost).status_code == 200
        for of in ("likes", "likes (probability)"):
            cells = extended(client, ["cy"], {"id": of, "settings": {"limit": 5}})["rows"]["cy"][of]
            assert len(cells) == 1 and cell["id"] not in [other.get("id") for other in cells]


def test_a_calibrated_model_extends_by_probabilities(tmp_path: Path) -> None:
    with serving(trail(), tmp_path / "decisions") as client:
        client.post("/projects", json={"name": "eats", "references": PAIRS})
        answer = extended(client, ["bacterium"], {"id": "eats", "settings": {"limit": 3}}, {"id": "eats (probability)"})
        row = answer["rows"]["bacterium"]
        assert len(row["eats"]) == 3 and len(row["eats (probability)"]) == 1


@pytest.mark.parametrize(
    ("sent", "status", "named"),
    [
        ({"queries": "{"}, 400, "queries"),
        ({"queries": "[]"}, 422, "queries"),
        ({"queries": '{"q": {}}'}, 422, "'q'"),
        ({"queries": '{"q": {"query": "a", "limit": 0}}'}, 422, "limit"),
        ({"queries": '{"q": 3}'}, 422, "valid"),
        ({"queries": json.dumps({str(i): {"query": "a"} for i in range(101)})}, 413, "101 queries"),
        ({"extend": '{"ids": ["ann"]}'}, 422, "properties"),
        ({"extend": '{"ids": ["ann"], "properties": [{"id": "nothing"}]}'}, 404, "'nothing'"),
        ({"extend": '{"ids": ["ann"], "properties": [{"id": "lives", "settings": {"limit": 1000}}]}'}, 422, "limit"),
        ({"other": "x"}, 422, "'queries'"),
    ],
)
def test_invalid_requests_are_refused(sent: dict[str, str], status: int, named: str) -> None:
    with serving() as client:
        answer = client.post("/reconcile", data=sent)
        assert answer.status_code == status and named in answer.json()["error"]["message"]


def test_pages_of_this_machine_may_read_answers_and_others_may_not() -> None:
    with serving(hosts=LOOPBACK) as client:
        for origin in ("http://127.0.0.1:3333", "http://localhost:3333", "http://[::1]:3333"):
            answer = client.get("/reconcile", headers={"Origin": origin})
            assert answer.headers["access-control-allow-origin"] == origin and answer.headers["vary"] == "Origin"
            asked = client.options("/reconcile", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
            assert asked.status_code == 204 and "POST" in asked.headers["access-control-allow-methods"]
        for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example"):
            assert "access-control-allow-origin" not in client.get("/reconcile", headers={"Origin": origin}).headers
        page = client.get("/reconcile/preview?id=ann").headers
        assert "x-frame-options" not in page and "http://127.0.0.1:*" in page["content-security-policy"]
        other = client.get("/about", headers={"Origin": "http://127.0.0.1:3333"}).headers
        assert "access-control-allow-origin" not in other and other["x-frame-options"] == "DENY"
    with serving() as client:  # a server for other machines
        answer = client.get("/reconcile", headers={"Origin": "https://refine.example"})
        assert answer.headers["access-control-allow-origin"] == "https://refine.example"


def test_a_token_may_be_part_of_the_address() -> None:
    with serving(token="s3cret") as client:
        manifest = valid(client.get("/reconcile"), schemas.MANIFEST)
        assert manifest["authentication"] == {"type": "apiKey", "name": "token", "in": "query"}
        assert "s3cret" not in json.dumps(manifest)
        assert manifest["name"] == "fewlink" and manifest["defaultTypes"] == []  # nothing about the graph
        queries = {"queries": json.dumps({"q": {"query": "ann"}})}
        for path in ("/reconcile", "/reconcile?token=wrong", "/reconcile?token="):
            assert client.post(path, data=queries).status_code == 401
        for query in ("token=wrong", "token=", "token", "x&token=", "queries=", "extend"):
            assert client.get(f"/reconcile?{query}").status_code == 401
        assert client.get("/reconcile", headers={"Authorization": ""}).json()["name"] == "fewlink"
        assert client.get("/reconcile", params=queries).status_code == 401
        assert client.get("/reconcile/suggest/entity?prefix=a").status_code == 401
        assert client.get("/about?token=s3cret").status_code == 401  # only under /reconcile
        assert client.post("/reconcile?token=s3cret", data=queries).status_code == 200
        assert client.post("/reconcile", data=queries, headers={"Authorization": "Bearer s3cret"}).status_code == 200
        manifest = valid(client.get("/reconcile?token=s3cret"), schemas.MANIFEST)
        entity = manifest["suggest"]["entity"]
        assert client.get(entity["service_url"] + entity["service_path"] + "&prefix=a").status_code == 200
        assert client.get(manifest["preview"]["url"].replace("{{id}}", "ann")).status_code == 200


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
names = st.sampled_from(["ann", "oslo", "lives", "likes", "city", "q0", ""])
words = st.sampled_from(["query", "type", "limit", "properties", "pid", "v", "id", "ids", "settings", "type_strict"])
anything = st.recursive(
    scalars | names, lambda of: st.lists(of, max_size=3) | st.dictionaries(words | names, of, max_size=4)
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(project=tmp_path_factory.mktemp("projects") / "decisions") as one:
        one.post("/projects", json=LIKES)
        yield one


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["queries", "extend"]), anything, words)
def test_any_request_is_answered_or_refused(client: TestClient, field: str, value: Any, word: str) -> None:
    for sent in (value, {"q0": value}, {"q0": {"query": "ann", word: value}}, {"ids": ["ann"], "properties": value}):
        answer = client.post("/reconcile", data={field: json.dumps(sent)})
        assert answer.status_code in (200, 400, 404, 413, 422), answer.text


def test_names_are_not_markup_in_a_preview() -> None:
    graph = graph_of("<b>a</b> r x")
    linker = Linker(benchmark_of(graph), Known())
    page = Reconciler(linker).preview(graph.entities.id("<b>a</b>"))
    assert "<b>" not in page and "&lt;b&gt;" in page


def test_pages_of_other_sites_cannot_send_queries_to_a_local_server() -> None:
    queries = {"queries": json.dumps({"q": {"query": "ann"}})}
    with serving(hosts=LOOPBACK) as client:
        answer = client.post("/reconcile", data=queries, headers={"Origin": "https://evil.example"})
        assert answer.status_code == 403
        for headers in ({}, {"Origin": "http://127.0.0.1:3333", "Sec-Fetch-Site": "same-site"}):
            assert client.post("/reconcile", data=queries, headers=headers).status_code == 200
