"""What TRAIL's evidence reads: a graph with its vectors, and a task with its references, query heads and candidates.

Whatever a kind of evidence derives is a function of one of these objects and is computed once: `task.once(best_rules)`.
So kinds share what they have in common, and what follows from the references alone is not computed again for each head.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fewlink.base.errors import FewlinkError
from fewlink.base.memo import Memo
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
OTHER_HEADS = 256  # heads that a candidate's scores are compared with
HELD_OUT = 5  # references that are held out in turn, at most
LEAST_CHANCE = 1e-4  # a chance under this counts as none

Features = tuple[Tensor, ...]


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


class TaskContext(Memo):
    """The references (K, 2) of one relation, on a graph."""

    def __init__(
        self, graph: GraphContext, references: Tensor, whole: TaskContext | None = None, left_out: int = -1
    ) -> None:
        self.graph, self.references = graph, references
        self.whole, self.left_out = whole, left_out  # the task that reference `left_out` was held out of

    @property
    def tails(self) -> Tensor:
        """The references' tails (K,)."""
        return self.references[:, 1]

    @property
    def held_out(self) -> int:
        """How many references are held out in turn: none if there is only one."""
        return min(len(self.references), HELD_OUT) if len(self.references) > 1 else 0

    def without(self, number: int) -> TaskContext:
        """The task with one reference held out; what is derived from it is freed with it."""
        rest = torch.cat([self.references[:number], self.references[number + 1 :]])
        return TaskContext(self.graph, rest, self, number)


class QueryHeads(Memo):
    """The heads (H,) of some queries of a task."""

    def __init__(self, task: TaskContext, ids: Tensor) -> None:
        self.task, self.ids = task, ids


class CandidateSet(Memo):
    """Candidates (C,) of a task, sorted."""

    def __init__(self, task: TaskContext, ids: Tensor) -> None:
        self.task, self.ids = task, ids


class Pairs(Memo):
    """Every head (H,) with every candidate (C,)."""

    def __init__(self, heads: QueryHeads, candidates: CandidateSet) -> None:
        self.task, self.heads, self.candidates = heads.task, heads, candidates

    @classmethod
    def of(cls, task: TaskContext, heads: Tensor, candidates: Tensor) -> Pairs:
        return cls(QueryHeads(task, heads), CandidateSet(task, candidates))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.heads.ids), len(self.candidates.ids)


class ModelInputs(NamedTuple):
    """What the model reads about heads (H,) and candidates (C,), given references (K, 2).

    `features`: what each kind of evidence extracted; `reliability` (2S + 2,), see `reliability`; `states`: what a kind
    has learnt about the candidates whatever the head, where it is known already.
    """

    references: Tensor
    heads: Tensor
    candidates: Tensor
    features: dict[str, Features]
    reliability: Tensor
    states: dict[str, Tensor] = {}  # noqa: RUF012

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.heads), len(self.candidates)

    def to(self, device: str) -> ModelInputs:
        features = {kind: tuple(part.to(device) for part in parts) for kind, parts in self.features.items()}
        references, heads, candidates = (ids.to(device) for ids in (self.references, self.heads, self.candidates))
        return ModelInputs(references, heads, candidates, features, self.reliability.to(device))


def other_heads(task: TaskContext) -> Tensor:
    """Heads of the references' type, to compare a candidate's scores with."""
    return task.graph.same_type(task.references[:, 0], OTHER_HEADS)


def is_reference_tail(candidates: CandidateSet) -> Tensor:
    """Whether each candidate is the tail of each reference: (C, K), 0 or 1."""
    return (candidates.ids.unsqueeze(1) == candidates.task.tails).float()


def log_chance(chances: Tensor) -> Tensor:
    """The log of chances, scaled to about 0 to 1; a chance under 0.0001 counts as none."""
    return (chances + LEAST_CHANCE).log() / 4 + 1
