"""Encoding in double precision, so that entities with equal neighbours get equal vectors to the last bit."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from fewlink.models.fsrl.encoder import Encoder
from fewlink.models.fsrl.neighbourhood import Neighbourhood

ENCODED_AT_ONCE = 4096  # entities


class ExactEncoder:
    """A copy of an encoder with its current weights, without dropout.

    The rounding of a product depends on its shape. Encoding in double precision and storing in single precision removes
    that rounding, so that entities with the same neighbours get the same vector and tie. Entities with few neighbours
    are encoded together, with only the slots that they fill, unless the encoder reads padding.
    """

    def __init__(self, encoder: Encoder, around: Neighbourhood) -> None:
        self.encoder = copy.deepcopy(encoder).eval().double()
        self.around = around

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        """Entities (U,) to vectors (U, width)."""
        encoded = self.around.relations.new_empty(len(ids), self.encoder.width)
        counts, order = self.around.neighbours.counts(ids).sort(stable=True)
        for some, filled in zip(order.split(ENCODED_AT_ONCE), counts.split(ENCODED_AT_ONCE), strict=True):
            slots = None if self.encoder.reads_padding else int(filled[-1])
            inputs = self.around.in_double_precision(ids[some], slots)
            encoded[some] = self.encoder(torch.arange(len(some), device=some.device), inputs).to(encoded.dtype)
        return encoded


def encode_all(encoder: Encoder, around: Neighbourhood) -> Tensor:
    """The vectors of all entities: (E, width)."""
    return ExactEncoder(encoder, around)(torch.arange(around.entity_count, device=around.entities.device))
