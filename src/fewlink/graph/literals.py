"""Literals: numbers, dates, truth values and quoted text as tails, which are values and not entities."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

LITERAL = re.compile(
    rb"""[+-]?(0|[1-9]\d*|[1-9]\d{0,2}([.,\ ]\d{3})+)([.,]\d+)?([eE][+-]?\d+)?\ ?%?  # a number; 0042 is an id
    |\d{4}-\d{1,2}(-\d{1,2}([T\ ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\ ?(Z|[+-]\d{2}:?\d{2})?)?)?  # a date
    |\d{1,2}(?P<between>[./-])\d{1,2}(?P=between)\d{2,4} |\d{4}/\d{1,2}/\d{1,2} |\d{1,2}:\d{2}(:\d{2})?
    |true|false|yes|no
    |".*"(@[\w-]+|\^\^\S+)  # as in RDF""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
MIN_TRIPLES = 3  # of a relation of literals
MIN_SHARE = 0.95  # of its tails


def is_literal(name: str | bytes) -> bool:
    """Whether a name is written as a number, date, time, truth value or RDF literal."""
    return LITERAL.fullmatch(name.encode() if isinstance(name, str) else name) is not None


def literal_triples(names: Sequence[bytes], relation_count: int, triples: np.ndarray) -> np.ndarray:
    """Which triples (n, 3) of ids have a literal as tail: (n,) bool.

    Only relations with at least three triples count whose tails are nearly all literals, none of which is the head of a
    triple, and whose heads are no literals: numbers may be ids of entities. A relation whose first and last tail are
    no literals is not examined further.
    """
    heads, relations, tails = triples.T
    found = np.zeros(len(triples), bool)
    first, last = (np.full(relation_count, -1) for _ in range(2))
    last[relations] = np.arange(len(triples))
    first[relations[::-1]] = np.arange(len(triples))[::-1]
    is_head: np.ndarray | None = None
    for relation in np.flatnonzero(first >= 0):
        ends = first[relation], last[relation]
        if not any(is_literal(names[tails[end]]) for end in ends) or is_literal(names[heads[ends[0]]]):
            continue
        if is_head is None:
            is_head = np.zeros(len(names), bool)
            is_head[heads] = True
        rows = np.flatnonzero(relations == relation)
        values, inverse = np.unique(tails[rows], return_inverse=True)
        literal = np.array([is_literal(names[value]) for value in values.tolist()])
        kept = literal[inverse]
        if len(rows) < MIN_TRIPLES or kept.mean() < MIN_SHARE or is_head[values[literal]].any():
            continue
        if not any(is_literal(names[head]) for head in np.unique(heads[rows]).tolist()):
            found[rows[kept]] = True
    return found
