"""A linker as tools for assistants, over the Model Context Protocol (MCP)."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

import fewlink
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.linker import Linker
from fewlink.server.errors import ApiError, validation_error
from fewlink.server.schema import ExplainRequest, PredictRequest, ServerSettings
from fewlink.server.service import Service

MAX_ROWS = 100
MAX_HEADS = 100
MAX_DESCRIBED = 20  # relations in one call of `relations`
MAX_LISTED = 500  # relations and types in `about`
MAX_ANSWER_LENGTH = 500_000  # characters
SETTINGS = ServerSettings(heads=MAX_HEADS, k=MAX_ROWS, rows=500, explained=50)
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
M = TypeVar("M", bound=BaseModel)
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
    lines: list[str]


def make_server(linker: Linker, settings: ServerSettings = SETTINGS) -> Any:
    """An MCP server with the tools about, find, ask, explain, check and relations.

    Calls wait in the lanes of a server and have its limits. Errors that a user can correct become tool errors.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.server.mcpserver.tools import Tool
        from mcp.types import ToolAnnotations
    except ImportError:
        raise MissingExtra("fewlink mcp", "mcp") from None
    service = Service(linker, settings)
    tools = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            service.close()

    def tool(function: Callable[..., Awaitable[Any]]) -> None:
        """Add a tool. It refuses unknown arguments, and answers that are too large."""

        @functools.wraps(function)
        async def call(*args: Any, **options: Any) -> Any:
            try:
                answer = readable(json.dumps(await function(*args, **options), default=vars, ensure_ascii=False))
            except (ApiError, FewlinkError) as error:
                raise ToolError(readable(str(error))) from None
            if len(answer) > MAX_ANSWER_LENGTH:
                message = f"the answer has more than {MAX_ANSWER_LENGTH:,} characters"
                raise ToolError(f"{message}: ask for less at a time")
            return json.loads(answer)

        reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
        made = Tool.from_function(call, annotations=reads, structured_output=True)
        arguments = made.fn_metadata.arg_model
        arguments.model_config["extra"] = "forbid"
        arguments.model_rebuild(force=True)
        made.parameters = arguments.model_json_schema(by_alias=True)
        tools.append(made)

    @tool
    async def about() -> About:
        """The graph: its size, and the names of its relations and types."""
        return await service.run(lambda: described_graph(linker))

    @tool
    async def find(text: Name, limit: Count = 10) -> list[Found]:
        """Find entities whose name or id begins with, contains or else resembles a text, best first."""
        return await service.run(lambda: found_entities(linker, text, limit))

    @tool
    async def ask(
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
        request = validated(
            PredictRequest,
            heads=heads,
            references=references,
            relation=relation,
            k=k,
            candidates=candidates,
            explain=explain,
        )
        answer = await service.answer(request)
        rows = [{**row, "reasons": row["reasons"] and row["reasons"]["lines"]} for row in answer["predictions"]]
        trust = answer["trust"] and answer["trust"]["sentence"]
        return Answer(predictions=[Row(**row) for row in rows], trust=trust, notes=answer["notes"])

    @tool
    async def explain(head: Name, tail: Name, references: References = None, relation: Relation = None) -> Explained:
        """Explain the score of a tail for a head: paths drawn with arrows, and other evidence."""
        request = validated(ExplainRequest, head=head, tail=tail, references=references, relation=relation)
        facts = await service.explain(request)
        return Explained(
            head=facts["head"]["name"], tail=facts["tail"]["name"], score=facts["score"], lines=facts["lines"]
        )

    @tool
    async def check(
        relation: Annotated[
            Name | None, Field(description="A relation; by default all, which may take minutes.")
        ] = None,
        k: Count = 20,
    ) -> list[dict[str, Any]]:
        """Find the triples of a relation that look most like errors, the oddest first, with reasons."""
        odd = await service.run_steps(lambda step: linker.check(relation, k, step))
        return odd.to_dicts()

    @tool
    async def relations(
        head: Name,
        tail: Name,
        described: Annotated[
            dict[Name, list[Pair]] | None,
            Field(
                max_length=MAX_DESCRIBED,
                description="Relations that the graph lacks, by name, each with references (head, tail).",
            ),
        ] = None,
        k: Count = 10,
    ) -> list[dict[str, Any]]:
        """Find relations that are likely to hold between two entities, the best fit first."""
        references = {name: [(head, tail) for head, tail in pairs] for name, pairs in (described or {}).items()}
        fits = await service.run_steps(lambda step: linker.relations(head, tail, references, k, step))
        return fits.to_dicts()

    return MCPServer(
        "fewlink",
        instructions=INSTRUCTIONS,
        version=fewlink.__version__,
        log_level="WARNING",
        lifespan=lifespan,
        tools=tools,
    )


def described_graph(linker: Linker) -> About:
    """The size of the graph, and the first of its relations and types."""
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


def found_entities(linker: Linker, text: str, limit: int) -> list[Found]:
    """Entities that a text begins, is part of, or else resembles."""
    names = linker.names
    graph = linker.graph
    numbers = [graph.entities.id(entity.id) for entity in names.complete(text, limit)]
    numbers = numbers or names.nearest(text, limit)
    return [Found(id=graph.entities[n], name=graph.name(n), hint=names.hint(n)) for n in numbers]


def readable(text: str) -> str:
    """A text with question marks in place of lone surrogates, which the protocol cannot send."""
    return text.encode(errors="replace").decode()


def validated(model: type[M], **fields: Any) -> M:
    """A request of the HTTP interface; raises an error that names the field at fault."""
    try:
        return model(**fields)
    except ValidationError as error:
        raise validation_error([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from None


async def run_stdio(server: Any) -> None:
    """Serve standard input and output until the client closes them.

    The library drops lines that its parser refuses, such as those with half of a surrogate pair. Here they are answered
    with an error.
    """
    import anyio
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (received, sent), anyio.create_task_group() as tasks:
        forward, parsed = anyio.create_memory_object_stream[Any]()

        async def answer_unreadable() -> None:
            async with forward:
                async for message in received:
                    if isinstance(message, Exception):
                        await sent.send(unreadable(message))
                    else:
                        await forward.send(message)

        tasks.start_soon(answer_unreadable)
        low_level = server._lowlevel_server
        await low_level.run(parsed, sent, low_level.create_initialization_options())
        tasks.cancel_scope.cancel()


def unreadable(error: Exception) -> Any:
    """The answer to a line that is no message of the protocol."""
    from mcp.shared.message import SessionMessage
    from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError

    first: Any = error.errors()[0] if isinstance(error, ValidationError) else {"type": "", "msg": str(error)}
    number = None
    code = INVALID_REQUEST
    reason = first["msg"]
    if first["type"] == "json_invalid":
        code = PARSE_ERROR
        with contextlib.suppress(ValueError, RecursionError):
            line = json.loads(first["input"])
            number = line.get("id") if isinstance(line, dict) else None
            reason = "a string has half of a surrogate pair: send whole characters"  # which Python accepts
    number = number if isinstance(number, int | str) else None
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=reason)))
