"""TRAIL with names: the combination beside a literal twin, the scorer contract, explanations, when names are off."""

from __future__ import annotations

import dataclasses
import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from tests.conftest import quickly
from tests.models.names.cases import NAMES, REFERENCES, THREATS, graph_of
from tests.models.names.literal import Likeness
from typer.testing import CliRunner

import fewlink
from fewlink.cli import app
from fewlink.core.errors import FewlinkError
from fewlink.data import SPLITS, Benchmark
from fewlink.data.candidates import likely_tails
from fewlink.fitting.fit import fit
from fewlink.linker import Linker
from fewlink.linker.explanation import explain_pair
from fewlink.models import shipped_models
from fewlink.models.names import likeness
from fewlink.models.names.columns import NameColumns
from fewlink.models.names.gate import Gate
from fewlink.models.names.likeness import GramIndex
from fewlink.models.names.scorer import NamedScorer, with_names
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import shipped_scorer
from fewlink.scorers import ExplainingScorer, Question
from fewlink.training.run import RunConfig

EVERYONE = np.arange(len(NAMES), dtype=np.int32)
HEADS = np.array([14 + 6, 14 + 11], np.int32)
GATE = Gate(np.array([300.0, 200.0, 100.0, 5.0]))


@pytest.fixture(scope="module")
def plain() -> TrailScorer:
    return shipped_scorer(graph_of())


@pytest.fixture(scope="module")
def named(plain: TrailScorer) -> NamedScorer:
    return NamedScorer(plain, NameColumns(GramIndex(len(NAMES), NAMES.__getitem__, 1_000), graph_of()), GATE)


def question(references: np.ndarray = REFERENCES, candidates: np.ndarray = EVERYONE) -> Question:
    return Question("", references, HEADS, candidates)


def test_scores_equal_the_literal_twin(plain: TrailScorer, named: NamedScorer) -> None:
    twin, pairs = Likeness(NAMES), [tuple(pair) for pair in REFERENCES.tolist()]
    peers = likely_tails(graph_of(), REFERENCES[:, 1]).tolist()
    before, after = plain(question()), named(question())
    expected = [
        [twin.score(GATE, float(before[row, tail]), pairs, peers, (head, tail)) for tail in EVERYONE.tolist()]
        for row, head in enumerate(HEADS.tolist())
    ]
    assert after.numpy() == pytest.approx(np.array(expected), abs=1e-4)


def test_names_find_what_the_graph_does_not(named: NamedScorer) -> None:
    threats = np.arange(len(THREATS), dtype=np.int32)
    assert named(question(candidates=threats)).argmax(1).tolist() == [6, 11]


def test_a_score_does_not_depend_on_other_candidates_or_heads(named: NamedScorer) -> None:
    some = np.array([3, 6, 11], np.int32)
    whole = named(question())
    assert torch.allclose(named(question(candidates=some)), whole[:, some.tolist()], atol=1e-5)
    alone = named(Question("", REFERENCES, HEADS[1:], EVERYONE))
    assert torch.allclose(alone, whole[1:], atol=1e-5)
    assert named(Question("", REFERENCES, HEADS[:0], EVERYONE)).shape == (0, len(EVERYONE))
    assert torch.equal(pickle.loads(pickle.dumps(named))(question()), whole)  # noqa: S301


def test_names_that_say_nothing_change_nothing(plain: TrailScorer, named: NamedScorer) -> None:
    mixed = np.array([[14, 28], [15, 29]], np.int32)  # detections and platforms
    said = named.reference_names(mixed)
    assert (said.by_head, said.by_tails) == (0, 0)
    assert torch.equal(named(question(mixed)), plain(question(mixed)))


def test_ids_are_no_names() -> None:
    graph = graph_of(labels=False)
    scorer = shipped_scorer(graph)
    assert with_names(scorer, graph) is scorer


def test_explanations_tell_of_names(named: NamedScorer) -> None:
    assert isinstance(named, ExplainingScorer)
    reasons = named.explain(REFERENCES, 20, 6)
    assert reasons.score == pytest.approx(float(named(question())[0, 6]), abs=1e-3)
    assert reasons.names[0][:2] == ("head", 20) and reasons.shares["names"] == pytest.approx(
        sum(weight for _, _, weight in reasons.names)
    )
    without = named(Question("", REFERENCES[1:], HEADS, EVERYONE))
    assert reasons.references[0] == pytest.approx(reasons.score - float(without[0, 6]), abs=1e-3)
    explanation = explain_pair(named, graph_of(), REFERENCES, 20, 6)
    first, second, *_ = explanation.sentences()
    assert first == "Detection of Port Scan → Port Scan: the name of Port Scan counts most."
    assert second.startswith("Its name resembles the head's: ‘Detection of Port Scan’ and ‘Port Scan’ (+")
    assert any(sentence.startswith("Evidence for it: names (+") for sentence in explanation.sentences())
    told = json.loads(json.dumps(explanation.to_dict()))
    assert told["names"][0]["of"] == "head" and told["names"][0]["entity"]["name"] == "Detection of Port Scan"


