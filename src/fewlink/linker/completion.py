"""Questions about a whole relation or graph: all missing links, which relation holds, and which triples look wrong."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from fewlink.core.errors import FewlinkError, json_shown, shown
from fewlink.data import Benchmark, Task
from fewlink.data.candidates import by_similarity
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from fewlink.linker import drawing, query
from fewlink.linker.adjustment import ProjectReading
from fewlink.linker.calibration import Calibration
from fewlink.linker.check import LEAST, check_relations
from fewlink.linker.constraints import ConstraintChoice, Constraints
from fewlink.linker.missing_links import check_out, complete_heads, finish
from fewlink.linker.names import Names
from fewlink.linker.predictions import Predictions, RankedPairs, score_heads
from fewlink.linker.query import Choice, Pairs, References, Relation, open_candidates
from fewlink.linker.relations import RelationFinder
from fewlink.linker.tables import Answers, CheckedTriple, RelationFit, odd_triples, relation_fits
from fewlink.linker.trust import Trust
from fewlink.scorers import GraphScorer, Question, Scorer, capabilities

POOL = 10  # times as many pairs as asked for are kept, for constraints between pairs
LEAST_POOL = 10_000
FITS = 0.5  # under this, no relation fits a pair well
REFERENCES = 16  # of a relation of the graph, for a model that reads any number
JSON_LINES = (".jsonl", ".json", ".ndjson")


class GraphQuestions:
    """The part of a `Linker` that asks about a whole relation or graph, and says what it is; its attributes."""

    benchmark: Benchmark
    scorer: Scorer
    calibration: Calibration | None
    graph: Graph
    names: Names
    step: int
    inverse: bool
    project: ProjectReading | None
    _trust: dict[object, Trust]
    resolve: Callable[..., References]
    _references: Callable[..., References]
    rank: Callable[..., RankedPairs]
    trust: Callable[..., Trust | None]
    keys: Callable[..., np.ndarray]
    best_pairs: Callable[..., RankedPairs]
    table: Callable[..., Predictions]

    def with_project(self, file: str | Path, name: str | None = None) -> Self:
        """The linker for a project of a file, as `fewlink serve --project` makes it.

        `predict`, `predict_pairs` and `heads` then take its references and accepted pairs, unless some are given or a
        relation is, and `complete` always; its rejected pairs count as rejected, and its decisions adjust
        probabilities.
        """
        other, read = copy.copy(self), ProjectReading.of(file, name)
        find = self.graph.entities.find
        lacking = {pair: None for pair in (*read.references, *read.rejected) if None in map(find, pair)}
        kept = ([pair for pair in own if pair not in lacking] for own in (read.references, read.rejected))
        references, rejected = map(tuple, kept)
        other.project = dataclasses.replace(read, references=references, rejected=rejected, lacking=tuple(lacking))
        return other

    def adjusted(self, probabilities: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Probabilities (n,) of pairs with these heads (n,) as the decisions of the project adjust them.

        The same without a project, and for heads of tails: decisions are about tails.
        """
        if self.project is None or self.project.adjustment is None or self.inverse:
            return probabilities
        answered = [self.graph.entities.id(head) for head in self.project.answered()]
        return self.project.adjustment(probabilities, np.isin(heads, answered))

    def __repr__(self) -> str:
        facts = f"{len(self.graph.entities):,} entities, {'' if self.calibration else 'not '}calibrated"
        return f"Linker({shown(f'{self.scorer.name} on {self.benchmark.name}, {facts}')})"

    def _repr_html_(self) -> str:
        graph, types = self.graph, self.graph.types
        facts = {
            **{"model": self.scorer.name, "graph": self.benchmark.name, "entities": f"{len(graph.entities):,}"},
            **{"entity types": f"{len(types.names):,}" if types else "none"},
            **{"relations": f"{len(graph.relations):,}", "triples": f"{graph.triple_count:,}"},
            **{"calibrated": "yes" if self.calibration else "no: scores and ranks, no probabilities"},
        }
        return drawing.block(drawing.facts(facts))

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

        Each head gives up to k pairs. A relation of the graph is hidden from TRAIL, and known pairs from all over it
        are the references. With `out`, pairs are written to that file (JSON lines, or TSV by its suffix) and an
        interrupted call goes on where it stopped; `exact` is as in `Predictions.to_tsv`. `on_heads` is called with the
        heads done and their number. With a project (`with_project`), its references and accepted pairs are references
        too, what resembles its rejected pairs ranks lower, and decided pairs are left out.
        """
        if self.inverse:
            raise FewlinkError("missing links are pairs: complete the linker itself, not its inverse")
        top, k, notes = query.check_count(top, "top"), query.check_count(k), list[str]()
        if out is not None:
            check_out(Path(out))
        if self.project is not None:
            references = [*(references or ()), *self.project.references] or None
        linker, resolved = self._hiding(self._references(references, relation, None, notes), references is None)
        head_ids = self._heads_to_complete(heads, resolved, notes)
        tails = query.find_candidates(self.benchmark, self.names, candidates, resolved)
        used = Constraints.of(constraints, self.graph, resolved)
        trust = linker.trust(resolved, None if query.is_open(candidates) else tails)
        if min_probability > 0:
            self._check_probabilities(trust)
        facts = {
            **{"model": self.scorer.name, "step": self.step, "graph": self.graph.fingerprint, "relation": relation},
            **{"references": query.id_texts(self.graph, resolved.pairs), "heads": len(head_ids), "tails": len(tails)},
            **{"asked": digest(head_ids, tails), "evidence": sorted(capabilities(self.scorer).evidence)},
            **{"edges": capabilities(self.scorer).edges_read},
            **{"constraints": sorted(used.kinds), "top": top, "k": k, "min_probability": min_probability},
        }
        if self.project is not None:
            facts |= {"project": self.project.name, "rejected": query.id_texts(self.graph, resolved.rejected)}

        def rank(batch: np.ndarray) -> RankedPairs:
            pairs = linker.rank(resolved, batch, k, tails, constraints=used, trust=trust)
            return (
                pairs.take(np.flatnonzero(linker.keys(pairs, trust) >= min_probability)) if min_probability else pairs
            )

        pairs = best_of_heads(
            used.open_heads(head_ids),
            rank,
            lambda parts, most: linker.best_pairs(parts, most, trust),
            top,
            facts,
            None if out is None else Path(out),
            lambda done: on_heads(done, len(head_ids)),
        )
        settled = used.settle(pairs, linker.keys(pairs, trust), top, True) if used.between_pairs else pairs
        predictions = linker.table(settled.take(np.arange(min(top, len(settled)))), notes, None, trust)
        if out is not None:
            write_completion(Path(out), predictions, facts, exact=exact)
        return predictions

    def _heads_to_complete(
        self, heads: str | Iterable[str] | None, references: References, notes: list[str]
    ) -> np.ndarray:
        """Heads (h,): those of a type, those named, or all entities like the heads of the references."""
        if heads is None:
            return plausible_heads(self.graph, references)
        return self.names.members(heads) if isinstance(heads, str) else query.find_heads(self.names, heads, notes)

    def _check_probabilities(self, trust: Trust | None) -> None:
        """Raise if answers of this trust have no probabilities that could be compared with a least one."""
        if self.calibration is None or self.calibration.rough:
            raise FewlinkError("a least probability needs a calibrated model: fewlink card calibrates a run")
        if trust is not None and (trust.known or (trust.ranks and not trust.found())):
            raise FewlinkError(f"{trust.sentence()}; there are no percentages, so leave the least probability out")

    def _hiding(self, references: References, all_over: bool) -> tuple[Self, References]:
        """A linker whose model does not see the relation of the references, where it can do without it."""
        relation, scorer = references.relation, self.scorer
        if relation is None or not isinstance(scorer, GraphScorer) or (relation.number < 0 and not relation.trained):
            return self, references
        other = copy.copy(self)
        other.scorer, other._trust = scorer.without(relation.name), {}
        relation = as_task(dataclasses.replace(relation, trained=False), self.graph)
        pairs = (
            spread_pairs(relation, capabilities(scorer).most_references or REFERENCES) if all_over else references.pairs
        )
        return other, dataclasses.replace(references, pairs=pairs, relation=relation)

    def relations(
        self, head: str, tail: str, described: Mapping[str, Pairs] | None = None, k: int = 10
    ) -> Answers[RelationFit]:
        """The k relations that fit a pair best: relations of the graph, and `described` ones, given as references.

        A triple that is in the graph is left out of the evidence for it.
        """
        ends = self.names.find(head, "head"), self.names.find(tail, "tail")
        graph = known_graph(self.benchmark)
        fits = graph.once(RelationFinder).rank(*ends)
        rows = [self._described(name, pairs, *ends) for name, pairs in (described or {}).items()]
        best = relation_fits(graph, fits, rows)[: query.check_count(k)]
        doubt = ["no relation fits well"] if not best or best[0].fit < FITS else []
        return Answers(tuple(best), doubt)

    def _described(self, name: str, pairs: Pairs, head: int, tail: int) -> RelationFit:
        """How well a relation described by references fits a pair: the share of entities like the references' tails
        that are a worse tail, times that of heads."""
        fit, references = 1.0, self.resolve(query.find_pairs(self.names, pairs))
        for each, asked, found in ((references, head, tail), (references.inverted(), tail, head)):
            candidates = np.union1d(query.open_candidates(self.graph, each.ids), [found]).astype(np.int32)
            question = Question("", each.ids, np.array([asked], np.int32), candidates)
            (_, scores), *_ = score_heads(self.scorer, question)
            fit *= float((scores <= scores[candidates == found]).mean())
        return RelationFit(name, name, fit, False, "references")

    def check(
        self,
        relation: str | None = None,
        top: int | None = None,
        on_relation: Callable[[int], None] = lambda done: None,
    ) -> Answers[CheckedTriple]:
        """The triples of a relation, or of all, the oddest first: likely errors. It needs no model."""
        graph = known_graph(self.benchmark)
        numbers = None
        if relation is not None:
            named = query.find_relation(self.benchmark, relation)
            number = graph.relations.find(named.name)
            if number is None:  # a relation of dev or test
                number = len(graph.relations)
                graph = graph.with_relations([named.name], np.insert(named.pairs(), 1, number, axis=1))
            numbers = [number]
            if (count := int((graph.relation_ids == number).sum())) < LEAST:
                raise FewlinkError(f"{relation} has {count} triples: fewer than {LEAST} cannot be compared")
        return odd_triples(graph, check_relations(graph, numbers, on_relation=on_relation), top)


def digest(*ids: np.ndarray) -> str:
    """A short hash of lists of entities."""
    return hashlib.sha256(b"|".join(np.asarray(part, np.int64).tobytes() for part in ids)).hexdigest()[:16]


def plausible_heads(graph: Graph, references: References) -> np.ndarray:
    """Entities (h,) like the heads of the references and of the relation's known pairs, the most similar first."""
    known = references.ids if references.relation is None else references.relation.pairs()
    pairs = np.unique(np.concatenate([references.ids, known]), axis=0)
    order, _ = by_similarity(graph, pairs[:, 0])
    return order[np.isin(order, open_candidates(graph, pairs[:, ::-1]))]


