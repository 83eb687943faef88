"""One path for any number of references: a relation of the graph, a new one, a project, `predict` and `complete`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import benchmark_of
from tests.linker.graphs import people
from tests.linker.linkers import fsrl, references_of, trail

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.curation.store import ProjectFile
from fewlink.graph import Graph
from fewlink.linker import Linker, Predictions
from fewlink.linker.query import HEADS_PER_BATCH, find_relation
from fewlink.linker.reasons import MAX_REFERENCES
from fewlink.models.contract import capabilities
from fewlink.models.trail.scorer import TrailScorer

TREES = "Alder Birch Cedar Dogwood Elm Fir Ginkgo Hazel Ironwood Juniper Koa Larch Maple Nutmeg Oak Pine"
NAMES = TREES.split()
Rows = list[tuple[str, float, float, float]]
EVERY = 10_000


@functools.cache
def umls() -> Linker:
    return fewlink.load("umls")


@functools.cache
def towns() -> Linker:
    return Linker.shipped(benchmark_of(people()))


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Linker:
    """Works made by firms and sold in shops, with the firm in the name of the work."""
    folder, lines, names = tmp_path_factory.mktemp("named"), [], []
    for number, tree in enumerate(NAMES):
        names.append(f"f{number}\t{tree} Press")
        lines.append(f"f{number}\tsits_in\tc{number % 4}")
        for work in range(4):
            names.append(f"w{number}x{work}\t{tree} Press {NAMES[(number + work) % 16]} Almanac {work}")
            lines += [f"w{number}x{work}\tmade_by\tf{number}", f"w{number}x{work}\tsold_in\ts{(number + work) % 5}"]
    names += [f"c{place}\tTown of {NAMES[place]}" for place in range(4)]
    names += [f"s{place}\tShop of {NAMES[-place]}" for place in range(5)]
    (folder / "graph.tsv").write_text("\n".join(lines) + "\n")
    (folder / "names.tsv").write_text("\n".join(names) + "\n")
    linker = fewlink.load(folder / "graph.tsv", names=folder / "names.tsv")
    assert capabilities(linker.scorer).reads_names
    return linker


def rows_by_head(predictions: Predictions) -> dict[str, Rows]:
    """Tail, score, rank and probability of the rows of each head, in their order."""
    found: dict[str, Rows] = {}
    for row in predictions:
        found.setdefault(row.head, []).append((row.tail, row.score, row.rank, row.probability or 0.0))
    return found


def assert_same(some: dict[str, Rows], others: dict[str, Rows]) -> None:
    """Equal but for the rounding of sums of other heads beside; tails whose scores are that near may change places."""
    assert some.keys() == others.keys()
    for head, rows in some.items():
        for column in (1, 3):
            values = [row[column] for row in rows]
            assert [row[column] for row in others[head]] == pytest.approx(values, rel=1e-4, abs=1e-4)
        apart = {tail for tail, score, *_ in rows if sum(abs(row[1] - score) < 1e-3 for row in rows) == 1}
        last = {row[0] for row in rows if row[1] - rows[-1][1] < 1e-3}  # one of equal tails may be left out
        for row, other in zip(rows, others[head], strict=True):
            assert row[0] == other[0] or row[0] not in apart - last
            assert row[2] == other[2] or row[0] not in apart - last


def pairs_of(linker: Linker, relation: str) -> list[tuple[str, str]]:
    entities = linker.graph.entities
    pairs = find_relation(linker.benchmark, relation).pairs().tolist()
    return [(entities[head], entities[tail]) for head, tail in pairs]


def assert_completed_as_asked(linker: Linker, references: Sequence[tuple[str, str]] | None, **options: str) -> None:
    """`complete` gives for each head what `predict` gives, for heads that it chooses and for those that are given."""
    completed = linker.complete(references, k=3, top=EVERY, **options)  # type: ignore[arg-type]
    heads = list(dict.fromkeys(row.head for row in completed))
    asked = linker.predict(references, heads, 3, **options)  # type: ignore[arg-type]
    assert heads
    assert_same(rows_by_head(completed), rows_by_head(asked))
    assert completed.trust == asked.trust
    some = heads[: HEADS_PER_BATCH // 3]
    again = linker.complete(references, heads=some, k=3, top=EVERY, **options)  # type: ignore[arg-type]
    assert_same(rows_by_head(again), {head: rows_by_head(asked)[head] for head in some})
    one = linker.predict(references, some[0], 3, **options)  # type: ignore[arg-type]
    assert_same(rows_by_head(one), {some[0]: rows_by_head(asked)[some[0]]})


@pytest.mark.parametrize("relation", ["affects", "causes", "isa"])
def test_complete_equals_predict_for_a_relation_of_the_graph(relation: str) -> None:
    assert_completed_as_asked(umls(), None, relation=relation)


def test_complete_equals_predict_for_a_new_relation() -> None:
    pairs = [("virus", "cell"), ("fungus", "plant"), ("bacterium", "human")]
    assert_completed_as_asked(umls(), pairs)
    assert_completed_as_asked(umls(), pairs, candidates="all")
    assert_completed_as_asked(umls(), pairs, relation="affects")


def test_complete_equals_predict_on_graphs_with_and_without_names(named: Linker) -> None:
    works = [(f"w{number}x0", f"f{(number + 1) % 16}") for number in range(10)]
    for linker, relation, new in (
        (named, "made_by", works),
        (towns(), "lives", [(f"person{country}x3", f"town{country}0") for country in range(5)]),
    ):
        assert_completed_as_asked(linker, None, relation=relation)
        assert_completed_as_asked(linker, new)
        assert_completed_as_asked(linker, new, constraints="none")


@pytest.mark.parametrize("constraint", ["functional", "inverse-functional"])
def test_a_completion_with_constraints_has_the_best_pairs_of_all_heads(constraint: str) -> None:
    pairs = [("virus", "cell"), ("fungus", "plant"), ("bacterium", "human")]
    entities = [umls().graph.entities[place] for place in range(2 * HEADS_PER_BATCH + 6)]
    heads = [entity for entity in entities if entity not in dict(pairs)]  # a completion lists heads with a tail last
    completed = umls().complete(pairs, heads=heads, k=EVERY, top=20, constraints=constraint)
    best = umls().predict_pairs(pairs, heads, 20, constraints=constraint)
    assert [(row.head, row.tail, row.score) for row in completed] == [(row.head, row.tail, row.score) for row in best]
    for row in umls().complete(pairs, heads=heads, k=2, top=EVERY, constraints=constraint):
        assert (row.head, row.tail) not in pairs
    per_head = rows_by_head(umls().complete(pairs, heads=heads, k=2, top=EVERY, constraints=constraint))
    assert max(map(len, per_head.values())) == (1 if constraint == "functional" else 2)


def test_a_relation_of_the_graph_is_as_one_given_by_references(named: Linker) -> None:
    """With all its pairs as references on the graph without its triples, every score is the same."""
    for linker, relation in ((named, "made_by"), (towns(), "speaks"), (umls(), "affects")):
        pairs, graph = pairs_of(linker, relation), linker.graph
        without = graph.without(np.array([graph.relations.id(relation)]))
        assert without.triple_count == graph.triple_count - len(pairs)
        lacking = Linker.shipped(dataclasses.replace(linker.benchmark, graph=without))
        heads = list(dict.fromkeys(head for head, _ in pairs))[:5]
        asked = linker.predict(heads=heads, relation=relation, k=5, candidates="all")
        given = lacking.predict(pairs, heads, 5, candidates="all")
        asked, given = (
            dataclasses.replace(each, rows=[dataclasses.replace(row, probability=None) for row in each])
            for each in (asked, given)
        )
        assert_same(rows_by_head(asked), rows_by_head(given))


def test_a_head_that_only_the_asked_relation_joins_to_the_references_has_no_percentage(tmp_path: Path) -> None:
    first = ["person0x0 works town10", "person1x1 works town21", "person2x2 works town30"]
    linker = Linker.shipped(benchmark_of(people(*first, "hermit works town10")))
    (row,) = linker.predict(None, "hermit", 1, relation="works", shots=3)
    assert row.probability is None and row.base_probability is None
    large = Linker.shipped(benchmark_of(Graph.open(linker.graph.save(tmp_path / "graph", large=0))))
    assert isinstance(large.scorer, TrailScorer)
    large.scorer.part_edges = large.scorer.near_edges = 100
    (row,) = large.predict(None, "hermit", 1, relation="works", shots=3)
    assert row.probability is None and row.base_probability is None


def test_all_known_pairs_and_all_given_ones_are_references() -> None:
    linker, known = umls(), pairs_of(umls(), "causes")
    assert len(known) > 200 and references_of(linker, "causes") == known
    more = [("bird", "cell"), known[3], ("fish", "plant")]
    found = linker.resolve(more, relation="causes").references
    assert found.ids.tolist() == linker.find_references([*known, *more]).ids.tolist()  # each once, the given ones last
    assert linker.find_references([*known, *more]).ids.shape == (len(known) + 2, 2)
    assert len(linker.find_references(more, "causes", 2).pairs) == 5
    assert len(linker.find_references(more, "causes", 0).pairs) == 3
    assert len(linker.find_references(None, "causes", 7).pairs) == 7
    for pairs, shots in ((more, -1), (None, 0)):
        with pytest.raises(FewlinkError, match="shots"):
            linker.find_references(pairs, "causes", shots)


def test_a_model_that_cannot_hide_a_relation_reads_as_many_as_in_training() -> None:
    assert len(fsrl().find_references(None, "causes").pairs) == fsrl().shots
    assert len(fsrl().find_references([("bird", "cell")], "causes").pairs) == 1
    assert len(trail().find_references(None, "causes").pairs) == len(pairs_of(trail(), "causes"))


def test_a_rejected_pair_of_the_graph_is_no_reference() -> None:
    linker, (wrong, *others) = umls(), pairs_of(umls(), "causes")
    query = linker.resolve(relation="causes", rejected=[wrong], heads=wrong[0])
    assert query.references.ids.tolist() == linker.find_references(others).ids.tolist()
    assert wrong[1] not in {row.tail for row in linker.answer(query)}
    with pytest.raises(FewlinkError, match="both a reference and a rejected pair"):
        linker.resolve([wrong], relation="causes", rejected=[wrong])


def test_every_accepted_pair_of_a_project_is_a_reference(tmp_path: Path) -> None:
    entities = [umls().graph.entities[number] for number in range(60)]
    accepted = list(itertools.islice(itertools.permutations(entities, 2), 3_000))
    with ProjectFile(tmp_path / "p.decisions") as file:
        file.add_project("new", [("virus", "cell")])
        file.decide("new", [("accepted", head, tail) for head, tail in accepted])
    linker = umls().with_project(tmp_path / "p.decisions")
    read = linker.resolve(heads="bird").references
    assert len(read.pairs) == 3_001
    union = linker.resolve([("fish", "plant")], relation="causes", heads="bird").references
    assert {*read.pairs, *linker.find_references(None, "causes").pairs} < set(union.pairs)
    assert len(linker.predict(heads="bird", k=3)) == 3
    assert_completed_as_asked(linker, None)


def test_references_given_twice_are_noted_in_one_line() -> None:
    pairs = [(head, "cell") for head in ("bird", "fish", "virus", "alga", "plant")]
    notes: list[str] = []
    assert len(umls().find_references([*pairs, *pairs], notes=notes).pairs) == 5
    assert notes[0].startswith("5 references are given twice and count once: 'bird' → 'cell'; ") and "…" in notes[0]


def test_without_names_the_model_is_structural(named: Linker) -> None:
    heads = [f"w{number}x1" for number in range(4)]
    with_names = named.predict(heads=heads, relation="made_by", k=1, explain=True)
    assert any(
        step.relation == "contains the name of"
        for row in with_names
        for path in row.reasons.paths  # type: ignore[union-attr]
        for step in path.steps
    )
    plain = Linker.shipped(named.benchmark, names=False)
    assert not capabilities(plain.scorer).reads_names
    structural = Linker(named.benchmark, named.scorer.without_names(), calibration=named.calibration)  # type: ignore[attr-defined]
    asked = plain.predict(heads=heads, relation="made_by", k=5, explain="full")
    assert_same(rows_by_head(asked), rows_by_head(structural.predict(heads=heads, relation="made_by", k=5)))
    assert [row.score for row in plain.complete(relation="made_by", heads=heads, k=1)] != pytest.approx(
        [row.score for row in named.complete(relation="made_by", heads=heads, k=1)]
    )
    for row in asked:
        assert row.reasons is not None and "name" not in " ".join(row.reasons.lines(full=True))


def test_of_many_references_an_explanation_lists_the_nearest() -> None:
    linker, known = umls(), pairs_of(umls(), "affects")
    reasons = linker.explain(relation="affects", head="bird", tail="mental_process")
    same = [pair for pair in known if pair[1] == "mental_process"]
    assert reasons.compared == MAX_REFERENCES
    assert len(reasons.references) == MAX_REFERENCES
    listed = [(each.head.id, each.tail.id) for each in reasons.references]
    assert set(listed[: len(same)]) == set(same[:MAX_REFERENCES])
    few = linker.explain(known[:3], "bird", "mental_process")
    assert (few.compared, len(few.references)) == (3, 3)
    first = linker.explain(relation="affects", head=known[0][0], tail=known[0][1])
    assert "one of the references" in " ".join(first.lines())
