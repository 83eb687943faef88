"""Calibration: the fit converges, the error is held-out, and the file belongs to its weights."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import benchmark_of, quickly
from tests.linker.linkers import REFERENCES, fsrl_run, umls

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.fitting.calibrating import (
    Sample,
    by_references,
    calibrate,
    calibrate_on_dev,
    chance,
    collect,
    cross_fitted,
    expected_error,
    fit,
    fitted,
    low_trust,
    over_relations,
    reliability_bins,
)
from fewlink.linker import Linker
from fewlink.linker.probability import (
    FEATURES,
    LOW_TRUST_FOUND,
    ROUGH,
    SIGNS,
    MeasuredError,
    read_calibration,
    row_features,
    shipped_calibration,
)
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import Trust

DRAWN_BY = ("constant", "log softmax, tails")  # what rows are drawn by
FACTS = {"crossed": "relation", "shots": 3, "top": 10, "step": 1, "benchmark": ""}


def pairs_of(log_softmax: np.ndarray, ranks: np.ndarray) -> RankedPairs:
    count = len(ranks)
    zeros = np.zeros(count)
    return RankedPairs(zeros.astype(int), np.arange(count), log_softmax, ranks, log_softmax, zeros, zeros.astype(bool))


def sample_of(
    log_softmax: np.ndarray,
    ranks: np.ndarray,
    right: np.ndarray,
    groups: np.ndarray,
    trust: Trust | None = None,
) -> Sample:
    """Rows of questions of the same trust."""
    features = row_features(pairs_of(log_softmax, ranks), np.zeros(len(ranks)), trust)
    found, shots = (trust.share_found, trust.shots) if trust else (1.0, 3)
    return Sample(features, right, ranks == 1, groups, np.full(len(ranks), found), np.full(len(ranks), shots))


def plain(right: np.ndarray, first: np.ndarray, groups: np.ndarray, shots: int = 3) -> Sample:
    """Rows whose features are all 1."""
    ones = np.ones(len(right))
    return Sample(np.ones((len(right), len(FEATURES))), right, first, groups, ones, shots * ones)


def drawn(count: int, weights: tuple[float, float], seed: int = 0, relations: int = 5) -> Sample:
    """Rows that are right with the probability that these weights give."""
    random = np.random.default_rng(seed)
    log_softmax, ranks = -random.exponential(2, count), random.integers(1, 11, count).astype(float)
    ranks[0] = 1
    logits = weights[0] + weights[1] * log_softmax
    right = random.random(count) < 1 / (1 + np.exp(-logits))
    return sample_of(log_softmax, ranks, right, np.arange(count) % relations)


def test_the_probabilities_of_the_sample_are_recovered() -> None:
    weights = (1.0, 0.8)
    sample = drawn(50_000, weights, relations=50)
    columns = sample.features[:, [FEATURES.index(name) for name in DRAWN_BY]]
    drawn_by = 1 / (1 + np.exp(-columns @ np.array(weights)))
    found = 1 / (1 + np.exp(-sample.features @ fit(sample)))
    assert np.abs(found - drawn_by).mean() < 0.03
    assert expected_error(cross_fitted(sample), sample.right) < 0.03


@given(st.integers(0, 10_000), st.tuples(*[st.floats(-2, 2)] * 2), st.sampled_from([1, 3, 30, 5000]), st.booleans())
def test_a_better_rank_is_never_less_probable(seed: int, weights: tuple[float, float], shots: int, whole: bool) -> None:
    calibration = fitted(drawn(40, weights, seed), **FACTS)
    pairs = pairs_of(np.array([-0.1, -1.0, -30.0]), np.array([1.0, 2.5, 9.0]))
    trust = Trust(shots, (1.0, 20.0, 3.0), largest=(shots + 1) // 2, whole=whole)
    probabilities = calibration.probabilities(pairs, np.full(3, 0.7), trust)
    assert probabilities.tolist() == sorted(probabilities, reverse=True)
    assert (probabilities >= 0).all() and (probabilities <= 1).all()


def test_the_expected_error_by_hand() -> None:
    predicted, right = np.array([0.05, 0.05, 0.95, 1.0]), np.array([False, True, True, True])
    low, high = reliability_bins(predicted, right)
    assert (low.low, low.high, low.count, low.observed) == (0.0, 0.1, 2, 0.5) and high.count == 2
    assert expected_error(predicted, right) == pytest.approx((2 * 0.45 + 2 * 0.025) / 4)


def test_the_error_by_the_number_of_references_by_hand() -> None:
    # eight relations with four heads each, p = .9; of half of them all heads are right, of half one: off by .1 or .65
    right = np.repeat([[True] * 4, [True] + [False] * 3], 4, 0).ravel()
    few = plain(right, np.ones(32, bool), np.repeat(np.arange(8), 4))
    whole = few._replace(shots=np.zeros(32), groups=few.groups + 8)
    sample = Sample.joined([few, whole, few.take(np.arange(28))._replace(shots=np.full(28, 70))])
    probabilities = np.concatenate([np.full(32, 0.9), np.full(32, 0.5), np.full(28, 0.9)])
    of_whole, of_few = by_references(probabilities, sample)
    assert (of_whole.fewest, of_few.fewest, of_few.relations) == (0, 2, 8)
    assert of_few.measured == pytest.approx((4 * 0.1 + 4 * 0.65) / 8)
    standard_error = np.std([0.1, -0.9, -0.9, -0.9], ddof=1) / 2  # of the relations with one right answer; 0 of others
    assert of_few.chance == pytest.approx((2 / np.pi) ** 0.5 * standard_error / 2)
    assert of_few.error == pytest.approx((0.375**2 - of_few.chance**2) ** 0.5)
    assert chance(np.full(32, 0.9), few) == of_few.chance


def test_a_question_has_the_error_of_its_number_of_references() -> None:
    errors = (MeasuredError(0, 9, 0.05, 0.0), MeasuredError(2, 9, 0.1, 0.0), MeasuredError(20, 9, 0.4, 0.0))
    made = replace(fitted(drawn(40, (0.0, 1.0)), **FACTS), by_references=errors, first_error=0.0, over_relations=0.2)
    shots = {2: 0.1, 5: 0.1, 6: 0.2, 20: 0.4, 64: 0.4, 5000: 0.2}
    assert {each: made.error_for(Trust(each, (1.0,))) for each in shots} == shots
    assert made.error_for(Trust(30, (1.0,), whole=True)) == 0.05 and made.error_for(None) == 0.2
    assert made.note(Trust(3, (1.0,)), 0.5).shown and "10 points" in made.note(Trust(3, (1.0,)), 0.5).sentence
    rough = made.note(Trust(30, (1.0,)), 0.5)
    assert not rough.shown and "ranks only: percentages were off by 40 points" in rough.sentence


def test_the_built_in_calibration_gives_percentages_for_every_number_of_references() -> None:
    made = shipped_calibration()
    assert made is not None and {each.fewest for each in made.by_references} == {0, 1, 2, 6, 20, 65}
    assert all(sign * made.weights[name] >= 0 for name, sign in SIGNS.items())
    pairs = pairs_of(np.log(np.array([0.6, 0.2, 0.01])), np.array([1.0, 2.0, 3.0]))
    for shots in (1, 2, 3, 5, 10, 30, 100, 1000, 20_000):
        for whole in (False, True):
            ranks = (1.0,) * min(shots - 1, 16)
            trust = Trust(shots, ranks, domain=500, whole=whole, candidates=500)
            probabilities = made.probabilities(pairs, np.zeros(3), trust)
            assert (probabilities > 0).all() and (probabilities < 1).all() and (np.diff(probabilities) < 0).all()
            assert made.note(trust, 0.9).shown == (made.error_for(trust) <= ROUGH)


def test_the_error_is_that_of_held_out_relations() -> None:
    # one relation with only right rows, one with only wrong rows: each is predicted by the other
    half = np.arange(200) < 100
    sample = sample_of(np.zeros(200), np.ones(200), half, half.astype(int))
    crossed = cross_fitted(sample)
    assert (crossed[:100] < 0.45).all() and (crossed[100:] > 0.55).all()
    assert over_relations(crossed, sample) > 0.55
    assert fitted(sample, **FACTS).rough


def questions(hits: dict[bool, float]) -> Sample:
    """Thirty relations; if a question's references are found, so are the answers of `hits[True]` of its heads."""
    random, parts = np.random.default_rng(0), []
    for group in range(30):
        found = group % 2 == 0
        trust = Trust(4, (1.0, 1.0, 2.0, 1.0) if found else (90.0, 50.0, 70.0, 3.0))
        right = random.random(60) < hits[found]
        parts.append(sample_of(np.full(60, -1.0), np.ones(60), right, np.full(60, group), trust))
    return Sample.joined(parts)


