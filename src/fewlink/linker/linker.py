"""The linker: a model on a graph that ranks, calibrates and explains the tails of heads, given a few references."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

import numpy as np

from fewlink.core.engine import Engine
from fewlink.core.errors import FewlinkError, shown
from fewlink.core.machine import keep_freed, use_device
from fewlink.core.words import listed
from fewlink.graph.source import GraphSource
from fewlink.linker import saving
from fewlink.linker.names import Names
from fewlink.linker.predictions import Answers, Prediction, Predictions
from fewlink.linker.probability import (
    AnswerSet,
    Calibration,
    ProjectReading,
    answer_sets,
    calibration_of,
    head_fans,
    shipped_calibration,
)
from fewlink.linker.query import (
    Choice,
    Explain,
    Pairs,
    Query,
    References,
    Relation,
    batch_name,
    batches_of,
    candidate_ids,
    check_count,
    distinct_pairs,
    find_candidates,
    find_heads,
    find_pairs,
    find_relation,
    id_texts,
    relations_of,
)
from fewlink.linker.ranking import ConstraintChoice, Constraints, RankedPairs, check_kinds, rank_tails
from fewlink.linker.reasons import Explanation, explain_pair
from fewlink.linker.trust import (
    NO_PATH,
    SINGLE,
    Answered,
    Trust,
    evidence_for,
    is_whole,
    measure_trust,
    no_percentages,
)
from fewlink.models.contract import GraphScorer, Question, RelationScorer, Scorer, capabilities
from fewlink.tasks import Benchmark
from fewlink.tasks.catalogue import check_source, open_graph

if TYPE_CHECKING:
    from fewlink.linker.check import CheckedTriple
    from fewlink.linker.complete import Row
    from fewlink.linker.relations import RelationFit

QUESTIONS_KEPT = 16  # whose candidates, constraints and trust are remembered
MODELS_KEPT = 4  # each without another relation of the graph
MANY_HEADS = 10  # of a question, from which it is noted if most have no known tail
POOL_FACTOR = 100  # times k: the pairs that are kept for constraints between pairs
MIN_POOL = 10_000  # of them at least
T = TypeVar("T")


class QueryOptions(TypedDict, total=False):
    """The options that `predict`, `heads` and `predict_pairs` share; `Linker.predict` describes them."""

    candidates: Choice
    exclude_known: bool
    relation: str | None
    explain: Explain
    shots: int | None
    constraints: ConstraintChoice
    rejected: Pairs


class Linker:
    """Ranks tails for heads, given a few references of a relation. Entities are ids or readable names.

    benchmark    the graph that predictions use, with its tasks
    scorer       the model
    shots        the number of references that the model is calibrated and measured with; a model that cannot hide a
                 relation of the graph also reads that many if a query only names a relation
    calibration  turns scores into probabilities; None if the model is not calibrated
    run, step    the run folder that the model was loaded from, and the training step of its weights
    measured     the benchmark that the run was trained and measured on, if predictions use another one
    names        finds and completes entities

    `predict`, `heads`, `predict_pairs`, `explain`, `complete`, `relations` and `check` take and return names.

    Every answer passes through the same stages, each of them a method: `resolve` turns names into a `Query` of ids;
    `candidates` lists the tails to rank; `trust` holds out references; `rank` scores and ranks the tails of each head;
    `settle` applies constraints between pairs; `probabilities` calibrates; `predictions` adds names and reasons.
    `answer` runs them in order. The server calls them one by one, some heads at a time.
    """

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
        self._kept: dict[str, Any] = {}  # what is known about the last few questions
        _ = self.graph.slots  # computed now rather than during the first query

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
        """Open the best model of a run folder, or a folder that `save_pretrained` wrote, with its calibration if any.

        `bench` is the run's benchmark, or its new path if it has moved. If `fewlink fit` or `fewlink data append` gave
        the run a larger graph, predictions use that graph; with `as_measured`, they use the graph that the run was
        measured on. Without `names`, a fitted run ignores the names of entities.
        """
        from fewlink.models.checkpoints import load_best
        from fewlink.models.run import Deployed, RunConfig, open_run

        folder = saving.fetch(run)

        def open_linker(place: Path) -> Any:
            benchmark = saving.benchmark_of(place, bench)
            deployed = None if as_measured else Deployed.open(place)
            scorer = deployed.scorer(place, device=device) if deployed else open_run(place, benchmark, device=device)
            if not names and isinstance(scorer, GraphScorer):
                scorer = scorer.without_names()
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
        """TRAIL with its built-in weights on the known graph of a benchmark.

        `names` says whether the names of entities are evidence; `text_model` and `descriptions` are as in
        `fewlink.load`.
        """
        from fewlink.models.trail.shipped import shipped_scorer

        if text_model is not None and not names:
            problem = "a text model needs names, and names are switched off (--no-names)"
            raise FewlinkError(f"{problem}: leave out one of the two")
        if descriptions is not None and text_model is None:
            raise FewlinkError("descriptions need a text model: give its folder too, as text_model")
        graph = benchmark.known_graph
        scorer = shipped_scorer(graph, use_device(device), names=names)
        if text_model is not None:
            from fewlink.models.trail.text import open_text_model, read_descriptions, text_vectors

            described = None if descriptions is None else read_descriptions(Path(descriptions), graph)
            scorer = scorer.with_vectors(text_vectors(open_text_model(text_model), graph, described))
        return cls(benchmark, scorer, device=device, calibration=shipped_calibration())

    def save_pretrained(self, folder: str | Path, *, license: str = saving.UNKNOWN_LICENSE) -> Path:
        """Write a self-contained folder: model, vectors, graph, calibration and card, with checksums.

        Files that only training needs are left out. `license` is the identifier in the card, such as "apache-2.0";
        consider the licence of the data too.
        """
        return saving.save(self._require_run(), self.measured, Path(folder), license=license)

    def push_to_hub(self, name: str, *, private: bool = False, license: str = saving.UNKNOWN_LICENSE) -> str:
        """Publish the folder of `save_pretrained` on the Hugging Face hub as `owner/name`, and return its address.

        `fewlink.load("hub:owner/name")` opens it. Log in first: `hf auth login`. The folder contains the graph.
        """
        return saving.publish(self._require_run(), self.measured, name, private=private, license=license)

    def _require_run(self) -> Path:
        """The run folder; raises if the model was not opened from one."""
        if self.run is None:
            raise FewlinkError(f"{self.scorer.name} was not opened from a run: only a trained run can be saved")
        return self.run

    def with_project(self, file: str | Path, name: str | None = None) -> Self:
        """A linker that uses the decisions of a project; `fewlink serve --project` keeps such a file.

        Its references and accepted pairs are references of every query, beside those that the query gives or its
        relation has. Rejected pairs lower the pairs that resemble them, and all decisions adjust probabilities.
        """
        project = ProjectReading.of(file, name)
        find = self.graph.entities.find
        lacking = {pair: None for pair in (*project.references, *project.rejected) if None in map(find, pair)}
        other = copy.copy(self)
        other.project = dataclasses.replace(
            project,
            references=tuple(pair for pair in project.references if pair not in lacking),
            rejected=tuple(pair for pair in project.rejected if pair not in lacking),
            lacking=tuple(lacking),
        )
        return other

    # Queries by name

    def predict(
        self,
        references: Pairs | None = None,
        heads: str | Iterable[str] = (),
        k: int = 10,
        **options: Unpack[QueryOptions],
    ) -> Predictions:
        """The k best tails of each head, heads in their order.

        References are pairs of a head and a tail, any number of them. If the query names a relation, its known pairs
        are references too, and the model does not see it in the graph otherwise. The other options, all by keyword:

        candidates     None or "open" (tails that resemble those of the references), "full" (the range of the task
                       relation), "all", the name of a type, or entities
        exclude_known  whether known pairs, which are the references and the pairs of the named relation, are left out
                       of the answer (default); in either case they do not compete
        relation       the name of the relation, if the graph or the benchmark has it
        explain        add the reasons for the first prediction of each head; if "full", for every prediction
        shots          how many pairs of the relation are references, the first ones; by default all, or for a model
                       that cannot hide the relation those of its training if no references are given
        constraints    names from `fewlink.linker.ranking.KINDS`, "auto" or "none"; by default a head is not its own
                       tail unless a known pair says so
        rejected       wrong pairs; pairs that resemble them rank lower

        Ranks are the evaluator's, except that ruled-out and rejected tails do not compete.
        """
        return self.answer(self.resolve(references, heads, k, **options))

    def heads(
        self,
        tails: str | Iterable[str] = (),
        references: Pairs | None = None,
        k: int = 10,
        **options: Unpack[QueryOptions],
    ) -> Predictions:
        """The k best heads of each tail: `predict` for the inverse relation, with references as pairs of head and tail.

        The options are those of `predict`. Candidates are heads, by default those that resemble the references' heads;
        constraints keep their names.
        """
        return self.answer(self.resolve(references, tails, k, inverse=True, **options))

    def predict_pairs(
        self,
        references: Pairs | None = None,
        type_or_heads: str | Iterable[str] = (),
        k: int = 10,
        **options: Unpack[QueryOptions],
    ) -> Predictions:
        """The k best pairs among all heads of a type, or among these heads, by probability or else by score.

        The options are those of `predict`. `rank` is the rank of the tail for its head.
        """
        if isinstance(type_or_heads, str):
            query = self.resolve(references, (), k, heads_of_type=type_or_heads, across_heads=True, **options)
        else:
            query = self.resolve(references, type_or_heads, k, across_heads=True, **options)
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
        """Explain the score of one pair: paths of the graph, references, neighbours and other evidence.

        If `inverse`, the score is that of the head as an answer for the tail, as in `heads`.
        """
        query = self.resolve(references, relation=relation, shots=shots, inverse=inverse)
        head_id = self.names.find(head, "head", "head")
        tail_id = self.names.find(tail, "tail", "tail")
        ends = (tail_id, head_id) if inverse else (head_id, tail_id)
        return self.explain_pair(query.references, *ends)

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
        on_heads: Callable[[int, int], None] = lambda done, count: None,
        engine: Engine | None = None,
    ) -> Predictions:
        """The `top` best missing pairs of a relation, for all entities like its heads or for `heads`, names or a type.

        Each head contributes up to k pairs, those of `predict`, or in a large graph those that the most promising edges
        near the head suggest, several times as fast. Heads without any known tail come first. With `out`,
        pairs are written to that file (JSON lines, CSV or TSV, by its suffix), and an interrupted call resumes where it
        stopped. `on_heads` is called with the number of heads done and their
        total, at the start and after each batch. With a project (`with_project`), decided pairs are left out.

        `engine` (`fewlink.core.engine.Engine`) has workers that share the heads, by default this process; the pairs
        do not depend on it.
        """
        from fewlink.linker import complete as completion

        top = check_count(top, "top")
        k = check_count(k)
        file = None if out is None else Path(out)
        if file is not None:
            completion.check_out(file)
        query = self.resolve(
            references,
            () if heads is None or isinstance(heads, str) else heads,
            top,
            candidates=candidates,
            relation=relation,
            constraints=constraints,
            heads_of_type=heads if isinstance(heads, str) else None,
            across_heads=True,
        )
        if heads is None:
            plausible = completion.plausible_heads(self.graph, query.references)
            query = dataclasses.replace(query, heads=tuple(plausible.tolist()))
        linker = self
        scorer = self.scorer.for_many_heads() if isinstance(self.scorer, GraphScorer) else self.scorer
        if scorer is not self.scorer:  # it reads only a part of a large graph near each head
            linker = copy.copy(self)
            linker.scorer = scorer
            linker._kept = {}
        trust = linker.trust(query)
        open_heads = linker.constraints(query).open_heads(np.array(query.heads, np.int32))
        if min_probability > 0:
            completion.check_probabilities(linker.calibration, trust)
        facts = {**linker._facts(query, relation), "top": top, "k": k, "min_probability": min_probability}
        pool = linker._pool(query)
        answered = query.references.answered_heads()

        def best(pairs: RankedPairs) -> RankedPairs:
            by_merit = linker.best_pairs(query, pairs, trust, len(pairs))
            return completion.unanswered_first(by_merit, answered).take(np.s_[:pool])

        rank = functools.partial(
            linker._completed_rows,
            dataclasses.replace(query, heads=(), k=k, across_heads=False),
            trust,
            min_probability,
        )

        def report(done: int) -> None:
            on_heads(done, len(open_heads))

        parts = list[RankedPairs]()
        for rows in completion.answer_batches(open_heads.tolist(), rank, facts, file, report, engine):
            parts.append(completion.pairs_of(rows))
            if sum(map(len, parts)) > 2 * pool:
                parts = [best(RankedPairs.joined(parts))]
        pairs = best(RankedPairs.joined(parts))
        every = dataclasses.replace(query, k=max(len(pairs), 1))
        pairs = linker.settle(every, pairs, trust).first_of_heads(k)
        pairs = completion.unanswered_first(pairs, answered).take(np.s_[:top])
        predictions = linker.predictions(query, pairs, trust)
        if file is not None:
            completion.write_completion(file, predictions, facts)
        return predictions

    def _completed_rows(
        self, query: Query, trust: Trust | None, min_probability: float, heads: Sequence[int]
    ) -> list[Row]:
        """The rows of a batch of heads for `complete`, which any worker can compute."""
        from fewlink.linker.complete import rows_of

        pairs = self.rank(query, trust, heads)
        if min_probability:
            pairs = pairs.take(np.flatnonzero(self.sort_keys(query, pairs, trust) >= min_probability))
        return rows_of(pairs)

    def _facts(self, query: Query, relation: str | None) -> dict[str, Any]:
        """Everything that determines the pairs of a completion: stored batches are reused only if it is the same."""
        from fewlink.linker.complete import digest

        able = capabilities(self.scorer)
        heads = np.array(query.heads, np.int32)
        tails = self.candidates(query)
        references = query.references
        known = set() if references.relation is None else set(map(tuple, references.relation.pairs().tolist()))
        facts = {
            "model": self.scorer.name,
            "step": self.step,
            "graph": self.graph.fingerprint,
            "relation": relation,
            "references": id_texts(self.graph, [pair for pair in references.pairs if pair not in known]),
            "known": len(known),
            "heads": len(heads),
            "tails": len(tails),
            "asked": digest(heads, tails, references.ids),
            "names": able.reads_names,
            "text vectors": able.text_vectors,
            "mixed in": able.mixed_in,
            "edges": able.edges_read,
            "constraints": sorted(self.constraints(query).kinds),
        }
        if self.project is not None:
            facts["project"] = self.project.name
            facts["rejected"] = id_texts(self.graph, references.rejected)
        return facts

    def relations(
        self, head: str, tail: str, described: Mapping[str, Pairs] | None = None, k: int = 10
    ) -> Answers[RelationFit]:
        """The k relations that fit a pair best, among those of the graph and the `described` ones.

        `described` maps the name of a new relation to its references. A triple of the graph is no evidence for itself.
        """
        from fewlink.linker.relations import best_relations, described_fit

        head_id = self.names.find(head, "head", "head")
        tail_id = self.names.find(tail, "tail", "tail")
        fits = {
            name: described_fit(self.scorer, self.graph, self.find_references(pairs), head_id, tail_id)
            for name, pairs in (described or {}).items()
        }
        return best_relations(self.benchmark.known_graph, head_id, tail_id, fits, check_count(k))

    def check(
        self,
        relation: str | None = None,
        top: int | None = None,
        on_relation: Callable[[int], None] = lambda done: None,
        engine: Engine | None = None,
    ) -> Answers[CheckedTriple]:
        """The triples of a relation, or of all relations, the oddest first: likely errors. No model is needed.

        The workers of the `engine`, by default this process, share the relations.
        """
        from fewlink.linker.check import check

        return check(self.benchmark, relation, top, on_relation, engine)

    # The stages of an answer

    def answer(
        self, query: Query, engine: Engine | None = None, on_heads: Callable[[int], None] = lambda done: None
    ) -> Predictions:
        """Answer a query: run all stages.

        The workers of the `engine`, by default this process, rank the tails of some heads at a time; the answer does
        not depend on it. `on_heads` is called with the number of heads done.
        """
        if not query.heads:
            missing, wanted = ("tail", "head") if query.inverse else ("head", "tail")
            raise FewlinkError(f"no {missing}s: name at least one entity to find {wanted}s for")
        trust = self.trust(query)
        batches = batches_of(query.heads)
        rank = functools.partial(self.rank, query, trust)
        name = functools.partial(batch_name, batches)
        kept = max(self._pool(query), MIN_POOL)
        ranked = list[RankedPairs]()
        for pairs in (engine or Engine()).in_order(rank, batches, name, on_heads):
            ranked.append(pairs)
            if query.across_heads and sum(map(len, ranked)) > 2 * kept:
                ranked = [self.best_pairs(query, RankedPairs.joined(ranked), trust, self._pool(query))]
        settled = self.settle(query, RankedPairs.joined(ranked), trust)
        return self.predictions(query, settled, trust)

    def resolve(
        self,
        references: Pairs | None = None,
        heads: str | Iterable[str] = (),
        k: int = 10,
        *,
        candidates: Choice = None,
        exclude_known: bool = True,
        relation: str | None = None,
        explain: Explain = False,
        shots: int | None = None,
        constraints: ConstraintChoice = None,
        rejected: Pairs = (),
        heads_of_type: str | None = None,
        across_heads: bool = False,
        inverse: bool = False,
    ) -> Query:
        """Turn names into a query of ids; the arguments are those of `predict`.

        With `heads_of_type`, all entities of a type are heads. With `across_heads`, the answer is the k best pairs of
        all heads together. With `inverse`, `heads` are tails, and heads are ranked for them. Raises `UnknownName`, with
        the field of the name, for a name that the graph lacks. Heads can be left out and added to the query later.
        """
        notes: list[str] = []
        adjustment = None
        answered = frozenset[int]()
        if self.project is not None:
            notes += self.project.notes(adjusted=not inverse)
            references = [*(references or ()), *self.project.references] or None
            rejected = [*rejected, *self.project.rejected]
            if not inverse:  # decisions are about tails
                adjustment = self.project.adjustment
                answered = frozenset(self.graph.entities.id(head) for head in self.project.answered())
        wrong_pairs = find_pairs(self.names, rejected, "rejected pair", "rejected")
        true_pairs = self.find_references(references, relation, shots, notes, wrong_pairs)
        resolved = true_pairs.with_rejected(wrong_pairs, self.names, notes)
        if heads_of_type is not None:
            head_ids = tuple(self.names.members(heads_of_type, "heads_of_type").tolist())
        else:
            what = "tail" if inverse else "head"
            head_ids = find_heads(self.names, heads, notes, what, f"{what}s")
        return Query(
            references=resolved.inverted() if inverse else resolved,
            heads=head_ids,
            k=check_count(k),
            candidates=find_candidates(self.names, candidates),
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
        rejected: Iterable[tuple[int, int]] = (),
    ) -> References:
        """The known pairs of a relation, the first `shots` that are not rejected, then resolved references.

        Remarks are appended to `notes`.
        """
        self.graph.check_files()
        notes = [] if notes is None else notes
        named = None if relation is None else find_relation(self.benchmark, relation)
        if named is not None and named.name in self._trained_relations():
            notes.append(f"the model was trained on {named.name}: it does better there than on a new relation")
        if pairs is None and named is None:
            raise FewlinkError("no references: give pairs of a head and a tail, or name a relation to take them from")
        distinct = distinct_pairs(self.names, find_pairs(self.names, pairs or (), notes=notes), notes)
        if named is not None:
            wrong = set(rejected)
            known = (pair for pair in self._known_pairs(named, shots, given=len(distinct)) if pair not in wrong)
            distinct = tuple(dict.fromkeys((*known, *distinct)))
        if not distinct:
            if named is not None:
                raise FewlinkError(f"{named.name} has no pairs: give references")
            raise FewlinkError("no references: give at least one pair of a head and a tail that the relation holds for")
        if named is None:
            present = relations_of(self.graph, distinct)
            if present:
                name = present[0]
                notes.append(
                    f"the graph has the relation {name} between all references: name it as the relation to skip known "
                    "pairs and to get percentages that do not rely on it"
                )
        count = capabilities(self.scorer).references_read(len(distinct))
        if count < len(distinct):
            notes.append(f"{self.scorer.name} reads the first {count} of {len(distinct)} references")
        return References(distinct, named)

    def _trained_relations(self) -> Sequence[str]:
        """The relations that the run was trained on."""
        if self.run is None:
            return ()
        from fewlink.models.run import RunConfig

        trained: list[str] = RunConfig.read(self.run).benchmark["train"]
        return trained

    def _known_pairs(self, relation: Relation, shots: int | None, given: int) -> list[tuple[int, int]]:
        """The known pairs of a relation that are references beside the `given` ones: the first `shots`."""
        if shots is not None and shots < (0 if given else 1):
            raise FewlinkError(f"shots must be at least {0 if given else 1}, got {shots}")
        if shots is None and not isinstance(self.scorer, GraphScorer):
            shots = 0 if given else self.shots
        return [(head, tail) for head, tail in relation.pairs()[:shots].tolist()]

    def model_for(self, references: References) -> Scorer:
        """The model that answers with these references: without the triples of their relation, if it can hide them.

        An embedding model that was trained on the known pairs may be mixed in, unless the query chose a few of them.
        """
        relation = references.relation
        scorer = self.scorer
        if relation is None or not relation.in_graph or not isinstance(scorer, GraphScorer):
            return scorer
        model = self._once("model", relation.name, lambda: scorer.without(relation.name), MODELS_KEPT)
        if not isinstance(model, RelationScorer):
            return model
        if not is_whole(len(references.pairs), relation):
            return model.untrained()
        return model.inverted() if relation.inverse else model

    def unseen_by(self, references: References) -> tuple[Scorer, int | None]:
        """The part of the model that was not trained on the references, and the relation that it does not see in the
        graph."""
        model = self.model_for(references)
        relation = references.relation
        if isinstance(model, RelationScorer):
            model = model.untrained()
        if model is self.scorer or relation is None or relation.number < 0:  # a task is not in the graph
            return model, None
        return model, relation.number

    def candidates(self, query: Query) -> np.ndarray:
        """The tails to rank (c,), sorted; cached for the last few queries."""
        references = query.references
        hidden = self.unseen_by(references)[1]
        find = functools.partial(candidate_ids, self.benchmark, self.names, query.candidates, references, hidden)
        return self._once("candidates", (query.candidates, references), find)

    def constraints(self, query: Query) -> Constraints:
        """The constraints of a query; cached for the last few queries."""
        choose = functools.partial(Constraints.of, query.constraints, self.graph, query.references)
        return self._once("constraints", (query.constraints, query.references), choose)

    def trust(self, query: Query) -> Trust | None:
        """How well the references of a query predict each other, cached; None if the model is not calibrated."""
        if self.calibration is None:
            return None
        references = dataclasses.replace(query.references, rejected=())
        model, hidden = self.unseen_by(references)
        asked = references
        if model is not self.scorer and asked.relation is not None:
            asked = dataclasses.replace(asked, relation=asked.relation.hidden())
        candidates = None if query.candidates == "open" else self.candidates(query)
        measure = functools.partial(measure_trust, model, self.graph, asked, candidates, hidden)
        return self._once("trust", (query.candidates, references), measure)

    def rank(self, query: Query, trust: Trust | None, heads: Sequence[int]) -> RankedPairs:
        """Score and rank the candidates of some heads of a query that no constraint rules out, and keep the best.

        These are k tails of each head, or as many as `settle` needs to apply constraints between pairs. If the query is
        `across_heads`, they are the best pairs of these heads, by probability, which depends on the `trust`.
        """
        self.graph.check_files()
        used = self.constraints(query)
        references = query.references
        asked = np.array(heads, np.int32)
        question = Question(
            relation=references.relation.name if references.relation else "",
            references=references.ids,
            heads=used.open_heads(asked) if query.exclude_known else asked,
            candidates=self.candidates(query),
        )
        rivals = max(len(query.heads), len(heads)) if used.between_pairs else 0  # each may take a tail from another
        ranked = rank_tails(
            self._scorer_for(references),
            question,
            query.k + rivals,
            references.known_tails,
            with_known=not query.exclude_known,
            allowed=used.allowed,
        )
        pairs = RankedPairs.joined(list(ranked))
        return self.best_pairs(query, pairs, trust, self._pool(query)) if query.across_heads else pairs

    def _scorer_for(self, references: References) -> Scorer:
        """The model for these references, corrected by what the rejected pairs show if there are any."""
        model = self.model_for(references)
        if not references.rejected:
            return model
        from fewlink.curation.learning import LearningScorer

        return LearningScorer(model, self.benchmark.known_graph, references.ids, references.rejected_ids)

    def settle(self, query: Query, pairs: RankedPairs, trust: Trust | None) -> RankedPairs:
        """Apply constraints between pairs; if `across_heads`, keep the k best pairs of all heads.

        `pairs` come from `rank`; if the query was ranked some heads at a time, they are joined.
        """
        used = self.constraints(query)
        if query.across_heads:
            pairs = self.best_pairs(query, pairs, trust, self._pool(query))
        if not used.between_pairs:
            return pairs
        return used.settle(pairs, self.sort_keys(query, pairs, trust), query.k, query.across_heads)

    def _pool(self, query: Query) -> int:
        """The number of best pairs of all heads to keep: k, or more if constraints between pairs may remove some."""
        return max(POOL_FACTOR * query.k, MIN_POOL) if self.constraints(query).between_pairs else query.k

    def best_pairs(self, query: Query, pairs: RankedPairs, trust: Trust | None, count: int) -> RankedPairs:
        """The `count` best pairs of all heads, by probability or else by score."""
        keys = self.sort_keys(query, pairs, trust)
        return pairs.take(np.lexsort((pairs.tails, pairs.heads, -pairs.scores, -keys))[:count])

    def sort_keys(self, query: Query, pairs: RankedPairs, trust: Trust | None) -> np.ndarray:
        """The values (n,) that order pairs of several heads: probabilities, or else scores."""
        probabilities = self.probabilities(query, pairs, trust)
        return pairs.scores if probabilities is None else probabilities[1]

    def probabilities(
        self, query: Query, pairs: RankedPairs, trust: Trust | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """The calibrated probabilities (n,) of pairs before and after adjustment; None if not calibrated.

        They are 0 for heads without evidence, and for a tail without rivals, whose softmax says nothing, and near 0 for
        a second tail where heads have one.
        """
        if self.calibration is None:
            return None
        graph = self.benchmark.known_graph
        model, hidden = self.unseen_by(query.references)
        evidence = evidence_for(model, graph, query.references.ids, pairs.heads) & ~pairs.alone
        base = self.calibration.probabilities(pairs, head_fans(self.graph, pairs.heads, hidden), trust)
        recalibration = capabilities(self.model_for(query.references)).recalibration
        if recalibration is not None:
            base = recalibration(base)
        base = base * self._chances(query, pairs)
        if query.adjustment is None:
            return evidence * base, evidence * base
        return evidence * base, evidence * query.adjustment(base, np.isin(pairs.heads, list(query.answered)))

    def _chances(self, query: Query, pairs: RankedPairs) -> np.ndarray:
        """The factor (n,) by which pairs are less probable, because their heads have the one tail that heads have."""
        relation = query.references.relation
        if relation is None or not relation.in_graph:
            return np.ones(len(pairs))
        answered = self._once("answered", relation, lambda: Answered(relation.pairs()))
        return np.where(pairs.known, 1.0, answered.chances(pairs.heads))

    def predictions(self, query: Query, pairs: RankedPairs, trust: Trust | None) -> Predictions:
        """Turn settled pairs into rows with names, probabilities if trusted, and reasons if the query wants them.

        Notes on constraints and on heads without candidates follow the query's notes. Unless the query is
        `across_heads`, each head gets an answer set.
        """
        graph = self.graph
        notes = [*query.notes, *self._notes(query, pairs)]
        base = None
        shown = None
        note = None
        sets: tuple[AnswerSet, ...] = ()
        probabilities = self.probabilities(query, pairs, trust)
        if self.calibration is not None and probabilities is not None and len(pairs):
            base, adjusted = probabilities
            first = (base / self._chances(query, pairs))[(pairs.ranks < 2) & (base > 0)]
            why = ""
            if not base.any():
                why = (SINGLE if pairs.alone.all() else NO_PATH).format("the heads")
            changed = capabilities(self.model_for(query.references)).recalibration
            error = changed.error if changed else None
            note = self.calibration.note(trust, float(first.mean()) if len(first) else 0.0, why, error)
            if note.shown:
                shown = adjusted
                notes += self._notes_on_percentages(query, pairs, base)
                new = ~pairs.known & (base > 0)
                if not query.across_heads:
                    count = len(self.candidates(query))
                    what = "head" if query.inverse else "tail"
                    sets = answer_sets(self.calibration.coverage, graph, pairs.heads, base, new, count, what)
        sizes = {each.asked: each.size for each in sets}
        explained: set[int] = set()  # the places of rows that come with reasons
        if query.explain == "full":
            explained = set(range(len(pairs)))
        elif query.explain:
            explained = {0} if query.across_heads else set(np.unique(pairs.heads, return_index=True)[1].tolist())
        rows = []
        for i, (query_head, answer) in enumerate(zip(pairs.heads.tolist(), pairs.tails.tolist(), strict=True)):
            head, tail = (answer, query_head) if query.inverse else (query_head, answer)
            size = sizes.get(graph.entities[query_head])
            rank = float(pairs.ranks[i])
            known = bool(pairs.known[i])
            rows.append(
                Prediction(
                    head=graph.entities[head],
                    head_name=graph.name(head),
                    rank=rank,
                    tail=graph.entities[tail],
                    tail_name=graph.name(tail),
                    score=float(pairs.scores[i]),
                    probability=None if shown is None else float(shown[i]) or None,
                    known=known,
                    reasons=self.explain_pair(query.references, query_head, answer) if i in explained else None,
                    in_set=None if size is None else not known and rank <= size,
                    base_probability=None if base is None else float(base[i]) or None,
                )
            )
        return Predictions(tuple(rows), tuple(notes), note, query.inverse, sets)

    def _notes(self, query: Query, pairs: RankedPairs) -> list[str]:
        """Notes on the constraints in force, and on heads that have no candidate left."""
        used = self.constraints(query)
        heads = np.array(query.heads, np.int32)
        notes = used.notes(heads, self.candidates(query))
        if not query.across_heads:
            for head in np.setdiff1d(used.open_heads(heads), pairs.heads).tolist():
                quoted = self.names.quoted(head)
                notes.append(f"{quoted} has no candidate left: all of them are known answers or ruled out")
        return notes

    def _notes_on_percentages(self, query: Query, pairs: RankedPairs, base: np.ndarray) -> list[str]:
        """Notes on pairs without percentages (base 0), on further tails of heads that have one, and on a relation that
        most of many heads lack."""
        notes = []
        one, end = ("tail", "head") if query.inverse else ("head", "tail")
        lacking = (base == 0) & ~pairs.known
        for rows, why in ((lacking & ~pairs.alone, NO_PATH), (lacking & pairs.alone, SINGLE)):
            heads = np.unique(pairs.heads[rows])
            if len(heads):
                first = self.names.quoted(int(pairs.heads[rows][0]))
                more = f" and {len(heads) - 1:,} more" if len(heads) > 1 else ""
                notes.append(no_percentages(why.format(first + more)))
        improbable = pairs.heads[(self._chances(query, pairs) < 1) & (base > 0)]
        if len(improbable):
            why = f"a {end} is known already, and hardly any {one} of this relation has two"
            notes.append(f"improbable, because {why}: {self.names.listed(np.unique(improbable))}")
        relation = query.references.relation
        if relation is not None and relation.in_graph and len(query.heads) >= MANY_HEADS:
            without = len(np.setdiff1d(query.heads, query.references.answered_heads()))
            if 2 * without > len(query.heads):
                heads_without = f"{without:,} of these {len(query.heads):,} {one}s"
                notes.append(
                    f"percentages assume that each {one} has a {end}, but {heads_without} have none in the graph"
                )
        return notes

    def explain_pair(self, references: References, head: int, tail: int) -> Explanation:
        """Explain the score of a pair of ids, which is read from tail to head if the references are inverse."""
        named = references.relation
        return explain_pair(
            self.model_for(references),
            self.graph,
            references.ids,
            head,
            tail,
            relation=named.readable_name() if named else None,
            inverse=references.inverse,
            corrected=self._scorer_for(references) if references.rejected else None,
        )

    def _once(self, what: str, key: object, compute: Callable[[], T], most: int = QUESTIONS_KEPT) -> T:
        """What is known about a question, computed once and kept for the last few questions."""
        kept: dict[object, T] = self._kept.setdefault(what, {})
        value = kept.get(key)
        if value is None:
            kept[key] = value = compute()
            for oldest in list(kept)[:-most]:  # a copy, because another thread may change it
                kept.pop(oldest, None)
        return value

    # Display

    def __repr__(self) -> str:
        facts = f"{len(self.graph.entities):,} entities, {'' if self.calibration else 'not '}calibrated"
        return f"Linker({shown(f'{self.scorer.name} on {self.benchmark.name}, {facts}')})"


def load(
    file: str | Path | GraphSource,
    *,
    bench: str | Path | None = None,
    types: str | Path | None = None,
    names: str | Path | None = None,
    read_names: bool = True,
    columns: str | Mapping[str, str | int] | None = None,
    on_error: str = "stop",
    literals: str = "drop",
    device: str = "cpu",
    text_model: str | Path | None = None,
    descriptions: str | Path | None = None,
) -> Linker:
    """Open a trained model, or put TRAIL with its built-in weights on a graph; nothing is trained.

    file          a model: a run folder, a folder of `save_pretrained`, or `hub:owner/name[@revision]`; or a graph: a
                  file of triples, a compiled graph or a benchmark
    bench         the benchmark of a run, if it has moved
    types, names  files of entity types and readable names that describe a file of triples
    read_names    whether the names of entities are evidence; answers show them in any case
    columns       the columns of a table of triples, such as "head=2,relation=1,tail=3" or
                  {"head": "source", "relation": "type", "tail": "target"}, if its header does not tell them
    on_error      "skip" leaves out bad lines of a file of triples
    literals      "keep" reads relations whose tails are numbers, dates or truth values
    text_model    the folder of a sentence-transformers or model2vec model whose vectors of the names are evidence too
    descriptions  a file for the text model to read: an id, a tab and a text per line
    """
    keep_freed()
    source = GraphSource.of(
        file, columns=columns, types=types, names=names, literals=literals, on_error=on_error, bench=bench
    )
    if not saving.is_model(source.file):
        if source.bench is not None:
            raise FewlinkError(
                f"{source.file} is not a trained model: leave out bench, the benchmark of a trained model"
            )
        check_source(source.file)
        benchmark = open_graph(source)
        return Linker.shipped(
            benchmark, device=device, names=read_names, text_model=text_model, descriptions=descriptions
        )
    given = source.given()
    given += [name for name, value in (("text_model", text_model), ("descriptions", descriptions)) if value is not None]
    if given:
        raise FewlinkError(f"{source.file} is a trained model: leave out {listed(given)}")
    return Linker.load(source.file, bench=source.bench, device=device, names=read_names)
