"""A trained model ready for queries: references of a relation in, ranked and explained tails out."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.curation.learning import learning_scorer
from fewlink.data import Benchmark
from fewlink.data.training_graph import known_graph
from fewlink.linker import pretrained, query
from fewlink.linker.answer_sets import answer_sets
from fewlink.linker.calibration import Calibration, calibration_of, shipped_calibration
from fewlink.linker.completion import GraphQuestions
from fewlink.linker.constraints import ConstraintChoice, Constraints
from fewlink.linker.explanation import Explanation
from fewlink.linker.names import Names
from fewlink.linker.predictions import Prediction, Predictions, RankedPairs, rank_tails
from fewlink.linker.query import Choice, Pairs, References
from fewlink.linker.reasons import explain_pair
from fewlink.linker.trust import Trust, already_there, head_fans, measure_trust
from fewlink.scorers import GraphScorer, Question, Scorer, capabilities
from fewlink.training import RunConfig
from fewlink.training.checkpoints import load_best
from fewlink.training.run import Deployed

MOST_TRUST = 64  # questions whose trust is remembered


class Linker(GraphQuestions, pretrained.Shared):
    """Ranks tails for heads, given a handful of references of a relation. Entities are ids or readable names.

    `names` finds and completes entities; `shots` is the number of references taken if only a relation is named;
    `calibration` turns scores into probabilities if the run has one; `step` is that of its weights. Predictions use the
    graph of `benchmark`; `measured` is the benchmark the run was trained and measured on, which may be another one.

    An `inverse` linker, which `inverted` returns, reads all references from tail to head and ranks heads for tails.
    Questions take names, which `resolve` and `fewlink.linker.query` turn into ids; `rank` and `table` take ids.
    """

    origin = ""  # where a run was loaded from; a model of the hub with its commit

    def __init__(
        self,
        benchmark: Benchmark,
        scorer: Scorer,
        *,
        shots: int = 3,
        calibration: Calibration | None = None,
        run: Path | None = None,
        step: int = 0,
        measured: Benchmark | None = None,
        device: str = "cpu",
        inverse: bool = False,
    ) -> None:
        self.benchmark, self.scorer, self.shots, self.inverse = benchmark, scorer, shots, inverse
        self.measured = measured or benchmark
        self.calibration, self.run, self.step, self.device = calibration, run, step, device
        self.graph, self.names = benchmark.graph, Names(benchmark.graph)
        self.project = None
        self._trust: dict[object, Trust] = {}
        _ = self.graph.slots  # candidates are looked up in them: computed now, not during the first query

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        bench: str | Path | Benchmark | None = None,
        device: str = "cpu",
        as_measured: bool = False,
        names: bool = True,
    ) -> Self:
        """The best model of a run folder, or of a folder of `save_pretrained`, with its calibration if it has one.

        `bench` is the run's benchmark or its place, if it has moved. If `fewlink fit` or `fewlink data append` gave the
        run a larger graph, predictions use that one; `as_measured`, they use the graph its metrics were measured on.
        Without `names`, a fitted run does not read the names of entities.
        """
        folder = pretrained.fetch(run)

        def opened(place: Path) -> Any:
            benchmark = pretrained.benchmark_of(place, bench)
            deployed = None if as_measured else Deployed.open(place)
            scorer = pretrained.open_scorer(place, benchmark, deployed, device=device, names=names)
            step = load_best(place)[1]
            return cls(
                deployed.benchmark if deployed else benchmark,
                scorer,
                shots=RunConfig.read(place).settings.shots,
                calibration=calibration_of(place, benchmark, step),
                run=folder,
                step=step,
                measured=benchmark,
                device=device,
            )

        linker: Self = pretrained.read_model(folder, opened, complete=not as_measured)
        linker.origin = pretrained.origin_of(run, folder)
        return linker

    @classmethod
    def shipped(cls, benchmark: Benchmark, *, device: str = "cpu", **options: Any) -> Self:
        """TRAIL with the weights that come with fewlink, on what is known of a benchmark: background and train.

        `options` are those of `pretrained.shipped_scorer`: `names`, `text_model` and `descriptions`."""
        scorer = pretrained.shipped_scorer(benchmark, device=device, **options)
        return cls(benchmark, scorer, device=device, calibration=shipped_calibration())

    def limit_edges(self, edges: int) -> None:
        """Read about this many edges of the graph around each head: many heads are answered sooner, a little worse."""
        if not isinstance(self.scorer, GraphScorer):
            raise FewlinkError(f"{self.scorer.name} cannot limit the edges it reads: only trail on a CPU can")
        self.scorer.limit_edges(edges)
        self._trust.clear()

    def as_measured(self) -> Linker:
        """The linker on the benchmark that the run was measured on: this one unless predictions use another graph."""
        if self.measured is self.benchmark or self.run is None:
            return self
        named = capabilities(self.scorer).reads_names
        other = Linker.load(self.run, bench=self.measured, device=self.device, as_measured=True, names=named)
        if (other.scorer.name, other.step) == (self.scorer.name, self.step):  # not fitted again meanwhile
            other.calibration, other.shots = self.calibration, self.shots
        return other

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """The model that `save_pretrained` wrote; `load` opens it too."""
        return cls.load(folder, device=device)

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
        constraints: ConstraintChoice = None,
        rejected: Pairs = (),
    ) -> Predictions:
        """The k best tails of each head, heads in their order.

        `references`: pairs of a head and a tail; by default the first `shots` of the relation. `candidates`: None or
        "open", tails that resemble those of the references; "full", the range of the task relation; "all"; the name of
        a type; entities; or a predicate of entity ids. A pair is known if it is a reference or a pair of the named
        relation; known pairs do not compete, and are left out unless `exclude_known=False`. `constraints`: names of
        `fewlink.linker.constraints.KINDS`, "auto" or "none"; by default a head is not its own tail unless a known
        pair says so. `rejected`: wrong pairs; what resembles them ranks lower. Ranks are the evaluator's, except that
        ruled-out and rejected tails do not compete.
        """
        notes: list[str] = []
        resolved = self._references(references, relation, shots, notes, rejected)
        head_ids = query.find_heads(self.names, heads, notes, "tail" if self.inverse else "head")
        tails, used = self._candidates(candidates, resolved), Constraints.of(constraints, self.graph, resolved)
        trust = self.trust(resolved, None if query.is_open(candidates) else tails)
        pairs = self.rank(resolved, head_ids, k, tails, exclude_known, constraints=used, trust=trust)
        notes += used.notes(head_ids, tails)
        for head in np.setdiff1d(used.open_heads(head_ids), pairs.heads):
            notes.append(query.no_candidate_note(self.names, int(head)))
        return self.table(pairs, notes, resolved if explain else None, trust, candidates=len(tails))

    def heads(self, tails: str | Iterable[str] = (), references: Pairs | None = None, **options: Any) -> Predictions:
        """The k best heads of each tail, by the inverse relation: the references are read from tail to head.

        `options` are those of `predict`: `candidates` are heads, by default those that resemble the references' heads;
        `constraints` are named as for tails.
        """
        return self.inverted().predict(references, tails, **options)

    def inverted(self) -> Linker:
        """The linker that ranks heads for tails, with the same model."""
        other = copy.copy(self)
        other.inverse = not self.inverse
        return other

    def predict_pairs(
        self,
        references: Pairs | None = None,
        type_or_heads: str | Iterable[str] = (),
        k: int = 10,
        candidates: Choice = None,
        exclude_known: bool = True,
        relation: str | None = None,
        explain: bool = False,
        shots: int | None = None,
        constraints: ConstraintChoice = None,
        rejected: Pairs = (),
    ) -> Predictions:
        """The k best pairs of all heads of a type, or of these heads, best first: by probability, or else by score.

        `rank` is a tail's rank for its own head. Heads are scored in batches to limit memory.
        """
        notes: list[str] = []
        resolved = self._references(references, relation, shots, notes, rejected)
        if isinstance(type_or_heads, str):
            head_ids = self.names.members(type_or_heads)
        else:
            head_ids = query.find_heads(self.names, type_or_heads, notes)
        tails, used = self._candidates(candidates, resolved), Constraints.of(constraints, self.graph, resolved)
        trust = self.trust(resolved, None if query.is_open(candidates) else tails)
        pairs = self.rank(resolved, head_ids, k, tails, exclude_known, overall=True, constraints=used, trust=trust)
        notes += used.notes(head_ids, tails)
        return self.table(pairs, notes, resolved if explain else None, trust)

    def explain(
        self,
        references: Pairs | None = None,
        head: str = "",
        tail: str = "",
        *,
        relation: str | None = None,
        shots: int | None = None,
    ) -> Explanation:
        """What contributed to the score of one pair: evidence, paths, references and neighbours, also as sentences."""
        resolved = self._references(references, relation, shots, [])
        ends = self.names.find(head, "head"), self.names.find(tail, "tail")
        return self.explain_ids(resolved, *(ends[::-1] if self.inverse else ends))

    def references_of(self, relation: str, shots: int | None = None) -> list[tuple[str, str]]:
        """The first `shots` pairs of a relation as ids: the references of a query that gives none."""
        return query.id_texts(self.graph, self.resolve(None, relation, shots).pairs)

    def resolve(
        self,
        pairs: Iterable[tuple[int, int]] | None,
        relation: str | None = None,
        shots: int | None = None,
        notes: list[str] | None = None,
    ) -> References:
        """References from pairs of ids, or the first `shots` of a relation given by name; remarks go to `notes`."""
        notes = [] if notes is None else notes
        named = None if relation is None else query.find_relation(self.benchmark, relation)
        trained = RunConfig.read(self.run).benchmark["train"] if named and self.run else ()
        if named is not None and named.name in trained:
            notes.append(f"the model was trained on {named.name}: it does better there than on a new relation")
        if pairs is not None:
            distinct = query.distinct_pairs(self.names, pairs, notes)
            if named is None and not self.reads_trust and (present := query.relations_of(self.graph, distinct)):
                notes.append(already_there(present[0]))  # else the trust of the question says it
            most = capabilities(self.scorer).references_read(len(distinct))
            if len(distinct) > most:
                notes.append(f"{self.scorer.name} reads the first {most} of {len(distinct)} references")
            return References(distinct, named)
        if named is None:
            raise FewlinkError("no references: give pairs of a head and a tail, or name a relation to take them from")
        return References(query.first_pairs(named, self.shots if shots is None else shots), named)

    def rank(
        self,
        references: References,
        heads: np.ndarray,
        k: int,
        candidates: np.ndarray,
        exclude_known: bool = True,
        overall: bool = False,
        constraints: Constraints | None = None,
        trust: Trust | None = None,
        settle: bool = True,
    ) -> RankedPairs:
        """The k best tails of each of the heads (h,) among candidates (c,); or, `overall`, the k best pairs of all.

        By default it is constrained that a head is not its own tail. Unless `settle`, ruled-out pairs are kept.
        """
        k = query.check_count(k)
        used = constraints or Constraints.of(None, self.graph, references)
        heads = used.open_heads(heads) if exclude_known else heads
        name = references.relation.name if references.relation else ""
        question = Question(name, references.ids, heads, candidates)
        pool = max(100 * k, 10_000)
        settle = settle and used.between_pairs
        most, deep = (pool, k + len(heads)) if settle else (k, k)
        parts: list[RankedPairs] = []
        scorer = learning_scorer(self.scorer, known_graph(self.benchmark), references.ids, references.rejected_ids)
        for part in rank_tails(
            scorer, question, deep, references.known_tails, with_known=not exclude_known, allowed=used.allowed
        ):
            parts.append(part)
            if overall and sum(map(len, parts)) > 2 * pool:
                parts = [self.best_pairs(parts, most, trust)]
        pairs = self.best_pairs(parts, most, trust) if overall else RankedPairs.joined(parts)
        return used.settle(pairs, self.keys(pairs, trust), k, overall) if settle else pairs

    @property
    def reads_trust(self) -> bool:
        """Whether there is a calibration that reads the trust of a question."""
        return self.calibration is not None and self.calibration.reads_trust

    def trust(self, references: References, candidates: np.ndarray | None = None) -> Trust | None:
        """What is known of a question besides its scores, remembered; None if no calibration reads it.

        `candidates` (c,) are those of the question, None if they are open.
        """
        if not self.reads_trust:
            return None
        key = dataclasses.replace(references, rejected=()), None if candidates is None else candidates.tobytes()
        trust = self._trust.get(key)
        if trust is None:
            forward = references.inverted() if references.inverse else references
            present = query.relations_of(self.graph, forward.pairs) if references.relation is None else []
            known = Trust(len(references.pairs), known=True, relation=present[0]) if present else None
            self._trust[key] = trust = known or measure_trust(self.scorer, self.graph, references, candidates)
            for oldest in list(self._trust)[:-MOST_TRUST]:  # of a copy: another thread may change it meanwhile
                self._trust.pop(oldest, None)
        return trust

    def best_pairs(self, parts: Sequence[RankedPairs], k: int, trust: Trust | None = None) -> RankedPairs:
        """The k best of all pairs: by probability, or else by score."""
        pairs = RankedPairs.joined(parts)
        return pairs.take(np.lexsort((pairs.tails, pairs.heads, -pairs.scores, -self.keys(pairs, trust)))[:k])

    def keys(self, pairs: RankedPairs, trust: Trust | None = None) -> np.ndarray:
        """What pairs of several heads are compared by (n,): probabilities, or else scores."""
        return pairs.scores if self.calibration is None else self.adjusted(self._base(pairs, trust), pairs.heads)

    def _base(self, pairs: RankedPairs, trust: Trust | None) -> np.ndarray:
        """As `keys`, before decisions of a project adjust probabilities."""
        calibrated, fans = self.calibration, head_fans(self.graph)[pairs.heads]
        return pairs.scores if calibrated is None else calibrated.probabilities(pairs, fans, trust)

    def table(
        self,
        pairs: RankedPairs,
        notes: Sequence[str] = (),
        references: References | None = None,
        trust: Trust | None = None,
        candidates: int | None = None,
    ) -> Predictions:
        """Ranked pairs with names and, given their trust, probabilities; with reasons if `references` are given.

        Given the number of `candidates` of each question, with answer sets.
        """
        graph, note, key, base = self.graph, None, self.keys(pairs, trust), self._base(pairs, trust)
        if self.calibration is not None and len(pairs):
            first = base[pairs.ranks < 2]
            note = self.calibration.note(trust, float(first.mean()) if len(first) else 0.0)
        probabilities = key.tolist() if note is not None and note.shown else [None] * len(pairs)
        directed = pairs.inverted() if self.inverse else pairs
        rows = [
            Prediction(
                head=graph.entities[head],
                head_name=graph.name(head),
                rank=float(pairs.ranks[i]),
                tail=graph.entities[tail],
                tail_name=graph.name(tail),
                score=float(pairs.scores[i]),
                probability=probabilities[i],
                known=bool(pairs.known[i]),
                base_probability=None if self.calibration is None else float(base[i]),
                reasons=self.explain_ids(references, *asked) if references else None,
            )
            for i, (head, tail, *asked) in enumerate(
                zip(*(ends.tolist() for both in (directed, pairs) for ends in (both.heads, both.tails)), strict=True)
            )
        ]
        predictions = Predictions(rows, notes, note, self.inverse)
        if self.calibration is None or candidates is None or (trust is not None and trust.known):
            return predictions
        asked = pairs.heads, base, ~pairs.known, candidates
        return predictions.with_sets(
            answer_sets(self.calibration.sets, graph, *asked, "head" if self.inverse else "tail")
        )

    def explain_ids(self, references: References, head: int, tail: int) -> Explanation:
        """What contributed to the score of a pair of ids, from tail to head if the references are inverse."""
        said = explain_pair(self.scorer, self.graph, references.ids, head, tail, inverse=references.inverse)
        if not references.rejected:
            return said
        asked = Question("", references.ids, np.array([head]), np.array([tail]))
        learning = learning_scorer(self.scorer, known_graph(self.benchmark), references.ids, references.rejected_ids)
        more = float(np.asarray(learning(asked))[0, 0]) - float(np.asarray(self.scorer(asked))[0, 0])
        evidence = {**said.evidence, "decisions": "rejected pairs"}
        shares = {**said.shares, "decisions": more}
        return dataclasses.replace(said, score=said.score + more, shares=shares, evidence=evidence)

    def _references(
        self, pairs: Pairs | None, relation: str | None, shots: int | None, notes: list[str], rejected: Pairs = ()
    ) -> References:
        if self.project is not None:
            notes += self.project.notes(adjusted=not self.inverse)
            pairs = self.project.references if pairs is None and relation is None else pairs
            rejected = [*rejected, *self.project.rejected]
        ids = None if pairs is None else query.find_pairs(self.names, pairs)
        given = self.resolve(ids, relation, shots, notes).without(rejected, self.names, notes)
        return given.inverted() if self.inverse else given

    def _candidates(self, choice: Choice, references: References) -> np.ndarray:
        return query.find_candidates(self.benchmark, self.names, choice, references)