def test_low_trust_has_under_half_of_the_hit_rate_of_the_rest() -> None:
    sample = questions({True: 0.8, False: 0.1})
    least, low = low_trust(cross_fitted(sample), sample)
    assert 0.1 < least <= 0.3 and (low == (sample.found <= LOW_TRUST_FOUND)).all()
    made = fitted(sample, **FACTS)
    assert made.least == least
    lost, found = Trust(4, (90.0, 50.0, 70.0, 3.0)), Trust(4, (1.0, 2.0, 1.0, 90.0))
    assert made.note(lost, 0.05).low and not made.note(lost, 0.95).low and not made.note(found, 0.05).low
    assert not made.note(Trust(1), 0.05).low and not made.note(Trust(3, known=True), 0.05).low
    alike = questions({True: 0.8, False: 0.7})
    assert low_trust(cross_fitted(alike), alike)[0] == 0.0


def test_references_that_are_found_raise_probabilities() -> None:
    made = fitted(questions({True: 0.8, False: 0.1}), **FACTS)
    pairs = pairs_of(np.array([-1.0]), np.array([1.0]))
    found, lost = (made.probabilities(pairs, np.zeros(1), Trust(4, ranks))[0] for ranks in ((1.0,) * 4, (90.0,) * 4))
    assert found > 0.6 > 0.3 > lost


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(fsrl_run(), tmp_path / "run")
    return tmp_path / "run"


