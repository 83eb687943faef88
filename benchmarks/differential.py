"""Read generated, damaged and cut files of every format with fewlink and with a second parser, and compare.

python benchmarks/differential.py [--files 20000] [--seed 0] [--format NAME] [--out FOLDER] [--record]

A file is a pure function of the seed, its format and its number. The two agree if fewlink refuses the file, or reads
exactly the triples that the second parser reads: rdflib, lxml, pyoxigraph where fewlink does not use it, csv, json,
pyarrow, or a few literal lines. Refusing a whole file is a disagreement too. Files on which they disagree are printed
and stored in the folder, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import bz2
import codecs
import csv
import functools
import gzip
import io
import json
import logging
import lzma
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from fewlink.core.errors import FewlinkError
from fewlink.graph.compile import read_names_of

XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RESULTS = "http://www.w3.org/2005/sparql-results#"
TEXTS = ["Ann", "a b", 'say "x"', "l'été", "日本", "a<b & c>d", "]]>", "<<", "{x}", "\\", "#", "1.5", "true", "x" * 300]
BREAKS = ["two\nlines", "tab\tbed", "\r"]
WORDS = ["ann", "bob", "oslo", "é", "n1", "R-2", "a.b", "x_y"]
XML_DECLARATION = re.compile(rb"^<\?xml[^>]*\?>")  # expat reads damaged ones
RETURN = "\udc0d"  # a carriage return inside a name, at which csv would end the row
ESCAPED = r"""
\x00 \x01 \x0b \x1f \x7f \xff \xc3 \xed\xa0\x80 \xef\xbb\xbf \r \n \t " ' < > & &amp; &x; &#1; &#x0; ]]> -- <!-- --> <?
?> { } [ ] ( ) , ; . : # @ ^^ \\ \\u00e9 \\ud800 \\x << >> <<( )>> _: _:b @prefix @base @en a true 1e5 null NaN '' http://x
9 % <rdf:RDF> </rdf:RDF> </rdf:Description> <e:p/> </result> <result/> <binding/> xmlns="" xml:base='x' {} [] "x" BZh
"""
TOKENS = [token.encode().decode("unicode_escape").encode("latin-1") for token in ESCAPED.split()]
DAMAGES = ["whole", "cut", "cut", "cut between tags", "changed", "changed", "inserted", "inserted", "deleted"]


class Term(NamedTuple):
    """A term of a generated triple; the kind is iri, bnode or literal."""

    kind: str
    value: str
    language: str = ""
    datatype: str = ""


Triple = tuple[Term, Term, Term]
Found = set[tuple[str, ...]]  # triples as names


def term(rng: random.Random, kinds: str, lines: bool = True) -> Term:
    kind = {"i": "iri", "b": "bnode", "l": "literal"}[rng.choice(kinds)]
    if kind == "iri":
        return Term(kind, f"http://e/{rng.choice(WORDS)}{rng.choice(('', '#', '/'))}{rng.randrange(50)}")
    if kind == "bnode":
        return Term(kind, f"b{rng.randrange(9)}")
    value = rng.choice([*TEXTS, *BREAKS] if lines else TEXTS) + rng.choice(("", str(rng.randrange(1000))))
    how = rng.randrange(3)
    return Term(kind, value, "en" if how == 1 else "", XSD + "string" if how == 2 else "")


def triples(rng: random.Random, tails: str = "iiibl", heads: str = "iiiib", lines: bool = True) -> list[Triple]:
    """Distinct triples; one file in fifty is larger than the buffers of parsers."""
    count = rng.choice((0, 1, 2, 5, 20, 60)) if rng.random() > 0.02 else 1500
    rows = ((term(rng, heads), term(rng, "i"), term(rng, tails, lines)) for _ in range(count))
    return list(dict.fromkeys(rows))


# writers


def nt_term(each: Term) -> str:
    if each.kind == "iri":
        return f"<{each.value}>"
    if each.kind == "bnode":
        return f"_:{each.value}"
    text = each.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    tag = f"@{each.language}" if each.language else f"^^<{each.datatype}>" if each.datatype else ""
    return f'"{text}"{tag}'


def write_nt(rng: random.Random) -> bytes:
    return "".join(" ".join(map(nt_term, row)) + rng.choice((" .\n", ".\n", " .\n\n")) for row in triples(rng)).encode()


def write_nq(rng: random.Random) -> bytes:
    graphs = ("", "", " <http://g/1>", " _:g")
    lines = (" ".join(map(nt_term, row)) + f"{rng.choice(graphs)} .\n" for row in triples(rng))
    return "".join(lines).encode()


def turtle_term(rng: random.Random, each: Term) -> str:
    if each.kind == "literal" and rng.random() < 0.3 and not each.value.endswith('"'):
        text = each.value.replace("\\", "\\\\").replace('"""', '""\\"').replace("\r", "\\r")
        return f'"""{text}"""' + (f"@{each.language}" if each.language else "")
    return nt_term(each)


