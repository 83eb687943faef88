"""GMatching, the paper's ablations, the authors' program and our changes as differences from `reference.py`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.models.fsrl.reference import (
    FSRL,
    Background,
    MatchingProcessor,
    NeighbourEncoder,
    RecurrentAutoencoderAggregator,
)

# The ablations


class MeanEncoder(nn.Module):
    """AS1: "a mean pooling layer over all neighbors' embeddings" in place of Eq. 2."""

    def __init__(self, d: int) -> None:
        super().__init__()

    def forward(self, ids: Tensor, background: Background) -> Tensor:
        e_r, e_t, present = background.around(ids)
        return _mean_or_own(self.message(e_r, e_t), present, background.entities[ids]).tanh()

    def message(self, e_r: Tensor, e_t: Tensor) -> Tensor:
        """The vectors (n, N, d) of the neighbours, which are averaged."""
        return e_t


class MeanAggregator(nn.Module):
    """AS2a: "mean pooling operation" in place of the recurrent autoencoder; no reconstruction loss."""

    def __init__(self, w: int) -> None:
        super().__init__()

    def forward(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        return pairs.mean(0), pairs.new_zeros(())


class WithoutAttention(RecurrentAutoencoderAggregator):
    """AS2b: a mean pooling layer in place of the attention weight of Eq. 7."""

    def attend(self, m: Tensor) -> Tensor:
        return m.mean(0)


class WithoutDecoder(RecurrentAutoencoderAggregator):
    """AS2c: "remove the decoder part, and only use encoder for aggregation"."""

    def reconstruction_loss(self, pairs: Tensor, m_K: Tensor, c: Tensor) -> Tensor:
        return pairs.new_zeros(())


class InnerProductMatcher(nn.Module):
    """AS3: the "inner-product between query embedding and reference embedding" in place of Eq. 8."""

    def __init__(self, w: int, T: int) -> None:
        super().__init__()

    def forward(self, queries: Tensor, f_R: Tensor) -> Tensor:
        return queries @ f_R


class AS1(FSRL):
    Encoder = MeanEncoder


class AS2a(FSRL):
    Aggregator = MeanAggregator


class AS2b(FSRL):
    Aggregator = WithoutAttention


class AS2c(FSRL):
    Aggregator = WithoutDecoder


class AS3(FSRL):
    Matcher = InnerProductMatcher


# GMatching (Xiong et al., EMNLP 2018)


class ProjectedMeanEncoder(MeanEncoder):
    """f(h) = tanh((1/n) Σ_i (W (e_ri ⊕ e_ti) + b)) over the n neighbours."""

    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.W = nn.Linear(2 * d, d)

    def message(self, e_r: Tensor, e_t: Tensor) -> Tensor:
        messages: Tensor = self.W(torch.cat([e_r, e_t], -1))
        return messages


class MaxAggregator(MeanAggregator):
    """The elementwise maximum of the references."""

    def forward(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        return pairs.amax(0), pairs.new_zeros(())


class GMatchingMeanP(FSRL):
    Encoder = ProjectedMeanEncoder
    Aggregator = MeanAggregator


class GMatchingMaxP(GMatchingMeanP):
    Aggregator = MaxAggregator


class GMatchingMax(GMatchingMeanP):
    """The "maximum of similarity scores between a query and all K references"."""

    def forward(self, references: Tensor, queries: Tensor, background: Background) -> tuple[Tensor, Tensor]:
        encoded = self.pairs(queries, background)  # (B, w)
        scores = [self.matcher(encoded, reference) for reference in self.pairs(references, background)]
        return torch.stack(scores).amax(0), encoded.new_zeros(())


# The authors' program, where it differs from the paper


class ReleasedEncoder(nn.Module):
    """tanh inside the attention; padding has embeddings of zeros and takes its share of the attention."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.W = nn.Linear(2 * d, d)
        self.u = nn.Linear(d, 1)

    def forward(self, ids: Tensor, background: Background) -> Tensor:
        e_r, e_t, present = background.around(ids)
        e_r = e_r * present.unsqueeze(-1)
        e_t = e_t * present.unsqueeze(-1)
        alpha: Tensor = self.u(self.W(torch.cat([e_r, e_t], -1)).tanh()).softmax(1)  # (n, N, 1)
        return (alpha * e_t).sum(1).tanh()