def test_explanations_tell_of_tails_with_like_names(named: NamedScorer) -> None:
    like = [("reference", 1, 0.5), ("reference", 6, 0.25), ("head", 20, 0.001)]

    class Scorer:
        name, capabilities = "x", named.capabilities

        def __call__(self, question: Question) -> torch.Tensor:
            return named(question)

        def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5):  # type: ignore[no-untyped-def]
            return dataclasses.replace(named.explain(references, head, tail), names=like)

    sentences = explain_pair(Scorer(), graph_of(), REFERENCES, 20, 6).sentences()
    assert "Its name resembles that of a reference's tail: ‘Brute Force’ and ‘Port Scan’ (+0.50)." in sentences
    assert "Its name is that of a reference's tail (+0.25)." in sentences
    assert not any("like the head's" in sentence for sentence in sentences)


def files(folder: Path) -> tuple[Path, Path]:
    """The graph as a file of triples, and a file of names."""
    graph, triples, names = graph_of(), folder / "graph.tsv", folder / "names.tsv"
    rows = graph.triples().tolist()
    triples.write_text("".join(f"Q{h}\t{graph.relations[r]}\tQ{t}\n" for h, r, t in rows))
    names.write_text("".join(f"Q{number}\t{name}\n" for number, name in enumerate(NAMES)))
    return triples, names


def test_load_reads_names_unless_told_not_to(tmp_path: Path) -> None:
    triples, names = files(tmp_path)
    assert isinstance(fewlink.load(triples, names=names).scorer, NamedScorer)
    assert isinstance(fewlink.load(triples).scorer, TrailScorer), "ids alone"
    compiled = fewlink.compile_graph([triples], names=names).save(tmp_path / "compiled")
    assert isinstance(fewlink.load(compiled).scorer, NamedScorer)
    assert isinstance(fewlink.load(compiled, names=False).scorer, TrailScorer)
    with pytest.raises(FewlinkError, match="leave out one of the two"):
        fewlink.load(compiled, names=False, text_model=tmp_path)


def test_a_linker_with_names_answers_with_reasons(tmp_path: Path) -> None:
    triples, names = files(tmp_path)
    linker = fewlink.load(triples, names=names)
    pairs = [(NAMES[14 + i], NAMES[i]) for i in (0, 4, 9, 2, 12)]
    answers = linker.predict(pairs, ["Detection of Port Scan"], k=3, explain=True)
    assert isinstance(linker.scorer, NamedScorer) and len(answers) == 3
    assert all(row.reasons is not None for row in answers)


def test_it_is_a_shipped_model_with_a_record_of_its_own() -> None:
    nothing = {split: [] for split in SPLITS}
    prepared = shipped_models()["trail-names"].shipped("trail-names", Benchmark("g", graph_of(), nothing), "cpu")
    assert prepared.scorer.name == "trail-names" and set(prepared.config) == {"weights", "names"}
    with pytest.raises(FewlinkError, match="names of g"):
        shipped_models()["trail-names"].shipped("trail-names", Benchmark("g", graph_of(False), nothing), "cpu")


def test_edges_can_be_limited(plain: TrailScorer) -> None:
    linker = Linker.shipped(Benchmark("g", graph_of(), {split: [] for split in SPLITS}))
    linker.limit_edges(20)
    assert linker.scorer.scorer.part == 20  # type: ignore[attr-defined]


def ask(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["ask", *(str(word) for word in words)])
    error = result.exception
    return (2, str(error)) if isinstance(error, FewlinkError) else (result.exit_code, result.output)


def test_the_command_reads_names_unless_told_not_to(tmp_path: Path) -> None:
    triples, names = files(tmp_path)
    compiled = fewlink.compile_graph([triples], names=names).save(tmp_path / "compiled")
    question = [word for i in (0, 4, 9, 2, 12) for word in ("--reference", f"Q{14 + i} => Q{i}")]
    question += ["--head", "Q20", "--json", "--explain", "--top", "1", "--candidates", "all"]
    _, with_them = ask(triples, "--names", names, *question)
    _, without = ask(compiled, "--no-names", *question)
    assert '"names": [\n' in with_them and '"names": []' in without
    assert ask(triples, "--names", names, "--no-names", *question) == (
        2,
        "--names and --no-names exclude each other: leave out one",
    )


