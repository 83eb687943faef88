"""Projects over HTTP: curators' decisions are kept in a project file, and the next pairs to decide come from them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from fewlink.base.errors import FewlinkError
from fewlink.curation.exchange import export, import_text
from fewlink.curation.learning import choose_references, learn, units_of
from fewlink.curation.next_question import suggest
from fewlink.curation.schema import Decision, Event
from fewlink.curation.store import ProjectFile
from fewlink.data.training_graph import known_graph
from fewlink.prediction import Linker
from fewlink.prediction.predictions import RankedPairs
from fewlink.prediction.query import id_texts
from fewlink.web.batching import RankingPart
from fewlink.web.middleware import ApiError, as_json
from fewlink.web.schema import MOST_HEADS, MOST_REFERENCES, NAME_LENGTH, Name, Pair, PredictRequest
from fewlink.web.service import Service

DEEP = 50  # tails of each head that can be suggested
REFRESH = 5  # acceptances after which they are read as references: until then scores are corrected, in milliseconds
HEADS = 50  # that are looked through unless a request names more
KEPT = 8  # rankings that are remembered
MEDIA = {"nt": "application/n-triples", "json": "application/json"}  # other formats are columns
Format = Literal["tsv", "triples", "nt", "json"]
Who = Annotated[str, StringConstraints(max_length=NAME_LENGTH)]
WHO = Field("", description="The curator, as a name.")


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class NewProject(Body):
    """A relation to complete, with pairs that it holds for."""

    name: Name
    description: Annotated[str, StringConstraints(max_length=4_000)] = ""
    references: Annotated[list[Pair], Field(max_length=MOST_REFERENCES)] = []
    who: Who = WHO


class OneDecision(Body):
    head: Name
    tail: Name
    decision: Literal["accepted", "rejected", "reference"]


class NewDecisions(Body):
    """Decisions that are stored all or none."""

    decisions: Annotated[list[OneDecision], Field(min_length=1, max_length=1_000)]
    who: Who = WHO


class UndoRequest(Body):
    event: int | None = Field(None, description="The event to undo; null: the last decision of `who`.")
    events: Annotated[list[int], Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="Several events to undo at once, all or none."
    )
    who: Who = WHO


class ImportRequest(Body):
    format: Literal["tsv", "nt", "json"]
    text: str
    who: Who = WHO


class NextRequest(Body):
    """Which pairs to decide next, over a pool of heads."""

    heads: Annotated[list[Name], Field(min_length=1, max_length=MOST_HEADS)] | None = Field(
        None, description="The pool; null: heads of `heads_of_type`."
    )
    heads_of_type: Name = Field("open", description="A type; `open`: entities like the references' heads; `all`.")
    first: Annotated[int, Field(ge=0)] = 0
    count: Annotated[int, Field(ge=1, le=MOST_HEADS)] = HEADS
    candidates: Name | None = Field(None, description="Tails: a type or `all`; null: like those of the references.")
    relation: Name | None = Field(None, description="A relation of the graph; its known pairs are not suggested.")
    mode: Literal["best", "teach"] = Field("best", description="`teach`: pairs whose answers tell most about others.")
    k: Annotated[int, Field(ge=1, le=100)] = 10


class ProjectFacts(BaseModel):
    number: int
    name: str
    description: str
    made: str
    references: int
    accepted: int
    rejected: int
    conflicts: int
    events: int


class ProjectList(BaseModel):
    projects: list[ProjectFacts]


class EventFacts(BaseModel):
    number: int
    kind: Literal["reference", "accepted", "rejected", "undo"]
    head: str
    head_name: str
    tail: str
    tail_name: str
    undoes: int | None
    who: str
    time: str


class DecisionFacts(EventFacts):
    conflict: EventFacts | None = Field(description="What another curator had decided otherwise.")


class DecisionList(BaseModel):
    project: ProjectFacts
    decisions: list[DecisionFacts]


class EventList(BaseModel):
    project: ProjectFacts
    log: list[EventFacts]


class Undone(BaseModel):
    project: ProjectFacts
    undone: EventFacts
    count: int = Field(description="How many events were undone.")


class ImportAnswer(BaseModel):
    project: ProjectFacts
    added: int
    read: int


class Suggestion(BaseModel):
    head: str
    head_name: str
    tail: str
    tail_name: str
    score: float = Field(description="Corrected by the decisions.")
    rank: float = Field(description="The tail's rank for its head before the correction.")


class NextAnswer(BaseModel):
    project: ProjectFacts
    heads: int
    heads_in_all: int
    references: int = Field(description="True pairs that the model reads as references.")
    read: list[Pair] = Field(description="These pairs, by id.")
    learnt: int = Field(description="Decisions that corrected the scores.")
    left: int = Field(description="Heads looked through of which no pair is decided.")
    suggestions: list[Suggestion]
    notes: list[str]


@dataclass(frozen=True)
class Known:
    """The decided pairs of a project by id: (n, 2) given as references, accepted and rejected; notes on the others."""

    references: np.ndarray
    accepted: np.ndarray
    rejected: np.ndarray
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
        self._ranked: OrderedDict[object, RankedPairs] = OrderedDict()
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
        if isinstance(event, Decision):
            facts["conflict"] = event.conflict and self.event(event.conflict)
        return facts

    def name_of(self, entity: str) -> str:
        number = self.linker.graph.entities.find(entity)
        return entity if number is None else self.linker.graph.name(number)

    def decide(self, number: int, body: NewDecisions) -> list[Decision]:
        ids = [(one.decision, self.id_of(one.head, "head"), self.id_of(one.tail, "tail")) for one in body.decisions]
        return self.file.decide(number, ids, body.who)

    def known(self, number: int) -> Known:
        """The decided pairs of a project whose entities this graph has."""
        find, lacking = self.linker.graph.entities.find, 0
        pairs: dict[str, list[tuple[int, int]]] = {"reference": [], "accepted": [], "rejected": []}
        for state in self.file.decisions(number):
            head, tail = find(state.head), find(state.tail)
            if head is None or tail is None:
                lacking += 1
            else:
                pairs[state.kind].append((head, tail))
        notes = [f"{lacking:,} decided pairs name entities that this graph lacks: they are kept and not read"]
        references, accepted, rejected = (np.array(own, np.int32).reshape(-1, 2) for own in pairs.values())
        return Known(references, accepted, rejected, notes if lacking else [])

    async def next(self, number: int, body: NextRequest, service: Service) -> dict[str, Any]:
        """The pairs to decide next; the model ranks again only if references or the pool have changed."""
        known = await asyncio.to_thread(self.known, number)
        whole, in_all, notes = await asyncio.to_thread(self._pool, body, known, service)
        ranked = self._ranked.get(whole)
        if ranked is None:
            ranked = RankedPairs.joined(await service.ranked(whole))
        self._ranked[whole] = ranked
        self._ranked.move_to_end(whole)
        while len(self._ranked) > KEPT:
            self._ranked.popitem(last=False)
        rows, learnt = await asyncio.to_thread(self._suggestions, ranked, known, body)
        facts = await asyncio.to_thread(self.facts, number)
        return {
            "project": facts,
            "heads": len(whole.heads),
            "heads_in_all": in_all,
            "references": len(whole.references.pairs),
            "read": id_texts(self.linker.graph, whole.references.pairs),
            "learnt": learnt,
            "left": len(set(whole.heads) - {head for head, _ in known.decided()}),
            "suggestions": rows,
            "notes": [*known.notes, *notes],
        }

    def _pool(self, body: NextRequest, known: Known, service: Service) -> tuple[RankingPart, int, list[str]]:
        """What is ranked: the tails of each head of the pool."""
        pairs = self._references(known)
        if not len(pairs):
            raise FewlinkError("the project has no references yet: add pairs that the relation holds for")
        texts = [[self.linker.graph.entities[entity] for entity in pair] for pair in pairs.tolist()]
        asked = {"references": texts, "candidates": body.candidates, "relation": body.relation, "k": 1}
        of_type = {"heads_of_type": body.heads_of_type, "first": body.first, "count": body.count}
        request = PredictRequest.model_validate({**asked, **({"heads": body.heads} if body.heads else of_type)})
        part, in_all, notes = service.resolver.ranking(request)
        decided = Counter(head for head, _ in known.decided())
        more = max((decided[head] for head in part.heads), default=0) // DEEP * DEEP  # that are not suggested again
        return replace(part, k=DEEP + more, overall=False), in_all, notes

    def _references(self, known: Known) -> np.ndarray:
        """The true pairs to read: those given, and accepted ones in steps, so that most decisions rank nothing anew."""
        step = len(known.accepted) // REFRESH * REFRESH if len(known.references) else len(known.accepted)
        true = np.concatenate([known.references, known.accepted[:step]])
        most = min(getattr(self.linker.scorer, "most_references", len(true)), MOST_REFERENCES)
        return choose_references(known_graph(self.linker.benchmark), true, most, len(known.references))

    def _suggestions(self, ranked: RankedPairs, known: Known, body: NextRequest) -> tuple[list[dict[str, Any]], int]:
        """The rows of the best pairs that are not decided, and how many decisions they were learnt from."""
        pairs, decided = np.stack([ranked.heads, ranked.tails], 1), known.decided()
        left = np.array([(head, tail) not in decided for head, tail in pairs.tolist()], bool)
        pairs, scores, ranks = pairs[left], ranked.scores[left], ranked.ranks[left]
        anything = len(known.accepted) + len(known.rejected)
        learned = learn(known_graph(self.linker.benchmark), known.true, known.rejected) if anything else None
        begins = np.flatnonzero(np.diff(ranked.heads, prepend=-1))  # the rows of a head are consecutive
        units = units_of(self.linker.scorer, np.split(ranked.scores, begins[1:]))
        order, corrected = suggest(learned, pairs, scores, units, teach=body.mode == "teach")
        graph = self.linker.graph
        rows = [
            {
                "head": graph.entities[head],
                "head_name": graph.name(head),
                "tail": graph.entities[tail],
                "tail_name": graph.name(tail),
                "score": float(corrected[place]),
                "rank": float(ranks[place]),
            }
            for place in order[: body.k].tolist()
            for head, tail in [pairs[place].tolist()]
        ]
        return rows, 0 if learned is None else len(learned.pairs)


def install(app: FastAPI, projects: Projects) -> None:
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
        states = [projects.event(state) for state in projects.file.decisions(number, kind)]
        return as_json({"project": projects.facts(number), "decisions": states})

    @app.post("/projects/{number}/decisions", response_model=DecisionList)
    def decide(number: int, body: NewDecisions) -> Response:
        """Store decisions; the answer is their state, with what another curator had decided otherwise."""
        states = [projects.event(state) for state in projects.decide(number, body)]
        return as_json({"project": projects.facts(number), "decisions": states})

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
    def export_project(number: int, format: Annotated[Format, Query()] = "tsv") -> Response:
        """The decisions as a file: `tsv`, `triples` or `nt` (what is true) or `json` (the whole log)."""
        content = export(projects.file, number, format).encode("utf-8", "surrogatepass")
        disposition = f'attachment; filename="project-{number}.{format if format in MEDIA else "tsv"}"'
        kind = MEDIA.get(format, "text/tab-separated-values")
        return Response(content, headers={"Content-Disposition": disposition}, media_type=kind)

    @app.post("/projects/{number}/import", response_model=ImportAnswer)
    def import_project(number: int, body: ImportRequest) -> Response:
        """Add the decisions of an export; what the project has already is not added again."""
        name = projects.file.project(number).name
        done = import_text(projects.file, name, body.text, body.format, who=body.who)
        return as_json({"project": projects.facts(number), "added": done.added, "read": done.read})

    @app.post("/projects/{number}/next", response_model=NextAnswer)
    async def next_pairs(number: int, body: NextRequest) -> Response:
        """The pairs to decide next: the best ones, or those whose answers teach most."""
        return as_json(await projects.next(number, body, app.state.service))