def as_task(relation: Relation, graph: Graph) -> Relation:
    """A relation of the graph as one that a model does not see: its pairs are known, and it has no number."""
    if relation.task is not None:
        return relation
    pairs = relation.pairs()
    known = np.unique(pairs, axis=0)
    return Relation(relation.name, graph, Task(relation.name, pairs, known, np.unique(pairs[:, 1])))


def spread_pairs(relation: Relation, most: int) -> tuple[tuple[int, int], ...]:
    """At most so many pairs of a relation, taken from all over it."""
    pairs = relation.pairs()
    places = np.unique(np.linspace(0, len(pairs) - 1, min(most, len(pairs))).round().astype(int))
    return tuple((head, tail) for head, tail in pairs[places].tolist())


def best_of_heads(
    heads: np.ndarray,
    rank: Callable[[np.ndarray], RankedPairs],
    best: Callable[[Sequence[RankedPairs], int], RankedPairs],
    top: int,
    facts: Mapping[str, Any],
    out: Path | None,
    on_heads: Callable[[int], None],
) -> RankedPairs:
    """The best pairs of all heads, more than `top`: `rank` maps heads to pairs, `best` takes the best of several."""
    pool, parts = max(POOL * top, LEAST_POOL), list[RankedPairs]()

    def answer(batch: np.ndarray) -> list[Sequence[Any]]:
        pairs = rank(batch)
        return [list(row) for row in zip(*(getattr(pairs, each.name).tolist() for each in fields(pairs)), strict=True)]

    for rows in complete_heads(heads.tolist(), answer, facts, out, on_heads):
        if rows:
            columns = zip(*rows, strict=True)
            empty = RankedPairs.joined([])
            kinds = [getattr(empty, each.name).dtype for each in fields(empty)]
            parts.append(RankedPairs(*(np.array(of, kind) for of, kind in zip(columns, kinds, strict=True))))
        if sum(map(len, parts)) > 2 * pool:
            parts = [best(parts, pool)]
    return best(parts, pool)


def write_completion(out: Path, predictions: Predictions, facts: Mapping[str, Any], *, exact: bool = False) -> None:
    """Write a finished file: what it was made with in the first line, then a row for each pair."""
    if out.suffix.lower() in JSON_LINES:
        lines = [json.dumps({"made_with": facts}, ensure_ascii=False)]
        lines += [json.dumps(row, ensure_ascii=False) for row in predictions.to_dicts()]
        finish(out, "".join(line + "\n" for line in lines))
    else:
        made_with = json_shown(json.dumps(facts, ensure_ascii=False))
        finish(out, f"# made with {made_with}\n{predictions.to_tsv(exact=exact)}")
