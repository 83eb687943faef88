"""Vectors of names by a text model of the user, in place of the static ones that come with fewlink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fewlink.core.errors import InputError, MissingExtra
from fewlink.graph import Graph
from fewlink.graph.tables import read_pairs

AT_ONCE = 4_096  # texts that are encoded together
SENTENCE_TRANSFORMERS = ("modules.json", "config_sentence_transformers.json")  # files that its models have


class TextModel(Protocol):
    """What models of sentence-transformers and model2vec have in common."""

    def encode(self, sentences: Sequence[str]) -> Any:
        """Vectors (n, d)."""
        ...


def text_vectors(model: TextModel, graph: Graph, descriptions: Mapping[int, str] | None = None) -> np.ndarray:
    """Vectors (entities, d) float16 of names and descriptions, less their mean and of length 1."""
    described = descriptions or {}
    texts = [
        ". ".join(text for text in (graph.name(entity), described.get(entity, "")) if text)
        for entity in range(len(graph.entities))
    ]
    parts = [np.asarray(model.encode(texts[at : at + AT_ONCE]), np.float32) for at in range(0, len(texts), AT_ONCE)]
    vectors = np.concatenate(parts)
    vectors -= vectors.mean(0)
    return np.asarray(vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-6), np.float16)


def read_descriptions(path: Path, graph: Graph) -> dict[int, str]:
    """Descriptions of entities: an id, a tab and a text per line; entities that the graph lacks are left out."""
    rows = ((graph.entities.find(row[0]), " ".join(row[1:]).strip()) for row in read_pairs(path))
    found = {entity: text for entity, text in rows if entity is not None}
    if not found:
        raise InputError(path, "describes no entity of the graph: each line must be an id, a tab and a description")
    return found


def open_text_model(folder: str | Path) -> TextModel:
    """A sentence-transformers or model2vec model in a folder; nothing is downloaded."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(path, "is not a folder: give that of a sentence-transformers or model2vec model")
    kind = "sentence-transformers" if any((path / name).exists() for name in SENTENCE_TRANSFORMERS) else "model2vec"
    model: TextModel
    try:
        if kind == "model2vec":
            from model2vec import StaticModel

            model = StaticModel.from_pretrained(str(path))
        else:
            from sentence_transformers import SentenceTransformer

            model = SentenceTransformer(str(path), local_files_only=True)
    except ImportError:
        raise MissingExtra(f"{path}, a {kind} model,", "text") from None
    except Exception as error:  # of many kinds: files that are missing or damaged
        message = " ".join(str(error).split())[:200]
        raise InputError(path, f"cannot be opened as a {kind} model ({type(error).__name__}: {message})") from None
    return model
