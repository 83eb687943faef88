"""The neighbours of each entity, written out as rows with padding only for those that are asked about."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.graph import NeighbourTable


class Neighbours(nn.Module):
    """Each entity has `most` slots, with its neighbours in the first of them; no parameters.

    Shapes: `offsets` (E + 1,) where the neighbours of each begin; `relations`, `entities` (n + 1,) int32 ids, the last
    being a 0 that stands for none.
    """

    offsets: Tensor
    relations: Tensor
    entities: Tensor

    def __init__(self, most: int, offsets: Tensor, relations: Tensor, entities: Tensor) -> None:
        super().__init__()
        self.most = most
        for name, part in (("offsets", offsets), ("relations", relations), ("entities", entities)):
            self.register_buffer(name, part, persistent=False)

    @classmethod
    def of(cls, table: NeighbourTable) -> Neighbours:
        columns = (torch.from_numpy(column) for column in (table.relations, table.entities))
        return cls(table.most, torch.from_numpy(table.offsets), *(nn.functional.pad(c, (0, 1)) for c in columns))

    def places(self, ids: Tensor, slots: int | None = None) -> Tensor:
        """Where the neighbours of entities (…,) stand, (…, most); the last place where there is none.

        With `slots`, only the first ones of each.
        """
        at = self.offsets[ids].unsqueeze(-1) + torch.arange(self.most if slots is None else slots, device=ids.device)
        return at.where(at < self.offsets[ids + 1].unsqueeze(-1), len(self.entities) - 1)

    def present(self, places: Tensor) -> Tensor:
        """Whether a neighbour stands at each of these places (…,)."""
        return places < len(self.entities) - 1

    def counts(self, ids: Tensor) -> Tensor:
        """How many neighbours entities (…,) have."""
        return self.offsets[ids + 1] - self.offsets[ids]

    def some(self, ids: Tensor, slots: int) -> tuple[Neighbours, Tensor]:
        """Those of entities (n,) alone, numbered from n on as they stand, and which entities (m,) they are."""
        counts = self.counts(ids)
        offsets = nn.functional.pad(counts.cumsum(0), (1, 0))
        owners = torch.repeat_interleave(counts)
        kept = torch.arange(len(owners), device=ids.device) + (self.offsets[ids] - offsets[:-1])[owners]
        numbers = torch.arange(len(ids), len(ids) + len(kept), dtype=torch.int32, device=ids.device)
        columns = (nn.functional.pad(column, (0, 1)) for column in (self.relations[kept], numbers))
        return Neighbours(slots, offsets, *columns), self.entities[kept]
