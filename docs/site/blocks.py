"""Run the code blocks of a page, and paste what they print.

python docs/site/blocks.py docs/tutorials/own-graph.md … [--write]

The blocks of a page run in order, in one empty folder. In `console` blocks the lines after `$ ` are commands; what
stands below them is their output. `python` blocks share their variables; an `output` block below one is what it
prints. A block with a title (```` ```python title="my_model.py" ````) is written into the file of this name. A comment
`<!-- setup …-->` holds Python that readers do not see. Blocks in other languages are not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FENCE = r"```(?P<language>\w+)(?: title=\"(?P<title>[^\"\n]+)\")?\n(?P<code>.*?)^```$"
BLOCK = re.compile(rf"^(?:{FENCE}|<!-- setup\n(?P<setup>.*?)^-->$)", re.DOTALL | re.MULTILINE)
ROOT = Path(__file__).resolve().parents[2]
WIDTH = "88"  # columns of the terminal
BAR = r"[\w ]+ \d+%,? +\d+ s|\w+ +\d+ s of \d"  # progress, which is not output
LONGEST = 96  # characters of a line


class Block(NamedTuple):
    language: str
    title: str
    code: str
    span: tuple[int, int]  # of the code in the page


class Failed(Exception):
    """A block that cannot be run; says which and why."""


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    for match in BLOCK.finditer(text):
        if match["setup"] is not None:
            yield Block("python", "", match["setup"], match.span("setup"))
        else:
            yield Block(match["language"], match["title"] or "", match["code"], match.span("code"))


def commands(code: str) -> list[str]:
    """The commands of a console block; a line that ends in a backslash goes on in the next."""
    found: list[str] = []
    lines = iter(code.splitlines())
    for line in lines:
        if line.startswith("$ "):
            while line.endswith("\\"):
                line += "\n" + next(lines)
            found.append(line.removeprefix("$ "))
    return found


def run_page(text: str) -> str:
    """The page with the outputs that its blocks have now; the working folder is used."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    os.environ.update(COLUMNS=WIDTH, TERM="dumb", NO_COLOR="1")
    sys.path.insert(0, os.getcwd())  # as if Python had been started there
    pieces, done, printed = list[str](), 0, ""
    for block in blocks(text):
        if block.title:
            Path(block.title).write_text(code := block.code, "utf-8")
        elif block.language == "console":
            outputs = [(f"$ {command}", run(command)) for command in commands(block.code)]
            code = "".join(f"{command}\n{output}" for command, output in outputs)
        elif block.language == "python":
            stream, code = io.StringIO(), block.code
            with contextlib.redirect_stdout(stream):
                exec(compile(block.code, "page", "exec"), scope)  # noqa: S102
            printed = tidy(stream.getvalue())
        elif block.language == "output":
            code = printed
        else:
            continue
        pieces += [text[done : block.span[0]], code]
        done = block.span[1]
    return "".join([*pieces, text[done:]])


def run(command: str) -> str:
    """What a command prints: its notes and its output. `fewlink` runs in this process, everything else in a shell."""
    found = re.fullmatch(r"fewlink (.*?)(?: ([|>]) (.*))?", command.replace("\\\n", " "), re.DOTALL)
    if not found:
        return tidy(shell(re.sub(r"^python (?=benchmarks/|experiments/)", f"{sys.executable} {ROOT}/", command)))
    from typer.testing import CliRunner

    from fewlink.cli import app

    result = CliRunner().invoke(app, shlex.split(found[1], comments=True))
    if result.exit_code:
        raise Failed(f"{command}\n{result.output}\n{result.exception!r}")
    if found[2] == ">":
        Path(found[3]).write_text(result.stdout, "utf-8")
        return tidy(result.stderr)
    if found[2] == "|":
        return tidy(result.stderr) + tidy(shell(found[3], result.stdout))
    return tidy(result.output)


def shell(command: str, text: str = "") -> str:
    """What a command of the shell prints when it reads this text."""
    done = subprocess.run(["bash", "-c", command], input=text, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{command}\n{done.stderr}")
    return done.stdout


def tidy(output: str) -> str:
    """Lines without spaces at their ends, no empty ones at the ends or in a row; long sentences wrapped."""
    lines = [line.rstrip() for line in output.replace(str(Path.home()), "~").split("\n") if not re.match(BAR, line)]
    epochs = [number for number, line in enumerate(lines) if re.search(r" (epoch|step) [\d,]+/[\d,]+ ", line)]
    if len(epochs) > 3:
        lines[epochs[1] : epochs[-1]] = ["…"]
    lines = [part for line in lines for part in (wrapped(line) if len(line) > LONGEST else [line])]
    lines = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "".join(f"{line}\n" for line in "\n".join(lines).strip("\n").splitlines())


def wrapped(line: str) -> list[str]:
    """A sentence in several lines; a row of a table as it is."""
    return [line] if re.search(r"\S  |──|\t|^[{<]", line) else textwrap.wrap(line, LONGEST, break_on_hyphens=False)


def main() -> None:
    failures = []
    for name in (name for name in sys.argv[1:] if name != "--write"):
        page, begin = Path(name).resolve(), time.process_time()
        try:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                text = run_page(page.read_text("utf-8"))
        except Exception as error:
            failures.append(f"{name}: {error if isinstance(error, Failed) else traceback.format_exc()}")
            continue
        if "--write" in sys.argv:
            page.write_text(text, "utf-8")
        print(f"{name}: {len(list(blocks(text)))} blocks, {time.process_time() - begin:.1f} s")
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main()
