"""`fewlink verify`: what is damaged, what belongs elsewhere, what cannot be told; nothing is written."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.conftest import quickly
from tests.verification import damage
from typer.testing import CliRunner

import fewlink
from fewlink.cli import app
from fewlink.core.errors import InputError
from fewlink.core.storage import sha256_file
from fewlink.models.trail import built_in
from fewlink.training.checkpoints import load_best
from fewlink.training.run import Deployed, vectors_of
from fewlink.verification.files import is_sqlite
from fewlink.verification.verify import verify


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of every kind, and a second run."""
    folder = tmp_path_factory.mktemp("stores")
    with quickly():
        for store in damage.STORES.values():
            store.make(folder / store.name, 0)
        damage.make_run(folder / "other", 1)
    return folder


def run_command(*words: str | Path) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def flipped(file: Path, at: int = -5) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def everything(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files}


def test_whole_folders_and_files_are_whole_and_nothing_is_written(stores: Path) -> None:
    before = everything(stores)
    found = {each.path.relative_to(stores).parts[0]: each for each in verify(stores)}
    assert {name for name, each in found.items() if each.status != "whole"} == {"weights"}  # a copy of ours has no name
    kinds = {name: each.kind for name, each in found.items()}
    assert kinds["run"] == "run of fsrl" and kinds["model"] == "saved model of fsrl" and kinds["graph"] == "graph"
    assert (kinds["results"], kinds["project"], kinds["state"]) == ("results", "project", "pretraining state")
    assert found["benchmark"].files == 29
    assert everything(stores) == before


def test_all_damaged_files_are_named(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "benchmark", tmp_path / "b")
    flipped(tmp_path / "b" / "pairs.npy")
    (tmp_path / "b" / "graph" / "offsets.npy").unlink()
    (tmp_path / "b" / "note.txt").write_text("mine")
    (found,) = verify(tmp_path / "b")
    assert found.status == "damaged"
    assert [problem.partition(":")[0] for problem in found.problems] == [
        f"{tmp_path}/b/graph/offsets.npy",
        f"{tmp_path}/b/pairs.npy",
    ]
    assert len(found.notes) == 1 and f"{tmp_path}/b/note.txt" in found.notes[0]


@pytest.mark.parametrize("part", ["best", "last", "embeddings", "serving", "calibration.json", "fit.json", "benchmark"])
def test_a_part_of_another_run_is_refused(stores: Path, tmp_path: Path, part: str) -> None:
    shutil.copytree(stores / "run", tmp_path / "run")
    mine, other = tmp_path / "run" / part, stores / "other" / part
    if mine.is_dir():
        shutil.rmtree(mine)
        shutil.copytree(other, mine)
    else:
        shutil.copyfile(other, mine)
    with pytest.raises(InputError):
        damage.load_run(tmp_path / "run")
    (found,) = verify(tmp_path / "run")
    assert found.status == "damaged"
    assert any(problem.startswith(f"{mine}: ") for problem in found.problems), found.problems


def test_best_and_last_are_not_taken_for_each_other(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best")
    with pytest.raises(InputError, match=r"best: "):
        load_best(tmp_path / "run")
    shutil.copytree(tmp_path / "run" / "last", tmp_path / "run" / "best")
    with pytest.raises(InputError, match=r"'last'"):
        load_best(tmp_path / "run")


@pytest.mark.parametrize("part", ["calibration.json", "fit.json", "serving", "benchmark", "last"])
def test_a_missing_part_of_a_run_is_damage(stores: Path, tmp_path: Path, part: str) -> None:
    shutil.copytree(stores / "run", tmp_path / "run")
    (shutil.rmtree if (tmp_path / "run" / part).is_dir() else os.unlink)(tmp_path / "run" / part)
    (found,) = verify(tmp_path / "run")
    assert len(found.problems) == 1 and found.problems[0].startswith(f"{tmp_path / 'run' / part}: ")


def test_runs_of_earlier_versions_name_nothing(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "run", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    for name in ("id", "sha256", "answering", "holds"):
        config.pop(name, None)
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert load_best(tmp_path / "run")[1] == 2
    assert vectors_of(tmp_path / "run").dim == damage.DIM and Deployed.open(tmp_path / "run") is not None


def test_lost_records_are_noticed_by_their_ranks(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "results", tmp_path / "results")
    file = tmp_path / "results" / "small" / "rules.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    problems = [text for each in verify(tmp_path / "results") for text in each.problems]
    assert len(problems) == 1 and "3 lines" in problems[0]
    file.write_bytes(file.read_bytes().replace(b', "lines": 3', b""))
    problems = [text for each in verify(tmp_path / "results") for text in each.problems]
    assert len(problems) == 1 and "the ranks of 1 records" in problems[0]
    file.unlink()
    problems = [text for each in verify(tmp_path / "results") for text in each.problems]
    assert len(problems) == 1 and "rules.jsonl" in problems[0]


def test_every_damaged_line_is_named(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "results", tmp_path / "results")
    file = tmp_path / "results" / "small" / "rules.jsonl"
    lines = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([lines[0][:40], lines[1], lines[2].replace(b'"queries": 20', b'"queries": 21')]))
    (found,) = verify(file)
    assert [text.split(":")[1] for text in found.problems] == ["1", "3"]


def test_a_part_without_its_manifest_and_a_damaged_part_are_named(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "run", tmp_path / "run")
    (tmp_path / "run" / "serving" / "manifest.json").unlink()
    flipped(tmp_path / "run" / "benchmark" / "pairs.npy")
    problems = verify(tmp_path / "run")[0].problems
    named = {problem.partition(":")[0] for problem in problems}
    assert {f"{tmp_path}/run/serving/manifest.json", f"{tmp_path}/run/benchmark/pairs.npy"} <= named


def rewritten(folder: Path, **facts: Any) -> None:
    """Give a folder other facts, with the checksums of the files as they are now."""
    manifest = {**json.loads((folder / "manifest.json").read_text()), **facts}
    for name, file in manifest["files"].items():
        file.update(bytes=(folder / name).stat().st_size, sha256=sha256_file(folder / name))
    del manifest["sha256"]
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({**manifest, "sha256": digest}))


