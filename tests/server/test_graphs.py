"""Files that visitors open as graphs: previews, pages of their own, limits and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.server.servers import small

from fewlink.graph.check import check_graph
from fewlink.graph.source import GraphSource
from fewlink.server import ServerSettings, schema
from fewlink.server.app import make_app
from fewlink.server.errors import ApiError
from fewlink.server.graphs import MAX_GRAPHS
from fewlink.server.service import Service

CSV = b"who;what;whom\nann;likes;bob\nbob;likes;cy\ncy;knows;ann\nann;knows;cy\n"
COLUMNS = "head=who,relation=what,tail=whom"


def served(folder: Path, **settings: Any) -> TestClient:
    app = make_app(
        small(), ServerSettings(**{"upload": 1 << 16, **settings}), folder / "decisions", graphs=folder / "graphs"
    )
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture()
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served(tmp_path) as client:
        yield client


def post(client: TestClient, path: str, content: bytes, **options: Any) -> Any:
    return client.post(path, content=content, params=options, headers={"Content-Type": "application/octet-stream"})


def test_a_preview_is_that_of_data_check_and_stores_nothing(client: TestClient, tmp_path: Path) -> None:
    answer = post(client, "/graphs/preview", CSV, name="people.csv", columns=COLUMNS)
    assert answer.status_code == 200, answer.text
    schema.FilePreview(**answer.json())
    file = tmp_path / "people.csv"
    file.write_bytes(CSV)
    report = check_graph(GraphSource.of(file, columns=COLUMNS, on_error="skip"))
    assert answer.json()["separator"] == report["separator"] and answer.json()["header"]
    assert answer.json()["first_triples"] == [list(triple) for triple in report["first_triples"]]
    assert answer.json()["counts"]["triples"] == 4
    assert client.get("/graphs").json() == {"graphs": []}


def test_an_opened_file_has_a_page_and_answers(client: TestClient, tmp_path: Path) -> None:
    opened = post(client, "/graphs", CSV, name="../My people!.csv", columns=COLUMNS)
    assert opened.status_code == 201, opened.text
    address = opened.json()["address"]
    assert address == "graphs/my-people/"
    page = client.get(f"/{address}")
    assert page.status_code == 200 and "default-src 'none'" in page.headers["content-security-policy"]
    assert client.get(f"/{address}static/main.js").status_code == 200
    about = client.get(f"/{address}about").json()
    assert (about["graph"]["triples"], about["limits"]["upload"]) == (4, 0)
    answer = client.post(f"/{address}predict", json={"relation": "likes", "heads": ["cy"], "k": 1})
    assert answer.status_code == 200, answer.text
    assert answer.json()["predictions"][0]["tail"] in ("ann", "bob")
    made = client.post(f"/{address}projects", json={"name": "likes", "references": [["ann", "bob"]]})
    assert made.status_code == 201
    assert client.get("/projects").json() == {"projects": []}  # each graph has its own
    assert client.get("/about").json()["graph"]["name"] == "small"
    assert client.get("/graphs/my-people", follow_redirects=False).headers["location"].endswith("/graphs/my-people/")
    assert client.get("/graphs/nothing/").status_code == client.get("/graphs/../x/").status_code == 404
    with served(tmp_path) as again:  # another process, or the next start
        assert [one["name"] for one in again.get("/graphs").json()["graphs"]] == ["my-people"]
        assert again.get(f"/{address}projects").json()["projects"][0]["name"] == "likes"
        assert post(again, "/graphs", CSV, name="my-people.csv").json()["name"] == "my-people-2"


def test_graphs_of_the_same_file_are_told_apart_by_a_number(client: TestClient, tmp_path: Path) -> None:
    for name in ("people.csv", "towns.csv", *["people.csv"] * 2):
        post(client, "/graphs", CSV, name=name)
    (tmp_path / "graphs" / "people-3").rename(tmp_path / "graphs" / "people-10")
    found = [(graph["file"], graph["name"]) for graph in client.get("/graphs").json()["graphs"]]
    people = [("people.csv", "people"), ("people.csv (2)", "people-2"), ("people.csv (3)", "people-10")]
    assert found == [*people, ("towns.csv", "towns")]


def test_errors_name_the_file_the_line_and_the_option(client: TestClient, tmp_path: Path) -> None:
    for path in ("/graphs", "/graphs/preview"):
        bad = post(client, path, b"a\tr\tb\nonly one\n", name="bad.tsv")
        message = bad.json()["error"]["message"]
        assert bad.status_code == 422 and "bad.tsv" in message and "2" in message and str(tmp_path) not in message
        assert "/tmp" not in message
        option = post(client, path, CSV, name="people.csv", columns="head=nobody").json()["error"]["message"]
        assert "columns" in option
        unreadable = post(client, path, b"", name="empty.tsv").json()["error"]["message"]
        assert "empty.tsv" in unreadable
    skipped = post(client, "/graphs/preview", b"a\tr\tb\nonly one\n", name="bad.tsv", on_error="skip")
    assert skipped.json()["counts"]["bad lines"] == 1
    assert (
        skipped.json()["problems"][0]
        == "1 bad line, the first: bad.tsv:2: has 1 column instead of head, relation and tail"
    )
    assert not list((tmp_path / "graphs").iterdir())  # nothing is left of what was refused


def test_files_and_folders_are_bounded(client: TestClient) -> None:
    large = post(client, "/graphs", b"x" * (1 << 16) + b"x", name="large.tsv")
    assert (large.status_code, large.json()["error"]["code"]) == (413, "too-large")
    assert "the file is larger than 65,536 bytes" in large.json()["error"]["message"]
    other = client.post("/predict", content=b"x" * (2 << 20))
    assert "the body is larger" in other.json()["error"]["message"]
    for _ in range(MAX_GRAPHS):
        assert post(client, "/graphs", CSV, name="people.csv").status_code == 201
    full = post(client, "/graphs", CSV, name="people.csv")
    assert full.status_code == 422 and str(MAX_GRAPHS) in full.json()["error"]["message"]


def test_pages_of_other_sites_cannot_store_files(client: TestClient) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        for path in ("/graphs", "/graphs/preview"):
            assert client.post(path, content=CSV, params={"name": "x.csv"}, headers=headers).status_code == 403
    assert client.get("/graphs").json() == {"graphs": []}


def test_only_servers_that_allow_it_open_files(tmp_path: Path) -> None:
    app = make_app(small(), ServerSettings(), graphs=tmp_path)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/about").json()["limits"]["upload"] == 0
        assert post(client, "/graphs", CSV, name="people.csv").status_code in (404, 405)
        assert "/graphs" not in client.get("/openapi.json").json()["paths"]


def test_opened_graphs_need_the_token_too(tmp_path: Path) -> None:
    with served(tmp_path, token="t") as client:
        assert post(client, "/graphs", CSV, name="people.csv").status_code == 401
        client.headers["Authorization"] = "Bearer t"
        address = post(client, "/graphs", CSV, name="people.csv").json()["address"]
        del client.headers["Authorization"]
        assert client.get(f"/{address}").status_code == client.get(f"/{address}static/page.css").status_code == 200
        for path in ("about", "projects", "entities", "metrics"):
            assert client.get(f"/{address}{path}").status_code == 401
        assert client.get("/graphs").status_code == 401


def test_a_file_that_takes_too_much_memory_ends_its_own_process_only(tmp_path: Path) -> None:
    """A long base IRI: 130 KB that become 240 MB."""
    pytest.importorskip("pyoxigraph")
    names = "".join(f"<{number}> <http://r> <http://x> .\n" for number in range(1_200))
    bomb = f"@base <http://example.org/{'x' * 100_000}/> .\n{names}".encode()
    with served(tmp_path, upload=1 << 18, reading=180 << 20) as client:
        for path in ("/graphs/preview", "/graphs"):
            refused = post(client, path, bomb, name="bomb.ttl")
            assert refused.status_code == 422, refused.text
            assert refused.json()["error"]["message"].startswith("bomb.ttl: reading it takes more than 180 MiB")
        assert post(client, "/graphs", CSV, name="people.csv").status_code == 201
        assert [path.name for path in (tmp_path / "graphs").iterdir()] == ["people"]
    with served(tmp_path, upload=1 << 18, reading=1 << 30) as client:
        assert post(client, "/graphs/preview", bomb, name="bomb.ttl").json()["counts"]["triples"] == 1_200


def test_a_graph_stored_without_its_compiled_folder_is_read_again(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "graphs" / "old").mkdir()
    (tmp_path / "graphs" / "old" / "old.csv").write_bytes(CSV)
    (tmp_path / "graphs" / "old" / "reading.json").write_text(json.dumps({"file": "old.csv", "columns": COLUMNS}))
    about = client.get("/graphs/old/about").json()
    assert (about["graph"]["name"], about["graph"]["triples"]) == ("old.csv", 4)


def test_a_reading_process_ends_with_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def remembered(*command: str, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*command, **options))
        return started[0]

    async def main() -> None:
        service = Service(small(), ServerSettings(deadline=0.5))
        with pytest.raises(ApiError, match=r"limit of 0\.5 s"):
            async with service.admission.enter("file") as job:
                await service.run_apart("signal:pause", "a file", job)
        assert started[0].returncode is not None and not service.admission

    monkeypatch.setattr(asyncio, "create_subprocess_exec", remembered)
    asyncio.run(main())


def test_an_unreadable_folder_is_no_graph(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "graphs" / "odd").mkdir()
    (tmp_path / "graphs" / "gone").mkdir()
    (tmp_path / "graphs" / "gone" / "reading.json").write_text(json.dumps({"file": "no.tsv", "columns": None}))
    assert client.get("/graphs/odd/about").status_code == 404
    missing = client.get("/graphs/gone/about")
    assert missing.status_code == 422 and "no.tsv" in missing.json()["error"]["message"]
