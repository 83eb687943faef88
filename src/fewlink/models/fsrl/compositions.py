"""The few-shot models by name: FSRL, its ablations, GMatching, the authors' program, and FSRL with changes of ours."""

from __future__ import annotations

from typing import Any, NamedTuple

from fewlink.core.errors import choose
from fewlink.models.fsrl.aggregator import (
    EveryReference,
    MaxPooling,
    MeanPooling,
    RecurrentAutoencoder,
    RecurrentWithoutAttention,
    RecurrentWithoutDecoder,
    ReleasedReferences,
)
from fewlink.models.fsrl.encoder import (
    AttentiveNeighbours,
    MeanNeighbours,
    NamedNeighbours,
    OwnAndNeighbours,
    ProjectedMean,
    ReleasedNeighbours,
)
from fewlink.models.fsrl.matcher import InnerProduct, RecurrentMatching, ZeroStartMatching
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.pair import Concatenation, FeedForward

COMPONENTS = ("encoder", "pairs", "aggregator", "matcher")


class Composition(NamedTuple):
    """The classes of a model's four components, and a one-line description.

    adapts  which parameters adapt to the references of a relation, by the beginnings of their names: none, those of
            some components, or all ("")
    """

    encoder: Any
    aggregator: Any
    matcher: Any
    about: str
    pairs: Any = Concatenation
    adapts: tuple[str, ...] = ()


COMPOSITIONS = {
    "gmatching-maxp": Composition(ProjectedMean, MaxPooling, RecurrentMatching, "GMatching (MaxP)"),
    "gmatching-meanp": Composition(ProjectedMean, MeanPooling, RecurrentMatching, "GMatching (MeanP)"),
    "gmatching-max": Composition(ProjectedMean, EveryReference, RecurrentMatching, "GMatching (Max)"),
    "fsrl": Composition(AttentiveNeighbours, RecurrentAutoencoder, RecurrentMatching, "FSRL, Eqs. 2–10"),
    "fsrl-as1": Composition(MeanNeighbours, RecurrentAutoencoder, RecurrentMatching, "mean of neighbours (AS1)"),
    "fsrl-as2a": Composition(AttentiveNeighbours, MeanPooling, RecurrentMatching, "mean of references (AS2a)"),
    "fsrl-as2b": Composition(
        AttentiveNeighbours, RecurrentWithoutAttention, RecurrentMatching, "no attention weight (AS2b)"
    ),
    "fsrl-as2c": Composition(AttentiveNeighbours, RecurrentWithoutDecoder, RecurrentMatching, "no decoder (AS2c)"),
    "fsrl-as3": Composition(AttentiveNeighbours, RecurrentAutoencoder, InnerProduct, "inner product (AS3)"),
    "fsrl-released": Composition(
        ReleasedNeighbours,
        ReleasedReferences,
        ZeroStartMatching,
        "FSRL as in the authors' program",
        FeedForward,
    ),
    "fsrl-maml": Composition(
        AttentiveNeighbours,
        RecurrentAutoencoder,
        RecurrentMatching,
        "FSRL that adapts to the references (first-order MAML)",
        adapts=("",),
    ),
    "fsrl-anil": Composition(
        AttentiveNeighbours,
        RecurrentAutoencoder,
        RecurrentMatching,
        "FSRL whose matcher adapts to the references (ANIL)",
        adapts=("matcher.",),
    ),
    "fsrl-text": Composition(
        NamedNeighbours, RecurrentAutoencoder, RecurrentMatching, "FSRL that also reads the names of entities"
    ),
    "fsrl-tuned": Composition(
        OwnAndNeighbours,
        RecurrentAutoencoder,
        RecurrentMatching,
        "FSRL with the entity's own vector and better training",
        FeedForward,
    ),
}


def build(
    name: str, dim: int, *, steps: int = 2, dropout: float = 0.0, names: int = 0, pair_block: bool = False
) -> FewShotModel:
    """A model with new parameters, for vectors of `dim` numbers and `steps` matching steps (T).

    `names` is the number of numbers that stand for a name, in models that read names. With `pair_block`, pairs pass
    through `FeedForward` even if the composition only joins head and tail.
    """
    composition = choose("model", name, COMPOSITIONS)
    width = {"names": names} if composition.encoder.reads_names else {}
    encoder = composition.encoder(dim, dropout, **width)
    pair = (FeedForward if pair_block else composition.pairs)(encoder.width, dropout)
    width = 2 * encoder.width
    return FewShotModel(encoder, pair, composition.aggregator(width), composition.matcher(width, steps))
