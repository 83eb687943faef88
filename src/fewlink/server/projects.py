"""Projects over HTTP: curators' decisions are kept in a project file, and the next pairs to decide come from them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI
from fastapi import Query as Parameter
from pydantic import BaseModel, Field
from starlette.responses import Response

from fewlink.core.errors import FewlinkError
from fewlink.curation.exchange import export, import_text
from fewlink.curation.learning import choose_references, learn, units_of
from fewlink.curation.next_question import suggest
from fewlink.curation.schema import Decision, Event
from fewlink.curation.store import ProjectFile
from fewlink.data.training_graph import known_graph
from fewlink.linker import Linker
from fewlink.linker.adjustment import Adjustment, adjustment_of, lacking_note
from fewlink.linker.constraints import Constraints
from fewlink.linker.query import Query, References, find_relation, id_texts
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import Trust
from fewlink.scorers import capabilities
from fewlink.server.errors import ApiError, as_json
from fewlink.server.schema import (
    MAX_REFERENCES,
    AdjustmentFacts,
    DecisionList,
    EventList,
    ImportRequest,
    NewDecisions,
    NewProject,
    NextRequest,
    Pair,
    PredictRequest,
    ProjectFacts,
    ProjectList,
    Suggestion,
    Undone,
    UndoRequest,
)
from fewlink.server.service import RankingPart, Service, find_candidates_of

DEEP = 50  # tails of each head that can be suggested
REFRESH = 5  # acceptances after which they are read as references: until then scores are corrected, in milliseconds
KEPT = 8  # rankings that are remembered
GONE = -1e9  # moves the score of a decided pair out of the competition
MEDIA = {"nt": "application/n-triples", "json": "application/json"}  # other formats are columns
Format = Literal["tsv", "triples", "nt", "json"]


class ImportAnswer(BaseModel):
    project: ProjectFacts
    added: int
    read: int
    notes: list[str] = Field(description="Which pairs name entities that the graph lacks.")


class NextAnswer(BaseModel):
    project: ProjectFacts
    heads: int
    heads_in_all: int
    references: int = Field(description="True pairs that the model reads as references.")
    read: list[Pair] = Field(description="These pairs, by id.")
    learnt: int = Field(description="Decisions that corrected the scores.")
    calibration: AdjustmentFacts | None = Field(description="What adjusted the probabilities; null if nothing did.")
    left: int = Field(description="Heads looked through of which no pair is decided.")
    suggestions: list[Suggestion]
    notes: list[str]


@dataclass(frozen=True)
class Known:
    """The decided pairs of a project by id: (n, 2) given as references, accepted and rejected; notes on the others.
    `states` are all decisions."""

    references: np.ndarray
    accepted: np.ndarray
    rejected: np.ndarray
    states: list[Decision]
    notes: list[str]

    @property
    def true(self) -> np.ndarray:
        return np.concatenate([self.references, self.accepted])

    def decided(self) -> set[tuple[int, int]]:
        return {(head, tail) for head, tail in np.concatenate([self.true, self.rejected]).tolist()}


class Projects:
    """The project file of a server, opened when it is first needed, with entities by id and name."""

    def __init__(self, linker: Linker, path: Path | None) -> None:
        self.linker, self.path = linker, path
        self._file: ProjectFile | None = None
        self._lock = threading.Lock()
        self._ranked: OrderedDict[object, tuple[RankedPairs, Trust | None]] = OrderedDict()
        if path is not None and path.exists():
            _ = self.file  # a file that cannot be used is refused at the start

    @property
    def file(self) -> ProjectFile:
        if self.path is None:
            raise ApiError(404, "no-projects", "this server keeps no projects: start it with --project FILE")
        with self._lock:
            if self._file is None:
                self._file = ProjectFile(self.path)
            return self._file

    def close(self) -> None:
        """Close the file, so that it is one file again; it is opened again when it is needed."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    def all_facts(self) -> list[dict[str, Any]]:
        return [] if self.path is None or not self.path.exists() else [asdict(p) for p in self.file.projects()]

    def pairs(self, *kinds: str) -> dict[str, list[tuple[str, str]]]:
        """The pairs of these kinds of each project that has some, by its name."""
        names = [facts["name"] for facts in self.all_facts()]
        return {name: pairs for name in names if (pairs := self.file.pairs(name, *kinds))}

    def facts(self, number: int) -> dict[str, Any]:
        return asdict(self.file.project(number))

    def id_of(self, name: str, what: str) -> str:
        return self.linker.graph.entities[self.linker.names.find(name, what)]

    def event(self, event: Event) -> dict[str, Any]:
        """An event with readable names, where the graph has them."""
        facts = asdict(event)
        facts |= {f"{end}_name": self.name_of(facts[end]) for end in ("head", "tail")}
        facts["known"] = None not in map(self.linker.graph.entities.find, event.pair)
        if isinstance(event, Decision):
            facts["conflict"] = event.conflict and self.event(event.conflict)
        return facts

    def listed(self, number: int, states: Sequence[Decision]) -> dict[str, Any]:
        """Some decisions of a project, and a note on those of entities that this graph lacks."""
        rows = [self.event(state) for state in states]
        lacking = [(row["head"], row["tail"]) for row in rows if not row["known"]]
        notes = [lacking_note(lacking)] if lacking else []
        return {"project": self.facts(number), "decisions": rows, "notes": notes}

    def name_of(self, entity: str) -> str:
        number = self.linker.graph.entities.find(entity)
        return entity if number is None else self.linker.graph.name(number)

    def decide(self, number: int, body: NewDecisions) -> list[Decision]:
        ids = [
            (one.decision, self.id_of(one.head, "head"), self.id_of(one.tail, "tail"), one.probability)
            for one in body.decisions
        ]
        return self.file.decide(number, ids, body.who)

    async def predict(self, body: PredictRequest, service: Service) -> dict[str, Any]:
        """The answer to a request, its probabilities adjusted by the decisions of the project that it names."""
        number = body.project
        if number is None:
            return {**await service.predict(body), "calibration": None}
        states: list[Decision] = []
        answer = await service.predict(body, lambda: states.extend(self.file.decisions(number)))
        return await asyncio.to_thread(self._adjusted, answer, states, body.heads is None)

    def _adjusted(self, answer: dict[str, Any], states: Sequence[Decision], overall: bool) -> dict[str, Any]:
        """An answer with probabilities adjusted by decisions; if `overall`, the best pairs come first."""
        adjustment, rows = adjustment_of(states), answer["predictions"]
        if adjustment is None or not rows or rows[0]["probability"] is None:
            return {**answer, "calibration": None}
        answered = {state.head for state in states if state.kind != "rejected"}
        has_tail = np.array([row["head"] in answered for row in rows])
        adjusted = adjustment(np.array([row["base_probability"] for row in rows]), has_tail)
        for row, probability in zip(rows, adjusted.tolist(), strict=True):
            row["probability"] = probability
        if overall:
            rows.sort(key=lambda row: -row["probability"])
        return {**answer, "calibration": adjustment_facts(adjustment)}

    def known(self, number: int) -> Known:
        """The decided pairs of a project whose entities this graph has."""
        find, lacking = self.linker.graph.entities.find, list[tuple[str, str]]()
        pairs: dict[str, list[tuple[int, int]]] = {"reference": [], "accepted": [], "rejected": []}
        states = self.file.decisions(number)
        for state in states:
            head, tail = find(state.head), find(state.tail)
            if head is None or tail is None:
                lacking.append(state.pair)
            else:
                pairs[state.kind].append((head, tail))
        references, accepted, rejected = (np.array(own, np.int32).reshape(-1, 2) for own in pairs.values())
        return Known(references, accepted, rejected, states, [lacking_note(lacking)] if lacking else [])

    async def next(self, number: int, body: NextRequest, service: Service) -> dict[str, Any]:
        """The pairs to decide next; the model ranks again only if references or the pool have changed."""

        def pool() -> tuple[Known, RankingPart, int, list[str]]:
            known = self.known(number)
            whole, in_all, notes = self._pool(body, known, service)
            return known, whole, in_all, [*known.notes, *notes]

        async with service.admission.enter("next") as job:
            known, whole, in_all, notes = await service.prepare(pool, job, orders=body.heads is None)
            if whole not in self._ranked:
                parts, trust = await service.rank(whole, job)
                self._ranked[whole] = RankedPairs.joined(parts), trust
            ranked, trust = self._ranked[whole]
            self._ranked.move_to_end(whole)
            while len(self._ranked) > KEPT:
                self._ranked.popitem(last=False)

            def answer() -> dict[str, Any]:
                facts = self._suggestions(ranked, known, body, trust)
                return {**self._pool_facts(number, whole, known), "heads_in_all": in_all, **facts, "notes": notes}

            return await service.prepare(answer, job)

    def _pool_facts(self, number: int, whole: RankingPart, known: Known) -> dict[str, Any]:
        return {
            "project": self.facts(number),
            "heads": len(whole.heads),
            "references": len(whole.references.pairs),
            "read": id_texts(self.linker.graph, whole.references.pairs),
            "left": len(set(whole.heads) - {head for head, _ in known.decided()}),
        }

    def _pool(self, body: NextRequest, known: Known, service: Service) -> tuple[RankingPart, int, list[str]]:
        """What is ranked: the tails of each head of the pool.

        Constraints between pairs are left to `_suggestions`, as they change with each decision.
        """
        pairs = self._references(known)
        if not len(pairs):
            raise FewlinkError("the project has no references yet: add pairs that the relation holds for")
        texts = [[self.linker.graph.entities[entity] for entity in pair] for pair in pairs.tolist()]
        used = self._constraints(body, known)
        kinds = ["none"] if body.constraints == ["none"] else sorted(used.kinds & {"types"})
        asked = {"references": texts, "candidates": body.candidates, "relation": body.relation, "k": 1}
        of_type = {"heads_of_type": body.heads_of_type, "first": body.first, "count": body.count}
        request = PredictRequest.model_validate({**asked, **({"heads": body.heads} if body.heads else of_type)})
        part, in_all, notes = service.resolver.ranking(request)
        decided = Counter(head for head, _ in known.decided())
        more = max((decided[head] for head in part.heads), default=0) // DEEP * DEEP  # that are not suggested again
        part = replace(part, k=DEEP + more, overall=False, constraints=tuple(kinds))
        if body.constraints:
            notes += used.notes(np.array(part.heads), find_candidates_of(self.linker, part))
        return part, in_all, notes

    def _constraints(self, body: NextRequest, known: Known) -> Constraints:
        """The constraints of a request, given all true pairs; raises if one of these contradicts them."""
        relation = None if body.relation is None else find_relation(self.linker.benchmark, body.relation)
        true = References(tuple((head, tail) for head, tail in known.true.tolist()), relation)
        return Constraints.of(body.constraints, self.linker.graph, true)

    def _references(self, known: Known) -> np.ndarray:
        """The true pairs to read: those given, and accepted ones in steps, so that most decisions rank nothing anew."""
        step = len(known.accepted) // REFRESH * REFRESH if len(known.references) else len(known.accepted)
        true = np.concatenate([known.references, known.accepted[:step]])
        most = min(capabilities(self.linker.scorer).references_read(len(true)), MAX_REFERENCES)
        return choose_references(known_graph(self.linker.benchmark), true, most, len(known.references))

    def _suggestions(self, ranked: RankedPairs, known: Known, body: NextRequest, trust: Trust | None) -> dict[str, Any]:
        """The best pairs that are not decided, how many decisions they were learnt from, and what adjusted them."""
        pairs, decided = np.stack([ranked.heads, ranked.tails], 1), known.decided()
        left = np.array([(head, tail) not in decided for head, tail in pairs.tolist()], bool)
        begins = np.flatnonzero(np.diff(ranked.heads, prepend=-1))  # the rows of a head are consecutive
        if body.constraints and len(pairs):
            used = self._constraints(body, known)
            left &= np.concatenate([used.allowed(int(own[0, 0]), own[:, 1]) for own in np.split(pairs, begins[1:])])
        anything = len(known.accepted) + len(known.rejected)
        learned = learn(known_graph(self.linker.benchmark), known.true, known.rejected) if anything else None
        units = units_of(self.linker.scorer, np.split(ranked.scores, begins[1:]))
        corrections = np.zeros(len(pairs)) if learned is None else units.scale * learned.logits(pairs)
        order, corrected = suggest(learned, pairs[left], ranked.scores[left], units, teach=body.mode == "teach")
        moved = ranked.moved(np.where(left, corrections, GONE)).take(left)
        base, shown = self._probabilities(moved, trust)
        adjustment = adjustment_of(known.states)
        answered = np.isin(moved.heads, known.true[:, 0])
        chances = base if adjustment is None or base is None else adjustment(base, answered)
        graph = self.linker.graph
        rows = [
            {
                "head": graph.entities[head],
                "head_name": graph.name(head),
                "tail": graph.entities[tail],
                "tail_name": graph.name(tail),
                "score": float(corrected[place]),
                "rank": float(ranked.ranks[left][place]),
                "probability": float(chances[place]) if shown and chances is not None else None,
                "base_probability": None if base is None else float(base[place]),
            }
            for place in order[: body.k].tolist()
            for head, tail in [pairs[left][place].tolist()]
        ]
        learnt = 0 if learned is None else len(learned.pairs)
        return {"suggestions": rows, "learnt": learnt, "calibration": adjustment_facts(adjustment if shown else None)}

    def _probabilities(self, pairs: RankedPairs, trust: Trust | None) -> tuple[np.ndarray | None, bool]:
        """The model's probabilities (n,), None if it is not calibrated, and whether they are shown."""
        if self.linker.calibration is None or not len(pairs):
            return None, False
        both = self.linker.probabilities(Query(References(())), pairs, trust)
        assert both is not None
        base = both[0]
        first = base[pairs.ranks < 2]
        return base, self.linker.calibration.note(trust, float(first.mean()) if len(first) else 0.0).shown


