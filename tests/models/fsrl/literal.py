"""The equations as plain loops: one neighbour, one reference, one pair at a time, nothing shared or saved.

Each function takes a module for its parameters alone. `f`, `m`, `d`, `g` are the paper's letters; what is called
released is what the authors' program computes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood, Neighbours

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


def has_any(s: Neighbourhood) -> Tensor:
    """Which entities have a neighbour: (E,)."""
    return torch.tensor([bool(own) for own in neighbours_in(s)])


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


# Encoders: Eq. 2 and its replacements


def around(entity: int, s: Neighbourhood) -> Iterator[tuple[Tensor, Tensor]]:
    """The vectors (e_r, e_t) of each real neighbour."""
    for relation, other in neighbours_in(s)[entity]:
        yield s.relations[relation], s.entities[other]


def attended(part: nn.Module, entity: int, s: Neighbourhood) -> Tensor | None:
    """Σ_i α_i e_ti, and nothing where there is no neighbour."""
    u, W, b = part.u, part.projection.weight, part.projection.bias
    powers, tails = [], []
    for e_r, e_t in around(entity, s):
        powers.append(torch.exp(u @ (W @ torch.cat([e_r, e_t]) + b)))
        tails.append(e_t)
    return sum(power / sum(powers) * e_t for power, e_t in zip(powers, tails, strict=True)) if tails else None


def attentive_neighbours(encoder: nn.Module, entity: int, s: Neighbourhood) -> Tensor:
    summary = attended(encoder.attention, entity, s)
    return torch.tanh(s.entities[entity] if summary is None else summary)


def own_and_neighbours(encoder: nn.Module, entity: int, s: Neighbourhood) -> Tensor:
    summary = attended(encoder.attention, entity, s)
    own = encoder.own.weight @ s.entities[entity] + encoder.own.bias
    return torch.tanh(torch.cat([own, torch.zeros_like(own) if summary is None else summary]))


def mean_neighbours(encoder: nn.Module, entity: int, s: Neighbourhood) -> Tensor:
    tails = [e_t for _, e_t in around(entity, s)]
    return torch.tanh(sum(tails) / len(tails) if tails else s.entities[entity])


def projected_mean(encoder: nn.Module, entity: int, s: Neighbourhood) -> Tensor:
    W, b = encoder.projection.weight, encoder.projection.bias
    projected = [W @ torch.cat([e_r, e_t]) + b for e_r, e_t in around(entity, s)]
    return torch.tanh(sum(projected) / len(projected) if projected else s.entities[entity])


def released_neighbours(encoder: nn.Module, entity: int, s: Neighbourhood) -> Tensor:
    """Attention over all slots; where there is no neighbour, both vectors are zero."""
    W, b, u, c = encoder.projection.weight, encoder.projection.bias, encoder.u.weight[0], encoder.u.bias[0]
    zero = torch.zeros(s.dim, dtype=s.entities.dtype)
    real, powers, tails = list(around(entity, s)), [], []
    for slot in range(s.neighbours.most):
        e_r, e_t = real[slot] if slot < len(real) else (zero, zero)
        powers.append(torch.exp(u @ torch.tanh(W @ torch.cat([e_r, e_t]) + b) + c))
        tails.append(e_t)
    return torch.tanh(sum((power / sum(powers) * e_t for power, e_t in zip(powers, tails, strict=True)), zero))


# Pair encoders: f(h) and f(t), (d,) each, to E_{h,t} (2d,)


def concatenation(pair: nn.Module, head: Tensor, tail: Tensor) -> Tensor:
    return torch.stack([*head, *tail])


def feed_forward(pair: nn.Module, head: Tensor, tail: Tensor) -> Tensor:
    x = torch.stack([*head, *tail])
    inner = [torch.clamp(row @ x + b, min=0) for row, b in zip(pair.inner.weight, pair.inner.bias, strict=True)]
    outer = [row @ torch.stack(inner) + b for row, b in zip(pair.outer.weight, pair.outer.bias, strict=True)]
    y = [x_i + added for x_i, added in zip(x, outer, strict=True)]
    mean = sum(y) / len(y)
    deviation = (sum((y_i - mean) ** 2 for y_i in y) / (len(y) - 1)) ** 0.5
    return torch.stack(
        [a * (y_i - mean) / (deviation + 0.001) + b for y_i, a, b in zip(y, pair.a, pair.b, strict=True)]
    )


# Aggregators: Eqs. 4 to 7 and their replacements; from K pairs (2d,) to M vectors (2d,) and the reconstruction loss

Summarised = tuple[list[Tensor], Tensor]
NOTHING = torch.zeros((), dtype=torch.float64)


def lstm(x: Tensor, h: Tensor, c: Tensor, W: Tensor, U: Tensor, b: Tensor, b_: Tensor) -> tuple[Tensor, Tensor]:
    """One step of an LSTM whose gates i, f, g, o lie below each other in the parameters."""
    n = len(c)

    def gate(k: int) -> Tensor:
        rows = slice(k * n, (k + 1) * n)
        return W[rows] @ x + b[rows] + U[rows] @ h + b_[rows]

    i, f, g, o = torch.sigmoid(gate(0)), torch.sigmoid(gate(1)), torch.tanh(gate(2)), torch.sigmoid(gate(3))
    c = f * c + i * g
    return o * torch.tanh(c), c


def run_encoder(aggregator: nn.Module, pairs: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """m_1 … m_K and the last cell state."""
    rnn = aggregator.recurrence.encoder
    weights = rnn.weight_ih, rnn.weight_hh, rnn.bias_ih, rnn.bias_hh
    h = c = torch.zeros_like(pairs[0])
    m = []
    for pair in pairs:
        h, c = lstm(pair, h, c, *weights)
        m.append(h)
    return m, c


def run_decoder(aggregator: nn.Module, m_K: Tensor, c_K: Tensor, pairs: Sequence[Tensor]) -> Tensor:
    """Eq. 6: Σ_k ‖d_k − E_k‖², where m_K gives d_K, d_K gives d_{K-1} and so on down to d_1."""
    rnn = aggregator.reconstruction.decoder
    weights = rnn.weight_ih, rnn.weight_hh, rnn.bias_ih, rnn.bias_hh
    loss, x, h, c = NOTHING, m_K, m_K, c_K
    for pair in reversed(pairs):
        h, c = lstm(x, h, c, *weights)
        loss = loss + ((h - pair) ** 2).sum()
        x = h
    return loss


def attend(aggregator: nn.Module, hidden: Sequence[Tensor]) -> Tensor:
    """Eq. 7: Σ_k β_k m'_k."""
    u, W, b = aggregator.attention.u, aggregator.attention.projection.weight, aggregator.attention.projection.bias
    powers = [torch.exp(u @ (W @ m + b)) for m in hidden]
    return sum(power / sum(powers) * m for power, m in zip(powers, hidden, strict=True))


