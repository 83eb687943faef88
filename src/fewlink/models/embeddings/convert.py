"""Importing and exporting vectors: numpy arrays, text files of the NELL-One release, and PyKEEN's state dicts."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from fewlink.core.errors import InputError, describe, reading
from fewlink.core.files import read_json, write_bytes
from fewlink.models.embeddings.interactions import INTERACTIONS, interaction
from fewlink.models.embeddings.table import Embeddings

MAX_LISTED_NAMES = 5  # in an error about missing names
PYKEEN_ENTITIES = "entity_representations.0._embeddings.weight"
PYKEEN_RELATIONS = "relation_representations.0._embeddings.weight"


def with_inverses(entities: Tensor, relations: Tensor, model: str, norm: int = 2) -> Embeddings:
    """Make a table from R forward relation rows (R, w), and inverse rows that give both directions equal scores."""
    rule = interaction(model, norm)
    rule.check(entities, relations)
    return Embeddings(entities, torch.cat([relations, rule.inverse(relations)]), model, norm)


def pick(ids: Mapping[str, int], names: Sequence[str], what: str, source: Path) -> Tensor:
    """The rows (n,) of names. Raise if one is missing, listing the first."""
    missing = [name for name in names if name not in ids]
    if missing:
        shown = ", ".join(missing[:MAX_LISTED_NAMES])
        raise InputError(source, f"has no {what} for {len(missing)} of {len(names)} names, the first: {shown}")
    return torch.tensor([ids[name] for name in names], dtype=torch.long)


def from_numpy(
    entities: Path,
    relations: Path,
    model: str,
    *,
    norm: int = 2,
    inverses: bool = False,
    entity_names: Sequence[str] | None = None,
    relation_names: Sequence[str] | None = None,
) -> Embeddings:
    """Read vectors from two `.npy` files (E, d) and (R, w) in the graph's order.

    With `inverses`, the relation file has shape (2R, w), the inverse rows after the forward ones. The names serve for
    error messages and for checking the number of rows.
    """
    tables = torch.from_numpy(_load_npy(entities)), torch.from_numpy(_load_npy(relations))
    for path, what, table, names in (
        (entities, "entities", tables[0], entity_names),
        (relations, "relations", tables[1], relation_names),
    ):
        copies = 2 if inverses and what == "relations" else 1
        if names is not None and len(table) != copies * len(names):
            raise InputError(path, f"has {len(table)} rows, but the graph has {len(names)} {what}")
        check_finite(table, what, names, path)
    return Embeddings(*tables, model, norm) if inverses else with_inverses(*tables, model, norm)


def check_finite(table: Tensor, what: str, names: Sequence[str] | None, source: Path) -> None:
    """Raise if a table (n, d) has a number that is not finite, naming the first such row."""
    bad = (~torch.isfinite(table)).flatten(1).any(1).nonzero().flatten().tolist()
    if not bad:
        return
    value = table[bad[0]][~torch.isfinite(table[bad[0]])][0].item()
    name = f"'{names[bad[0] % len(names)]}'" if names else f"row {bad[0]}"
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    problem = f"has the value {value} in the vector of {name}{more} ({what})"
    raise InputError(source, f"{problem}: remove or retrain vectors that are not finite, then import again")


def to_numpy(embeddings: Embeddings, entities: Path, relations: Path) -> None:
    """Write two `.npy` files: entities (E, d) and relations (2R, w)."""
    for path, table in ((entities, embeddings.entities), (relations, embeddings.relations)):
        buffer = io.BytesIO()
        np.save(buffer, table.cpu().numpy(), allow_pickle=False)
        write_bytes(path, buffer.getvalue())


def from_nell_one(
    folder: Path, entity_names: Sequence[str], relation_names: Sequence[str], model: str = "complex", *, norm: int = 2
) -> Embeddings:
    """Read the text vectors of the NELL-One release, in the order of the names.

    The folder has `entity2vec.NAME` and `relation2vec.NAME` (a vector per line, NAME as in ComplEx or TransE) and
    the JSON objects `ent2ids` and `relation2ids`, in which the inverse of a relation has the suffix `_inv`.
    """
    name = type(interaction(model)).__name__
    tables = []
    ids = []
    for stem, index in (("entity2vec", "ent2ids"), ("relation2vec", "relation2ids")):
        tables.append(_read_vectors(folder / f"{stem}.{name}"))
        ids.append(_read_ids(folder / index, len(tables[-1])))
    entities = tables[0][pick(ids[0], entity_names, "vector", folder / "ent2ids")]
    check_finite(entities, "entities", entity_names, folder / f"entity2vec.{name}")
    forward = tables[1][pick(ids[1], relation_names, "vector", folder / "relation2ids")]
    check_finite(forward, "relations", relation_names, folder / f"relation2vec.{name}")
    backward_names = [f"{relation}_inv" for relation in relation_names]
    if all(relation in ids[1] for relation in backward_names):
        backward = tables[1][pick(ids[1], backward_names, "vector", folder / "relation2ids")]
        check_finite(backward, "relations", backward_names, folder / f"relation2vec.{name}")
        return Embeddings(entities, torch.cat([forward, backward]), model, norm)
    return with_inverses(entities, forward, model, norm)


def from_pykeen(
    folder: Path, entity_names: Sequence[str], relation_names: Sequence[str], model: str, *, norm: int | None = None
) -> Embeddings:
    """Read a trained PyKEEN RESCAL, TransE, DistMult or ComplEx model, in the order of the names.

    The folder is the one that PyKEEN's `save_to_directory` wrote, plus the model's state dict as a `.pt` or
    `.safetensors` file: `torch.save(result.model.state_dict(), folder / "model.pt")`. If PyKEEN trained no inverse
    relations, their rows are made from the forward ones so that both directions have equal scores.
    """
    norm = norm or (1 if model == "transe" else 2)  # PyKEEN's TransE has p = 1 by default
    rule = interaction(model, norm)
    file = _state_dict_file(folder)
    entity_ids = _pykeen_ids(folder / "training_triples" / "entity_to_id.tsv.gz")
    relation_ids = _pykeen_ids(folder / "training_triples" / "relation_to_id.tsv.gz")
    weights = _read_state_dict(file)
    tables = {}
    for key, allowed in (
        (PYKEEN_ENTITIES, (len(entity_ids),)),
        (PYKEEN_RELATIONS, (len(relation_ids), 2 * len(relation_ids))),
    ):
        if key not in weights:
            raise InputError(file, f"has no {key}: give a plain PyKEEN model ({', '.join(INTERACTIONS)})")
        table = weights[key].float().flatten(1)
        if len(table) not in allowed:
            raise InputError(file, f"has {len(table)} rows in {key}, but {folder} has {allowed[0]} names")
        tables[key] = _real_then_imaginary(table) if model == "complex" else table
    entities = tables[PYKEEN_ENTITIES][pick(entity_ids, entity_names, "vector", folder)]
    check_finite(entities, "entities", entity_names, file)
    relations = tables[PYKEEN_RELATIONS]
    check_finite(relations, "relations", None, file)
    forward = pick(relation_ids, relation_names, "vector", folder)
    rule.check(entities, relations)
    if len(relations) == len(relation_ids):
        return with_inverses(entities, relations[forward], model, norm)
    both = torch.cat([2 * forward, 2 * forward + 1])  # PyKEEN's ids of relation r and of its inverse
    return Embeddings(entities, relations[both], model, norm)


def _load_npy(path: Path) -> np.ndarray:
    try:
        array: np.ndarray = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(path, "does not exist") from None
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except Exception as error:  # a damaged file can fail in any way
        raise InputError(path, f"is not an array of numbers ({describe(error)})") from None
    if not isinstance(array, np.ndarray):
        raise InputError(path, "is an archive of arrays: give a .npy file")
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        raise InputError(path, f"has {array.dtype} of shape {array.shape}: give real vectors, one per row")
    return np.ascontiguousarray(array, dtype=np.float32)


def _read_vectors(path: Path) -> Tensor:
    """Read vectors (n, d) from text, one per line, separated by white space."""
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
                raise InputError(path, f"has {len(row)} numbers, but the lines before have {len(rows[0])}", number)
            rows.append(row)
    if not rows:
        raise InputError(path, "contains no vectors")
    return torch.from_numpy(np.stack(rows))


def _read_ids(path: Path, rows: int) -> dict[str, int]:
    ids = read_json(path)
    if not isinstance(ids, dict) or not all(type(i) is int and 0 <= i < rows for i in ids.values()):
        raise InputError(path, f"is not a JSON object that maps names to rows from 0 to {rows - 1}")
    return ids


def _real_then_imaginary(rows: Tensor) -> Tensor:
    """Rearrange rows (n, d) of (re, im) pairs as halves [re | im]."""
    return torch.cat([rows[:, 0::2], rows[:, 1::2]], dim=1)


def _state_dict_file(folder: Path) -> Path:
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.pt")])
    if len(files) != 1:
        names = ", ".join(file.name for file in files)
        problem = f"has several state dicts ({names})" if files else "has no state dict"
        raise InputError(folder, f'{problem}: save one with torch.save(model.state_dict(), folder / "model.pt")')
    return files[0]


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except Exception as error:  # torch.load raises many types
        problem = f"is not a state dict of tensors ({describe(error)}): save model.state_dict() alone"
        raise InputError(path, problem) from None
    if not isinstance(state, dict):
        raise InputError(path, "is not a state dict of tensors: save model.state_dict() alone")
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def _pykeen_ids(path: Path) -> dict[str, int]:
    """Read PyKEEN's tab-separated table of ids and labels, with a header line, as ids by label."""
    if not path.is_file():
        raise InputError(path, "does not exist")
    ids: dict[str, int] = {}
    remedy = "save the model again with PyKEEN"
    with reading(path, remedy), gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        next(file, None)
        for number, line in enumerate(file, 2):
            left, tab, label = line.rstrip("\n").partition("\t")
            if not tab or not left.isdigit():
                raise InputError(path, "needs an id, a tab and a label", number)
            ids[label] = int(left)
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(path, "does not have the ids 0, 1, 2, …")
    return ids
