"""Documents match the records and the commands, their code runs, their links lead somewhere, and the site builds."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import fewlink
from fewlink.cli import app
from fewlink.evaluation.records import read_records

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
GENERATED = {DOCS / name for name in ("results.md", "speed.md", "commands.md")}  # by the Sphinx build
PAGES = sorted({*DOCS.rglob("*.md")} - GENERATED - {*(DOCS / "site").glob("*.md")})
BLOCKS = DOCS / "site" / "blocks.py"
HAVE_RUN = (  # pages whose blocks are run
    "curating.md",
    "attack.md",
    "benchmarks.md",
    "file-formats.md",
    "integrations.md",
    "large-graphs.md",
    "questions.md",
    "training.md",
    "tutorials/*.md",
)
RUN = sorted(path for pattern in HAVE_RUN for path in DOCS.glob(pattern))
NOT_RUN = {"extending.md"}  # it has a test of its own


def test_the_figures_of_the_documents_are_those_of_the_records() -> None:
    documents = runpy.run_path(str(DOCS / "generate.py"))["documents"]()
    stale = [path.name for path, text in documents.items() if path.read_text("utf-8") != text]
    assert not stale, f"run make docs: {stale}"


def test_all_stored_results_are_read_together() -> None:
    assert {record.benchmark for record in read_records(ROOT / "results")} >= {"nell-one", "fb15k-237-few"}


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fenced(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page in these languages; "" is a block without one. Files that are shown are left out."""
    found = re.findall(r"^```(\w*)([^\n]*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [text for language, more, text in found if language in languages and not more]


# Code


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "".join(fenced(README, "python")).replace("steps=1000", "steps=10")
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102


@pytest.mark.long
def test_the_blocks_of_all_pages_run(tmp_path: Path) -> None:
    """In one process: torch is imported once for all pages."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(BLOCKS), *map(str, RUN)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_every_page_with_code_to_run_is_run() -> None:
    assert len(RUN) >= 9
    others = [page for page in PAGES if page not in RUN and page.name not in NOT_RUN]
    assert not [named(page) for page in others if fenced(page, "console", "python", "output")]


def test_a_block_that_fails_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ fewlink data info no-such-benchmark\n```\n", "utf-8")
    done = subprocess.run([sys.executable, str(BLOCKS), str(page)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode and "no-such-benchmark" in done.stderr


def test_outputs_are_pasted(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```text title="a.txt"\nsome text\n```\n\n```console\n$ cat a.txt\nold\n$ printf "x\\n\\n\\ny  \\n"\n```\n\n'
        "<!-- setup\nhidden = 6\n-->\n\n```python\nprint(hidden * 7)\n```\n\n```output\nold\n```\n\n"
        "```sh\nno-such\n```\n",
        "utf-8",
    )
    subprocess.run([sys.executable, str(BLOCKS), str(page), "--write"], check=True, capture_output=True, cwd=tmp_path)
    text = page.read_text("utf-8")
    assert '$ cat a.txt\nsome text\n$ printf "x\\n\\n\\ny  \\n"\nx\n\ny\n```' in text
    assert "```output\n42\n```" in text and "old" not in text and "```sh\nno-such\n```" in text


# Commands


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The words after `fewlink` of each command that a page shows, in blocks and in the text."""
    lines = []
    for block in fenced(page, "", "sh", "bash", "console"):
        lines += block.replace("\\\n", " ").splitlines()
    lines += re.findall(r"(?<!`)`(fewlink [^`]+)`(?!`)", page.read_text("utf-8"))
    for line in lines:
        found = re.match(r"(?:\$ )?(?:\w+=\S+ )*(?:fewlink|torchrun .*-m fewlink|\S*bin/fewlink) (.*)", line.strip())
        if found and "…" not in (words := shlex.split(found[1], comments=True))[:1]:
            yield words


def check_command(words: list[str]) -> None:
    """Raise if there is no such command or option, or if options are given and one that is required is not."""
    command: Any = get_command(app)
    own = [word for word in words if word not in ("…", "...")]
    while own and hasattr(command, "commands") and not own[0].startswith("-") and not own[0].isupper():
        assert own[0] in command.commands, f"no command {' '.join(words)}"
        command = command.get_command(None, own.pop(0))
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in own:
        if word in ("|", ">", "&&"):
            break
        if re.match(r"--?[a-z]", word):
            assert word.partition("=")[0] in known | {"--help", "-h"}, f"no option {word} in: fewlink {' '.join(words)}"
    whole = any(word.startswith("--") for word in own) and not {"…", "...", "--help"} & {*words}
    if whole:
        for needed in (p for p in command.params if p.required and p.param_type_name == "option"):
            assert {*needed.opts} & {*own}, f"{needed.opts[0]} is missing in: fewlink {' '.join(words)}"


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md", *PAGES], ids=named)
def test_the_commands_and_options_of_a_page_exist(page: Path) -> None:
    for words in shown_commands(page):
        check_command(words)


def test_the_reference_has_every_command_and_option() -> None:
    page = runpy.run_path(str(DOCS / "site" / "command_reference.py"))["page"]()
    parts = re.split(r"^##+ fewlink ", page, flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: part for part in parts[1:]}

    def check(command: Any, path: str) -> None:
        for name in getattr(command, "commands", ()):
            assert f"{path} {name}".strip() in sections
            check(command.get_command(None, name), f"{path} {name}".strip())
        for parameter in command.params if path and not hasattr(command, "commands") else ():
            for option in (*parameter.opts, *parameter.secondary_opts):
                shown = not option.startswith("-") or option in sections[path]
                assert shown or parameter.hidden or option == "--help", f"{path}: {option}"

    check(get_command(app), "")


MISSING = ["project", "export", "my.decisions", "--project", "cures"]  # --out


def test_commands_that_do_not_exist_are_found() -> None:
    check_command(["data", "info", "umls", "--json"])
    for words in (["date", "info"], ["data", "inform"], ["ask", "graph.tsv", "--refrence", "a"], MISSING):
        with pytest.raises(AssertionError):
            check_command(words)


def test_commands_of_the_readme_on_built_in_data_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quick = [c for c in shown_commands(README) if c[:2] in (["evaluate", "umls"], ["data", "list"])]
    assert quick
    for words in quick:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output


# Links and the site


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for document in [README, ROOT / "CONTRIBUTING.md", *PAGES]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text("utf-8")):
            assert target.startswith("http") or (document.parent / target).exists(), f"{document.name}: {target}"


