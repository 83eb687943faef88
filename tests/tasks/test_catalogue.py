from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from tests.conftest import Fewlink, benchmark_of, graph_of, task_of, write_layout

import fewlink
from fewlink.core.errors import FewlinkError, InputError, UnknownName
from fewlink.graph import compile_graph
from fewlink.graph.source import GraphSource
from fewlink.tasks import SPLITS, open_benchmark
from fewlink.tasks.carving import CarveSettings, carve
from fewlink.tasks.catalogue import (
    CATALOGUE,
    attack_dates,
    attack_graph,
    check_benchmark,
    check_source,
    data_home,
    fetch_benchmark,
    open_graph,
    write_attack,
)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEWLINK_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_data_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_home().name == "home"
    monkeypatch.delenv("FEWLINK_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_home() == Path("/cache/fewlink")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_home() == Path.home() / ".cache" / "fewlink"


def test_umls_is_built_in() -> None:
    benchmark = open_benchmark("umls")
    everything = benchmark.graph.triple_count + sum(len(t.pairs) for s in SPLITS for t in benchmark.tasks[s])
    assert len(benchmark.graph.entities) <= 135
    assert len(benchmark.graph.relations) + sum(len(benchmark.tasks[s]) for s in SPLITS) <= 46
    assert 5000 < everything <= 6529
    assert all(len(benchmark.tasks[s]) >= 3 for s in SPLITS)
    assert open_benchmark("umls").fingerprint == benchmark.fingerprint


def test_attack_is_built_in_with_names_types_and_dates() -> None:
    graph = attack_graph()
    assert (graph.triple_count, len(graph.entities), len(graph.relations)) == (40_844, 6_187, 31)
    group = graph.entities.find("G0082")
    assert group is not None
    assert graph.name(group) == "APT38"
    assert graph.types is not None
    assert [graph.types.names[i] for i in graph.types.of_entities([group])] == ["group"]
    dates = attack_dates()
    assert len(dates) == graph.triple_count
    assert min(dates) > "2014"
    assert max(dates) <= "2025-11-13"


def test_the_benchmark_of_attack_is_the_one_of_the_stored_results() -> None:
    benchmark = open_benchmark("attack-few")
    assert benchmark.name == "attack-few"
    assert benchmark.fingerprint == CATALOGUE["attack-few"].fingerprint
    record = Path(__file__).parents[2] / "results" / "attack-few" / "rules.jsonl"
    assert f'"data_sha256": "{benchmark.fingerprint}"' in record.read_text("utf-8").splitlines()[0]


def test_attack_is_a_graph_and_not_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "attack").mkdir()  # such as a folder of results, or of `data get attack`
    monkeypatch.chdir(tmp_path)
    check_source("attack")
    opened = open_graph("attack")
    assert (opened.name, opened.source, opened.graph.triple_count) == ("attack", "attack", 40_844)
    assert not any(opened.tasks.values())
    for refused in (open_benchmark, check_benchmark):
        with pytest.raises(FewlinkError, match="attack-few"):
            refused("attack")


def test_a_graph_in_the_working_folder_comes_before_the_built_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph_of("a r b").save(tmp_path / "attack")
    check_source("attack")
    assert open_graph("attack").graph.triple_count == 1


def test_attack_is_written_as_files_with_the_licence_of_mitre(tmp_path: Path) -> None:
    write_attack(tmp_path)
    names, types = (tmp_path / f"attack.{each}.tsv" for each in ("names", "types"))
    assert compile_graph(tmp_path / "attack.tsv", names=names, types=types).fingerprint == attack_graph().fingerprint
    first = (tmp_path / "attack.dates.tsv").read_text("utf-8").splitlines()[0]
    assert first.split("\t") == ["CAPEC-87", "attack_pattern_in_domain", "domain:software", "2014-06-23"]
    assert open_benchmark(tmp_path / "attack-few").fingerprint == CATALOGUE["attack-few"].fingerprint
    licence = (tmp_path / "LICENSE.txt").read_text("utf-8")
    assert "© 2025 The MITRE Corporation. This work is reproduced and distributed with the permission of" in licence
    assert "hereby grants you a non-exclusive, royalty-free license" in licence


def test_the_command_writes_attack_and_asks_it_by_name(fewlink: Fewlink, tmp_path: Path) -> None:
    done = fewlink("data", "get", "attack", "--out", tmp_path / "here")
    assert done.code == 0, done.err
    assert str(tmp_path / "here" / "attack.tsv") in done.out
    for name in ("attack.tsv", "attack.names.tsv", "attack.types.tsv", "attack.dates.tsv", "LICENSE.txt"):
        assert (tmp_path / "here" / name).exists()
    asked = fewlink("ask", "attack", "--relation", "group_uses_tool", "--head", "APT38", "--top", 3, "--tsv")
    assert asked.code == 0, asked.err
    assert asked.out.count("APT38") == 3


def test_attack_is_not_written_over_what_is_there(fewlink: Fewlink, tmp_path: Path) -> None:
    get = ("data", "get", "attack", "--out", ".")
    (tmp_path / "attack.dates.tsv").write_text("mine\n")
    refused = fewlink(*get)
    assert (refused.code, refused.out) == (2, "")
    assert "attack.dates.tsv: exists already" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["attack.dates.tsv"]


