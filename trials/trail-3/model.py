"""TRAIL 3's network: any number of references, one or two streams, the asked relation as a node, names."""
from __future__ import annotations
import math
from typing import NamedTuple
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, relu

HOPS = ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0))
RELATION_FEATURES = 3 * len(HOPS) + 2 + 5 + 1 + 3  # walks, around, sizes, shots, flags (same, contain, new)
FACTS = 9
TASK_FEATURES = FACTS + 3
COSINES = 9
EPS = 1e-5
_kernels = {"use": True}


class Tasks(NamedTuple):
    """L tasks of one graph. P pairs (padded) with E = 2P distinct ends; S of them sampled for walks."""
    ends: Tensor  # (L, E) entities
    marks: Tensor  # (L, 2, E) 1 where the end is a head, a tail of a reference
    pairs: Tensor  # (L, P, 2) places in ends
    fans: Tensor  # (L, P, 2) one over fan-out, fan-in among the references; 0 for padding
    mask: Tensor  # (L, P)
    sample: Tensor  # (L, S) places in pairs
    sampled: Tensor  # (L, S) 1, or 0 for padding
    around: Tensor  # (L, 2, M) share of references whose head, whose tail has a relation
    cover: Tensor  # (L, 2, M) share of a relation's entities that are heads, tails of references
    selfs: Tensor  # (L, 2, 2)
    sizes: Tensor  # (L, 2, 5) of the new relation and its inverse
    facts: Tensor  # (L, FACTS)
    visible: Tensor  # (L, M)
    named: Tensor  # (L,) 1 where names may be read
    heads: Tensor  # (L, Q)
    candidates: Tensor  # (L, C)


def wide(x):
    return x if x.dtype == torch.float64 else x.float()


def kernels_for(x):
    if not (x.is_cuda and _kernels["use"]):
        return None
    import kernels
    return kernels


POWERS = {4: ((1, 0), (0, 1), (.5, .5), (0, 0)), 2: ((1, 0), (0, 1))}


