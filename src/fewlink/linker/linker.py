"""A model ready for queries: references of a relation in, ranked, calibrated and explained tails out."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import numpy as np

from fewlink.core.errors import FewlinkError, shown
from fewlink.curation.learning import learning_scorer
from fewlink.data import Benchmark
from fewlink.data.training_graph import known_graph
from fewlink.linker import drawing, saving
from fewlink.linker.adjustment import ProjectReading
from fewlink.linker.answer_sets import answer_sets
from fewlink.linker.calibration import TOP, Calibration, calibrate_on_dev, calibration_of, shipped_calibration
from fewlink.linker.check import CheckedTriple, check
from fewlink.linker.complete import (
    MAX_REFERENCES,
    as_task,
    best_of_batches,
    check_out,
    check_probabilities,
    digest,
    plausible_heads,
    spread_pairs,
    write_completion,
)
from fewlink.linker.constraints import ConstraintChoice, Constraints, check_kinds
from fewlink.linker.explanation import Explanation
from fewlink.linker.names import Names
from fewlink.linker.predictions import Prediction, Predictions
from fewlink.linker.query import (
    Choice,
    Pairs,
    Query,
    References,
    candidate_ids,
    check_count,
    distinct_pairs,
    find_candidates,
    find_heads,
    find_pairs,
    find_relation,
    first_pairs,
    id_texts,
    relations_of,
)
from fewlink.linker.ranking import RankedPairs, rank_tails
from fewlink.linker.reasons import explain_pair
from fewlink.linker.relations import RelationFit, best_relations, described_fit
from fewlink.linker.tables import Answers
from fewlink.linker.trust import Trust, already_there, head_fans, measure_trust
from fewlink.scorers import GraphScorer, Question, Scorer, capabilities
from fewlink.training import RunConfig
from fewlink.training.checkpoints import load_best
from fewlink.training.run import Deployed

REMEMBERED_TRUST = 64  # queries whose trust is remembered
REMEMBERED_LISTS = 16  # queries whose candidates and constraints are remembered
POOL_FACTOR, MIN_POOL = 100, 10_000  # pairs of all heads that are compared: a multiple of k, and at least so many
T = TypeVar("T")


class Linker:
    """Ranks tails for heads, given a handful of references of a relation. Entities are ids or readable names.

    benchmark    the graph that predictions use, with its tasks
    scorer       the model
    shots        how many references are taken if a query only names a relation
    calibration  turns scores into probabilities; None if the model is not calibrated
    run, step    the run folder that the model was loaded from, and the training step of its weights
    measured     the benchmark that the run was trained and measured on, if it is another one
    names        finds and completes entities

    `predict`, `heads`, `predict_pairs`, `explain`, `complete`, `relations` and `check` take and return names.

    Every answer takes the same stages, each of them a method: `resolve` turns names into a `Query` of ids; `candidates`
    lists the tails to rank; `trust` holds out references; `rank` scores and ranks the tails of each head; `settle`
    applies constraints between pairs; `probabilities` calibrates; `predictions` adds names and reasons. `answer` runs
    them one after another. A server calls them one by one, some heads at a time.
    """

    origin = ""  # where the model was loaded from: a path, or its name on the hub with its commit

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
    ) -> None:
        self.benchmark = benchmark
        self.scorer = scorer
        self.shots = shots
        self.calibration = calibration
        self.run = run
        self.step = step
        self.measured = measured or benchmark
        self.device = device
        self.graph = benchmark.graph
        self.names = Names(benchmark.graph)
        self.project: ProjectReading | None = None
        self.recent_trust: dict[object, Trust] = {}
        self._recent_candidates: dict[object, np.ndarray] = {}
        self._recent_constraints: dict[object, Constraints] = {}
        _ = self.graph.slots  # candidates are looked up in them: computed now, not during the first query

    # Opening and saving

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
        run a larger graph, predictions use that one; with `as_measured`, the graph its metrics were measured on.
        Without `names`, a fitted run does not read the names of entities.
        """
        folder = saving.fetch(run)

        def open_linker(place: Path) -> Any:
            benchmark = saving.benchmark_of(place, bench)
            deployed = None if as_measured else Deployed.open(place)
            scorer = saving.open_scorer(place, benchmark, deployed, device=device, names=names)
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

        linker: Self = saving.read_model(folder, open_linker, complete=not as_measured)
        linker.origin = saving.origin_of(run, folder)
        return linker

    @classmethod
    def shipped(
        cls,
        benchmark: Benchmark,
        *,
        device: str = "cpu",
        names: bool = True,
        text_model: str | Path | None = None,
        descriptions: str | Path | None = None,
    ) -> Self:
        """TRAIL with the weights that come with fewlink, on what is known of a benchmark: background and train.

        `names`, `text_model` and `descriptions` are as in `fewlink.load`.
        """
        scorer = saving.shipped_scorer(
            benchmark, device=device, names=names, text_model=text_model, descriptions=descriptions
        )
        return cls(benchmark, scorer, device=device, calibration=shipped_calibration())

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """The model that `save_pretrained` wrote; `load` opens it too."""
        return cls.load(folder, device=device)

    def save_pretrained(self, folder: str | Path, *, license: str = saving.UNKNOWN) -> Path:
        """Write a self-contained folder: model, vectors, graph, calibration and card, with checksums.

        What only training needs is left out. `license` is the identifier in the card, such as "apache-2.0"; consider
        the licence of the data too.
        """
        return saving.save(self._trained(), self.measured, Path(folder), origin=self.origin, license=license)

    def push_to_hub(self, name: str, *, private: bool = False, license: str = saving.UNKNOWN) -> str:
        """Publish the folder of `save_pretrained` on the Hugging Face hub as `owner/name`; returns its address.

        `fewlink.load("hub:owner/name")` opens it. Log in first: `hf auth login`. The folder contains the graph.
        """
        return saving.publish(
            self._trained(), self.measured, name, origin=self.origin, private=private, license=license
        )

    def _trained(self) -> Path:
        if self.run is None:
            raise FewlinkError(f"{self.scorer.name} was not opened from a run: only a trained run can be saved")
        return self.run

    def as_measured(self) -> Linker:
        """The linker on the benchmark that the run was measured on: this one unless predictions use another graph."""
        if self.measured is self.benchmark or self.run is None:
            return self
        other = Linker.load(
            self.run,
            bench=self.measured,
            device=self.device,
            as_measured=True,
            names=capabilities(self.scorer).reads_names,
        )
        if (other.scorer.name, other.step) == (self.scorer.name, self.step):  # the run was not fitted again meanwhile
            other.calibration, other.shots = self.calibration, self.shots
        return other

    def with_project(self, file: str | Path, name: str | None = None) -> Self:
        """The linker for a project of a file, as `fewlink serve --project` keeps it.

        `predict`, `predict_pairs` and `heads` then use its references and accepted pairs, unless a query gives
        references or a relation; `complete` always does. Its rejected pairs count as rejected, and its decisions adjust
        probabilities.
        """
        read = ProjectReading.of(file, name)
        find = self.graph.entities.find
        lacking = {pair: None for pair in (*read.references, *read.rejected) if None in map(find, pair)}
        other = copy.copy(self)
        other.project = dataclasses.replace(
            read,
            references=tuple(pair for pair in read.references if pair not in lacking),
            rejected=tuple(pair for pair in read.rejected if pair not in lacking),
            lacking=tuple(lacking),
        )
        return other

    def limit_edges(self, edges: int) -> None:
        """Read about this many edges of the graph around each head: faster for many heads, slightly less accurate."""
        if not isinstance(self.scorer, GraphScorer):
            raise FewlinkError(f"{self.scorer.name} cannot limit the edges it reads: only trail on a CPU can")
        self.scorer.limit_edges(edges)
        self.recent_trust.clear()

    # Questions by name

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
        pair says so. `rejected`: wrong pairs; pairs that resemble them rank lower. Ranks are the evaluator's, except
        that ruled-out and rejected tails do not compete.
        """
        query = self.resolve(
            references,
            heads,
            k,
            candidates,
            exclude_known,
            relation,
            explain,
            shots,
            constraints,
            rejected,
        )
        return self.answer(query)

    def heads(
        self,
        tails: str | Iterable[str] = (),
        references: Pairs | None = None,
        k: int = 10,
        candidates: Choice = None,
        exclude_known: bool = True,
        relation: str | None = None,
        explain: bool = False,
        shots: int | None = None,
        constraints: ConstraintChoice = None,
        rejected: Pairs = (),
    ) -> Predictions:
        """The k best heads of each tail: `predict` for the inverse relation, with references as pairs of head and tail.

        `candidates` are heads, by default those that resemble the references' heads; constraints keep their names.
        """
        query = self.resolve(
            references,
            tails,
            k,
            candidates,
            exclude_known,
            relation,
            explain,
            shots,
            constraints,
            rejected,
            inverse=True,
        )
        return self.answer(query)

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
        of_type = isinstance(type_or_heads, str)
        query = self.resolve(
            references,
            () if of_type else type_or_heads,
            k,
            candidates,
            exclude_known,
            relation,
            explain,
            shots,
            constraints,
            rejected,
            heads_of_type=str(type_or_heads) if of_type else None,
            across_heads=True,
        )
        return self.answer(query)

    def explain(
        self,
        references: Pairs | None = None,
        head: str = "",
        tail: str = "",
        *,
        relation: str | None = None,
        shots: int | None = None,
        inverse: bool = False,
    ) -> Explanation:
        """What contributed to the score of one pair: evidence, paths, references and neighbours, also as sentences.

        If `inverse`, the score is that of the head as an answer for the tail, as in `heads`.
        """
        query = self.resolve(references, relation=relation, shots=shots, inverse=inverse)
        head_id, tail_id = self.names.find(head, "head", "head"), self.names.find(tail, "tail", "tail")
        ends = (tail_id, head_id) if inverse else (head_id, tail_id)
        return self.explain_pair(query.references, *ends)

    def references_of(self, relation: str, shots: int | None = None) -> list[tuple[str, str]]:
        """The first `shots` pairs of a relation as ids: the references of a query that gives none."""
        return id_texts(self.graph, self.find_references(None, relation, shots).pairs)

    def complete(
        self,
        references: Pairs | None = None,
        *,
        relation: str | None = None,
        top: int = 1000,
        min_probability: float = 0.0,
        k: int = 10,
        heads: str | Iterable[str] | None = None,
        candidates: Choice = None,
        constraints: ConstraintChoice = None,
        out: str | Path | None = None,
        exact: bool = False,
        on_heads: Callable[[int, int], None] = lambda done, count: None,
    ) -> Predictions:
        """The `top` best missing pairs of a relation, of all entities like its heads, or of these `heads` or a type.

        Each head contributes up to k pairs. A relation of the graph is hidden from TRAIL, and known pairs from all over
        it are the references. With `out`, pairs are written to that file (JSON lines or TSV, by its suffix), and an
        interrupted call resumes where it stopped; `exact` is as in `Predictions.to_tsv`. `on_heads` is called with the
        number of heads done and their total. With a project (`with_project`), its references and accepted pairs are
        references too, pairs that resemble its rejected ones rank lower, and decided pairs are left out.
        """
        top, k, file = check_count(top, "top"), check_count(k), None if out is None else Path(out)
        if file is not None:
            check_out(file)
        if self.project is not None:
            references = [*(references or ()), *self.project.references] or None
        query = self.resolve(
            references,
            () if heads is None or isinstance(heads, str) else heads,
            top,
            candidates,
            relation=relation,
            constraints=constraints,
            heads_of_type=heads if isinstance(heads, str) else None,
            across_heads=True,
        )
        model, query = self._hiding_relation(query, spread=references is None)
        if heads is None:
            query = dataclasses.replace(query, heads=tuple(plausible_heads(self.graph, query.references).tolist()))
        trust, used = model.trust(query), model.constraints(query)
        if min_probability > 0:
            check_probabilities(self.calibration, trust)
        facts = {**self._facts(query, relation), "top": top, "k": k, "min_probability": min_probability}

        def rank(batch: Sequence[int]) -> RankedPairs:
            part = dataclasses.replace(query, heads=tuple(batch), k=k, across_heads=False)
            pairs = model.settle(part, model.rank(part, trust), trust)
            if not min_probability:
                return pairs
            return pairs.take(np.flatnonzero(model.sort_keys(part, pairs, trust) >= min_probability))

        pairs = best_of_batches(
            used.open_heads(np.array(query.heads, np.int32)).tolist(),
            rank,
            lambda pairs, count: model.best_pairs(query, pairs, trust, count),
            top,
            facts,
            file,
            lambda done: on_heads(done, len(query.heads)),
        )
        predictions = model.predictions(query, model.settle(query, pairs, trust), trust)
        if file is not None:
            write_completion(file, predictions, facts, exact=exact)
        return predictions

    def _hiding_relation(self, query: Query, *, spread: bool) -> tuple[Linker, Query]:
        """A linker whose model does not see the relation of a query, if the model reads it in the graph and can do
        without; and the query for it. If `spread`, references are taken from all over the relation."""
        references, scorer = query.references, self.scorer
        relation = references.relation
        if relation is None or not isinstance(scorer, GraphScorer) or (relation.number < 0 and not relation.trained):
            return self, query
        other = copy.copy(self)
        other.scorer, other.recent_trust = scorer.without(relation.name), {}
        relation = as_task(dataclasses.replace(relation, trained=False), self.graph)
        pairs = references.pairs
        if spread:
            pairs = spread_pairs(relation, capabilities(scorer).most_references or MAX_REFERENCES)
        references = dataclasses.replace(references, pairs=pairs, relation=relation)
        return other, dataclasses.replace(query, references=references)

    def _facts(self, query: Query, relation: str | None) -> dict[str, Any]:
        """What decides the pairs of a completion: stored batches are used again only if all of it is the same."""
        able, heads, tails = capabilities(self.scorer), np.array(query.heads, np.int32), self.candidates(query)
        facts = {
            "model": self.scorer.name,
            "step": self.step,
            "graph": self.graph.fingerprint,
            "relation": relation,
            "references": id_texts(self.graph, query.references.pairs),
            "heads": len(heads),
            "tails": len(tails),
            "asked": digest(heads, tails),
            "evidence": sorted(able.evidence),
            "edges": able.edges_read,
            "constraints": sorted(self.constraints(query).kinds),
        }
        if self.project is not None:
            facts["project"] = self.project.name
            facts["rejected"] = id_texts(self.graph, query.references.rejected)
        return facts

    def relations(
        self, head: str, tail: str, described: Mapping[str, Pairs] | None = None, k: int = 10
    ) -> Answers[RelationFit]:
        """The k relations that fit a pair best: relations of the graph, and `described` ones, given as references.

        A triple of the graph does not count as evidence for itself.
        """
        head_id, tail_id = self.names.find(head, "head", "head"), self.names.find(tail, "tail", "tail")
        fits = {
            name: described_fit(self.scorer, self.graph, self.find_references(pairs), head_id, tail_id)
            for name, pairs in (described or {}).items()
        }
        return best_relations(known_graph(self.benchmark), head_id, tail_id, fits, check_count(k))

    def check(
        self,
        relation: str | None = None,
        top: int | None = None,
        on_relation: Callable[[int], None] = lambda done: None,
    ) -> Answers[CheckedTriple]:
        """The triples of a relation, or of all relations, the oddest first: likely errors. It needs no model."""
        return check(self.benchmark, relation, top, on_relation)

    # The stages of an answer

    def answer(self, query: Query) -> Predictions:
        """The predictions for a query: all stages."""
        self._check_heads(query)
        trust = self.trust(query)
        pairs = self.settle(query, self.rank(query, trust), trust)
        return self.predictions(query, pairs, trust)

    def resolve(
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
        *,
        heads_of_type: str | None = None,
        across_heads: bool = False,
        inverse: bool = False,
    ) -> Query:
        """A query by ids; the arguments are those of `predict`.

        `heads_of_type` takes all entities of a type as heads. `across_heads`: the k best pairs of all heads together.
        `inverse`: `heads` are tails, and heads are ranked for them. Raises `UnknownName`, with the field of the name,
        for a name that the graph lacks. Heads may be left out and added to the query later.
        """
        notes: list[str] = []
        adjustment, answered = None, frozenset[int]()
        if self.project is not None:
            notes += self.project.notes(adjusted=not inverse)
            references = self.project.references if references is None and relation is None else references
            rejected = [*rejected, *self.project.rejected]
            if not inverse:  # decisions are about tails
                adjustment = self.project.adjustment
                answered = frozenset(self.graph.entities.id(head) for head in self.project.answered())
        given = self.find_references(references, relation, shots, notes)
        wrong = find_pairs(self.names, rejected, "rejected pair", "rejected")
        given = given.with_rejected(wrong, self.names, notes)
        if heads_of_type is not None:
            found = tuple(self.names.members(heads_of_type, "heads_of_type").tolist())
        else:
            found = find_heads(self.names, heads, notes, "tail" if inverse else "head")
        return Query(
            references=given.inverted() if inverse else given,
            heads=found,
            k=check_count(k),
            candidates=find_candidates(self.graph, self.names, candidates),
            exclude_known=exclude_known,
            constraints=check_kinds(constraints),
            across_heads=across_heads,
            explain=explain,
            adjustment=adjustment,
            answered=answered,
            notes=tuple(notes),
        )

    def find_references(
        self,
        pairs: Pairs | None,
        relation: str | None = None,
        shots: int | None = None,
        notes: list[str] | None = None,
    ) -> References:
        """References by name, or the first `shots` pairs of a relation; adds remarks to `notes`."""
        notes = [] if notes is None else notes
        named = None if relation is None else find_relation(self.benchmark, relation)
        if named is not None and self.run is not None and named.name in RunConfig.read(self.run).benchmark["train"]:
            notes.append(f"the model was trained on {named.name}: it does better there than on a new relation")
        if pairs is None and named is None:
            raise FewlinkError("no references: give pairs of a head and a tail, or name a relation to take them from")
        if pairs is None and named is not None:
            return References(first_pairs(named, self.shots if shots is None else shots), named)
        found = find_pairs(self.names, pairs or ())
        if not found:
            raise FewlinkError("no references: give at least one pair of a head and a tail that the relation holds for")
        distinct = distinct_pairs(self.names, found, notes)
        if named is None and self.calibration is None and (present := relations_of(self.graph, distinct)):
            notes.append(already_there(present[0]))  # if there is a calibration, the trust of the query says so
        read = capabilities(self.scorer).references_read(len(distinct))
        if len(distinct) > read:
            notes.append(f"{self.scorer.name} reads the first {read} of {len(distinct)} references")
        return References(distinct, named)

    def _check_heads(self, query: Query) -> None:
        if not query.heads:
            given, found = ("tail", "head") if query.inverse else ("head", "tail")
            raise FewlinkError(f"no {given}s: name at least one entity to find {found}s for")

    def candidates(self, query: Query) -> np.ndarray:
        """The tails to rank (c,), sorted; those of the last few queries are remembered."""
        key = query.candidates, query.references
        return _remembered(
            self._recent_candidates,
            key,
            lambda: candidate_ids(self.benchmark, self.names, query.candidates, query.references),
            REMEMBERED_LISTS,
        )

    def constraints(self, query: Query) -> Constraints:
        """The constraints of a query; those of the last few are remembered."""
        key = query.constraints, query.references
        return _remembered(
            self._recent_constraints,
            key,
            lambda: Constraints.of(query.constraints, self.graph, query.references),
            REMEMBERED_LISTS,
        )

    def trust(self, query: Query) -> Trust | None:
        """What is known of a query besides its scores, remembered; None if the model is not calibrated."""
        if self.calibration is None:
            return None
        references = dataclasses.replace(query.references, rejected=())

        def measure() -> Trust:
            forward = references.inverted() if references.inverse else references
            if references.relation is None and (present := relations_of(self.graph, forward.pairs)):
                return Trust(len(references.pairs), known=True, relation=present[0])
            candidates = None if query.candidates == "open" else self.candidates(query)
            return measure_trust(self.scorer, self.graph, references, candidates)

        return _remembered(self.recent_trust, (references, query.candidates), measure, REMEMBERED_TRUST)

    def rank(self, query: Query, trust: Trust | None = None) -> RankedPairs:
        """The best tails of each head, scored and ranked among the candidates that no constraint rules out.

        There are k of each head, or as many as `settle` needs to apply constraints between pairs. If the query is
        `across_heads`, only the best pairs of all are kept; by probability, which needs the `trust`.
        """
        used, references = self.constraints(query), query.references
        heads = np.array(query.heads, np.int32)
        question = Question(
            relation=references.relation.name if references.relation else "",
            references=references.ids,
            heads=used.open_heads(heads) if query.exclude_known else heads,
            candidates=self.candidates(query),
        )
        scorer = learning_scorer(self.scorer, known_graph(self.benchmark), references.ids, references.rejected_ids)
        depth = query.k + query.competing_heads if used.between_pairs else query.k
        kept = self._pool(query)
        parts: list[RankedPairs] = []
        for of_head in rank_tails(
            scorer, question, depth, references.known_tails, with_known=not query.exclude_known, allowed=used.allowed
        ):
            parts.append(of_head)
            if query.across_heads and sum(map(len, parts)) > 2 * max(kept, MIN_POOL):
                parts = [self.best_pairs(query, RankedPairs.joined(parts), trust, kept)]
        pairs = RankedPairs.joined(parts)
        return self.best_pairs(query, pairs, trust, kept) if query.across_heads else pairs

    def rank_batch(self, queries: Sequence[Query], trust: Trust | None = None) -> list[RankedPairs]:
        """`rank` for several queries of one `Query.batch_key`, in one call: their heads are scored together."""
        first, deepest = queries[0], max(queries, key=lambda query: query.k)
        if first.across_heads:
            pairs = self.rank(deepest, trust)
            return [pairs.take(np.arange(min(self._pool(query), len(pairs)))) for query in queries]
        heads = tuple(dict.fromkeys(head for query in queries for head in query.heads))
        pairs = self.rank(dataclasses.replace(deepest, heads=heads), trust)
        begins = np.flatnonzero(np.diff(pairs.heads, prepend=-1))  # the rows of a head are consecutive
        rows = dict(zip(pairs.heads[begins].tolist(), np.split(np.arange(len(pairs)), begins[1:]), strict=False))
        none = np.zeros(0, np.int64)
        between = self.constraints(first).between_pairs
        return [
            pairs.take(
                np.concatenate([rows.get(head, none)[: None if between else query.k] for head in query.heads] or [none])
            )
            for query in queries
        ]

    def settle(self, query: Query, pairs: RankedPairs, trust: Trust | None) -> RankedPairs:
        """The pairs that are left after constraints between pairs; if `across_heads`, the k best of all.

        `pairs` are those of `rank`, of all parts of the query joined.
        """
        used = self.constraints(query)
        if query.across_heads:
            pairs = self.best_pairs(query, pairs, trust, self._pool(query))
        if not used.between_pairs:
            return pairs
        return used.settle(pairs, self.sort_keys(query, pairs, trust), query.k, query.across_heads)

    def _pool(self, query: Query) -> int:
        """How many of the best pairs of all heads are kept: k, or more of which constraints leave k."""
        return max(POOL_FACTOR * query.k, MIN_POOL) if self.constraints(query).between_pairs else query.k

    def best_pairs(self, query: Query, pairs: RankedPairs, trust: Trust | None, count: int) -> RankedPairs:
        """The best pairs of all heads: by probability, or else by score."""
        keys = self.sort_keys(query, pairs, trust)
        return pairs.take(np.lexsort((pairs.tails, pairs.heads, -pairs.scores, -keys))[:count])

    def sort_keys(self, query: Query, pairs: RankedPairs, trust: Trust | None) -> np.ndarray:
        """What pairs of several heads are compared by (n,): probabilities, or else scores."""
        probabilities = self.probabilities(query, pairs, trust)
        return pairs.scores if probabilities is None else probabilities[1]

    def probabilities(
        self, query: Query, pairs: RankedPairs, trust: Trust | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """The model's probabilities (n,) of pairs, and the same as decisions adjust them; None if not calibrated."""
        if self.calibration is None:
            return None
        own = self.calibration.probabilities(pairs, head_fans(self.graph)[pairs.heads], trust)
        if query.adjustment is None:
            return own, own
        return own, query.adjustment(own, np.isin(pairs.heads, list(query.answered)))

    def predictions(self, query: Query, pairs: RankedPairs, trust: Trust | None) -> Predictions:
        """Settled pairs as rows with names, probabilities if they can be trusted, and reasons if the query wants them.

        Notes on constraints and on heads without candidates follow those of the query. Unless `across_heads`, there are
        answer sets too.
        """
        graph, both = self.graph, self.probabilities(query, pairs, trust)
        note = None
        if self.calibration is not None and both is not None and len(pairs):
            first = both[0][pairs.ranks < 2]
            note = self.calibration.note(trust, float(first.mean()) if len(first) else 0.0)
        shown_probabilities = both[1].tolist() if both is not None and note is not None and note.shown else None
        rows = []
        for i, (asked, found) in enumerate(zip(pairs.heads.tolist(), pairs.tails.tolist(), strict=True)):
            head, tail = (found, asked) if query.inverse else (asked, found)
            rows.append(
                Prediction(
                    head=graph.entities[head],
                    head_name=graph.name(head),
                    rank=float(pairs.ranks[i]),
                    tail=graph.entities[tail],
                    tail_name=graph.name(tail),
                    score=float(pairs.scores[i]),
                    probability=None if shown_probabilities is None else shown_probabilities[i],
                    known=bool(pairs.known[i]),
                    base_probability=None if both is None else float(both[0][i]),
                    reasons=self.explain_pair(query.references, asked, found) if query.explain else None,
                )
            )
        predictions = Predictions(rows, self._notes(query, pairs), note, query.inverse)
        if self.calibration is None or both is None or query.across_heads or (trust is not None and trust.known):
            return predictions
        return predictions.with_sets(
            answer_sets(
                self.calibration.sets,
                graph,
                pairs.heads,
                both[0],
                ~pairs.known,
                len(self.candidates(query)),
                "head" if query.inverse else "tail",
            )
        )

    def _notes(self, query: Query, pairs: RankedPairs) -> list[str]:
        used, heads = self.constraints(query), np.array(query.heads, np.int32)
        notes = [*query.notes, *used.notes(heads, self.candidates(query))]
        if not query.across_heads:
            for head in np.setdiff1d(used.open_heads(heads), pairs.heads).tolist():
                quoted = self.names.quoted(head)
                notes.append(f"{quoted} has no candidate left: all of them are known answers or ruled out")
        return notes

    def explain_pair(self, references: References, head: int, tail: int) -> Explanation:
        """What contributed to the score of a pair of ids, from tail to head if the references are inverse."""
        explanation = explain_pair(self.scorer, self.graph, references.ids, head, tail, inverse=references.inverse)
        if not references.rejected:
            return explanation
        question = Question("", references.ids, np.array([head]), np.array([tail]))
        learning = learning_scorer(self.scorer, known_graph(self.benchmark), references.ids, references.rejected_ids)
        change = float(np.asarray(learning(question))[0, 0]) - float(np.asarray(self.scorer(question))[0, 0])
        return dataclasses.replace(
            explanation,
            score=explanation.score + change,
            shares={**explanation.shares, "decisions": change},
            evidence={**explanation.evidence, "decisions": "rejected pairs"},
        )

    # Display

    def __repr__(self) -> str:
        facts = f"{len(self.graph.entities):,} entities, {'' if self.calibration else 'not '}calibrated"
        return f"Linker({shown(f'{self.scorer.name} on {self.benchmark.name}, {facts}')})"

    def _repr_html_(self) -> str:
        graph, types = self.graph, self.graph.types
        facts = {
            "model": self.scorer.name,
            "graph": self.benchmark.name,
            "entities": f"{len(graph.entities):,}",
            "entity types": f"{len(types.names):,}" if types else "none",
            "relations": f"{len(graph.relations):,}",
            "triples": f"{graph.triple_count:,}",
            "calibrated": "yes" if self.calibration else "no: scores and ranks, no probabilities",
        }
        return drawing.block(drawing.facts(facts))


