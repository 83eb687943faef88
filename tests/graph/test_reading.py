"""Every format, every compression, every kind of damage."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import compiled, named

from fewlink.core.errors import FewlinkError, InputError
from fewlink.graph import compile_graph
from fewlink.graph.formats import format_of
from fewlink.graph.tables import read_pairs

pyarrow = pytest.importorskip("pyarrow")
arrow_parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyoxigraph")

FEW = settings(max_examples=10)  # a compilation of the smallest file takes 40 ms
ABC = [("a", "r", "b"), ("b", "r", "c")]


def parquet(columns: dict[str, Any]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    arrow_parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


GOOD_PARQUET = parquet({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", "c"]})


def zstd(content: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstd,
}
TEXTS = {
    "graph.tsv": b"a\tr\tb\nb\tr\tc\n",
    "graph.txt": b"a\tr\tb\nb\tr\tc",
    "graph.csv": b"a,r,b\nb,r,c\n",
    "graph.nt": b"<x:a> <x:r> <x:b> .\n<x:b> <x:r> <x:c> .\n",
    "graph.ttl": b"@prefix x: <x:> .\nx:a x:r x:b . x:b x:r x:c .\n",
    "graph.rdf": b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="x:">
<rdf:Description rdf:about="x:a"><x:r rdf:resource="x:b"/></rdf:Description>
<rdf:Description rdf:about="x:b"><x:r rdf:resource="x:c"/></rdf:Description></rdf:RDF>""",
    "graph.srx": b"""<sparql xmlns="http://www.w3.org/2005/sparql-results#"><head><variable name="h"/>
<variable name="r"/><variable name="t"/></head><results><result><binding name="h"><uri>x:a</uri></binding>
<binding name="r"><uri>x:r</uri></binding><binding name="t"><uri>x:b</uri></binding></result><result><binding name="h">
<uri>x:b</uri></binding><binding name="r"><uri>x:r</uri></binding><binding name="t"><uri>x:c</uri></binding></result>
</results></sparql>""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_is_read_plain_and_compressed(name: str) -> None:
    plain = named(compiled(TEXTS[name], name)[0])
    assert [tuple(n.removeprefix("x:") for n in triple) for triple in plain] == ABC
    for ending, compress in COMPRESSED.items():
        if ending == ".zst" and not name.endswith(("tsv", "txt", "csv")):
            with pytest.raises(InputError, match="zstd -d"):
                compiled(compress(TEXTS[name]), name + ending)
        else:
            assert named(compiled(compress(TEXTS[name]), name + ending)[0]) == plain


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_bad_row_in_a_zst_file_asks_to_unpack_it(on_error: str) -> None:
    with pytest.raises(InputError, match=r"g.tsv.zst.*zstd -d"):
        compiled(zstd(b"a\tr\tb\nonly\ttwo\n"), "g.tsv.zst", on_error=on_error)


@pytest.mark.parametrize("bad", [b"", b"only\ttwo\n"])
def test_a_line_that_is_too_long_is_never_lost_in_silence(bad: bytes) -> None:
    content = b"a\tr\tb\n" + bad + b"x" * 33_000_000 + b"\tr\tb\nb\tr\tc\n"
    with pytest.raises(InputError, match=r"g.tsv.* line of over"):
        compiled(content, "g.tsv", on_error="skip")


def test_the_suffix_determines_the_format() -> None:
    names = ["path_graph", "g.TSV.GZ", "g.csv.zst", "g.nt", "g.NTRIPLES.xz", "g.parquet", "g.pq"]
    expected = ["TSV", "TSV", "CSV", "N-Triples", "N-Triples", "Parquet", "Parquet"]
    assert [format_of(Path(name)).name for name in names] == expected


# the longest names and lines


# Parquet


def test_parquet_columns_are_found_by_name_or_by_place() -> None:
    heads, relations, tails = (list(column) for column in zip(*ABC, strict=True))
    assert named(compiled(parquet({"a": heads, "b": relations, "c": tails}), "g.parquet")[0]) == ABC
    mixed = {"weight": [0.5, 0.5], "Object": tails, "Subject": heads, "Predicate": relations}
    assert named(compiled(parquet(mixed), "g.parquet")[0]) == ABC
    with pytest.raises(InputError, match=r"--columns head=x,relation==NAME,tail=y"):
        compiled(parquet({"x": heads, "y": tails}), "g.parquet")


def test_parquet_columns_may_be_numbers_or_dictionaries() -> None:
    coded = pyarrow.array(["r", "r"]).dictionary_encode()
    assert named(compiled(parquet({"h": [1, 2], "r": coded, "t": [3, 4]}), "g.parquet")[0]) == [
        ("1", "r", "3"),
        ("2", "r", "4"),
    ]


def test_an_empty_parquet_cell_is_an_error_with_its_row() -> None:
    content = parquet({"head": ["a", None, "b"], "relation": ["r", "r", "r"], "tail": ["b", "b", ""]})
    with pytest.raises(InputError, match=r"g.parquet:2"):
        compiled(content, "g.parquet")
    graph, report = compiled(content, "g.parquet", on_error="skip")
    assert (graph.triple_count, report.skipped) == (1, 2)


def test_a_parquet_column_with_a_broken_name_is_a_clean_error() -> None:
    with pytest.raises(InputError, match=r"g.parquet"):
        compiled(GOOD_PARQUET.replace(b"head", b"he\xffd"), "g.parquet")


def test_a_parquet_column_without_names_is_a_clean_error() -> None:
    with pytest.raises(InputError, match=r"g.parquet"):
        compiled(parquet({"h": [["a"]], "r": ["r"], "t": ["b"]}), "g.parquet")
    with pytest.raises(InputError, match=r"g.parquet"):
        compiled(parquet({"h": [b"\xff"], "r": ["r"], "t": ["b"]}), "g.parquet")


def test_a_parquet_name_that_is_not_text_is_an_error() -> None:
    names = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pyarrow.py_buffer(b"a\xff")]
    )
    with pytest.raises(InputError, match=r"g.parquet"):
        compiled(parquet({"h": names, "r": ["r", "r"], "t": ["b", "b"]}), "g.parquet")


def test_a_compressed_parquet_file_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"g.parquet.gz"):
        compiled(gzip.compress(GOOD_PARQUET), "g.parquet.gz")


# files that are damaged or missing


@pytest.mark.parametrize("name", ["graph.tsv", "graph.csv", "graph.nt", "graph.parquet", "graph.tsv.gz"])
def test_a_missing_file_and_a_folder_are_errors_that_name_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{name}"):
        compile_graph([tmp_path / name])
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=f"{name}"):
        compile_graph([tmp_path / name])


@pytest.mark.parametrize("ending", COMPRESSED)
def test_a_truncated_or_invalid_compressed_file_is_an_error_that_names_it(ending: str) -> None:
    rows = random.Random(0).choices("abcdefgh", k=3000)
    whole = COMPRESSED[ending]("".join(f"{a}\tr\t{b}\n" for a, b in itertools.pairwise(rows)).encode())
    for content in (whole[: len(whole) // 2], whole[:-3], b"a\tr\tb\n"):
        with pytest.raises(InputError, match=f"graph.tsv{ending}"):
            compiled(content, f"graph.tsv{ending}")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"head\trelation\ttail\n"])
def test_a_file_without_triples_is_an_error(content: bytes) -> None:
    with pytest.raises(FewlinkError, match=r"graph.tsv"):
        compiled(content)


# properties

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n\ufeff"), min_size=1, max_size=4)
words = st.sampled_from(["a", "b", "c", "d", "r", "q", "é", "日本"])
rows = st.lists(st.tuples(words, words, words), min_size=1, max_size=12).filter(lambda r: r[0][1] != "r")


def as_tsv(triples: list[tuple[str, str, str]]) -> bytes:
    return "".join("\t".join(t) + "\n" for t in triples).encode()


@FEW
@given(st.lists(st.tuples(names, names, names), min_size=1))
def test_any_names_are_read_from_tsv(triples: list[tuple[str, str, str]]) -> None:
    graph, report = compiled(b"head\trelation\ttail\n" + as_tsv(triples), literals="keep")
    assert named(graph) == list(dict.fromkeys(triples))
    assert report.duplicates == len(triples) - graph.triple_count


@FEW
@given(rows)
def test_ids_follow_first_appearance(triples: list[tuple[str, str, str]]) -> None:
    """A name may be both an entity and a relation."""
    content = as_tsv(triples)
    variants = [(content, "g.tsv"), (gzip.compress(content), "g.tsv.gz"), (content.replace(b"\t", b","), "g.csv")]
    graphs = [compiled(c, n, columns="head=1,relation=2,tail=3")[0] for c, n in variants]
    for graph in graphs:
        assert list(graph.entities) == list(dict.fromkeys(n for h, _, t in triples for n in (h, t)))
        assert list(graph.relations) == list(dict.fromkeys(r for _, r, _ in triples))
        assert graph.fingerprint == graphs[0].fingerprint


def read_or_raise(content: bytes, name: str) -> None:
    for on_error in ("stop", "skip"):
        try:
            graph, report = compiled(content, name, on_error=on_error)
        except FewlinkError as error:
            assert name in str(error)
        else:
            assert graph.triple_count == report.triples - report.duplicates
            assert all(map(all, named(graph)))


text_like = [b"a", b"b", b"\t", b"\t", b",", b",", b'"', b"\n", b"\r", b" ", b"\xc3\xa9", b"\xff", b"\0"]
ntriples_like = [b"<x:a> ", b"<x:b> ", b"_:n ", b'"text"', b"@en ", b"^^", b".\n", b"<", b"\\u0041", b"#", b"\xff"]
tokens = st.lists(st.sampled_from(text_like)) | st.lists(st.sampled_from(ntriples_like))
anything = st.binary(max_size=200) | tokens.map(b"".join)


@pytest.mark.parametrize(
    "name", ["g.tsv", "g.csv", "g.nt", "g.nq", "g.ttl", "g.rdf", "g.json", "g.gz", "g.xz", "g.zst", "g.parquet"]
)
@FEW
@given(anything)
def test_any_bytes_are_a_graph_or_a_clean_error(name: str, content: bytes) -> None:
    read_or_raise(content, name)


@pytest.mark.parametrize("name", [*TEXTS, *(f"graph.tsv{ending}" for ending in COMPRESSED), "g.parquet"])
@FEW
@given(st.data())
def test_any_damage_to_a_good_file_is_a_graph_or_a_clean_error(name: str, data: st.DataObject) -> None:
    compress = COMPRESSED.get(Path(name).suffix, bytes)
    content = bytearray(compress(TEXTS.get(name.removesuffix(Path(name).suffix)) or TEXTS.get(name) or GOOD_PARQUET))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read_or_raise(bytes(content), name)


# JSON in one piece


def test_an_array_is_read_and_refused_if_it_is_cut_or_goes_on() -> None:
    rows = [{"head": f"a{i}", "relation": "r", "tail": f'é "{i}"', "more": {"x": [1, 2.5e3, None]}} for i in range(300)]
    expected = [(row["head"], row["relation"], row["tail"]) for row in rows]
    for content in (json.dumps(rows), json.dumps(rows, indent=1, ensure_ascii=False)):
        assert named(compiled(content.encode(), "g.json")[0]) == expected
        for damaged in (content[:-1], content[:200], content + "[]"):
            with pytest.raises(InputError, match=r"g.json"):
                compiled(damaged.encode(), "g.json")


def test_a_pipe_is_read() -> None:
    """As the shell's <(…) gives it."""
    reading, writing = os.pipe()
    lines = lines_of(50_000, "a")

    def write() -> None:
        with open(writing, "wb") as pipe:
            pipe.write(lines)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert compile_graph(f"/dev/fd/{reading}").triple_count == 50_000
    finally:
        writer.join()
        os.close(reading)