def constants(out, into, width, blocks):
    """(…,) fans -> (…, width)"""
    parts = [out ** a * into ** b for a, b in POWERS[blocks]]
    return torch.stack(parts, -1).repeat_interleave(width // blocks, -1)


def row_sums(order, x, w, nodes, blocks):
    if (k := kernels_for(x)) is not None:
        return k.row_sums(order, x, w, nodes, blocks)
    c = constants(order.fan_out, order.fan_in, x.shape[-1], blocks).to(x.dtype)  # (e, W)
    m = x[order.first.long()] * (w[:, order.second.long()].transpose(0, 1) * c[:, None])[:, :, None]
    return torch.zeros_like(x).index_add(0, order.row.long(), m)


def relation_sums(order, x, y, relations, blocks):
    if (k := kernels_for(x)) is not None:
        return k.relation_sums(order, x, y, relations, blocks)
    c = constants(order.fan_out, order.fan_in, x.shape[-1], blocks).to(x.dtype)
    m = (x[order.first.long()] * y[order.second.long()]).sum(2) * c[:, None]
    return x.new_zeros(relations, *m.shape[1:]).index_add(0, order.row.long(), m).transpose(0, 1)


class Extra(NamedTuple):
    """References as edges: rows (L·E,) of flattened states; places of sources and targets (2·L·P,) among the rows."""
    rows: Tensor
    sources: Tensor
    targets: Tensor


def extra_of(tasks: Tasks) -> Extra:
    L, E = tasks.ends.shape
    task = torch.arange(L, device=tasks.ends.device)
    rows = (tasks.ends * L + task[:, None]).flatten()
    at = tasks.pairs + (task * E)[:, None, None]
    h, t = at[..., 0].flatten(), at[..., 1].flatten()
    return Extra(rows, torch.cat([h, t]), torch.cat([t, h]))


def extra_constants(tasks: Tasks, width: int, blocks: int) -> Tensor:
    """(2, L, P, width), 0 for padding."""
    o, i = tasks.fans.unbind(-1)
    both = torch.stack([constants(o, i, width, blocks), constants(i, o, width, blocks)])
    return both * tasks.mask[None, :, :, None]


def add_extra(sums: Tensor, x: Tensor, extra: Extra, weights: Tensor, back: bool = False) -> Tensor:
    """sums[target] += x[source] · weights, in float32; rows of x and sums flattened (n·L, Q, W)."""
    s, t = (extra.targets, extra.sources) if back else (extra.sources, extra.targets)
    message = wide(x[extra.rows[s]]) * wide(weights)[:, None]
    total = torch.zeros(len(extra.rows), *x.shape[1:], device=x.device, dtype=message.dtype).index_add_(0, t, message)
    return sums.index_add_(0, extra.rows, total.to(sums.dtype))


class FastLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, weights, a, b, gain, extra, edges):
        import kernels as k
        x, w = x.contiguous(), w.contiguous()
        A, B = a.to(x.dtype).contiguous(), b.to(x.dtype).contiguous()
        sums = k.row_sums(edges.by_tail, x, w, edges.nodes, 4)
        add_extra(sums.flatten(0, 1), x.flatten(0, 1), extra, weights)
        ctx.save_for_backward(x, w, sums, weights, A, B, gain)
        ctx.extra, ctx.edges = extra, edges
        return k.update(x, sums, A, B, gain)

    @staticmethod
    def backward(ctx, grad):
        import kernels as k
        x, w, sums, weights, A, B, gain = ctx.saved_tensors
        extra, edges = ctx.extra, ctx.edges
        by_x, by_sums, by_a, by_b, by_gain = k.update_gradients(x, sums, A, B, gain, grad.contiguous())
        by_x = k.row_sums(edges.by_head, by_sums, w, edges.nodes, 4, by_x)
        add_extra(by_x.flatten(0, 1), by_sums.flatten(0, 1), extra, weights, back=True)
        flat_x, flat_s = x.flatten(0, 1), by_sums.flatten(0, 1)
        by_weights = (flat_x[extra.rows[extra.sources]].float() * flat_s[extra.rows[extra.targets]].float()).sum(1)
        by_w = k.relation_sums(edges.by_relation, x, by_sums, edges.relations, 4).to(w.dtype)
        return by_x, by_w, by_weights.to(weights.dtype), by_a, by_b, by_gain, None, None


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.from_state = nn.Parameter(torch.randn(width, width) / (2 * width) ** .5)
        self.from_sums = nn.Parameter(torch.randn(width, width) / (2 * width) ** .5)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x, w, weights, extra, edges):
        if kernels_for(x) is not None:
            return FastLayer.apply(x, w, weights, self.from_state, self.from_sums, self.gain, extra, edges)
        sums = row_sums(edges.by_tail, x, w, edges.nodes, 4).flatten(0, 1)
        message = x.flatten(0, 1)[extra.rows[extra.sources]] * weights[:, None]
        sums = sums.index_add(0, extra.rows[extra.targets], message).view_as(x)
        y = x @ self.from_state.to(x.dtype) + torch.asinh(sums) @ self.from_sums.to(x.dtype)
        return x + relu(layer_norm(y, y.shape[-1:], self.gain.to(x.dtype), eps=EPS))


class RelationLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = nn.Linear(5 * width, width), nn.LayerNorm(width)

    def forward(self, v, mix, inverse):
        begin, end = mix(v), mix(v[:, inverse])
        at_tails = torch.cat([end, begin], -1)[:, inverse]
        return v + relu(self.norm(self.linear(torch.cat([v, begin, end, at_tails], -1))))


def chance(v):
    return torch.log1p(1000 * wide(v)) / math.log(1001)


