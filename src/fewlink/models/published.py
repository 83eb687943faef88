"""The models whose weights their authors publish, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fewlink.core.errors import InputError
from fewlink.models.trix.family import FAMILY as TRIX
from fewlink.models.ultra.family import FAMILY as ULTRA
from fewlink.models.ultra.family import PublishedFamily

PUBLISHED: dict[str, PublishedFamily[Any]] = {family.name: family for family in (ULTRA, TRIX)}


def model_of(file: Path) -> str:
    """The name of the model whose weights a file has."""
    errors = []
    for name, family in PUBLISHED.items():
        try:
            family.read(file)
            return name
        except InputError as error:
            errors.append(error)
    raise errors[0]