def recurrent_autoencoder(aggregator: nn.Module, pairs: Sequence[Tensor]) -> Summarised:
    m, c = run_encoder(aggregator, pairs)
    residual = [m_k + pair for m_k, pair in zip(m, pairs, strict=True)]
    return [attend(aggregator, residual)], run_decoder(aggregator, m[-1], c, pairs)


def recurrent_without_attention(aggregator: nn.Module, pairs: Sequence[Tensor]) -> Summarised:
    m, c = run_encoder(aggregator, pairs)
    mean = sum(m_k + pair for m_k, pair in zip(m, pairs, strict=True)) / len(pairs)
    return [mean], run_decoder(aggregator, m[-1], c, pairs)


def recurrent_without_decoder(aggregator: nn.Module, pairs: Sequence[Tensor]) -> Summarised:
    m, _ = run_encoder(aggregator, pairs)
    return [attend(aggregator, [m_k + pair for m_k, pair in zip(m, pairs, strict=True)])], NOTHING


def mean_pooling(aggregator: nn.Module, pairs: Sequence[Tensor]) -> Summarised:
    return [sum(pairs) / len(pairs)], NOTHING


def max_pooling(aggregator: nn.Module, pairs: Sequence[Tensor]) -> Summarised:
    return [torch.stack([max(pair[i] for pair in pairs) for i in range(len(pairs[0]))])], NOTHING


def every_reference(aggregator: nn.Module, pairs: Sequence[Tensor]) -> Summarised:
    return list(pairs), NOTHING


