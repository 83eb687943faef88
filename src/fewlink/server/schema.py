"""Requests, answers and limits of the API: the OpenAPI schema, which also validates every request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from fewlink.linker.explanation import EdgesAtTail, Neighbour, Path, Reference
from fewlink.linker.names import Entity

MAX_REFERENCES = 200
MAX_REJECTED = 1_000
MAX_HEADS = 10_000
MAX_CANDIDATES = 20_000
MAX_K = 1_000
NAME_LENGTH = 500  # characters of one name


@dataclass(frozen=True)
class ServerSettings:
    """Limits of one server. Those of the schema hold for every server; `heads` and `k` may be lower, not higher."""

    heads: int = 5_000  # of one request, listed or of a type
    k: int = 100
    rows: int = 10_000  # heads · k
    explained: int = 100  # rows of one request with reasons
    body: int = 1 << 20  # bytes
    waiting: int = 256  # requests in the queue; further ones are rejected
    seconds: float = 60.0  # estimated, of one request; longer ones are rejected
    queued: float = 120.0  # estimated, of all requests; further ones are rejected
    deadline: float = 150.0  # seconds after which a request is given up
    turn: float = 0.25  # seconds of a request that are answered before others have their turn
    gather: float = 0.004  # seconds that a request waits for similar ones
    together: int = 64  # requests of one batch; 1 disables batching
    token: str | None = None
    hosts: frozenset[str] | None = None  # names that the server may be called by; None: any
    references: tuple[tuple[str, str, str], ...] = ()  # (head, relation, tail) of relations that the graph lacks


HEADS = 50  # that /next looks through unless a request names more
Who = Annotated[str, StringConstraints(max_length=NAME_LENGTH)]
WHO = Field("", description="The curator, as a name.")
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH)]
Heads = Annotated[list[Name], Field(min_length=1, max_length=MAX_HEADS, fail_fast=True)]
Tails = Annotated[list[Name], Field(min_length=1, max_length=MAX_CANDIDATES, fail_fast=True)]
Events = Annotated[list[int], Field(min_length=1, max_length=1_000, fail_fast=True)]
Pair = Annotated[list[Name], Field(min_length=2, max_length=2, description="A head and a tail.")]


def requires(name: str, kind: str) -> dict[str, Any]:
    """The schema of an object in which this field is present and not null."""
    return {"required": [name], "properties": {name: {"type": kind}}}


CONSTRAINTS: Any = Field([], description="What every pair keeps to, such as `functional`; /about lists them.")
SOME_REFERENCES: dict[str, Any] = {"anyOf": [requires("references", "array"), requires("relation", "string")]}
SOME_HEADS: dict[str, Any] = {"oneOf": [requires("heads", "array"), requires("heads_of_type", "string")]}


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, data: Any) -> Any:  # one is enough: the event loop waits for each error
        unknown = [name for name in data if name not in cls.model_fields] if isinstance(data, dict) else []
        return {name: data[name] for name in [*cls.model_fields, *unknown[:1]] if name in data} if unknown else data


class QueryRequest(Body):
    model_config = ConfigDict(json_schema_extra={"allOf": [SOME_REFERENCES]})

    references: Annotated[list[Pair], Field(min_length=1, max_length=MAX_REFERENCES, fail_fast=True)] | None = Field(
        None, description="Pairs that the relation holds for; by default the first pairs of `relation`."
    )
    relation: Name | None = Field(None, description="A relation of the benchmark; its known pairs do not compete.")
    rejected: Annotated[list[Pair], Field(max_length=MAX_REJECTED, fail_fast=True)] = Field(
        [], description="Wrong pairs: what resembles them ranks lower, and they are not ranked."
    )


class PredictRequest(QueryRequest):
    """Give heads for the best tails of each, or a type for the best pairs of all its heads."""

    model_config = ConfigDict(json_schema_extra={"allOf": [SOME_REFERENCES, SOME_HEADS]})

    heads: Heads | None = Field(None, description="Entities to find tails for.")
    heads_of_type: Name | None = Field(
        None,
        description="All heads of this type; `open`: entities like the references' heads, most similar first; "
        "`all`: every entity, in the same order.",
    )
    first: Annotated[int, Field(ge=0)] = Field(0, description="Of the heads of `heads_of_type`, the first to rank.")
    count: Annotated[int, Field(ge=1, le=MAX_HEADS)] | None = Field(
        None, description="How many of the heads of `heads_of_type` to rank; null: all."
    )
    k: Annotated[int, Field(ge=1, le=MAX_K)] = Field(
        10, description="Tails of each head, or pairs in all if `heads_of_type` is given."
    )
    candidates: Name | Tails | None = Field(
        None,
        description="Tails to rank: a type, a list, or `all`; null or `open`: tails like those of the references.",
    )
    exclude_known: bool = Field(True, description="Leave out references and known pairs of `relation`.")
    explain: bool = Field(False, description="Give the reasons of each prediction.")
    constraints: Annotated[list[Name], Field(max_length=10)] = CONSTRAINTS
    project: int | None = Field(
        None, description="The number of a project: its decisions adjust the probabilities. Nothing else is read of it."
    )


class ExplainRequest(QueryRequest):
    head: Name
    tail: Name


class NewProject(Body):
    """A relation to complete, with pairs that it holds for."""

    name: Name
    description: Annotated[str, StringConstraints(max_length=4_000)] = ""
    references: Annotated[list[Pair], Field(max_length=MAX_REFERENCES, fail_fast=True)] = []
    who: Who = WHO


class OneDecision(Body):
    head: Name
    tail: Name
    decision: Literal["accepted", "rejected", "reference"]
    probability: Annotated[float, Field(ge=0, le=1, strict=False)] | None = Field(
        None, description="The `base_probability` of the prediction: decisions adjust later probabilities by it."
    )


class NewDecisions(Body):
    """Decisions that are stored all or none."""

    decisions: Annotated[list[OneDecision], Field(min_length=1, max_length=1_000, fail_fast=True)]
    who: Who = WHO


class UndoRequest(Body):
    event: int | None = Field(None, description="The event to undo; null: the last decision of `who`.")
    events: Events | None = Field(None, description="Several events to undo at once, all or none.")
    who: Who = WHO


class ImportRequest(Body):
    format: Literal["tsv", "nt", "json"]
    text: str
    who: Who = WHO


class NextRequest(Body):
    """Which pairs to decide next, over a pool of heads."""

    heads: Heads | None = Field(None, description="The pool; null: heads of `heads_of_type`.")
    heads_of_type: Name = Field("open", description="A type; `open`: entities like the references' heads; `all`.")
    first: Annotated[int, Field(ge=0)] = 0
    count: Annotated[int, Field(ge=1, le=MAX_HEADS)] = HEADS
    candidates: Name | None = Field(None, description="Tails: a type or `all`; null: like those of the references.")
    relation: Name | None = Field(None, description="A relation of the graph; its known pairs are not suggested.")
    mode: Literal["best", "teach"] = Field("best", description="`teach`: pairs whose answers tell most about others.")
    constraints: Annotated[list[Name], Field(max_length=10)] = CONSTRAINTS
    k: Annotated[int, Field(ge=1, le=100)] = 10


class ExplainAnswer(BaseModel):
    """What contributed to the score of one pair."""

    head: Entity
    tail: Entity
    score: float
    shares: dict[str, float]
    paths: list[Path]
    references: list[Reference]
    neighbours: list[Neighbour]
    shared: bool
    measured: bool
    together: float | None = Field(description="What the score loses without all paths.")
    distance: int | None = Field(
        description="Hops from head to tail, if no path from the head is named; 0: not joined."
    )
    at_tail: list[EdgesAtTail]
    sentences: list[str]


BASE: Any = Field(
    description="The model's own, before a project's decisions adjust it: send it as the `probability` of a decision. "
    "null if nothing was calibrated."
)


class AdjustmentFacts(BaseModel):
    """What adjusted the probabilities."""

    decisions: int = Field(description="Of the project, those with a probability.")
    sentence: str


class Row(BaseModel):
    head: str
    head_name: str
    rank: float
    tail: str
    tail_name: str
    score: float
    probability: float | None = Field(description="null where no percentage is shown: `trust` says why.")
    base_probability: float | None = BASE
    known: bool
    in_set: bool | None = Field(None, description="Whether it is in the answer set of its head, see `sets`.")
    reasons: ExplainAnswer | None


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
    probability: float | None = Field(description="The model's when it was decided, before decisions adjusted it.")
    known: bool = Field(description="Whether the graph has both entities: questions read only such pairs.")


class DecisionFacts(EventFacts):
    conflict: EventFacts | None = Field(description="What another curator had decided otherwise.")


class DecisionList(BaseModel):
    project: ProjectFacts
    decisions: list[DecisionFacts]
    notes: list[str] = Field(description="Which of these pairs name entities that the graph lacks.")


class EventList(BaseModel):
    project: ProjectFacts
    log: list[EventFacts]


class Undone(BaseModel):
    project: ProjectFacts
    undone: EventFacts
    count: int = Field(description="How many events were undone.")


class Suggestion(BaseModel):
    head: str
    head_name: str
    tail: str
    tail_name: str
    score: float = Field(description="Corrected by the decisions.")
    rank: float = Field(description="The tail's rank for its head before the correction.")
    probability: float | None = Field(description="null where no percentage is shown.")
    base_probability: float | None = BASE


class TrustFacts(BaseModel):
    """How far the answers can be trusted, in words; null if nothing was calibrated."""

    low: bool
    shown: bool = Field(description="Whether predictions have probabilities.")
    sentence: str
    found: int = Field(description="References that were found in the first ten when they were held out.")
    tested: int = Field(description="References that were held out.")


class AnswerSetFacts(BaseModel):
    """How many of the first answers to one head it takes to have a right one among them, and how surely."""

    asked: str
    asked_name: str
    size: int
    level: float
    unlikely: bool = Field(description="Whether probably none of the candidates is right.")
    sentence: str


class PredictAnswer(BaseModel):
    heads: int = Field(description="How many heads were ranked.")
    heads_in_all: int = Field(description="How many heads the request names, or has of its type.")
    predictions: list[Row]
    notes: list[str]
    trust: TrustFacts | None
    sets: list[AnswerSetFacts] = []
    calibration: AdjustmentFacts | None = Field(None, description="null if no decisions adjusted the probabilities.")
    tail_types: dict[str, list[str]] = Field(description="The types of each predicted tail, by its id.")


class Health(BaseModel):
    status: Literal["ok"]
    version: str


class EntityOffer(BaseModel):
    id: str
    name: str
    hint: str = Field(description="What tells it from others of the same name: its type and a neighbour.")


class EdgeFacts(BaseModel):
    relation: str
    inverse: bool = Field(description="Whether the edge leads to this entity: the other end is its head.")
    other: Entity


class EntityAnswer(BaseModel):
    """An entity and some of its edges."""

    id: str
    name: str
    types: list[str]
    edges_in_all: int
    matching: int = Field(description="Edges with the text of `q` in the name of the relation or of the other end.")
    edges: list[EdgeFacts]


class TypeOffer(BaseModel):
    name: str
    members: int


class GraphFacts(BaseModel):
    name: str
    entities: int
    relations: int
    triples: int
    types: int


class CalibrationFacts(BaseModel):
    error: float = Field(description="Of first answers on relations that were left out.")
    base: float
    count: int
    relations: int
    rough: bool = Field(description="Whether the error is so large that no probabilities are shown.")


class LimitFacts(BaseModel):
    references: int
    heads: int
    k: int
    rows: int
    explained: int
    seconds: float = Field(description="Estimated, of one request.")


class About(BaseModel):
    version: str
    model: str
    shots: int
    graph: GraphFacts
    relations: dict[str, list[str]] = Field(
        description="The names of the graph's relations, and of the task relations of each split."
    )
    constraints: dict[str, str] = Field(description="Constraints that a request can name, in words.")
    evidence: dict[str, str] = Field(description="Descriptions of the kinds of evidence in reasons.")
    calibration: CalibrationFacts | None
    limits: LimitFacts


class Example(BaseModel):
    """A relation of the benchmark with its first pairs as references, and query heads."""

    relation: str
    references: list[Annotated[list[EntityOffer], Field(min_length=2, max_length=2)]]
    heads: list[EntityOffer]


class ErrorFacts(BaseModel):
    code: str
    message: str
    field: str | None = None
    suggestions: list[EntityOffer] | None = None


class ErrorAnswer(BaseModel):
    error: ErrorFacts