def trust_is(linker: Linker, references: list[tuple[str, str]], trust: Trust) -> None:
    """Let a linker remember a trust for some references."""
    linker.trust = lambda query: trust  # type: ignore[method-assign]


def test_a_run_keeps_its_calibration_on_dev(run: Path) -> None:
    before = Linker.load(run)
    assert before.predict(REFERENCES, ["alga"], 1)[0].probability is None
    with quickly():
        made = fewlink.calibrate(run)
    assert made.relations == len(umls().split("dev")) and made.crossed == "relation" and 0 <= made.error <= 1
    assert sum(b.count for b in made.bins) == made.count and 0 < made.base < 1
    linker = Linker.load(run)
    assert linker.calibration == made and made.own_error < made.error
    assert made.measured_error == max(made.over_relations, made.first_error)
    assert made.rough == (made.measured_error > ROUGH)
    linker.calibration = replace(made, first_error=0.1, over_relations=0.1, least=0.0, by_references=())
    trust_is(linker, REFERENCES, Trust(2, (4.0, 40.0)))
    rows = linker.predict(REFERENCES, ["alga"], 5)
    assert rows.trust is not None and rows.trust.shown and rows.trust.tested == 2
    assert repr(rows).startswith(f"{rows.trust.found} of your 2 references ")
    assert "10 points" in rows.trust.sentence
    probabilities = [row.probability for row in rows]
    assert all(probability is not None and 0 <= probability <= 1 for probability in probabilities)
    assert probabilities == sorted(probabilities, key=lambda probability: -(probability or 0))
    pairs = linker.predict_pairs(REFERENCES, ["alga", "virus", "human"], 6)
    assert [r.probability for r in pairs] == sorted((r.probability or 0 for r in pairs), reverse=True)