def write_turtle(rng: random.Random) -> bytes:
    text = "@prefix e: <http://e/> .\n@base <http://b/> .\n"
    for head, relation, tail in triples(rng):
        text += f"{nt_term(head)} {nt_term(relation)} {turtle_term(rng, tail)}"
        if rng.random() < 0.3:
            text += f" ;\n  e:more {rng.choice(('[ e:p e:q ]', '( e:a e:b )', 'e:x , <y>', '1.5', 'true'))}"
        text += " .\n"
    return text.encode()


def write_trig(rng: random.Random) -> bytes:
    inner = write_turtle(rng).decode().split("\n", 2)
    return f"{inner[0]}\n{inner[1]}\ne:g {{ {inner[2]} }}\n{{ e:a e:b e:c }}\n".encode()


def write_rdf_xml(rng: random.Random) -> bytes:
    begin = rng.choice(("", '<?xml version="1.0" encoding="UTF-8"?>\n', "<!-- a comment -->\n"))
    text = f'{begin}<rdf:RDF xmlns:rdf="{RDF}" xmlns:e="http://e/">\n'
    for head, _, tail in triples(rng):
        relation = f"e:{rng.choice(('p', 'q', 'r'))}{rng.randrange(9)}"
        about = f'rdf:about="{head.value}"' if head.kind == "iri" else f'rdf:nodeID="{head.value}"'
        if tail.kind == "literal":
            language = f' xml:lang="{tail.language}"' if tail.language else ""
            datatype = f' rdf:datatype="{tail.datatype}"' if tail.datatype else ""
            value = escape(tail.value).replace("\r", "&#13;")
            inner = f"<{relation}{language}{datatype}>{value}</{relation}>"
        elif rng.random() < 0.2:
            inner = f"<{relation}><rdf:Description><e:in><e:Town/></e:in></rdf:Description></{relation}>"
        else:
            how = f'rdf:resource="{tail.value}"' if tail.kind == "iri" else f'rdf:nodeID="{tail.value}"'
            inner = f"<{relation} {how}/>"
        text += f"<rdf:Description {about}>{inner}</rdf:Description>\n"
    return (text + "</rdf:RDF>" + rng.choice(("", "\n"))).encode()


def write_json_ld(rng: random.Random) -> bytes:
    nodes: list[Any] = []
    for head, relation, tail in triples(rng):
        value: dict[str, str] = {"@value": tail.value}
        if tail.kind != "literal":
            value = {"@id": tail.value if tail.kind == "iri" else f"_:{tail.value}"}
        elif tail.language:
            value["@language"] = tail.language
        name = head.value if head.kind == "iri" else f"_:{head.value}"
        nodes.append({"@id": name, relation.value: [value]})
    if rng.random() < 0.5:
        return json.dumps({"@context": {"e": "http://e/"}, "@graph": nodes}, indent=rng.choice((None, 1))).encode()
    return json.dumps(nodes, ensure_ascii=False).encode()


def json_term(each: Term) -> dict[str, str]:
    kind = {"iri": "uri"}.get(each.kind, each.kind)
    return {"type": kind, "value": each.value} | ({"xml:lang": each.language} if each.language else {})


def write_srj(rng: random.Random) -> bytes:
    rows = [dict(zip("abc", map(json_term, row), strict=True)) for row in triples(rng)]
    content = {"head": {"vars": [*"abc"]}, "results": {"bindings": rows}}
    return json.dumps(content, indent=rng.choice((None, 2)), ensure_ascii=False).encode()


