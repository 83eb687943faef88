"""Which entities are of the same kind as some given ones, by their types or by the relations that they have."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fewlink.graph import Graph
from fewlink.graph.groups import Groups
from fewlink.graph.types import RDF_TYPE

PRIOR_ENTITIES = 10  # entities with average features that count beside the given ones
TYPICAL = 0.05  # the share of the given ones that may be less typical than every chosen entity


def of_kind(graph: Graph, ids: np.ndarray, ignored: int = -1) -> np.ndarray:
    """Whether each entity (n,) is of the same kind as `ids`; these always are.

    Let q be the share of all entities that have a feature, and p the share of `ids`, with `PRIOR_ENTITIES` average
    entities added. An entity is of their kind if Σ log(p / q) over its types exceeds log 2, and it is not if the sum is
    negative. In between, types say too little, and naive Bayes decides by relation slots, except the slot `ignored`:
    it shares a slot with one of `ids`, and Σ log(p / q) over those it has, plus Σ log((1 - p) / (1 - q)) over those it
    lacks, exceeds -log 2 or reaches that of nearly all `ids`.
    """
    ids = np.unique(ids)
    entities = len(graph.entities)
    if not len(ids):
        return np.zeros(entities, bool)
    stated = graph.relations.find(RDF_TYPE) if graph.types is not None else None
    slots = [slot for slot in range(2 * len(graph.relations)) if slot not in (ignored, stated)]
    had, p, q = _shares(graph.slots, ids, entities)
    present = np.log(p / q)
    absent = np.log((1 - p) / (1 - q))
    likeness = absent[slots].sum() + _sum_of_features(graph.slots, slots, present - absent, entities)
    shares_slot = _sum_of_features(graph.slots, slots, had > 0, entities) > 0
    same: np.ndarray = shares_slot & (likeness >= min(-np.log(2), np.quantile(likeness[ids], TYPICAL)))
    if graph.types is not None:
        _, p, q = _shares(graph.types.groups, ids, entities)
        by_types = _sum_of_features(graph.types.groups, range(len(q)), np.log(p / q), entities)
        same = (same & (by_types > -1e-9)) | (by_types > np.log(2))
    same[ids] = True
    return same


def _shares(features: Groups, ids: np.ndarray, entities: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many of `ids` have each feature, and the shares p and q, which lie strictly between 0 and 1; all (f,)."""
    sizes = np.diff(features.offsets)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    had = np.bincount(owners[np.isin(features.members, ids)], minlength=len(sizes))
    q = np.clip(sizes / entities, 0.5 / entities, 1 - 0.5 / entities)
    return had, (had + PRIOR_ENTITIES * q) / (len(ids) + PRIOR_ENTITIES), q


def _sum_of_features(features: Groups, chosen: Iterable[int], weights: np.ndarray, entities: int) -> np.ndarray:
    """The sum of the weights (f,) of the chosen features that each entity (n,) has."""
    counted = np.zeros(len(weights))
    counted[list(chosen)] = weights[list(chosen)]
    return np.bincount(features.members, np.repeat(counted, np.diff(features.offsets)), minlength=entities)