@torch.no_grad()
def read_walks(graph, tasks: Tasks, node: bool, dtype):
    """Numbers of walks (L, M or M + 2, 18) and the shares of references joined (L, 3)."""
    edges, (L, S), n = graph.edges, tasks.sample.shape, graph.n
    device = tasks.ends.device
    extra = extra_of(tasks)
    task = torch.arange(L, device=device)[:, None].expand(-1, S)
    columns = torch.arange(S, device=device).expand(L, -1)
    picked = tasks.pairs.gather(1, tasks.sample[..., None].expand(-1, -1, 2))  # (L, S, 2)
    ends = tasks.ends.gather(1, picked.flatten(1)).view(L, S, 2)
    visible = tasks.visible[..., None].expand(-1, -1, 2 * S).to(dtype).contiguous()
    if node:
        P = tasks.pairs.shape[1]
        keep = (torch.arange(P, device=device)[None, :, None] != tasks.sample[:, None]).to(tasks.mask.dtype)  # (L, P, S)
        c = extra_constants(tasks, 2 * S, 2) * keep.repeat(1, 1, 2)[None]  # (2, L, P, 2S)
        c = c.flatten(0, 2)

    def marks(e):
        x = torch.zeros(n, L, 1, 2 * S, device=device, dtype=dtype)
        for shift in (0, S):
            x[e, task, 0, columns + shift] = tasks.sampled.to(dtype)
        return x

    def hop(x, back):
        out = row_sums(edges.by_head if back else edges.by_tail, x, visible, n, 2)
        if node:
            out = out.contiguous()
            add_extra(out.flatten(0, 1), x.flatten(0, 1), extra, c, back)
        return out

    def through(x, y):
        sums = relation_sums(edges.by_relation, x, y, edges.relations, 2) * tasks.visible[..., None]
        if node:
            fx, fy = x.flatten(0, 1)[:, 0], y.flatten(0, 1)[:, 0]
            own = wide(fx[extra.rows[extra.sources]]) * wide(fy[extra.rows[extra.targets]]) * c
            sums = torch.cat([sums, own.view(2, L, -1, 2 * S).sum(2).transpose(0, 1)], 1)
        return sums

    before, after = [marks(ends[..., 0])], [marks(ends[..., 1])]
    for _ in range(2):
        before.append(hop(before[-1], False))
        after.append(hop(after[-1], True))
    total = tasks.sampled.sum(1)
    parts, joined = [], []
    for first, last in HOPS:
        forward, back = through(before[first], after[last]).split(S, -1)
        share = (forward > 0).to(tasks.mask.dtype) * tasks.sampled[:, None]
        parts += [chance(forward).sum(-1), chance(back).sum(-1), share.sum(-1)]
        joined.append(share.amax(1).sum(-1) / total)
    walks = torch.stack(parts, -1) / total[:, None, None]
    return walks, torch.stack([joined[0], torch.maximum(joined[1], joined[2]), joined[4]], -1)


class Encoded(NamedTuple):
    relations: Tensor  # (streams, layers, L, M, W)
    new: Tensor  # (streams, layers, L, 2, W)
    task: Tensor  # (L, W)


