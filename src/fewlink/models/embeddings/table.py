"""Trained vectors: their scores, and the folder that stores them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fewlink.core.errors import FewlinkError, InputError, reading, writing
from fewlink.core.files import new_folder, read_folder, read_json, replaced_file, write_json
from fewlink.models.embeddings.interactions import Interaction, interaction

FORMAT = "fewlink-embeddings/1"
CONFIG = {"model", "norm", "dim", "entities", "relations", "graph", "fingerprint", "settings", "measured"}
REMEDY = "train the vectors again"


def rows(table: Tensor, ids: Tensor) -> Tensor:
    """table[ids] (…, *row), in single precision if the table is in half; fast forwards and backwards on any device."""
    selected = table.index_select(0, ids.flatten()).view(*ids.shape, *table.shape[1:])
    return selected.float() if selected.dtype == torch.float16 else selected


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Replace a safetensors file atomically, with the permissions of any new file."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replaced_file(path) as draft:
        draft.touch()
        mode = draft.stat().st_mode
        with writing(path):
            save_file(stored, draft, metadata)  # makes a new file that only its owner can read
        draft.chmod(mode)


@dataclass(frozen=True)
class Embeddings:
    """Vectors of all entities and relations, in the graph's order.

    Shapes: entities (E, d), in single or half precision; relations (2R, w), where row r + R is the inverse of row r.
    """

    entities: Tensor
    relations: Tensor
    model: str
    norm: int = 2
    settings: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    trace: list[dict[str, Any]] = field(default_factory=list)
    interaction: Interaction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "interaction", interaction(self.model, self.norm))
        self.interaction.check_dim(self.dim)
        width = self.interaction.relation_width(self.dim)
        if self.relations.shape[1] != width:
            raise FewlinkError(
                f"{self.model} with entity vectors of {self.dim} reals has relation rows of {width}, "
                f"not {self.relations.shape[1]}"
            )
        if len(self.relations) % 2:
            raise FewlinkError(
                f"there are {len(self.relations)} relation rows: give each relation a row for its inverse"
            )

    @property
    def dim(self) -> int:
        return self.entities.shape[1]

    def to(self, device: str | torch.device) -> Embeddings:
        """A copy on a device."""
        return replace(self, entities=self.entities.to(device), relations=self.relations.to(device))

    def half_precision(self) -> Embeddings:
        """A copy with entities in half precision: half the memory, three digits of each number."""
        return replace(self, entities=self.entities.half())

    def single_precision(self) -> Embeddings:
        """A copy with entities in single precision; the same object if they are not in half."""
        return replace(self, entities=self.entities.float()) if self.entities.dtype == torch.float16 else self

    @torch.no_grad()
    def score_all(self, heads: Tensor, relations: Tensor, candidates: Tensor | None = None) -> Tensor:
        """The scores (B, C) of heads (B,) and relations (B,) against candidates (C,), by default all entities."""
        table = self.single_precision().entities if candidates is None else rows(self.entities, candidates)
        return self.interaction.against(self.queries(heads, relations), table)

    @torch.no_grad()
    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        """The query vectors (B, d) of heads (B,) and relations (B,)."""
        return self.interaction.query(rows(self.entities, heads), self.relations[relations])

    def digest(self) -> str:
        """The sha256 of both tables with their shapes."""
        digest = hashlib.sha256(self.model.encode())
        for table in (self.entities, self.relations):
            array = np.ascontiguousarray(table.cpu().numpy())
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(array.data)
        return digest.hexdigest()

    def save(
        self,
        folder: Path,
        fingerprint: str,
        *,
        graph: str = "",
        relation_names: Sequence[str] | None = None,
    ) -> None:
        """Write the folder atomically. `fingerprint` identifies the graph's vocabulary; `graph` is its name.

        With names of the relations, the folder also has `relations.json`.
        """
        config = {
            "model": self.model,
            "norm": self.norm,
            "dim": self.dim,
            "entities": len(self.entities),
            "relations": len(self.relations) // 2,
            "graph": graph,
            "fingerprint": fingerprint,
            "settings": self.settings,
            "measured": self.facts,
        }
        with new_folder(folder, FORMAT, {"fingerprint": fingerprint}) as path:
            save_tensors({"entities": self.entities, "relations": self.relations}, path / "weights.safetensors")
            write_json(path / "config.json", config)
            (path / "trace.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in self.trace), "utf-8")
            if relation_names is not None:
                write_json(path / "relations.json", list(relation_names))

    @classmethod
    def open(cls, folder: Path, fingerprint: str | None = None) -> Embeddings:
        """Open a saved folder. Raise if its vectors were trained on a graph with another fingerprint."""
        return read_folder(folder, FORMAT, lambda place, manifest: cls._load(place, fingerprint))

    @classmethod
    def _load(cls, folder: Path, fingerprint: str | None) -> Embeddings:
        config = read_json(folder / "config.json")
        if not isinstance(config, dict) or not config.keys() >= CONFIG:
            raise InputError(folder / "config.json", f"is damaged: {REMEDY}")
        if fingerprint is not None and fingerprint != config["fingerprint"]:
            trained_on = config["graph"] or "another graph"
            raise InputError(
                folder,
                f"was trained on {trained_on} ({config['entities']} entities, {config['relations']} relations, "
                f"vocabulary {config['fingerprint']}), but this graph has vocabulary {fingerprint}: "
                "train embeddings on this graph, or use the graph they were trained on",
            )
        with reading(folder / "weights.safetensors", REMEDY):
            tables = load_file(folder / "weights.safetensors")
            return cls(
                tables["entities"],
                tables["relations"],
                config["model"],
                config["norm"],
                config["settings"],
                config["measured"],
            )


def check_fits(embeddings: Embeddings, entities: int, relations: int) -> None:
    """Raise unless relations are vectors, and every entity and relation of the graph has one."""
    if embeddings.relations.shape[1] != embeddings.dim:
        raise FewlinkError(
            f"relations of {embeddings.model} are not vectors of {embeddings.dim} reals: "
            "pretrain with complex, transe or distmult"
        )
    count = len(embeddings.entities)
    known = len(embeddings.relations) // 2
    if count != entities:
        raise FewlinkError(
            f"the embeddings have {count} entities, but the graph has {entities}: train them on this graph"
        )
    if known < relations:
        raise FewlinkError(
            f"the embeddings have {known} relations, but the graph has {relations}: train them on this graph"
        )
