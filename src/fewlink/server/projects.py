"""Projects over HTTP: a project file stores the decisions of curators, which determine the pairs to decide next."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI
from fastapi import Query as Parameter
from starlette.responses import Response

from fewlink.core.errors import FewlinkError
from fewlink.curation.exports import FORMATS, Described, FormatName, export
from fewlink.curation.imports import add_decisions, decisions_in
from fewlink.curation.learning import learn, suggest, units_of
from fewlink.curation.store import Decision, Event, ProjectFile
from fewlink.linker import Linker
from fewlink.linker.probability import lacking_note
from fewlink.linker.query import Query, References, find_relation, id_texts
from fewlink.linker.ranking import Constraints, RankedPairs
from fewlink.linker.trust import Trust
from fewlink.server.errors import ApiError, as_json
from fewlink.server.schema import (
    ImportRequest,
    NewDecisions,
    NewProject,
    NextRequest,
    PredictRequest,
    UndoRequest,
)
from fewlink.server.service import Service, adjusted, adjustment_facts, shared_names

SUGGESTED_TAILS = 50  # of each head
REFERENCE_STEP = 5  # accepted pairs become references in groups of this size; until then they only correct the scores
LISTED_TAILS = 20  # of the accepted pairs
FORMAT_FACTS = [
    {"name": name, "title": format.title, "about": format.about, "suffixes": list(format.suffixes)}
    for name, format in FORMATS.items()
]
EXPORTED = {format.media_type.partition(";")[0]: {"schema": {"type": "string"}} for format in FORMATS.values()}
DECIDED_PENALTY = -1e9  # added to the scores of decided pairs, so that they do not compete


@dataclass(frozen=True)
class Known:
    """The decided pairs of a project as ids, each (n, 2), and `states`, all its decisions.

    `notes` name pairs with entities that the graph lacks.
    """

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
    """The project file of a server, opened when it is first needed."""

    def __init__(self, linker: Linker, path: Path | None) -> None:
        self.linker = linker
        self.path = path
        self._file: ProjectFile | None = None
        self._lock = threading.Lock()
        if path is not None and path.exists():
            _ = self.file  # raises now if the file cannot be used

    @property
    def file(self) -> ProjectFile:
        if self.path is None:
            raise ApiError(404, "no-projects", "this server has no project file: start it with --project FILE")
        with self._lock:
            if self._file is None:
                self._file = ProjectFile(self.path)
            return self._file

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    def all_facts(self) -> list[dict[str, Any]]:
        if self.path is None or not self.path.exists():
            return []
        return [self.facts(project.number) for project in self.file.projects()]

    def pairs(self, *kinds: str) -> dict[str, list[tuple[str, str]]]:
        """The pairs of these kinds by project; projects without any are left out."""
        pairs = {facts["name"]: self.file.pairs(facts["name"], *kinds) for facts in self.all_facts()}
        return {name: own for name, own in pairs.items() if own}

    def facts(self, number: int) -> dict[str, Any]:
        """A project with its progress, tails by name."""
        progress = self.file.progress(number)
        listed = progress.tails[:LISTED_TAILS]
        shared = self.with_shared_names(tail for tail, _ in listed)
        return {
            **asdict(self.file.project(number)),
            "progress": {
                "decided": progress.decided,
                "right": progress.right,
                "tails": [
                    {
                        "tail": tail,
                        "tail_name": self.name_of(tail),
                        "tail_name_shared": tail in shared,
                        "accepted": count,
                    }
                    for tail, count in listed
                ],
                "distinct_tails": len(progress.tails),
                "warning": progress.warning(self.name_of),
            },
        }

    @property
    def described(self) -> Described:
        """The graph of the server, for exports."""
        return Described(self.linker.graph, self.linker.benchmark.source)

    def id_of(self, name: str) -> str:
        return self.linker.graph.entities[self.linker.names.find(name)]

    def events(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """Events with readable names, where the graph has them."""
        shared = self.with_shared_names(entity for event in events for entity in event.pair)
        return [self._event(event, shared) for event in events]

    def _event(self, event: Event, shared: set[str]) -> dict[str, Any]:
        facts = asdict(event)
        for end in ("head", "tail"):
            facts[f"{end}_name"] = self.name_of(facts[end])
            facts[f"{end}_name_shared"] = facts[end] in shared
        facts["known"] = None not in map(self.linker.graph.entities.find, event.pair)
        if isinstance(event, Decision):
            facts["conflict"] = event.conflict and self._event(event.conflict, shared)
        return facts

    def listed(self, number: int, states: Sequence[Decision]) -> dict[str, Any]:
        """Decisions of a project, with a note on pairs with entities that this graph lacks."""
        rows = self.events(states)
        lacking = [(row["head"], row["tail"]) for row in rows if not row["known"]]
        notes = [lacking_note(lacking)] if lacking else []
        return {"project": self.facts(number), "decisions": rows, "notes": notes}

    def name_of(self, entity: str) -> str:
        number = self.linker.graph.entities.find(entity)
        return entity if number is None else self.linker.graph.name(number)

    def with_shared_names(self, entities: Iterable[str]) -> set[str]:
        """The ids whose readable name another entity of the graph has, too."""
        graph = self.linker.graph
        known = (number for number in map(graph.entities.find, entities) if number is not None)
        return {graph.entities[number] for number in self.linker.names.with_shared_names(known)}

    def decide(self, number: int, body: NewDecisions) -> list[Decision]:
        """Store decisions, and return the state of their pairs."""
        decisions = [
            (made.decision, self.id_of(made.head), self.id_of(made.tail), made.probability) for made in body.decisions
        ]
        return self.file.decide(number, decisions, body.who)

    async def predict(self, body: PredictRequest, service: Service) -> bytes:
        """Answer a request. If it names a project, its decisions adjust the probabilities."""
        number = body.project
        if number is None:
            return await service.predict(body)
        return await service.predict(body, lambda: self.file.decisions(number))

    def known(self, number: int) -> Known:
        """The decided pairs of a project whose entities this graph has."""
        find = self.linker.graph.entities.find
        lacking: list[tuple[str, str]] = []
        pairs: dict[str, list[tuple[int, int]]] = {"reference": [], "accepted": [], "rejected": []}
        states = self.file.decisions(number)
        for state in states:
            head = find(state.head)
            tail = find(state.tail)
            if head is None or tail is None:
                lacking.append(state.pair)
            else:
                pairs[state.kind].append((head, tail))
        references, accepted, rejected = (np.array(own, np.int32).reshape(-1, 2) for own in pairs.values())
        return Known(references, accepted, rejected, states, [lacking_note(lacking)] if lacking else [])

    async def next(self, number: int, body: NextRequest, service: Service) -> dict[str, Any]:
        """Suggest the pairs to decide next. The model ranks again only if the references or the pool have changed."""

        def resolve() -> tuple[Known, Query, int, list[str]]:
            known = self.known(number)
            query, in_all, notes = self._query(body, known, service)
            return known, query, in_all, [*known.notes, *notes]

        known, query, in_all, notes = await service.run(resolve, large=body.heads is None)
        ranked, trust = await service.rank(query)

        def answer() -> dict[str, Any]:
            return {
                "project": self.facts(number),
                "heads": len(query.heads),
                "references": len(query.references.pairs),
                "read": id_texts(self.linker.graph, self._references(known)),
                "left": len(set(query.heads) - {head for head, _ in known.decided()}),
                "heads_in_all": in_all,
                **self._suggestions(query, ranked, trust, known, body),
                "notes": notes,
            }

        return await service.run(answer)

    def _query(self, body: NextRequest, known: Known, service: Service) -> tuple[Query, int, list[str]]:
        """The query for the tails of each head in the pool, the number of heads in all, and notes.

        `_suggestions` applies constraints between pairs, because they change with each decision.
        """
        pairs = [[head, tail] for head, tail in id_texts(self.linker.graph, self._references(known))]
        if not pairs and body.relation is None:
            raise FewlinkError("the project has no references: add pairs that the relation holds for")
        request = PredictRequest(
            references=pairs or None,
            candidates=body.candidates,
            relation=body.relation,
            k=1,
            heads=body.heads or None,
            heads_of_type=None if body.heads else body.heads_of_type,
            first=0 if body.heads else body.first,
            count=None if body.heads else body.count,
        )
        query, in_all = service.resolver.query(request)
        decided = Counter(head for head, _ in known.decided())
        most = max((decided[head] for head in query.heads), default=0)
        more = most // SUGGESTED_TAILS * SUGGESTED_TAILS  # in place of decided ones
        used = self._constraints(body, known)
        kinds = ["none"] if body.constraints == ["none"] else sorted(used.kinds & {"types"})
        query = replace(query, k=SUGGESTED_TAILS + more, across_heads=False, constraints=tuple(kinds))
        notes = list(query.notes)
        if body.constraints:
            notes += used.notes(np.array(query.heads), self.linker.candidates(query))
        return query, in_all, notes

    def _constraints(self, body: NextRequest, known: Known) -> Constraints:
        """The constraints of a request; raise if a true pair of the project violates one."""
        relation = None if body.relation is None else find_relation(self.linker.benchmark, body.relation)
        true = References(tuple((head, tail) for head, tail in known.true.tolist()), relation)
        return Constraints.of(body.constraints, self.linker.graph, true)

    def _references(self, known: Known) -> np.ndarray:
        """The references to read: accepted pairs join them in steps, so that most decisions need no new ranking."""
        step = len(known.accepted) // REFERENCE_STEP * REFERENCE_STEP if len(known.references) else len(known.accepted)
        return np.concatenate([known.references, known.accepted[:step]])

    def _suggestions(
        self, query: Query, ranked: RankedPairs, trust: Trust | None, known: Known, body: NextRequest
    ) -> dict[str, Any]:
        """The best undecided pairs, and the decisions that corrected their scores and adjusted their probabilities."""
        pairs = np.stack([ranked.heads, ranked.tails], 1)
        decided = known.decided()
        left = np.array([(head, tail) not in decided for head, tail in pairs.tolist()], bool)
        begins = np.flatnonzero(np.diff(ranked.heads, prepend=-1))  # the rows of a head are consecutive
        if body.constraints and len(pairs):
            used = self._constraints(body, known)
            left &= np.concatenate([used.allowed(int(own[0, 0]), own[:, 1]) for own in np.split(pairs, begins[1:])])
        learned = None
        if len(known.accepted) + len(known.rejected):
            learned = learn(self.linker.benchmark.known_graph, known.true, known.rejected)
        units = units_of(self.linker.scorer, np.split(ranked.scores, begins[1:]))
        corrections = np.zeros(len(pairs)) if learned is None else units.scale * learned.logits(pairs)
        order, corrected = suggest(learned, pairs[left], ranked.scores[left], units, teach=body.mode == "teach")
        moved = ranked.moved(np.where(left, corrections, DECIDED_PENALTY)).take(left)
        query = adjusted(query, known.states, self.linker)
        probabilities = self.linker.probabilities(query, moved, trust) if len(moved) else None
        shown = probabilities is not None and self._are_shown(probabilities[0], moved, trust)
        base, final = (None, None) if probabilities is None else probabilities
        graph = self.linker.graph
        rows = []
        chosen = order[: body.k]
        shared = shared_names(self.linker, *pairs[left][chosen].T)
        for place, own in zip(chosen.tolist(), shared, strict=True):
            head, tail = pairs[left][place].tolist()
            rows.append(
                {
                    "head": graph.entities[head],
                    "head_name": graph.name(head),
                    "tail": graph.entities[tail],
                    "tail_name": graph.name(tail),
                    **own,
                    "score": float(corrected[place]),
                    "rank": float(ranked.ranks[left][place]),
                    "probability": float(final[place]) or None if final is not None and shown else None,
                    "base_probability": None if base is None else float(base[place]) or None,
                }
            )
        return {
            "suggestions": rows,
            "learnt": 0 if learned is None else len(learned.pairs),
            "calibration": adjustment_facts(query.adjustment if shown else None),
        }

    def _are_shown(self, probabilities: np.ndarray, pairs: RankedPairs, trust: Trust | None) -> bool:
        """Whether probabilities are reliable enough to be shown."""
        assert self.linker.calibration is not None
        first = probabilities[(pairs.ranks < 2) & (probabilities > 0)]
        return bool(len(first)) and self.linker.calibration.note(trust, float(first.mean())).shown


def install_projects(app: FastAPI, projects: Projects, service: Service) -> None:
    """Add the endpoints of projects to an app."""

    @app.get("/projects")
    def list_projects() -> Response:
        """All projects of the server, with the number of decided pairs."""
        return as_json({"projects": projects.all_facts()})

    @app.get("/formats")
    def formats() -> Response:
        """The formats of exports."""
        return as_json({"formats": FORMAT_FACTS})

    @app.post("/projects", status_code=201)
    def add_project(body: NewProject) -> Response:
        """Create a project: a relation to complete."""
        pairs = [(projects.id_of(head), projects.id_of(tail)) for head, tail in body.references]
        made = projects.file.add_project(body.name, pairs, description=body.description, who=body.who)
        return as_json(projects.facts(made.number), 201)

    @app.get("/projects/{number}")
    def project(number: int) -> Response:
        """One project."""
        return as_json(projects.facts(number))

    @app.get("/projects/{number}/decisions")
    def decisions(number: int, kind: Literal["reference", "accepted", "rejected"] | None = None) -> Response:
        """The current decision about each pair, oldest first, with conflicts."""
        return as_json(projects.listed(number, projects.file.decisions(number, kind)))

    @app.post("/projects/{number}/decisions")
    def decide(number: int, body: NewDecisions) -> Response:
        """Store decisions. The answer has the state of each pair, with any conflicting decision of another curator."""
        return as_json(projects.listed(number, projects.decide(number, body)))

    @app.post("/projects/{number}/undo")
    def undo(number: int, body: UndoRequest) -> Response:
        """Undo an event, by default the curator's last decision. Both stay in the log."""
        numbers: list[int | None] = [*body.events] if body.events else [body.event]
        undone = projects.file.undo_all(number, numbers, body.who)
        facts = {"project": projects.facts(number), "count": len(undone)}
        return as_json({**facts, "undone": projects.events(undone[-1:])[0]})

    @app.get("/projects/{number}/log")
    def log(number: int) -> Response:
        """All events, oldest first."""
        events = projects.events(projects.file.log(number))
        return as_json({"project": projects.facts(number), "log": events})

    @app.get("/projects/{number}/export", response_class=Response, responses={200: {"content": EXPORTED}})
    def export_project(
        number: int,
        format: FormatName = "csv",
        relation: Annotated[
            str | None, Parameter(max_length=500, description="Written in place of the project's name.")
        ] = None,
    ) -> Response:
        """The project as a file in one of the formats that `GET /formats` lists."""
        chosen = FORMATS[format]
        text = export(projects.file, number, format, relation=relation, described=projects.described)
        disposition = f'attachment; filename="project-{number}{chosen.suffixes[0]}"'
        content = text.encode("utf-8", "surrogatepass")
        return Response(content, headers={"Content-Disposition": disposition}, media_type=chosen.media_type)

    @app.post("/projects/{number}/import")
    def import_project(number: int, body: ImportRequest) -> Response:
        """Import decisions from an export. Decisions that the project already has are skipped."""
        name = projects.file.project(number).name
        find = projects.linker.names.id_of
        done = add_decisions(projects.file, name, decisions_in(body.text, body.format, body.who), find)
        notes = [lacking_note(done.unknown)] if done.unknown else []
        return as_json({"project": projects.facts(number), "added": done.added, "read": done.read, "notes": notes})

    @app.post("/projects/{number}/next")
    async def next_pairs(number: int, body: NextRequest) -> Response:
        """The pairs to decide next: the most probable ones, or the ones that teach the model most."""
        return as_json(await projects.next(number, body, service))
