from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import random
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import LAYOUT, named, write_layout

from fewlink.core.errors import FewlinkError, InputError
from fewlink.tasks import SPLITS, Benchmark, open_benchmark
from fewlink.tasks.nell_layout import is_layout, read_layout

CITIES = ["oslo", "rome"]


def pairs(benchmark: Benchmark, task: str, array: str = "pairs") -> list[tuple[str, str]]:
    entities = benchmark.graph.entities
    return [(entities[h], entities[t]) for h, t in getattr(benchmark.task(task), array)]


def tails(benchmark: Benchmark, task: str) -> list[str]:
    return sorted(benchmark.graph.entities[e] for e in benchmark.task(task).range)


def archive(path: Path, folder: Path, extra: tuple[tarfile.TarInfo, bytes] | None = None) -> Path:
    mode: Any = {".xz": "w:xz", ".bz2": "w:bz2", ".tbz2": "w:bz2"}.get(path.suffix.lower(), "w:gz")
    with tarfile.open(path, mode) as tar:
        tar.add(folder, arcname="some/where")
        if extra:
            tar.addfile(extra[0], io.BytesIO(extra[1]))
    return path


def test_a_folder_of_the_four_required_files_is_a_benchmark(tmp_path: Path) -> None:
    folder = write_layout(tmp_path / "tiny")
    assert is_layout(folder)
    benchmark, remarks = read_layout(folder)
    assert remarks == []
    assert benchmark.name == "tiny"
    assert len(named(benchmark.graph)) == 4
    assert [[t.name for t in benchmark.tasks[s]] for s in SPLITS] == [["born_in"], ["likes"], ["visited"]]
    assert pairs(benchmark, "visited") == [("ann", "oslo"), ("ann", "rome"), ("cy", "oslo")]
    assert pairs(benchmark, "likes") == [("ann", "bob"), ("bob", "ann")]


def test_entities_that_occur_only_in_tasks_follow_those_of_the_graph(tmp_path: Path) -> None:
    graph = read_layout(write_layout(tmp_path))[0].graph
    assert list(graph.entities) == ["ann", "oslo", "bob", "rome", "norway", "italy", "cy"]
    assert graph.degrees[-1] == 0


def test_numbers_in_a_benchmark_are_entities(tmp_path: Path) -> None:
    """A published benchmark has them, and its fingerprint counts them."""
    scores = "".join(f"a\tscore\t{number}\n" for number in range(5))
    folder = write_layout(tmp_path, {"path_graph": LAYOUT["path_graph"] + scores})
    assert "score" in read_layout(folder)[0].graph.relations


def test_ranges_and_known_answers_are_rebuilt_if_their_files_are_absent(tmp_path: Path) -> None:
    benchmark, _ = read_layout(write_layout(tmp_path))
    assert tails(benchmark, "visited") == CITIES  # the entities in the slots of oslo and rome
    assert tails(benchmark, "likes") == ["ann", "bob"]
    assert pairs(benchmark, "visited", "known") == [("ann", "oslo"), ("ann", "rome"), ("cy", "oslo")]


def test_types_in_the_names_determine_the_ranges(tmp_path: Path) -> None:
    def typed(name: str) -> str:
        kind = "city" if name in CITIES else "land" if name in ("norway", "italy") else "person"
        return f"concept:{kind}:{name}"

    def task(rows: list[list[str]]) -> list[list[str]]:
        return [[typed(h), r, typed(t)] for h, r, t in rows]

    graph = "".join("\t".join(task([row.split("\t")])[0]) + "\n" for row in LAYOUT["path_graph"].splitlines())
    changed = {f"{s}_tasks.json": {r: task(rows) for r, rows in LAYOUT[f"{s}_tasks.json"].items()} for s in SPLITS}
    benchmark, _ = read_layout(write_layout(tmp_path, {"path_graph": graph, **changed}))
    assert tails(benchmark, "likes") == [typed(n) for n in ("ann", "bob", "cy")]
    assert benchmark.graph.name(0) == "ann"


def test_optional_files_that_agree_give_no_remark(tmp_path: Path) -> None:
    files: dict[str, Any] = {
        "rel2candidates.json": {"visited": CITIES, "likes": ["bob", "ann"], "born_in": CITIES},
        "e1rel_e2.json": {"annvisited": ["rome", "oslo"], "cyvisited": ["oslo"], "annlives_in": ["oslo"]},
    }
    assert read_layout(write_layout(tmp_path, files))[1] == []


def test_optional_files_that_differ_give_remarks(tmp_path: Path) -> None:
    files: dict[str, Any] = {
        "rel2candidates.json": {"visited": ["oslo", "norway"]},
        "e1rel_e2.json": {"bobvisited": ["oslo", "norway"], "nobodyvisited": ["oslo"], "annvisited": ["nowhere"]},
    }
    benchmark, remarks = read_layout(write_layout(tmp_path, files))
    counted = [(remark.partition(":")[0], re.findall(r"\b\d+\b", remark.partition(":")[2])) for remark in remarks]
    assert counted == [
        ("e1rel_e2.json", ["2"]),
        ("e1rel_e2.json", ["2"]),
        ("rel2candidates.json", ["1", "1"]),
    ]
    assert tails(benchmark, "visited") == ["norway", "oslo", "rome"]  # the file's, and the true tails
    assert ("bob", "norway") in pairs(benchmark, "visited", "known")