class Trail3(nn.Module):
    def __init__(self, width=32, layers=6, relation_layers=2, streams=1, node=False, names=False, cosines=False):
        super().__init__()
        self.width, self.count, self.streams, self.node, self.names, self.cosines = width, layers, streams, node, names, cosines
        self.read_relation = mlp(RELATION_FEATURES, 2 * width, width)
        self.relation_layers = nn.ModuleList(RelationLayer(width) for _ in range(relation_layers))
        self.read_task = mlp((4 if node else 2) * width + TASK_FEATURES, 2 * width, width)
        self.relation_weights = nn.Linear(width, streams * layers * width)
        self.new_weights = nn.Linear(width, streams * layers * 2 * width)
        self.marks = nn.Linear(width, 3 * width)
        self.layers = nn.ModuleList(nn.ModuleList(Layer(width) for _ in range(layers)) for _ in range(streams))
        self.of_state, self.of_task = nn.Linear(streams * width, 2 * width, bias=False), nn.Linear(width, 2 * width)
        if cosines:
            self.of_names = nn.Linear(COSINES, 2 * width, bias=False)
            nn.init.normal_(self.of_names.weight, std=.05)
        self.last = nn.Linear(2 * width, 1)

    def encode(self, graph, tasks: Tasks, dtype) -> Encoded:
        L, M, W = len(tasks.ends), graph.M, self.width
        walks, joined = read_walks(graph, tasks, self.node, dtype)
        shots = tasks.facts[:, 0][:, None, None]
        zero = tasks.around.new_zeros(L, M, 1)
        features = torch.cat([tasks.around.transpose(1, 2), graph.sizes.expand(L, -1, -1), shots.expand(-1, M, -1),
                              graph.flags.expand(L, -1, -1), zero], -1)
        visible = tasks.visible[..., None]
        if self.node:
            own = torch.cat([tasks.selfs.transpose(1, 2), tasks.sizes, shots.expand(-1, 2, -1),
                             zero.new_zeros(L, 2, 2), zero.new_ones(L, 2, 1)], -1)
            features = torch.cat([features, own], 1)
            visible = torch.cat([visible, visible.new_ones(L, 2, 1)], 1)
        v = self.read_relation(torch.cat([walks, features], -1)) * visible
        share = tasks.around / tasks.around.sum(-1, keepdim=True).clamp(min=1e-6)
        cover = tasks.cover.transpose(1, 2)

        def mix(v):
            if not self.node:
                return graph.together @ v
            most, new = v[:, :M], v[:, M:]
            return torch.cat([graph.together @ most + cover @ new, share @ most + tasks.selfs @ new], 1)

        inverse = graph.inverse if self.node else graph.inverse[:M]
        for layer in self.relation_layers:
            v = layer(v, mix, inverse) * visible
        parts = [(share @ v[:, :M]).flatten(1), tasks.facts, joined]
        if self.node:
            parts.append(v[:, M:].flatten(1))
        task = self.read_task(torch.cat(parts, -1))
        relations = self.relation_weights(v[:, :M]) * visible[:, :M]
        new = self.new_weights(task).view(L, self.streams, self.count, 2, W)
        if self.node:
            own = self.relation_weights(v[:, M:]).view(L, 2, self.streams, self.count, W)
            new = new + own.permute(0, 2, 3, 1, 4)
        return Encoded(relations.view(L, M, self.streams, self.count, W).permute(2, 3, 0, 1, 4), new.permute(1, 2, 0, 3, 4), task)

    def stream(self, graph, tasks: Tasks, encoded: Encoded, which: int, *, heads: bool, references: bool, dtype) -> Tensor:
        """States (n, L, Q, W); Q is 1 where there are no heads."""
        L, W, n = len(tasks.ends), self.width, graph.n
        Q = tasks.heads.shape[1] if heads else 1
        marks = self.marks(encoded.task).view(L, 3, W)
        extra = extra_of(tasks)
        x = torch.zeros(n * L, Q, W, device=marks.device, dtype=dtype)
        if references:
            own = torch.einsum("lme,lmw->lew", tasks.marks, marks[:, 1:]).flatten(0, 1).to(dtype)
            x = x.index_add_(0, extra.rows, own[:, None].expand(-1, Q, -1))
        if heads:
            task = torch.arange(L, device=x.device)[:, None]
            rows = (tasks.heads * L + task) * Q + torch.arange(Q, device=x.device)
            x = x.view(-1, W).index_add_(0, rows.flatten(), marks[:, 0].repeat_interleave(Q, 0).to(dtype))
        x = x.view(n, L, Q, W)
        c = extra_constants(tasks, W, 4)
        for i, layer in enumerate(self.layers[which]):
            w = encoded.new[which, i].transpose(0, 1)[:, :, None] * c  # (2, L, P, W)
            x = layer(x, encoded.relations[which, i].to(dtype), w.flatten(0, 2), extra, graph.edges)
        return x

    def reference_states(self, graph, tasks, encoded, dtype):
        """What depends on the references alone: once for a task."""
        return self.stream(graph, tasks, encoded, 1, heads=False, references=True, dtype=dtype) if self.streams == 2 else None

    def head_states(self, graph, tasks, encoded, dtype):
        return self.stream(graph, tasks, encoded, 0, heads=True, references=self.streams == 1, dtype=dtype)

    def scores(self, graph, tasks: Tasks, encoded: Encoded, states: Tensor, other: Tensor | None) -> Tensor:
        """(L, Q, C) of candidates (L, C)."""
        task = torch.arange(len(tasks.ends), device=states.device)[:, None]
        W = self.width
        hidden = wide(states[tasks.candidates, task]) @ self.of_state.weight[:, :W].T  # (L, C, Q, 2W)
        if other is not None:
            hidden = hidden + wide(other[tasks.candidates, task]) @ self.of_state.weight[:, W:].T
        hidden = hidden + self.of_task(encoded.task)[:, None, None]
        if self.cosines and graph.vectors is not None:
            hidden = hidden + self.of_names(name_cosines(graph, tasks))
        return self.last(relu(hidden)).squeeze(-1).transpose(1, 2)

    def forward(self, graph, tasks: Tasks, dtype=torch.float32) -> Tensor:
        encoded = self.encode(graph, tasks, dtype)
        other = self.reference_states(graph, tasks, encoded, dtype)
        states = self.head_states(graph, tasks, encoded, dtype)
        return self.scores(graph, tasks, encoded, states, other)


