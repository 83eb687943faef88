"""What a few-shot model reads: pretrained vectors, which a run may tune, and each entity's neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.embeddings.table import Embeddings, check_fits, rows
from fewlink.graph import Graph, NeighbourTable, neighbour_table


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
        """The neighbours of a table, as tensors on the CPU."""
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


class Neighbourhood(nn.Module):
    """A model's inputs and none of its parameters, moved between devices with `.to(device)`.

    Shapes: `entities` (E, d), in half precision or another; `relations` (2R, d).
    """

    entities: Tensor
    relations: Tensor

    def __init__(self, entities: Tensor, relations: Tensor, neighbours: Neighbours) -> None:
        super().__init__()
        self.neighbours = neighbours
        for name, table in (("entities", entities), ("relations", relations)):
            self.register_buffer(name, table, persistent=False)

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
        """The vectors of a graph, each standardised if asked for, and at most `most` neighbours of each entity."""
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
        """Relations, entities (int32 ids, 0 where there is none) and presence of neighbours: (…, N) each."""
        places = self.neighbours.places(ids)
        relations, entities = (rows(kind, places) for kind in (self.neighbours.relations, self.neighbours.entities))
        return relations, entities, self.neighbours.present(places)

    def exactly(self, ids: Tensor, slots: int | None = None) -> Neighbourhood:
        """Those of entities (n,) alone, which are its first n, with vectors in double precision.

        They have as many slots as before, or others, which must be enough for their neighbours.
        """
        neighbours, near = self.neighbours.some(ids, self.neighbours.most if slots is None else slots)
        vectors = rows(self.entities, torch.cat([ids, near])).double()
        return Neighbourhood(vectors, self.relations.double(), neighbours)


def _standardised(vectors: Tensor) -> Tensor:
    """Each row to mean 0 and deviation 1, as the authors' program does: (x − mean)/(deviation + 0.001)."""
    centred = vectors - vectors.mean(1, keepdim=True)
    return centred / (vectors.std(1, correction=0, keepdim=True) + 1e-3)
