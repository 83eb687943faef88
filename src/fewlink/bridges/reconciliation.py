"""Matches names in a table with the entities of a graph, as the Reconciliation Service API 0.2 of W3C defines it.

https://www.w3.org/community/reports/reconciliation/CG-FINAL-specs-0.2-20230410/
"""

from __future__ import annotations

import difflib
import functools
import html
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

import fewlink
from fewlink.linker import Linker
from fewlink.linker.names import fold, spaced
from fewlink.linker.query import Relation, find_relation

BATCH = 100  # queries per request
LIMIT = 10  # candidates for a query without a limit
MAX_LIMIT = 100
COMPARED = 200  # entities with a similar name that are compared with a query
OTHER_TYPE = 0.5  # factor for the score of an entity of another type
PROPERTY_SHARE = 0.3  # of the score, if a query has properties
PROBABILITY = " (probability)"  # suffix of the property that holds the probabilities of predicted tails
PREVIEW_EDGES = 12
WIDTH, HEIGHT = 420, 300  # of a preview, in pixels
QUERY_LENGTH = 500  # characters of a query that are compared with names
Text = Annotated[str, Field(max_length=500)]
Cell = Annotated[str, Field(max_length=100_000)]  # a cell of a table, which may contain anything
Described = Mapping[str, Sequence[tuple[str, str]]]  # references (head, tail) by the name of a relation


class EntityValue(BaseModel):
    id: Text
    name: Text = ""


Value = EntityValue | Cell | bool | int | float


class PropertyValue(BaseModel):
    pid: Text
    v: Value | Annotated[list[Value], Field(max_length=100)]

    def values(self) -> list[Value]:
        return self.v if isinstance(self.v, list) else [self.v]


class MatchQuery(BaseModel):
    """A reconciliation query; fields of other versions of the protocol are ignored."""

    query: Cell = ""
    type: Text | Annotated[list[Text], Field(max_length=100)] = ""
    limit: Annotated[int, Field(ge=1)] = LIMIT
    properties: Annotated[list[PropertyValue], Field(max_length=100)] = []
    type_strict: Literal["any", "should", "all"] | None = None

    def types(self) -> list[str]:
        return [kind for kind in ([self.type] if isinstance(self.type, str) else self.type) if kind]


@dataclass(frozen=True)
class Property:
    """A relation as a property: of the graph or a task of the benchmark, or described by references."""

    id: str
    name: str
    relation: Relation | None = None
    references: tuple[tuple[int, int], ...] = ()
    probability: bool = False  # the values are the probabilities of the tails

    def tails(self, head: int) -> list[int]:
        """The known tails of a head."""
        own = [] if self.relation is None else self.relation.tails(head).tolist()
        return sorted({*own, *(tail for given, tail in self.references if given == head)})

    def heads(self, tail: int) -> list[int]:
        """The heads that are known to have this tail."""
        own = [] if self.relation is None else self.relation.pairs().tolist()
        return sorted({head for head, of in (*own, *self.references) if of == tail})

    def to_dict(self) -> dict[str, str]:
        about = {"description": "predicted from references"} if self.references else {}
        return {"id": self.id, "name": self.name, **about}


