"""Vectors from and to the formats of other programs: numpy, the NELL-One release, word2vec text, the projector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fewlink.base.errors import FewlinkError, InputError
from fewlink.base.storage import read_json, write_bytes
from fewlink.embeddings.interactions import interaction
from fewlink.embeddings.table import Embeddings

SHOWN = 5  # missing names that an error lists


def with_inverses(entities: Tensor, relations: Tensor, model: str, norm: int = 2) -> Embeddings:
    """A table from R forward relation rows (R, w): inverse rows are filled so that both directions score alike."""
    rule = interaction(model, norm)
    rule.check(entities, relations)
    return Embeddings(entities, torch.cat([relations, rule.inverse(relations)]), model, norm)


def pick(ids: Mapping[str, int], names: Sequence[str], what: str, source: Path) -> Tensor:
    """The row of each name, (n,), or an error with the first names that are missing."""
    missing = [name for name in names if name not in ids]
    if missing:
        shown = ", ".join(missing[:SHOWN])
        raise InputError(source, f"has no {what} for {len(missing)} of {len(names)} names, the first: {shown}")
    return torch.tensor([ids[name] for name in names], dtype=torch.long)


def from_numpy(entities: Path, relations: Path, model: str, *, norm: int = 2, inverses: bool = False) -> Embeddings:
    """Vectors from two `.npy` files (E, d) and (R, w) in the graph's order.

    With `inverses` the relation file already holds (2R, w), the inverse rows after the forward ones.
    """
    vectors, kinds = torch.from_numpy(_load_npy(entities)), torch.from_numpy(_load_npy(relations))
    return Embeddings(vectors, kinds, model, norm) if inverses else with_inverses(vectors, kinds, model, norm)


def to_numpy(embeddings: Embeddings, entities: Path, relations: Path) -> None:
    """Two `.npy` files: entities (E, d) and relations (2R, w)."""
    for path, table in ((entities, embeddings.entities), (relations, embeddings.relations)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.save(file, table.cpu().numpy(), allow_pickle=False)


def from_nell_one(
    folder: Path, entity_names: Sequence[str], relation_names: Sequence[str], model: str = "complex", *, norm: int = 2
) -> Embeddings:
    """The text vectors of the NELL-One release, re-ordered to the given names.

    The folder holds `entity2vec.NAME` and `relation2vec.NAME` (a vector per line, NAME as in ComplEx or TransE) and
    the JSON objects `ent2ids` and `relation2ids`, in which the inverse of a relation carries the suffix `_inv`.
    """
    name = type(interaction(model)).__name__
    tables, ids = [], []
    for stem, index in (("entity2vec", "ent2ids"), ("relation2vec", "relation2ids")):
        tables.append(_read_vectors(folder / f"{stem}.{name}"))
        ids.append(_read_ids(folder / index, len(tables[-1])))
    entities = tables[0][pick(ids[0], entity_names, "vector", folder / "ent2ids")]
    forward = tables[1][pick(ids[1], relation_names, "vector", folder / "relation2ids")]
    backward_names = [f"{relation}_inv" for relation in relation_names]
    if all(relation in ids[1] for relation in backward_names):
        backward = tables[1][pick(ids[1], backward_names, "vector", folder / "relation2ids")]
        return Embeddings(entities, torch.cat([forward, backward]), model, norm)
    return with_inverses(entities, forward, model, norm)


def to_word2vec(path: Path, names: Sequence[str], vectors: Tensor) -> None:
    """word2vec text: `count dim`, then a name and its vector per line; white space in a name becomes `_`."""
    _check_names(names, vectors)
    lines = (" ".join(["_".join(name.split()), *row]) for name, row in zip(names, _texts(vectors), strict=True))
    _write_lines(path, [f"{len(vectors)} {vectors.shape[1]}", *lines])


def to_projector(folder: Path, names: Sequence[str], vectors: Tensor) -> None:
    """`tensors.tsv` and `metadata.tsv` for the TensorBoard embedding projector."""
    _check_names(names, vectors)
    _write_lines(folder / "tensors.tsv", ("\t".join(row) for row in _texts(vectors)))
    _write_lines(folder / "metadata.tsv", (" ".join(name.split()) for name in names))


def _load_npy(path: Path) -> np.ndarray:
    try:
        array: np.ndarray = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(path, "does not exist") from None
    except (OSError, ValueError) as error:
        raise InputError(path, f"is not an array of numbers ({error})") from None
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        raise InputError(path, f"holds {array.dtype} of shape {array.shape}: expected real vectors, one per row")
    return np.ascontiguousarray(array, dtype=np.float32)


def _read_vectors(path: Path) -> Tensor:
    """White-space separated vectors, one per line, to (n, d)."""
    if not path.is_file():
        raise InputError(path, "does not exist")
    rows: list[np.ndarray] = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = np.array(line.split(), dtype=np.float32)
            except ValueError as error:
                raise InputError(path, f"is not a vector ({error})", number) from None
            if rows and len(row) != len(rows[0]):
                raise InputError(path, f"has {len(row)} numbers, the lines before have {len(rows[0])}", number)
            rows.append(row)
    if not rows:
        raise InputError(path, "holds no vectors")
    return torch.from_numpy(np.stack(rows))


def _read_ids(path: Path, rows: int) -> dict[str, int]:
    ids = read_json(path)
    if not isinstance(ids, dict) or not all(type(i) is int and 0 <= i < rows for i in ids.values()):
        raise InputError(path, f"is not an object from names to rows 0 to {rows - 1}, the vectors there are")
    return ids


def _check_names(names: Sequence[str], vectors: Tensor) -> None:
    if len(names) != len(vectors):
        raise FewlinkError(f"{len(names)} names are given for {len(vectors)} vectors")


def _texts(vectors: Tensor) -> Iterable[list[str]]:
    """Each row as the shortest decimal texts that give back the same float32 numbers."""
    for row in vectors.detach().cpu().to(torch.float32).numpy():
        yield [np.format_float_positional(x, unique=True, trim="0") for x in row]


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    write_bytes(path, ("\n".join(lines) + "\n").encode())
