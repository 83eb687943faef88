"""Errors of the API: each has a code and a one-line message, and no input causes a server error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.server.servers import PAIRS, Known, asking, small, trail

from fewlink.core.errors import InputError
from fewlink.graph import Graph

QUERY: dict[str, Any] = {"references": [["ann", "rome"]], "heads": ["bob"]}


def error_of(answer: Any, status: int) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error"]
    return answer.json()["error"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"references": []}, "references"),
        ({"references": [["ann"]]}, "references.0"),
        ({"references": [["ann", ""]]}, "references.0.1"),
        ({"references": [["ann", "x" * 501]]}, "references.0.1"),
        ({"references": None}, "references"),
        ({"heads": None}, "heads"),
        ({"heads_of_type": "city"}, "heads"),
        ({"heads": []}, "heads"),
        ({"heads": "bob"}, "heads"),
        ({"heads": [7]}, "heads.0"),
        ({"count": 1}, "count"),
        ({"per_head": 1}, "per_head"),
        ({"tails": ["oslo"]}, "heads"),
        ({"k": 0}, "k"),
        ({"k": "3"}, "k"),
        ({"k": True}, "k"),
        ({"k": 101}, "k"),
        ({"k": 10**400}, "k"),
        ({"candidates": []}, "candidates"),
        ({"candidates": {"type": "city"}}, "candidates"),
        ({"candidates": "ghost"}, None),
        ({"candidates": "full"}, None),
        ({"heads": None, "heads_of_type": "all", "k": 50, "explain": True}, "explain"),
        ({"path": "/etc/passwd"}, "path"),
    ],
)
def test_an_invalid_request_names_its_field(changes: Any, field: str | None) -> None:
    with asking(small(), explained=40) as client:
        error = error_of(client.post("/predict", json={**QUERY, **changes}), 422)
    assert error.get("field") == field and error["message"] and "\n" not in error["message"]


@pytest.mark.parametrize(
    ("changes", "field", "nearest"),
    [
        ({"references": [["ann", "rme"]]}, "references.0.1", ["rome"]),
        ({"rejected": [["ann", "oslo"], ["rme", "oslo"]]}, "rejected.1.0", ["rome"]),
        ({"heads": ["bob", "osloo"]}, "heads.1", ["oslo"]),
        ({"candidates": ["rome", "zzzzzz"]}, "candidates.1", []),
        ({"heads": None, "heads_of_type": "perso"}, "heads_of_type", []),
    ],
)
def test_an_unknown_name_is_404_with_suggestions(changes: Any, field: str, nearest: list[str]) -> None:
    with asking(small()) as client:
        error = error_of(client.post("/predict", json={**QUERY, **changes}), 404)
    assert error["code"] == "unknown-name" and error["field"] == field
    assert [entity["id"] for entity in error.get("suggestions", [])] == nearest


@pytest.mark.parametrize(("changes", "near"), [({"relation": "visitd"}, "visited"), ({"candidates": "cty"}, "city")])
def test_the_error_for_an_unknown_relation_or_type_has_a_similar_name(changes: Any, near: str) -> None:
    with asking(small()) as client:
        error = error_of(client.post("/predict", json={**QUERY, **changes}), 404)
    assert error["code"] == "unknown-name" and near in error["message"]


def test_settings_of_the_server_limit_requests() -> None:
    linker = small()
    with asking(linker, rows=4) as client:
        error = error_of(client.post("/predict", json={**QUERY, "heads": ["ann", "bob"], "k": 3}), 422)
        assert error["code"] == "limit" and error["field"] == "k"
    assert isinstance(linker.scorer, Known) and not linker.scorer.calls


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b"\xff\xfe", 422),
        (b'"\x80"', 400),
        (b"[" * 100_000, 400),
        (b'{"k": ' + b"9" * 5000 + b"}", 400),
        (b'{"k": NaN, "heads": ["bob"], "references": [["ann", "rome"]]}', 422),
        (b'{"heads": ["\\ud800"], "references": [["ann", "rome"]]}', 422),
        (b" " * (1 << 20) + b"{}", 413),
    ],
)
def test_invalid_bodies(body: bytes, status: int) -> None:
    with asking(small()) as client:
        for path in ("/predict", "/explain"):
            error_of(client.post(path, content=body, headers={"content-type": "application/json"}), status)


def test_a_large_body_without_a_length_is_rejected() -> None:
    with asking(small(), body=1000) as client:
        pieces = (b" " * 400 for _ in range(10))
        assert error_of(client.post("/predict", content=pieces), 413)["code"] == "too-large"


def test_only_json_is_read() -> None:
    with asking(small()) as client:
        plain = {"content-type": "text/plain"}
        error_of(client.post("/predict", content=json.dumps(QUERY), headers=plain), 422)


def test_unknown_paths_and_methods() -> None:
    with asking(small()) as client:
        assert error_of(client.get("/nothing"), 404)["code"] == "not-found"
        assert error_of(client.get("/../../etc/passwd"), 404)["code"] == "not-found"
        assert error_of(client.get("/predict"), 405)["code"] == "method-not-allowed"
        assert error_of(client.delete("/health"), 405)
        assert error_of(client.get("/entities", params={"limit": 0}), 422)["field"] == "limit"
        assert error_of(client.get("/entities", params={"q": "x" * 501}), 422)["field"] == "q"
        assert error_of(client.get("/example", params={"number": -1}), 422)["field"] == "number"


HOSTILE = ["../../etc/passwd", "<script>alert(1)</script>", "'; DROP TABLE x; --", "\x00", "\n", "\u202e", "💥", " "]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_only_unknown(name: str) -> None:
    with asking(trail()) as client:
        for place in ({"heads": [name]}, {"references": [[name, "cell"]]}, {"candidates": [name]}, {"relation": name}):
            query = {"references": PAIRS, "heads": ["alga"], **place}
            assert error_of(client.post("/predict", json=query), 404)["code"] == "unknown-name"
        explain = {"references": PAIRS, "head": name, "tail": "cell"}
        assert error_of(client.post("/explain", json=explain), 404)["field"] == "head"
        assert client.get("/entities", params={"q": name}).status_code == 200
        assert client.get("/types", params={"q": name}).status_code == 200


def test_a_failing_scorer_is_a_server_error_and_the_next_request_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    linker = small()
    with asking(linker) as client:
        with monkeypatch.context() as patch:
            patch.setattr(Known, "__call__", lambda self, question: 1 / 0)
            error = error_of(client.post("/predict", json=QUERY), 500)
            assert error["code"] == "internal" and "division" not in error["message"]
        assert client.post("/predict", json=QUERY).status_code == 200


def test_nothing_is_read_of_a_graph_whose_file_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read it would end the server."""

    def cut_off(_: Graph) -> None:
        raise InputError("tail_ids.npy", "was cut off while it was in use")

    monkeypatch.setattr(Graph, "check_files", cut_off)
    explain = {"references": QUERY["references"], "head": "bob", "tail": "rome"}
    with asking(small()) as client:
        answers = [client.get(path) for path in ("/entities?q=a", "/entity?id=ann", "/relations", "/about")]
        answers += [client.post("/predict", json=QUERY), client.post("/explain", json=explain)]
        for answer in answers:
            assert "was cut off" in error_of(answer, 422)["message"]
        assert client.get("/health").status_code == 200
