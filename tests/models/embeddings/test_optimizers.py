"""Row-wise optimizers against torch's dense ones."""

from __future__ import annotations

import pytest
import torch

from fewlink.models.embeddings.optimizers import OPTIMIZERS, RowOptimizer

DENSE = {"adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam}


def gradients(steps: int, rows: int, width: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(rows, width, generator=random, dtype=torch.float64) for _ in range(steps)]


def dense_result(name: str, start: torch.Tensor, steps: list[torch.Tensor], rate: float) -> torch.Tensor:
    weight = torch.nn.Parameter(start.clone())
    optimizer = DENSE[name]([weight], lr=rate)
    for gradient in steps:
        weight.grad = gradient
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense_equals_torch(name: str) -> None:
    start, steps = torch.ones(4, 3, dtype=torch.float64), gradients(6, 4, 3)
    rule: RowOptimizer = OPTIMIZERS[name]()
    table = start.clone()
    state = rule.start(table)
    for gradient in steps:
        rule.step(table, state, gradient, 0.1)
    torch.testing.assert_close(table, dense_result(name, start, steps, 0.1))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_row_equals_torch_over_its_own_steps(name: str) -> None:
    start, steps = torch.ones(5, 3, dtype=torch.float64), gradients(8, 5, 3)
    rule: RowOptimizer = OPTIMIZERS[name]()
    table = start.clone()
    state = rule.start(table)
    touched = [torch.tensor([row for row in range(4) if (step + row) % (row + 1) == 0]) for step in range(8)]
    for gradient, rows in zip(steps, touched, strict=True):
        rule.step(table, state, gradient[rows], 0.1, rows)
    for row in range(4):
        gradients_of_row = [g[row : row + 1] for g, rows in zip(steps, touched, strict=True) if row in rows]
        torch.testing.assert_close(table[row : row + 1], dense_result(name, start[:1], gradients_of_row, 0.1))
    assert torch.equal(table[4], start[4])


def test_untouched_rows_of_adagrad_equal_dense_with_zero_gradient() -> None:
    start, steps = torch.ones(3, 2, dtype=torch.float64), gradients(4, 3, 2)
    for gradient in steps:
        gradient[1] = 0
    rule = OPTIMIZERS["adagrad"]()
    table = start.clone()
    state = rule.start(table)
    for gradient in steps:
        rule.step(table, state, gradient[[0, 2]], 0.1, torch.tensor([0, 2]))
    torch.testing.assert_close(table, dense_result("adagrad", start, steps, 0.1))
