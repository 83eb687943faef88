"""The rank with ties, and the labels of metrics."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from fewlink.core.metrics import LABELS, METRICS, labelled
from fewlink.models.contract import realistic_rank


def test_the_rank_is_the_mean_over_all_orders_of_the_ties() -> None:
    for higher, tied in itertools.product(range(3), range(4)):
        orders = [higher + 1 + place for place in range(tied + 1)]
        assert realistic_rank(np.array(higher), np.array(tied)) == np.mean(orders)
        assert realistic_rank(torch.tensor(higher), torch.tensor(tied)) == np.mean(orders)


def test_labels_are_columns_in_the_given_order() -> None:
    assert METRICS == ("mrr", "hits@1", "hits@5", "hits@10", "mr", "amri")
    assert list(labelled("mrr", "hits@10", "hits@1").items()) == [
        ("MRR", "mrr"), ("Hits@10", "hits@10"), ("Hits@1", "hits@1")
    ]  # fmt: skip
    assert list(LABELS.values()) == ["MRR", "Hits@1", "Hits@5", "Hits@10", "MR", "AMRI"]