def test_a_key_of_the_known_answers_is_split_where_head_and_relation_both_exist(tmp_path: Path) -> None:
    """`xavisited` is `xa` + `visited` if no entity is called `x`, even if `avisited` is a relation."""
    tasks = {
        "visited": [["xa", "visited", "oslo"], ["ann", "visited", "oslo"]],
        "avisited": [["ann", "avisited", "oslo"], ["bob", "avisited", "oslo"]],
    }
    folder = write_layout(tmp_path, {"test_tasks.json": tasks, "e1rel_e2.json": {"xavisited": ["rome"]}})
    benchmark, _ = read_layout(folder)
    assert ("xa", "rome") in pairs(benchmark, "visited", "known")


def test_readable_names_are_used_if_present(tmp_path: Path) -> None:
    folder = write_layout(tmp_path)
    (folder / "entity2text.txt").write_text("ann\tAnn of Oslo\n")
    (folder / "relation2text.txt").write_text("lives_in\tlives in the city\n")
    graph = read_layout(folder)[0].graph
    assert [graph.name(0), graph.name(1), graph.relation_name(0)] == ["Ann of Oslo", "oslo", "lives in the city"]


def test_repeated_pairs_are_left_out_with_a_remark(tmp_path: Path) -> None:
    rows = [["ann", "likes", "bob"], ["bob", "likes", "ann"], ["ann", "likes", "bob"]]
    benchmark, remarks = read_layout(write_layout(tmp_path, {"dev_tasks.json": {"likes": rows}}))
    assert pairs(benchmark, "likes") == [("ann", "bob"), ("bob", "ann")]
    assert remarks == ["likes: 1 repeated pairs left out"]


def test_a_task_relation_in_the_background_is_an_error(tmp_path: Path) -> None:
    leak = {"lives_in": [["ann", "lives_in", "rome"]]}
    with pytest.raises(FewlinkError, match="'lives_in'"):
        read_layout(write_layout(tmp_path, {"dev_tasks.json": leak}))


def test_a_relation_in_two_splits_is_an_error(tmp_path: Path) -> None:
    again = {"visited": [["bob", "visited", "rome"]]}
    with pytest.raises(InputError, match=r"test_tasks.json"):
        read_layout(write_layout(tmp_path, {"dev_tasks.json": again}))


@pytest.mark.parametrize(
    ("content", "token"),
    [
        ("{", "JSON"),
        ("[]", "JSON object"),
        ('{"likes": 3}', "'likes'"),
        ('{"likes": [["ann", "likes"]]}', "'likes'"),
        ('{"likes": [["ann", "likes", 3]]}', "'likes'"),
        ('{"likes": [["ann", "likes", ""]]}', "'likes'"),
        ('{"likes": [["ann", "hates", "bob"]]}', "'hates'.*'likes'"),
        ('{"likes": [["\\ud800", "likes", "bob"]]}', ""),
        ('{"\\ud800": [["ann", "\\ud800", "bob"]]}', ""),
    ],
)
def test_a_broken_tasks_file_is_an_error_that_names_it(tmp_path: Path, content: str, token: str) -> None:
    with pytest.raises(InputError, match=f"dev_tasks.json.*{token}"):
        read_layout(write_layout(tmp_path, {"dev_tasks.json": content}))


@pytest.mark.parametrize("file", ["rel2candidates.json", "e1rel_e2.json"])
@pytest.mark.parametrize("value", [None, 3, [["oslo"]]])
def test_a_broken_optional_file_is_an_error_that_names_it(tmp_path: Path, file: str, value: Any) -> None:
    with pytest.raises(InputError, match=file):
        read_layout(write_layout(tmp_path, {file: {"visited": value, "annvisited": value}}))


def test_an_empty_list_of_known_answers_is_no_error(tmp_path: Path) -> None:
    benchmark, _ = read_layout(write_layout(tmp_path, {"e1rel_e2.json": {"annvisited": []}}))
    assert len(benchmark.task("visited").known) == 3


def test_a_relation_without_candidates_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rel2candidates.json"):
        read_layout(write_layout(tmp_path, {"rel2candidates.json": {"visited": []}}))


def test_an_unknown_candidate_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'atlantis'.*'visited'"):
        read_layout(write_layout(tmp_path, {"rel2candidates.json": {"visited": ["oslo", "atlantis"]}}))


def test_a_folder_without_the_required_files_is_an_error(tmp_path: Path) -> None:
    folder = write_layout(tmp_path)
    (folder / "dev_tasks.json").unlink()
    assert not is_layout(folder)
    with pytest.raises(InputError, match=r"dev_tasks.json"):
        read_layout(folder)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["ann", "oslo", "likes", "annlikes", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["likes", "annlikes", "x"]), inner),
)


