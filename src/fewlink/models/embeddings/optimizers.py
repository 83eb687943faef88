"""Optimizers that update only those rows of a table that a batch touches."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

State = dict[str, Tensor]
Rate = float | Tensor  # of learning; a scalar tensor in a step that is captured as a CUDA graph


class RowOptimizer(Protocol):
    """An update rule whose state has one row for each row of the table."""

    def start(self, table: Tensor) -> State:
        """The state before the first step."""

    def step(self, table: Tensor, state: State, gradient: Tensor, rate: Rate, rows: Tensor | None = None) -> None:
        """Update `rows` (U,) of a table (n, w), or all rows if None, by a gradient (U, w).

        A repeated row has the same gradient each time and is updated once.
        """


class Adagrad:
    """s ← s + g²; x ← x − rate · g / (√s + ε) (Duchi, Hazan and Singer, JMLR 2011).

    A row with a zero gradient does not change, so updating the touched rows gives exactly the dense result.
    """

    epsilon = 1e-10

    def start(self, table: Tensor) -> State:
        return {"squares": torch.zeros_like(table)}

    def step(self, table: Tensor, state: State, gradient: Tensor, rate: Rate, rows: Tensor | None = None) -> None:
        squares = state["squares"]
        if rows is None:
            squares.addcmul_(gradient, gradient)
            table.sub_((gradient / squares.sqrt().add_(self.epsilon)).mul_(rate))
            return
        touched = squares.index_select(0, rows).addcmul_(gradient, gradient)  # (U, w)
        squares.index_copy_(0, rows, touched)
        move = torch.div(gradient, touched.sqrt_().add_(self.epsilon), out=touched).mul_(rate)
        table.index_copy_(0, rows, table.index_select(0, rows).sub_(move))


class Adam:
    """Adam (Kingma and Ba, ICLR 2015) with a step count for each row.

    A row receives exactly the updates that dense Adam would make in the steps that touch it alone.
    """

    beta1 = 0.9
    beta2 = 0.999
    epsilon = 1e-8

    def start(self, table: Tensor) -> State:
        steps = table.new_zeros(len(table), 1)
        return {"mean": torch.zeros_like(table), "squares": torch.zeros_like(table), "steps": steps}

    def step(self, table: Tensor, state: State, gradient: Tensor, rate: Rate, rows: Tensor | None = None) -> None:
        if rows is None:
            table.sub_(self._move(state["mean"], state["squares"], state["steps"], gradient, rate))
            return
        touched = {name: values.index_select(0, rows) for name, values in state.items()}
        move = self._move(**touched, gradient=gradient, rate=rate)
        table.index_copy_(0, rows, table.index_select(0, rows).sub_(move))
        for name, values in touched.items():
            state[name].index_copy_(0, rows, values)

    def _move(self, mean: Tensor, squares: Tensor, steps: Tensor, gradient: Tensor, rate: Rate) -> Tensor:
        """Advance the moments (U, w) and step counts (U, 1) in place, and return the values to subtract (U, w)."""
        steps += 1
        mean.lerp_(gradient, 1 - self.beta1)
        squares.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        first = 1 - self.beta1**steps
        second = 1 - self.beta2**steps  # (U, 1)
        return (mean / squares.sqrt().div_(second.sqrt()).add_(self.epsilon)).mul_(rate / first)


OPTIMIZERS: dict[str, type[RowOptimizer]] = {"adagrad": Adagrad, "adam": Adam}
