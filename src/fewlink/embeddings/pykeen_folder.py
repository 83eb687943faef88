"""Vectors from a PyKEEN model folder, read without running any code that the folder names.

`PipelineResult.save_to_directory` writes the model as a pickle. A pickle can name any function to call, so it is read
here by an unpickler that rebuilds tensors itself and puts an inert stand-in where any other class or function stands.
"""

from __future__ import annotations

import gzip
import pickle
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fewlink.base.errors import InputError
from fewlink.base.resolver import choose
from fewlink.embeddings.convert import pick, with_inverses
from fewlink.embeddings.interactions import INTERACTIONS, interaction
from fewlink.embeddings.table import Embeddings

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
    """A trained PyKEEN RESCAL, TransE, DistMult or ComplEx, re-ordered to the given names (by default its own order).

    The weights are the folder's only `.safetensors` or `.pt` state dict, for which `model` (and `norm` for TransE)
    must be given, or else its `trained_model.pkl`, which knows both. Where PyKEEN trained no inverse relations, their
    rows are made from the forward ones so that both directions score alike.
    """
    folder = Path(folder)
    source, weights, found, found_norm = _read_weights(folder)
    chosen = model or found
    if chosen is None:
        raise InputError(source, f"does not say its model: give one of {', '.join(INTERACTIONS)}")
    if found is not None and chosen != found:
        raise InputError(source, f"holds a model of kind {found}, and {chosen} is asked for")
    if norm is not None and found_norm is not None and norm != found_norm:
        raise InputError(source, f"holds a TransE with norm {found_norm}, and {norm} is asked for")
    p = norm or found_norm or (1 if chosen == "transe" else 2)  # PyKEEN's TransE has p = 1 unless told otherwise
    rule = interaction(chosen, p)
    ids = _ids(folder)
    tables = {}
    for key in (ENTITIES, RELATIONS):
        if key not in weights:
            raise InputError(source, f"has no {key}: only plain PyKEEN {', '.join(INTERACTIONS)} models can be read")
        tables[key] = _halves(weights[key].float()) if rule.name == "complex" else weights[key].float()
    relations = len(ids[1])
    expected = {ENTITIES: (len(ids[0]),), RELATIONS: (relations, 2 * relations)}
    for key, allowed in expected.items():
        if len(tables[key]) not in allowed:
            raise InputError(source, f"has {len(tables[key])} rows in {key}, and the folder names {allowed[0]}")
    own_entities, own_relations = pykeen_names(folder)
    rows = pick(ids[0], entity_names or own_entities, "vector", folder)
    kinds = pick(ids[1], relation_names or own_relations, "vector", folder)
    entities = tables[ENTITIES][rows]
    if len(tables[RELATIONS]) == relations:
        return with_inverses(entities, tables[RELATIONS][kinds], chosen, p)
    both = torch.cat([2 * kinds, 2 * kinds + 1])  # PyKEEN's numbers of relation r and of its inverse
    return Embeddings(entities, tables[RELATIONS][both], chosen, p)


def _halves(rows: Tensor) -> Tensor:
    """Complex numbers stored as (re, im) pairs (n, d) to [re | im] halves (n, d)."""
    return torch.cat([rows[:, 0::2], rows[:, 1::2]], dim=1)


def _read_weights(folder: Path) -> tuple[Path, dict[str, Tensor], str | None, int | None]:
    """The file read, its tensors by name, and the model and norm where the file tells them."""
    dicts = sorted([*folder.glob("*.safetensors"), *folder.glob("*.pt")])
    if len(dicts) > 1:
        raise InputError(folder, f"has several state dicts ({', '.join(f.name for f in dicts)}): keep one")
    if dicts:
        return dicts[0], _read_state_dict(dicts[0]), None, None
    path = folder / "trained_model.pkl"
    if not path.is_file():
        raise InputError(folder, "has no trained_model.pkl, .pt or .safetensors file")
    found = read_inert(path)
    if not isinstance(found, Inert):
        raise InputError(path, "does not hold a PyKEEN model")
    kind = type(found).__name__
    name = kind.lower()
    if name not in INTERACTIONS:
        raise InputError(path, f"holds a {kind}: only {', '.join(INTERACTIONS)} can be read")
    rule = vars(found).get("_modules", {}).get("interaction")
    facts = vars(rule) if isinstance(rule, Inert) else {}
    p = facts.get("p")
    if name == "transe" and (facts.get("power_norm") or p not in (1, 2)):
        raise InputError(path, "is a TransE with a distance other than the L1 or L2 norm")
    return path, dict(_tensors(found)), name, int(p) if p in (1, 2) else None


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        first = str(error).splitlines()[0]
        raise InputError(path, f"is not a state dict of tensors ({first}): save model.state_dict() alone") from None
    if not isinstance(found, dict):
        raise InputError(path, "is not a state dict of tensors: save model.state_dict() alone")
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def _ids(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The ids of entities and of relations by name."""
    triples = folder / "training_triples"
    return _read_labels(triples / "entity_to_id.tsv.gz"), _read_labels(triples / "relation_to_id.tsv.gz")


def _read_labels(path: Path) -> dict[str, int]:
    """PyKEEN's `id<TAB>label` table with a header line."""
    if not path.is_file():
        raise InputError(path, "does not exist")
    ids: dict[str, int] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            left, tab, label = line.rstrip("\n").partition("\t")
            if number == 1:
                continue
            if not tab or not left.isdigit():
                raise InputError(path, "is not an id, a tab and a label", number)
            ids[label] = int(left)
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(path, "does not number its labels 0, 1, 2, …")
    return ids


class Inert:
    """Stands where a pickle names a class or function: takes any arguments, keeps its state and does nothing."""

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
        known = {  # new objects for each pickle, which could set attributes on them
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
    """What a file of `torch.save` holds, with inert stand-ins for all but dictionaries and tensors."""
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
