"""Answer sets over HTTP: how many answers it takes to have a right one."""

from __future__ import annotations

from starlette.testclient import TestClient

import fewlink
from fewlink.server import ServerSettings
from fewlink.server.app import make_app

QUESTION = {"relation": "affects", "k": 4}


def test_each_head_has_the_set_that_python_gives() -> None:
    linker = fewlink.load("umls")
    with TestClient(make_app(linker, ServerSettings()), base_url="http://127.0.0.1") as client:
        answer = client.post("/predict", json={**QUESTION, "heads": ["alga", "animal"]}).json()
        expected = linker.predict(relation="affects", heads=["alga", "animal"], k=4)
        assert answer["sets"] == [vars(each) for each in expected.sets] and len(expected.sets) == 2
        assert [row["in_set"] for row in answer["predictions"]] == [row.in_set for row in expected]
        of_all = client.post("/predict", json={**QUESTION, "heads_of_type": "open"}).json()
        assert of_all["sets"] == [] and of_all["predictions"]  # the best pairs of all heads
