"""A linker as tools for assistants, over the Model Context Protocol (MCP)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, Field

import fewlink
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.linker import Linker

MAX_ROWS = 100
MAX_HEADS = 100
MAX_PREDICTIONS = 500  # in one answer
MAX_LISTED = 500  # relations and types in `about`
INSTRUCTIONS = """fewlink completes a knowledge graph from a handful of examples. Describe a relation by two to five
references or more (pairs of a head and a tail that it holds for), or name a relation of the graph, whose pairs are then
references, and ask for the tails of other heads. Entities are ids or readable names: use `find` to look them up. A
probability is null if it would not be reliable; `trust` says why. Predictions are suggestions to verify, not facts."""

Name = Annotated[str, Field(min_length=1, max_length=500)]
Pair = Annotated[list[Name], Field(min_length=2, max_length=2, description="A head and a tail.")]
References = Annotated[
    list[Pair] | None,
    Field(description="Pairs (head, tail) that the relation holds for, beside the known pairs of `relation`."),
]
Relation = Annotated[
    Name | None,
    Field(description="A relation of the graph: its known pairs are references and do not compete."),
]
Count = Annotated[int, Field(ge=1, le=MAX_ROWS)]


class About(BaseModel):
    graph: str
    model: str
    entities: int
    relations: list[str]
    types: list[str]
    triples: int


class Found(BaseModel):
    id: str
    name: str
    hint: str


class Row(BaseModel):
    head: str
    head_name: str
    rank: float
    tail: str
    tail_name: str
    score: float
    probability: float | None
    known: bool
    reasons: list[str] | None = None


class Answer(BaseModel):
    predictions: list[Row]
    trust: str | None
    notes: list[str]


class Explained(BaseModel):
    head: str
    tail: str
    score: float
    sentences: list[str]


def make_server(linker: Linker) -> Any:
    """An MCP server with the tools about, find, ask, explain, check and relations.

    Tools use the linker one at a time. Errors that a user can correct become tool errors.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError:
        raise MissingExtra("fewlink mcp", "mcp") from None
    server = MCPServer("fewlink", instructions=INSTRUCTIONS, version=fewlink.__version__, log_level="WARNING")
    lock = threading.Lock()

    def tool(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            try:
                with lock:
                    return function(*args, **options)
            except FewlinkError as error:
                raise ToolError(
                    str(error).encode(errors="replace").decode()
                ) from None  # names may have lone surrogates

        reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
        server.add_tool(call, annotations=reads, structured_output=True)
        return call

    @tool
    def about() -> About:
        """The graph: its size, and the names of its relations and types."""
        graph = linker.graph
        tasks = [task.name for tasks in linker.benchmark.tasks.values() for task in tasks]
        relations = [graph.relation_name(i) for i in range(min(len(graph.relations), MAX_LISTED))]
        return About(
            graph=linker.benchmark.name,
            model=linker.scorer.name,
            entities=len(graph.entities),
            relations=[*relations, *tasks][:MAX_LISTED],
            types=[name for name, _ in linker.names.complete_types("", MAX_LISTED)],
            triples=graph.triple_count,
        )

    @tool
    def find(text: Name, limit: Count = 10) -> list[Found]:
        """Find entities whose name or id begins with, contains or else resembles a text, best first."""
        names = linker.names
        numbers = [linker.graph.entities.id(entity.id) for entity in names.complete(text, limit)]
        numbers = numbers or names.nearest(text, limit)
        graph = linker.graph
        return [Found(id=graph.entities[n], name=graph.name(n), hint=names.hint(n)) for n in numbers]

    @tool
    def ask(
        heads: Annotated[
            list[Name], Field(min_length=1, max_length=MAX_HEADS, description="Entities to find tails for.")
        ],
        references: References = None,
        relation: Relation = None,
        k: Annotated[int, Field(ge=1, le=MAX_ROWS, description="Number of tails per head.")] = 5,
        candidates: Annotated[
            Name | None,
            Field(description="Tails to rank: a type, or `all`; by default tails like those of the references."),
        ] = None,
        explain: Annotated[bool, Field(description="Include the reasons for each prediction.")] = False,
    ) -> Answer:
        """Rank the most likely missing tails of each head, for a relation described by references or by name.

        Example: references [["virus", "cell"], ["fungus", "plant"]], heads ["bacterium"].
        """
        if len(heads) * k > MAX_PREDICTIONS:
            message = f"{len(heads)} heads with {k} tails each are more than {MAX_PREDICTIONS:,} predictions"
            raise FewlinkError(f"{message}: ask for fewer at a time")
        answer = linker.predict(
            _pairs(references),
            heads,
            k,
            candidates=candidates,
            relation=relation,
            explain="full" if explain else False,
        )
        rows = [{**row, "reasons": row["reasons"] and row["reasons"]["sentences"]} for row in answer.to_dicts()]
        trust = answer.trust.sentence if answer.trust else None
        return Answer(predictions=[Row(**row) for row in rows], trust=trust, notes=list(answer.notes))

    @tool
    def explain(head: Name, tail: Name, references: References = None, relation: Relation = None) -> Explained:
        """Explain the score of a tail for a head: paths, references and neighbours, as sentences."""
        explanation = linker.explain(_pairs(references), head, tail, relation=relation)
        return Explained(
            head=explanation.head.name,
            tail=explanation.tail.name,
            score=float(explanation.score),
            sentences=explanation.sentences(),
        )

    @tool
    def check(
        relation: Annotated[
            Name | None, Field(description="A relation; by default all, which may take minutes.")
        ] = None,
        k: Count = 20,
    ) -> list[dict[str, Any]]:
        """Find the triples of a relation that look most like errors, the oddest first, with reasons."""
        return linker.check(relation, k).to_dicts()

    @tool
    def relations(
        head: Name,
        tail: Name,
        described: Annotated[
            dict[Name, list[Pair]] | None,
            Field(description="Relations that the graph lacks, by name, each with references (head, tail)."),
        ] = None,
        k: Count = 10,
    ) -> list[dict[str, Any]]:
        """Find relations that are likely to hold between two entities, the best fit first."""
        references = {name: _pairs(pairs) or [] for name, pairs in (described or {}).items()}
        return linker.relations(head, tail, references, k).to_dicts()

    return server


def _pairs(references: list[list[str]] | None) -> list[tuple[str, str]] | None:
    return None if references is None else [(head, tail) for head, tail in references]
