"""RESCAL, TransE, DistMult and ComplEx: their scores, their trainer, their tables and the formats of others."""

from fewlink.embeddings.convert import (
    from_nell_one,
    from_numpy,
    to_numpy,
    to_projector,
    to_word2vec,
)
from fewlink.embeddings.interactions import INTERACTIONS, RESCAL, ComplEx, DistMult, Interaction, TransE, interaction
from fewlink.embeddings.pykeen_folder import from_pykeen, pykeen_names
from fewlink.embeddings.settings import EmbeddingSettings
from fewlink.embeddings.table import Embeddings
from fewlink.embeddings.trainer import train

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
    "pykeen_names",
    "to_numpy",
    "to_projector",
    "to_word2vec",
    "train",
]
