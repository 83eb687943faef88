"""Matches names in a table with entities of a graph, as the W3C Reconciliation Service API 0.2 defines it.

https://www.w3.org/community/reports/reconciliation/CG-FINAL-specs-0.2-20230410/
"""

from __future__ import annotations

import difflib
import functools
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote

import numpy as np
from pydantic import BaseModel, Field

import fewlink
from fewlink.graph.name_index import fold, spaced
from fewlink.linker import Linker
from fewlink.linker.query import Relation, find_relation

MAX_BATCH = 100  # queries per request
LIMIT = 10  # candidates for a query without a limit
MAX_LIMIT = 100  # candidates for a query: more than anyone reads
MAX_COMPARED = 200  # entities to compare with a query
OTHER_TYPE_FACTOR = 0.5  # for the score of an entity of another type
PROPERTY_SHARE = 0.3  # of the score, if a query has properties
PROBABILITY = " (probability)"  # suffix of the property that holds the probabilities of predicted tails
PREVIEW_EDGES = 12  # as many as fit into the preview
PREVIEW_WIDTH = 420  # pixels
PREVIEW_HEIGHT = 300  # pixels
MAX_QUERY_LENGTH = 500  # further characters are not compared
MAX_PROPERTIES = 20  # of a query
MAX_VALUES = 20  # of a property
Text = Annotated[str, Field(max_length=500)]
Cell = Annotated[str, Field(max_length=100_000)]  # a cell of a table may contain anything
Described = Mapping[str, Sequence[tuple[str, str]]]  # references (head, tail) by the name of a relation


class EntityValue(BaseModel):
    id: Text
    name: Text = ""


Value = EntityValue | Cell | bool | int | float


class PropertyValue(BaseModel):
    pid: Text
    v: Value | Annotated[list[Value], Field(max_length=MAX_VALUES, fail_fast=True)]

    def values(self) -> list[Value]:
        return self.v if isinstance(self.v, list) else [self.v]


class MatchQuery(BaseModel):
    """A reconciliation query. Fields of other versions of the protocol are ignored."""

    query: Cell = ""
    type: Text | Annotated[list[Text], Field(max_length=100, fail_fast=True)] = ""
    limit: Annotated[int, Field(ge=1)] = LIMIT
    properties: Annotated[list[PropertyValue], Field(max_length=MAX_PROPERTIES, fail_fast=True)] = []
    type_strict: Literal["any", "should", "all"] | None = None

    def types(self) -> list[str]:
        types = [self.type] if isinstance(self.type, str) else self.type
        return [name for name in types if name]


@dataclass(frozen=True)
class Property:
    """A relation as a property: a relation of the graph or benchmark, or one described by references."""

    id: str
    name: str
    relation: Relation | None = None
    references: tuple[tuple[int, int], ...] = ()
    probability: bool = False  # the values are the probabilities of the tails

    def tails(self, head: int) -> list[int]:
        """The known tails of a head."""
        tails = set(self._reference_tails.get(head, ()))
        if self.relation is not None:
            tails.update(self.relation.tails(head).tolist())
        return sorted(tails)

    @functools.cached_property
    def _reference_tails(self) -> dict[int, list[int]]:
        """The tails of each head in the references."""
        tails: dict[int, list[int]] = {}
        for head, tail in self.references:
            tails.setdefault(head, []).append(tail)
        return tails

    def to_dict(self) -> dict[str, str]:
        facts = {"id": self.id, "name": self.name}
        if self.references:
            facts["description"] = "predicted from references"
        return facts


