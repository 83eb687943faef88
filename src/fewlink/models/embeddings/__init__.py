"""Embedding models: RESCAL, TransE, DistMult and ComplEx, their trainer, tables of vectors, import and export."""

from fewlink.models.embeddings.convert import from_nell_one, from_numpy, from_pykeen, to_numpy
from fewlink.models.embeddings.interactions import (
    INTERACTIONS,
    RESCAL,
    ComplEx,
    DistMult,
    Interaction,
    TransE,
    interaction,
)
from fewlink.models.embeddings.settings import EmbeddingSettings
from fewlink.models.embeddings.table import Embeddings
from fewlink.models.embeddings.trainer import train

__all__ = [
    "INTERACTIONS",
    "RESCAL",
    "ComplEx",
    "DistMult",
    "EmbeddingSettings",
    "Embeddings",
    "Interaction",
    "TransE",
    "from_nell_one",
    "from_numpy",
    "from_pykeen",
    "interaction",
    "to_numpy",
    "train",
]
