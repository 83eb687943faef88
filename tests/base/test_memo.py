"""Values that are remembered in the user's cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fewlink.base.memo import cache_home, is_remembered, remember


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_last_value_of_a_key_is_remembered() -> None:
    assert not is_remembered("folder", "1")
    remember("folder", "1")
    assert is_remembered("folder", "1") and not is_remembered("other", "1")
    remember("folder", "2")
    assert is_remembered("folder", "2") and not is_remembered("folder", "1")


def test_a_damaged_memory_is_no_value() -> None:
    remember("folder", "1")
    (memory,) = (cache_home() / "checked").iterdir()
    memory.write_bytes(b"\xff\xfe")
    assert not is_remembered("folder", "1")