@pytest.mark.parametrize("kind", ["graph", "benchmark"])
def test_content_is_compared_with_the_fingerprint(stores: Path, tmp_path: Path, kind: str) -> None:
    shutil.copytree(stores / kind, tmp_path / kind)
    rewritten(tmp_path / kind)
    assert verify(tmp_path / kind)[0].status == "whole"
    rewritten(tmp_path / kind, fingerprint="0" * 64)
    (problem,) = verify(tmp_path / kind)[0].problems
    assert "fingerprint" in problem


@pytest.mark.parametrize("name", ["entities", "relations"])
def test_vectors_that_are_no_numbers_are_damage(stores: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(stores / "embeddings", tmp_path / "e")
    file = tmp_path / "e" / "weights.safetensors"
    with safe_open(file, framework="pt") as opened:
        tensors, metadata = {key: opened.get_tensor(key) for key in opened.keys()}, opened.metadata()  # noqa: SIM118
    tensors[name][0, 0] = float("nan")
    save_file(tensors, file, metadata)
    rewritten(tmp_path / "e")
    (problem,) = verify(tmp_path / "e")[0].problems
    assert str(tmp_path / "e") in problem and "nan" in problem.lower()


@pytest.mark.parametrize(
    ("change", "token"),
    [
        ("UPDATE event SET time = 'soon' WHERE number = 1", "'soon'"),
        ("UPDATE event SET project = 77 WHERE number = 1", "row 1 of event"),
    ],
    ids=["time", "project"],
)
def test_a_project_with_impossible_events_is_damaged(stores: Path, tmp_path: Path, change: str, token: str) -> None:
    file = next(path for path in (stores / "project").parent.rglob("*") if path.is_file() and is_sqlite(path))
    copied = shutil.copy(file, tmp_path / "p.decisions")
    base = sqlite3.connect(copied)
    (trigger,) = base.execute("SELECT sql FROM sqlite_master WHERE name = 'no_change'").fetchone()
    for statement in ("DROP TRIGGER no_change", change, trigger):
        base.execute(statement)
    base.commit()
    base.close()
    assert any(token in text for text in verify(tmp_path / "p.decisions")[0].problems)


def test_shipped_weights_are_compared_with_their_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = Path(fewlink.__file__).parent / "builtin" / "trail.safetensors"
    assert verify(weights)[0].status == "whole"
    monkeypatch.setitem(built_in.CHECKSUMS, weights.name, "0" * 64)
    (problem,) = verify(weights)[0].problems
    assert str(weights) in problem


def test_weights_of_0_2_are_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "trail.safetensors"
    facts = {"format": "fewlink-trail/1", "version": "0.2.0"}
    save_file({"weight": torch.zeros(2)}, path, {"fewlink": json.dumps(facts)})
    (found,) = verify(path)
    assert found.status == "unknown" and "which this version cannot run" in found.unclear[0]


def test_a_newer_format_is_named(stores: Path, tmp_path: Path) -> None:
    for name, file in (("graph", "manifest.json"), ("run", "config.json")):
        shutil.copytree(stores / name, tmp_path / name)
        path = tmp_path / name / file
        path.write_text(path.read_text().replace(f'"fewlink-{name}/1"', f'"fewlink-{name}/7"'))
        (found,) = verify(tmp_path / name)
        assert found.status == "unknown"
        assert f"fewlink-{name}/7" in found.unclear[0]


def test_the_command_says_what_is_damaged(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "embeddings", tmp_path / "e")
    whole = run_command("verify", tmp_path / "e")
    assert whole.exit_code == 0 and "(embeddings, 3 files)" in whole.output
    (tmp_path / "note.txt").write_text("mine")
    unclear = run_command("verify", tmp_path / "e", tmp_path / "note.txt", tmp_path / "absent")
    assert unclear.exit_code == 2
    assert "note.txt" in unclear.output and "absent" in unclear.output
    flipped(tmp_path / "e" / "weights.safetensors")
    damaged = run_command("verify", tmp_path / "e", tmp_path / "absent")
    assert damaged.exit_code == 1 and "weights.safetensors: " in damaged.output
    (facts,) = json.loads(run_command("verify", "--json", tmp_path / "e").output)
    assert (facts["status"], facts["kind"], len(facts["problems"])) == ("damaged", "embeddings", 1)
