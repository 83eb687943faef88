"""Graphs that TRAIL was not trained on: what is hidden and asked, how it is ranked, and what is stored and shown."""

from __future__ import annotations

import dataclasses
import itertools
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import graph_of
from tests.models.ultra.test_network import network_of as ultra_network

import unseen_graphs
from common import run
from fewlink.core.errors import FewlinkError
from fewlink.graph import Graph, Vocabulary
from fewlink.models.contract import Question
from fewlink.models.trail.shipped import shipped, write_weights
from unseen_graphs import (
    ASKED,
    COLUMNS,
    SIZES,
    Hidden,
    complete,
    curve_chart,
    curve_of,
    hidden_relations,
    read_unseen,
    skewed_rows,
    suite,
    tables_of,
    trail_network,
    trail_on,
    training_triples,
    untrained_on,
)

Main = Callable[..., tuple[int, str]]
INDEX = "name\tuse\tdomain\tnamed_entities\tsource\tlicence as stated\n"
TOWNS, LANDS = 90, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two graphs of the suite, and one to train on."""
    place = tmp_path_factory.mktemp("graphs")
    random = np.random.default_rng(0)
    lines = []
    for town in range(TOWNS):
        land = int(random.integers(LANDS)) if town % 3 else 0
        lines += [f"t{town}\tin\tl{land}", f"t{town}\tspeaks\tg{land}", f"t{town}\tnear\tt{random.integers(TOWNS)}"]
    lines += [f"l{land}\tpart of\tw" for land in range(LANDS)]
    names = [f"t{town}\tTown {town}" for town in range(TOWNS)]
    for name in ("towns", "streets"):
        (place / f"{name}.tsv.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    (place / "towns.names.tsv.xz").write_bytes(lzma.compress("\n".join(names).encode()))
    rows = ("towns\tnever train", "streets\tnever train", "other\ttrain")
    (place / "INDEX.tsv").write_text(INDEX + "".join(f"{row}\tplaces\t90\there\tCC0\n" for row in rows))
    return place


@pytest.fixture(scope="module")
def towns(folder: Path) -> Graph:
    return suite(folder, ["towns"])[0].graph()


class Mixed:
    """Scores with many ties, different for each head."""

    name = "mixed"

    def __call__(self, question: Question) -> np.ndarray:
        heads, tails = question.heads.astype(float)[:, None], question.candidates.astype(float)[None]
        return np.floor(4 * np.sin(heads * tails + len(question.references)))


def test_the_suite_is_the_graphs_that_are_never_trained_on(folder: Path, tmp_path: Path) -> None:
    graphs = suite(folder)
    assert [listed.name for listed in graphs] == ["towns", "streets"]
    assert graphs[0].graph().labels is not None and graphs[1].graph().labels is None
    with pytest.raises(FewlinkError, match="other"):
        suite(folder, ["other"])
    with pytest.raises(FewlinkError, match=r"INDEX\.tsv"):
        suite(tmp_path)


def test_half_of_the_pairs_at_most_are_asked_and_the_references_are_nested(towns: Graph) -> None:
    hidden = hidden_relations(towns, "towns")
    assert {each.name for each in hidden} == {"in", "speaks", "near"}  # `part of` has too few pairs
    for each in hidden:
        pairs = {(h, t) for h, r, t in towns.triples().tolist() if r == each.relation}
        asked, pool = ({(h, t) for h, t in part.tolist()} for part in (each.asked, each.pool))
        assert asked | pool == pairs and not asked & pool
        assert len(each.asked) == min(ASKED, len(pairs) // 2)
        sets = [each.references(size).tolist() for size in SIZES]
        assert [len(found) for found in sets] == [1, 3, 10, 30, len(pool), len(pool)]
        assert all(larger[: len(smaller)] == smaller for smaller, larger in itertools.pairwise(sets))
    again = hidden_relations(towns, "towns")
    assert all(np.array_equal(one.asked, other.asked) for one, other in zip(hidden, again, strict=True))
    assert not np.array_equal(hidden[0].asked, hidden_relations(towns, "streets")[0].asked)


def test_trail_without_a_part_of_what_it_reads_of_names() -> None:
    words = ["oak", "elm", "ash", "fir", "yew", "birch", "cedar", "maple", "rowan", "alder"]
    lies = [f"{word}_wood_{kind} lies_in region_{at % 3}" for at, word in enumerate(words) for kind in ("a", "b", "c")]
    near = [f"{word}_wood_a near {word}_wood_b" for word in words]
    graph = graph_of(*lies, *near)
    graph = dataclasses.replace(
        graph, labels=Vocabulary.of([name[:-2] for name in graph.entities] + ["lies in", "near"])
    )
    (first, *_), (network, _) = hidden_relations(graph, "woods"), trail_network(None)
    question = Question("", first.references("3"), first.asked[:4, 0], np.arange(len(graph.entities)))

    def scores(*without: str) -> torch.Tensor:
        return torch.as_tensor(trail_on(network, "cpu", names=True, without=without)(graph)(first)(question))

    assert not torch.allclose(scores(), scores("same")) and not torch.allclose(scores(), scores("vectors"))


def literal_ranks(graph: Graph, hidden: Hidden, references: np.ndarray, asked: np.ndarray) -> list[float]:
    """The rank of each asked pair, one candidate after another."""
    everything = np.arange(len(graph.entities))
    known = {(h, t) for h, t in hidden.task.pairs.tolist()}
    ranks = []
    for head, tail in asked.tolist():
        (scores,) = Mixed()(Question("", references, np.array([head]), everything)).tolist()
        rank = 1.0
        for other in everything.tolist():
            if other != tail and (head, other) not in known:
                rank += 1.0 if scores[other] > scores[tail] else 0.5 if scores[other] == scores[tail] else 0.0
        ranks.append(rank)
    return ranks


def test_ranks_are_those_of_a_literal_loop(towns: Graph) -> None:
    for each in hidden_relations(towns, "towns"):
        for size, row in curve_of(towns, Mixed(), each).items():
            references = each.references(size)
            ranks = np.array(literal_ranks(towns, each, references, each.asked))
            seen = np.array([any(tail == t for t in references[:, 1]) for tail in each.asked[:, 1]])
            found = dict(zip(COLUMNS, row, strict=True))
            assert found["references"] == len(references) and found["asked"] == len(ranks)
            assert found["mrr"] == pytest.approx(np.mean(1 / ranks), abs=1e-5)
            assert found["hits@1"] == pytest.approx(np.mean(ranks <= 1), abs=1e-5)
            assert found["hits@10"] == pytest.approx(np.mean(ranks <= 10), abs=1e-5)
            assert found["seen"] == seen.sum()
            for column, of in (("mrr seen", seen), ("mrr unseen", ~seen)):
                assert found[column] == (pytest.approx(np.mean(1 / ranks[of]), abs=1e-5) if of.any() else None)


def test_skewed_references_share_a_tail_that_is_not_asked_for(towns: Graph) -> None:
    each = next(each for each in hidden_relations(towns, "towns") if each.name == "in")
    rows = {name: dict(zip(COLUMNS, row, strict=True)) for name, row in skewed_rows(towns, Mixed(), each).items()}
    assert list(rows) == ["3, other tails", "3 + 10 of one tail", "3 + own 10"]  # there are no thirty of one tail
    assert [row["references"] for row in rows.values()] == [3, 13, 13]
    others = sum(tail != towns.entities.find("l0") for tail in each.asked[:, 1].tolist())
    assert [row["asked"] for row in rows.values()] == [others, others, len(each.asked)]


def test_complex_is_trained_without_the_asked_pairs(towns: Graph) -> None:
    hidden = hidden_relations(towns, "towns")
    triples = {tuple(row) for row in towns.triples().tolist()}
    of_group = {each.relation for each in hidden[:2]}
    few = {tuple(row) for row in training_triples(towns, hidden[:2], "3").tolist()}
    assert few <= triples
    assert {row for row in few if row[1] not in of_group} == {row for row in triples if row[1] not in of_group}
    assert sum(row[1] in of_group for row in few) == 6
    asked = {(h, each.relation, t) for each in hidden for h, t in each.asked.tolist()}
    assert {tuple(row) for row in training_triples(towns, hidden, "all").tolist()} == triples - asked


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the script; its exit code, and all that it prints."""

    def call(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["unseen_graphs.py", *map(str, words)])
        code = 0
        try:
            run(unseen_graphs.main)
        except SystemExit as end:
            code = int(end.code or 0)
        return code, "".join(capsys.readouterr())

    return call


