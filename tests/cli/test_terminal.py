"""`--quiet`, colours, completion by the shell, and the systems that fewlink runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Fewlink

from fewlink import cli
from fewlink.core import progress

START = "import sys; sys.argv[0] = 'fewlink'; from fewlink.cli import main; main()"
ASK = ("ask", "attack", "--relation", "group_uses_tool", "--head", "APT38", "--top", "2")


def run(*arguments: str, code: str = START, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process, with these environment variables and no others that affect terminals."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    environment = {**kept, "PYTHONPATH": str(Path(cli.__file__).parents[2]), "TERM": "xterm-256color", **environment}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("words", [("--quiet", *ASK), (*ASK, "--quiet"), (*ASK, "-q")])
def test_quiet_leaves_results_on_stdout_and_nothing_else(words: tuple[str, ...], fewlink: Fewlink) -> None:
    loud, quiet = fewlink(*ASK), fewlink(*words)
    assert loud.err.startswith("note: ") and "PsExec" in loud.out
    assert (quiet.err, quiet.out, quiet.code) == ("", loud.out, 0)


def test_quiet_applies_to_one_command_and_keeps_errors(fewlink: Fewlink, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = fewlink("evaluate", "nosuch", "--quiet")
    assert wrong.code == 2 and wrong.err.startswith("error: ")
    fewlink("--quiet", "data", "list")
    progress.tell("a remark")
    assert capsys.readouterr().err == "a remark\n"


def test_only_terminals_get_colours_unless_forced() -> None:
    words = ("data", "list")
    plain, coloured = run(*words), run(*words, FORCE_COLOR="1")
    assert plain.returncode == coloured.returncode == 0
    assert "\x1b[" not in plain.stdout and "\x1b[" in coloured.stdout
    colours = ("\x1b[3", "\x1b[9", "\x1b[1;3", "\x1b[38", "\x1b[48")
    assert any(code in run("--help", FORCE_COLOR="1").stdout for code in colours)
    assert not any(code in run("--help", FORCE_COLOR="1", NO_COLOR="1").stdout for code in colours)
    assert not any(code in run(*words, FORCE_COLOR="1", NO_COLOR="1").stdout for code in colours)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder in which `fewlink --install-completion` was run in bash, with the command in bin."""
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    command = home / "bin" / "fewlink"
    command.write_text(
        f'#!{sys.executable}\nimport sys\nsys.argv[0] = "fewlink"\nfrom fewlink.cli import main\nmain()\n'
    )
    command.chmod(0o755)
    (home / "my-graph.tsv").write_text("a\tr\tb\n")
    done = run("--install-completion", "bash", HOME=str(home), _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0, done.stderr
    return home


def completed(home: Path, line: str) -> list[str]:
    """The words that bash offers at the end of a line."""
    words = line.split(" ")
    script = (
        f"source {home}/.bash_completions/fewlink.sh; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1};"
        '_fewlink_completion fewlink; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    places = {"HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2]), **places}
    command = ["bash", "--noprofile", "--norc", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=home, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fewlink com", ["complete", "compare"]),
        ("fewlink data ca", ["carve"]),
        ("fewlink ask att", ["attack", "attack-few"]),
        ("fewlink serve my", ["my-graph.tsv"]),
        ("fewlink data get um", ["umls"]),
        ("fewlink evaluate umls --scorer ru", ["rules"]),
        ("fewlink train umls --model gmatching-max", ["gmatching-maxp", "gmatching-max"]),
        ("fewlink ask attack --refer", ["--reference", "--references"]),
    ],
)
def test_bash_completes_commands_names_and_files(line: str, offered: list[str], shell: Path) -> None:
    assert completed(shell, line) == offered


INTERRUPTED = """
import sys, fewlink.__main__
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{}":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
fewlink.__main__.main()
"""


@pytest.mark.parametrize("module", ["fewlink.cli", "fewlink.curation.imports"])
def test_an_interrupt_while_a_module_is_imported_shows_no_traceback(module: str, tmp_path: Path) -> None:
    (tmp_path / "d.tsv").write_text("a\tb\taccepted\n")
    done = run("project", "import", str(tmp_path / "p.db"), str(tmp_path / "d.tsv"), code=INTERRUPTED.format(module))
    assert (done.returncode, done.stdout) == (130, "") and done.stderr in ("", "stopped\n")


WINDOWS = "import sys; sys.platform = 'win32'; sys.argv[0] = {!r}; import fewlink"


@pytest.mark.parametrize("start", ["fewlink", r"C:\Python\Scripts\fewlink.exe", "-m"])
def test_the_command_refuses_windows_in_one_line(start: str) -> None:
    done = run(code=f"import sys; sys.orig_argv[1:] = [{start!r}, 'fewlink']; {WINDOWS.format(start)}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "WSL" in done.stderr and done.stderr.count("\n") == 1


def test_a_program_on_windows_gets_an_import_error() -> None:
    caught = (
        f"try:\n    exec({WINDOWS.format('program.py')!r})\nexcept ImportError as error:\n    print('caught', error)"
    )
    assert run(code=caught).stdout.startswith("caught fewlink")
