"""Projects over HTTP: the server stores decisions, reports conflicts, and learns which pairs to suggest next."""

from __future__ import annotations

import csv
import http.client
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.linker.linkers import umls
from tests.server.servers import PAIRS, asking, small

from fewlink.core.errors import InputError
from fewlink.curation.exports import COLUMNS, FORMATS
from fewlink.curation.store import ProjectFile
from fewlink.linker import Linker
from fewlink.server import ServerSettings
from fewlink.server.app import make_app
from fewlink.server.process import project_file


@pytest.fixture(scope="module")
def linker() -> Linker:
    return Linker.shipped(umls())


@pytest.fixture
def client(linker: Linker, tmp_path: Path) -> Iterator[TestClient]:
    app = make_app(linker, ServerSettings(), tmp_path / "umls.decisions")
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as made:
        yield made


def started(client: TestClient, name: str = "interacts") -> int:
    answer = client.post("/projects", json={"name": name, "references": PAIRS, "who": "ann"})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["number"])


def decide(client: TestClient, number: int, who: str, *decisions: tuple[str, str, str]) -> Any:
    body = {"who": who, "decisions": [{"head": h, "tail": t, "decision": d} for d, h, t in decisions]}
    answer = client.post(f"/projects/{number}/decisions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_nothing_is_written_before_there_is_a_project(client: TestClient, tmp_path: Path) -> None:
    assert client.get("/projects").json() == {"projects": []}
    assert not (tmp_path / "umls.decisions").exists()
    number = started(client)
    (project,) = client.get("/projects").json()["projects"]
    assert (project["number"], project["references"]) == (number, 2)


def test_a_project_tells_its_progress_and_warns_of_a_tail_that_crowds_out_the_rest(client: TestClient) -> None:
    number = started(client)
    project = client.get(f"/projects/{number}").json()
    assert project["progress"] == {"decided": 0, "right": None, "tails": [], "distinct_tails": 0, "warning": None}
    heads = ["body_system", "tissue", "enzyme", "hormone", "virus", "fungus", "bird", "fish", "mammal"]
    decisions = [("accepted", head, "cell") for head in heads]
    answer = decide(
        client, number, "ann", *decisions, ("accepted", "cell", "body_system"), ("rejected", "fish", "bird")
    )
    progress = answer["project"]["progress"]
    assert (progress["decided"], progress["right"], progress["distinct_tails"]) == (11, 10 / 11, 2)
    assert progress["tails"] == [
        {"tail": "cell", "tail_name": "cell", "tail_name_shared": False, "accepted": 9},
        {"tail": "body_system", "tail_name": "body system", "tail_name_shared": False, "accepted": 1},
    ]
    assert progress["warning"].startswith("9 of 10 accepted pairs have the tail cell:")


def test_decisions_are_kept_by_id_with_conflicts_and_names(client: TestClient, tmp_path: Path) -> None:
    number = started(client)
    decide(client, number, "ann", ("accepted", "body system", "cell"))
    answer = decide(client, number, "bob", ("rejected", "body_system", "cell"))
    (state,) = answer["decisions"]
    assert (state["head"], state["head_name"], state["kind"]) == ("body_system", "body system", "rejected")
    assert (state["conflict"]["who"], state["conflict"]["kind"]) == ("ann", "accepted")
    assert answer["project"]["conflicts"] == 1
    with ProjectFile(tmp_path / "umls.decisions") as file:
        assert file.pairs(number, "rejected") == [("body_system", "cell")]
    undone = client.post(f"/projects/{number}/undo", json={"who": "bob"}).json()
    assert undone["undone"]["kind"] == "rejected"
    listed = client.get(f"/projects/{number}/decisions?kind=accepted").json()["decisions"]
    assert [row["who"] for row in listed] == ["ann"]
    assert [event["kind"] for event in client.get(f"/projects/{number}/log").json()["log"]][-1] == "undo"


def test_several_decisions_are_undone_at_once_or_not_at_all(client: TestClient) -> None:
    number = started(client)
    made = decide(client, number, "ann", ("accepted", "alga", "cell"), ("accepted", "alga", "plant"))["decisions"]
    events = [state["number"] for state in made]
    refused = client.post(f"/projects/{number}/undo", json={"who": "ann", "events": [*events, 999]})
    assert refused.status_code == 422 and "999" in refused.json()["error"]["message"]
    assert client.get(f"/projects/{number}").json()["accepted"] == 2
    undone = client.post(f"/projects/{number}/undo", json={"who": "ann", "events": events}).json()
    assert (undone["count"], undone["project"]["accepted"]) == (2, 0)


def test_known_pairs_of_a_named_relation_are_not_suggested(client: TestClient) -> None:
    asked = {"id": "biologic_function", "relation": "affects", "count": 100}
    (affects,) = client.get("/entity", params=asked).json()["relations"]
    known = {entity["id"] for entity in affects["neighbours"]}
    pairs = [["biologic_function", tail] for tail in sorted(known)[:3]]
    number = client.post("/projects", json={"name": "affects", "references": pairs}).json()["number"]
    body = {"heads": ["biologic_function"], "candidates": "all", "k": 100}

    def suggested(**more: str) -> set[str]:
        answer = client.post(f"/projects/{number}/next", json={**body, **more}).json()
        return {row["tail"] for row in answer["suggestions"]}

    assert suggested() & known
    assert not suggested(relation="affects") & known


def test_the_next_pairs_are_undecided_and_learn(client: TestClient) -> None:
    number = started(client)
    body = {"heads": ["alga", "bacterium", "animal"], "k": 20}
    before = client.post(f"/projects/{number}/next", json=body).json()
    pairs = [(row["head"], row["tail"]) for row in before["suggestions"]]
    assert (before["learnt"], before["references"], before["left"], len(pairs)) == (0, 2, 3, 20)
    scores = [row["score"] for row in before["suggestions"]]
    assert scores == sorted(scores, reverse=True)
    decide(client, number, "ann", *(("rejected", *pair) for pair in pairs[:3]), ("accepted", *pairs[3]))
    after = client.post(f"/projects/{number}/next", json=body).json()
    assert after["learnt"] == 6
    assert after["left"] == 3 - len({head for head, _ in pairs[:4]})
    assert not {(row["head"], row["tail"]) for row in after["suggestions"]} & set(pairs[:4])
    rescored = {(row["head"], row["tail"]): row["score"] for row in after["suggestions"]}
    assert any(rescored[pair] != score for pair, score in zip(pairs, scores, strict=True) if pair in rescored)


def test_pairs_that_teach_come_in_another_order(client: TestClient) -> None:
    number = started(client)
    body = {"heads_of_type": "open", "count": 10, "k": 10}
    first = client.post(f"/projects/{number}/next", json=body).json()["suggestions"][0]
    decide(client, number, "ann", ("rejected", first["head"], first["tail"]))
    best, teach = (
        client.post(f"/projects/{number}/next", json={**body, "mode": mode}).json()["suggestions"]
        for mode in ("best", "teach")
    )
    assert best != teach
    assert len(teach) == 10


def test_an_export_has_names_relation_and_a_type(client: TestClient) -> None:
    number = started(client)
    decide(client, number, "ann", ("rejected", "alga", "body_part_organ_or_organ_component"))
    answer = client.get(f"/projects/{number}/export?relation=P31")
    assert answer.headers["content-type"].startswith("text/csv")
    header, *rows = csv.reader(answer.text.removeprefix("\ufeff").splitlines())
    assert tuple(header) == COLUMNS
    end = ["body_part_organ_or_organ_component", "body part organ or organ component"]
    assert rows[-1][:6] == ["alga", "alga", "P31", *end, "rejected"]
    for format, problem in (("quickstatements", "items of Wikidata"), ("stix", "STIX"), ("xml", "format")):
        refused = client.get(f"/projects/{number}/export?format={format}&relation=P31")
        assert refused.status_code == 422 and problem in refused.json()["error"]["message"]


@pytest.mark.parametrize("format", ["csv", "nt", "json"])
def test_a_project_is_exported_and_imported(client: TestClient, format: str) -> None:
    number = started(client)
    decide(client, number, "ann", ("accepted", "alga", "cell"), ("rejected", "alga", "plant"))
    answer = client.get(f"/projects/{number}/export?format={format}")
    assert (
        answer.headers["content-disposition"] == f'attachment; filename="project-{number}{FORMATS[format].suffixes[0]}"'
    )
    other = client.post("/projects", json={"name": "copy"}).json()["number"]
    body = {"format": format, "text": answer.text, "who": "bob"}
    done = client.post(f"/projects/{other}/import", json=body).json()
    assert done["added"] == done["read"] > 0
    assert client.post(f"/projects/{other}/import", json=body).json()["added"] == 0


def test_errors_by_status(client: TestClient) -> None:
    number = started(client)

    def message(answer: Any, status: int) -> str:
        assert answer.status_code == status, answer.text
        return str(answer.json()["error"]["message"])

    assert "'99'" in message(client.get("/projects/99"), 404)
    assert "'interacts'" in message(client.post("/projects", json={"name": "interacts"}), 422)
    wrong = {"decisions": [{"head": "algae", "tail": "cell", "decision": "accepted"}]}
    assert "algae" in message(client.post(f"/projects/{number}/decisions", json=wrong), 404)
    assert "eve" in message(client.post(f"/projects/{number}/undo", json={"who": "eve"}), 422)
    empty = client.post("/projects", json={"name": "empty"}).json()["number"]
    assert "references" in message(client.post(f"/projects/{empty}/next", json={}), 422)
    too_many = {"decisions": [wrong["decisions"][0]] * 1001}
    message(client.post(f"/projects/{number}/decisions", json=too_many), 422)


def test_pairs_that_the_graph_lacks_stay_in_the_file_and_are_noted(client: TestClient, tmp_path: Path) -> None:
    number = started(client)
    with ProjectFile(tmp_path / "umls.decisions") as file:
        file.decide(number, [("accepted", "gone", "cell")], "ann")
    answer = client.post(f"/projects/{number}/next", json={"heads": ["alga"]}).json()
    assert "gone → cell" in answer["notes"][0]
    assert client.get(f"/projects/{number}/decisions?kind=accepted").json()["decisions"][0]["head_name"] == "gone"


def test_a_server_without_a_project_file_stores_nothing() -> None:
    with asking(small()) as client:
        assert client.get("/projects").json() == {"projects": []}
        answer = client.post("/projects", json={"name": "x"})
        assert answer.status_code == 404
        assert "--project" in answer.json()["error"]["message"]


def test_a_file_that_is_no_project_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\tb\tc\n" * 9)
    with pytest.raises(InputError, match=r"x\.tsv"):
        make_app(small(), project=tmp_path / "x.tsv")


def test_the_default_file_is_beside_the_graph_or_run(tmp_path: Path) -> None:
    graph = tmp_path / "graph.tsv"
    graph.touch()
    for source, expected in (
        (str(graph), tmp_path / "graph.tsv.decisions"),
        ("umls", Path("umls.decisions")),
        ("hub:me/model", Path("model.decisions")),
    ):
        assert project_file(source) == expected


def test_a_server_that_stops_leaves_one_file(linker: Linker, tmp_path: Path) -> None:
    app = make_app(linker, ServerSettings(), tmp_path / "umls.decisions")
    with TestClient(app, base_url="http://127.0.0.1") as client:
        started(client)
    assert [path.name for path in tmp_path.iterdir()] == ["umls.decisions"]


@pytest.mark.slow
def test_a_killed_server_loses_nothing_of_two_curators(tmp_path: Path) -> None:
    path = tmp_path / "umls.decisions"
    command = [sys.executable, "-m", "fewlink", "serve", "umls", "--port", "0", "--project", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    stored: dict[str, int] = {}
    try:
        assert process.stderr
        address = re.search(r"http://[0-9.:]+", process.stderr.readline())
        assert address

        def send(to: str, body: Any) -> Any:
            request = urllib.request.Request(
                f"{address[0]}/projects{to}", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)

        number = send("", {"name": "interacts", "references": PAIRS})["number"]
        tails = umls().graph.entities

        def curate(who: str) -> None:
            for place in range(1, len(tails)):
                one = {
                    "head": tails[place - 1],
                    "tail": tails[place],
                    "decision": "accepted" if place % 2 else "rejected",
                }
                try:
                    send(f"/{number}/decisions", {"who": who, "decisions": [one]})
                except (OSError, http.client.HTTPException):
                    return  # the server is gone
                stored[who] = place

        curators = [threading.Thread(target=curate, args=(who,)) for who in ("ann", "bob")]
        for curator in curators:
            curator.start()
        while min(stored.get(who, 0) for who in ("ann", "bob")) < 20:
            time.sleep(0.005)
        process.kill()
        for curator in curators:
            curator.join(60)
    finally:
        process.kill()
        process.communicate()
    with ProjectFile(path) as file:
        made = [event.who for event in file.log(number)]
    for who, count in stored.items():
        assert count <= made.count(who) <= count + 1  # the kill may fall between storing and answering


MAKES = [["gene_or_genome", "hormone"], ["cell", "immunologic_factor"], ["mental_process", "enzyme"]]


def made(client: TestClient) -> int:
    """A project whose answers have percentages."""
    return int(client.post("/projects", json={"name": "makes", "references": MAKES}).json()["number"])


def test_decisions_adjust_probabilities_from_the_base_probabilities(client: TestClient) -> None:
    number = made(client)
    query = {"references": MAKES, "heads": ["pathologic_function", "tissue"], "k": 8, "project": number}
    first = client.post("/predict", json=query).json()
    rows = first["predictions"]
    assert first["calibration"] is None and all(row["probability"] == row["base_probability"] > 0 for row in rows)

    def send(kind: str, some: list[dict[str, Any]]) -> None:
        decisions = [
            {"head": row["head"], "tail": row["tail"], "decision": kind, "probability": row["base_probability"]}
            for row in some
        ]
        sent = client.post(f"/projects/{number}/decisions", json={"decisions": decisions, "who": "ann"}).json()
        assert [state["probability"] for state in sent["decisions"]] == [row["base_probability"] for row in some]

    send("rejected", rows[:3])
    lower = client.post("/predict", json=query).json()
    assert lower["calibration"]["decisions"] == 3 and "3" in lower["calibration"]["sentence"]
    for before, after in zip(rows, lower["predictions"], strict=True):
        assert after["base_probability"] == before["base_probability"] and after["probability"] < before["probability"]
    assert lower["sets"] == first["sets"]  # measured on base probabilities
    assert client.post("/predict", json={**query, "project": None}).json() == first
    again = client.post("/predict", json=query).json()
    assert again == lower  # nothing compounds
    send("accepted", rows[:3])  # the curator has changed their mind
    decided = client.post("/predict", json=query).json()["predictions"]
    changes = [after["probability"] - before["probability"] for before, after in zip(rows, decided, strict=True)]
    assert max(changes) < 1e-12
    assert client.post("/predict", json={**query, "project": 99}).status_code == 404


def test_the_next_pairs_have_probabilities_too(client: TestClient) -> None:
    number = made(client)
    body = {"heads": ["pathologic_function", "tissue"], "k": 8}
    first = client.post(f"/projects/{number}/next", json=body).json()
    asked = {"references": MAKES, "heads": body["heads"], "k": 50}
    listed = client.post("/predict", json=asked).json()["predictions"]
    by_pair = {(row["head"], row["tail"]): row["probability"] for row in listed}
    for row in first["suggestions"]:
        assert row["probability"] == row["base_probability"] == pytest.approx(by_pair[row["head"], row["tail"]])
    row = first["suggestions"][0]
    decision = {"head": row["head"], "tail": row["tail"], "decision": "rejected", "probability": 0.9}
    client.post(f"/projects/{number}/decisions", json={"decisions": [decision]})
    after = client.post(f"/projects/{number}/next", json=body).json()
    assert first["calibration"] is None and after["calibration"]["decisions"] == 1
    assert after["suggestions"][0]["probability"] < after["suggestions"][0]["base_probability"]


@pytest.mark.parametrize("chance", [-0.1, 1.5, "high"])
def test_a_probability_outside_0_and_1_is_refused(client: TestClient, chance: object) -> None:
    number = started(client)
    decision = {"head": "alga", "tail": "cell", "decision": "accepted", "probability": chance}
    assert client.post(f"/projects/{number}/decisions", json={"decisions": [decision]}).status_code == 422


def test_constraints_hold_for_the_next_pairs(client: TestClient) -> None:
    number = started(client)
    body: dict[str, Any] = {"heads": ["alga", "bacterium"], "k": 100}
    rows = client.post(f"/projects/{number}/next", json=body).json()["suggestions"]
    first = rows[0]
    functional = {**body, "constraints": ["functional"]}
    assert len(client.post(f"/projects/{number}/next", json=functional).json()["suggestions"]) == len(rows)
    inverse = client.post(f"/projects/{number}/next", json={**body, "constraints": ["inverse-functional"]}).json()
    tails = {row["tail"] for row in inverse["suggestions"]}
    assert tails and not tails & {"cell", "plant"}
    decide(client, number, "ann", ("accepted", first["head"], first["tail"]))  # now the head has its only tail
    answer = client.post(f"/projects/{number}/next", json=functional).json()
    assert {row["head"] for row in answer["suggestions"]} == {"alga", "bacterium"} - {first["head"]}
    assert any("functional" in note for note in answer["notes"])
    decide(client, number, "ann", ("accepted", first["head"], "human"))
    refused = client.post(f"/projects/{number}/next", json=functional)
    assert refused.status_code == 422 and "'functional'" in refused.json()["error"]["message"]
    assert client.post(f"/projects/{number}/next", json={**body, "constraints": ["x"]}).status_code == 404


def test_imported_names_become_ids_and_unknown_ones_are_marked(client: TestClient) -> None:
    number = started(client)
    text = "Body System\tcell\nalga\tno such thing\n"
    answer = client.post(f"/projects/{number}/import", json={"format": "csv", "text": text}).json()
    (note,) = answer["notes"]
    assert answer["added"] == 2 and "alga → no such thing" in note and "cell" not in note
    listed = client.get(f"/projects/{number}/decisions?kind=accepted").json()
    assert [(s["head"], s["tail"], s["known"]) for s in listed["decisions"]] == [
        ("body_system", "cell", True),
        ("alga", "no such thing", False),
    ]
    assert listed["notes"] == [note] == client.post(f"/projects/{number}/next", json={}).json()["notes"][:1]
    export = client.get(f"/projects/{number}/export?format=json").json()
    for event in export["log"]:
        event["head"] = event["head"].replace("_", " ").upper()  # as a person writes it
    again = client.post(f"/projects/{number}/import", json={"format": "json", "text": json.dumps(export)}).json()
    assert again["added"] == 0 and again["read"] == len(export["log"])
    nt = "<urn:fewlink:entity:Body%20System> <urn:fewlink:relation:interacts> <urn:fewlink:entity:Tissue> ."
    assert client.post(f"/projects/{number}/import", json={"format": "nt", "text": nt}).json()["notes"] == []
    last = client.get(f"/projects/{number}/decisions").json()["decisions"][-1]
    assert (last["head"], last["tail"], last["known"]) == ("body_system", "tissue", True)