def test_what_has_a_record_is_not_measured_again(folder: Path, tmp_path: Path, main: Main) -> None:
    words = [folder, "--models", "popularity", "rules", "--results", tmp_path]
    assert main(*words, "--graphs", "towns")[0] == 0
    first = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    assert sorted(path.parent.name for path in first) == ["popularity", "rules"]
    assert main(*words)[0] == 0
    assert all(path.read_bytes() == content for path, content in first.items())
    assert len(list(tmp_path.rglob("*.json"))) == 4
    code, out = main("--show", "--results", tmp_path)
    assert code == 0 and "| rules |" in out
    for words, token in ((["rulez"], "rulez"), (["ultra"], "--checkpoint")):
        code, out = main(folder, "--models", *words, "--results", tmp_path)
        assert code == 2 and token in out


@pytest.mark.slow
def test_weights_of_several_seeds_and_their_labels(folder: Path, tmp_path: Path, main: Main) -> None:
    files = []
    for seed in (0, 1):
        weights = {name: value + 0.01 * seed for name, value in shipped().weights.items()}
        files.append(write_weights(tmp_path / f"seed-{seed}.safetensors", weights, shipped().shape))
    results = tmp_path / "results"
    words = [folder, "--models", "trail", "trail-no-names", "--graphs", "towns", "--results", results, "--relations", 1]
    assert main(*words, "--weights", *files)[0] == 0
    records = read_unseen(results)
    seeds = {(record.model, record.seed) for record in records}
    assert seeds == {(model, seed) for model in ("trail", "trail-no-names") for seed in (0, 1)}
    assert len(complete(records)["trail"]) == 2
    code, out = main(*words, "--weights", *reversed(files))
    assert code == 2 and "--label" in out
    assert main(*words, "--weights", files[1], "--label", "other")[0] == 0
    assert (results / "other-no-names" / "towns.0.json").exists()


