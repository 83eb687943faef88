"""GANA one entity, one neighbour, one reference and one false tail at a time; gradients of the step by autograd.

For an entity with the vector e and neighbours (r_i, e_i):

    c_i = LeakyReLU(W [r_i ; e_i] + b),  α = softmax_i(u·c_i),  n = Σ α_i c_i
    g = σ(v·n + a),                      e' = g n + (1 − g) e           (e' = e without neighbours)

For a relation with references (h_k, t_k), k = 1 … K, each with false tails t'_k1 … t'_kN:

    m_1 … m_K = BiLSTM([h'_1 ; t'_1] … [h'_K ; t'_K]),  q_l = the last states of layer l, forward and backward
    α_l = softmax_k(q_l·m_k),  R = W° [Σ_k α_1k m_k ; … ; Σ_k α_Lk m_k] + b°
    s(h, t) = ‖h − (w·h) w + R − (t − (w·t) w)‖,  ‖w‖ = 1
    L(S) = Σ_k (1/N) Σ_n [γ + s(h_k, t_k) − s(h_k, t'_kn)]₊
    R' = R − β ∇_R L(S),   w' = (w − β ∇_w L(S)) / ‖w − β ∇_w L(S)‖

and L(Q) is the mean of [γ + s(h, t) − s(h, t')]₊ with R' and w' over queries and their false tails.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fewlink.models.gana.model import GANA

Neighbour = tuple[int, int]  # relation, entity


def encode(model: GANA, entity: int, neighbours: Sequence[Neighbour]) -> Tensor:
    own, weights = model.around.entities[entity], model.aggregator
    if not neighbours:
        return own
    messages, logits = [], []
    for relation, other in neighbours:
        both = torch.cat([model.around.relations[relation], model.around.entities[other]])
        message = weights.projection.weight @ both + weights.projection.bias
        message = torch.where(message > 0, message, 0.01 * message)
        messages.append(message)
        logits.append((weights.attention.weight[0] * message).sum())
    total = sum(logit.exp() for logit in logits)
    summary = sum(logit.exp() / total * message for logit, message in zip(logits, messages, strict=True))
    gate = 1 / (1 + (-(weights.gate.weight[0] * summary).sum() - weights.gate.bias[0]).exp())
    return gate * summary + (1 - gate) * own


def lstm(model: GANA, inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs m_k of the last layer, and q_l of each layer."""
    parameters, lasts = dict(model.relation_learner.lstm.named_parameters()), []
    for layer in range(model.relation_learner.lstm.num_layers):
        directions = []
        for suffix, order in (("", inputs), ("_reverse", inputs[::-1])):
            into, back, bias, more = (
                parameters[f"{name}_l{layer}{suffix}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            state = cell = torch.zeros(back.shape[1], dtype=back.dtype)
            outputs = []
            for x in order:
                entered, kept, new, shown = (into @ x + bias + back @ state + more).chunk(4)
                cell = kept.sigmoid() * cell + entered.sigmoid() * new.tanh()
                state = shown.sigmoid() * cell.tanh()
                outputs.append(state)
            directions.append(outputs if not suffix else outputs[::-1])
        forward, backward = directions
        lasts.append(torch.cat([forward[-1], backward[0]]))
        inputs = [torch.cat(states) for states in zip(forward, backward, strict=True)]
    return inputs, lasts


def relation(model: GANA, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    states, lasts = lstm(model, [torch.cat(pair) for pair in pairs])
    contexts = []
    for last in lasts:
        powers = [(last * state).sum().exp() for state in states]
        contexts.append(sum(p / sum(powers) * state for p, state in zip(powers, states, strict=True)))
    return model.relation_learner.output.weight @ torch.cat(contexts) + model.relation_learner.output.bias


def distance(head: Tensor, tail: Tensor, relation: Tensor, normal: Tensor) -> Tensor:
    head, tail = (vector - (normal * vector).sum() * normal for vector in (head, tail))
    return ((head + relation - tail) ** 2).sum().sqrt()


def hinges(
    model: GANA, pairs: Sequence[Sequence[int]], false: Sequence[Sequence[int]], relation: Tensor, normal: Tensor
) -> Tensor:
    """Σ over pairs of the mean over their false tails."""
    loss, vectors = torch.zeros((), dtype=relation.dtype), model.entities
    for (head, tail), others in zip(pairs, false, strict=True):
        for other in others:
            near, far = (distance(vectors[head], vectors[end], relation, normal) for end in (tail, other))
            loss = loss + (model.margin + near - far).clamp_min(0) / len(others)
    return loss


def moved(
    model: GANA,
    references: Sequence[Sequence[int]],
    false: Sequence[Sequence[int]],
    neighbours: Sequence[Sequence[Neighbour]],
) -> tuple[Tensor, Tensor]:
    """R' and w'."""
    found = relation(model, [tuple(encode(model, e, neighbours[e]) for e in pair) for pair in references])  # type: ignore[misc]
    normal = model.normal / (model.normal**2).sum().sqrt()
    loss = hinges(model, references, false, found, normal)
    if loss.item() > 0:
        slopes = torch.autograd.grad(loss, [found, normal], create_graph=True)
        found, normal = found - model.beta * slopes[0], normal - model.beta * slopes[1]
    return found, normal / (normal**2).sum().sqrt()


def query_loss(
    model: GANA, queries: Sequence[Sequence[int]], false: Sequence[Sequence[int]], at: tuple[Tensor, Tensor]
) -> Tensor:
    return hinges(model, queries, false, *at) / len(queries)