def write_srx(rng: random.Random) -> bytes:
    text = f'<?xml version="1.0"?>\n<sparql xmlns="{RESULTS}"><head>'
    text += "".join(f'<variable name="{name}"/>' for name in "abc") + "</head>\n<results>"
    for row in triples(rng):
        text += "<result>"
        for name, each in zip("abc", row, strict=True):
            kind = {"iri": "uri"}.get(each.kind, each.kind)
            language = f" xml:lang={quoteattr(each.language)}" if each.language else ""
            value = escape(each.value).replace("\r", "&#13;")
            text += f'<binding name="{name}"><{kind}{language}>{value}</{kind}></binding>'
        text += "</result>\n"
    return (text + "</results></sparql>").encode()


def write_results_tsv(rng: random.Random) -> bytes:
    rows = ("\t".join(nt_term(each).replace("\t", "\\t") for each in row) for row in triples(rng))
    return "\n".join(["?a\t?b\t?c", *rows, ""]).encode()


def write_results_csv(rng: random.Random) -> bytes:
    """Results in CSV as endpoints write them; a cell does not say whether it is a literal."""
    text = io.StringIO()
    rows = [["_:" * (each.kind == "bnode") + each.value for each in row] for row in triples(rng, lines=False)]
    csv.writer(text, lineterminator=rng.choice(("\n", "\r\n"))).writerows([["head", "relation", "tail"], *rows])
    return text.getvalue().encode()


def names(rng: random.Random) -> list[list[str]]:
    """Rows of plain names without control characters; the first shows the format."""
    rows = [["h0", "r", "t0"], ["h1", "r", "t1"], ["h2", "r", "t2"]]
    count = rng.choice((0, 1, 5, 20, 60)) if rng.random() > 0.02 else 3000
    words = ["ann", "Oslo", "日本", "x-y", "a b", "it's", "(c)", "é"]
    return rows + [[f"{rng.choice(words)}{rng.randrange(99)}" for _ in range(3)] for _ in range(count)]


def write_tsv(rng: random.Random) -> bytes:
    return "".join("\t".join(row) + "\n" for row in names(rng)).encode()


def write_csv(rng: random.Random) -> bytes:
    text = io.StringIO()
    quoting: Any = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    rows = [[name + rng.choice(("", "", ", x", ' "q"')) for name in row] for row in names(rng)]
    csv.writer(text, quoting=quoting, lineterminator=rng.choice(("\n", "\r\n"))).writerows(rows)
    return text.getvalue().encode()


def write_json_lines(rng: random.Random) -> bytes:
    keys = ("head", "relation", "tail")
    lines = (dict(zip(keys, row, strict=True)) if rng.random() < 2 else row for row in names(rng))
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def write_json_array(rng: random.Random) -> bytes:
    return json.dumps(names(rng), indent=rng.choice((None, 1))).encode()


def write_parquet(rng: random.Random) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = zip(("head", "relation", "tail"), zip(*names(rng), strict=True), strict=True)
    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({name: list(column) for name, column in columns})
    encoding = rng.choice((None, None, "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"))
    pyarrow.parquet.write_table(
        table,
        sink,
        store_schema=False,  # a copy of the schema that only pyarrow reads
        compression=rng.choice(("snappy", "zstd", "none")),
        use_dictionary=encoding is None,
        column_encoding=encoding and dict.fromkeys(table.column_names, encoding),
    )
    return bytes(sink.getvalue().to_pybytes())


def write_stix(rng: random.Random) -> bytes:
    objects: list[dict[str, str]] = [{"type": "malware", "id": f"malware--{i}", "name": f"m{i}"} for i in range(9)]
    for number in range(rng.choice((0, 1, 5, 30))):
        ends = {f"{end}_ref": f"malware--{rng.randrange(9)}" for end in ("source", "target")}
        objects.append({"type": "relationship", "id": f"relationship--{number}", "relationship_type": "uses"} | ends)
    return json.dumps({"type": "bundle", "id": "bundle--1", "objects": objects}, indent=rng.choice((None, 1))).encode()


# second parsers: each returns the triples, or raises