@pytest.mark.parametrize("file", ["dev_tasks.json", "rel2candidates.json", "e1rel_e2.json"])
@settings(max_examples=20)
@given(json_values)
def test_any_json_is_a_benchmark_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, file: str, value: object
) -> None:
    folder = write_layout(tmp_path_factory.mktemp("any"), {file: value})
    with contextlib.suppress(FewlinkError):
        read_layout(folder)


# archives


@pytest.mark.parametrize("ending", [".tar.gz", ".tar.xz", ".tar.bz2", ".TGZ"])
def test_an_archive_is_read_like_its_folder(tmp_path: Path, ending: str) -> None:
    folder = write_layout(tmp_path / "tiny")
    path = archive(tmp_path / f"tiny{ending}", folder)
    benchmark, remarks = read_layout(path)
    assert (benchmark.name, remarks) == ("tiny", [])
    assert benchmark.fingerprint == read_layout(folder)[0].fingerprint == open_benchmark(path).fingerprint


def test_an_error_in_an_archive_names_the_archive(tmp_path: Path) -> None:
    folder = write_layout(tmp_path / "tiny", {"dev_tasks.json": "["})
    with pytest.raises(InputError, match=rf"{tmp_path}/tiny.tar.gz/some/where/dev_tasks.json:1"):
        read_layout(archive(tmp_path / "tiny.tar.gz", folder))


@pytest.mark.parametrize("name", ["../evil/path_graph", "/tmp/fewlink-evil/path_graph", "some/../../path_graph"])
def test_a_member_with_a_path_outside_is_not_written_there(tmp_path: Path, name: str) -> None:
    folder, content = write_layout(tmp_path / "tiny"), b"evil\tr\tevil\n"
    member = tarfile.TarInfo(name)
    member.size = len(content)
    before = set(tmp_path.parent.rglob("*"))
    path = archive(tmp_path / "tiny.tar.gz", folder, (member, content))
    try:
        benchmark, _ = read_layout(path)
    except InputError:
        pass
    else:
        assert "evil" not in benchmark.graph.entities
    assert set(tmp_path.parent.rglob("*")) == before | {path}
    assert not Path("/tmp/fewlink-evil").exists()


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\tr\tsecret\n")
    link = tarfile.TarInfo("some/where/path_graph")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
    folder = write_layout(tmp_path / "tiny")
    (folder / "path_graph").unlink()
    with pytest.raises(InputError, match="path_graph"):
        read_layout(archive(tmp_path / "tiny.tar.gz", folder, (link, b"")))


def test_an_archive_of_something_else_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="path_graph"):
        read_layout(archive(tmp_path / "other.tar.gz", tmp_path / "other"))
    (tmp_path / "text.tar.gz").write_text("no archive")
    with pytest.raises(InputError, match=r"text.tar.gz"):
        read_layout(tmp_path / "text.tar.gz")


@pytest.mark.parametrize("ending", [".tar.gz", ".tar.xz"])
def test_a_damaged_archive_is_a_clean_error(tmp_path: Path, ending: str) -> None:
    rng = random.Random(0)
    noise = {f"r{i}": [] for i in rng.sample(range(10**9), 3000)}
    whole = archive(tmp_path / f"tiny{ending}", write_layout(tmp_path / "tiny", {"e1rel_e2.json": noise})).read_bytes()
    damaged = tmp_path / f"damaged{ending}"
    for _ in range(60):
        content = bytearray(whole)
        content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
        damaged.write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        try:
            read_layout(damaged)
        except FewlinkError as error:
            assert "damaged" in str(error) or "e1rel_e2" in str(error)


def test_a_relation_that_comes_twice_in_a_file_of_tasks_is_an_error(tmp_path: Path) -> None:
    folder = write_layout(tmp_path / "tiny")
    text = (folder / "dev_tasks.json").read_text()
    (folder / "dev_tasks.json").write_text(text.rstrip().removesuffix("}") + ', "likes": [["cy", "likes", "bob"]]}')
    with pytest.raises(InputError, match=r"dev_tasks.json"):
        read_layout(folder)


def test_an_archive_with_two_benchmarks_is_an_error(tmp_path: Path) -> None:
    member = tarfile.TarInfo("other/path_graph")
    member.size = 6
    with pytest.raises(InputError, match="several benchmarks"):
        read_layout(archive(tmp_path / "tiny.tar.gz", write_layout(tmp_path / "tiny"), (member, b"a\tr\tb\n")))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_an_archive_that_ends_early_is_an_error(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    whole = archive(tmp_path / "tiny.tar.gz", write_layout(tmp_path / "tiny"))
    content = compress(gzip.decompress(whole.read_bytes()))
    path = tmp_path / "part.tar"
    path.write_bytes(content)
    assert read_layout(path)[0].tasks
    for share in (0.2, 0.5):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(InputError, match=r"part.tar"):
            read_layout(path)
