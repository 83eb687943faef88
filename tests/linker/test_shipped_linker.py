"""`fewlink.load` of a graph: answers with the weights that come with fewlink, without a run."""

from __future__ import annotations

import gzip
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.linker.linkers import REFERENCES, references_of, umls

import fewlink
from fewlink.core.errors import FewlinkError, InputError, UnknownName
from fewlink.evaluation import Protocol, rank_task
from fewlink.linker.probability import shipped_calibration
from fewlink.linker.trust import Trust
from fewlink.models.contract import Question
from fewlink.models.trail.shipped import shipped_scorer
from fewlink.tasks import candidates_of


@pytest.fixture
def triples(tmp_path: Path) -> Path:
    path = tmp_path / "graph.tsv"
    path.write_bytes(gzip.decompress((files("fewlink") / "builtin" / "umls.tsv.gz").read_bytes()))
    return path


def test_a_file_and_a_compiled_graph_give_the_same_answers(triples: Path, tmp_path: Path) -> None:
    linker = fewlink.load(triples)
    assert repr(linker) == "Linker(trail on graph.tsv, 135 entities, calibrated)"
    predictions = linker.predict(REFERENCES, ["alga", "bacterium"], k=5)
    assert len(predictions) == 10 and predictions.trust is not None and predictions.trust.tested == 2
    assert all((row.probability is not None) == predictions.trust.shown for row in predictions)
    assert repr(predictions).startswith(predictions.trust.sentence)
    folder = fewlink.compile_graph(triples).save(tmp_path / "compiled")
    assert fewlink.load(str(folder)).predict(REFERENCES, ["alga", "bacterium"], k=5) == predictions
    assert len(linker.predict_pairs(REFERENCES, ["alga", "bacterium"], k=3)) == 3


def test_a_relation_of_the_graph_gives_all_its_pairs_as_references(triples: Path) -> None:
    linker = fewlink.load(triples)
    found = linker.predict(relation="causes", heads=["virus"], k=200)
    graph = linker.graph
    known = {t for h, r, t in graph.triples() if graph.relations[r] == "causes" and graph.entities[h] == "virus"}
    assert known and not known & {graph.entities.id(row.tail) for row in found}
    lines = [line.split("\t") for line in triples.read_text().splitlines()]
    assert references_of(linker, "causes") == [(head, tail) for head, relation, tail in lines if relation == "causes"]
    assert found.trust is not None and found.trust.tested > 2  # the model does not see them, so they can be held out


def test_a_relation_of_numbers_that_was_left_out_is_named_as_such(tmp_path: Path) -> None:
    file = tmp_path / "dishes.csv"
    serves = [f"{dish},serves,{number}" for dish, number in (("soup", 2), ("stew", 4), ("pie", 6))]
    file.write_text("\n".join(["soup,part of,menu", "stew,part of,menu", "pie,part of,menu", *serves]) + "\n")
    linker = fewlink.load(file)
    message = (
        "^the relation 'Serves' was left out, because its tails are numbers, dates or text: read it with --literals"
    )
    with pytest.raises(UnknownName, match=message):
        linker.predict(relation="Serves", heads=["soup"])
    with pytest.raises(UnknownName, match=r"unknown relation 'costs': dishes\.csv has no such relation"):
        linker.predict(relation="costs", heads=["soup"])
    assert references_of(fewlink.load(file, literals="keep"), "serves")[0] == ("soup", "2")