def by_rdflib(content: bytes, format: str) -> Found:
    import rdflib

    rdflib.NORMALIZE_LITERALS = False
    graph = rdflib.Dataset() if format in ("nquads", "trig", "json-ld") else rdflib.Graph()
    if format in ("nt", "nquads"):
        content = re.sub(rb'"[ \t]+(@|\^\^)', rb'"\1', content)  # white space that rdflib refuses
        content = re.sub(rb'(>|_:\w+)(<|_:|")', rb"\1 \2", content)  # and that it needs
        content = re.sub(rb'_:[^\s<>"]*[\x80-\xff][^\s<>"]*', lambda label: b"_:x" + label[0].hex().encode(), content)
    if format in ("turtle", "trig"):  # rdflib resolves no name against a base such as <x:y>, which RFC 3986 allows
        content = re.sub(rb"(@base\s*<[A-Za-z][\w+.-]*:)(?!/)", rb"\1/", content)
    if format == "json-ld":
        content = re.sub(rb'"@language": "[^"]*"', b'"@language": "en"', content)  # rdflib refuses others, too late
    graph.parse(data=content.removeprefix(codecs.BOM_UTF8), format=format)
    rows = [each[:3] for each in graph.quads()] if isinstance(graph, rdflib.Dataset) else list(graph)
    return {tuple(map(str, row)) for row in rows}


def by_lxml_and_rdflib(content: bytes) -> Found:
    import lxml.etree  # type: ignore[import-untyped]

    try:
        lxml.etree.fromstring(XML_DECLARATION.sub(b"", content))
    except lxml.etree.XMLSyntaxError as error:
        if "is not a valid URI" not in str(error):  # which is no matter of XML
            raise
    return by_rdflib(content, "xml")


def by_json_results(content: bytes) -> Found:
    value = json.loads(content)
    return {tuple(_value(row[name]) for name in value["head"]["vars"]) for row in value["results"]["bindings"]}


def _value(each: dict[str, str]) -> str:
    if each["type"] not in ("uri", "literal", "typed-literal", "bnode"):
        raise ValueError(each["type"])
    return each["value"]


def by_lxml_results(content: bytes) -> Found:
    import lxml.etree  # type: ignore[import-untyped]

    root = lxml.etree.fromstring(XML_DECLARATION.sub(b"", content))
    found = set()
    variables = [each.get("name") for each in root.iter("{*}variable")]
    for result in root.iter("{*}result"):
        bindings = {each.get("name"): each[0] for each in result}
        found.add(tuple(bindings[name].text or "" for name in variables))
    return found


def by_pyoxigraph_results(content: bytes) -> Found:
    import pyoxigraph

    content = content.removeprefix(codecs.BOM_UTF8)
    if not re.fullmatch(rb"\?\w+(\t\?\w+)+\s*", content.partition(b"\n")[0]):
        return by_lines(content)  # without variables, it is a table
    content = re.sub(rb"\n+", b"\n", content)
    results: Any = pyoxigraph.parse_query_results(input=content, format=pyoxigraph.QueryResultsFormat.TSV)
    try:
        return {tuple(row[variable].value for variable in results.variables) for row in results}
    except SyntaxError as error:
        if not re.search("parsing the (named|blank) node|language tag|escaped char|on '_:", str(error)):
            raise
    lines = [line.split("\t") for line in content.decode().split("\n")[1:] if line.strip()]
    return of_rows([[cell.strip("<>") for cell in line] for line in lines])  # with names that pyoxigraph refuses


def of_rows(rows: list[list[str]]) -> Found:
    if any(len(row) != 3 or not all(row) for row in rows):
        raise ValueError("a row that is no triple")
    return {tuple(row) for row in rows}


