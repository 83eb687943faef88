from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from fewlink.base.errors import FewlinkError, MissingExtra
from fewlink.prediction.hub import fetched


def hub(monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> None:
    """A hub that gives this folder, or fails so."""

    def snapshot_download(name: str) -> str:
        if isinstance(answer, Exception):
            raise answer
        return str(answer / name.replace("/", "--"))

    made = ModuleType("huggingface_hub")
    made.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", made)


def test_a_folder_is_itself() -> None:
    assert fetched("runs/mine") == Path("runs/mine")


def test_a_model_of_the_hub_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub(monkeypatch, tmp_path)
    assert fetched("hub:someone/nell-trail") == tmp_path / "someone--nell-trail"
    assert fetched(Path("hub:someone/nell-trail")) == tmp_path / "someone--nell-trail"


@pytest.mark.parametrize("name", ["hub:", "hub:one", "hub:a/b/c", "hub:../b c"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(FewlinkError, match="not of the form hub:owner/name"):
        fetched(name)


def test_what_cannot_be_fetched_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, OSError("no\nnetwork"))
    with pytest.raises(FewlinkError, match=r"someone/x cannot be fetched from the hub \(OSError: no network\)"):
        fetched("hub:someone/x")


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"fewlink\[hub\]"):
        fetched("hub:someone/x")
