"""Few-shot models with their inputs and the weights of a checkpoint, and trained ones as scorers."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fewlink.core.seeds import derive
from fewlink.graph import Graph
from fewlink.models.contract import Capabilities, Question, Reasons
from fewlink.models.embeddings.table import Embeddings
from fewlink.models.fsrl.aggregator import reference_weights
from fewlink.models.fsrl.encoder import Encoder
from fewlink.models.fsrl.model import FewShotModel, build
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.weights import check_weights

ENCODED_AT_ONCE = 4096  # entities, whose neighbours' vectors are in memory together
HASHED_AT_ONCE = 1 << 16  # rows, for the same reason
TUNED = ("entities", "relations")  # pretrained vectors; a run that tunes them saves them as `around.NAME`


def initial_model(dim: int, settings: FewShotSettings) -> FewShotModel:
    """A model with its initial parameters, which are a pure function of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(settings.seed, "start"))
        return build(
            settings.model,
            dim,
            steps=settings.matching_steps,
            dropout=settings.dropout,
            pair_block=settings.pair_block,
        )


def inputs_of(graph: Graph, embeddings: Embeddings, settings: FewShotSettings) -> Neighbourhood:
    """The inputs of a model."""
    return Neighbourhood.of(
        graph,
        embeddings.single_precision() if settings.embedding_rate else embeddings,
        max_neighbours=settings.neighbours,
        rule=settings.neighbour_rule,
        seed=settings.seed,
        standardise=settings.standardise,
    )


def load_weights(model: FewShotModel, around: Neighbourhood, weights: dict[str, Tensor], run: Path) -> None:
    """Load the weights of a checkpoint into a model, and tuned vectors into its inputs."""
    for name in TUNED:
        if f"around.{name}" in weights:
            getattr(around, name).copy_(weights[f"around.{name}"])
    parameters = {name: weight for name, weight in weights.items() if not name.startswith("around.")}
    check_weights(model.state_dict(), parameters, run)
    model.load_state_dict(parameters)


class FewShotScorer:
    """A trained model with its inputs.

    It encodes an entity once, at its first occurrence in a question, and scores entities with the same vector (half of
    NELL-One's) only once.
    """

    def __init__(self, name: str, model: FewShotModel, around: Neighbourhood, references_seen: int = 0) -> None:
        self.name = name
        self.model = model.eval()
        self.around = around
        self.capabilities = Capabilities(references_seen=references_seen)
        count = len(around.entities)
        self._encode = ExactEncoder(model.encoder, around)
        self._encoded = around.relations.new_empty(count, model.encoder.width)
        self._ready = torch.zeros(count, dtype=torch.bool, device=around.relations.device)

    def __call__(self, question: Question) -> Tensor:
        arrays = (question.references, question.heads, question.candidates)
        entities = [torch.from_numpy(array.astype(np.int64)).flatten() for array in arrays]
        ids, positions = torch.cat(entities).to(self._ready.device).unique(return_inverse=True)
        vectors, indices = distinct(self._vectors(ids))
        references, heads, candidates = indices[positions].split([len(some) for some in entities])
        rows, row_of_head = heads.unique(return_inverse=True)
        columns, column_of_candidate = candidates.unique(return_inverse=True)
        scores = self.model.grid(vectors, references.view(-1, 2), rows, columns)
        return scores[row_of_head][:, column_of_candidate]

    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """The vectors (n, w) of pairs (n, 2) as the model compares them with the references (K, 2)."""
        ids, places = torch.from_numpy(np.concatenate([references, pairs]).astype(np.int64)).unique(return_inverse=True)
        encoded = self._vectors(ids.to(self.around.entities.device))
        positions = places.to(encoded.device).split([len(references), len(pairs)])
        return self.model.compared(encoded, *positions).cpu().numpy()

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """The attention for one pair: β of the references (K, 2), and α of the neighbours of head and tail."""
        score = float(self(Question("", references, np.array([head]), np.array([tail]))))
        ids = torch.from_numpy(references.astype(np.int64)).to(self._ready.device)
        pairs = self.model.pair(self._vectors(ids.flatten()).view(*ids.shape, -1))  # (K, 2d)
        beta = reference_weights(self.model.aggregator, pairs)
        ends = {"head": head, "tail": tail}
        neighbours = [(end, *edge) for end, entity in ends.items() for edge in self._attended(entity, most)]
        return Reasons(score, references=[] if beta is None else beta.tolist(), neighbours=neighbours)

    def _attended(self, entity: int, most: int) -> list[tuple[int, int, float]]:
        """The neighbours (relation, entity, α) of an entity with the largest α; empty without attention."""
        around = self.around
        ids = torch.tensor([entity], device=around.relations.device)
        weights = self.model.encoder.weights(ids, around)
        if weights is None:
            return []
        relations, entities, present = around.neighbours_of(ids)
        best = weights[0].sort(descending=True, stable=True).indices[: min(most, int(present.sum()))]
        columns = relations[0, best], entities[0, best], weights[0, best]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _vectors(self, ids: Tensor) -> Tensor:
        """The vectors (U, d) of entities (U,); entities that are new to the scorer are encoded."""
        missing = ids[~self._ready[ids]]
        if len(missing):
            self._encoded[missing] = self._encode(missing)
            self._ready[missing] = True
        return self._encoded[ids]


