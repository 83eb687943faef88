"""Features in combination: names, rejected pairs, reasons, completion, projects and OpenRefine."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

import fewlink
from fewlink.bridges import openrefine
from fewlink.core.errors import FewlinkError
from fewlink.curation.exports import write_export
from fewlink.curation.imports import add_decisions, decisions_in
from fewlink.curation.store import ProjectFile
from fewlink.server import ServerSettings
from fewlink.server.app import make_app

REFERENCES = [("virus", "cell"), ("bacterium", "tissue"), ("fungus", "organism")]
REJECTED = [("alga", "plant")]


@pytest.fixture(scope="module")
def linker() -> fewlink.Linker:
    return fewlink.load("umls")


def test_a_corrected_score_does_not_depend_on_the_other_candidates(linker: fewlink.Linker) -> None:
    first = linker.predict(REFERENCES, ["alga"], 1, rejected=REJECTED)[0]
    alone = linker.predict(REFERENCES, ["alga"], 1, rejected=REJECTED, candidates=[first.tail])[0]
    assert alone.score == pytest.approx(first.score, abs=1e-4)


def test_reasons_have_the_score_of_their_row(linker: fewlink.Linker) -> None:
    for row in linker.predict(REFERENCES, ["alga"], 2, rejected=REJECTED, explain="full"):
        assert row.reasons is not None and row.reasons.score == pytest.approx(row.score, abs=1e-3)
        assert "rejected pairs" in row.reasons.parts


def test_completion_continues_only_the_same_question(linker: fewlink.Linker, tmp_path: Path) -> None:
    out = tmp_path / "missing.tsv"

    def stop(done: int, count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        linker.complete(REFERENCES, heads=["alga", "animal", "plant"], top=3, out=out, on_heads=stop)
    with pytest.raises(FewlinkError, match=r"missing\.tsv"):
        linker.complete(REFERENCES, heads=["virus", "fungus", "bacterium"], top=3, out=out)


def test_openrefine_omits_rejected_pairs_and_keeps_known_ones(linker: fewlink.Linker, tmp_path: Path) -> None:
    app = make_app(linker, ServerSettings(), tmp_path / "decisions", extensions=[openrefine.install])
    extend = '{"ids": ["alga"], "properties": [{"id": "hunts"}]}'
    with TestClient(app, base_url="http://127.0.0.1") as client:
        client.post("/projects", json={"name": "hunts", "references": [list(pair) for pair in REFERENCES]})
        cells = client.post("/reconcile", data={"extend": extend}).json()["rows"]["alga"]["hunts"]
        decision = {"head": "alga", "tail": cells[0]["id"], "decision": "rejected"}
        client.post("/projects/1/decisions", json={"decisions": [decision]})
        again = client.post("/reconcile", data={"extend": extend}).json()["rows"]["alga"]["hunts"]
        assert cells[0]["id"] not in [cell["id"] for cell in again]
        relation = linker.graph.relations[0]
        head = linker.graph.entities[int(linker.graph.triples()[linker.graph.triples()[:, 1] == 0][0, 0])]
        asked = {"extend": f'{{"ids": ["{head}"], "properties": [{{"id": "{relation}"}}]}}'}
        known = client.post("/reconcile", data=asked).json()["rows"][head][relation]
        client.post("/projects", json={"name": relation, "references": [["virus", "cell"]]})
        both = client.post("/reconcile", data=asked).json()["rows"][head][relation]
        assert known and {cell["id"] for cell in known} <= {cell["id"] for cell in both}


def test_true_pairs_are_exported_as_triples_and_damaged_imports_raise(tmp_path: Path) -> None:
    with ProjectFile(tmp_path / "decisions") as file:
        file.add_project("hunts", REFERENCES)
        file.decide("hunts", [("rejected", "alga", "plant")])
        write_export(file, "hunts", tmp_path / "true.nt")
        lines = (tmp_path / "true.nt").read_text().splitlines()
        assert [line.split("entity:")[1].split(">")[0] for line in lines] == [head for head, _ in REFERENCES]
        for text in ("<urn:fewlink:entity:%FF> <r:r> <t:t> .", r"<\UFFFFFFFF:x> <r:r> <t:t> ."):
            with pytest.raises(FewlinkError):
                add_decisions(file, "hunts", decisions_in(text, "nt"))
        with pytest.raises(FewlinkError):
            file.undo("hunts", 10**23)
        with pytest.raises(FewlinkError):
            file.project(10**23)


def test_a_head_with_many_decisions_still_gets_suggestions(linker: fewlink.Linker, tmp_path: Path) -> None:
    with TestClient(make_app(linker, ServerSettings(), tmp_path / "decisions"), base_url="http://127.0.0.1") as client:
        client.post("/projects", json={"name": "hunts", "references": [list(pair) for pair in REFERENCES]})
        tails = [entity for entity in linker.graph.entities if entity != "alga"][:100]
        decisions = [{"head": "alga", "tail": tail, "decision": "rejected"} for tail in tails]
        client.post("/projects/1/decisions", json={"decisions": decisions})
        asked = {"heads": ["alga"], "candidates": "all", "k": 5}
        found = client.post("/projects/1/next", json=asked).json()["suggestions"]
        assert len(found) == 5 and not {row["tail"] for row in found} & set(tails)


def test_a_relation_that_is_too_small_to_check_is_named(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("".join(f"a{i}\tlikes\tb{i % 3}\n" for i in range(9)) + "a1\teats\tb2\n")
    with pytest.raises(FewlinkError, match="eats"):
        fewlink.load(tmp_path / "g.tsv").check("eats")