# side files


def test_a_side_file_is_read_as_rows_of_columns(tmp_path: Path) -> None:
    (tmp_path / "types.tsv").write_bytes("\ufeffa\tT\tThing\r\n\nb\tU\n".encode())
    assert list(read_pairs(tmp_path / "types.tsv")) == [["a", "T", "Thing"], ["b", "U"]]
    (tmp_path / "types.tsv.gz").write_bytes(gzip.compress(b"a\tT\n"))
    assert list(read_pairs(tmp_path / "types.tsv.gz")) == [["a", "T"]]


@pytest.mark.parametrize(
    ("content", "token"),
    [
        (b"a\tT\nb\n", "2 columns"),
        (b"a\tT\n\tU\n", "2 columns"),
        (b"a\tT\n\xff\tU\n", "UTF-8"),
    ],
)
def test_a_bad_row_of_a_side_file_is_an_error_with_file_and_line(tmp_path: Path, content: bytes, token: str) -> None:
    (tmp_path / "types.tsv").write_bytes(content)
    with pytest.raises(InputError, match=f"types.tsv:2: .*{token}"):
        list(read_pairs(tmp_path / "types.tsv"))


@pytest.mark.parametrize("stray", ['a500,"r,b500', '"a500,r,b500', 'a500,r,"b500'])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("closed", [False, True])
def test_a_stray_quote_is_an_error_because_it_would_swallow_rows(stray: str, on_error: str, closed: bool) -> None:
    lines = [f"a{i},r,b{i}" for i in range(5000)]
    lines[500] = stray
    if closed:
        lines[530] = 'a530,r",b530'
    with pytest.raises(InputError, match=r"g.csv.*quote"):
        compiled("\n".join(lines).encode() + b"\n", "g.csv", on_error=on_error)


