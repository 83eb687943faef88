"""Rejected pairs in queries: never suggested, what resembles them ranks lower, and a note says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linker.linkers import umls

from fewlink.core.errors import FewlinkError, InputError, UnknownName
from fewlink.linker import Linker
from fewlink.linker.names import read_pairs
from fewlink.models.baselines import learning_free

REFERENCES = [("virus", "cell"), ("fungus", "plant")]


@pytest.fixture(scope="module")
def linker() -> Linker:
    return Linker.shipped(umls())


def test_a_rejected_pair_is_not_suggested_and_its_likes_rank_lower(linker: Linker) -> None:
    before = {row.tail: row for row in linker.predict(REFERENCES, ["alga"], k=200, candidates="all")}
    after = linker.predict(REFERENCES, ["alga"], k=200, candidates="all", rejected=[("alga", "plant")])
    rows = {row.tail: row for row in after}
    assert before["plant"].rank <= 10
    assert "plant" not in rows
    lost = {tail: before[tail].score - rows[tail].score for tail in rows}
    assert lost["fungus"] > lost["regulation_or_law"]  # fungi take part in relations as plants do
    assert "1 rejected pair was used: pairs that resemble it rank lower" in after.notes


def test_rejected_pairs_hold_for_pairs_of_all_heads(linker: Linker) -> None:
    before = linker.predict_pairs(REFERENCES, ["alga", "bacterium"], k=20)
    worst = [(row.head, row.tail) for row in before[:5]]
    after = linker.predict_pairs(REFERENCES, ["alga", "bacterium"], k=20, rejected=worst)
    assert not {(row.head, row.tail) for row in after} & set(worst)
    assert "5 rejected pairs were used: pairs that resemble them rank lower" in after.notes


def test_without_rejected_pairs_nothing_changes(linker: Linker) -> None:
    plain = linker.predict(REFERENCES, ["alga"])
    assert linker.predict(REFERENCES, ["alga"], rejected=[]) == plain


def test_known_tails_that_were_rejected_are_not_shown(linker: Linker) -> None:
    relation = "interacts_with"
    known = linker.predict(None, ["virus"], k=200, relation=relation, exclude_known=False, candidates="all")
    tail = next(row.tail for row in known if row.known and row.tail not in dict(REFERENCES).values())
    again = linker.predict(
        REFERENCES,
        ["virus"],
        k=200,
        relation=relation,
        exclude_known=False,
        candidates="all",
        rejected=[("virus", tail)],
    )
    assert tail not in [row.tail for row in again]


def test_a_pair_cannot_be_both(linker: Linker) -> None:
    with pytest.raises(FewlinkError, match="'virus' → 'cell'"):
        linker.predict(REFERENCES, ["alga"], rejected=[("virus", "cell")])
    with pytest.raises(UnknownName, match="tail of a rejected pair"):
        linker.predict(REFERENCES, ["alga"], rejected=[("virus", "nothing such")])
    with pytest.raises(FewlinkError, match=r"rejected pair.*'virus'"):
        linker.predict(REFERENCES, ["alga"], rejected="virus")  # type: ignore[arg-type]


def test_a_file_without_pairs_is_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong.tsv"
    path.write_text("\n")
    with pytest.raises(InputError, match=r"wrong\.tsv: has no pairs"):
        read_pairs(path)


def test_a_score_is_explained_as_it_was_predicted() -> None:
    benchmark = umls()
    linker = Linker(benchmark, learning_free("rules", benchmark.graph))
    rows = linker.predict(REFERENCES, ["alga"], k=3, candidates="all", rejected=[("alga", "plant")], explain="full")
    for row in rows:
        assert row.reasons is not None
        assert row.reasons.score == pytest.approx(row.score) and row.reasons.parts["rejected pairs"] < 0
