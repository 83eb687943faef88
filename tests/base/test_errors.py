from __future__ import annotations

import pickle

import pytest

from fewlink.base.errors import FewlinkError, InputError, MissingExtra, UnknownName


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("a.tsv", "has 2 columns", 3), "a.tsv:3: has 2 columns"),
        (InputError("a.tsv", "cannot be read"), "a.tsv: cannot be read"),
        (MissingExtra("tuning", "hpo"), "tuning needs the extra 'hpo': pip install 'fewlink[hpo]'"),
        (UnknownName("unknown task 'x'"), "unknown task 'x'"),
    ],
)
def test_an_error_survives_pickling(error: FewlinkError, message: str) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is type(error)
    assert str(again) == str(error) == message
    assert vars(again) == vars(error)