# concatenated streams, stray quotes


def lines_of(count: int, first: str) -> bytes:
    return b"".join(f"{first}{i}\tr\tb{i}\n".encode() for i in range(count))


@pytest.mark.parametrize("ending", COMPRESSED)
@pytest.mark.parametrize("damage", ["changed", "cut", "zeros after it", "other bytes after it"])
def test_a_second_part_of_a_compressed_file_is_read_or_an_error(ending: str, damage: str) -> None:
    compress = COMPRESSED[ending]
    first, second = compress(lines_of(2000, "a")), bytearray(compress(lines_of(1000, "c")))
    assert compiled(first + second, f"g.tsv{ending}")[0].triple_count == 3000
    if damage == "zeros after it":
        if ending != ".zst":
            assert compiled(first + second + bytes(8), f"g.tsv{ending}")[0].triple_count == 3000
        return
    if damage == "changed":
        second[1 if ending == ".zst" else 40] ^= 0xFF  # a .zst file of pyarrow has no checksum of its content
    second = second[: len(second) // 2] if damage == "cut" else second
    second += b"hello" if damage.startswith("other") else b""
    with pytest.raises(InputError, match=rf"g.tsv{ending}"):
        compiled(first + bytes(second), f"g.tsv{ending}")


@pytest.mark.parametrize("blank", [b"\n", b" \n", b"\r\n"])
@pytest.mark.parametrize("name", ["g.tsv", "g.csv"])
def test_blank_lines_count_as_lines(name: str, blank: bytes) -> None:
    flood = blank * (1 << 10)
    text = b"a\tr\tb\n" + flood + b"b\tr\tc\n" + blank + b"only\ttwo\n"
    with pytest.raises(InputError, match=rf"{name}:{(1 << 10) + 4}"):
        compiled(text.replace(b"\t", b"," if name == "g.csv" else b"\t"), name)


@FEW
@given(st.lists(st.tuples(*[st.text(st.sampled_from('ab,"\n é'), min_size=1, max_size=6)] * 3), min_size=1, max_size=9))
def test_any_names_are_read_from_quoted_csv(triples: list[tuple[str, str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(triples)
    graph, _ = compiled(text.getvalue().encode(), "g.csv", columns="head=1,relation=2,tail=3")
    expected = {tuple(name.replace("\r\n", "\n") for name in triple) for triple in triples}
    assert {*named(graph)} == expected


def test_a_carriage_return_inside_a_quoted_name_of_the_first_line_loses_no_rows() -> None:
    content = b'"a","r\rs","b"\n"b","r","c"\n'
    assert named(compiled(content, "g.csv")[0]) == [("a", "r\rs", "b"), ("b", "r", "c")]
