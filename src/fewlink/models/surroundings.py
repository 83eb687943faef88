"""What every few-shot model looks at: pretrained vectors, which a run may tune, and each entity's neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.embeddings import Embeddings
from fewlink.embeddings.table import rows
from fewlink.errors import FewlinkError
from fewlink.graph import Graph, neighbour_table


class Surroundings(nn.Module):
    """A model's inputs and none of its parameters, moved between devices with `.to(device)`.

    Shapes: `entities` (E, d), in half precision or another; `relations` (2R, d); `neighbour_relations`,
    `neighbour_entities` (E, N) int32 ids, 0 where there is none; `present` (E, N) True for a real neighbour.
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
        check_fits(graph, embeddings)
        count, trained = len(graph.relations), len(embeddings.relations) // 2
        relations = torch.cat([embeddings.relations[:count], embeddings.relations[trained : trained + count]])
        table = neighbour_table(graph, most, rule, seed)
        kinds, others = torch.from_numpy(table.relations), torch.from_numpy(table.entities)
        entities = embeddings.entities
        if standardise:
            entities, relations = _standardised(embeddings.whole().entities), _standardised(relations)
        present = kinds >= 0
        return cls(entities, relations, kinds.clamp_min_(0), others.clamp_min_(0), present)

    @property
    def dim(self) -> int:
        return self.entities.shape[1]

    @property
    def entity_count(self) -> int:
        return len(self.entities)

    def exactly(self, ids: Tensor) -> Surroundings:
        """Those of entities (n,) alone, which are its first n, with vectors in double precision."""
        near = self.neighbour_entities[ids]  # (n, N)
        places = torch.arange(len(ids), len(ids) + near.numel(), device=ids.device).view_as(near)
        vectors = rows(self.entities, torch.cat([ids, near.flatten()])).double()
        return Surroundings(vectors, self.relations.double(), self.neighbour_relations[ids], places, self.present[ids])


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
