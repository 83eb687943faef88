"""Any input gets an answer or an error of the schema, never a server error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.servers import asking, small

from fewlink.server import schema

names = st.sampled_from(["ann", "Bob", "rome", "oslo", "person", "city", "visited", "all", "full", ""]) | st.text(
    max_size=8
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3))
pairs = st.lists(st.lists(names, min_size=2, max_size=2), min_size=1, max_size=4)


def fields(**valid: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Some of these fields, mostly with valid values."""
    return st.fixed_dictionaries({}, optional={name: value | value | anything for name, value in valid.items()})


predict = fields(
    references=pairs,
    heads=st.lists(names, min_size=1, max_size=4),
    heads_of_type=names | st.sampled_from(["open", "all"]),
    first=st.integers(-1, 9),
    count=st.none() | st.integers(-1, 9),
    k=st.integers(-1, 200),
    candidates=st.none() | names | st.lists(names, max_size=4),
    exclude_known=st.booleans(),
    explain=st.booleans(),
    relation=st.none() | names,
)
explain = fields(references=pairs, head=names, tail=names, relation=st.none() | names)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with asking(small()) as client:
        yield client


def check(answer: Any, model: type[Any]) -> None:
    if answer.status_code == 200:
        model.model_validate(answer.json())
    else:
        assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
        error = schema.ErrorAnswer.model_validate(answer.json()).error
        assert error.code and error.message


many = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@many
@given(body=predict | anything)
def test_any_body_to_predict(client: Any, body: Any) -> None:
    check(client.post("/predict", json=body), schema.PredictAnswer)


@many
@given(body=explain | anything)
def test_any_body_to_explain(client: Any, body: Any) -> None:
    check(client.post("/explain", json=body), schema.ExplainAnswer)


@settings(max_examples=60)
@given(typed=st.text(max_size=30), limit=st.integers(-2, 120) | st.text(max_size=3))
def test_any_text_to_complete(client: Any, typed: str, limit: Any) -> None:
    for path in ("/entities", "/types"):
        answer = client.get(path, params={"q": typed.encode("utf-8", "surrogatepass"), "limit": limit})
        assert answer.status_code in (200, 422)


@settings(max_examples=60)
@given(body=st.binary(max_size=60))
def test_any_bytes(client: Any, body: bytes) -> None:
    answer = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    check(answer, schema.PredictAnswer)
