"""Answer sets over HTTP: how many answers it takes to have a right one."""

from __future__ import annotations

from starlette.testclient import TestClient

import fewlink
from fewlink.server import ServerSettings
from fewlink.server.app import make_app

REFERENCES = [["virus", "cell"], ["bacterium", "tissue"], ["fungus", "organism"]]


def test_each_head_has_the_set_that_python_gives() -> None:
    linker = fewlink.load("umls")
    with TestClient(make_app(linker, ServerSettings()), base_url="http://127.0.0.1") as client:
        body = {"references": REFERENCES, "heads": ["alga", "animal"], "k": 4}
        answer = client.post("/predict", json=body).json()
        expected = linker.predict([(head, tail) for head, tail in REFERENCES], ["alga", "animal"], 4)
        assert answer["sets"] == [vars(each) for each in expected.sets] and len(expected.sets) == 2
        assert [row["in_set"] for row in answer["predictions"]] == [row.in_set for row in expected]
        of_all = client.post("/predict", json={"references": REFERENCES, "heads_of_type": "open", "k": 4}).json()
        assert of_all["sets"] == [] and of_all["predictions"]  # the best pairs of all heads