class Reconciler:
    """Answers the queries of the protocol with the graph of a linker. Entities, types and relations keep their ids.

    `described` returns relations that the graph lacks, as references by name of the relation. Each request calls it,
    because they may change. References with unknown entities are ignored.
    """

    def __init__(self, linker: Linker, described: Callable[[], Described] = dict) -> None:
        self.linker = linker
        self.graph = linker.graph
        self.names = linker.names
        self.described = described

    def manifest(
        self, address: str, token: str | None = None, needs_token: bool = False, authorized: bool = True
    ) -> dict[str, Any]:
        """The manifest of the service. `token` becomes part of its URLs, for clients that send no header.

        Clients that are not authorized learn how to send a token, and nothing about the graph.
        """
        token = None if token is None else quote(token, safe="")
        space = f"urn:fewlink:{self.graph.fingerprint[:16] if authorized else 'graph'}"
        with_token = f"?token={token}" if token else ""
        and_token = f"&token={token}" if token else ""
        preview = f"{address}/preview?id={{{{id}}}}{and_token}"
        types = self.names.complete_types("", LIMIT) if authorized else []
        manifest = {
            "versions": ["0.2"],
            "name": f"fewlink: {self.linker.benchmark.name}" if authorized else "fewlink",
            "identifierSpace": f"{space}:entity:",
            "schemaSpace": f"{space}:type:",
            "serviceVersion": fewlink.__version__,
            "defaultTypes": [{"id": name, "name": name} for name, _ in types],
            "view": {"url": preview},
            "preview": {"url": preview, "width": PREVIEW_WIDTH, "height": PREVIEW_HEIGHT},
            "suggest": {
                kind: {"service_url": address, "service_path": f"/suggest/{kind}{with_token}"}
                for kind in ("entity", "type", "property")
            },
            "extend": {
                "propose_properties": {"service_url": address, "service_path": f"/properties{with_token}"},
                "property_settings": SETTINGS,
            },
            "batchSize": MAX_BATCH,
        }
        if needs_token:
            manifest["authentication"] = {"type": "apiKey", "name": "token", "in": "query"}
        return manifest

    @functools.cached_property
    def _graph_properties(self) -> dict[str, Property]:
        """The relations of the graph and the tasks of its benchmark, by id."""
        tasks = [task.name for tasks in self.linker.benchmark.tasks.values() for task in tasks]
        properties = {}
        for name in (*self.graph.relations, *tasks):
            relation = find_relation(self.linker.benchmark, name)
            readable = relation.name if relation.task else self.graph.relation_name(relation.number)
            properties[relation.name] = Property(relation.name, readable, relation)
        return properties

    def properties(self) -> dict[str, Property]:
        """All properties by id. Relations described by references come first and replace others of the same name."""
        described = {}
        for name, pairs in self.described().items():
            numbers = [(self.graph.entities.find(head), self.graph.entities.find(tail)) for head, tail in pairs]
            known = tuple((head, tail) for head, tail in numbers if head is not None and tail is not None)
            if known:
                in_graph = self._graph_properties.get(name)  # curators may complete a relation of the graph
                relation = None if in_graph is None else in_graph.relation
                described[name] = Property(name, name, relation, known)
                described[name + PROBABILITY] = Property(name + PROBABILITY, name + PROBABILITY, relation, known, True)
        others = {id_: of for id_, of in self._graph_properties.items() if id_ not in described}
        return {**described, **others}

    def match(self, query: MatchQuery, properties: Mapping[str, Property] | None = None) -> list[dict[str, Any]]:
        """Candidates for a query, best first. `properties` are those of `self.properties()`, read once for a batch."""
        properties = self.properties() if properties is None else properties
        limit = min(query.limit, MAX_LIMIT)
        wanted = [
            (properties[one.pid], {entity for value in one.values() for entity in self._entities(value)})
            for one in query.properties
            if one.pid in properties
        ]
        similarities = self._similar(query.query)
        wanted_types = set(query.types())
        rows = []
        for entity, similarity in similarities.items():
            types = self.names.types_of(entity)
            if not wanted_types:
                of_type = True
            elif query.type_strict == "all":
                of_type = wanted_types <= set(types)
            else:
                of_type = bool(wanted_types & set(types))
            if not of_type and query.type_strict != "should":
                continue
            share = float(np.mean([not tails.isdisjoint(of.tails(entity)) for of, tails in wanted])) if wanted else 1.0
            score = (1 - PROPERTY_SHARE * (1 - share)) * similarity * (1.0 if of_type else OTHER_TYPE_FACTOR)
            features: dict[str, Any] = {
                "name_similarity": round(similarity, 4),
                "edges": int(self.graph.degrees[entity]),
            }
            if wanted_types:
                features["type_match"] = of_type
            if wanted:
                features["property_match"] = round(share, 4)
            certain = similarity == 1.0 and of_type and share == 1.0
            rows.append((-score, -self.graph.degrees[entity], entity, types, features, certain))
        rows.sort(key=lambda row: row[:3])
        alone = sum(row[-1] for row in rows) == 1
        return [
            {
                "id": self.graph.entities[entity],
                "name": self.graph.name(entity),
                "description": self.names.hint(entity),
                "score": round(-100 * float(score), 2),
                "match": certain and alone,
                "type": [{"id": name, "name": name} for name in types],
                "features": [{"id": name, "value": value} for name, value in features.items()],
            }
            for score, _, entity, types, features, certain in rows[:limit]
        ]

    def _similar(self, text: str) -> dict[int, float]:
        """Entities whose name or id resembles a text, with their similarity from 0 to 1."""
        text = text[:MAX_QUERY_LENGTH]
        typed = fold(text.replace("\n", " ").strip())
        numbers = [self.graph.entities.find(text.strip())]
        numbers += [self.graph.entities.find(entity.id) for entity in self.names.complete(text, MAX_COMPARED)]
        entities = dict.fromkeys(number for number in numbers if number is not None)
        similarities = {entity: self._similarity(typed, entity) for entity in entities}
        if max(similarities.values(), default=0.0) < 1.0:  # the text may be misspelt
            similarities.update((entity, self._similarity(typed, entity)) for entity in self.names.nearest(text, LIMIT))
        return similarities

    def _similarity(self, typed: str, entity: int) -> float:
        name = self.graph.name(entity)[:MAX_QUERY_LENGTH]
        id_ = self.graph.entities[entity][:MAX_QUERY_LENGTH]
        names = (spaced(fold(name)), fold(id_))
        if typed in names or spaced(typed) in names:
            return 1.0
        return max(min(difflib.SequenceMatcher(None, name, typed).ratio(), 0.99) for name in names)

    def _entities(self, value: Value) -> list[int]:
        """The entities that a value names: by id, or by name or id, ignoring case."""
        if isinstance(value, EntityValue):
            number = self.graph.entities.find(value.id)
            return [] if number is None else [number]
        text = str(value).strip()
        return self.names.with_either(text) if 0 < len(text) <= MAX_QUERY_LENGTH else []

    def suggest_entities(self, prefix: str, limit: int) -> list[dict[str, Any]]:
        rows = []
        for entity in self.names.complete(prefix, limit):
            number = self.graph.entities.id(entity.id)
            notable = [{"id": kind, "name": kind} for kind in self.names.types_of(number)]
            rows.append({**vars(entity), "description": self.names.hint(number), "notable": notable})
        return rows

    def suggest_types(self, prefix: str, limit: int) -> list[dict[str, Any]]:
        found = self.names.complete_types(prefix, limit)
        return [{"id": name, "name": name, "description": f"{count:,} entities"} for name, count in found]

    def suggest_properties(self, prefix: str, limit: int) -> list[dict[str, Any]]:
        typed = fold(prefix.strip())
        starting = []
        containing = []
        for of in self.properties().values():
            name = fold(of.name)
            id_ = fold(of.id)
            if name.startswith(typed) or id_.startswith(typed):
                starting.append(of.to_dict())
            elif typed in name or typed in id_:
                containing.append(of.to_dict())
        return [*starting, *containing][:limit]

    def propose(self, type_name: str, limit: int) -> list[dict[str, str]]:
        """Properties of entities of a type: relations described by references, then others, most frequent first."""
        graph = self.graph
        properties = self.properties()
        has_type = self.names.has_type(type_name)
        heads = self.names.members(type_name) if has_type else np.arange(len(graph.entities))
        at, _ = graph.edges_of(heads)
        counts = np.bincount(graph.relation_ids[at], minlength=2 * len(graph.relations))[: len(graph.relations)]
        described = [of.to_dict() for of in properties.values() if of.relation is None]
        frequent = [graph.relations[int(number)] for number in np.argsort(-counts, kind="stable") if counts[number]]
        others = [properties[name].to_dict() for name in frequent if properties[name].relation is not None]
        return [*described, *others][:limit]

    def preview(self, entity: int) -> str:
        """A page about an entity: its types and some of its edges."""
        graph = self.graph
        rows = []
        at, _ = graph.edges_of(np.array([entity]))
        for edge in at[:PREVIEW_EDGES].tolist():
            inverse, forward = divmod(int(graph.relation_ids[edge]), len(graph.relations))
            verb = graph.relation_name(forward)
            other = graph.name(int(graph.tail_ids[edge]))
            edge_text = f"← {verb} — {other}" if inverse else f"{verb} → {other}"
            rows.append(f"<li>{html.escape(edge_text)}</li>")
        more = f"<p>and {len(at) - PREVIEW_EDGES:,} more</p>" if len(at) > PREVIEW_EDGES else ""
        types = ", ".join(self.names.types_of(entity))
        return (
            f"<h1>{html.escape(graph.name(entity))}</h1><p><code>{html.escape(graph.entities[entity])}</code></p>"
            f"<p>{html.escape(types)}</p><ul>{''.join(rows)}</ul>{more}"
        )


SETTINGS: list[dict[str, Any]] = [
    {
        "name": "limit",
        "label": "Maximum number of predicted tails",
        "type": "number",
        "default": 1,
        "help_text": "Predictions for each entity, best first, after its known tails; 0: known tails only.",
    },
    {
        "name": "least",
        "label": "Minimum probability",
        "type": "number",
        "default": 0,
        "help_text": "From 0 to 1. Predicted tails with a lower probability, or without one, are left out.",
    },
]
