"""JSON lines and JSON arrays of triples: objects with a key for head, relation and tail, or lists of three."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any

from fewlink.core.errors import InputError, unique_keys
from fewlink.graph.columns import PLAIN, Layout, named_layout
from fewlink.graph.formats.json_text import JsonText, NotJson
from fewlink.graph.source import Peeked, Source, blocks_of, numbered_lines
from fewlink.graph.vocabulary import Block

JSON_LINE = re.compile(rb'\s*(\{\s*"[^"]*"\s*:|\[\s*[\[{"])')  # an object, or a list of text, lists or objects
JSON_ARRAY = re.compile(rb"\s*\[\s*[\[{]")  # a list of lists or objects


def read_json(source: Source, file: IO[bytes]) -> Iterator[Block]:
    """Read JSON lines, or one array of the same."""
    source.facts.format = "JSON lines"
    return blocks_of(source, _triples(source, _values(source, file)))


def _values(source: Source, file: IO[bytes]) -> Iterator[tuple[int | None, Any]]:
    """The values of lines with their numbers, or the elements of an array; a bad line is reported."""
    peeked = Peeked(file)
    if JSON_ARRAY.match(peeked.peek()):
        source.facts.format = "JSON"
        yield from _elements(source, peeked.as_file())
        return
    for line, text in numbered_lines(source, peeked.as_file()):
        try:
            value = json.loads(text.decode(), object_pairs_hook=unique_keys)  # bytes may have lone surrogates
        except (ValueError, RecursionError) as error:
            if line == 1 and text.strip() == b"{":
                problem = "is one JSON object: write one object with head, relation and tail on each line"
                raise InputError(source.path, problem) from None
            source.bad(f"is not valid JSON ({error})", line)
        else:
            yield line, value


def _elements(source: Source, file: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """The elements of an array, with the lines on which they end."""
    text = JsonText(file)
    try:
        for value in text.elements():
            yield text.line_number(), value
        text.end()
    except NotJson as error:
        source.bad(f"{error}, and nothing after it is read", error.line)


def _triples(source: Source, values: Iterator[tuple[int | None, Any]]) -> Iterator[tuple[int | None, list[bytes]]]:
    """The triples of objects, whose first one tells the keys, or of lists."""
    layout: Layout | None = None
    for line, value in values:
        if not isinstance(value, dict | list):
            source.bad("is neither a JSON object nor a list", line)
            continue
        if layout is None:
            layout = _layout(source, value)
            source.facts.add(layout)
        if isinstance(value, dict):
            cells = [value.get(name) for name in layout.names] if layout.names else list(value.values())
        else:
            cells = value
        if not layout.shortest <= len(cells) <= layout.width:
            source.bad(f"has {len(cells)} values instead of {layout.width}", line)
        elif any(isinstance(cells[place], dict | list) for place in layout.used if place < len(cells)):
            source.bad("has a list or an object where a name should be", line)
        else:
            yield from ((line, triple) for triple in layout.triples([_text(cell) for cell in cells]))


def _layout(source: Source, value: dict[str, Any] | list[Any]) -> Layout:
    columns = source.reading.columns
    if isinstance(value, dict):
        return named_layout(source.path, list(value), columns)
    return PLAIN if columns is None else columns.layout(source.path, len(value), ())


def _text(value: Any) -> bytes:
    """A value as text; null is empty."""
    if value is None:
        return b""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace")
