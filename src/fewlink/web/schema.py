"""What requests and answers look like: the OpenAPI schema, and the first check of every request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from fewlink.web.settings import MOST_CANDIDATES, MOST_HEADS, MOST_K, MOST_REFERENCES, NAME_LENGTH

Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH)]
Pair = Annotated[list[Name], Field(min_length=2, max_length=2, description="A head and a tail.")]


def given(name: str, kind: str) -> dict[str, Any]:
    """The schema of an object that has this field, and not null."""
    return {"required": [name], "properties": {name: {"type": kind}}}


SOME_REFERENCES: dict[str, Any] = {"anyOf": [given("references", "array"), given("relation", "string")]}
SOME_HEADS: dict[str, Any] = {"oneOf": [given("heads", "array"), given("heads_of_type", "string")]}


class Asked(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra={"allOf": [SOME_REFERENCES]})

    references: Annotated[list[Pair], Field(min_length=1, max_length=MOST_REFERENCES)] | None = Field(
        None, description="Pairs that the relation holds for; without them the first ones of `relation`."
    )
    relation: Name | None = Field(None, description="A relation of the benchmark, whose known pairs do not compete.")


class PredictRequest(Asked):
    """Heads are listed, or all of a type, which gives the best pairs of them all."""

    model_config = ConfigDict(json_schema_extra={"allOf": [SOME_REFERENCES, SOME_HEADS]})

    heads: Annotated[list[Name], Field(min_length=1, max_length=MOST_HEADS)] | None = None
    heads_of_type: Name | None = Field(None, description="All heads of this type; `all`: every entity.")
    k: Annotated[int, Field(ge=1, le=MOST_K)] = Field(10, description="Tails of each head; of a type, pairs in all.")
    candidates: Name | Annotated[list[Name], Field(min_length=1, max_length=MOST_CANDIDATES)] | None = Field(
        None, description="Who competes: a type or a list; null or `open`: what is like the references' tails; `all`."
    )
    exclude_known: bool = Field(True, description="Leave out references and pairs that `relation` has.")
    explain: bool = Field(False, description="Give the reasons of each prediction.")


class ExplainRequest(Asked):
    head: Name
    tail: Name


class Entity(BaseModel):
    id: str
    name: str


class Step(BaseModel):
    relation: str
    inverse: bool


class PathTaken(BaseModel):
    steps: list[Step]
    weight: float
    entities: list[Entity]


class ReferenceWeight(BaseModel):
    head: Entity
    tail: Entity
    weight: float | None


class NeighbourWeight(BaseModel):
    of: Literal["head", "tail"]
    relation: str
    inverse: bool
    entity: Entity
    weight: float


class Reasons(BaseModel):
    """What carried the score of one pair."""

    head: Entity
    tail: Entity
    score: float
    shares: dict[str, float]
    paths: list[PathTaken]
    references: list[ReferenceWeight]
    neighbours: list[NeighbourWeight]
    shared: bool
    sentences: list[str]


class Row(BaseModel):
    head: str
    head_name: str
    rank: float
    tail: str
    tail_name: str
    score: float
    probability: float | None
    known: bool
    reasons: Reasons | None


class PredictAnswer(BaseModel):
    predictions: list[Row]
    notes: list[str]


class Health(BaseModel):
    status: Literal["ok"]
    version: str


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
    error: float
    base: float
    count: int
    rough: bool


class LimitFacts(BaseModel):
    references: int
    heads: int
    k: int
    rows: int
    explained: int


class About(BaseModel):
    version: str
    model: str
    shots: int
    graph: GraphFacts
    relations: dict[str, list[str]] = Field(description="The names of the graph's relations, and of each split's.")
    evidence: dict[str, str] = Field(description="The kinds of evidence that reasons tell of, in words.")
    calibration: CalibrationFacts | None
    limits: LimitFacts


class Example(BaseModel):
    """A relation of the benchmark with its first pairs as references, and heads to ask about."""

    relation: str
    references: list[Annotated[list[Entity], Field(min_length=2, max_length=2)]]
    heads: list[Entity]


class ErrorFacts(BaseModel):
    code: str
    message: str
    field: str | None = None
    suggestions: list[Entity] | None = None


class ErrorAnswer(BaseModel):
    error: ErrorFacts