class Reconciler:
    """Answers the queries of the protocol about the graph of a linker. Entities, types and relations keep their ids.

    `described` returns relations that the graph lacks, as references by name of the relation. It is called for each
    request, because they may change. References with unknown entities are ignored.
    """

    def __init__(self, linker: Linker, described: Callable[[], Described] = dict) -> None:
        self.linker, self.graph, self.names = linker, linker.graph, linker.names
        self.described = described
        self.lock = threading.Lock()  # comparing names allocates: one request at a time

    def manifest(self, address: str, token: str | None = None, needs_token: bool = False) -> dict[str, Any]:
        """The manifest of the service. `token` becomes part of its URLs, for clients that send no header."""
        space = f"urn:fewlink:{self.graph.fingerprint[:16]}"
        more = f"&token={token}" if token else ""
        own = f"?token={token}" if token else ""
        preview = f"{address}/preview?id={{{{id}}}}{more}"
        kinds = self.names.complete_types("", LIMIT)
        return {
            "versions": ["0.2"],
            "name": f"fewlink: {self.linker.benchmark.name}",
            "identifierSpace": f"{space}:entity:",
            "schemaSpace": f"{space}:type:",
            "serviceVersion": fewlink.__version__,
            "defaultTypes": [{"id": kind, "name": kind} for kind, _ in kinds],
            "view": {"url": preview},
            "preview": {"url": preview, "width": WIDTH, "height": HEIGHT},
            "suggest": {
                kind: {"service_url": address, "service_path": f"/suggest/{kind}{own}"}
                for kind in ("entity", "type", "property")
            },
            "extend": {
                "propose_properties": {"service_url": address, "service_path": f"/properties{own}"},
                "property_settings": SETTINGS,
            },
            "batchSize": BATCH,
            **({"authentication": {"type": "apiKey", "name": "token", "in": "query"}} if needs_token else {}),
        }

    @functools.cached_property
    def _own(self) -> dict[str, Property]:
        """The relations of the graph and the tasks of its benchmark, by id."""
        tasks = [task.name for tasks in self.linker.benchmark.tasks.values() for task in tasks]
        relations = (find_relation(self.linker.benchmark, name) for name in (*self.graph.relations, *tasks))
        return {
            own.name: Property(own.name, own.name if own.task else self.graph.relation_name(own.number), own)
            for own in relations
        }

    def properties(self) -> dict[str, Property]:
        """All properties by id. Relations described by references come first and replace others of the same name."""
        described = {}
        for name, pairs in self.described().items():
            numbers = [(self.graph.entities.find(head), self.graph.entities.find(tail)) for head, tail in pairs]
            known = tuple((head, tail) for head, tail in numbers if head is not None and tail is not None)
            if known:
                own = (
                    self._own[name].relation if name in self._own else None
                )  # curators complete a relation of the graph
                described[name] = Property(name, name, own, known)
                described[name + PROBABILITY] = Property(name + PROBABILITY, name + PROBABILITY, own, known, True)
        return {**described, **{id_: own for id_, own in self._own.items() if id_ not in described}}

    def match(self, query: MatchQuery) -> list[dict[str, Any]]:
        """Candidates for a query, best first."""
        properties, limit = self.properties(), min(query.limit, MAX_LIMIT)
        wanted = [(properties[given.pid], given.values()) for given in query.properties if given.pid in properties]
        with self.lock:
            likeness = self._alike(query.query) if query.query.strip() else self._with_values(wanted)
        kinds = set(query.types())
        rows = []
        for entity, similarity in likeness.items():
            own = self.names.types_of(entity)
            of_type = not kinds or (kinds <= set(own) if query.type_strict == "all" else bool(kinds & set(own)))
            if not of_type and query.type_strict != "should":
                continue
            share = float(np.mean([self._has_value(of, entity, values) for of, values in wanted])) if wanted else 1.0
            score = similarity if not query.query.strip() else (1 - PROPERTY_SHARE * (1 - share)) * similarity
            score *= 1.0 if of_type else OTHER_TYPE
            features = {"name_similarity": round(similarity, 4), "edges": int(self.graph.degrees[entity])}
            features |= {"type_match": of_type} if kinds else {}
            features |= {"property_match": round(share, 4)} if wanted else {}
            certain = bool(query.query.strip()) and similarity == 1.0 and of_type and share == 1.0
            rows.append((-score, -self.graph.degrees[entity], entity, own, features, certain))
        rows.sort(key=lambda row: row[:3])
        alone = sum(row[-1] for row in rows) == 1
        return [
            {
                "id": self.graph.entities[entity],
                "name": self.graph.name(entity),
                "description": self.names.hint(entity),
                "score": round(-100 * float(score), 2),
                "match": certain and alone,
                "type": [{"id": kind, "name": kind} for kind in own],
                "features": [{"id": name, "value": value} for name, value in features.items()],
            }
            for score, _, entity, own, features, certain in rows[:limit]
        ]

    def _alike(self, text: str) -> dict[int, float]:
        """Entities whose name or id resembles a text, with a similarity from 0 to 1."""
        text = text[:QUERY_LENGTH]
        typed = fold(text.replace("\n", " ").strip())
        found = [self.graph.entities.find(text.strip())]
        found += [self.graph.entities.find(entity.id) for entity in self.names.complete(text, COMPARED)]
        likeness: dict[int, float] = {}
        for entity in dict.fromkeys(number for number in found if number is not None):
            likeness[entity] = self._similarity(typed, entity)
        if max(likeness.values(), default=0.0) < 1.0:  # the text may be misspelt
            likeness.update((e, self._similarity(typed, e)) for e in self.names.nearest(text, LIMIT))
        return likeness

    def _similarity(self, typed: str, entity: int) -> float:
        names = (spaced(fold(self.graph.name(entity))), fold(self.graph.entities[entity]))
        if typed in names or spaced(typed) in names:
            return 1.0
        return max(min(difflib.SequenceMatcher(None, name, typed).ratio(), 0.99) for name in names)

    def _with_values(self, wanted: Iterable[tuple[Property, Sequence[Value]]]) -> dict[int, float]:
        """Heads that have at least one of these values, with the share of properties for which they do."""
        counts: dict[int, int] = {}
        number = 0
        for of, values in wanted:
            number += 1
            tails = {tail for value in values for tail in self._entities(value)}
            for head in {head for tail in tails for head in of.heads(tail)}:
                counts[head] = counts.get(head, 0) + 1
        best = sorted(counts, key=lambda head: (-counts[head], head))[:COMPARED]
        return {head: counts[head] / number for head in best}

    def _entities(self, value: Value) -> list[int]:
        """The entities that a value names."""
        text = value.id if isinstance(value, EntityValue) else str(value)
        number = self.graph.entities.find(text)
        if number is not None or isinstance(value, EntityValue):
            return [] if number is None else [number]
        likeness = self._alike(text)
        return [entity for entity, similarity in likeness.items() if similarity == 1.0]

    def _has_value(self, of: Property, entity: int, values: Sequence[Value]) -> bool:
        """Whether one of these values is a known tail of an entity."""
        for tail in of.tails(entity):
            names = {fold(self.graph.name(tail)), fold(self.graph.entities[tail])}
            for value in values:
                if isinstance(value, EntityValue):
                    if value.id == self.graph.entities[tail]:
                        return True
                elif fold(str(value).strip()) in names:
                    return True
        return False

    def suggest_entities(self, prefix: str, cursor: int, limit: int) -> list[dict[str, Any]]:
        rows = []
        for entity in self.names.complete(prefix, cursor + limit)[cursor:]:
            number = self.graph.entities.id(entity.id)
            notable = [{"id": kind, "name": kind} for kind in self.names.types_of(number)]
            rows.append({**vars(entity), "description": self.names.hint(number), "notable": notable})
        return rows

    def suggest_types(self, prefix: str, cursor: int, limit: int) -> list[dict[str, Any]]:
        found = self.names.complete_types(prefix, cursor + limit)[cursor:]
        return [{"id": name, "name": name, "description": f"{count:,} entities"} for name, count in found]

    def suggest_properties(self, prefix: str, cursor: int, limit: int) -> list[dict[str, Any]]:
        typed = fold(prefix.strip())
        found = []
        for of in self.properties().values():
            name, id_ = fold(of.name), fold(of.id)
            if typed in name or typed in id_:
                found.append((not (name.startswith(typed) or id_.startswith(typed)), of))
        found.sort(key=lambda row: row[0])
        return [of.to_dict() for _, of in found[cursor : cursor + limit]]

    def propose(self, kind: str, limit: int) -> list[dict[str, str]]:
        """Properties of entities of a type: those described by references, then the others, most frequent first."""
        graph, properties = self.graph, self.properties()
        heads = self.names.members(kind) if self.names.has_type(kind) else np.arange(len(graph.entities))
        at, _ = graph.edges_of(heads)
        counts = np.bincount(graph.relation_ids[at], minlength=2 * len(graph.relations))[: len(graph.relations)]
        described = [of.to_dict() for of in properties.values() if of.relation is None]
        own = (graph.relations[int(r)] for r in np.argsort(-counts, kind="stable") if counts[r])
        return [*described, *(properties[r].to_dict() for r in own if properties[r].relation is not None)][:limit]

    def preview(self, entity: int) -> str:
        """A page about an entity: its types and some of its edges."""
        graph, rows = self.graph, []
        at, _ = graph.edges_of(np.array([entity]))
        for edge in at[:PREVIEW_EDGES].tolist():
            inverse, forward = divmod(int(graph.relation_ids[edge]), len(graph.relations))
            verb, other = graph.relation_name(forward), graph.name(int(graph.tail_ids[edge]))
            rows.append(f"<li>{html.escape(f'← {verb} — {other}' if inverse else f'{verb} → {other}')}</li>")
        more = f"<p>and {len(at) - PREVIEW_EDGES:,} more</p>" if len(at) > PREVIEW_EDGES else ""
        kinds = ", ".join(self.names.types_of(entity))
        return (
            f"<h1>{html.escape(graph.name(entity))}</h1><p><code>{html.escape(graph.entities[entity])}</code></p>"
            f"<p>{html.escape(kinds)}</p><ul>{''.join(rows)}</ul>{more}"
        )


SETTINGS: list[dict[str, Any]] = [
    {
        "name": "tails",
        "label": "Tails",
        "type": "select",
        "default": "usual",
        "help_text": "Known tails come first.",
        "choices": [
            {"value": "usual", "name": "known, and predicted if references describe the relation"},
            {"value": "known", "name": "known"},
            {"value": "predicted", "name": "predicted"},
            {"value": "both", "name": "known and predicted"},
        ],
    },
    {
        "name": "limit",
        "label": "Maximum number of predicted tails",
        "type": "number",
        "default": 1,
        "help_text": "Predictions for each entity, best first.",
    },
    {
        "name": "least",
        "label": "Minimum probability",
        "type": "number",
        "default": 0,
        "help_text": "From 0 to 1. Predicted tails with a lower probability, or without one, are left out.",
    },
]
