"""The demo says what a newcomer can follow, and what it says is true."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_demo_shows_true_answers_and_reasons(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "attack.py"))
    shown = capsys.readouterr().out
    assert "Mimikatz runs on Windows" in shown
    lines = [line.strip() for line in shown.splitlines()]
    for tool, platform in (("Pacu", "IaaS"), ("MimiPenguin", "Linux"), ("Peirates", "Containers")):
        (line,) = (each for each in lines if each.startswith(tool) and "✗" in each)
        assert line.split(maxsplit=1)[1].startswith(f"✓ {platform} ")
        assert line.index("✓") < line.index("✗")
    (counted,) = (line for line in lines if line.startswith("The first answer is right for"))
    right, others = (int(word) for word in counted.split() if word.isdigit())
    assert (others, right >= 70) == (72, True)
    assert "Saying Windows each time would be right for 69." in lines
    assert "Chains like these also lead from 3 of the 3 examples to their platforms." in lines
    assert any(line.startswith("Pacu —uses→") and line.endswith("—runs on→ IaaS") for line in lines)
    assert "fewlink serve attack" in shown
    for jargon in ("MRR", "entities", "tail", "triple", "embedding", "Hits", "-shot", "benchmark", "score", "weights"):
        assert jargon not in shown, jargon
    assert max(map(len, lines)) <= 120
    assert "examples/attack.py" in (ROOT / "Makefile").read_text("utf-8")
