"""The four score functions: numbers by hand, PyKEEN's numbers, and one-vs-all against triple by triple."""

from __future__ import annotations

import pytest
import torch

from fewlink.core.errors import FewlinkError
from fewlink.models.embeddings import interaction

NAMES = [("rescal", 2), ("transe", 1), ("transe", 2), ("distmult", 2), ("complex", 2)]


def rows(count: int, width: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize(
    ("name", "norm", "relation", "expected"),
    [
        ("distmult", 2, [2.0, -1.0], 1 * 2 * 3 + 2 * -1 * 4),
        ("transe", 1, [1.0, 5.0], -(abs(1 + 1 - 3) + abs(2 + 5 - 4))),
        ("transe", 2, [1.0, 5.0], -(((1 + 1 - 3) ** 2 + (2 + 5 - 4) ** 2) ** 0.5)),
        ("rescal", 2, [1.0, 2.0, 3.0, 4.0], 1 * (1 * 3 + 2 * 4) + 2 * (3 * 3 + 4 * 4)),
        # Re (1+2i)(2-i) conj(3+4i) = Re (4+3i)(3-4i) = 24
        ("complex", 2, [2.0, -1.0], 24.0),
    ],
)
def test_by_hand(name: str, norm: int, relation: list[float], expected: float) -> None:
    rule = interaction(name, norm)
    h, r, t = torch.tensor([[1.0, 2.0]]), torch.tensor([relation]), torch.tensor([[3.0, 4.0]])
    assert rule.compare(rule.query(h, r), t).item() == pytest.approx(expected)


@pytest.mark.parametrize(("name", "norm"), NAMES)
def test_against_equals_scores_of_triples(name: str, norm: int) -> None:
    rule = interaction(name, norm)
    q, table = rule.query(rows(5, 6, 0), rows(5, rule.relation_width(6), 1)), rows(9, 6, 2)
    expected = torch.stack([rule.compare(q, t.expand_as(q)) for t in table], dim=1)
    torch.testing.assert_close(rule.against(q, table), expected)


@pytest.mark.parametrize(("name", "norm"), NAMES)
def test_inverse_relations_have_equal_scores(name: str, norm: int) -> None:
    rule = interaction(name, norm)
    h, r, t = rows(7, 6, 0), rows(7, rule.relation_width(6), 1), rows(7, 6, 2)
    backwards = rule.compare(rule.query(t, rule.inverse(r)), h)
    torch.testing.assert_close(backwards, rule.compare(rule.query(h, r), t))


@pytest.mark.parametrize(("name", "norm"), NAMES)
def test_queries_by_relation_equal_queries(name: str, norm: int) -> None:
    rule = interaction(name, norm)
    h, r, relations = rows(6, 4, 0), rows(3, rule.relation_width(4), 1), torch.tensor([1, 0, 2, 1, 1, 2])
    torch.testing.assert_close(rule.query_by(h, r, relations), rule.query(h, r[relations]))


def test_distance_has_a_gradient_at_zero() -> None:
    for norm in (1, 2):
        q = torch.zeros(1, 4, requires_grad=True)
        (interaction("transe", norm).against(q, torch.zeros(2, 4)).sum()).backward()
        assert q.grad is not None and torch.isfinite(q.grad).all()


@pytest.mark.parametrize(("name", "norm"), NAMES)
def test_scores_equal_pykeen(name: str, norm: int) -> None:
    modules = pytest.importorskip("pykeen.nn.modules")
    h, t = rows(8, 6, 0), rows(8, 6, 2)
    rule = interaction(name, norm)
    r = rows(8, rule.relation_width(6), 1)
    if name == "transe":
        expected = modules.TransEInteraction(p=norm)(h, r, t)
    elif name == "rescal":
        expected = modules.RESCALInteraction()(h, r.view(-1, 6, 6), t)
    elif name == "distmult":
        expected = modules.DistMultInteraction()(h, r, t)
    else:
        h_, r_, t_ = (torch.complex(*x.chunk(2, -1)) for x in (h, r, t))
        expected = modules.ComplExInteraction()(h_, r_, t_)
    torch.testing.assert_close(rule.compare(rule.query(h, r), t), expected)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(FewlinkError, match="'complex'"):
        interaction("compex")
    with pytest.raises(FewlinkError, match="dim"):
        interaction("complex").check_dim(7)