def _remembered(memory: dict[object, T], key: object, make: Callable[[], T], most: int) -> T:
    """The value of a key, made if it is not remembered; of more than `most` values the oldest are forgotten."""
    value = memory.get(key)
    if value is None:
        memory[key] = value = make()
        for oldest in list(memory)[:-most]:  # of a copy: another thread may change it meanwhile
            memory.pop(oldest, None)
    return value


def load(
    source: str | Path,
    *,
    bench: str | Path | None = None,
    types: str | Path | None = None,
    names: str | Path | Literal[False] | None = None,
    device: str = "cpu",
    text_model: str | Path | None = None,
    descriptions: str | Path | None = None,
) -> Linker:
    """A model ready for queries: of a run folder, a folder of `save_pretrained`, or `hub:owner/name[@revision]`.

    For a file of triples, a compiled graph or a benchmark, the weights that come with fewlink: nothing is trained.
    `bench`: the benchmark of a run, if it has moved; `types` and `names`: files of entity types and readable names that
    describe a file of triples. The names of entities are evidence unless `names=False`; `text_model` is the folder of a
    sentence-transformers or model2vec model whose vectors of the names count too; it also reads the file of
    `descriptions`, an id, a tab and a text per line.
    """
    read_names, names = names is not False, names or None
    if saving.is_model(source):
        if any(each is not None for each in (types, names, text_model, descriptions)):
            raise FewlinkError(f"types, names and text models are for graphs, and {source} is a trained model")
        return Linker.load(source, bench=bench, device=device, names=read_names)
    if bench is not None:
        raise FewlinkError(f"bench is the benchmark of a trained model, and {source} is not a trained model")
    benchmark = saving.graph_of(source, types, names)
    return Linker.shipped(benchmark, device=device, names=read_names, text_model=text_model, descriptions=descriptions)


def calibrate(
    run: str | Path | Linker,
    *,
    bench: str | Path | None = None,
    device: str = "cpu",
    shots: int | None = None,
    top: int = TOP,
) -> Calibration:
    """Calibrate a run on dev and write `calibration.json` into its folder; an opened linker uses it from then on."""
    given = run if isinstance(run, Linker) else Linker.load(run, bench=bench, device=device, as_measured=True)
    linker = given.as_measured()
    if linker.run is not None:
        saving.check_not_saved(linker.run)
    shots = linker.shots if shots is None else check_count(shots, "shots")
    calibration = calibrate_on_dev(linker.benchmark, linker.scorer, shots, check_count(top, "top"), linker.step)
    given.calibration = linker.calibration = calibration
    if linker.run is not None:
        calibration.save(linker.run)
    return calibration
