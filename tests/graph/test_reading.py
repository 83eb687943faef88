"""Every format, every compression, every kind of damage."""

from __future__ import annotations

import gzip
import itertools
import lzma
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import compiled, named
from fewlink.errors import FewlinkError, InputError
from fewlink.graph import compile_graph, source
from fewlink.graph.reading import format_of, read_pairs_table

pyarrow = pytest.importorskip("pyarrow")
arrow_parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyoxigraph")

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


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}
TEXTS = {
    "graph.tsv": b"a\tr\tb\nb\tr\tc\n",
    "graph.txt": b"a\tr\tb\nb\tr\tc",
    "graph.csv": b"a,r,b\nb,r,c\n",
    "graph.nt": b"<x:a> <x:r> <x:b> .\n<x:b> <x:r> <x:c> .\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_is_read_plain_and_compressed(name: str) -> None:
    plain = named(compiled(TEXTS[name], name)[0])
    assert [tuple(n.removeprefix("x:") for n in triple) for triple in plain] == ABC
    for ending, compress in COMPRESSED.items():
        assert named(compiled(compress(TEXTS[name]), name + ending)[0]) == plain


def test_the_format_is_told_by_the_name() -> None:
    names = ["path_graph", "g.TSV.GZ", "g.csv.zst", "g.nt", "g.NTRIPLES.xz", "g.parquet", "g.pq"]
    assert [format_of(Path(n)) for n in names] == ["tsv", "tsv", "csv", "ntriples", "ntriples", "parquet", "parquet"]


# tab- and comma-separated text


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_passed_over() -> None:
    graph, report = compiled(b"\xef\xbb\xbfa\tr\tb\r\n\r\nb\tr\tc\r\n\n")
    assert named(graph) == ABC
    assert report.triples == 2
    assert report.skipped == 0


@pytest.mark.parametrize("header", ["head\trelation\ttail", "Subject\tPredicate\tObject", "source\tedge\ttarget"])
def test_a_header_row_is_no_triple(header: str) -> None:
    assert named(compiled(f"{header}\na\tr\tb\nb\tr\tc\n".encode())[0]) == ABC
    assert named(compiled(f"{header}\na\tr\tb\nb\tr\tc\n".replace("\t", ",").encode(), "g.csv")[0]) == ABC
    quoted = header.replace("\t", '","')
    assert named(compiled(f'"{quoted}"\na,r,b\nb,r,c\n'.encode(), "g.csv")[0]) == ABC


def test_header_words_further_down_are_names() -> None:
    assert named(compiled(b"a\tr\tb\nhead\trelation\ttail\n")[0])[1] == ("head", "relation", "tail")


def test_csv_fields_may_be_quoted_and_hold_commas_quotes_and_line_ends() -> None:
    graph, report = compiled(b'a,r,b\n"x, y","said ""no""","two\nlines"\nb,r,c\n', "graph.csv")
    assert named(graph) == [("a", "r", "b"), ("x, y", 'said "no"', "two\nlines"), ("b", "r", "c")]
    assert report.triples == 3


def test_the_line_after_a_quoted_line_end_is_counted_right() -> None:
    with pytest.raises(InputError, match=r"graph.csv:4: has 2 columns"):
        compiled(b'a,r,b\n"two\nlines",r,b\nonly,two\n', "graph.csv")


def test_names_keep_their_spaces_and_foreign_letters() -> None:
    assert named(compiled("  São Tomé \tà côté\t日本 \n".encode())[0]) == [("  São Tomé ", "à côté", "日本 ")]


BAD_LINES = {
    b"a\tr": "has 2 columns where head, relation and tail are expected",
    b"a r b": "has 1 columns",
    b"a\tr\tb\tc": "has 4 columns",
    b"\tr\tb": "has an empty head",
    b"a\t\tb": "has an empty relation",
    b"a\tr\t": "has an empty tail",
    b"\t\t": "has an empty head",
    b"a\t\xff\tb": "is not UTF-8 text",
    b"a\t\xed\xa0\x80\tb": "is not UTF-8 text",
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_is_an_error_with_file_and_line(bad: bytes) -> None:
    with pytest.raises(InputError, match=rf"graph.tsv:3: {BAD_LINES[bad]}"):
        compiled(b"a\tr\tb\n\n" + bad + b"\nb\tr\tc\n")
    with pytest.raises(InputError, match=rf"graph.csv:2: {BAD_LINES[bad]}"):
        compiled(b"a,r,b\n" + bad.replace(b"\t", b",") + b"\n", "graph.csv")


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_can_be_skipped_and_is_shown(bad: bytes) -> None:
    graph, report = compiled(b"a\tr\tb\n" + bad + b"\nb\tr\tc\n", on_error="skip")
    assert named(graph) == ABC
    assert report.skipped == 1
    assert BAD_LINES[bad] in report.problems[0]


def test_skipped_lines_are_counted_and_the_first_five_shown() -> None:
    graph, report = compiled(b"a\tr\tb\n" + b"bad\n" * 7 + b"b\tr\tc\n", on_error="skip")
    assert named(graph) == ABC
    assert report.skipped == 7
    assert [p.split(":")[1] for p in report.problems] == ["2", "3", "4", "5", "6"]
    assert report.remarks()[0] == "7 bad lines skipped, the first:"


def test_what_to_do_with_bad_lines_is_stop_or_skip() -> None:
    with pytest.raises(FewlinkError, match="'stop' or 'skip', not 'ignore'"):
        compiled(b"a\tr\tb\n", on_error="ignore")


STRANGE_LINES = {
    "spaces": b" \t \t \n",
    "a long name": b"a\tr\t" + b"x" * (2 << 20) + b"\n",
    "a return": b"a\rb\tr\tc\n",
}


@pytest.mark.parametrize("strange", STRANGE_LINES)
@pytest.mark.parametrize("name", ["graph.tsv", "graph.csv"])
def test_what_becomes_of_a_line_does_not_depend_on_the_others(strange: str, name: str) -> None:
    line, quoted = STRANGE_LINES[strange], b""
    if name == "graph.csv":
        line, quoted = line.replace(b"\t", b","), b'"q",r,b\n'
    alone = named(compiled(TEXTS[name] + line, name, on_error="skip")[0])
    for others in (b"\n", b"bad\n", quoted):
        triples = named(compiled(TEXTS[name] + line + others, name, on_error="skip")[0])
        assert [t for t in triples if t[0] != "q"] == alone


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(source, "LONGEST_LINE", 2000)
    with pytest.raises(InputError, match=r"graph.tsv:2: has a line of over 2,000 bytes"):
        compiled(b"a\tr\tb\n" + b"x" * 10_000)


# N-Triples


def test_ntriples_leave_literals_out_and_count_them() -> None:
    content = b"""# a comment
<x:a> <x:r> <x:b> .
<x:a> <x:name> "Ann" .
<x:a> <x:age> "3"^^<http://www.w3.org/2001/XMLSchema#integer> .

_:n1 <x:r> _:n2 .
"""
    graph, report = compiled(content, "graph.nt")
    triples = named(graph)
    assert triples[0] == ("x:a", "x:r", "x:b")
    assert [n.removeprefix("_:") for n in triples[1]] == ["n1", "x:r", "n2"]
    assert (report.triples, report.literals) == (2, 2)
    assert report.remarks() == ["2 triples with a literal object left out"]


def test_a_blank_node_is_the_same_one_in_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", 20)
    graph, _ = compiled(b"_:n <x:r> <x:a> .\n_:n <x:r> <x:b> .\n", "graph.nt")
    assert len(graph.entities) == 3


@pytest.mark.parametrize("bad", [b"<x:a> <x:r> .", b"<x:a> <x:r> <x:\xff> .", b"a\tr\tb", b'<x:a> <x:r> "open .'])
def test_a_bad_ntriples_line_is_an_error_with_file_and_line(bad: bytes) -> None:
    content = TEXTS["graph.nt"] + bad + b"\n" + b"<x:c> <x:r> <x:d> .\n"
    with pytest.raises(InputError, match=r"graph.nt:3: is not an N-Triples line"):
        compiled(content, "graph.nt")
    graph, report = compiled(content, "graph.nt", on_error="skip")
    assert (graph.triple_count, report.skipped) == (3, 1)


# Parquet


def test_parquet_columns_are_found_by_name_or_by_place() -> None:
    heads, relations, tails = (list(column) for column in zip(*ABC, strict=True))
    assert named(compiled(parquet({"a": heads, "b": relations, "c": tails}), "g.parquet")[0]) == ABC
    mixed = {"weight": [0.5, 0.5], "Object": tails, "Subject": heads, "Predicate": relations}
    assert named(compiled(parquet(mixed), "g.parquet")[0]) == ABC
    with pytest.raises(InputError, match="has columns x, y; it needs head, relation, tail"):
        compiled(parquet({"x": heads, "y": tails}), "g.parquet")


def test_parquet_numbers_and_dictionaries_are_names_too() -> None:
    coded = pyarrow.array(["r", "r"]).dictionary_encode()
    assert named(compiled(parquet({"h": [1, 2], "r": coded, "t": [3, 4]}), "g.parquet")[0]) == [
        ("1", "r", "3"),
        ("2", "r", "4"),
    ]


def test_an_empty_parquet_cell_is_an_error_with_its_row() -> None:
    content = parquet({"head": ["a", None, "b"], "relation": ["r", "r", "r"], "tail": ["b", "b", ""]})
    with pytest.raises(InputError, match=r"g.parquet:2: has an empty head"):
        compiled(content, "g.parquet")
    graph, report = compiled(content, "g.parquet", on_error="skip")
    assert (graph.triple_count, report.skipped) == (1, 2)


def test_parquet_columns_of_the_same_name_are_a_clean_error() -> None:
    columns = [pyarrow.array([n]) for n in ("a", "r", "b")]
    sink = pyarrow.BufferOutputStream()
    arrow_parquet.write_table(pyarrow.Table.from_arrays(columns, names=["x", "x", "z"]), sink)
    with pytest.raises(InputError, match=r"g.parquet"):
        compiled(sink.getvalue().to_pybytes(), "g.parquet")


def test_a_parquet_column_with_a_broken_name_is_a_clean_error() -> None:
    with pytest.raises(InputError, match=r"g.parquet"):
        compiled(GOOD_PARQUET.replace(b"head", b"he\xffd"), "g.parquet")


def test_a_parquet_column_that_holds_no_names_is_a_clean_error() -> None:
    with pytest.raises(InputError, match=r"g.parquet"):
        compiled(parquet({"h": [["a"]], "r": ["r"], "t": ["b"]}), "g.parquet")
    with pytest.raises(InputError, match=r"g.parquet"):
        compiled(parquet({"h": [b"\xff"], "r": ["r"], "t": ["b"]}), "g.parquet")


# files that are not what they say


@pytest.mark.parametrize("name", ["graph.tsv", "graph.csv", "graph.nt", "graph.parquet", "graph.tsv.gz"])
def test_a_missing_file_and_a_folder_are_errors_that_name_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{name}: cannot be read"):
        compile_graph([tmp_path / name])
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=f"{name}: cannot be read"):
        compile_graph([tmp_path / name])


@pytest.mark.parametrize("ending", COMPRESSED)
def test_a_cut_off_or_false_archive_is_an_error_that_names_it(ending: str) -> None:
    rows = random.Random(0).choices("abcdefgh", k=3000)
    whole = COMPRESSED[ending]("".join(f"{a}\tr\t{b}\n" for a, b in itertools.pairwise(rows)).encode())
    for content in (whole[: len(whole) // 2], whole[:-3], b"a\tr\tb\n"):
        with pytest.raises(InputError, match=f"graph.tsv{ending}"):
            compiled(content, f"graph.tsv{ending}")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"head\trelation\ttail\n"])
def test_a_file_without_triples_is_an_error(content: bytes) -> None:
    with pytest.raises(FewlinkError, match=r"no triples in .*graph.tsv"):
        compiled(content)


# properties

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n\ufeff"), min_size=1, max_size=4)
words = st.sampled_from(["a", "b", "c", "d", "r", "q", "é", "日本"])
rows = st.lists(st.tuples(words, words, words), min_size=1, max_size=12).filter(lambda r: r[0][1] != "r")


def as_tsv(triples: list[tuple[str, str, str]]) -> bytes:
    return "".join("\t".join(t) + "\n" for t in triples).encode()


@given(st.lists(st.tuples(names, names, names), min_size=1).filter(lambda r: all("".join(t).strip() for t in r)))
def test_any_names_are_read_back_from_tsv(triples: list[tuple[str, str, str]]) -> None:
    graph, report = compiled(b"head\trelation\ttail\n" + as_tsv(triples))
    assert named(graph) == list(dict.fromkeys(triples))
    assert report.duplicates == len(triples) - graph.triple_count


@given(rows, st.integers(4, 60))
def test_ids_are_given_by_first_appearance_whatever_the_size_of_a_block(
    triples: list[tuple[str, str, str]], size: int
) -> None:
    """Names may be entity and relation at once."""
    content = as_tsv(triples)
    variants = [(content, "g.tsv"), (gzip.compress(content), "g.tsv.gz"), (content.replace(b"\t", b","), "g.csv")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "BLOCK_BYTES", size)
        graphs = [compiled(c, n)[0] for c, n in variants]
    graphs += [compiled(c, n)[0] for c, n in variants]
    for graph in graphs:
        assert list(graph.entities) == list(dict.fromkeys(n for h, _, t in triples for n in (h, t)))
        assert list(graph.relations) == list(dict.fromkeys(r for _, r, _ in triples))
        assert graph.fingerprint == graphs[0].fingerprint


@given(rows)
def test_reading_gives_the_same_graph_without_pyarrow(triples: list[tuple[str, str, str]]) -> None:
    with_it = compiled(as_tsv(triples))[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        assert compiled(as_tsv(triples))[0].fingerprint == with_it.fingerprint


def read_or_refuse(content: bytes, name: str) -> None:
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


@pytest.mark.parametrize("name", ["g.tsv", "g.csv", "g.nt", "g.gz", "g.xz", "g.zst", "g.parquet"])
@given(anything)
def test_any_bytes_are_a_graph_or_a_clean_error(name: str, content: bytes) -> None:
    read_or_refuse(content, name)


@pytest.mark.parametrize("name", [*TEXTS, *(f"graph.tsv{ending}" for ending in COMPRESSED), "g.parquet"])
@given(st.data())
def test_any_damage_to_a_good_file_is_a_graph_or_a_clean_error(name: str, data: st.DataObject) -> None:
    compress = COMPRESSED.get(Path(name).suffix, bytes)
    content = bytearray(compress(TEXTS.get(name.removesuffix(Path(name).suffix)) or TEXTS.get(name) or GOOD_PARQUET))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(content), name)


# side files


def test_rows_of_a_side_file_have_their_columns(tmp_path: Path) -> None:
    (tmp_path / "types.tsv").write_bytes("\ufeffa\tT\tThing\r\n\nb\tU\n".encode())
    assert list(read_pairs_table(tmp_path / "types.tsv")) == [["a", "T", "Thing"], ["b", "U"]]
    (tmp_path / "types.tsv.gz").write_bytes(gzip.compress(b"a\tT\n"))
    assert list(read_pairs_table(tmp_path / "types.tsv.gz")) == [["a", "T"]]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a\tT\nb\n", "types.tsv:2: needs at least 2 columns"),
        (b"a\tT\n\tU\n", "types.tsv:2: needs at least 2 columns"),
        (b"a\tT\n\xff\tU\n", "types.tsv:2: is not UTF-8 text"),
    ],
)
def test_a_bad_row_of_a_side_file_is_an_error_with_file_and_line(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "types.tsv").write_bytes(content)
    with pytest.raises(InputError, match=problem):
        list(read_pairs_table(tmp_path / "types.tsv"))
