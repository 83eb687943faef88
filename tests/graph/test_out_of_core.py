from __future__ import annotations

import bz2
import filecmp
import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.files import MANIFEST
from fewlink.graph import CompileReport, Graph, out_of_core
from fewlink.graph.compile import compile_graph
from fewlink.graph.out_of_core import compile_out_of_core, compile_to_folder
from fewlink.graph.source import GraphSource

MEMORY = 1 << 30


@pytest.fixture(autouse=True, params=[10**9, 0], ids=["small", "large"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Whether what is counted is stored, too."""
    for module in ("graph", "out_of_core"):
        monkeypatch.setattr(f"fewlink.graph.{module}.LARGE", request.param)
    return int(request.param)


def both(tmp_path: Path, files: list[Path], **options: Any) -> Graph:
    """The graph, after both ways to compile it have written the same bytes and reports."""
    reports = CompileReport(), CompileReport()
    compile_graph(files, report=reports[0], **options).save(tmp_path / "a")
    compile_out_of_core(GraphSource.of(files, **options), tmp_path / "b", memory=MEMORY, report=reports[1])
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "b").iterdir())
    for name in names:
        assert filecmp.cmp(tmp_path / "a" / name, tmp_path / "b" / name, shallow=False), name
    assert MANIFEST in names
    assert reports[0].remarks() == reports[1].remarks()
    assert reports[0].triples == reports[1].triples
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".work") == []
    return Graph.open(tmp_path / "b")


def test_duplicates_self_loops_and_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"head\trelation\ttail\na\tr\tb\nc\tr\tc\na\tr\tb\nb\tq\ta\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b'head,relation,tail\nb,q,"c, d"\na,r,b\nc,r,c\n"x ""y""",q,a\n'))
    graph = both(tmp_path, [tmp_path / "a.tsv", tmp_path / "b.csv.gz"])
    assert list(graph.entities) == ["a", "b", "c", "c, d", 'x "y"']
    assert graph.positions.tolist() == [0, 2, 4, 2, 3, 0, 1, 1, 3, 4]


@pytest.mark.parametrize("seed", range(6))
def test_random_files(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr("fewlink.graph.source.BLOCK_BYTES", 1 << chance.choice([6, 9, 12]))
    monkeypatch.setattr(out_of_core, "BATCH", chance.choice([2, 7, 1 << 20]))
    entities, relations = chance.choice([3, 40, 400]), chance.choice([1, 4, 30])

    def entity() -> str:
        return f"{chance.choice(['é', 'Ω_', 'e', 'concept:k:'])}{int(entities ** chance.random())}"

    rows = [f"{entity()}\tr{chance.randrange(relations)}\t{entity()}" for _ in range(chance.choice([1, 50, 2000]))]
    rows += [f"{entity()}\tage\t{chance.randrange(90)}" for _ in range(chance.choice([0, 3, 30]))]
    (tmp_path / "graph.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "names.tsv").write_text("".join(f"e{i}\tName {i % 7}\ne{i}\tName {i % 5}\n" for i in range(1, 30)))
    (tmp_path / "types.tsv").write_text("".join(f"e{i}\tkind {i % 3}\tK{i % 2}\ne{i}\tx\n" for i in range(1, 30)))
    side = {} if seed % 2 or entities < 40 else {"names": tmp_path / "names.tsv", "types": tmp_path / "types.tsv"}
    both(tmp_path, [tmp_path / "graph.tsv"], **side)


def test_literals_are_left_out_and_names_that_occur_nowhere_else(tmp_path: Path) -> None:
    rows = "m\tage\t5\na\tr\tb\na\tage\t31\nb\tage\t32\nc\tage\t31\nd\tborn\t1990-01-01\nb\tq\tc\n"
    (tmp_path / "graph.tsv").write_text(rows)
    graph = both(tmp_path, [tmp_path / "graph.tsv"])
    assert list(graph.entities) == ["a", "b", "c", "d", "1990-01-01"]
    assert list(graph.relations) == ["r", "born", "q"]


def test_literals_are_kept(tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("a\tr\tb\na\tage\t31\nb\tage\t32\nc\tage\t31\n")
    assert both(tmp_path, [tmp_path / "graph.tsv"], literals="keep").triple_count == 4


def test_rdf_with_labels_and_types(tmp_path: Path) -> None:
    entity, label = "http://e/", "<http://www.w3.org/2000/01/rdf-schema#label>"
    kind = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
    lines = [
        f'<{entity}a> {label} "Das A"@de .',
        f"<{entity}a> <{entity}r> <{entity}b> .",
        f'<{entity}a> {label} "The A"@en .',
        f'<{entity}b> {label} "B" .',
        f'<{entity}r> {label} "is before" .',
        f"<{entity}a> {kind} <{entity}Letter> .",
        f"<{entity}b> {kind} <{entity}Letter> .",
        f"<{entity}b> {kind} <http://www.w3.org/2002/07/owl#Thing> .",
        f'<{entity}a> <{entity}age> "5" .',
    ]
    (tmp_path / "graph.nt.bz2").write_bytes(bz2.compress("\n".join(lines).encode()))
    (tmp_path / "more.nt").write_text(f'<{entity}b> {label} "Another B" .\n<{entity}c> <{entity}r> <{entity}b> .\n')
    graph = both(tmp_path, [tmp_path / "graph.nt.bz2", tmp_path / "more.nt"])
    assert [graph.name(number) for number in range(2)] == ["The A", "B"]
    assert (
        graph.types is not None
        and list(graph.types.names) == ["Letter", f"{entity}owl#Thing"][:1] + list(graph.types.names)[1:]
    )


def test_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet

    table = pyarrow.table({"head": ["a", "b", "a"], "relation": ["r", "r", "q"], "tail": ["b", "c", "c"]})
    pyarrow.parquet.write_table(table, tmp_path / "graph.parquet")
    assert both(tmp_path, [tmp_path / "graph.parquet"]).triple_count == 3


def test_a_bad_line_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_bytes(b"a\tr\tb\na\tr\n")
    with pytest.raises(InputError, match=r"graph.tsv:2: has 2 columns"):
        compile_out_of_core(
            GraphSource.of(tmp_path / "graph.tsv"), tmp_path / "out", memory=MEMORY, report=CompileReport()
        )
    assert not (tmp_path / "out").exists()
    both(tmp_path, [tmp_path / "graph.tsv"], on_error="skip")


def test_no_triples_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_bytes(b"\n\n")
    with pytest.raises(FewlinkError, match="no triples"):
        compile_out_of_core(
            GraphSource.of(tmp_path / "graph.tsv"), tmp_path / "out", memory=MEMORY, report=CompileReport()
        )


def test_the_same_command_continues_after_the_last_finished_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graph.tsv").write_text("".join(f"e{i}\tr{i % 3}\te{i * i % 50}\n" for i in range(100)))
    read = []
    whole = out_of_core.Compiler.read
    monkeypatch.setattr(out_of_core.Compiler, "read", lambda self, *of: (read.append(of[0]), whole(self, *of))[1])

    def fail(*_: object, **more: object) -> None:
        raise KeyboardInterrupt

    stages = ["number_names", "map_names", "write_triples", "leave_out_literals", "sort_edges", "write_names"]
    for stage in [*stages, "write_labels", "write_types"]:
        with monkeypatch.context() as patch:
            patch.setattr(out_of_core.Compiler, stage, fail)
            with pytest.raises(KeyboardInterrupt):
                both(tmp_path, [tmp_path / "graph.tsv"])
        assert not (tmp_path / "b").exists()
    both(tmp_path, [tmp_path / "graph.tsv"])
    assert read == [0]


def test_work_on_other_files_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "graph.tsv").write_text("a\tr\tb\n")
    with monkeypatch.context() as patch:
        patch.setattr(out_of_core.Compiler, "sort_edges", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            both(tmp_path, [tmp_path / "graph.tsv"])
    (tmp_path / "graph.tsv").write_text("a\tr\tc\nc\tr\td\n")
    assert list(both(tmp_path, [tmp_path / "graph.tsv"]).entities) == ["a", "c", "d"]


def test_the_way_depends_on_the_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "graph.tsv").write_text("a\tr\tb\n")
    used = []
    whole = out_of_core.compile_out_of_core
    monkeypatch.setattr(
        out_of_core, "compile_out_of_core", lambda *args, **more: (used.append(more["memory"]), whole(*args, **more))[1]
    )
    for memory in (1000, 10):
        graph = compile_to_folder(GraphSource.of(tmp_path / "graph.tsv"), tmp_path / f"out-{memory}", memory=memory)
        assert list(graph.entities) == ["a", "b"]
    assert used == [10]


def test_too_little_memory_is_an_error_that_says_what_to_do_and_the_work_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    def fail(*_: object) -> None:
        raise duckdb.OutOfMemoryException("Out of Memory Error: failed to pin block\nmore")

    (tmp_path / "graph.tsv").write_text("a\tr\tb\n")
    with monkeypatch.context() as patch:
        patch.setattr(out_of_core.Compiler, "sort_edges", fail)
        with pytest.raises(FewlinkError, match=r"failed to pin block\): free some disk, or give more --memory"):
            both(tmp_path, [tmp_path / "graph.tsv"])
    assert (tmp_path / ".b.work").exists()
    both(tmp_path, [tmp_path / "graph.tsv"])