def table_text(content: bytes) -> str:
    """The text of a table: if it is not UTF-8, Windows-1252."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def by_lines(content: bytes) -> Found:
    text = table_text(content).replace("\r\n", "\n")
    return of_rows([line.split("\t") for line in text.split("\n") if line.strip(" \n\r\v\f")])


def csv_rows(content: bytes) -> list[list[str]]:
    text = table_text(content)
    text = re.sub("\r(?!\n|$)", RETURN, text) if "\n" in text else text.replace("\r", "\n")
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    return [[cell.replace("\r\n", "\n").replace(RETURN, "\r") for cell in row] for row in rows if row]


def by_csv(content: bytes) -> Found:
    return of_rows(csv_rows(content))


def by_csv_results(content: bytes) -> Found:
    content = content.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    rows = csv_rows(b"\n" + content.partition(b"\n")[2])  # below the variables
    return of_rows([[re.sub("^_:(?=.)", "", cell) for cell in row] for row in rows])


def by_json_lines(content: bytes) -> Found:
    lines = [line for line in content.decode("utf-8-sig").replace("\r\n", "\n").split("\n") if line.strip()]
    values = [json.loads(line) for line in lines]
    return of_rows([[value[key] for key in ("head", "relation", "tail")] for value in values])


def by_json_array(content: bytes) -> Found:
    try:
        return of_rows(json.loads(content))
    except json.JSONDecodeError:  # DuckDB reads a comma after the last value, too
        return of_rows(json.loads(re.sub(rb",(\s*[\]}])", rb"\1", content)))


def by_pyarrow(content: bytes) -> Found:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(content))
    table.validate(full=True)
    columns = [[_text(value) for value in column.to_pylist()] for column in table.columns]
    return of_rows([list(row) for row in zip(*columns, strict=True)])


def _text(value: Any) -> str:
    """A cell as text; a null is empty, which is no name."""
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else str(value)


def by_stix(content: bytes) -> Found:
    objects = {each["id"]: each for each in json.loads(content)["objects"]}
    kind = {name: re.sub(r"[^\w]+", "_", each["type"]).strip("_") for name, each in objects.items()}
    found: Found = set()
    for each in objects.values():
        if each["type"] == "relationship":
            head = each["source_ref"]
            verb = each["relationship_type"]
            tail = each["target_ref"]
            if head in objects and tail in objects:
                word = re.sub(r"[^\w]+", "_", verb).strip("_")
                found.add((head, f"{kind[head]}_{word}_{kind[tail]}", tail))
    return found


def unpacked(content: bytes, decompress: Callable[[bytes], bytes]) -> Found:
    return by_lines(decompress(content))


def zstd(content: bytes, unpack: bool) -> bytes:
    import pyarrow

    if unpack:
        return bytes(pyarrow.CompressedInputStream(pyarrow.BufferReader(content), "zstd").read())
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())


def write_packed(rng: random.Random, pack: Callable[[bytes], bytes]) -> bytes:
    return pack(write_tsv(rng))


@dataclass
class Format:
    """How files of a format are generated, and read by a second parser."""

    name: str
    suffix: str
    write: Callable[[random.Random], bytes]
    read: Callable[[bytes], Found]
    at_least: bool = False  # whether fewlink may read more: JSON-LD below keys that are not defined


def formats() -> list[Format]:
    packed: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
        "gz": (functools.partial(gzip.compress, mtime=0), gzip.decompress),
        "xz": (lzma.compress, lzma.decompress),
        "bz2": (bz2.compress, bz2.decompress),
        "zst": (functools.partial(zstd, unpack=False), functools.partial(zstd, unpack=True)),
    }
    return [
        Format("TSV", "tsv", write_tsv, by_lines),
        Format("CSV", "csv", write_csv, by_csv),
        Format("JSON lines", "jsonl", write_json_lines, by_json_lines),
        Format("JSON array", "json", write_json_array, by_json_array),
        Format("N-Triples", "nt", write_nt, functools.partial(by_rdflib, format="nt")),
        Format("N-Quads", "nq", write_nq, functools.partial(by_rdflib, format="nquads")),
        Format("Turtle", "ttl", write_turtle, functools.partial(by_rdflib, format="turtle")),
        Format("TriG", "trig", write_trig, functools.partial(by_rdflib, format="trig")),
        Format("RDF/XML", "rdf", write_rdf_xml, by_lxml_and_rdflib),
        Format("JSON-LD", "jsonld", write_json_ld, functools.partial(by_rdflib, format="json-ld"), True),
        Format("SPARQL JSON", "srj", write_srj, by_json_results),
        Format("SPARQL XML", "srx", write_srx, by_lxml_results),
        Format("SPARQL TSV", "tsv", write_results_tsv, by_pyoxigraph_results),
        Format("SPARQL CSV", "csv", write_results_csv, by_csv_results),
        Format("Parquet", "parquet", write_parquet, by_pyarrow),
        Format("STIX", "json", write_stix, by_stix),
        *(
            Format(
                f"TSV.{ending}",
                f"tsv.{ending}",
                functools.partial(write_packed, pack=pack),
                functools.partial(unpacked, decompress=unpack),
            )
            for ending, (pack, unpack) in packed.items()
        ),
    ]


# damage


def damaged(rng: random.Random, content: bytes) -> tuple[str, bytes]:
    """What was done to a file, and the file."""
    how = rng.choice(DAMAGES)
    if how == "whole" or not content:
        return "whole", content
    at = rng.randrange(len(content))
    if how == "cut":
        return how, content[:at]
    if how == "cut between tags":
        return how, content[: 1 + max(content.rfind(mark, 0, at) for mark in (b">", b"\n", b"}"))]
    if how == "changed":
        return how, content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
    if how == "deleted":
        return how, content[:at] + content[at + rng.choice((1, 2, 10, 100)) :]
    return how, content[:at] + rng.choice(TOKENS) + content[at:]


# comparison


def by_fewlink(path: Path, content: bytes) -> Found:
    path.write_bytes(content)
    return set(read_names_of(path))


def of_iris(found: Found) -> Found:
    """The triples whose names are the same in all parsers: those of IRIs."""
    return {row for row in found if all(name.startswith("http://e/") for name in row)}


def disagreement(path: Path, content: bytes, how: str, format: Format, whole: bytes) -> str | None:
    """What fewlink and the second parser read differently, or None. A file without triples is refused later.

    A damaged file that only the second parser refuses is no disagreement if fewlink reads all of the `whole` one from
    it: the damage is in a place that it does not need, such as a size in the header of a Parquet page.
    """
    try:
        found = by_fewlink(path, content)
    except FewlinkError as error:
        return f"refused: {error}" if how == "whole" else None
    try:
        expected = format.read(content)
    except Exception as error:
        if how == "changed" and sorted(found) == sorted(format.read(whole)):
            return None
        refused = f"{len(found)} triples, but the second parser says {type(error).__name__}: {error}"
        return refused if found else None
    if not found and how != "whole" and b"\n" not in content.strip():
        return None  # the only line, which may be a header: fewlink refuses the file
    if len(found) < len(expected) or (len(found) > len(expected) and not format.at_least):
        return f"{len(found)} triples, but the second parser reads {len(expected)}"
    more = of_iris(found) - of_iris(expected)
    fewer = of_iris(expected) - of_iris(found)
    return f"reads {sorted(more)[:2]}, not {sorted(fewer)[:2]}" if fewer or (more and not format.at_least) else None


def compare(
    files: int, seed: int = 0, only: str | None = None, out: Path | None = None
) -> tuple[dict[str, int], list[str]]:
    """Compare so many files, format by format in turn; returns the number of files of each format, and all problems."""
    logging.disable(logging.CRITICAL)  # rdflib warns of every odd literal
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fewlink-differential-", dir=memory if memory.is_dir() else None))
    chosen = [format for format in formats() if only in (None, format.name)]
    counts = dict.fromkeys((format.name for format in chosen), 0)
    problems = list[str]()
    try:
        for number in range(files):
            format = chosen[number % len(chosen)]
            rng = random.Random(f"{seed}/{format.name}/{number}")
            whole = format.write(rng)
            how, content = damaged(rng, whole)
            problem = disagreement(folder / f"file.{format.suffix}", content, how, format, whole)
            counts[format.name] += 1
            if problem is not None:
                problems.append(f"{format.name} {number} ({how}): {problem}")
                if out is not None:
                    out.mkdir(parents=True, exist_ok=True)
                    (out / f"{seed}-{number}.{format.suffix}").write_bytes(content)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        logging.disable(logging.NOTSET)
    return counts, problems


def main() -> None:
    from measure import print_table, write_record

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format")
    parser.add_argument("--out", type=Path, default=Path("runs/differential"))
    parser.add_argument(
        "--record", action="store_true", help="store the counts in benchmarks/records/differential.json"
    )
    given = parser.parse_args()
    begin = time.monotonic()
    counts, problems = compare(given.files, given.seed, given.format, given.out)
    minutes = (time.monotonic() - begin) / 60
    print_table([{"format": name, "files": count} for name, count in counts.items()])
    print(f"{given.files:,} files in {minutes:.1f} min, seed {given.seed}: {len(problems)} disagreements")
    for problem in problems:
        print(f"- {problem}"[:300])
    if given.record:
        facts = {"seed": given.seed, "minutes": round(minutes, 1), "files": counts, "disagreements": len(problems)}
        write_record("differential", facts)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
