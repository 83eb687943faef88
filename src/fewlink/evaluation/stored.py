"""Results as lines of JSON: the base class of stored results, and writing, reading and checking their files."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from fewlink.core.errors import InputError, read_file, reading
from fewlink.core.files import read_json, with_sha256, without_sha256, write_bytes
from fewlink.core.recipes import PER_RUN_SETTINGS

REMEDY = "restore it from a copy, or remove it and repeat the evaluation"
COUNT = "lines"  # the key for the number of lines, in the first and last line of a file


class StoredResult(BaseModel):
    """The base class of all results in a `RecordStore`.

    `what` names the kind in messages; the names of its files end in `suffix`. `figures` are the fields that a repeated
    measurement must reproduce.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())
    what: ClassVar[str]
    suffix: ClassVar[str]
    figures: ClassVar[frozenset[str]]

    benchmark: str
    model: str

    @property
    @abstractmethod
    def key(self) -> tuple[Any, ...]:
        """Identifies the measurement; the lines of a file are sorted by it."""

    def same_figures(self, other: StoredResult) -> bool:
        """Whether two results of a measurement have the same figures."""
        return all(getattr(self, name) == getattr(other, name) for name in self.figures)

    def as_json(self) -> dict[str, Any]:
        """The content of the line, with its checksum."""
        return with_sha256(self.model_dump())


R = TypeVar("R", bound=StoredResult)


def without_per_run_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without those that each run chooses: seed and device."""
    return {name: value for name, value in settings.items() if name not in PER_RUN_SETTINGS}


def write_lines(path: Path, results: list[R]) -> None:
    """Write a file of results, each with its checksum.

    The first and last line also hold the number of lines, so that a reader notices lost lines. The checksum of a line
    does not cover that number, so that a user who removes lines by hand can remove the number too.
    """
    lines = [result.as_json() for result in results]
    lines[0][COUNT] = lines[-1][COUNT] = len(lines)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_bytes(path, text.encode(errors="backslashreplace"))  # escapes lone surrogates as JSON does


def read_result(kind: type[R], path: Path) -> R:
    """Read the result in a JSON file."""
    return _validated(kind, read_json(path), path)


def read_lines(kind: type[R], path: Path) -> dict[int, R]:
    """Read the results of a file, by line. Raise if one is damaged."""
    results: dict[int, R] = {}
    for number, result in each_line(kind, path):
        if isinstance(result, InputError):
            raise result
        results[number] = result
    return results


def each_line(kind: type[R], path: Path) -> Iterator[tuple[int, R | InputError]]:
    """Yield each line number with its result, or with the error of a damaged line or a wrong number of lines."""
    with reading(path, REMEDY):
        content = read_file(path)
        if not content.strip():
            raise InputError(path, f"is empty: {REMEDY}")
    first_lines: dict[tuple[Any, ...], int] = {}
    counts: dict[int, Any] = {}
    filled = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    for number, line in filled:
        try:
            value = json.loads(line)
            if isinstance(value, dict) and COUNT in value:
                counts[number] = value.pop(COUNT)
            result = _validated(kind, value, path, number)
            first = first_lines.setdefault(result.key, number)
            if first != number:
                raise InputError(path, f"repeats the measurement of line {first}: remove one of the lines", number)
            yield number, result
        except InputError as error:
            yield number, error
        except (ValueError, RecursionError) as error:
            problem = f"is not JSON ({getattr(error, 'msg', error)}): repair or remove the line"
            yield number, InputError(path, problem, number)
    for number, count in counts.items():
        if count != len(filled):
            problem = (
                f"states that the file has {count} lines, but it has {len(filled)}: restore it from a copy or, "
                f'if you added or removed lines yourself, remove "{COUNT}": {count} from this line'
            )
            yield number, InputError(path, problem, number)
            break


def _validated(kind: type[R], value: Any, path: Path, line: int | None = None) -> R:
    try:
        if isinstance(value, dict) and "sha256" in value:  # a user who changes a line by hand removes its checksum
            value = without_sha256(value, path, line, REMEDY)
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(path, f"is not {kind.what} ({field}: {first['msg']})", line) from None