class ExactEncoder:
    """A copy of an encoder with its current weights, without dropout.

    The rounding of a product depends on its shape. Encoding in double precision and storing in single precision removes
    that rounding, so that entities with the same neighbours get the same vector and tie. Entities with few neighbours
    are encoded together, with only the slots that they fill, unless the encoder reads padding.
    """

    def __init__(self, encoder: Encoder, around: Neighbourhood) -> None:
        self.encoder = copy.deepcopy(encoder).eval().double()
        self.around = around

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        """Entities (U,) to vectors (U, width)."""
        encoded = self.around.relations.new_empty(len(ids), self.encoder.width)
        counts, order = self.around.neighbours.counts(ids).sort(stable=True)
        for some, filled in zip(order.split(ENCODED_AT_ONCE), counts.split(ENCODED_AT_ONCE), strict=True):
            slots = self.around.neighbours.slots if self.encoder.reads_padding else int(filled[-1])
            inputs = self.around.in_double_precision(ids[some], slots)
            encoded[some] = self.encoder(torch.arange(len(some), device=some.device), inputs).to(encoded.dtype)
        return encoded


def encode_all(encoder: Encoder, around: Neighbourhood) -> Tensor:
    """The vectors of all entities: (E, width)."""
    return ExactEncoder(encoder, around)(torch.arange(len(around.entities), device=around.entities.device))


def distinct(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows (U, d) of a table (E, d), and the index of each row among them (E,).

    Rows are grouped by a hash of 64 bits, the same for 0.0 and -0.0: sorting the rows takes far longer.
    """
    random = torch.Generator().manual_seed(0)
    factors = torch.randint(torch.iinfo(torch.int64).max, (vectors.shape[1],), generator=random) | 1
    factors = factors.to(vectors.device)
    kind = torch.int64 if vectors.dtype == torch.float64 else torch.int32
    hashes = []
    for chunk in vectors.split(HASHED_AT_ONCE):
        bits = (chunk + 0.0).view(kind).long()
        mixed = bits ^ ((bits >> 32) & 0xFFFFFFFF)  # a bijection, so rows that differ have numbers that differ
        # Modulo 2⁶⁴, two such sums of random odd multiples are equal with a probability of about 2⁻⁶², which is 10⁻⁷
        # for a million rows with their 5·10¹¹ pairs: no collision is expected, and none is looked for.
        hashes.append((mixed * factors).sum(1))
    unique, indices = torch.cat(hashes).unique(return_inverse=True)
    rows = torch.arange(len(indices), device=indices.device)
    first_rows = rows.new_full((len(unique),), len(rows)).scatter_reduce(0, indices, rows, "amin")
    return vectors[first_rows], indices