def test_the_built_in_graph_stays_small() -> None:
    builtin = Path(fewlink.__file__).parent / "builtin"
    assert sum(path.stat().st_size for path in builtin.glob("*attack*") if path.suffix != ".safetensors") < 400_000


def test_a_folder_and_a_compiled_folder_are_opened_by_path(tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "tiny")
    first = open_benchmark(layout)
    assert open_benchmark(first.save(tmp_path / "compiled")).fingerprint == first.fingerprint
    assert open_benchmark(str(layout)).name == "tiny"


def test_remarks_on_a_layout_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_benchmark(write_layout(tmp_path / "tiny", {"e1rel_e2.json": {"bobvisited": ["oslo"]}}))
    assert "e1rel_e2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("which", "token"),
    [
        ("umlz", "'umlz'.*did you mean 'umls'"),
        ("nell-one", "fewlink data get nell-one"),
        ("x" * 300, "xxx"),
        ("no/such/folder", "no/such/folder"),
    ],
)
def test_a_missing_benchmark_is_a_clean_error(which: str, token: str) -> None:
    with pytest.raises(FewlinkError, match=token):
        open_benchmark(which)


def test_a_file_of_triples_and_another_folder_are_errors_that_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("a\tr\tb\n")
    with pytest.raises(InputError, match=r"g.tsv: .*fewlink data carve"):
        open_benchmark(tmp_path / "g.tsv")
    with pytest.raises(InputError, match=str(tmp_path)):
        open_benchmark(tmp_path)
    graph_of("a r b").save(tmp_path / "graph")
    with pytest.raises(InputError, match="graph: "):
        open_benchmark(tmp_path / "graph")


def test_a_benchmark_read_from_a_path_is_compiled_saved_and_opened_by_name(tmp_path: Path, own_home: Path) -> None:
    place, benchmark, remarks = fetch_benchmark("nell-one", source=write_layout(tmp_path / "mine"))
    assert place == own_home / "nell-one"
    assert benchmark.name == "nell-one"
    assert "(7, 4, 2, (1, 1, 1))" in remarks[0] and "(68544, 181109, 291, (51, 5, 11))" in remarks[0]
    assert open_benchmark("nell-one").fingerprint == benchmark.fingerprint


def test_getting_a_built_in_or_unknown_benchmark_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match="umls"):
        fetch_benchmark("umls")
    with pytest.raises(UnknownName, match=r"'nell'.*'nell-one'"):
        fetch_benchmark("nell")
    with pytest.raises(InputError, match="nowhere"):
        fetch_benchmark("nell-one", source=tmp_path / "nowhere")


def test_a_failed_download_is_an_error_that_says_what_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pooch = pytest.importorskip("pooch")

    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", offline)
    with pytest.raises(FewlinkError, match=r"https.*no network.*--from PATH"):
        fetch_benchmark("nell-one")


def test_every_entry_of_the_catalogue_is_described() -> None:
    for name, entry in CATALOGUE.items():
        assert entry.about
        assert entry.licence
        assert entry.address is None or (entry.address.startswith("https://") and entry.size and entry.counts), name


def test_a_benchmark_in_the_working_folder_is_opened_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    benchmark_of(graph_of("a r b"), test=[task_of([(0, 1), (1, 0)], range=[0, 1])]).save(tmp_path / "mine")
    assert open_benchmark("mine").task("task").pairs.tolist() == [[0, 1], [1, 0]]


def test_a_folder_of_results_does_not_hide_the_benchmark_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "umls").mkdir()
    (tmp_path / "umls" / "rules.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    assert open_benchmark("umls").name == "umls"
    with pytest.raises(FewlinkError, match="NELL-One"):
        open_benchmark(tmp_path / "umls")


def test_a_table_is_opened_with_the_columns_that_the_user_chooses(fewlink: Fewlink, tmp_path: Path) -> None:
    table = tmp_path / "links.csv"
    table.write_text("kind,end1,end2\nknows,ann,bob\n" + "".join(f"in,p{i},c{i % 3}\n" for i in range(9)))
    graph = open_graph(GraphSource.of(table, columns="head=end1,relation=kind,tail=end2")).graph
    assert list(graph.relations) == ["knows", "in"] and graph.triple_count == 10
    with pytest.raises(FewlinkError, match="columns"):
        open_graph(GraphSource.of("umls", columns="head=1,relation=2,tail=3"))
    checked = fewlink("data", "check", table, "--columns", "head=end1,relation=kind,tail=end2", "--json")
    assert checked.code == 0 and '"triples": 10' in checked.out
    assert fewlink("ask", "umls", "--columns", "1,2,3", "--relation", "treats", "--head", "x").code == 2


def test_the_shipped_umls_is_what_its_triples_carve_to() -> None:
    triples = Path(str(files("fewlink"))) / "builtin" / "umls.tsv.gz"
    carved, _ = carve(compile_graph(triples, literals="keep"), "umls", CarveSettings(dev_share=0.2, test_share=0.3))
    assert open_benchmark("umls").fingerprint == carved.fingerprint
