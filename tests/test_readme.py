"""The code blocks of README run from the built wheel, in an empty folder; what takes minutes gets less to do.

`test_packaging.py` runs the first block, which installs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
LESS = {  # added to commands that take minutes
    "fewlink fit": "--minutes 0.2",
    "fewlink train": "--set steps=5 --set evaluate_every=5",
}
ELSEWHERE = ("git ", "make ", ".venv/bin/", "python experiments/")  # need the repository


def blocks() -> Iterator[tuple[str, str]]:
    """The language and the text of each code block that runs after an installation; "" is a block of commands."""
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE):
        if language == "python":
            yield language, text
            continue
        lines = text.replace("\\\n", " ").splitlines()
        if any(line.startswith("$ ") for line in lines):  # with output, which is not run
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        lines = [line for line in lines if not line.startswith(ELSEWHERE)]
        if lines:
            yield language, "\n".join(lines)


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `fewlink` is that of the wheel; its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    (wheel,) = built.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    subprocess.run([*install, str(folder / "packages"), str(wheel)], check=True)
    command = folder / "bin" / "fewlink"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fewlink "$@"\n')
    command.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder / "packages"),
        "FEWLINK_DATA": str(folder / "data"),
    }


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def serve(command: str, folder: Path, environment: dict[str, str]) -> None:
    """Start a server, and stop it when it tells its address."""
    started = ["bash", "-c", command.replace("fewlink", "exec fewlink", 1) + " --port 0"]
    with subprocess.Popen(started, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            assert any("http://" in line for line in server.stderr), command
        finally:
            server.terminate()


@pytest.mark.long
def test_the_blocks_run_from_the_wheel_in_an_empty_folder(environment: dict[str, str], tmp_path: Path) -> None:
    where = run([sys.executable, "-c", "import fewlink; print(fewlink.__file__)"], tmp_path, environment)
    assert where.startswith(environment["PYTHONPATH"])
    count = 0
    for language, text in blocks():
        if language == "python":
            run([sys.executable, "-c", text.replace("steps=1000", "steps=10")], tmp_path, environment)
            continue
        for line in text.splitlines():
            command = line.partition("  #")[0].strip()
            count += 1
            if "fewlink serve" in command:
                serve(command, tmp_path, environment)
            else:
                less = [words for start, words in LESS.items() if command.startswith(start)]
                run(["bash", "-c", " ".join([command, *less])], tmp_path, environment)
    assert count > 7
    assert (tmp_path / "missing.csv").stat().st_size > 100 and (tmp_path / "runs/umls").is_dir()
