"""`fewlink ask`, `complete`, `relations` and `check`: output and error messages."""

from __future__ import annotations

import gzip
import json
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import write_layout
from typer.testing import CliRunner

from fewlink.cli import app
from fewlink.core.errors import FewlinkError
from fewlink.core.files import with_sha256, without_sha256
from fewlink.evaluation import Protocol, rank_task
from fewlink.fitting.card import write_card
from fewlink.models.embeddings import Embeddings
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.tasks import open_benchmark
from fewlink.training import open_run
from fewlink.training.trainer import train_run

PAIRS = ["--reference", "virus => cell", "--reference", "fungus\tplant"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FSRL after two steps on random vectors."""
    benchmark, random = open_benchmark("umls"), torch.Generator().manual_seed(0)
    sizes = (len(benchmark.graph.entities), 8), (2 * len(benchmark.graph.relations), 8)
    vectors = Embeddings(*(torch.randn(size, generator=random) for size in sizes), "transe")
    folder = tmp_path_factory.mktemp("runs") / "fsrl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        train_run(benchmark, vectors, FewShotSettings(batch=8, steps=2, evaluate_every=2, neighbours=4), folder)
    return folder


def run_command(*words: str | Path) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_references_and_heads_from_options_or_files(run: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("virus\tcell\nfungus\tplant\n")
    (tmp_path / "heads.txt").write_text("alga\nBacterium\n")
    files = ["--references", tmp_path / "pairs.tsv", "--heads", tmp_path / "heads.txt"]
    by_files = json.loads(run_command("ask", run, *files, "--top", "3", "--json").stdout)
    by_options = json.loads(
        run_command("ask", run, *PAIRS, "--head", "alga", "--head", "bacterium", "-k", "3", "--json").stdout
    )
    assert by_files == by_options and len(by_files) == 6
    assert [row["rank"] for row in by_files] == [1, 2, 3, 1, 2, 3]


def test_ranks_equal_the_evaluators(run: Path) -> None:
    benchmark = open_benchmark("umls")
    task, names = benchmark.split("test")[5], benchmark.graph.entities
    evaluated = rank_task(benchmark.graph, open_run(run, benchmark), task, Protocol("test", 3, "full"))
    heads = [word for head in np.unique(evaluated.queries[:, 0]) for word in ("--head", names[int(head)])]
    words = ["--relation", task.name, "--shots", "3", "--candidates", "full", "--with-known", "-k", "1000", "--json"]
    words += ["--constraint", "none"]
    rows = json.loads(run_command("ask", run, *words, *heads).stdout)
    ranks = {(row["head"], row["tail"]): row["rank"] for row in rows}
    assert len(evaluated.queries) > 40
    for (head, tail), rank in zip(evaluated.queries.tolist(), evaluated.ranks, strict=True):
        assert ranks[names[head], names[tail]] == rank


def test_table_tsv_and_explanations(run: Path, tmp_path: Path) -> None:
    table = run_command("ask", run, *PAIRS, "--head", "alga", "--explain").stdout
    assert "fsrl on umls" in table and table.count("beside alga: ") == 1
    table = run_command("ask", run, *PAIRS, "--head", "alga", "--explain-full", "-k", "3").stdout
    assert table.count("beside alga: ") == 3
    lines = run_command("ask", run, *PAIRS, "--head", "alga", "--tsv", "-k", "2").stdout.splitlines()
    assert len(lines) == 3 and lines[1].startswith("alga\talga\t1\t")
    (tmp_path / "tails.txt").write_text("cell\nhuman\n")
    few = run_command(
        "ask", run, *PAIRS, "--head", "alga", "--head", "alga", "--candidates", tmp_path / "tails.txt", "--tsv"
    )
    assert len(few.stdout.splitlines()) == 3 and "given twice" in few.stderr


def test_constraints_are_given_and_named(run: Path) -> None:
    words = [
        "--reference",
        "virus => cell",
        "--head",
        "alga",
        "--head",
        "virus",
        "--candidates",
        "all",
        "-k",
        "200",
        "--tsv",
    ]
    plain = run_command("ask", run, *words)
    assert "\talga\t" not in "\n".join(
        line.partition("\t")[2] for line in plain.stdout.splitlines() if line[:4] == "alga"
    )
    assert "a head is not its own tail (irreflexive, read off the references)" in plain.stderr
    assert len(run_command("ask", run, *words, "--constraint", "none").stdout) > len(plain.stdout)
    found = run_command("ask", run, *words, "--constraint", "functional")
    assert "a head has at most one tail (functional, given)" in found.stderr
    assert "a tail is known already: 'virus'" in found.stderr
    assert {line.split("\t")[0] for line in found.stdout.splitlines()[1:]} == {"alga"}


def test_a_measured_run_shows_probabilities_unless_they_are_misleading(run: Path) -> None:
    words = ("ask", run, *PAIRS[:2], "--head", "alga", "-k", "1")
    write_card(run)
    place = run / "calibration.json"
    content = without_sha256(json.loads(place.read_text()), place)
    for error, shown in ((0.4, False), (0.1, True)):
        facts = {"first_error": error, "over_relations": error, "least": 0.0}
        place.write_text(json.dumps(with_sha256({**content, **facts})))
        assert ("probability" in run_command(*words).stdout) == shown
    (row,) = json.loads(run_command(*words, "--json").stdout)
    assert 0 <= row["probability"] <= 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--head", "alga"], "no references"),
        ([*PAIRS], "--head or"),
        ([*PAIRS, "--head", "alga", "--of-type", "x"], "--of-type"),
        ([*PAIRS, "--head", "alg"], "did you mean 'alga'"),
        ([*PAIRS, "--head", "alga", "-k", "0"], "--top must be"),
        ([*PAIRS, "--head", "alga", "--json", "--tsv"], "choose one"),
        ([*PAIRS, "--head", "alga", "--shots", "2"], "--shots"),
        (["--relation", "causes", "--head", "alga", "--shots", "0"], "shots"),
        ([*PAIRS, "--head", "alga", "--candidates", "organism"], "the graph has no types"),
        ([*PAIRS, "--of-type", "organism"], "the graph has no types"),
        ([*PAIRS, "--head", "alga", "--candidates", "full"], "'full'"),
        (["--reference", "virus cell", "--head", "alga"], "neither a file of pairs nor a pair"),
        (["--references", "nowhere.tsv", "--head", "alga"], "nowhere.tsv"),
        (["--relation", "isaa", "--head", "alga"], "unknown relation 'isaa'; did you mean 'isa'"),
    ],
)
def test_user_errors_are_one_line(run: Path, words: list[str], message: str) -> None:
    with pytest.raises(FewlinkError, match=message) as error:
        CliRunner().invoke(app, ["ask", str(run), *words], catch_exceptions=False)
    assert "\n" not in str(error.value)


def test_another_benchmark_than_the_runs_own_is_refused(run: Path, tmp_path: Path) -> None:
    other = write_layout(tmp_path / "other")
    with pytest.raises(FewlinkError, match=f"umls.*{other}"):
        run_command("ask", run, *PAIRS, "--head", "alga", "--bench", other)


@pytest.fixture(scope="module")
def triples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "graph.tsv"
    path.write_bytes(gzip.decompress((files("fewlink") / "builtin" / "umls.tsv.gz").read_bytes()))
    return path


def test_a_graph_is_asked_without_training(triples: Path, tmp_path: Path) -> None:
    table = run_command("ask", triples, *PAIRS, "--head", "alga", "--top", "3").stdout
    assert "trail on graph.tsv" in table
    rows = json.loads(run_command("ask", triples, *PAIRS, "--head", "alga", "--head", "fish", "--json").stdout)
    assert [row["head"] for row in rows] == ["alga"] * 10 + ["fish"] * 10
    assert rows[0]["tail_name"] in table
    assert ("probability" in table) == all(row["probability"] is not None for row in rows)
    names, types = tmp_path / "names.tsv", tmp_path / "types.tsv"
    names.write_text("alga\tthe green one\n")
    types.write_text("plant\tliving\nanimal\tliving\n")
    words = ["--head", "The green one", "--names", names, "--types", types, "--candidates", "living", "--tsv"]
    lines = run_command("ask", triples, *PAIRS, *words).stdout.splitlines()
    assert {line.split("\t")[3] for line in lines[1:]} == {"plant", "animal"}
    by_name = run_command("ask", "umls", "--relation", "causes", "--head", "virus", "--candidates", "full")
    assert "trail on umls" in by_name.stdout


def test_entities_that_share_a_name_are_printed_with_their_ids(triples: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.tsv"
    names.write_text("alga\tthe green one\nplant\tthe green one\n")
    words = ["--head", "alga", "--head", "fish", "--names", names, "-k", "2"]
    table = run_command("ask", triples, *PAIRS, *words).stdout
    assert table.count("the green one (alga)") == 2 and "fish (fish)" not in table


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*PAIRS, "--head", "alga", "--types", "nowhere.tsv"], "nowhere.tsv: cannot be read"),
        ([*PAIRS, "--head", "alga", "--bench", "umls"], "leave out bench"),
        (
            [*PAIRS, "--head", "alga", "--candidates", "plant.txt"],
            "no such file, and not one of open, full, all",
        ),
        ([*PAIRS, "--head", "0000"], "unknown head '0000': no entity has this id or name"),
    ],
)
def test_wrong_questions_to_a_graph_are_one_line(triples: Path, words: list[str], message: str) -> None:
    with pytest.raises(FewlinkError, match=message) as error:
        CliRunner().invoke(app, ["ask", str(triples), *words], catch_exceptions=False)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match=re.escape(str(tmp_path))):
        run_command("ask", tmp_path, *PAIRS, "--head", "alga")


def test_heads_are_asked_for_with_tails(tmp_path: Path) -> None:
    (tmp_path / "tails").write_text("cell\nplant\n")
    result = run_command("ask", "umls", *PAIRS, "--tails", tmp_path / "tails", "--tail", "fungus", "-k", "2", "--json")
    rows = json.loads(result.stdout)
    assert [row["tail"] for row in rows] == ["cell", "cell", "plant", "plant", "fungus", "fungus"]
    shown = run_command("ask", "umls", *PAIRS, "--tail", "cell", "-k", "2").output
    header = next(line for line in shown.splitlines() if "score" in line).split()
    assert "of your 2 references" in shown and header[:3] == ["tail", "rank", "head"]
    for both, problem in (
        (["--tail", "cell", "--head", "alga"], "give one of"),
        (["--tail", "cell", "--of-type", "x"], "give one of"),
        ([], "give one of"),
    ):
        with pytest.raises(FewlinkError, match=problem):
            run_command("ask", "umls", *PAIRS, *both)


def test_missing_links_are_written_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "missing.tsv"
    result = run_command("complete", "umls", "--relation", "causes", "--out", out, "--top", "7", "--device", "cpu")
    assert f"7 pairs written to {out}" in result.output and len(out.read_text().splitlines()) == 9
    with pytest.raises(FewlinkError, match="exists already"):
        run_command("complete", "umls", "--relation", "causes", "--out", out)
    with pytest.raises(FewlinkError, match="--relation"):
        run_command("complete", "umls", "--out", tmp_path / "other.tsv")


def test_only_the_given_options_are_to_be_left_out(run: Path, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("a\tb\n")
    described = [*PAIRS, "--head", "alga", "--names", tmp_path / "names"]
    for source, more, problem in (
        ("attack", [], "leave out names$"),
        ("attack", ["--literals", "keep", "--on-error", "skip"], "leave out names, literals and on-error$"),
        (run, ["--columns", "head=1,relation=2,tail=3"], "is a trained model: leave out columns and names$"),
    ):
        with pytest.raises(FewlinkError, match=problem):
            run_command("ask", source, *described, *more)


def test_an_answer_without_rows_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("a\tr\tb\nc\tr\td\n")
    asked = ["ask", tmp_path / "graph.tsv", "--reference", "a => b", "--head", "a", "--candidates", tmp_path / "tails"]
    (tmp_path / "tails").write_text("b\n")
    assert run_command(*asked).stdout.strip() == "trail on graph.tsv: nothing found"


def test_relations_and_odd_triples_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "lives on.tsv").write_text("virus\tcell\nfungus\tplant\n")
    words = ["relations", "umls", "bacterium", "cell", "--references", tmp_path / "lives on.tsv"]
    rows = json.loads(run_command(*words, "--json").stdout)
    assert {"lives on"} == {row["relation"] for row in rows if row["by"] == "references"}
    shown = run_command(*words).output
    assert "note: fit, from 0 to 1, is" in shown and ["relation", "fit", "known", "by"] in map(
        str.split, shown.splitlines()
    )
    assert "APT29 → Mimikatz" in run_command("relations", "attack", "G0016", "Mimikatz", "--top", "1").output
    rows = json.loads(run_command("check", "umls", "--relation", "causes", "-k", "3", "--json").stdout)
    assert len(rows) == 3 and rows[0]["oddness"] >= rows[1]["oddness"]
    assert "evidence against it" in run_command("check", "umls", "--relation", "causes").output
    assert run_command("check", "umls", "--relation", "isa", "--tsv").stdout.startswith("oddness\t")
    with pytest.raises(FewlinkError, match="--json and --tsv"):
        run_command("check", "umls", "--json", "--tsv")
