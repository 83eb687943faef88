"""Settings: which values are valid, changes by name, and the field that an error names."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import Field

from fewlink.core.errors import FewlinkError, UnknownName
from fewlink.core.settings import Device, Seed, Settings


class Small(Settings):
    count: int = Field(default=2, ge=1)
    rate: float = Field(default=0.5, gt=0, lt=1)
    loss: Literal["hinge", "softmax"] = "hinge"
    name: str = ""
    quick: bool = False
    seed: Seed = 0
    device: Device = "cpu"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 0),
        ("count", 1.5),
        ("count", True),
        ("count", "2"),
        ("rate", 1),
        ("rate", float("nan")),
        ("rate", float("inf")),
        ("loss", "hing"),
        ("loss", 3),
        ("name", 3),
        ("quick", 1),
        ("quick", "yes"),
        ("device", "gpu"),
        ("device", "cuda:01"),
    ],
)
def test_an_invalid_value_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(FewlinkError, match=field):
        Small(**{field: value})
    with pytest.raises(FewlinkError, match=field):
        Small().replace(**{field: value})


def test_an_unknown_setting_comes_with_a_suggestion() -> None:
    for make in (lambda: Small(cont=3), lambda: Small().adjusted(["cont=3"])):  # type: ignore[call-arg]
        with pytest.raises(UnknownName, match="'count'"):
            make()


def test_changes_are_parsed_as_the_type_of_their_setting() -> None:
    changed = Small().adjusted(["count=3", "rate=1e-2", "loss=softmax", "quick=true", "name=a=b", "device=cuda:1"])
    assert changed == Small(count=3, rate=0.01, loss="softmax", quick=True, name="a=b", device="cuda:1")
    assert Small().adjusted([]) == Small() and Small().adjusted(["name="]).name == ""


@pytest.mark.parametrize("change", ["count", "count=x", "count=1.5", "count=0", "rate=nan", "quick=maybe", "loss=hing"])
def test_an_invalid_change_is_refused_by_name(change: str) -> None:
    with pytest.raises(FewlinkError, match=change.partition("=")[0]):
        Small().adjusted([change])


def test_settings_are_values() -> None:
    settings = Small(count=3)
    assert Small(**settings.as_dict()) == settings and hash(Small(count=3)) == hash(settings)
    assert settings.replace(count=2) == Small()
    assert Small(rate=0.25).as_dict()["rate"] == 0.25
    with pytest.raises(ValueError, match="count"):
        settings.count = 4  # type: ignore[misc]
