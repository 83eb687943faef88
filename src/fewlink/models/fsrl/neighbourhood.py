"""The inputs of a few-shot model: pretrained vectors, which a run may tune, and the neighbours of each entity."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fewlink.graph import Graph, NeighbourTable, neighbour_table
from fewlink.models.embeddings.table import Embeddings, check_fits, rows


class Neighbours(nn.Module):
    """The neighbours of all entities in one array; each entity has `slots` slots and fills the first ones.

    offsets              (E + 1,) the position of each entity's first neighbour
    relations, entities  (n + 1,) int32 ids; the last is 0 and stands for an empty slot
    """

    offsets: Tensor
    relations: Tensor
    entities: Tensor

    def __init__(self, slots: int, offsets: Tensor, relations: Tensor, entities: Tensor) -> None:
        super().__init__()
        self.slots = slots
        self.register_buffer("offsets", offsets, persistent=False)
        self.register_buffer("relations", relations, persistent=False)
        self.register_buffer("entities", entities, persistent=False)

    @classmethod
    def of(cls, table: NeighbourTable) -> Neighbours:
        """The neighbours of a table, as tensors on the CPU."""
        relations = pad(torch.from_numpy(table.relations), (0, 1))
        entities = pad(torch.from_numpy(table.entities), (0, 1))
        return cls(table.max_neighbours, torch.from_numpy(table.offsets), relations, entities)

    def counts(self, ids: Tensor) -> Tensor:
        """The numbers of neighbours of entities (…,)."""
        return self.offsets[ids + 1] - self.offsets[ids]


class Neighbourhood(nn.Module):
    """The vectors of all entities (E, d), possibly in half precision, and relations (2R, d), and the neighbours."""

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
        max_neighbours: int = 30,
        rule: str = "sampled",
        seed: int = 0,
        standardise: bool = False,
    ) -> Neighbourhood:
        """The vectors of a graph, and at most `max_neighbours` neighbours of each entity, chosen by `rule`.

        `standardise` scales each vector to mean 0 and deviation 1.
        """
        check_fits(embeddings, len(graph.entities), len(graph.relations))
        count = len(graph.relations)
        trained = len(embeddings.relations) // 2
        relations = torch.cat([embeddings.relations[:count], embeddings.relations[trained : trained + count]])
        entities = embeddings.entities
        if standardise:
            entities = _standardised(embeddings.single_precision().entities)
            relations = _standardised(relations)
        return cls(entities, relations, Neighbours.of(neighbour_table(graph, max_neighbours, rule, seed)))

    @property
    def dim(self) -> int:
        return self.relations.shape[1]

    def neighbours_of(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Relations and entities of neighbours (int32 ids, 0 for an empty slot), and their presence: (…, N) each."""
        near = self.neighbours
        positions = near.offsets[ids].unsqueeze(-1) + torch.arange(near.slots, device=ids.device)
        present = positions < near.offsets[ids + 1].unsqueeze(-1)
        positions = positions.where(present, len(near.entities) - 1)
        return rows(near.relations, positions), rows(near.entities, positions), present

    def in_double_precision(self, ids: Tensor, slots: int) -> Neighbourhood:
        """The inputs of entities (n,) only, renumbered from 0, in double precision and with this number of slots."""
        near = self.neighbours
        counts = near.counts(ids)
        offsets = pad(counts.cumsum(0), (1, 0))
        owners = torch.repeat_interleave(counts)
        kept = torch.arange(len(owners), device=ids.device) + (near.offsets[ids] - offsets[:-1])[owners]
        numbers = torch.arange(len(ids), len(ids) + len(kept), dtype=torch.int32, device=ids.device)
        own = Neighbours(slots, offsets, pad(near.relations[kept], (0, 1)), pad(numbers, (0, 1)))
        vectors = rows(self.entities, torch.cat([ids, near.entities[kept]])).double()
        return Neighbourhood(vectors, self.relations.double(), own)


def _standardised(vectors: Tensor) -> Tensor:
    """(x − mean)/(deviation + 0.001) of each row, as in the authors' program."""
    centred = vectors - vectors.mean(1, keepdim=True)
    return centred / (vectors.std(1, correction=0, keepdim=True) + 1e-3)
