"""Vectors from and to other formats: numpy, NELL-One text, PyKEEN folders, word2vec text, TensorBoard's projector.

PyKEEN's `PipelineResult.save_to_directory` writes the model as a pickle, and a pickle can call any function. It is read
here without running code: tensors are rebuilt, and every other class or function is replaced by an inert stand-in.
"""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from fewlink.core.errors import FewlinkError, InputError, choose, describe, reading
from fewlink.core.storage import read_json, write_bytes
from fewlink.embeddings.interactions import INTERACTIONS, interaction
from fewlink.embeddings.table import Embeddings

RETRAIN = "save the model again with PyKEEN"
SHOWN = 5  # missing names in an error
ENTITIES = "entity_representations.0._embeddings.weight"
RELATIONS = "relation_representations.0._embeddings.weight"
STORAGES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "BoolStorage": torch.bool,
}


def with_inverses(entities: Tensor, relations: Tensor, model: str, norm: int = 2) -> Embeddings:
    """A table from R forward relation rows (R, w): inverse rows are added so that both directions have equal scores."""
    rule = interaction(model, norm)
    rule.check(entities, relations)
    return Embeddings(entities, torch.cat([relations, rule.inverse(relations)]), model, norm)


def pick(ids: Mapping[str, int], names: Sequence[str], what: str, source: Path) -> Tensor:
    """The row of each name, (n,); raises with the first missing names."""
    missing = [name for name in names if name not in ids]
    if missing:
        shown = ", ".join(missing[:SHOWN])
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
    """Vectors from two `.npy` files (E, d) and (R, w) in the graph's order.

    With `inverses` the relation file already has (2R, w), the inverse rows after the forward ones. The names are for
    errors and for checking the number of rows.
    """
    tables = torch.from_numpy(_load_npy(entities)), torch.from_numpy(_load_npy(relations))
    for path, what, table, names in (
        (entities, "entities", tables[0], entity_names),
        (relations, "relations", tables[1], relation_names),
    ):
        expected = len(names) * (2 if inverses and what == "relations" else 1) if names is not None else len(table)
        if len(table) != expected:
            raise InputError(path, f"has {len(table)} rows, but the graph has {len(names or ())} {what}")
        check_finite(table, what, names, path)
    return Embeddings(*tables, model, norm) if inverses else with_inverses(*tables, model, norm)


def check_finite(table: Tensor, what: str, names: Sequence[str] | None, source: Path) -> None:
    """Raise if a vector of a table (n, d) has a number that is not finite; names the first such row."""
    bad = (~torch.isfinite(table)).flatten(1).any(1).nonzero().flatten().tolist()
    if not bad:
        return
    value = table[bad[0]][~torch.isfinite(table[bad[0]])][0].item()
    name = f"'{names[bad[0] % len(names)]}'" if names else f"row {bad[0]}"
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    problem = f"has the value {value} in the vector of {name}{more} ({what}): vectors need finite numbers"
    raise InputError(source, f"{problem}; remove or retrain these, then import again")


def to_numpy(embeddings: Embeddings, entities: Path, relations: Path) -> None:
    """Two `.npy` files: entities (E, d) and relations (2R, w)."""
    for path, table in ((entities, embeddings.entities), (relations, embeddings.relations)):
        buffer = io.BytesIO()
        np.save(buffer, table.cpu().numpy(), allow_pickle=False)
        write_bytes(path, buffer.getvalue())


def from_nell_one(
    folder: Path, entity_names: Sequence[str], relation_names: Sequence[str], model: str = "complex", *, norm: int = 2
) -> Embeddings:
    """The text vectors of the NELL-One release, in the order of the given names.

    The folder has `entity2vec.NAME` and `relation2vec.NAME` (a vector per line, NAME as in ComplEx or TransE) and
    the JSON objects `ent2ids` and `relation2ids`, in which the inverse of a relation has the suffix `_inv`.
    """
    name = type(interaction(model)).__name__
    tables, ids = [], []
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


def pykeen_names(folder: Path) -> tuple[list[str], list[str]]:
    """The entity and relation names of a PyKEEN folder, in the order of their ids."""
    entities, relations = _ids(Path(folder))
    return sorted(entities, key=entities.__getitem__), sorted(relations, key=relations.__getitem__)


