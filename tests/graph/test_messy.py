"""Files as people have them, in `messy`: each is read right, or refused with the option that makes it read."""

from __future__ import annotations

import csv
import gzip
import io
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.conftest import compiled, named

from fewlink.core.errors import FewlinkError, InputError
from fewlink.graph import CompileReport, compile_graph
from fewlink.graph.check import check_graph, similar_names
from fewlink.graph.source import GraphSource

MESSY = Path(__file__).parent / "messy"
Triples = list[tuple[str, str, str]]

PEOPLE = [("Anna", "knows", "Ben"), ("Anna", "lives in", "Oslo"), ("Ben", "lives in", "Rome")]
CIRCLE = [("Anna", "knows", "Ben"), ("Ben", "knows", "Cleo"), ("Cleo", "knows", "Anna")]
READ: dict[str, Triples] = {
    "aligned.txt": [("Anna", "knows", "Ben"), ("Anna", "lives_in", "Oslo"), ("Ben", "lives_in", "Rome")],
    "latin-1.csv": [("José", "knows", "Jürgen"), ("José", "lives in", "Málaga"), ("Jürgen", "lives in", "Zürich")],
    "windows-1252.csv": [("O’Hara", "knows", "Zoë"), ("Zoë", "lives in", "Côte d’Azur")],
    "quotes.csv": [("Smith, Anna", "knows", 'Ben "B" Lee'), ("Smith, Anna", "lives in", "Oslo, Norway")],
    "lines-in-quotes.csv": [("Anna", "lives in", "Oslo\nNorway"), ("Ben", "lives in", "Rome")],
    "quotes-in-tsv.tsv": [("Anna", "says", '"no"'), ("Anna", "plays", '12" record'), ("Ben", "says", "yes, or no")],
    "wikidata.csv": [
        ("http://x.org/Anna", "http://x.org/knows", "http://x.org/Ben"),
        ("http://x.org/Ben", "http://x.org/lives", "http://x.org/Rome"),
    ],
    "n-triples.txt": [("x:Anna", "x:knows", "x:Ben"), ("x:Ben", "x:lives", "x:Rome")],
    "numbers-and-dates.csv": [("Anna", "knows", "Ben"), ("Cleo", "knows", "Anna")],
    "yes-and-no.csv": [("Anna", "knows", "Ben")],
    **dict.fromkeys(
        (
            "plain.tsv",
            "header.tsv",
            "another-order.csv",
            "semicolons.csv",
            "bars.txt",
            "weights.tsv",
            "weights-and-header.csv",
            "pandas-index.csv",
            "r-row-names.txt",
            "row-numbers.tsv",
            "byte-order-mark.csv",
            "unicode-text.txt",
            "utf-16-without-mark.csv",
            "excel-sep.csv",
            "all-quoted.tsv",
            "spaces-after-commas.csv",
            "comments.tsv",
            "hash-header.tsv",
            "neo4j.csv",
            "kgtk.tsv",
            "conceptnet.csv",
            "ids-and-names.csv",
            "two-heads.csv",
            "objects.jsonl",
            "lists.ndjson",
            "array.json",
            "json-in-text.txt",
            "trailing-commas.csv",
            "commas.tsv",
            "tabs.csv",
            "mac.csv",
        ),
        PEOPLE,
    ),
}
REFUSED: dict[str, tuple[str, Triples]] = {  # an option in the message, and what it reads
    "sources-behind.tsv": ("--columns head=1,relation=2,tail=3", PEOPLE),
    "strange-keys.jsonl": ("--columns head=who,relation=does,tail=whom", PEOPLE),
    "pairs.csv": ("--columns head=1,relation==NAME,tail=2", CIRCLE),
    "pairs-with-header.tsv": ("--columns head=source,relation==NAME,tail=target", CIRCLE),
    "wide.csv": (
        "--columns head=name,tail=rest",
        [
            ("Anna", "lives in", "Oslo"),
            ("Anna", "knows", "Ben"),
            ("Ben", "lives in", "Rome"),
            ("Cleo", "lives in", "Oslo"),
            ("Cleo", "knows", "Anna"),
        ],
    ),
    "wide-with-more.csv": (
        "--columns head=name,tail=rest",
        [
            ("Anna", "city", "Oslo"),
            ("Anna", "country", "Norway"),
            ("Anna", "friend", "Ben"),
            ("Ben", "city", "Rome"),
            ("Ben", "country", "Italy"),
            ("Cleo", "city", "Oslo"),
            ("Cleo", "country", "Norway"),
            ("Cleo", "friend", "Anna"),
        ],
    ),
    "own-words.tsv": (
        "--columns 'head=Mensch,relation=Verb (kurz),tail=Ding'",
        [*PEOPLE, ("Ben", "knows", "Anna"), ("Cleo", "knows", "Ben")],
    ),
    "half-a-header.csv": (
        "--columns head=person,relation=relation,tail=thing",
        [*PEOPLE, ("Ben", "knows", "Anna")],
    ),
    "letters.csv": ("--columns head=h,relation=r,tail=t", PEOPLE),
    "short-row.csv": ("--on-error skip", PEOPLE),
}
NO_TABLES = {"markdown.md": "save it as CSV", "page.csv": "download the file", "workbook.csv": "save the sheet as CSV"}