class ReleasedAggregator(RecurrentAutoencoderAggregator):
    """Every β_k is 1; the decoder is not trained, and its outputs are compared in their original order."""

    def attend(self, m: Tensor) -> Tensor:
        return m.sum(0)

    def reconstruction_loss(self, pairs: Tensor, m_K: Tensor, c: Tensor) -> Tensor:
        return (self.decode(m_K, c, len(pairs)).detach() - pairs).square().mean()


class ReleasedMatcher(MatchingProcessor):
    """The first step starts from zeros in place of [0 ⊕ f_ε(R_r)]."""

    def forward(self, queries: Tensor, f_R: Tensor) -> Tensor:
        B, w = queries.shape
        g = queries
        state = queries.new_zeros(B, 2 * w)
        c = queries.new_zeros(B, 2 * w)
        for _ in range(self.T):
            state, c = self.rnn_match(queries, (state, c))
            g = state[:, :w] + queries
            state = torch.cat([g, f_R.expand(B, w)], -1)
        return g @ f_R


class FeedForwardBlock(nn.Module):
    """norm(x + W₂ relu(W₁ x + b₁) + b₂) of pairs x (n, w); norm(y) = a (y − mean) / (deviation + 0.001) + b."""

    def __init__(self, w: int) -> None:
        super().__init__()
        self.W_1 = nn.Linear(w, 2 * w)
        self.W_2 = nn.Linear(2 * w, w)
        self.a = nn.Parameter(torch.ones(w))
        self.b = nn.Parameter(torch.zeros(w))

    def forward(self, pairs: Tensor) -> Tensor:
        y = pairs + self.W_2(self.W_1(pairs).relu())
        normalised: Tensor = (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-3)
        return self.a * normalised + self.b


class WithFeedForward(FSRL):
    """FSRL whose pairs pass through a feed-forward block."""

    def __init__(self, d: int, T: int = 2) -> None:
        super().__init__(d, T)
        self.feed_forward = FeedForwardBlock(2 * d)

    def pairs(self, ids: Tensor, background: Background) -> Tensor:
        pairs: Tensor = self.feed_forward(super().pairs(ids, background))
        return pairs


def with_pair_block(variant: type[FSRL]) -> type[FSRL]:
    """A variant whose pairs pass through the feed-forward block, as GMatching's do in the programs of both papers."""
    return variant if issubclass(variant, WithFeedForward) else type("PairBlock", (WithFeedForward, variant), {})


class Released(WithFeedForward):
    Encoder = ReleasedEncoder
    Aggregator = ReleasedAggregator
    Matcher = ReleasedMatcher


# fsrl-tuned


class OwnAndNeighboursEncoder(NeighbourEncoder):
    """tanh([V e_h + c ⊕ Σ_i α_i e_ti]): the entity's own embedding beside its neighbours."""

    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.V = nn.Linear(d, d)

    def forward(self, ids: Tensor, background: Background) -> Tensor:
        e_r, e_t, present = background.around(ids)
        summary = self.attend(e_r, e_t, present) * present.any(-1, keepdim=True)  # (n, d)
        return torch.cat([self.V(background.entities[ids]), summary], -1).tanh()


class Tuned(WithFeedForward):
    """An encoded entity has 2d numbers, and a pair 4d."""

    def __init__(self, d: int, T: int = 2) -> None:
        super().__init__(2 * d, T)
        self.encoder = OwnAndNeighboursEncoder(d)


VARIANTS = {
    "fsrl": FSRL,
    "fsrl-as1": AS1,
    "fsrl-as2a": AS2a,
    "fsrl-as2b": AS2b,
    "fsrl-as2c": AS2c,
    "fsrl-as3": AS3,
    "fsrl-released": Released,
    "fsrl-tuned": Tuned,
    "gmatching-maxp": GMatchingMaxP,
    "gmatching-meanp": GMatchingMeanP,
    "gmatching-max": GMatchingMax,
}


def _mean_or_own(vectors: Tensor, present: Tensor, own: Tensor) -> Tensor:
    """The mean (n, d) of the vectors (n, N, d) that are present; the entity's own (n, d) if none is."""
    total = (vectors * present.unsqueeze(-1)).sum(1)
    count = present.sum(-1, keepdim=True)
    return torch.where(count > 0, total / count.clamp_min(1), own)