@torch.no_grad()
def name_cosines(graph, tasks: Tasks) -> Tensor:
    """(L, C, Q, COSINES) of candidate, head and sampled references; 0 without names."""
    V = graph.vectors
    L, S = tasks.sample.shape
    picked = tasks.pairs.gather(1, tasks.sample[..., None].expand(-1, -1, 2))
    ends = tasks.ends.gather(1, picked.flatten(1)).view(L, S, 2)
    on = tasks.sampled[..., None]
    rh, rt = V[ends[..., 0]].float() * on, V[ends[..., 1]].float() * on  # (L, S, 96)
    c, h = V[tasks.candidates].float(), V[tasks.heads].float()  # (L, C, 96), (L, Q, 96)
    total = tasks.sampled.sum(1)[:, None, None]
    to_tails, to_heads = c @ rt.transpose(1, 2), c @ rh.transpose(1, 2)  # (L, C, S)
    head_to = h @ rh.transpose(1, 2)  # (L, Q, S)
    mean_shift = torch.nn.functional.normalize(h + ((rt - rh).sum(1, keepdim=True) / total), dim=-1)
    Q, C = h.shape[1], c.shape[1]
    per = lambda x: x[:, :, None].expand(-1, -1, Q)
    like = (to_tails.clamp(min=0) @ head_to.clamp(min=0).transpose(1, 2)) / total  # (L, C, Q)
    parts = [c @ h.transpose(1, 2), per(to_tails.amax(-1)), per(to_tails.sum(-1) / total[..., 0]), per(to_heads.sum(-1) / total[..., 0]),
             like, c @ mean_shift.transpose(1, 2), (head_to.amax(-1))[:, None].expand(-1, C, -1),
             per((c.square().sum(-1) > .5).float()), (h.square().sum(-1) > .5).float()[:, None].expand(-1, C, -1)]
    return torch.stack(parts, -1) * tasks.named[:, None, None, None]


def mlp(wide, inner, out):
    return nn.Sequential(nn.Linear(wide, inner), nn.ReLU(), nn.Linear(inner, out))