def test_no_percentage_where_the_error_is_large_and_a_mark_where_trust_is_low(run: Path) -> None:
    with quickly():
        made = replace(calibrate(run), first_error=0.1, over_relations=0.1, least=0.0, by_references=())
    linker = Linker.load(run)
    for calibration in (replace(made, over_relations=0.34), replace(made, first_error=0.34)):
        linker.calibration = calibration
        trust_is(linker, REFERENCES, Trust(2, (4.0, 40.0)))
        rows = linker.predict(REFERENCES, ["alga"], 5)
        assert {row.probability for row in rows} == {None} and "probability" not in repr(rows)
        assert "ranks only: percentages were off by 34 points" in repr(rows).splitlines()[0]
    linker.calibration = replace(made, least=1.0)
    names = linker.graph.entities
    references = [(names[0], names[1]), (names[2], names[3])]
    trust_is(linker, references, Trust(2, (4.0, 40.0)))
    rows = linker.predict(references, ["alga"], 5)
    assert rows.trust is not None and rows.trust.low and None not in {row.probability for row in rows}
    assert repr(rows).startswith("low trust: 1 of your 2 references was found in the first ten when held out")
    assert rows[:2].trust == rows.trust


def test_only_dev_is_used_and_references_are_not_counted() -> None:
    whole, linker = umls(), Linker.load(fsrl_run())
    dev = whole.split("dev")[:1]
    linker.benchmark = benchmark_of(whole.graph, dev=dev)
    sample, relations = collect(linker.benchmark, linker.scorer, 3, 10)
    heads = {int(head) for head, _ in dev[0].pairs[3:]}
    assert relations == 1 and set(sample.groups.tolist()) == heads and len(sample.right) <= 10 * len(heads)
    assert sample.first.sum() == len(heads)
    made = calibrate(without_run(linker))
    assert made.crossed == "head" and made.step == 0
    linker.benchmark = benchmark_of(whole.graph, test=dev)
    with pytest.raises(FewlinkError, match=linker.benchmark.name):
        collect(linker.benchmark, linker.scorer, 3, 10)


def without_run(linker: Linker) -> Linker:
    """The same linker without a folder, so that nothing is written."""
    return Linker(linker.benchmark, linker.scorer)


def test_a_calibration_of_other_weights_is_ignored_and_a_damaged_one_raises(run: Path) -> None:
    with quickly():
        made = calibrate(run)
        replace(made, step=made.step + 1).save(run)
    assert Linker.load(run).calibration is None
    path = run / "calibration.json"
    whole = json.loads(path.read_text())
    for broken in ([], {**whole, "format": "x"}, {**whole, "weights": {}}, {**whole, "more": 1}, {"format": 1}):
        path.write_text(json.dumps(broken))
        with pytest.raises(FewlinkError, match=r"calibration\.json"):
            read_calibration(run, made.benchmark, made.step)
    path.write_text(json.dumps({**whole, "weights": {**whole["weights"], "whole": float("inf")}}))
    with pytest.raises(FewlinkError, match="damaged"):
        read_calibration(run, made.benchmark, made.step)


def test_few_relations_take_the_shipped_calibration_and_many_the_better_one() -> None:
    shipped = fitted(questions({True: 0.8, False: 0.1}), **{**FACTS, "crossed": "graph"})
    linker, whole = Linker.load(fsrl_run()), umls()
    with quickly():
        few = calibrate_on_dev(whole, linker.scorer, 3, 10, 4, shipped)
        assert few == replace(shipped, step=4, benchmark=whole.fingerprint)
        tasks = [*whole.split("dev"), *whole.split("test")]
        many = benchmark_of(whole.graph, dev=tasks)
        own = calibrate_on_dev(many, linker.scorer, 3, 10, 4)
        bad = replace(shipped, weights={**dict.fromkeys(FEATURES, 0.0), "constant": 9.0})
        assert calibrate_on_dev(many, linker.scorer, 3, 10, 4, bad) == own
        good = calibrate_on_dev(many, linker.scorer, 3, 10, 4, replace(shipped, weights=own.weights))
    assert len(tasks) >= 8 and own.relations == len(tasks)
    assert good.weights == own.weights and good.least == shipped.least and good.benchmark == many.fingerprint
