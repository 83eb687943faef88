"""The graph and vectors that TRAIL reads: edges, paths, two tables of vectors, neighbours and relation profiles."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fewlink.base.errors import FewlinkError
from fewlink.base.seeds import scramble
from fewlink.data.candidates import SameTypeSampler
from fewlink.embeddings import Embeddings
from fewlink.embeddings.table import check_fits, rows
from fewlink.fewshot.neighbourhood import Neighbours
from fewlink.graph import Graph, neighbour_table
from fewlink.trail_0_1.paths import PathFinder

NEGATIVES = 1024  # entities that an estimated relation is told apart from
NEIGHBOURS = 30
MOST_SAME_TYPE = 1000  # entities of a type that are ever used


class GraphContext(nn.Module):
    """A graph and its vectors, moved between devices with `.to(device)`; no parameters.

    Shapes: `bilinear`, `translation` (E, d) vectors of ComplEx and TransE, in single or half precision; `negatives`
    (N,) some entities; `neighbour_groups` (n + 1,) how many edges of its relation the entity has, for each neighbour.
    """

    bilinear: Tensor
    translation: Tensor
    negatives: Tensor
    neighbour_groups: Tensor

    def __init__(self, graph: Graph, bilinear: Embeddings, translation: Embeddings) -> None:
        super().__init__()
        for vectors, model in ((bilinear, "complex"), (translation, "transe")):
            check_fits(vectors, len(graph.entities), len(graph.relations))
            if vectors.model != model:
                raise FewlinkError(f"trail-0.1 reads complex and transe vectors, and got {vectors.model} for {model}")
        self.graph, self.paths, self.sampler = graph, PathFinder(graph), SameTypeSampler(graph, MOST_SAME_TYPE)
        table = neighbour_table(graph, NEIGHBOURS)
        groups = self.paths.group_sizes(torch.from_numpy(table.edges))
        negatives = np.argsort(scramble(np.arange(len(graph.entities))))[:NEGATIVES]
        self.neighbours = Neighbours.of(table)
        tables = {
            "bilinear": bilinear.entities,
            "translation": translation.entities,
            "negatives": torch.from_numpy(negatives),
            "neighbour_groups": nn.functional.pad(groups.int(), (0, 1), value=1),
        }
        for name, part in tables.items():
            self.register_buffer(name, part, persistent=False)

    @property
    def device(self) -> torch.device:
        return self.negatives.device

    def on(self, device: str) -> GraphContext:
        """A copy on another device that shares the graph; itself if it is there already."""
        if self.device == torch.device(device):
            return self
        return copy.deepcopy(self, {id(self.graph): self.graph}).to(device)

    def log_degree(self, ids: Tensor) -> Tensor:
        """log(1 + edges) / 4 of entities (n,)."""
        begins = self.paths.edge_offsets[self.paths.group_offsets[torch.stack([ids, ids + 1])]]
        return (begins[1] - begins[0]).float().log1p() / 4

    def profile_cosines(self, ids: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines (n, K) of the profiles of entities (n,) and others (K,), and the lengths (n,) of the former.

        A profile is log(1 + edges of each relation); those of (n,) are kept sparse.
        """
        (owners, relations, values), (columns, kinds, theirs) = self._profiles(ids), self._profiles(others)
        dense = theirs.new_zeros(self.paths.signed, len(others))
        dense[kinds, columns] = theirs
        dense = dense / dense.norm(dim=0).clamp_min(1e-12)
        lengths = values.new_zeros(len(ids)).index_add_(0, owners, values.square()).sqrt()
        products = values.unsqueeze(1) * dense[relations]
        cosines = values.new_zeros(len(ids), len(others)).index_add_(0, owners, products)
        return cosines / lengths.clamp_min(1e-12).unsqueeze(1), lengths

    def _profiles(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The entries of profiles that are not 0: of which entity, of which relation, and the value, (m,) each."""
        paths = self.paths
        at, owners = paths.groups_of(ids)
        return owners, paths.group_relations[at], (paths.edge_offsets[at + 1] - paths.edge_offsets[at]).float().log1p()

    def complex_vectors(self, ids: Tensor) -> Tensor:
        """The ComplEx vectors (…, d) of entities (…,)."""
        return rows(self.bilinear, ids).float()

    def transe_vectors(self, ids: Tensor) -> Tensor:
        """The TransE vectors (…, d) of entities (…,)."""
        return rows(self.translation, ids).float()

    def unit_complex(self, ids: Tensor) -> Tensor:
        """ComplEx vectors (…, d) of length 1."""
        return normalize(self.complex_vectors(ids), dim=-1)

    def unit_transe(self, ids: Tensor) -> Tensor:
        """TransE vectors (…, d) of length 1."""
        return normalize(self.transe_vectors(ids), dim=-1)

    def same_type(self, ids: Tensor, most: int) -> Tensor:
        """At most `most` entities of the type of these, and these themselves, sorted: always the same ones."""
        entities = self.sampler.of(ids.cpu().numpy(), most)
        return torch.from_numpy(entities.astype(np.int64)).to(self.device)
