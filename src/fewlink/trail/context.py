"""What TRAIL looks at: the edges of a graph, two tables of vectors, and in which relations an entity has a part."""

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
from fewlink.trail.paths import TrailFinder

NEGATIVES = 1024  # entities that an estimated relation is told apart from
NEIGHBOURS = 30
MOST_ALIKE = 1000  # entities of a kind that are ever asked for


class Known(nn.Module):
    """A graph and its vectors, moved between devices with `.to(device)`; no parameters.

    Shapes: `bilinear`, `translation` (E, d) vectors of ComplEx and TransE, in half precision or another; `far` (N,)
    some entities; `bundles` (n + 1,) how many edges of the same relation each of the neighbours is one of.
    """

    bilinear: Tensor
    translation: Tensor
    far: Tensor
    bundles: Tensor

    def __init__(self, graph: Graph, bilinear: Embeddings, translation: Embeddings) -> None:
        super().__init__()
        for vectors, model in ((bilinear, "complex"), (translation, "transe")):
            check_fits(vectors, len(graph.entities), len(graph.relations))
            if vectors.model != model:
                raise FewlinkError(f"trail looks at complex and transe vectors, and got {vectors.model} for {model}")
        self.graph, self.finder, self.kin = graph, TrailFinder(graph), SameTypeSampler(graph, MOST_ALIKE)
        table = neighbour_table(graph, NEIGHBOURS)
        bundles = self.finder.sizes(torch.from_numpy(table.edges))
        far = np.argsort(scramble(np.arange(len(graph.entities))))[:NEGATIVES]
        self.neighbours = Neighbours.of(table)
        tables = {
            "bilinear": bilinear.entities,
            "translation": translation.entities,
            "far": torch.from_numpy(far),
            "bundles": nn.functional.pad(bundles.int(), (0, 1), value=1),
        }
        for name, part in tables.items():
            self.register_buffer(name, part, persistent=False)

    @property
    def device(self) -> torch.device:
        return self.far.device

    def on(self, device: str) -> Known:
        """The same on another device, with the same graph; itself where it is there already."""
        if self.device == torch.device(device):
            return self
        return copy.deepcopy(self, {id(self.graph): self.graph}).to(device)

    def fame(self, ids: Tensor) -> Tensor:
        """log(1 + edges) / 4 of entities (n,)."""
        begins = self.finder.begins[self.finder.bundles[torch.stack([ids, ids + 1])]]
        return (begins[1] - begins[0]).float().log1p() / 4

    def profile_likeness(self, ids: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines (n, K) of the profiles of entities (n,) and others (K,), and the lengths (n,) of the former.

        A profile is log(1 + edges of each relation); those of (n,) are never written out.
        """
        (whose, relations, values), (whose_other, kinds, theirs) = self._profiles(ids), self._profiles(others)
        wanted = theirs.new_zeros(self.finder.signed, len(others))
        wanted[kinds, whose_other] = theirs
        wanted = wanted / wanted.norm(dim=0).clamp_min(1e-12)
        lengths = values.new_zeros(len(ids)).index_add_(0, whose, values.square()).sqrt()
        products = values.unsqueeze(1) * wanted[relations]
        like = values.new_zeros(len(ids), len(others)).index_add_(0, whose, products)
        return like / lengths.clamp_min(1e-12).unsqueeze(1), lengths

    def _profiles(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The entries of profiles that are not 0: whose, of which relation, and the value, (m,) each."""
        at, owners = self.finder.bundles_of(ids)
        return owners, self.finder.relations[at], (self.finder.begins[at + 1] - self.finder.begins[at]).float().log1p()

    def turning(self, ids: Tensor) -> Tensor:
        """The ComplEx vectors (…, d) of entities (…,)."""
        return rows(self.bilinear, ids).float()

    def moving(self, ids: Tensor) -> Tensor:
        """The TransE vectors (…, d) of entities (…,)."""
        return rows(self.translation, ids).float()

    def unit(self, name: str, ids: Tensor) -> Tensor:
        """Vectors of `bilinear` or `translation` of entities (…,), each of length 1."""
        return normalize({"bilinear": self.turning, "translation": self.moving}[name](ids), dim=-1)

    def alike(self, ids: Tensor, most: int) -> Tensor:
        """At most `most` entities of the kind of these, and these themselves, sorted: always the same ones."""
        found = self.kin.of(ids.cpu().numpy(), most)
        return torch.from_numpy(found.astype(np.int64)).to(self.device)
