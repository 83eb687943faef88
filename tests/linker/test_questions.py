"""Heads for tails, missing links, relations of a pair and odd triples, asked by name on a graph."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import benchmark_of
from tests.linker.graphs import people
from tests.linker.linkers import REFERENCES

import fewlink
from fewlink.core.errors import FewlinkError, InputError
from fewlink.curation.exports import COLUMNS
from fewlink.curation.imports import add_decisions, read_decisions
from fewlink.curation.store import ProjectFile
from fewlink.linker import Linker
from fewlink.linker.complete import plausible_heads
from fewlink.linker.query import References, find_relation
from fewlink.linker.trust import Trust

SWAPPED = [(tail, head) for head, tail in REFERENCES]


@functools.cache
def umls() -> Linker:
    return fewlink.load("umls")


@functools.cache
def towns() -> Linker:
    return Linker.shipped(benchmark_of(people("person0x3 speaks lang4", without="person0x3 speaks lang0")))


def test_heads_of_a_tail_are_the_tails_of_the_inverse_relation() -> None:
    linker = umls()
    heads = linker.heads(["cell", "plant"], REFERENCES, k=4)
    tails = linker.predict(SWAPPED, ["cell", "plant"], k=4)
    assert heads.inverse and [(row.tail, row.head) for row in heads] == [(row.head, row.tail) for row in tails]
    assert [row.score for row in heads] == [row.score for row in tails]
    assert [row.probability for row in heads] == [row.probability for row in tails]
    assert "tail  " in repr(heads) and [row.tail for row in heads] == ["cell"] * 4 + ["plant"] * 4


def test_constraints_are_named_as_for_tails() -> None:
    linker = umls()
    given = linker.heads("plant", REFERENCES, constraints="functional", k=50)
    assert "a head has at most one tail (functional, given)" in given.notes[0]
    assert "fungus" not in {row.head for row in given}  # it has a tail already
    assert linker.heads("plant", REFERENCES, constraints="inverse-functional").rows == ()
    with pytest.raises(FewlinkError, match=r"'functional' .*'virus' has the tails"):
        linker.heads("plant", [*REFERENCES, ("virus", "plant")], constraints="functional")


def test_reasons_name_pairs_in_the_direction_of_the_relation() -> None:
    row = umls().heads("cell", REFERENCES, k=1, explain=True)[0]
    assert row.reasons is not None and row.reasons.head.id == "cell" and "paths from the tail" in row.reasons.parts
    for step in (step for path in row.reasons.paths for step in path.steps if step.example):
        assert ((step.start, step.end) if step.forward else (step.end, step.start)) in REFERENCES
    direct = umls().explain(REFERENCES, row.head, "cell", inverse=True)
    assert direct == row.reasons


def test_all_heads_are_completed_and_the_file_says_how(tmp_path: Path) -> None:
    linker, done = umls(), list[tuple[int, int]]()
    out = tmp_path / "missing.jsonl"
    found = linker.complete(REFERENCES, top=5, k=3, out=out, on_heads=lambda *at: done.append(at))
    first, *rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows == found.to_dicts() and len(rows) == 5
    assert first["made_with"]["references"] == [list(pair) for pair in REFERENCES] and first["made_with"]["top"] == 5
    heads = plausible_heads(linker.graph, linker.find_references(REFERENCES))
    assert done[-1][0] == done[-1][1] and len(heads)
    pairs = linker.predict_pairs(REFERENCES, [linker.graph.entities[int(h)] for h in _heads(linker)], 5)
    assert [(row.head, row.tail) for row in pairs] == [(row.head, row.tail) for row in found]
    with pytest.raises(InputError, match=out.name):
        linker.complete(REFERENCES, top=5, k=3, out=out)


def test_completed_pairs_are_decided_in_a_spreadsheet(tmp_path: Path) -> None:
    out = tmp_path / "missing.csv"
    found = umls().complete(REFERENCES, top=3, k=3, out=out)
    header, *rows = csv.reader(out.read_text("utf-8-sig").splitlines())
    assert tuple(header) == COLUMNS
    assert [row[:5] for row in rows] == [[row.head, row.head_name, "", row.tail, row.tail_name] for row in found]
    rows[1][5] = "accepted"
    out.write_text("\n".join(map(",".join, [header, *rows])))
    with ProjectFile(tmp_path / "p.decisions") as file:
        assert add_decisions(file, "eats", read_decisions(out, "eve")).added == 1
        assert file.pairs("eats", "accepted") == [(found[1].head, found[1].tail)]


def test_heads_without_a_known_tail_come_first() -> None:
    linker = umls()
    references = linker.find_references(None, "causes")
    answered = {linker.graph.entities[head] for head in references.answered_heads().tolist()}
    found = linker.complete(relation="causes", top=10_000, k=2)
    known = [row.head in answered for row in found]
    assert 0 < sum(known) < len(known) and known == sorted(known)
    for is_known in (False, True):
        merits = [row.probability for row in found if (row.head in answered) == is_known]
        assert merits == sorted(merits, key=lambda one: -(one or 0.0))
    first = linker.complete(relation="causes", top=5, k=2)
    assert [(row.head, row.tail) for row in first] == [(row.head, row.tail) for row in found[:5]]


def _heads(linker: Linker) -> np.ndarray:
    ids = [(linker.graph.entities.id(head), linker.graph.entities.id(tail)) for head, tail in REFERENCES]
    return plausible_heads(linker.graph, References(tuple(ids)))


def test_a_relation_of_the_graph_is_completed_without_its_known_pairs(tmp_path: Path) -> None:
    linker = umls()
    out = tmp_path / "missing.tsv"
    found = linker.complete(relation="affects", top=20, out=out)
    assert found.trust is not None and found.trust.tested == 16  # references can be held out
    known = {tuple(pair) for pair in find_relation(linker.benchmark, "affects").pairs().tolist()}
    entities = linker.graph.entities
    assert not known & {(entities.id(row.head), entities.id(row.tail)) for row in found}
    assert out.read_text().startswith('# made with {"model": "trail"')


def test_a_completion_reads_the_decisions_of_a_project(tmp_path: Path) -> None:
    linker = umls()
    plain = linker.complete(REFERENCES, top=6, k=3)
    accepted, wrong = [(row.head, row.tail) for row in plain][:2]
    with ProjectFile(tmp_path / "p.decisions") as file:
        file.add_project("infects", REFERENCES)
        file.decide("infects", [("accepted", *accepted), ("rejected", *wrong)])
    curated = linker.with_project(tmp_path / "p.decisions")
    found = curated.complete(top=6, k=3, out=tmp_path / "missing.jsonl")
    assert not {accepted, wrong} & {(row.head, row.tail) for row in found} and len(found) == 6
    assert any("1 rejected pair was used" in note for note in found.notes)
    made = json.loads((tmp_path / "missing.jsonl").read_text().splitlines()[0])["made_with"]
    assert (made["project"], made["rejected"]) == ("infects", [list(wrong)])
    assert made["references"] == [list(pair) for pair in (*REFERENCES, accepted)]
    more = curated.complete([("bird", "plant")], relation="affects", top=400, k=10)
    assert not {accepted, wrong, ("bird", "plant")} & {(row.head, row.tail) for row in more}


def test_an_interrupted_completion_gives_the_same_file(tmp_path: Path) -> None:
    linker, whole, broken = umls(), tmp_path / "whole.tsv", tmp_path / "broken.tsv"
    linker.complete(REFERENCES, top=9, k=2, out=whole)

    def stop(done: int, count: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        linker.complete(REFERENCES, top=9, k=2, out=broken, on_heads=stop)
    assert not broken.exists()
    linker.complete(REFERENCES, top=9, k=2, out=broken)
    assert broken.read_text() == whole.read_text()


def test_a_wrong_number_or_file_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    linker = umls()
    for wrong in ({"k": 0}, {"top": 0}, {"out": tmp_path}):
        with pytest.raises(FewlinkError, match=f"^k |^top |{tmp_path.name}"):
            linker.complete(REFERENCES, **{"out": tmp_path / "missing.tsv", **wrong})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_completion_is_json_lines_by_its_suffix_in_any_case(tmp_path: Path) -> None:
    found = umls().complete(REFERENCES, top=2, heads=["bacterium"], out=tmp_path / "missing.JSONL")
    lines = [json.loads(line) for line in (tmp_path / "missing.JSONL").read_text().splitlines()]
    assert lines[0]["made_with"]["top"] == 2 and [line["tail"] for line in lines[1:]] == [row.tail for row in found]


def test_a_least_probability() -> None:
    linker = umls()
    every = linker.complete(relation="causes", top=10_000, k=2)
    least = sorted(row.probability or 0.0 for row in every)[len(every) // 2]
    likely = linker.complete(relation="causes", top=10_000, k=2, min_probability=least)
    shown = [row for row in every if row.probability is not None and row.probability >= least]
    assert 0 < len(likely) < len(every) and [row.tail for row in likely] == [row.tail for row in shown]
    assert linker.calibration is not None
    rough = dataclasses.replace(linker.calibration, over_relations=0.4, by_references=())
    for calibration in (rough, None):
        with pytest.raises(FewlinkError, match="min_probability"):
            Linker(linker.benchmark, linker.scorer, calibration=calibration).complete(REFERENCES, min_probability=0.5)


def test_relations_of_the_graph_and_described_ones() -> None:
    fits = towns().relations(
        "person1x4", "lang1", {"native language": [("person2x1", "lang2"), ("person3x2", "lang3")]}
    )
    by_name = {row.relation: row for row in fits}
    assert by_name["speaks"].known and by_name["speaks"].fit > 0.5 and by_name["speaks"].by == "graph"
    assert by_name["native language"].by == "references" and by_name["native language"].fit > 0.8
    assert len(towns().relations("person1x4", "lang1", k=1)) == 1 and not fits.notes
    assert towns().relations("hobby1", "lang1").notes == ["no relation fits well"]
    lone = Linker.shipped(benchmark_of(people("person1x4 admires person2x3"))).relations("person1x4", "person2x3")
    assert [row.relation for row in lone if row.known] == ["admires"] and not lone.notes  # though nothing supports it
    assert fits.to_dicts()[0]["relation_name"] == fits[0].relation_name


def test_an_error_of_the_graph_is_found_by_name() -> None:
    odd = towns().check("speaks", top=1)[0]
    assert (odd.head, odd.relation, odd.tail) == ("person0x3", "speaks", "lang4")
    dev = umls().benchmark.split("dev")[0].name
    assert {row.relation for row in umls().check(dev, top=3)} == {dev}


def test_answer_sets_say_how_many_it_takes() -> None:
    linker = Linker(umls().benchmark, umls().scorer, calibration=umls().calibration)
    linker.trust = lambda query: Trust(2, (1.0, 2.0))  # type: ignore[method-assign]
    found = linker.predict(REFERENCES, ["alga", "bacterium"], k=5)
    assert [each.asked for each in found.sets] == ["alga", "bacterium"]
    for each in found.sets:
        rows = [row for row in found if row.head == each.asked]
        assert [row.in_set for row in rows] == [row.rank <= each.size for row in rows]
    assert f"alga: {found.sets[0].sentence}" in repr(found)
    assert found.to_dicts()[0]["in_set"] is found[0].in_set and "in_set" in found.to_tsv().splitlines()[0]
    assert len(umls().predict(relation="affects", heads="virus").sets) == 1  # as for a new relation


def test_a_project_gives_references_and_adjusts_probabilities(tmp_path: Path) -> None:
    pairs = [("gene_or_genome", "hormone"), ("cell", "immunologic_factor"), ("mental_process", "enzyme")]
    heads = ["pathologic_function", "tissue"]
    plain = umls().predict(pairs, heads, k=4)
    with ProjectFile(tmp_path / "a") as file:
        file.add_project("makes", [*pairs, ("moon", "cheese")])
        linker = umls().with_project(tmp_path / "a")
        before = linker.predict(heads=heads, k=4)
        assert before.rows == plain.rows and "moon → cheese" in before.notes[0]
        file.decide("makes", [("rejected", row.head, row.tail, row.base_probability) for row in plain[:2]], "ann")
    linker = umls().with_project(tmp_path / "a", "makes")
    after = linker.predict(heads=heads, k=4)
    wrong = {(row.head, row.tail) for row in plain[:2]}
    assert not wrong & {(row.head, row.tail) for row in after}
    assert "2 decisions" in after.notes[0] and "makes" in after.notes[0]
    assert all(row.probability < row.base_probability for row in after)  # type: ignore[operator]
    assert after.sets == umls().predict(pairs, heads, k=4, rejected=sorted(wrong)).sets
    best = linker.predict_pairs(type_or_heads=[*heads, "cell"], k=60)
    chances = [row.probability or 0 for row in best]
    assert chances == sorted(chances, reverse=True)
    answered = {row.head: row.base_probability / row.probability for row in best}  # type: ignore[operator]
    assert answered["cell"] > 1.2  # it has a tail already
    back = linker.heads("hormone", k=3)
    assert not any("adjusted" in note for note in back.notes)
    assert all(row.probability in (row.base_probability, None) for row in back)