def test_two_pages_never_share_a_title() -> None:
    titles = [re.search(r"^# (.+)$", page.read_text("utf-8"), re.MULTILINE) for page in PAGES]
    named = [title[1].lower() for title in titles if title]
    assert sorted(named) == sorted(set(named))


def test_the_repository_address_is_that_of_pyproject() -> None:
    """It stands in pyproject.toml, in the `git clone` of README.md and in CITATION.cff; everything else derives it."""
    address = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]
    listed = subprocess.run(["git", "grep", "-lIF", address], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert set(listed) <= {"pyproject.toml", "README.md", "CITATION.cff"}
    assert f"git clone {address} " in README.read_text("utf-8")
    assert f'repository-code: "{address}"' in (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_reference_has_every_public_name() -> None:
    text = (DOCS / "reference" / "python.md").read_text("utf-8")
    described = " ".join(re.findall(r"^\{\{names fewlink (.*)\}\}$", text, re.MULTILINE)).split()
    assert sorted(described) == sorted(set(fewlink.__all__) - {"__version__"})


def test_the_readme_shows_a_prediction_after_the_installation() -> None:
    blocks = fenced(README, "")
    assert "pip install -c constraints.txt" in blocks[0] and "$ fewlink ask attack" in blocks[1]
    assert re.search(r"^ [\w ]+ +1  \w+", blocks[1], re.MULTILINE)


class Links(HTMLParser):
    """The links, the anchors and the loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in values:
            self.loaded.append(values["src"])
        elif tag == "link" and values.get("rel") not in ("search", "index", "next", "prev", "canonical"):
            self.loaded.append(values["href"])


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_every_link_in_it_leads_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the site needs the dev extra")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*command, str(DOCS), str(site)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = {path: Links(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 30
    for path, page in pages.items():
        for target in page.loaded:
            assert not urlsplit(target).netloc, f"{path.name} loads {target}"
            assert target.startswith("data:") or (path.parent / unquote(urlsplit(target).path)).exists(), target
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert place.exists(), f"{path.name}: {link}"
            if parts.fragment and place.suffix == ".html" and path.name not in ("search.html", "genindex.html"):
                assert unquote(parts.fragment) in pages[place].anchors, f"{path.name}: {link}"
    style = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"url\(['\"]?https?:[^)]*\)|@import", style)
    assert "<math" in (site / "concepts" / "fsrl.html").read_text("utf-8")
    assert not any("mathjax" in target.lower() for page in pages.values() for target in page.loaded)
    assert (site / "external-links.txt").read_text("utf-8").startswith("http")
