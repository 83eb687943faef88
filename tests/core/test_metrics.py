"""The rank with ties, and the labels of metrics."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from fewlink.models.contract import realistic_rank


def test_the_rank_is_the_mean_over_all_orders_of_the_ties() -> None:
    for higher, tied in itertools.product(range(3), range(4)):
        orders = [higher + 1 + place for place in range(tied + 1)]
        assert realistic_rank(np.array(higher), np.array(tied)) == np.mean(orders)
        assert realistic_rank(torch.tensor(higher), torch.tensor(tied)) == np.mean(orders)
