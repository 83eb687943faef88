"""Names that differ only in case, accents, white space or punctuation between words: probably one entity."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable


def plain(name: str) -> str:
    """A name in lower case without accents, with single spaces in place of white space, underscores and hyphens."""
    text = name if name.isascii() else unicodedata.normalize("NFKD", name)
    text = "".join(letter for letter in text if not unicodedata.combining(letter)) if not text.isascii() else text
    return " ".join(re.split(r"[\s_\-]+", text.casefold())).strip()


def similar_names(names: Iterable[str]) -> list[list[int]]:
    """Groups of ids whose names are equal in plain form, in order of their first ids."""
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        groups.setdefault(plain(name), []).append(number)
    return [group for group in groups.values() if len(group) > 1]
