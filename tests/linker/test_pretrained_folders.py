"""Model cards and self-contained model folders, local and from the hub."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.conftest import quickly
from tests.linker.linkers import REFERENCES, fsrl_run, trail_run, umls

import fewlink
from fewlink.core.errors import FewlinkError, InputError, MissingExtra
from fewlink.fitting.card import write_card
from fewlink.linker import Linker, saving
from fewlink.linker.saving import fetch


@pytest.mark.parametrize("trained", [trail_run, fsrl_run], ids=["trail", "fsrl"])
def test_a_moved_folder_makes_the_same_predictions(trained: object, tmp_path: Path) -> None:
    linker = Linker.load(trained())  # type: ignore[operator]
    with quickly():
        folder = linker.save_pretrained(tmp_path / "saved")
        shutil.copytree(folder, tmp_path / "far" / "away")
        shutil.rmtree(folder)
    moved = fewlink.load(tmp_path / "far" / "away")
    arguments = {"references": REFERENCES, "heads": ["alga", "virus"], "k": 5, "exclude_known": False}
    assert moved.predict(**arguments) == linker.predict(**arguments)
    assert moved.benchmark.fingerprint == umls().fingerprint
    again = Linker.load(tmp_path / "far" / "away")
    assert again.explain(REFERENCES, "alga", "cell") == linker.explain(REFERENCES, "alga", "cell")
    names = {path.suffix for path in (tmp_path / "far" / "away").rglob("*") if path.is_file()}
    assert names <= {".json", ".jsonl", ".npy", ".safetensors", ".md"}  # nothing pickled
    manifest = json.loads((tmp_path / "far" / "away" / "manifest.json").read_text())
    assert all(len(file["sha256"]) == 64 for file in manifest["files"].values())
    assert not any("view-" in name or name.startswith("last/") for name in manifest["files"])
    config = json.loads((tmp_path / "far" / "away" / "config.json").read_text())
    assert config["benchmark"]["source"] == ""


def test_a_saved_folder_can_be_saved_again_and_a_damaged_one_raises(tmp_path: Path) -> None:
    with quickly():
        Linker.load(fsrl_run()).save_pretrained(tmp_path / "one")
        Linker.load(tmp_path / "one").save_pretrained(tmp_path / "two")
        Linker.load(tmp_path / "one").save_pretrained(tmp_path / "two")  # replaces the former
    for change in (write_card, fewlink.calibrate):
        with pytest.raises(FewlinkError, match="is a saved model and cannot be changed"):
            change(tmp_path / "two")
    weights = tmp_path / "two" / "best" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="changed or damaged"):
        fewlink.load(tmp_path / "two")


def test_a_model_that_is_replaced_while_it_is_opened_is_of_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real, opened = tmp_path / "saved", saving.benchmark_of, list[Path]()
    with quickly():
        Linker.load(trail_run()).save_pretrained(folder)

        def replaced_meanwhile(place: Path, bench: object) -> object:
            opened.append(place)
            benchmark = real(place, None)
            if len(opened) == 1:
                (Linker.load(fsrl_run())).save_pretrained(folder)
            return benchmark

        monkeypatch.setattr(saving, "benchmark_of", replaced_meanwhile)
        linker = Linker.load(folder)
    assert linker.scorer.name == "fsrl" and linker.run == folder and opened[-1] == folder
    monkeypatch.undo()
    folder.rename(tmp_path / ".saved.previous")  # as a killed writer leaves it
    assert fewlink.load(folder).scorer.name == "fsrl" and not folder.exists()


def test_invalid_targets_of_saving_raise(tmp_path: Path) -> None:
    linker = Linker.load(fsrl_run())
    with pytest.raises(FewlinkError, match="is the run itself"):
        linker.save_pretrained(fsrl_run())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(FewlinkError, match="exists and is not"):
        linker.save_pretrained(tmp_path / "mine")
    assert (tmp_path / "mine" / "file").read_text() == "precious"
    with pytest.raises(FewlinkError, match="was not opened from a run"):
        Linker(umls(), linker.scorer).save_pretrained(tmp_path / "x")


def test_a_card_is_saved_with_the_model_and_its_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(fsrl_run(), tmp_path / "run")
    with quickly():
        text = write_card(tmp_path / "run").read_text()
        Linker.load(tmp_path / "run").save_pretrained(tmp_path / "saved", license="cc0-1.0")
    for part in ("# fsrl on umls", "fewlink.load('run')", "fewlink ask run", "123 entities", "| open |"):
        assert part in text
    assert umls().split("test")[0].name not in text and str(tmp_path) not in text
    head = head_of(text)
    assert head["library_name"] == "fewlink" and "fsrl" in head["tags"] and head["license"] == "unknown"
    saved = (tmp_path / "saved" / "README.md").read_text()
    assert "fewlink.load('saved')" in saved and "fewlink ask saved" in saved
    assert head_of(saved)["license"] == "cc0-1.0"
    assert fewlink.load(tmp_path / "saved").calibration == fewlink.load(tmp_path / "run").calibration is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(text.split("```python\n")[1].split("```")[0], "card", "exec"), {})  # noqa: S102
    assert "rank" in capsys.readouterr().out


def test_a_model_without_a_card_is_saved_with_a_short_one(tmp_path: Path) -> None:
    with quickly():
        Linker.load(fsrl_run()).save_pretrained(tmp_path / "my model")
        Linker.load(tmp_path / "my model").save_pretrained(tmp_path / "two")
    text = (tmp_path / "my model" / "README.md").read_text()
    assert "fewlink ask 'my model' --reference" in text and "Not measured" in text
    assert umls().split("test")[0].name not in text and str(tmp_path) not in text
    again = (tmp_path / "two" / "README.md").read_text()
    assert again == text.replace("'my model'", "'two'", 1).replace("ask 'my model'", "ask two")


def head_of(card: str) -> Any:
    """What the hub reads of a card."""
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(card.split("---\n")[1])


class Hub:
    """Stands for huggingface_hub: keeps what is uploaded in a folder, or raises an error."""

    def __init__(self, folder: Path, error: Exception | None = None) -> None:
        self.folder, self.error, self.calls = folder, error, list[Any]()

    def HfApi(self) -> Hub:
        return self

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> None:
        if self.error:
            raise self.error
        self.calls.append((name, private, exist_ok))

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str, delete_patterns: str) -> None:
        self.calls.append((repo_id, delete_patterns))
        shutil.copytree(folder_path, self.folder / repo_id)
        (self.folder / repo_id / ".gitattributes").write_text("*.safetensors filter=lfs\n")  # as the hub adds it

    def snapshot_download(self, name: str, **_: object) -> str:
        return str(self.folder / name)


def test_a_model_is_published_with_its_card_and_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    linker = Linker.load(fsrl_run())
    with quickly():
        address = linker.push_to_hub("someone/my-model", private=True, license="apache-2.0")
    assert address == "https://huggingface.co/someone/my-model"
    assert hub.calls == [("someone/my-model", True, True), ("someone/my-model", "*")]
    text = (tmp_path / "someone" / "my-model" / "README.md").read_text()
    assert "fewlink.load('hub:someone/my-model')" in text and "fewlink ask hub:someone/my-model" in text
    assert head_of(text)["license"] == "apache-2.0"
    arguments = {"references": REFERENCES, "heads": ["alga"], "k": 3}
    assert fewlink.load("hub:someone/my-model").predict(**arguments) == linker.predict(**arguments)


def test_what_cannot_be_published_raises_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linker = Linker.load(fsrl_run())
    with pytest.raises(FewlinkError, match=r"'my-model'.*owner/name"):
        linker.push_to_hub("my-model")
    with pytest.raises(FewlinkError, match="was not opened from a run"):
        Linker(umls(), linker.scorer).push_to_hub("someone/x")
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(tmp_path, OSError("401\nnot logged in")))
    with quickly(), pytest.raises(FewlinkError, match=r"someone/x cannot be published \(OSError: 401 not logged in\)"):
        linker.push_to_hub("someone/x")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match="the extra 'hub'"):
        linker.push_to_hub("someone/x")


def hub(monkeypatch: pytest.MonkeyPatch, answer: Path | Exception | None) -> None:
    """A hub that returns this folder or raises this error; None if its package is not installed."""

    def snapshot_download(name: str, revision: str | None = None) -> str:
        if isinstance(answer, Exception):
            raise answer
        return str(answer / name.replace("/", "--") / (revision or ""))  # type: ignore[operator]

    module = ModuleType("huggingface_hub")
    module.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module if answer is not None else None)


def test_a_model_of_the_hub_and_its_revision_are_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub(monkeypatch, tmp_path)
    for name in ("hub:someone/nell-trail", Path("hub:someone/nell-trail")):
        assert fetch(name) == tmp_path / "someone--nell-trail"
    assert fetch("hub:someone/model@0123abcd") == tmp_path / "someone--model" / "0123abcd"


@pytest.mark.parametrize(
    ("name", "answer", "message"),
    [
        *((name, None, "not of the form hub:owner/name") for name in ("hub:", "hub:one", "hub:a/b/c", "hub:a/b@x y")),
        ("hub:a/x", OSError("no\nnetwork"), r"a/x cannot be fetched from the hub \(OSError: no network\)"),
        ("hub:a/x@v2", OSError("no network"), "a/x at v2 cannot be fetched from the hub"),
        ("hub:a/x", None, "the extra 'hub'"),
    ],
)
def test_what_cannot_be_fetched_raises_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, answer: Exception | None, message: str
) -> None:
    hub(monkeypatch, answer)
    with pytest.raises(FewlinkError, match=message):
        fetch(name)
