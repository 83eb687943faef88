"""A trained model that people ask: references of a relation in, ranked and explained tails out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

import numpy as np

from fewlink.base.errors import FewlinkError
from fewlink.data import Benchmark
from fewlink.prediction import pretrained, query
from fewlink.prediction.calibration import Calibration, read_calibration
from fewlink.prediction.explanation import Explanation
from fewlink.prediction.explanation import explain as explain_pair
from fewlink.prediction.hub import fetched
from fewlink.prediction.names import Names
from fewlink.prediction.predictions import Prediction, Predictions
from fewlink.prediction.query import Choice, Pairs, Relation
from fewlink.prediction.ranking import Rows, ask, best
from fewlink.scorers import Question, Scorer
from fewlink.training import RunConfig, open_run
from fewlink.training.checkpoints import load_best
from fewlink.training.run import Deployed


class Linker:
    """Ranks tails for heads, given a handful of references of a relation. Entities are ids or readable names.

    `names` finds and completes entities; `shots` references are taken where only a relation is named; `calibration`
    turns scores into probabilities where the run has one. `benchmark` is what it answers with; `measured` is what the
    run was trained and measured on, where that is another one.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        scorer: Scorer,
        *,
        shots: int = 3,
        calibration: Calibration | None = None,
        run: Path | None = None,
        measured: Benchmark | None = None,
    ) -> None:
        self.benchmark, self.scorer, self.shots = benchmark, scorer, shots
        self.measured = measured or benchmark
        self.calibration, self.run = calibration, run
        self.graph, self.names = benchmark.graph, Names(benchmark.graph)
        _ = self.graph.slots  # who competes is looked up in them: made now, not when the first question waits

    def __repr__(self) -> str:
        calibrated = "calibrated" if self.calibration else "not calibrated"
        return (
            f"Linker({self.scorer.name} on {self.benchmark.name}, {len(self.graph.entities):,} entities, {calibrated})"
        )

    @classmethod
    def load(
        cls, run: str | Path, *, bench: str | Path | None = None, device: str = "cpu", as_measured: bool = False
    ) -> Self:
        """The best model of a run folder, or of a folder of `save_pretrained`, with its calibration if it has one.

        `bench` says where a run's benchmark is, if it is not where it was. It answers with the whole graph where
        `fewlink fit` or `fewlink data append` gave the run one; `as_measured`, with what its figures were measured on.
        """
        folder = fetched(run)
        benchmark = pretrained.benchmark_of(folder, bench)
        deployed = None if as_measured else Deployed.open(folder)
        scorer = deployed.scorer(folder, device=device) if deployed else open_run(folder, benchmark, device=device)
        return cls(
            deployed.benchmark if deployed else benchmark,
            scorer,
            shots=RunConfig.read(folder).settings.shots,
            calibration=_calibration(folder, benchmark),
            run=folder,
            measured=benchmark,
        )

    def as_measured(self) -> Linker:
        """This, or where it answers with another graph, the one that looks at what the run was measured on."""
        if self.measured is self.benchmark or self.run is None:
            return self
        device = str(getattr(getattr(self.scorer, "known", None), "device", "cpu"))
        scorer = open_run(self.run, self.measured, device=device)
        return Linker(self.measured, scorer, shots=self.shots, calibration=self.calibration, run=self.run)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """What `save_pretrained` wrote; `load` opens it too."""
        return cls.load(folder, device=device)

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write a folder that needs nothing else: model, vectors, graph, calibration and card, with checksums.

        What only training needs (the last checkpoint, vectors of views) is left out.
        """
        if self.run is None:
            raise FewlinkError(f"{self.scorer.name} was not opened from a run: only a trained run can be saved")
        return pretrained.save(self.run, self.measured, Path(folder))

    def predict(
        self,
        references: Pairs | None = None,
        heads: str | Iterable[str] = (),
        k: int = 10,
        candidates: Choice = None,
        exclude_known: bool = True,
        relation: str | None = None,
        explain: bool = False,
        shots: int | None = None,
    ) -> Predictions:
        """The k best tails of each head, heads in their order.

        `references`: pairs of a head and a tail; without them the first `shots` of the relation. `candidates`: None or
        "open", what is like the references' tails; "full", the range of the task relation; "all"; the name of a type;
        entities; or a test of entity ids. A pair is known if it is a reference or the named relation has it; known ones
        are left out, or with `exclude_known=False` shown, and compete with nobody. Ranks are the evaluator's.
        """
        k = query.check_count(k)
        notes: list[str] = []
        given, about = self._given(references, relation, shots, notes)
        wanted = query.heads_of(self.names, heads, notes)
        rows = self._rows(given, about, wanted, k, candidates, exclude_known)
        for head in np.setdiff1d(wanted, rows.heads):
            notes.append(query.nothing_left(self.names, int(head)))
        return self._table(rows, given, explain, notes)

    def who_fits(
        self,
        references: Pairs | None = None,
        type_or_heads: str | Iterable[str] = (),
        k: int = 10,
        candidates: Choice = None,
        exclude_known: bool = True,
        relation: str | None = None,
        explain: bool = False,
        shots: int | None = None,
    ) -> Predictions:
        """The k best pairs of all heads of a type, or of these heads, best first: by probability, or else by score.

        `rank` is a tail's place for its own head. Heads are looked at some at a time, so memory stays small.
        """
        k = query.check_count(k)
        notes: list[str] = []
        given, about = self._given(references, relation, shots, notes)
        if isinstance(type_or_heads, str):
            wanted = self.names.members(type_or_heads)
        else:
            wanted = query.heads_of(self.names, type_or_heads, notes)
        rows = self._rows(given, about, wanted, k, candidates, exclude_known, overall=True)
        return self._table(rows, given, explain, notes)

    def explain(
        self,
        references: Pairs | None = None,
        head: str = "",
        tail: str = "",
        *,
        relation: str | None = None,
        shots: int | None = None,
    ) -> Explanation:
        """What carried the score of one pair: evidence, paths, references and neighbours, and sentences of them."""
        given, _ = self._given(references, relation, shots, [])
        ends = self.names.find(head, "head"), self.names.find(tail, "tail")
        return explain_pair(self.scorer, self.graph, given, *ends)

    def references_of(self, relation: str, shots: int | None = None) -> list[tuple[str, str]]:
        """The first `shots` pairs of a relation as ids: the references that are taken where none are given."""
        found = query.find_relation(self.benchmark, relation)
        return query.told_pairs(self.names, query.first_references(found, self.shots if shots is None else shots))

    def _given(
        self, references: Pairs | None, relation: str | None, shots: int | None, notes: list[str]
    ) -> tuple[np.ndarray, Relation | None]:
        """References (K, 2), and what is known of the relation where one is named."""
        about = None if relation is None else query.find_relation(self.benchmark, relation)
        if about is not None and about.trained:
            notes.append(f"{about.name} is a relation that the model learnt on: it does better there than on a new one")
        if references is not None:
            return query.references_of(self.names, references, notes), about
        if about is None:
            raise FewlinkError("no references: give pairs of a head and a tail, or name a relation to take them from")
        return query.first_references(about, self.shots if shots is None else shots), about

    def _rows(
        self,
        given: np.ndarray,
        about: Relation | None,
        heads: np.ndarray,
        k: int,
        choice: Choice,
        exclude_known: bool,
        overall: bool = False,
    ) -> Rows:
        """The best rows of each head, or of all heads together."""
        among = query.candidates_for(self.benchmark, self.names, choice, given, about)
        known = query.known_tails(given, about)
        question = Question(about.name if about else "", given, heads, among)
        kept: list[Rows] = []
        for place, scores in ask(self.scorer, question):
            head = int(heads[place])
            kept.append(best(head, among, scores, known(head), k, not exclude_known))
            if overall and sum(map(len, kept)) > max(100 * k, 10_000):
                kept = [self._best_pairs(Rows.joined(kept), k)]
        rows = Rows.joined(kept)
        return self._best_pairs(rows, k) if overall else rows

    def _best_pairs(self, rows: Rows, k: int) -> Rows:
        worth = rows.scores if self.calibration is None else self.calibration.probabilities(rows.chances, rows.ranks)
        return rows.take(np.lexsort((rows.tails, rows.heads, -rows.scores, -worth))[:k])

    def _table(self, rows: Rows, given: np.ndarray, explain: bool, notes: list[str]) -> Predictions:
        graph, calibration = self.graph, self.calibration
        chances = calibration.probabilities(rows.chances, rows.ranks).tolist() if calibration else [None] * len(rows)
        if calibration is not None and calibration.rough:
            notes.append(
                f"probabilities are rough: their error was {calibration.error:.2f} on relations left out of dev"
            )
        made = []
        for i, (head, tail) in enumerate(zip(rows.heads.tolist(), rows.tails.tolist(), strict=True)):
            made.append(
                Prediction(
                    head=graph.entities[head],
                    head_name=graph.name(head),
                    rank=float(rows.ranks[i]),
                    tail=graph.entities[tail],
                    tail_name=graph.name(tail),
                    score=float(rows.scores[i]),
                    probability=chances[i],
                    known=bool(rows.known[i]),
                    reasons=explain_pair(self.scorer, graph, given, head, tail) if explain else None,
                )
            )
        return Predictions(made, notes)


def _calibration(run: Path, benchmark: Benchmark) -> Calibration | None:
    """The calibration of a run on its benchmark, or on what that grew from."""
    step = load_best(run)[1]
    found = (read_calibration(run, which, step) for which in (benchmark.fingerprint, *benchmark.extended_from))
    return next((each for each in found if each is not None), None)


def load(run: str | Path, *, bench: str | Path | None = None, device: str = "cpu") -> Linker:
    """A trained run, or a folder of `save_pretrained`, ready to be asked."""
    return Linker.load(run, bench=bench, device=device)