def from_pykeen(
    folder: Path,
    entity_names: Sequence[str] | None = None,
    relation_names: Sequence[str] | None = None,
    *,
    model: str | None = None,
    norm: int | None = None,
) -> Embeddings:
    """A trained PyKEEN RESCAL, TransE, DistMult or ComplEx, in the order of the given names (default: the folder's).

    The weights are the folder's only `.safetensors` or `.pt` state dict, for which `model` (and `norm` for TransE)
    must be given, or else its `trained_model.pkl`, which contains both. If PyKEEN trained no inverse relations, their
    rows are made from the forward ones so that both directions have equal scores.
    """
    folder = Path(folder)
    source, weights, stored_model, stored_norm = _read_weights(folder)
    chosen = model or stored_model
    if chosen is None:
        raise InputError(source, f"does not name its model: give one of {', '.join(INTERACTIONS)}")
    if stored_model is not None and chosen != stored_model:
        raise InputError(source, f"contains a {stored_model} model, not {chosen}")
    if norm is not None and stored_norm is not None and norm != stored_norm:
        raise InputError(source, f"contains a TransE model with norm {stored_norm}, not {norm}")
    p = norm or stored_norm or (1 if chosen == "transe" else 2)  # PyKEEN's TransE has p = 1 by default
    rule = interaction(chosen, p)
    ids = _ids(folder)
    tables = {}
    for key in (ENTITIES, RELATIONS):
        if key not in weights:
            raise InputError(source, f"has no {key}: only plain PyKEEN {', '.join(INTERACTIONS)} models can be read")
        with reading(source, RETRAIN):
            table = weights[key].float().flatten(1)
            tables[key] = _halves(table) if rule.name == "complex" else table
    relations = len(ids[1])
    expected = {ENTITIES: (len(ids[0]),), RELATIONS: (relations, 2 * relations)}
    for key, allowed in expected.items():
        if len(tables[key]) not in allowed:
            raise InputError(source, f"has {len(tables[key])} rows in {key}, but the folder has {allowed[0]} names")
    names = pykeen_names(folder)
    entities = tables[ENTITIES][pick(ids[0], entity_names or names[0], "vector", folder)]
    check_finite(entities, "entities", entity_names or names[0], source)
    forward = pick(ids[1], relation_names or names[1], "vector", folder)
    check_finite(tables[RELATIONS][: 2 * relations], "relations", None, source)
    if len(tables[RELATIONS]) == relations:
        return with_inverses(entities, tables[RELATIONS][forward], chosen, p)
    both = torch.cat([2 * forward, 2 * forward + 1])  # PyKEEN's ids of relation r and of its inverse
    return Embeddings(entities, tables[RELATIONS][both], chosen, p)


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
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except Exception as error:  # a damaged file can fail in any way
        raise InputError(path, f"is not an array of numbers ({describe(error)})") from None
    if not isinstance(array, np.ndarray):
        raise InputError(path, "is an archive of arrays: give a .npy file, which has one array")
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        raise InputError(path, f"contains {array.dtype} of shape {array.shape}: expected real vectors, one per row")
    return np.ascontiguousarray(array, dtype=np.float32)


def _read_vectors(path: Path) -> Tensor:
    """Vectors (n, d) from text, one per line, separated by white space."""
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
        raise InputError(path, "contains no vectors")
    return torch.from_numpy(np.stack(rows))


def _read_ids(path: Path, rows: int) -> dict[str, int]:
    ids = read_json(path)
    if not isinstance(ids, dict) or not all(type(i) is int and 0 <= i < rows for i in ids.values()):
        raise InputError(path, f"is not an object from names to rows: it must have numbers from 0 to {rows - 1}")
    return ids


def _check_names(names: Sequence[str], vectors: Tensor) -> None:
    if len(names) != len(vectors):
        raise FewlinkError(f"there are {len(names)} names for {len(vectors)} vectors")


def _texts(vectors: Tensor) -> Iterable[list[str]]:
    """Each row as the shortest decimal texts that are read back as the same float32 numbers."""
    for row in vectors.detach().cpu().to(torch.float32).numpy():
        yield [np.format_float_positional(x, unique=True, trim="0") for x in row]


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def _halves(rows: Tensor) -> Tensor:
    """Rows (n, d) of (re, im) pairs as [re | im] halves (n, d)."""
    return torch.cat([rows[:, 0::2], rows[:, 1::2]], dim=1)


