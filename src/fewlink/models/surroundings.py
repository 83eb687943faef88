"""What every few-shot model looks at: pretrained vectors, which a run may tune, and each entity's neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.embeddings import Embeddings
from fewlink.embeddings.table import rows
from fewlink.errors import FewlinkError
from fewlink.graph import Graph, neighbour_table
from fewlink.models.neighbours import Neighbours


class Surroundings(nn.Module):
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
    ) -> Surroundings:
        """The vectors of a graph, each standardised if asked for, and at most `most` neighbours of each entity."""
        check_fits(graph, embeddings)
        count, trained = len(graph.relations), len(embeddings.relations) // 2
        relations = torch.cat([embeddings.relations[:count], embeddings.relations[trained : trained + count]])
        entities = embeddings.entities
        if standardise:
            entities, relations = _standardised(embeddings.whole().entities), _standardised(relations)
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

    def exactly(self, ids: Tensor, slots: int | None = None) -> Surroundings:
        """Those of entities (n,) alone, which are its first n, with vectors in double precision.

        They have as many slots as before, or others, which must be enough for their neighbours.
        """
        neighbours, near = self.neighbours.some(ids, self.neighbours.most if slots is None else slots)
        vectors = rows(self.entities, torch.cat([ids, near])).double()
        return Surroundings(vectors, self.relations.double(), neighbours)


def check_fits(graph: Graph, embeddings: Embeddings) -> None:
    """Refuse embeddings that are not vectors of this graph's entities and relations; more relations may be there."""
    if embeddings.relations.shape[1] != embeddings.dim:
        raise FewlinkError(
            f"{embeddings.model} relations are not vectors of {embeddings.dim} reals: "
            "pretrain with complex, transe or distmult"
        )
    entities, relations = len(embeddings.entities), len(embeddings.relations) // 2
    if entities != len(graph.entities):
        raise FewlinkError(
            f"the embeddings have {entities} entities and the graph {len(graph.entities)}: train them on this graph"
        )
    if relations < len(graph.relations):
        raise FewlinkError(
            f"the embeddings have {relations} relations and the graph {len(graph.relations)}: train them on this graph"
        )


def _standardised(vectors: Tensor) -> Tensor:
    """Each row to mean 0 and deviation 1, as the authors' program does: (x − mean)/(deviation + 0.001)."""
    centred = vectors - vectors.mean(1, keepdim=True)
    return centred / (vectors.std(1, correction=0, keepdim=True) + 1e-3)
