"""Literals: numbers, dates, truth values and quoted text as tails, which are values and not entities."""

from __future__ import annotations

import re

LITERAL = "|".join(  # for Python and for DuckDB, ignoring case
    [
        r"[+-]?(0|[1-9]\d*|[1-9]\d{0,2}([., ]\d{3})+)([.,]\d+)?([eE][+-]?\d+)? ?%?",  # a number; 0042 is an id
        r"\d{4}-\d{1,2}(-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)? ?(Z|[+-]\d{2}:?\d{2})?)?)?",  # a date
        r"\d{1,2}(\.\d{1,2}\.|/\d{1,2}/|-\d{1,2}-)\d{2,4}",
        r"\d{4}/\d{1,2}/\d{1,2}",
        r"\d{1,2}:\d{2}(:\d{2})?",
        "true|false|yes|no",
        r'".*"(@[\w-]+|\^\^\S+)',  # as in RDF
    ]
)
PATTERN = re.compile(LITERAL, re.IGNORECASE | re.DOTALL | re.ASCII)
MIN_TRIPLES = 3  # of a relation of literals
MIN_SHARE = 0.95  # of its tails


def is_literal(name: str) -> bool:
    """Whether a name is written as a number, date, time, truth value or RDF literal."""
    return PATTERN.fullmatch(name) is not None