def adjustment_facts(adjustment: Adjustment | None) -> dict[str, Any] | None:
    return None if adjustment is None else {"decisions": adjustment.decisions, "sentence": adjustment.sentence()}


def install_projects(app: FastAPI, projects: Projects) -> None:
    """Add the endpoints of projects to an app; those that use the file run in threads."""

    @app.get("/projects", response_model=ProjectList)
    def list_projects() -> Response:
        """All projects of the server's file, with how many pairs are decided."""
        return as_json({"projects": projects.all_facts()})

    @app.post("/projects", response_model=ProjectFacts, status_code=201)
    def add_project(body: NewProject) -> Response:
        """A new project: a relation to complete."""
        pairs = [
            (projects.id_of(head, "head of a reference"), projects.id_of(tail, "tail of a reference"))
            for head, tail in body.references
        ]
        made = projects.file.add_project(body.name, pairs, description=body.description, who=body.who)
        return as_json(asdict(made), 201)

    @app.get("/projects/{number}", response_model=ProjectFacts)
    def project(number: int) -> Response:
        """One project."""
        return as_json(projects.facts(number))

    @app.get("/projects/{number}/decisions", response_model=DecisionList)
    def decisions(number: int, kind: Literal["reference", "accepted", "rejected"] | None = None) -> Response:
        """What counts for each pair, oldest first, with conflicts."""
        return as_json(projects.listed(number, projects.file.decisions(number, kind)))

    @app.post("/projects/{number}/decisions", response_model=DecisionList)
    def decide(number: int, body: NewDecisions) -> Response:
        """Store decisions; the answer is their state, with what another curator had decided otherwise."""
        return as_json(projects.listed(number, projects.decide(number, body)))

    @app.post("/projects/{number}/undo", response_model=Undone)
    def undo(number: int, body: UndoRequest) -> Response:
        """Take back an event, by default the curator's last decision; both stay in the log."""
        numbers: list[int | None] = [*body.events] if body.events else [body.event]
        undone = projects.file.undo_all(number, numbers, body.who)
        facts = {"project": projects.facts(number), "count": len(undone)}
        return as_json({**facts, "undone": projects.event(undone[-1])})

    @app.get("/projects/{number}/log", response_model=EventList)
    def log(number: int) -> Response:
        """All events, oldest first."""
        events = [projects.event(event) for event in projects.file.log(number)]
        return as_json({"project": projects.facts(number), "log": events})

    @app.get("/projects/{number}/export", response_class=Response)
    def export_project(number: int, format: Annotated[Format, Parameter()] = "tsv") -> Response:
        """The decisions as a file: `tsv`, `triples` or `nt` (what is true) or `json` (the whole log)."""
        content = export(projects.file, number, format).encode("utf-8", "surrogatepass")
        disposition = f'attachment; filename="project-{number}.{format if format in MEDIA else "tsv"}"'
        kind = MEDIA.get(format, "text/tab-separated-values")
        return Response(content, headers={"Content-Disposition": disposition}, media_type=kind)

    @app.post("/projects/{number}/import", response_model=ImportAnswer)
    def import_project(number: int, body: ImportRequest) -> Response:
        """Add the decisions of an export; what the project has already is not added again."""
        name = projects.file.project(number).name
        find = projects.linker.names.id_of
        done = import_text(projects.file, name, body.text, body.format, who=body.who, find=find)
        notes = [lacking_note(done.unknown)] if done.unknown else []
        return as_json({"project": projects.facts(number), "added": done.added, "read": done.read, "notes": notes})

    @app.post("/projects/{number}/next", response_model=NextAnswer)
    async def next_pairs(number: int, body: NextRequest) -> Response:
        """The pairs to decide next: the best ones, or those whose answers teach most."""
        return as_json(await projects.next(number, body, app.state.service))
