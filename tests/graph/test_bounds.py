"""Files made to fill the memory or to crash a parser are errors of one line, soon and with exit code 2."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from fewlink.core import machine

pytest.importorskip("pyoxigraph")
DEPTH = 100_000
SECONDS = 60  # for all of a command, on a busy machine
XML = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="x:">'
DEEP = {
    "g.jsonld": '{"@id":"x:a","x:r":' * DEPTH + '"b"' + "}" * DEPTH,
    "g.srj": '{"head":{"vars":["h"]},"results":{"bindings":[{"h":' + '{"type":"triple","value":{"subject":' * DEPTH,
    "g.rdf": XML + "<rdf:Description><x:r>" * DEPTH,
    "g.srx": '<sparql xmlns="http://www.w3.org/2005/sparql-results#">' + "<triple><subject>" * DEPTH,
    "g.ttl": "<x:a> <x:r> " + "<<( <x:a> <x:b> " * DEPTH + "<x:c>" + ")>>" * DEPTH + " .",
    "g.nt": "<x:a> <x:r> " + "<<( <x:a> <x:b> " * DEPTH + "<x:c>" + ")>>" * DEPTH + " .",
    "g.json": '{"type":"bundle","objects":[' + "[" * DEPTH + "]" * DEPTH + "]}",
    "g.jsonl": "[" * DEPTH + "]" * DEPTH,
}


def refused(file: Path) -> str:
    command = [sys.executable, "-m", "fewlink", "data", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert file.name in line
    return line


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(DEEP[name])
    refused(tmp_path / name)


@pytest.mark.parametrize("name", ["g.json", "g.ttl", "stix.json"])
def test_a_small_file_that_unpacks_to_more_than_the_memory_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fewlink.core.errors import InputError
    from fewlink.graph import compile_graph

    monkeypatch.setattr(machine, "free_bytes", lambda device="cpu": 1 << 20)
    begin, row = {
        "g.json": (b'[["a","r","b"]', b',["a","r","b"]'),
        "g.ttl": (b"", b'<x:a> <x:r> "' + b"text " * 1000 + b'" .\n'),
        "stix.json": (b'{"type":"bundle","objects":[', b"[],"),
    }[name]
    file = tmp_path / f"{name}.gz"
    with gzip.open(file, "wb", 1) as packed:
        packed.write(begin)
        for _ in range(80):
            packed.write(row * ((1 << 20) // len(row)))
    with pytest.raises(InputError, match=r"too little memory"):
        compile_graph(file)


def test_entities_of_xml_that_stand_for_gigabytes_are_refused(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))
    text = f'<!DOCTYPE r [<!ENTITY a0 "aaaaaaaaaa">{entities}]>{XML}<rdf:Description rdf:about="x:&a11;"/></rdf:RDF>'
    (tmp_path / "g.rdf").write_text(text)
    refused(tmp_path / "g.rdf")


@pytest.mark.parametrize("name", ["g.nt", "g.tsv"])
def test_an_endless_line_is_refused(name: str, tmp_path: Path) -> None:
    good = b"<x:a> <x:r> <x:b> .\n" if name == "g.nt" else b"a\tr\tb\n"
    (tmp_path / name).write_bytes(good + b"a" * (70 << 20) + b"\n" + good)
    refused(tmp_path / name)
