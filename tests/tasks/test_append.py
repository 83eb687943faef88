"""Appended triples: ids stay, duplicates are counted, new entities get useful vectors."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import benchmark_of, graph_of, named, task_of, town_lines, written

from fewlink.graph import Graph, TypeTable, Vocabulary, compile_graph, neighbour_table
from fewlink.graph.source import GraphSource
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.embeddings.trainer import train
from fewlink.models.vectors import fold_in
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.tasks.append import append_triples

NEW = [
    ("dan", "lives", "oslo"),  # a new entity
    ("ann", "lives", "oslo"),  # there already
    ("ann", "born", "dan"),  # a new relation
    ("dan", "likes", "ann"),  # a task relation
    ("dan", "lives", "oslo"),  # twice in the file
]


@functools.cache
def small() -> Benchmark:
    graph = graph_of("ann lives oslo", "bob lives rome", "cy lives oslo", "oslo near rome", "ann knows bob")
    return benchmark_of(graph, dev=[task_of([(0, 2), (2, 4)], [0, 2, 4], name="likes")])


def test_a_pair_that_a_task_has_is_not_added_again(tmp_path: Path) -> None:
    extended, report = append_triples(small(), [written([("ann", "likes", "bob")], tmp_path / "new.tsv")])
    assert not report and report.duplicates == 1
    assert extended.task("likes").pairs.tolist() == [[0, 2], [2, 4]]


def test_other_known_answers_of_a_task_stay_known(tmp_path: Path) -> None:
    """Without them, true answers would count as wrong ones in filtered ranks."""
    task = task_of([(0, 2), (2, 4)], [0, 2, 4], known=[(0, 4), (4, 0)], name="likes")
    benchmark = benchmark_of(small().graph, dev=[task])
    extended, report = append_triples(benchmark, [written([("cy", "likes", "bob")], tmp_path / "new.tsv")])
    likes = extended.task("likes")
    assert report.pairs == 1 and likes.pairs.tolist() == [[0, 2], [2, 4], [4, 2]]
    assert likes.known.tolist() == [[0, 2], [0, 4], [2, 4], [4, 0], [4, 2]]


def test_every_benchmark_that_was_appended_to_is_named(tmp_path: Path) -> None:
    """A calibration or a run of the first one is still one of the last."""
    once, _ = append_triples(small(), [written(NEW[:1], tmp_path / "one.tsv")])
    twice, _ = append_triples(once, [written([("eve", "lives", "rome")], tmp_path / "two.tsv")])
    chain = [each for made in (small(), once) for each in (made.fingerprint, made.graph.fingerprint)]
    assert list(twice.extended_from) == chain


def test_old_ids_stay_and_duplicates_are_counted(tmp_path: Path) -> None:
    extended, report = append_triples(small(), [written(NEW, tmp_path / "new.tsv")])
    old = small().graph
    assert list(extended.graph.entities) == [*old.entities, "dan"] and list(extended.graph.relations) == [
        *old.relations,
        "born",
    ]
    assert named(extended.graph) == [*named(old), ("dan", "lives", "oslo"), ("ann", "born", "dan")]
    assert (report.triples, report.pairs, report.entities, report.relations, report.duplicates) == (2, 1, 1, 1, 2)
    assert extended.fingerprint != small().fingerprint
    assert extended.extended_from == (small().fingerprint, old.fingerprint)


def test_a_triple_of_a_task_relation_is_added_to_the_task_and_not_to_the_graph(tmp_path: Path) -> None:
    extended, _ = append_triples(small(), [written(NEW, tmp_path / "new.tsv")])
    task, before = extended.task("likes"), small().task("likes")
    dan, ann = extended.graph.entities.ids(["dan", "ann"])
    assert "likes" not in extended.graph.relations
    assert task.pairs.tolist() == [*before.pairs.tolist(), [dan, ann]]
    assert set(before.range) <= set(task.range) and ann in task.range and [dan, ann] in task.known.tolist()


def test_entities_without_new_triples_keep_their_neighbours(tmp_path: Path) -> None:
    lines = town_lines()
    before = graph_of(*("\t".join(line).replace(" ", "_").replace("\t", " ") for line in lines))
    new = [("p1", "knows", "stranger"), ("stranger", "sings", "p1")]
    extended, _ = append_triples(benchmark_of(before), [written(new, tmp_path / "new.tsv")])
    one, two = (neighbour_table(graph, 4) for graph in (before, extended.graph))
    relations = len(before.relations)
    for entity in range(len(before.entities)):
        if entity != before.entities.id("p1"):  # the inverse of relation r has number r + R, and R is larger
            assert one.of(entity) == [(r - (r > relations), e) for r, e in two.of(entity)]
    stranger = two.of(extended.graph.entities.id("stranger"))
    assert len(stranger) == 2 and {entity for _, entity in stranger} == {before.entities.id("p1")}


def test_types_and_readable_names_of_old_and_new_entities(tmp_path: Path) -> None:
    old = small().graph
    types = TypeTable.of([b"city"], np.array([old.entities.id("oslo")]), np.array([0]), len(old.entities))
    labels = Vocabulary.of([f"{name}!" for name in (*old.entities, *old.relations)])
    graph = Graph.of(old.entities, old.relations, old.triples(), types=types, labels=labels)
    kinds = written([("dan", "person"), ("rome", "city")], tmp_path / "types.tsv")
    names = written([("dan", "Dan D."), ("born", "was born"), ("bob", "Bob B.")], tmp_path / "names.tsv")
    extended, _ = append_triples(
        benchmark_of(graph), GraphSource.of(written(NEW, tmp_path / "new.tsv"), types=kinds, names=names)
    )
    result = extended.graph
    assert result.types is not None
    members = {name: result.types.members(np.array([i])).tolist() for i, name in enumerate(result.types.names)}
    assert members == {"city": old.entities.ids(["oslo", "rome"]).tolist(), "person": [result.entities.id("dan")]}
    called = [result.name(result.entities.id(name)) for name in ("dan", "bob", "ann")]
    assert called == ["Dan D.", "Bob B.", "ann!"]
    assert [result.relation_name(result.relations.id(name)) for name in ("born", "lives")] == ["was born", "lives!"]
    plain, _ = append_triples(benchmark_of(graph), [tmp_path / "new.tsv"])
    assert plain.graph.types is not None and not plain.graph.types.typed(np.array([len(old.entities)]))[0]


def test_new_entities_with_the_name_of_an_old_one_are_remarked_on(tmp_path: Path) -> None:
    old = graph_of("eve_1 knows adam_2", "eve_3 knows adam_2", "cain knows eve_1")
    labels = Vocabulary.of(["Eve", "Adam", "eve", "Cain", "knows"])  # of eve_1, adam_2, eve_3 and cain
    before = benchmark_of(Graph.of(old.entities, old.relations, old.triples(), labels=labels))
    new = [("Seth", "knows", "Eve"), ("adam", "knows", "eve_1"), ("Cain", "knows", "cain")]
    _, report = append_triples(before, [written(new, tmp_path / "new.tsv")])
    assert report.entities == 4
    assert report.namesakes == {"Eve": ["eve_1", "eve_3"], "adam": ["adam_2"], "Cain": ["cain"]}
    assert report.remarks() == [
        "'Eve' is a new entity, but also the name of 'eve_1', 'eve_3': write the id if you mean one of these",
        "'adam' is a new entity, but also the name of 'adam_2': write the id if you mean that one",
        "'Cain' is a new entity, but also the name of 'cain': write the id if you mean that one",
    ]
    many = [(" " * place + "Adam", "knows", "cain") for place in range(1, 8)]
    _, report = append_triples(before, [written(many, tmp_path / "many.tsv")])
    assert (len(report.namesakes), len(report.remarks())) == (7, 6)
    assert report.remarks()[-1] == "2 other new entities have the name of an old one, too"
    assert append_triples(small(), [written(NEW, tmp_path / "none.tsv")])[1].remarks() == []


@pytest.mark.parametrize("model", ["complex", "transe", "distmult"])
def test_vectors_of_new_entities_predict_their_neighbours(model: str) -> None:
    whole = open_benchmark("umls").known_graph
    count = len(whole.entities)
    order = np.random.default_rng(0).permutation(count).astype(np.int32)
    triples = np.stack([order[whole.triples()[:, 0]], whole.triples()[:, 1], order[whole.triples()[:, 2]]], 1)
    graph = Graph.of(Vocabulary.of(f"e{i}" for i in range(count)), whole.relations, triples)
    late = np.arange(count - 12, count)  # in no training triple
    early = triples[~np.isin(triples[:, [0, 2]], late).any(1)]
    settings = EmbeddingSettings(model=model, dim=32, epochs=12, learning_rate=0.2, negatives=64, batch_size=256)
    table = train(early, count - len(late), len(graph.relations), settings)
    extended = fold_in(table, graph, count - len(late), len(graph.relations), 0)
    assert torch.equal(extended.entities[: len(table.entities)], table.entities)
    assert torch.equal(extended.relations, table.relations)
    queries = torch.from_numpy(triples[np.isin(triples[:, 0], late) & (triples[:, 2] < late[0])].astype(np.int64))

    def mean_rank(vectors: Embeddings) -> float:
        scores = vectors.score_all(queries[:, 0], queries[:, 1], torch.arange(int(late[0])))
        return float((scores > scores.gather(1, queries[:, 2:])).sum(1).float().mean()) / int(late[0])

    torch.manual_seed(0)
    noise = torch.randn(len(late), 32) * table.entities.std()
    random = Embeddings(torch.cat([table.entities, noise]), table.relations, model)
    assert len(queries) > 50
    assert mean_rank(extended) < 0.75 * mean_rank(random)


def test_new_relations_precede_those_of_tasks_and_fit_their_pairs() -> None:
    old = small().graph
    random = torch.Generator().manual_seed(0)
    table = Embeddings(torch.randn(5, 4, generator=random), torch.randn(8, 4, generator=random), "transe")  # one task
    triples = np.concatenate([old.triples(), [[0, 3, 4], [2, 3, 4]]]).astype(np.int32)
    graph = Graph.of(old.entities, Vocabulary.of([*old.relations, "new", "task"]), triples)
    extended = fold_in(table, graph, 5, 3, 1)
    offset = (table.entities[[4, 4]] - table.entities[[0, 2]]).mean(0)
    wanted = torch.stack([*table.relations[:3], offset, table.relations[3]])
    assert torch.equal(extended.relations[:5], wanted)
    assert torch.equal(extended.relations[8], -offset) and torch.equal(extended.relations[9], table.relations[7])


def test_names_and_types_of_appended_rdf_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    prefixes = "@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    (tmp_path / "old.ttl").write_text(f'{prefixes}:a :r :b . :a a :City ; rdfs:label "A" .')
    (tmp_path / "new.ttl").write_text(f'{prefixes}:c :r :b . :c a :Town ; rdfs:label "C" .')
    before = Benchmark("b", compile_graph(tmp_path / "old.ttl"), {"train": [], "dev": [], "test": []})
    graph = append_triples(before, [tmp_path / "new.ttl"])[0].graph
    assert [graph.name(i) for i in range(len(graph.entities))] == ["A", "b", "City", "C", "Town"]
    assert graph.types is not None and list(graph.types.names) == ["City", "Town"]


def test_names_and_types_of_an_appended_stix_bundle_are_kept(tmp_path: Path) -> None:
    def bundle(name: str, *objects: dict[str, str]) -> Path:
        (tmp_path / name).write_text(json.dumps({"type": "bundle", "objects": objects}))
        return tmp_path / name

    kinds = (("malware", "Rat"), ("tool", "Fox"), ("intrusion-set", "Owl"))
    rat, fox, owl = ({"type": kind, "id": f"{kind}--1", "name": name} for kind, name in kinds)
    use = {"type": "relationship", "id": "relationship--1", "relationship_type": "uses"}
    old = bundle("old.json", rat, fox, {**use, "source_ref": "malware--1", "target_ref": "tool--1"})
    new = bundle("new.json", rat, owl, {**use, "source_ref": "intrusion-set--1", "target_ref": "malware--1"})
    before = Benchmark("b", compile_graph(old), {"train": [], "dev": [], "test": []})
    for paths in ([new], [str(new)]):
        graph = append_triples(before, paths)[0].graph  # type: ignore[arg-type]
        assert [graph.name(i) for i in range(len(graph.entities))] == ["Rat", "Fox", "Owl"]
        assert graph.types is not None
        types = [graph.types.names[int(kind)] for kind in graph.types.types]
        assert types == ["malware", "tool", "group"]
