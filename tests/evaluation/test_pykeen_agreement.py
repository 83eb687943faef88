"""Ranks and metrics equal PyKEEN's realistic ones. Scores are drawn from few integers, so that many are tied."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewlink.evaluation import realistic_ranks, summarise

pytest.importorskip("pykeen")

from pykeen.evaluation import RankBasedEvaluator
from pykeen.evaluation.ranks import Ranks
from pykeen.metrics.ranking import (
    AdjustedArithmeticMeanRankIndex,
    ArithmeticMeanRank,
    HitsAtK,
    InverseHarmonicMeanRank,
)

METRICS = {
    "mrr": InverseHarmonicMeanRank(),
    "hits@1": HitsAtK(1),
    "hits@5": HitsAtK(5),
    "hits@10": HitsAtK(10),
    "mr": ArithmeticMeanRank(),
    "amri": AdjustedArithmeticMeanRankIndex(),
}


class Problem(NamedTuple):
    """Arguments of `realistic_ranks`: (H, C) scores; (Q,) rows and true columns; (X,) pairs; (C,) mask or None."""

    scores: torch.Tensor
    rows: torch.Tensor
    true: torch.Tensor
    excluded: tuple[torch.Tensor, torch.Tensor]
    counted: torch.Tensor | None


def make_problem(seed: int, heads: int, columns: int, queries: int, values: int, masked: bool) -> Problem:
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randint(values, (heads, columns), generator=draw).float()
    rows = torch.randint(heads, (queries,), generator=draw)
    true = torch.randint(columns, (queries,), generator=draw)
    known = torch.rand(queries, columns, generator=draw) < 0.3
    known[torch.arange(queries), true] = False
    counted = torch.rand(columns, generator=draw) < 0.7 if masked else None
    return Problem(scores, rows, true, known.nonzero(as_tuple=True), counted)


def pykeen_scores(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """True scores (Q, 1) and all scores (Q, C) as PyKEEN expects them: NaN where a column does not count."""
    scores, rows, true, excluded, counted = problem
    every_query = torch.arange(len(rows))
    all_scores = scores[rows].clone()  # (Q, C)
    true_scores = all_scores[every_query, true, None]
    all_scores[excluded] = torch.nan
    if counted is not None:
        all_scores[:, ~counted] = torch.nan
    all_scores[every_query, true] = true_scores.squeeze(1)
    return true_scores, all_scores


problems = st.builds(
    make_problem,
    seed=st.integers(0, 2**32),
    heads=st.integers(1, 5),
    columns=st.integers(1, 40),
    queries=st.integers(1, 12),
    values=st.integers(1, 6),
    masked=st.booleans(),
)


def assert_agree(problem: Problem) -> None:
    ranks, candidates = realistic_ranks(*problem)
    expected = Ranks.from_scores(*pykeen_scores(problem))
    assert (ranks.dtype, candidates.dtype) == (torch.float64, torch.int64)
    torch.testing.assert_close(ranks, expected.realistic.double(), rtol=0, atol=0)
    assert torch.equal(candidates, expected.number_of_options)


@settings(deadline=None)
@given(problems)
def test_ranks_and_candidates(problem: Problem) -> None:
    assert_agree(problem)


@settings(deadline=None)
@given(problems)
def test_no_exclusions(problem: Problem) -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    assert_agree(problem._replace(excluded=(nothing, nothing)))


@settings(deadline=None)
@given(problems)
def test_an_excluded_true_column_still_competes(problem: Problem) -> None:
    queries, columns = problem.excluded
    also_true = (torch.cat([queries, torch.arange(len(problem.rows))]), torch.cat([columns, problem.true]))
    assert_agree(problem._replace(excluded=also_true))


@settings(deadline=None)
@given(problems)
def test_each_metric(problem: Problem) -> None:
    ranks, candidates = realistic_ranks(*problem)
    metrics = summarise(ranks, candidates)
    for name, metric in METRICS.items():
        if name == "amri" and candidates.max() == 1:
            continue  # the index is 0 / 0
        assert metrics[name] == pytest.approx(metric(ranks.numpy(), candidates.numpy()), abs=1e-12), name


@pytest.mark.parametrize("masked", [False, True])
def test_the_whole_evaluator(masked: bool) -> None:
    """PyKEEN's evaluator, which averages in float32, gives the same metrics for a thousand queries in batches."""
    problem = make_problem(seed=1, heads=60, columns=500, queries=1000, values=40, masked=masked)
    ours = summarise(*realistic_ranks(*problem))

    evaluator = RankBasedEvaluator()
    queries, columns = problem.excluded
    for begin in range(0, 1000, 250):
        here = (queries >= begin) & (queries < begin + 250)
        batch = problem._replace(
            rows=problem.rows[begin : begin + 250],
            true=problem.true[begin : begin + 250],
            excluded=(queries[here] - begin, columns[here]),
        )
        true_scores, all_scores = pykeen_scores(batch)
        evaluator.process_scores_(None, "tail", all_scores, true_scores)
    theirs = evaluator.finalize()

    for name, metric in METRICS.items():
        assert ours[name] == pytest.approx(theirs.get_metric(f"tail.realistic.{metric.key}"), rel=1e-6, abs=1e-6), name
