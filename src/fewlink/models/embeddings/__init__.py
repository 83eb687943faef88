"""Embedding models: RESCAL, TransE, DistMult and ComplEx, their trainer, and tables of vectors."""

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

__all__ = [
    "INTERACTIONS",
    "RESCAL",
    "ComplEx",
    "DistMult",
    "EmbeddingSettings",
    "Embeddings",
    "Interaction",
    "TransE",
    "interaction",
]