def released_references(aggregator: nn.Module, pairs: Sequence[Tensor]) -> Summarised:
    """Every attention weight is 1; the decoder's outputs are held against the references in the order they come."""
    rnn = aggregator.decoder
    weights = rnn.weight_ih, rnn.weight_hh, rnn.bias_ih, rnn.bias_hh
    m, c = run_encoder(aggregator, pairs)
    loss, d = NOTHING, m[-1]
    for pair in pairs:
        d, c = lstm(d, d, c, *weights)
        loss = loss + ((d.detach() - pair) ** 2).sum()
    return [sum(m_k + pair for m_k, pair in zip(m, pairs, strict=True))], loss / (len(pairs) * len(pairs[0]))


# Matchers: Eq. 8 and its replacements; a query (2d,) against M vectors (2d,) is the best of M scores


def whole_cell(matcher: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The parameters of Eq. 8's cell, 2w units wide: what the matcher has, and anything for units that are not read."""

    def with_unread(read: Tensor) -> Tensor:
        gates = read.unflatten(0, (4, -1))
        return torch.cat([gates, torch.full_like(gates, 0.7)], 1).flatten(0, 1)

    U = torch.cat([matcher.from_state, matcher.from_reference], 1)
    b = with_unread(matcher.bias)
    return with_unread(matcher.from_query), with_unread(U), b, torch.zeros_like(b)


def recurrent_matching(matcher: nn.Module, query: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    weights = whole_cell(matcher)
    scores = []
    for f_R in vectors:
        g, c = torch.zeros_like(query), torch.zeros(2 * len(query), dtype=query.dtype)
        for _ in range(matcher.steps):
            h, c = lstm(query, torch.cat([g, f_R]), c, *weights)
            g = h[: len(query)] + query
        scores.append(g @ f_R)
    return max(scores)


def zero_start_matching(matcher: nn.Module, query: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    weights = whole_cell(matcher)
    scores = []
    for f_R in vectors:
        s = c = torch.zeros(2 * len(query), dtype=query.dtype)
        for _ in range(matcher.steps):
            h, c = lstm(query, s, c, *weights)
            g = query + h[: len(query)]
            s = torch.cat([g, f_R])
        scores.append(g @ f_R)
    return max(scores)


def inner_product(matcher: nn.Module, query: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    return max(query @ f_R for f_R in vectors)


# The whole model, pair by pair

PARTS = {
    "AttentiveNeighbours": attentive_neighbours,
    "OwnAndNeighbours": own_and_neighbours,
    "MeanNeighbours": mean_neighbours,
    "ProjectedMean": projected_mean,
    "ReleasedNeighbours": released_neighbours,
    "Concatenation": concatenation,
    "FeedForward": feed_forward,
    "RecurrentAutoencoder": recurrent_autoencoder,
    "RecurrentWithoutAttention": recurrent_without_attention,
    "RecurrentWithoutDecoder": recurrent_without_decoder,
    "MeanPooling": mean_pooling,
    "MaxPooling": max_pooling,
    "EveryReference": every_reference,
    "ReleasedReferences": released_references,
    "RecurrentMatching": recurrent_matching,
    "ZeroStartMatching": zero_start_matching,
    "InnerProduct": inner_product,
}


def literal(part: nn.Module, *inputs: object) -> Tensor | Summarised:
    """What this part's equation gives."""
    return PARTS[type(part).__name__](part, *inputs)


def score(model: FewShotModel, references: Sequence[Sequence[int]], query: Sequence[int], s: Neighbourhood) -> Tensor:
    return literal(model.matcher, embed(model, query, s), summary(model, references, s)[0])


def summary(model: FewShotModel, references: Sequence[Sequence[int]], s: Neighbourhood) -> Summarised:
    return literal(model.aggregator, [embed(model, pair, s) for pair in references])


def embed(model: FewShotModel, pair: Sequence[int], s: Neighbourhood) -> Tensor:
    """E_{h,t} from f(h) and f(t)."""
    return literal(model.pair, *(literal(model.encoder, int(entity), s) for entity in pair))


# Comparisons


def places(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every index into the leading dimensions."""
    return itertools.product(*(range(n) for n in shape))


def gathered(shape: Sequence[int], entries: Sequence[Tensor]) -> Tensor:
    """One tensor from what each place gave, in the order of `places`."""
    return torch.stack(list(entries)).reshape((*shape, *entries[0].shape))


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