def test_types_and_names_describe_a_file(tmp_path: Path) -> None:
    rows = [("p1", "lives", "c1"), ("p2", "lives", "c2"), ("p3", "lives", "c1"), ("c1", "near", "c2")]
    (tmp_path / "graph.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    (tmp_path / "types.tsv").write_text("c1\tcity\nc2\tcity\np1\tperson\n")
    (tmp_path / "names.tsv").write_text("p3\tCy\nc2\tRome\n")
    linker = fewlink.load(tmp_path / "graph.csv", types=tmp_path / "types.tsv", names=str(tmp_path / "names.tsv"))
    rows_ = linker.predict([("p1", "c1")], ["Cy"], candidates="city")
    assert {(row.head, row.tail_name) for row in rows_} == {("p3", "c1"), ("p3", "Rome")}


def test_names_of_a_file_are_shown_even_if_they_are_not_evidence(tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("p1\tlives\tc1\np2\tlives\tc2\np3\tlives\tc1\nc1\tnear\tc2\n")
    (tmp_path / "names.tsv").write_text("p3\tRome Smith\nc2\tRome\n")
    files = {"file": tmp_path / "graph.tsv", "names": tmp_path / "names.tsv"}
    read, shown = fewlink.load(**files), fewlink.load(**files, read_names=False)
    assert read.scorer.capabilities.reads_names and not shown.scorer.capabilities.reads_names
    rows = shown.predict([("p1", "c1")], ["Rome Smith"])
    assert {(row.head, row.head_name, row.tail_name) for row in rows} >= {("p3", "Rome Smith", "Rome")}


def test_a_benchmark_is_read_as_by_a_run(tmp_path: Path) -> None:
    linker, task = fewlink.load("umls", read_names=False), umls().split("test")[0]
    assert linker.benchmark.fingerprint == umls().fingerprint and linker.run is None
    scorer = shipped_scorer(umls().known_graph, names=False)
    ids = candidates_of("full", task, task.pairs[:3], umls().graph).ids
    question = Question(task.name, task.pairs[:3], np.unique(task.pairs[3:8, 0]), ids)
    assert (linker.scorer(question) == scorer(question)).all()
    ranked = rank_task(umls().graph, linker.scorer, task, Protocol("test", 3, "full"))
    head, tail = ranked.queries[0].tolist()
    options: dict[str, Any] = {"relation": task.name, "candidates": "full", "shots": 3}
    rows = linker.predict(heads=[umls().graph.entities[head]], k=1000, **options)
    options |= {"exclude_known": False, "constraints": "none"}
    with_known = linker.predict(heads=[umls().graph.entities[head]], k=1000, **options)  # type: ignore[arg-type]
    assert {row.rank for row in with_known if row.tail == umls().graph.entities[tail]} == {float(ranked.ranks[0])}
    assert len(rows) < len(with_known)
    saved = fewlink.load(umls().save(tmp_path / "umls"), read_names=False)
    assert (saved.scorer(question) == scorer(question)).all()


def test_what_needs_a_run_says_so(triples: Path, tmp_path: Path) -> None:
    linker = fewlink.load(triples)
    with pytest.raises(FewlinkError, match="trail was not opened from a run"):
        linker.save_pretrained(tmp_path / "saved")
    with pytest.raises(FewlinkError, match="has no dev relation"):
        fewlink.calibrate(linker)


def test_the_shipped_calibration_is_of_other_graphs_and_says_how_far_it_is_off() -> None:
    calibration = shipped_calibration()
    assert calibration is not None and calibration.crossed == "graph" and calibration.relations > 60
    assert calibration.over_relations is not None and 0 < calibration.over_relations < 0.3
    assert calibration.first_bins and sum(b.count for b in calibration.first_bins) > 1000
    assert 0 < calibration.least < 0.6 and not calibration.note(Trust(3, (1.0, 2.0, 1.0)), 0.0).low


def test_what_cannot_be_read_raises(triples: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("a\tb\tc\na\tb\n")
    with pytest.raises(InputError, match=r"bad\.tsv:2: has 2 columns"):
        fewlink.load(tmp_path / "bad.tsv")
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(FewlinkError, match="no triples"):
        fewlink.load(tmp_path / "empty.tsv")
    with pytest.raises(InputError, match=tmp_path.name):
        fewlink.load(tmp_path)
    with pytest.raises(FewlinkError, match="did you mean 'umls'"):
        fewlink.load("umsl")
    with pytest.raises(InputError, match=r"nowhere\.tsv"):
        fewlink.load(triples, types=tmp_path / "nowhere.tsv")
    with pytest.raises(FewlinkError, match="umls"):
        fewlink.load("umls", names="names.tsv")
    with pytest.raises(FewlinkError, match="leave out bench"):
        fewlink.load(triples, bench="umls")