def _read_weights(folder: Path) -> tuple[Path, dict[str, Tensor], str | None, int | None]:
    """The file, its tensors by name, and the model and norm if the file contains them."""
    dicts = sorted([*folder.glob("*.safetensors"), *folder.glob("*.pt")])
    if len(dicts) > 1:
        raise InputError(folder, f"has several state dicts ({', '.join(f.name for f in dicts)}): keep one")
    if dicts:
        return dicts[0], _read_state_dict(dicts[0]), None, None
    path = folder / "trained_model.pkl"
    if not path.is_file():
        raise InputError(folder, "has no trained_model.pkl, .pt or .safetensors file")
    module = read_inert(path)
    if not isinstance(module, Inert):
        raise InputError(path, "contains no PyKEEN model")
    kind = type(module).__name__
    name = kind.lower()
    if name not in INTERACTIONS:
        raise InputError(path, f"contains a {kind}: only {', '.join(INTERACTIONS)} can be read")
    rule = vars(module).get("_modules", {}).get("interaction")
    facts = vars(rule) if isinstance(rule, Inert) else {}
    p = facts.get("p")
    if name == "transe" and (facts.get("power_norm") or p not in (1, 2)):
        raise InputError(path, "is a TransE with a distance other than the L1 or L2 norm")
    return path, dict(_tensors(module)), name, int(p) if p in (1, 2) else None


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except Exception as error:  # torch.load raises errors of many kinds
        problem = f"is not a state dict of tensors ({describe(error)}): save model.state_dict() alone"
        raise InputError(path, problem) from None
    if not isinstance(state, dict):
        raise InputError(path, "is not a state dict of tensors: save model.state_dict() alone")
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def _ids(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The ids of entities and of relations by name."""
    triples = folder / "training_triples"
    return _read_labels(triples / "entity_to_id.tsv.gz"), _read_labels(triples / "relation_to_id.tsv.gz")


def _read_labels(path: Path) -> dict[str, int]:
    """PyKEEN's `id<TAB>label` table with a header line."""
    if not path.is_file():
        raise InputError(path, "does not exist")
    ids: dict[str, int] = {}
    with reading(path, RETRAIN), gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            left, tab, label = line.rstrip("\n").partition("\t")
            if number == 1:
                continue
            if not tab or not left.isdigit():
                raise InputError(path, "is not an id, a tab and a label", number)
            ids[label] = int(left)
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(path, "does not have the ids 0, 1, 2, …")
    return ids


class Inert:
    """Replaces a class or function of a pickle: accepts any arguments, keeps its state and does nothing."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update({key: value for key, value in state.items() if isinstance(key, str)})

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def append(self, value: Any) -> None: ...

    def extend(self, values: Any) -> None: ...

    def add(self, value: Any) -> None: ...


def _rebuild_tensor(storage: Tensor, offset: int, size: Any, stride: Any, *rest: Any) -> Tensor:
    return torch.as_strided(storage, tuple(size), tuple(stride), offset).clone()


class InertUnpickler(pickle.Unpickler):
    """Rebuilds dictionaries and tensors; every other global of the pickle becomes a class derived from `Inert`."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(archive.open(f"{root}data.pkl"))
        self.archive, self.root = archive, root

    def find_class(self, module: str, name: str) -> Any:
        known = {  # new objects for each pickle, because it could set attributes on them
            ("collections", "OrderedDict"): dict,
            ("torch._utils", "_rebuild_tensor_v2"): lambda *args: _rebuild_tensor(*args),
            ("torch._utils", "_rebuild_parameter"): lambda data, *rest: data,
        }
        return known.get((module, name)) or type(name, (Inert,), {"__module__": "inert"})

    def persistent_load(self, pid: Any) -> Tensor:
        """A storage of the archive as a flat tensor."""
        _, kind, key, _, count = pid
        dtype = choose("tensor storage", kind.__name__, STORAGES)
        content = bytearray(self.archive.read(f"{self.root}data/{key}"))
        return torch.frombuffer(content, dtype=dtype, count=count) if count else torch.empty(0, dtype=dtype)


def read_inert(path: Path) -> Any:
    """The content of a file written by `torch.save`, with inert stand-ins for all but dictionaries and tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            root = next((n for n in archive.namelist() if n.endswith("/data.pkl")), "")[: -len("data.pkl")]
            return InertUnpickler(archive, root).load()
    except Exception as error:  # a damaged pickle can fail in any way
        raise InputError(path, f"is not a model saved by PyKEEN, or is damaged ({error})") from None


def _tensors(module: Inert, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The parameters of a pickled torch module and its parts, named as in its state dict."""
    parts = vars(module)
    for name, value in (parts.get("_parameters") or {}).items():
        if isinstance(value, Tensor):
            yield prefix + name, value
    for name, part in (parts.get("_modules") or {}).items():
        if isinstance(part, Inert):
            yield from _tensors(part, f"{prefix}{name}.")