def read(name: str, **options: str) -> Triples:
    return named(compile_graph(MESSY / name, **options))  # type: ignore[arg-type]


def test_every_messy_file_has_its_test() -> None:
    files = {path.name for path in MESSY.iterdir() if not path.name.startswith(".")}
    assert files == {*READ, *REFUSED, *NO_TABLES}
    assert len(files) >= 40


@pytest.mark.parametrize("name", READ)
def test_a_messy_file_is_read_at_the_first_try(name: str) -> None:
    assert read(name) == READ[name]


@pytest.mark.parametrize("name", ["another-order.csv", "unicode-text.txt", "latin-1.csv", "mac.csv", "array.json"])
def test_a_messy_file_is_read_compressed(name: str) -> None:
    assert named(compiled(gzip.compress((MESSY / name).read_bytes()), f"{name}.gz")[0]) == READ[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_messy_file_is_refused_with_the_option_that_makes_it_read(name: str) -> None:
    option, triples = REFUSED[name]
    with pytest.raises(InputError, match=re.escape(option)) as refused:
        read(name)
    assert str(refused.value).startswith(str(MESSY / name))
    flag, value = shlex.split(option.replace("=NAME", "=knows"))
    assert read(name, **{flag.removeprefix("--").replace("-", "_"): value}) == triples


@pytest.mark.parametrize("name", NO_TABLES)
def test_a_file_that_is_no_table_is_an_error_that_says_what_to_do(name: str) -> None:
    with pytest.raises(InputError, match=NO_TABLES[name]):
        read(name)


def test_columns_that_are_not_read_are_named() -> None:
    report = CompileReport()
    compile_graph(MESSY / "weights-and-header.csv", report=report)
    assert "columns not read: weight, since" in report.remarks()
    preview = check_graph(GraphSource.of(MESSY / "conceptnet.csv", on_error="skip"))
    assert preview["columns"] == {"head": "start", "relation": "relation", "tail": "end"}
    assert (preview["separator"], preview["ignored"]) == ("comma", ["uri", "weight"])
    assert preview["first_triples"][0] == ["Anna", "knows", "Ben"]


def test_literals_are_left_out_with_a_note_or_kept() -> None:
    report = CompileReport()
    compile_graph(MESSY / "numbers-and-dates.csv", report=report)
    assert report.literals == 6 and "'age', 'born'" in report.remarks()[1]
    assert len(read("numbers-and-dates.csv", literals="keep")) == 8
    with pytest.raises(FewlinkError, match="--literals keep"):
        compiled(b"a,age,1\nb,age,2\nc,age,3\n", "g.csv")


def test_numbers_that_are_ids_of_entities_are_no_literals() -> None:
    assert compiled(b"".join(b"%d\tr\t%d\n" % (i, i + 50) for i in range(9)))[0].triple_count == 9
    assert compiled(b"".join(b"a%d\tr\t%d\n" % (i, i) for i in range(9)) + b"3\tr\ta1\n")[0].triple_count == 10
    assert compiled(b"".join(b"a%d\tr\t000%d\n" % (i, i) for i in range(9)))[0].triple_count == 9
    mixed = b"".join(b"a%d\tr\t%s%d\n" % (i, b"x" if i % 3 else b"", i) for i in range(9))
    assert compiled(mixed)[0].triple_count == 9


def test_similar_names_are_listed_with_their_counts() -> None:
    rows = "Anna,knows,Ben\nanna,knows,Cleo\nAnna,likes,José\nBen,likes,Jose\nBen,Likes,new_york\nCleo,knows,New York\n"
    graph, _ = compiled(rows.encode(), "g.csv")
    groups = [[graph.entities[i] for i in group] for group in similar_names(graph.entities)]
    assert groups == [["Anna", "anna"], ["José", "Jose"], ["new_york", "New York"]]


@pytest.mark.parametrize(
    "columns", ["head=1", "head=1,relation=2,tail=9", "head=1,relation=2,tail=nobody", "1,2,3", "head=1,rel=2,tail=3"]
)
def test_wrong_columns_are_an_error_that_says_what_there_is(columns: str) -> None:
    with pytest.raises(FewlinkError, match=r"head=1,relation=2,tail=3|its columns are"):
        read("header.tsv", columns=columns)


@pytest.mark.parametrize("first", ["source,knows,target", "r,h,t", "person,relation,thing"])
def test_a_first_line_that_may_be_a_header_is_read_as_the_user_says(first: str) -> None:
    content = f"{first}\nAnna,knows,Ben\nAnna,lives in,Oslo\nBen,lives in,Rome\n".encode()
    with pytest.raises(InputError, match=r"g.csv:1: .*--columns head=1,relation=2,tail=3"):
        compiled(content, "g.csv")
    assert len(named(compiled(content, "g.csv", columns="head=1,relation=2,tail=3")[0])) == 4
    head, relation, tail = first.split(",")
    columns = {"head": head, "relation": relation, "tail": tail}
    assert named(compiled(content, "g.csv", columns=columns)[0]) == PEOPLE


TABLE = "name,category,licence\nnumpy,numerics,BSD\npandas,tables,BSD\nripgrep,search,MIT\n"
NO_HEADER = [
    "Anna,knows,Ben\nBen,knows,Cleo\nAnna,likes,Dan\n",
    "Anna,knows,Ben\nBen,likes,Cleo\nCleo,hates,Dan\nDan,sees,Eve\n",  # as many relations as rows
    "Anna,knows,Ben\nCleo,likes,Dan\nEve,hates,Finn\nGus,sees,Hal\n",
    "Anna,knows,Ben\n",
    "Oslo,capital of,Norway\n" + "".join(f"a{i},in,b{i % 9}\n" for i in range(300)) + "Oslo,in,Europe\n",
]


@pytest.mark.parametrize("option", ["head=name,category", "head=name,tail=rest", "head=1,relation=2,tail=3"])
def test_a_table_of_columns_is_refused_with_each_way_to_read_it(option: str) -> None:
    option = option.replace("name,category", "name,relation=category,tail=licence")
    with pytest.raises(InputError, match=rf"g.csv:1: .*numpy.*--columns {option}"):
        compiled(TABLE.encode(), "g.csv")
    count = {"head=name,tail=rest": 6, "head=1,relation=2,tail=3": 4}.get(option, 3)
    assert compiled(TABLE.encode(), "g.csv", columns=option)[0].triple_count == count


@pytest.mark.parametrize("text", NO_HEADER)
def test_triples_without_a_header_open_without_a_word(text: str) -> None:
    graph, report = compiled(text.encode(), "g.csv")
    assert graph.triple_count == text.count("\n")
    assert not report.remarks()


def test_new_triples_of_a_known_entity_have_no_header(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("Anna,knows,Ben\n")
    (tmp_path / "new.csv").write_text("Anna,likes,Dan\nCleo,sees,Eve\nFinn,sees,Eve\nGus,sees,Eve\n")
    assert compile_graph([tmp_path / "old.csv", tmp_path / "new.csv"]).triple_count == 5


def test_a_header_that_is_clear_is_not_a_triple_if_columns_are_numbers() -> None:
    content = b"id,source,how,target\n1,Anna,knows,Ben\n2,Anna,lives in,Oslo\n3,Ben,lives in,Rome\n"
    assert named(compiled(content, "g.csv", columns="head=2,relation=3,tail=4")[0]) == PEOPLE
    assert read("header.tsv", columns="head=1,relation=2,tail=3") == PEOPLE


def test_columns_of_a_format_without_columns_are_an_error() -> None:
    with pytest.raises(InputError, match="leave out --columns"):
        compiled(b"<x:a> <x:r> <x:b> .\n", "g.nt", columns="head=1,relation=2,tail=3")


cells = st.text(st.sampled_from("abAB \"',;|\n0é日"), min_size=1, max_size=6).filter(lambda text: text.strip())
HEADERS = [("head", "relation", "tail"), ("Subject", "PREDICATE", "object"), ("from_id", "type", "To Node")]


@given(
    st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=9),
    st.permutations([0, 1, 2]),
    st.sampled_from(HEADERS),
    st.sampled_from([(",", "g.csv"), (";", "g.csv"), ("|", "g.txt"), ("\t", "g.tsv"), (",", "g.txt")]),
)
@example([('0",";,', '" 0', ",;,;\n")], [1, 2, 0], HEADERS[0], (";", "g.csv"))  # names of other separators
@example([(",", ",,\n,0", "|0")], [2, 1, 0], HEADERS[1], (";", "g.csv"))
@example([("\n'", "';", ";")], [0, 1, 2], HEADERS[0], ("|", "g.txt"))
@example([("0", ";'", "';")], [0, 1, 2], HEADERS[0], ("|", "g.txt"))
def test_triples_are_read_back_whatever_the_separator_and_the_order_of_columns(
    triples: Triples, order: list[int], header: tuple[str, str, str], how: tuple[str, str]
) -> None:
    separator, name = how
    if separator == "\t":  # quotes are characters of a name in tab-separated text
        triples = [(h.replace("\n", " "), r.replace("\n", " "), t.replace("\n", " ")) for h, r, t in triples]
    text = io.StringIO()
    quoting = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_ALL
    quote = None if separator == "\t" else '"'
    writer = csv.writer(text, delimiter=separator, quoting=quoting, quotechar=quote, lineterminator="\n")
    writer.writerow([header[place] for place in order])
    writer.writerows([triple[place] for place in order] for triple in triples)
    graph, _ = compiled(text.getvalue().encode(), name, literals="keep")
    assert named(graph) == list(dict.fromkeys(triples))
