"""Requests, answers and limits of the API. These models are its OpenAPI schema and validate every request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from fewlink.linker.names import Entity

MAX_REJECTED = 1_000  # pairs in one request
MAX_HEADS = 5_000  # in one request; further ones are asked about with `first` and `count`
MAX_CANDIDATES = 20_000  # in one request
MAX_K = 100  # answers of each head
MAX_NAME_LENGTH = 500  # characters
MAX_RELATIONS = 100  # of an entity, in one answer
MAX_NEIGHBOURS = 100  # of an entity in one relation, in one answer


@dataclass(frozen=True)
class ServerSettings:
    """Limits of one server, beside those of the schema.

    rows           maximum of heads times k
    explained      maximum number of predictions with reasons in one request
    body           maximum size of a request body in bytes
    seconds        until the server gives up on a request
    waiting        maximum number of small questions that are computed or wait, and
    waiting_large  of large ones, which wait for each other longer
    kept           maximum size of the answers to /predict that are kept for clients who ask the same, in bytes
    token          the token that clients must send; None: no token
    hosts          names that the Host header may have; None: any
    """

    rows: int = 10_000
    explained: int = 100
    body: int = 1 << 20
    seconds: float = 150.0
    waiting: int = 256
    waiting_large: int = 32
    kept: int = 32 << 20
    token: str | None = None
    hosts: frozenset[str] | None = None


DEFAULT_POOL = 50  # heads that /next considers
Who = Annotated[str, StringConstraints(max_length=MAX_NAME_LENGTH)]
WHO = Field(default="", description="The name of the curator.")
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
Heads = Annotated[list[Name], Field(min_length=1, max_length=MAX_HEADS, fail_fast=True)]
Tails = Annotated[list[Name], Field(min_length=1, max_length=MAX_CANDIDATES, fail_fast=True)]
Events = Annotated[list[int], Field(min_length=1, max_length=1_000, fail_fast=True)]
Pair = Annotated[list[Name], Field(min_length=2, max_length=2, description="A head and a tail.")]


CONSTRAINTS: Any = Field(
    default=[], description="Constraints on the pairs of the relation, such as `functional`; /about lists them."
)


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _keep_one_unknown_field(cls, data: Any) -> Any:
        """Drop all unknown fields but one, because building an error for each would take long."""
        if not isinstance(data, dict):
            return data
        unknown = [name for name in data if name not in cls.model_fields]
        dropped = set(unknown[1:])
        return {name: value for name, value in data.items() if name not in dropped}


class QueryRequest(Body):
    references: Annotated[list[Pair], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None, description="Pairs that the relation holds for, beside the known pairs of `relation`."
    )
    relation: Name | None = Field(
        default=None,
        description="A relation of the graph or benchmark: its known pairs are references and do not compete.",
    )
    rejected: Annotated[list[Pair], Field(max_length=MAX_REJECTED, fail_fast=True)] = Field(
        default=[], description="Wrong pairs. They are not ranked, and pairs that resemble them rank lower."
    )


class PredictRequest(QueryRequest):
    """Give `heads` to get the best tails of each, `tails` to get the best heads of each, or `heads_of_type` to get the
    best pairs of all heads of a type; and `references`, a `relation` or both.
    """

    heads: Heads | None = Field(default=None, description="Entities to find tails for.")
    tails: Heads | None = Field(default=None, description="Entities to find heads for.")
    heads_of_type: Name | None = Field(
        default=None,
        description="All heads of this type; `open`: entities like the references' heads, as `fewlink complete` takes "
        "them; `all`: every entity, these first.",
    )
    per_head: Annotated[int, Field(ge=1, le=MAX_K)] | None = Field(
        default=None,
        description="With `heads_of_type`: return this number of tails for each head, in place of the `k` best pairs.",
    )
    first: Annotated[int, Field(ge=0)] = Field(
        default=0, description="The position of the first head of `heads_of_type` to rank."
    )
    count: Annotated[int, Field(ge=1, le=MAX_HEADS)] | None = Field(
        default=None, description="Number of heads of `heads_of_type` to rank; null: all."
    )
    k: Annotated[int, Field(ge=1, le=MAX_K)] = Field(
        default=10,
        description="Number of tails per head, or heads per tail; with `heads_of_type`, number of pairs in all.",
    )
    candidates: Name | Tails | None = Field(
        default=None,
        description="Tails to rank, or heads with `tails`: a type, a list, or `all`; null or `open`: entities like "
        "those of the references.",
    )
    exclude_known: bool = Field(default=True, description="Leave out references and known pairs of `relation`.")
    explain: bool = Field(default=False, description="Include the reasons for each prediction.")
    constraints: Annotated[list[Name], Field(max_length=10)] = CONSTRAINTS
    project: int | None = Field(
        default=None,
        description="The number of a project whose decisions adjust the probabilities. It has no other effect.",
    )


class ExplainRequest(QueryRequest):
    head: Name
    tail: Name
    inverse: bool = Field(default=False, description="Explain the head as an answer for the tail.")


class NewProject(Body):
    """A relation to complete, with pairs that it holds for."""

    name: Name
    description: Annotated[str, StringConstraints(max_length=4_000)] = ""
    references: Annotated[list[Pair], Field(fail_fast=True)] = []
    who: Who = WHO


class OneDecision(Body):
    head: Name
    tail: Name
    decision: Literal["accepted", "rejected", "reference"]
    probability: Annotated[float, Field(ge=0, le=1, strict=False)] | None = Field(
        default=None, description="The `base_probability` of the prediction. It adjusts later probabilities."
    )


class NewDecisions(Body):
    """Decisions to store, either all or none."""

    decisions: Annotated[list[OneDecision], Field(min_length=1, max_length=1_000, fail_fast=True)]
    who: Who = WHO


class UndoRequest(Body):
    event: int | None = Field(default=None, description="The event to undo; null: the last decision of `who`.")
    events: Events | None = Field(default=None, description="Several events to undo together: either all or none.")
    who: Who = WHO


class ImportRequest(Body):
    format: Literal["csv", "nt", "json"]
    text: str
    who: Who = WHO


class NextRequest(Body):
    """A pool of heads to choose the next pairs from."""

    heads: Heads | None = Field(default=None, description="The pool; null: the heads of `heads_of_type`.")
    heads_of_type: Name = Field(
        default="open", description="A type; `open`: entities like the references' heads; `all`."
    )
    first: Annotated[int, Field(ge=0)] = 0
    count: Annotated[int, Field(ge=1, le=MAX_HEADS)] = DEFAULT_POOL
    candidates: Name | None = Field(
        default=None, description="Tails: a type or `all`; null: like those of the references."
    )
    relation: Name | None = Field(
        default=None,
        description="A relation of the graph: its known pairs are references too, and are not suggested.",
    )
    mode: Literal["best", "teach"] = Field(
        default="best", description="`best`: the most probable pairs; `teach`: those that the model learns most from."
    )
    constraints: Annotated[list[Name], Field(max_length=10)] = CONSTRAINTS
    k: Annotated[int, Field(ge=1, le=100)] = 10


class ExplainAnswer(BaseModel):
    """The evidence for the score of one pair."""

    head: Entity
    tail: Entity
    score: float
    parts: dict[str, float] = Field(
        description="The score as a sum, to two decimals: what it loses without each kind of evidence, and the rest."
    )
    paths: list[dict[str, Any]] = Field(description="The best first: `text`, `steps`, `entities`, `weight`, `alike`.")
    compared: int = Field(description="The number of references that `alike` of a path counts.")
    references: list[dict[str, Any]]
    neighbours: list[dict[str, Any]]
    notes: list[str] = Field(description="The evidence that is no path.")
    lines: list[str] = Field(description="The reasons as text, the best path first.")


class AdjustmentFacts(BaseModel):
    """The decisions that adjusted the probabilities."""

    decisions: int = Field(description="Decisions of the project that have a probability.")
    sentence: str


SHARED: Any = Field(description="Whether another entity of the graph has this name: show the id, too.")


class Row(BaseModel):
    head: str
    head_name: str
    head_name_shared: bool = SHARED
    tail: str
    tail_name: str
    tail_name_shared: bool = SHARED
    rank: float
    score: float
    probability: float | None = Field(description="null: probabilities are not reliable enough; `trust` says why.")
    base_probability: float | None = Field(
        description="The probability before decisions of a project adjust it, to send as the `probability` of a "
        "decision. null: the model is not calibrated."
    )
    known: bool
    in_set: bool | None = Field(
        default=None, description="Whether the row belongs to the answer set of its head (`sets`)."
    )
    reasons: ExplainAnswer | None


class TrustFacts(BaseModel):
    """The reliability of the answers; null if the model is not calibrated."""

    low: bool
    shown: bool = Field(description="Whether predictions have probabilities.")
    sentence: str
    found: int = Field(
        description="The number of held-out references among the first ten answers, or first of at most ten candidates."
    )
    tested: int = Field(description="The number of references held out.")


class AnswerSetFacts(BaseModel):
    """The number of first answers for one head that contain a correct one with a probability of `level`."""

    asked: str
    asked_name: str
    size: int
    level: float
    unlikely: bool = Field(description="Whether the first answer is probably wrong.")
    sentence: str


class PredictAnswer(BaseModel):
    heads: int = Field(description="The number of heads, or of tails, that were asked about.")
    heads_in_all: int = Field(description="The number of heads that the request names, or that its type has.")
    predictions: list[Row]
    notes: list[str]
    trust: TrustFacts | None
    sets: list[AnswerSetFacts] = []
    calibration: AdjustmentFacts | None = Field(
        default=None, description="null: no decision adjusted the probabilities."
    )
    answered: list[str] = Field(
        description="The ids of the asked heads among `predictions` that have a known tail; with `tails`, of the tails "
        "that have a known head."
    )
    tail_types: dict[str, list[str]] = Field(
        description="The types of each predicted tail, by its id; with `tails`, of each predicted head."
    )


class EntityOffer(BaseModel):
    id: str
    name: str
    hint: str = Field(description="Distinguishes entities with the same name: the type and a neighbour.")


class ExamplePair(BaseModel):
    head: Entity
    tail: Entity


class RelationOverview(BaseModel):
    relation: str = Field(description="The id of the relation.")
    name: str
    split: str | None = Field(description="The split of a task relation, whose pairs are not in the graph; else null.")
    pairs: int
    heads: int
    example: ExamplePair
    of_kind: int = Field(description="The number of entities of the heads' kind, which `fewlink complete` asks about.")
    type: str | None = Field(description="The type that most heads have; null: the graph has no types.")


class RelationList(BaseModel):
    matching: int = Field(description="The number of relations with the text of `q` in their names.")
    relations: list[RelationOverview]


class NeighbourFacts(BaseModel):
    id: str
    name: str
    kind: str | None = Field(description="The first type of the entity; null: it has none.")


class RelationFacts(BaseModel):
    """A relation of an entity, in one direction, and some of its neighbours there."""

    relation: str
    relation_name: str
    words: str = Field(description="The name of the relation without the types of its ends.")
    inverse: bool = Field(description="Whether the neighbours are the heads of the edges.")
    count: int = Field(description="The number of neighbours in all.")
    neighbours: list[NeighbourFacts]


class EntityAnswer(NeighbourFacts):
    """An entity and its neighbours by relation."""

    types: list[str]
    edges_in_all: int
    matching: int = Field(description="The number of edges with the text of `q`.")
    relations_in_all: int = Field(description="The number of relations of these edges; each direction counts.")
    relations: list[RelationFacts]


class TypeOffer(BaseModel):
    name: str
    members: int


class Example(BaseModel):
    """A relation with references, and heads to find tails for."""

    relation: str
    in_graph: bool = Field(description="Whether the graph has the relation: its known pairs are then the references.")
    references: list[Annotated[list[EntityOffer], Field(min_length=2, max_length=2)]]
    heads: list[EntityOffer]


class About(BaseModel):
    version: str
    model: str
    shots: int
    graph: dict[str, Any] = Field(description="Its name, and its numbers of entities, relations, triples and types.")
    relations: dict[str, list[str]] = Field(
        description="The names of the graph's relations, and of the task relations of each split."
    )
    constraints: dict[str, str] = Field(description="The constraints that a request can name, with their meaning.")
    evidence: dict[str, str] = Field(description="The kinds of evidence in reasons, with their meaning.")
    calibration: dict[str, Any] | None = Field(
        description="`error`: of the first answers' probabilities, measured on held-out relations; `rough`: whether it "
        "is so large that no probabilities are shown."
    )
    limits: dict[str, float] = Field(
        description="Of one request: `heads`, `k`, `rows`, `explained` (predictions with reasons), and `seconds` until "
        "the server gives up."
    )


class ErrorFacts(BaseModel):
    code: str
    message: str
    field: str | None = None
    suggestions: list[EntityOffer] | None = None


class ErrorAnswer(BaseModel):
    error: ErrorFacts
