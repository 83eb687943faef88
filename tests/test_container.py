"""Rules for the Dockerfile and the workflows, checked without building them."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def instructions() -> list[tuple[str, str]]:
    """The name and the arguments of each instruction, of both stages in order."""
    text = "\n".join(line for line in DOCKERFILE.splitlines() if not line.startswith("#")).replace("\\\n", "")
    pairs = [line.partition(" ")[::2] for line in text.splitlines()]
    return [(word, rest.strip()) for word, rest in pairs if word]


def last(word: str) -> str:
    return [rest for each, rest in instructions() if each == word][-1]


def test_every_base_image_has_a_version() -> None:
    bases = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert len(bases) == 2
    for base in bases:
        assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base), base


def test_dependencies_are_pinned_and_torch_has_no_cuda() -> None:
    (settings,) = (rest for word, rest in instructions() if word == "ENV" and "PIP_" in rest)
    assert "PIP_CONSTRAINT=/source/constraints.txt" in settings and "whl/cpu" in settings
    installs = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
    (line,) = installs
    locked, own = re.findall(r"pip install --no-cache-dir ([^&]+?)\s+&&", line)
    assert (locked, own) == ("--require-hashes -r requirements.lock", "--no-deps .")


def test_the_server_is_not_root_and_has_a_health_check() -> None:
    words = [word for word, _ in instructions()]
    assert last("USER") == "10001:10001" and words.index("USER") < words.index("ENTRYPOINT")
    assert not [rest for word, rest in instructions()[words.index("USER") :] if word == "RUN"]
    assert "/health" in last("HEALTHCHECK") and last("EXPOSE") == "8000"
    assert last("VOLUME") == last("WORKDIR") == "/data"
    for word in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(last(word)), list)
    assert "ADD" not in words


def copied() -> list[str]:
    """The files that the first stage copies from the repository."""
    copies = [rest for word, rest in instructions() if word == "COPY"]
    assert copies[-1].startswith("--from=build ")
    return [name for rest in copies[:-1] for name in rest.split()[:-1]]


def test_only_the_sources_of_the_wheel_are_copied() -> None:
    assert copied() == ["pyproject.toml", "README.md", "LICENSE", "constraints.txt", "requirements.lock", "src"]
    ignored, *rules = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[:1] != "#"]
    assert ignored == "*"
    assert [rule[1:] for rule in rules if rule.startswith("!")] == copied()
    assert "**/__pycache__" in rules
    assert not [name for name in copied() if any(fnmatch.fnmatch(name, rule) for rule in rules if rule[0] != "!")]


def started(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point with a `fewlink` that prints its arguments."""
    command = tmp_path / "fewlink"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    entry = [*json.loads(last("ENTRYPOINT")), *(arguments or json.loads(last("CMD")))]
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", **environment}
    return subprocess.run(entry, env=variables, capture_output=True, text=True)


def test_the_container_serves_attack_or_another_graph(tmp_path: Path) -> None:
    common = ["serve", "--host", "0.0.0.0", "--port", "8000", "--project", "/data/decisions.db"]
    done = started(tmp_path, FEWLINK_TOKEN="secret")
    assert (done.returncode, done.stdout.split("\n")[:-1]) == (0, [*common, "attack"])
    done = started(tmp_path, "/graphs/my graph.tsv", "--names", "n.tsv", FEWLINK_TOKEN="secret")
    assert done.stdout.split("\n")[:-1] == [*common, "/graphs/my graph.tsv", "--names", "n.tsv"]


@pytest.mark.parametrize("token", [{}, {"FEWLINK_TOKEN": ""}])
def test_the_container_does_not_start_without_a_token(token: dict[str, str], tmp_path: Path) -> None:
    done = started(tmp_path, **token)
    assert (done.returncode, done.stdout) == (2, "")
    assert "FEWLINK_TOKEN" in done.stderr and "-e FEWLINK_TOKEN=" in done.stderr


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("needs hadolint")
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_pin_actions_and_need_few_permissions(path: Path) -> None:
    text = path.read_text("utf-8")
    used = re.findall(r"uses: (.+)$", text, re.MULTILINE)
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    assert "permissions:\n  contents: read\n" in text
    assert "-latest" not in text and "secrets." not in text
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_workflows_run_the_targets_of_the_makefile() -> None:
    texts = {path.name: path.read_text("utf-8") for path in WORKFLOWS}
    assert set(texts) == {"ci.yml", "docs.yml", "release.yml"}
    assert "run: .ci/run" in texts["ci.yml"] and "run: .ci/run" in texts["release.yml"]
    made = {target for text in texts.values() for target in re.findall(r"run: make (\w+)", text)}
    targets = set(re.findall(r"^(\w+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert made == {"test", "quick", "long", "floors", "docs"} and made <= targets
    publish = texts["release.yml"].partition("  publish:")[2]
    assert "id-token: write" in publish and "password" not in publish
