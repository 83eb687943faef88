"""The inputs of a few-shot model: pretrained vectors, which a run may tune, and each entity's neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.embeddings.table import Embeddings, check_fits, rows
from fewlink.graph import Graph, NeighbourTable, neighbour_table


class Neighbours(nn.Module):
    """The neighbours of all entities in one array; an entity is read as `most` slots, of which it fills the first.

    Shapes: `offsets` (E + 1,), where the neighbours of each entity begin; `relations`, `entities` (n + 1,) int32 ids,
    of which the last is a 0 for an empty slot.
    """

    offsets: Tensor
    relations: Tensor
    entities: Tensor

    def __init__(self, most: int, offsets: Tensor, relations: Tensor, entities: Tensor) -> None:
        super().__init__()
        self.most = most
        self.register_buffer("offsets", offsets, persistent=False)
        self.register_buffer("relations", relations, persistent=False)
        self.register_buffer("entities", entities, persistent=False)

    @classmethod
    def of(cls, table: NeighbourTable) -> Neighbours:
        """The neighbours of a table, as tensors on the CPU."""
        columns = (torch.from_numpy(column) for column in (table.relations, table.entities))
        return cls(table.most, torch.from_numpy(table.offsets), *(nn.functional.pad(c, (0, 1)) for c in columns))

    def places(self, ids: Tensor, slots: int | None = None) -> Tensor:
        """The positions (…, most) of the neighbours of entities (…,); the last position for an empty slot.

        With `slots`, only the first slots of each.
        """
        at = self.offsets[ids].unsqueeze(-1) + torch.arange(self.most if slots is None else slots, device=ids.device)
        return at.where(at < self.offsets[ids + 1].unsqueeze(-1), len(self.entities) - 1)

    def present(self, places: Tensor) -> Tensor:
        """Whether there is a neighbour at each of these positions (…,)."""
        return places < len(self.entities) - 1

    def counts(self, ids: Tensor) -> Tensor:
        """The numbers of neighbours of entities (…,)."""
        return self.offsets[ids + 1] - self.offsets[ids]

    def some(self, ids: Tensor, slots: int) -> tuple[Neighbours, Tensor]:
        """The neighbours of entities (n,) alone, numbered from n on, and which entities (m,) they are."""
        counts = self.counts(ids)
        offsets = nn.functional.pad(counts.cumsum(0), (1, 0))
        owners = torch.repeat_interleave(counts)
        kept = torch.arange(len(owners), device=ids.device) + (self.offsets[ids] - offsets[:-1])[owners]
        numbers = torch.arange(len(ids), len(ids) + len(kept), dtype=torch.int32, device=ids.device)
        columns = (nn.functional.pad(column, (0, 1)) for column in (self.relations[kept], numbers))
        return Neighbours(slots, offsets, *columns), self.entities[kept]


class Neighbourhood(nn.Module):
    """The vectors of all entities (E, d) and relations (2R, d), and the neighbours; no parameters.

    Entities may be in half precision.
    """

    entities: Tensor
    relations: Tensor

    def __init__(self, entities: Tensor, relations: Tensor, neighbours: Neighbours) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.register_buffer("entities", entities, persistent=False)
        self.register_buffer("relations", relations, persistent=False)

    @classmethod
    def of(
        cls,
        graph: Graph,
        embeddings: Embeddings,
        *,
        most: int = 30,
        rule: str = "sampled",
        seed: int = 0,
        standardise: bool = False,
    ) -> Neighbourhood:
        """The vectors of a graph, standardised one by one on request, and at most `most` neighbours of each entity."""
        check_fits(embeddings, len(graph.entities), len(graph.relations))
        count, trained = len(graph.relations), len(embeddings.relations) // 2
        relations = torch.cat([embeddings.relations[:count], embeddings.relations[trained : trained + count]])
        entities = embeddings.entities
        if standardise:
            entities, relations = _standardised(embeddings.single_precision().entities), _standardised(relations)
        return cls(entities, relations, Neighbours.of(neighbour_table(graph, most, rule, seed)))

    @property
    def dim(self) -> int:
        return self.entities.shape[1]

    @property
    def entity_count(self) -> int:
        return len(self.entities)

    def neighbours_of(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Relations and entities of neighbours (int32 ids, 0 for an empty slot), and their presence: (…, N) each."""
        places = self.neighbours.places(ids)
        relations, entities = (rows(kind, places) for kind in (self.neighbours.relations, self.neighbours.entities))
        return relations, entities, self.neighbours.present(places)

    def exactly(self, ids: Tensor, slots: int | None = None) -> Neighbourhood:
        """The inputs of entities (n,) alone, renumbered from 0, in double precision.

        With `slots`, so many for each entity, which must suffice for their neighbours.
        """
        neighbours, near = self.neighbours.some(ids, self.neighbours.most if slots is None else slots)
        vectors = rows(self.entities, torch.cat([ids, near])).double()
        return Neighbourhood(vectors, self.relations.double(), neighbours)


def _standardised(vectors: Tensor) -> Tensor:
    """(x − mean)/(deviation + 0.001) of each row, as in the authors' program."""
    centred = vectors - vectors.mean(1, keepdim=True)
    return centred / (vectors.std(1, correction=0, keepdim=True) + 1e-3)
