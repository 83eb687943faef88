"""What every part of the fast models is compared with: `reference.py` and its variants, with the same parameters.

`torch.func.functional_call` gives the reference the parameters of the fast part, so that gradients of both are taken
with respect to the same tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fewlink.models.fsrl import aggregator as aggregators
from fewlink.models.fsrl import encoder as encoders
from fewlink.models.fsrl import matcher as matchers
from fewlink.models.fsrl import reference
from fewlink.models.fsrl import reference_variants as variants
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood, Neighbours
from fewlink.models.fsrl.reference import Background

EXACT = {"rtol": 0.0, "atol": 1e-10}


def close(found: Tensor, expected: Tensor | float | Sequence[float], atol: float = 1e-10) -> None:
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), rtol=0.0, atol=atol)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parameters_of(module: nn.Module, seed: int) -> nn.Module:
    """The module in float64 with every parameter drawn anew, biases as well."""
    module = module.double()
    for i, parameter in enumerate(module.parameters()):
        parameter.data = normal(seed + i, *parameter.shape) / 2
    return module


def surroundings_of(
    entities: Tensor, relations: Tensor, neighbours: Sequence[Sequence[tuple[int, int]]], slots: int | None = None
) -> Neighbourhood:
    """From the (relation, entity) neighbours of each entity, padded to `slots`."""
    most = max(len(n) for n in neighbours) if slots is None else slots
    offsets = torch.tensor([0, *itertools.accumulate(len(n) for n in neighbours)])
    table = torch.tensor([*itertools.chain.from_iterable(neighbours), (0, 0)], dtype=torch.int32)
    return Neighbourhood(entities, relations, Neighbours(most, offsets, *table.T.contiguous()))


def neighbours_in(s: Neighbourhood) -> list[list[tuple[int, int]]]:
    """The (relation, entity) neighbours of each entity."""
    every = list(zip(s.neighbours.relations.tolist(), s.neighbours.entities.tolist(), strict=True))
    return [every[begin:end] for begin, end in itertools.pairwise(s.neighbours.offsets.tolist())]


def random_surroundings(seed: int, dim: int, slots: int, entities: int = 7, relations: int = 6) -> Neighbourhood:
    """Entity 0 has no neighbour and entity 1 fills every slot."""
    draw = torch.Generator().manual_seed(seed)

    def below(bound: int) -> int:
        return int(torch.randint(bound, (), generator=draw))

    counts = [0, slots, *(below(slots + 1) for _ in range(entities - 2))]
    neighbours = [[(below(relations), below(entities)) for _ in range(count)] for count in counts]
    return surroundings_of(normal(seed, entities, dim), normal(seed + 1, relations, dim), neighbours, slots)


def ask(model: FewShotModel, references: Tensor, queries: Tensor, s: Neighbourhood) -> tuple[Tensor, Tensor]:
    """Scores and reconstruction for pairs of entity ids."""
    ids, where = torch.cat([references.flatten(), queries.flatten()]).unique(return_inverse=True)
    of_references, of_queries = where.split([references.numel(), queries.numel()])
    return model(ids, of_references.view_as(references), of_queries.view_as(queries), s)


# The reference of each part: how it is made, and where its parameters are found in the fast part

ATTENTION = {"W_rt": "attention.projection", "u_rt": "attention.u"}
ENCODER = {"rnn_encoder": "recurrence.encoder"}
DECODER = {"rnn_decoder": "reconstruction.decoder"}
WEIGHED = {"W_R": "attention.projection", "u_R": "attention.u"}

REFERENCES: dict[type[nn.Module], tuple[Callable[..., nn.Module], Mapping[str, str]]] = {
    encoders.AttentiveNeighbours: (reference.NeighbourEncoder, ATTENTION),
    encoders.MeanNeighbours: (variants.MeanEncoder, {}),
    encoders.ProjectedMean: (variants.ProjectedMeanEncoder, {"W": "projection"}),
    encoders.ReleasedNeighbours: (variants.ReleasedEncoder, {"W": "projection", "u": "u"}),
    encoders.OwnAndNeighbours: (variants.OwnAndNeighboursEncoder, {**ATTENTION, "V": "own"}),
    matchers.FeedForward: (variants.FeedForwardBlock, {"W_1": "inner", "W_2": "outer", "a": "a", "b": "b"}),
    aggregators.RecurrentAutoencoder: (
        reference.RecurrentAutoencoderAggregator,
        {**ENCODER, **DECODER, **WEIGHED},
    ),
    aggregators.RecurrentWithoutAttention: (variants.WithoutAttention, {**ENCODER, **DECODER}),
    aggregators.RecurrentWithoutDecoder: (variants.WithoutDecoder, {**ENCODER, **WEIGHED}),
    aggregators.MeanPooling: (variants.MeanAggregator, {}),
    aggregators.MaxPooling: (variants.MaxAggregator, {}),
    aggregators.ReleasedReferences: (variants.ReleasedAggregator, {**ENCODER, "rnn_decoder": "decoder"}),
    matchers.RecurrentMatching: (reference.MatchingProcessor, {}),
    matchers.ZeroStartMatching: (variants.ReleasedMatcher, {}),
    matchers.InnerProduct: (variants.InnerProductMatcher, {}),
}


def parameters_for_reference(part: nn.Module) -> dict[str, Tensor]:
    """The parameters of a fast part by their names in its reference."""
    if isinstance(part, matchers.RecurrentMatching):
        return {f"rnn_match.{name}": value for name, value in whole_cell(part).items()}
    found = {}
    for theirs, mine in REFERENCES[type(part)][1].items() if type(part) in REFERENCES else ():
        for name, value in part.named_parameters():
            if name == mine:  # a vector: the reference has it as a linear map to one number, if it is not one itself
                found[theirs if theirs == mine else f"{theirs}.weight"] = value if theirs == mine else value[None]
            elif name.startswith(f"{mine}."):
                found[theirs + name.removeprefix(mine)] = value
    return found


def whole_cell(matcher: matchers.RecurrentMatching) -> dict[str, Tensor]:
    """The parameters of Eq. 8's cell, 2w units wide: the matcher's, and 0.7 for units that are never read."""

    def with_unread(read: Tensor) -> Tensor:
        gates = read.unflatten(0, (4, -1))
        return torch.cat([gates, torch.full_like(gates, 0.7)], 1).flatten(0, 1)

    bias = with_unread(matcher.bias)
    from_state = torch.cat([matcher.from_state, matcher.from_reference], 1)
    return {
        "weight_ih": with_unread(matcher.from_query),
        "weight_hh": with_unread(from_state),
        "bias_ih": bias,
        "bias_hh": torch.zeros_like(bias),
    }


def scored(name: str, model: FewShotModel, references: Tensor, queries: Tensor, s: Neighbourhood) -> Sequence[Tensor]:
    """Scores (B, Q) and reconstruction losses (B,) of references (B, K, 2) and queries (B, Q, 2) by the whole model."""
    variant = variants.VARIANTS[name]
    parts = {"encoder": model.encoder, "aggregator": model.aggregator, "matcher": model.matcher}
    if isinstance(model.pair, matchers.FeedForward):
        variant, parts["feed_forward"] = variants.with_pair_block(variant), model.pair
    whole = variant(s.dim, getattr(model.matcher, "steps", 0)).double()
    parameters = {
        f"{where}.{label}": value
        for where, part in parts.items()
        for label, value in parameters_for_reference(part).items()
    }
    found = [
        functional_call(whole, parameters, (own, asked, background_of(s)))
        for own, asked in zip(references, queries, strict=True)
    ]
    scores, losses = zip(*found, strict=True)
    return torch.stack(scores), torch.stack(losses)


def background_of(s: Neighbourhood) -> Background:
    """The same neighbours, padded with −1."""
    neighbours = torch.full((len(s.entities), s.neighbours.slots, 2), -1)
    for entity, own in enumerate(neighbours_in(s)):
        for slot, neighbour in enumerate(own):
            neighbours[entity, slot] = torch.tensor(neighbour)
    return Background(s.entities, s.relations, neighbours)


# Comparisons


def assert_same(fast: Sequence[Tensor], slow: Sequence[Tensor], leaves: Sequence[Tensor]) -> None:
    """Equal outputs, and equal gradients of a random weighting of them with respect to every leaf."""
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, **EXACT)
    weights = [normal(100 + i, *a.shape) for i, a in enumerate(fast)]
    for a, b in zip(_gradients(fast, weights, leaves), _gradients(slow, weights, leaves), strict=True):
        torch.testing.assert_close(a, b, **EXACT)


def _gradients(outputs: Sequence[Tensor], weights: Sequence[Tensor], leaves: Sequence[Tensor]) -> Sequence[Tensor]:
    total = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True))
    if not total.requires_grad:  # a constant, as the released encoding of an entity without any slot
        return [torch.zeros_like(leaf) for leaf in leaves]
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
