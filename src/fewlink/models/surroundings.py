"""What every few-shot model looks at and none of them trains: pretrained vectors and each entity's neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.embeddings import Embeddings
from fewlink.errors import FewlinkError
from fewlink.graph import Graph, neighbour_table


class Surroundings(nn.Module):
    """Frozen inputs, moved between devices with `.to(device)`.

    Shapes: `entities` (E, d); `relations` (2R, d); `neighbour_relations`, `neighbour_entities` (E, N) ids, 0 where
    there is none; `present` (E, N) True for a real neighbour.
    """

    entities: Tensor
    relations: Tensor
    neighbour_relations: Tensor
    neighbour_entities: Tensor
    present: Tensor

    def __init__(
        self,
        entities: Tensor,
        relations: Tensor,
        neighbour_relations: Tensor,
        neighbour_entities: Tensor,
        present: Tensor,
    ) -> None:
        super().__init__()
        tables = {"entities": entities, "relations": relations, "neighbour_relations": neighbour_relations}
        tables |= {"neighbour_entities": neighbour_entities, "present": present}
        for name, table in tables.items():
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
    ) -> Surroundings:
        """The vectors of a graph, each standardised if asked for, and at most `most` neighbours of each entity."""
        if embeddings.relations.shape[1] != embeddings.dim:
            raise FewlinkError(
                f"{embeddings.model} relations are not vectors of {embeddings.dim} reals: use another model"
            )
        count, trained = len(graph.relations), len(embeddings.relations) // 2
        if trained < count or len(embeddings.entities) != len(graph.entities):
            raise FewlinkError(
                "the embeddings have fewer entities or relations than the graph: train them on this graph"
            )
        relations = torch.cat([embeddings.relations[:count], embeddings.relations[trained : trained + count]])
        table = neighbour_table(graph, most, rule, seed)
        kinds, others = (torch.from_numpy(column).long() for column in (table.relations, table.entities))
        entities = embeddings.entities
        if standardise:
            entities, relations = _standardised(entities), _standardised(relations)
        return cls(entities, relations, kinds.clamp_min(0), others.clamp_min(0), kinds >= 0)

    @property
    def dim(self) -> int:
        return self.entities.shape[1]

    @property
    def entity_count(self) -> int:
        return len(self.entities)


def _standardised(vectors: Tensor) -> Tensor:
    """Each row to mean 0 and deviation 1, as the authors' program does: (x − mean)/(deviation + 0.001)."""
    centred = vectors - vectors.mean(1, keepdim=True)
    return centred / (vectors.std(1, correction=0, keepdim=True) + 1e-3)


def rows(table: Tensor, ids: Tensor) -> Tensor:
    """table[ids], (…, *row); its gradient is one sum over equal ids, quick on any device."""
    return table.index_select(0, ids.flatten()).view(*ids.shape, *table.shape[1:])