def record(model: str, graph: str, mrrs: dict[str, dict[str, float]], seed: int = 0) -> str:
    """The text of a record in which relation → set of references has this MRR."""
    relations = {
        name: {"pairs": 20, "rows": {of: [3, 10, mrr, mrr, mrr, 0, None, mrr] for of, mrr in own.items()}}
        for name, own in mrrs.items()
    }
    about = {"named_entities": "5", "domain": "places", "source": "here", "licence as stated": "CC0"}
    sizes = {"triples": 1000, "entities": 50, "relations": 4, "hidden": len(mrrs)}
    facts = {"format": "fewlink-unseen-graphs/1", "model": model, "seed": seed, "graph": graph, "about": about}
    return json.dumps({**facts, "sizes": sizes, "config": {}, "columns": COLUMNS, "relations": relations})


def test_means_are_over_relations_then_graphs_and_only_whole_models_are_shown(tmp_path: Path) -> None:
    def store(model: str, graph: str, mrrs: list[float], seed: int = 0) -> None:
        relations = {
            f"r{i}": {**dict.fromkeys(SIZES, mrr), "3, other tails": mrr, "3 + 10 of one tail": mrr / 2}
            for i, mrr in enumerate(mrrs)
        }
        path = tmp_path / model / f"{graph}.{seed}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(record(model, graph, relations, seed))

    store("rules", "towns", [0.1, 0.3])  # mean .2
    store("rules", "streets", [0.6])  # mean over graphs: .4
    store("trail", "towns", [0.3, 0.5])
    store("trail", "streets", [0.6])
    store("trail", "towns", [0.5, 0.7], seed=1)
    store("trail", "streets", [0.8], seed=1)
    store("trail", "towns", [0.9], seed=2)  # lacks a graph
    store("popularity", "towns", [0.9])
    store("complex", "towns", [0.2])  # was asked about one of two relations
    store("complex", "streets", [0.4])
    records = read_unseen(tmp_path)
    tables = tables_of(records)
    assert tables["mrr"].rows[0][:2] == ["TRAIL", "**.600 ± .141**"]
    assert tables["mrr"].rows[1][:2] == ["rules", ".400"]
    assert len(tables["mrr"].rows) == 2
    assert [row[:2] for row in tables["shared"].rows] == [
        ["TRAIL", "**.550 ± .141**"],
        ["ComplEx", ".300"],
        ["rules", ".350"],
    ]
    assert tables["seen"].rows[0][1] == ""
    assert [row[:2] for row in tables["graphs"].rows] == [["streets", "places"], ["towns", "places"]]
    assert list(tables["three"].rows[1]) == ["towns", "**.500 ± .141**", ".200"]
    chart = curve_chart(records, ["trail", "popularity", "rules"])
    assert ">all<" in chart and ">rules<" in chart and ">popularity<" not in chart


def test_skewed_sets_are_compared_on_the_relations_that_have_them(tmp_path: Path) -> None:
    sets = {**dict.fromkeys(SIZES, 0.2), "3, other tails": 0.4}
    own = {"3 + 10 of one tail": 0.5, "3 + 30 of one tail": 0.6, "3 + own 10": 0.3}
    (tmp_path / "rules").mkdir()
    path = tmp_path / "rules" / "towns.0.json"
    path.write_text(record("rules", "towns", {"a": {**sets, **own}, "b": dict.fromkeys(SIZES, 0.9)}))
    assert tables_of(read_unseen(tmp_path))["skewed"].rows == [["rules", ".400 → .500", ".400 → .600", ".200 → .300"]]
    path.write_text("{}")
    with pytest.raises(FewlinkError, match="towns"):
        read_unseen(tmp_path)


def test_published_weights_do_not_read_the_hidden_relation(towns: Graph, tmp_path: Path) -> None:
    file = tmp_path / "ultra.pth"
    torch.save(ultra_network().state_dict(), file)
    first = hidden_relations(towns, "towns")[0]
    without = towns.without(np.array([first.relation]))
    question = Question("", first.references("3"), first.asked[:4, 0], np.arange(len(towns.entities)))
    given, expected = (untrained_on("ultra", "cpu", file)(graph)(first)(question) for graph in (towns, without))
    assert torch.equal(torch.as_tensor(given), torch.as_tensor(expected))
