"""Families that read vectors pretrained on a benchmark, and fold-in of vectors for entities that are added later.

Pretraining never sees a dev or test pair. Fold-in needs no training: an interaction predicts a tail from a head and a
relation, as q = h + r for TransE and q = h ⊙ r for ComplEx. A new entity gets the mean prediction of its edges in both
directions. If scores are inner products, which predict a direction only, it is scaled to the mean length of the old
vectors. Old vectors do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.files import exists, locked, remove
from fewlink.core.recipes import PER_RUN_SETTINGS, Vectors, recipe
from fewlink.graph import Graph
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.embeddings.table import check_fits
from fewlink.models.family import PretrainedVectors, Reporter, SettingsT, TrainedFamily
from fewlink.tasks.benchmark import Benchmark, training_triples

SWEEPS = 3  # more than one, to reach new entities whose neighbours are all new
BY_DISTANCE = "transe"


class OneTableFamily(TrainedFamily[SettingsT]):
    """Models that read one table of vectors, pretrained on the triples of a benchmark.

    knows_seen_references  whether the models' scorers declare that their vectors have seen references of dev and test
    """

    reads_vectors = True
    knows_seen_references: ClassVar[bool] = False

    def vectors_name(self, settings: SettingsT, wanted: Vectors, benchmark: Benchmark) -> str:
        with_train = "-with-train" if wanted.with_train_tasks else ""
        with_references = f"-with-{wanted.with_references}-references" if wanted.with_references else ""
        name = f"{wanted.recipe}{with_train}{with_references}-vectors"
        return "-".join([name, *wanted.set, benchmark.fingerprint[:8]]).replace("=", "-")

    def pretrain(
        self,
        benchmark: Benchmark,
        settings: SettingsT,
        wanted: Vectors,
        folder: Path,
        on_epoch: Callable[[str], Reporter] | None = None,
    ) -> None:
        of_recipe = recipe(wanted.recipe, EmbeddingSettings).settings
        pretraining = of_recipe.replace(seed=0, device=settings.device).adjusted(wanted.set)
        pretrain(
            benchmark,
            pretraining,
            out=folder,
            with_train_tasks=wanted.with_train_tasks,
            with_references=wanted.with_references,
            any_seed=True,
            on_epoch=on_epoch(f"{pretraining.model} vectors") if on_epoch else None,
        )

    def open_vectors(self, folder: Path, fingerprint: str | None = None) -> Embeddings:
        return Embeddings.open(folder, fingerprint)

    def check_vectors(self, benchmark: Benchmark, vectors: PretrainedVectors) -> None:
        if not isinstance(vectors, Embeddings):
            raise FewlinkError(
                f"{self.name} models need one table of vectors: train an embedding model, such as complex"
            )
        check_fits(vectors, len(benchmark.graph.entities), len(benchmark.graph.relations))
        tasks_seen = vectors.facts.get("with_train_tasks") or references_seen(vectors)
        if tasks_seen and vectors.facts.get("benchmark") != benchmark.fingerprint:
            raise FewlinkError(
                f"the vectors were trained with task relations of a benchmark other than {benchmark.name} and may "
                f"have seen its answers: pretrain on {benchmark.name}"
            )
        if references_seen(vectors) and not self.knows_seen_references:
            raise FewlinkError(
                f"the vectors were trained with references of dev and test relations, which {self.name} models do not "
                "take: pretrain them without"
            )

    def fold_in(self, vectors: Embeddings, benchmark: Benchmark, entities: int, relations: int) -> Embeddings:
        return fold_in(vectors, benchmark.graph, entities, relations, len(benchmark.graph.relations) - relations)


def references_seen(vectors: Embeddings) -> int:
    """The number of pairs of each dev and test relation that the vectors were trained on."""
    return int(vectors.facts.get("with_references", 0))


def pretrain(
    benchmark: Benchmark,
    settings: EmbeddingSettings | None = None,
    *,
    out: Path | str,
    with_train_tasks: bool = False,
    with_references: int = 0,
    any_seed: bool = False,
    on_epoch: Reporter | None = None,
) -> Embeddings:
    """Train embeddings on the background into a folder, by default with the settings of the recipe `complex`.

    with_train_tasks  also train on the train relations
    with_references   also train on this many pairs of each dev and test relation, the first ones
    any_seed          whether vectors of another seed, which the folder may have, will do

    Interrupted training continues from its last epoch. A folder that has the vectors already is opened.
    """
    from fewlink.models.embeddings.trainer import train

    folder = Path(out)
    settings = settings or recipe("complex", EmbeddingSettings).settings
    facts = {"benchmark": benchmark.fingerprint, "source": benchmark.source, "with_train_tasks": with_train_tasks}
    if with_references:
        facts["with_references"] = with_references
    state = folder.with_name(f".{folder.name}.state")
    busy = f"{folder} is being trained by another process: wait for it, or choose another folder"
    if exists(folder):
        vectors = Embeddings.open(folder, benchmark.graph.fingerprint)
        _check_trained_so(folder, vectors, settings, facts, any_seed)
        remove(state)  # left by a process that was killed after saving
        return vectors
    with locked(folder, busy):
        data = training_triples(benchmark, with_train_tasks=with_train_tasks, shots=with_references)
        sizes = len(benchmark.graph.entities), len(data.relations)
        vectors = train(data.triples, *sizes, settings, resume=state, on_epoch=on_epoch)
        vectors.facts.update(facts)
        vectors.save(folder, benchmark.graph.fingerprint, graph=benchmark.name, relation_names=data.relations)
        remove(state)
    return vectors


def _check_trained_so(
    folder: Path, vectors: Embeddings, settings: EmbeddingSettings, facts: Mapping[str, Any], any_seed: bool
) -> None:
    """Raise if a folder has vectors that were trained with other settings or on other triples."""
    free = PER_RUN_SETTINGS if any_seed else ("device",)
    seen = {"with_train_tasks": False, "with_references": 0, **facts}
    if not seen["with_train_tasks"] and not seen["with_references"]:
        del seen["benchmark"]  # the background is all that they were trained on
    del seen["source"]
    same_settings = all(vectors.settings.get(k) == value for k, value in settings.as_dict().items() if k not in free)
    if not same_settings or any(vectors.facts.get(name, value) != value for name, value in seen.items()):
        raise FewlinkError(
            f"{folder} has {vectors.model} vectors with other settings or of another benchmark: remove or rename the "
            "folder, or give --embeddings"
        )


def fold_in(table: Embeddings, graph: Graph, entities: int, relations: int, later: int) -> Embeddings:
    """Extend a table to a graph that had `entities` entities and `relations` relations, and has `later` new relations.

    The rows of task relations, which follow those of the background, stay last.
    """
    table = table.single_precision()
    triples = torch.from_numpy(graph.triples().astype(np.int64))
    kinds = _folded_relations(table, triples, entities, relations, later)
    more = len(graph.entities) - entities
    vectors = torch.cat([table.entities, table.entities.mean(0, keepdim=True).expand(more, -1)])
    if more:
        vectors = _folded_entities(replace(table, entities=vectors, relations=kinds), triples, entities)
    facts = {**table.facts, "grown": {"entities": more, "relations": later}}
    return replace(table, entities=vectors, relations=kinds, facts=facts)


def _folded_entities(table: Embeddings, triples: Tensor, old: int) -> Tensor:
    """The vectors (E, d), where those from `old` on are predicted by their edges (n, 3)."""
    rule = table.interaction
    vectors = table.entities.clone()
    placed = torch.arange(len(vectors)) < old
    length = vectors[:old].norm(dim=1).mean()
    heads, kinds, tails = triples.T
    forward, backward = table.relations.chunk(2)
    ways = [(heads, rows[kinds], tails) for rows in (forward, rule.inverse(backward))]
    ways += [(tails, rows[kinds], heads) for rows in (backward, rule.inverse(forward))]
    for _ in range(SWEEPS):
        total = torch.zeros_like(vectors)
        count = vectors.new_zeros(len(vectors))
        for known, rows, new in ways:
            used = placed[known] & (new >= old)
            total.index_add_(0, new[used], rule.query(vectors[known[used]], rows[used]))
            count.index_add_(0, new[used], count.new_ones(int(used.sum())))
        reached = count > 0
        means = total[reached] / count[reached].unsqueeze(1)
        if table.model != BY_DISTANCE:
            means = means / means.norm(dim=1, keepdim=True).clamp_min(1e-12) * length
        vectors[reached] = means
        placed = placed | reached
    return vectors


def _folded_relations(table: Embeddings, triples: Tensor, entities: int, old: int, later: int) -> Tensor:
    """The rows of relations, with `later` new ones after the first `old`, in both directions."""
    forward, backward = table.relations.chunk(2)
    known = triples[(triples[:, [0, 2]] < entities).all(1)]
    rows = [_folded_relation(table, known[known[:, 1] == number]) for number in range(old, old + later)]
    new = torch.stack(rows) if rows else forward[:0]
    inverse = table.interaction.inverse(new)
    return torch.cat([forward[:old], new, forward[old:], backward[:old], inverse, backward[old:]])


def _folded_relation(table: Embeddings, triples: Tensor) -> Tensor:
    """The row of a new relation from its pairs of old entities: the mean offset, or the mean of t ⊙ conj(h)."""
    if not len(triples) or table.model not in (BY_DISTANCE, "complex", "distmult"):
        return table.relations.mean(0)
    heads = table.entities[triples[:, 0]]
    tails = table.entities[triples[:, 2]]
    joined: Tensor = table.interaction.query(tails, table.interaction.inverse(heads)).mean(0)  # t − h, or t ⊙ conj(h)
    if table.model == BY_DISTANCE:
        return joined
    length = float(table.relations.norm(dim=1).mean() / joined.norm().clamp_min(1e-12))
    return length * joined