def test_the_command_says_what_a_text_model_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triples, names = files(tmp_path)
    monkeypatch.setitem(sys.modules, "model2vec", None)
    question = ["--reference", "Q14 => Q0", "--head", "Q20", "--text-model", tmp_path]
    assert "pip install 'fewlink[text]'" in ask(triples, "--names", names, *question)[1]


@pytest.mark.parametrize("switch", [None, False])
def test_a_fit_answers_with_names_unless_told_not_to(switch: Literal[False] | None, tmp_path: Path) -> None:
    triples, names = files(tmp_path)
    plain = fewlink.compile_graph([triples], names=names)
    text = "".join(f"{plain.name(h)}\t{plain.relations[r]}\t{plain.name(t)}\n" for h, r, t in plain.triples().tolist())
    (tmp_path / "words.tsv").write_text(text)
    with quickly():
        fitted = fit(tmp_path / "words.tsv", tmp_path / "run", names=switch, minutes=1e-6)
    assert RunConfig.read(fitted.run).names == (switch is None)
    assert isinstance(fewlink.load(fitted.run).scorer, NamedScorer) == (switch is None)
    assert isinstance(fewlink.load(fitted.run, names=False).scorer, TrailScorer)


def test_names_of_a_large_graph_are_indexed_when_they_are_asked_about(
    plain: TrailScorer, named: NamedScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likeness, "LARGE", 5)
    read: list[int] = []
    index = GramIndex(len(NAMES), lambda entity: read.append(entity) or NAMES[entity], 1_000)  # type: ignore[func-returns-value]
    lazy = NamedScorer(plain, NameColumns(index, graph_of()), GATE)
    assert index.number == 0 and np.array_equal(index.rarity, named.columns.index.rarity)
    few = question(candidates=np.arange(3, dtype=np.int32))
    assert torch.equal(lazy(few), named(few))
    assert 0 < index.number < len(NAMES)  # threats, and no platform
    read.clear()
    lazy(few)
    assert set(read) == set(HEADS.tolist())  # a head's name is hashed when it is asked about
    assert torch.equal(lazy(question()), named(question())) and index.number == len(NAMES)
    assert lazy.explain(REFERENCES, 20, 29) == named.explain(REFERENCES, 20, 29)
    assert np.array_equal(np.sort(index.members), np.sort(named.columns.index.members))


class WordModel:
    """A text model whose vectors count the words of a text."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        self.read += sentences
        vectors = np.zeros((len(sentences), 64))
        for row, text in enumerate(sentences):
            for word in text.lower().replace(".", "").split():
                vectors[row, sum(map(ord, word)) % 64] += 1
        return vectors


def test_a_text_model_reads_descriptions_also_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triples, names = files(tmp_path)
    described = tmp_path / "descriptions.tsv"
    described.write_text("".join(f"Q{number}\tabout {name}\n" for number, name in enumerate(NAMES[:28])))
    model = WordModel()
    monkeypatch.setattr("fewlink.linker.saving.open_text_model", lambda folder: model)
    pairs = [(f"Q{14 + i}", f"Q{i}") for i in (0, 4, 9, 2, 12)]
    linker = fewlink.load(triples, text_model=tmp_path, descriptions=described)  # ids are its only names
    assert isinstance(linker.scorer, NamedScorer) and {"about Phishing", ""} < set(model.read)
    right, wrong = (linker.explain(pairs, "Q20", tail).shares.get("names", 0.0) for tail in ("Q6", "Q1"))
    assert right > wrong >= 0
    assert isinstance(fewlink.load(triples, text_model=tmp_path).scorer, TrailScorer)  # nothing to read
    model.read = []
    fewlink.load(triples, names=names, text_model=tmp_path, descriptions=described)
    assert {"Phishing. about Phishing", "Linux"} < set(model.read)
    with pytest.raises(FewlinkError, match="--text-model"):
        fewlink.load(triples, descriptions=described)
    with pytest.raises(FewlinkError, match="names no entity of the graph"):
        described.write_text("X1\tsomething\n")
        fewlink.load(triples, text_model=tmp_path, descriptions=described)


def test_the_command_takes_descriptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triples, names = files(tmp_path)
    model = WordModel()
    monkeypatch.setattr("fewlink.linker.saving.open_text_model", lambda folder: model)
    words = ["--reference", "Q14 => Q0", "--head", "Q20", "--text-model", tmp_path, "--descriptions"]
    code, said = ask(triples, *words, names)
    assert code == 0 and "Phishing" in model.read, said
    code, said = ask(triples, *words, tmp_path / "none.tsv")
    assert code == 2 and "none.tsv: cannot be read" in said
