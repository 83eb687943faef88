"""Adaptation of FSRL to the references of a relation: first-order MAML (Finn et al. 2017) and ANIL (Raghu et al. 2020).

Each of the K references is held out in turn and scored, with M false tails, given the other references. A gradient step
on the mean loss gives the parameters that answer the queries: θ' = θ − α ∇L(θ). Training minimises the loss of the
queries under θ', with the derivative of θ' by θ taken as the identity. MAML adapts all parameters, ANIL only those of
the matcher. A single reference cannot be held out: with K = 1 nothing is adapted.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.models.contract import Question, Reasons
from fewlink.models.fsrl.compositions import COMPOSITIONS
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.objective import LOSSES
from fewlink.models.fsrl.scorer import FewShotScorer
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.tasks.candidates import open_candidates

# Scores held-out references and their false tails (…, K, 1 + M) with these parameters.
HeldOutScores = Callable[[Mapping[str, Tensor]], Tensor]


def held_out(shots: int, negatives: int, device: str | torch.device) -> tuple[Tensor, Tensor]:
    """The episodes in which each reference is held out: references (K, K − 1, 2) and pairs (K, 1 + M, 2).

    Both are positions among the heads and tails of the K references, followed by the M false tails of each.
    """
    own, false = torch.arange(shots * (2 + negatives), device=device).split([2 * shots, shots * negatives])
    references = own.view(shots, 2)
    false = false.view(shots, negatives)
    others = [[j for j in range(shots) if j != i] for i in range(shots)]
    heads = references[:, :1].expand_as(false)
    pairs = torch.cat([references.unsqueeze(1), torch.stack([heads, false], -1)], 1)
    return references[torch.tensor(others, dtype=torch.long, device=device)], pairs


def adapted(
    parameters: Mapping[str, Tensor], scores_of: HeldOutScores, settings: FewShotSettings, prefix: str = ""
) -> dict[str, Tensor]:
    """The parameters after the gradient steps of a composition, by name; `prefix` comes before the model's own names.

    Every leading index of the parameters is a model of its own. The steps themselves are constants to a later gradient.
    """
    starts = tuple(prefix + start for start in COMPOSITIONS[settings.model].adapts)
    values = dict(parameters)
    names = [name for name in values if name.startswith(starts)]
    for _ in range(settings.adaptation_steps):
        with torch.enable_grad():
            scores = scores_of(values) / settings.temperature
            losses = LOSSES[settings.loss](
                scores[..., 0].flatten(0, -2), scores[..., 1:].flatten(0, -3), settings.margin
            )
            steps = torch.autograd.grad(losses.sum(), [values[name] for name in names], allow_unused=True)
            for name, step in zip(names, steps, strict=True):
                if step is not None:
                    values[name] = values[name] - settings.adaptation_rate * step
    return values


class AdaptingScorer:
    """A trained model that adapts to the references of each question.

    False tails are drawn from the entities that share a type or a relation slot with the tail of a reference, so that
    a score does not depend on the other heads and candidates. The last adapted model is kept.
    """

    def __init__(self, scorer: FewShotScorer, graph: Graph, settings: FewShotSettings) -> None:
        self.name = scorer.name
        self.capabilities = scorer.capabilities
        self.scorer = scorer
        self.graph = graph
        self.settings = settings
        self._last: tuple[bytes, FewShotScorer] = b"", scorer

    def __call__(self, question: Question) -> Tensor:
        return self._adapted_to(question.references)(question)

    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """The vectors (n, w) of pairs (n, 2) as the model compares them with the references (K, 2)."""
        return self._adapted_to(references).pair_vectors(references, pairs)

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """The attention for one pair: β of the references (K, 2), and α of the neighbours of head and tail."""
        return self._adapted_to(references).explain(references, head, tail, most)

    def _adapted_to(self, references: np.ndarray) -> FewShotScorer:
        if len(references) < 2:
            return self.scorer
        key = references.tobytes()
        if self._last[0] != key:
            model = adapted_model(self.scorer.model, self.scorer.around, self._ids(references), self.settings)
            self._last = key, self.scorer.with_model(model)
        return self._last[1]

    def _ids(self, references: np.ndarray) -> Tensor:
        """The heads and tails of the references (K, 2), then M false tails of each: (2K + KM,)."""
        tails = {int(head): references[references[:, 0] == head, 1] for head in references[:, 0]}
        likely = open_candidates(self.graph, references)
        everything = np.arange(len(self.graph.entities))
        false = []
        for place, head in enumerate(references[:, 0].tolist()):
            pool = np.setdiff1d(likely, tails[head])
            pool = pool if len(pool) else np.setdiff1d(everything, tails[head])
            random = generator(self.settings.seed, "adaptation", place, references.tolist())
            false.append(random.choice(pool, self.settings.adaptation_negatives))
        ids = np.concatenate([references.flatten(), *false]).astype(np.int64)
        return torch.from_numpy(ids).to(self.scorer.around.relations.device)


def adapted_model(model: FewShotModel, around: Neighbourhood, ids: Tensor, settings: FewShotSettings) -> FewShotModel:
    """A copy of a model that is adapted to references; `ids` as in `held_out`."""
    shots = len(ids) // (2 + settings.adaptation_negatives)
    references, pairs = held_out(shots, settings.adaptation_negatives, ids.device)
    parameters = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}

    def scores_of(values: Mapping[str, Tensor]) -> Tensor:
        scores: Tensor = functional_call(model, dict(values), (ids, references, pairs, around))[0]
        return scores.unsqueeze(0)

    values = adapted(parameters, scores_of, settings)
    result = copy.deepcopy(model)
    result.load_state_dict({name: value.detach() for name, value in values.items()}, strict=True)
    return result


def adapts(model: str) -> Sequence[str]:
    """The beginnings of the names of the parameters that a model adapts to the references; empty for most models."""
    return COMPOSITIONS[model].adapts
