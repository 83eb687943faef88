"""A linker as tools for assistants, over the Model Context Protocol (MCP)."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from pydantic import Field

import fewlink
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.linker import Linker

MAX_ROWS = 100  # an assistant reads every row, and pays for it
MAX_HEADS = 100  # of one question, for the same reason
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
Heads = Annotated[list[Name], Field(min_length=1, max_length=MAX_HEADS, description="Entities to find tails for.")]
Candidates = Annotated[
    Name | None, Field(description="Tails to rank: a type, or `all`; by default tails like those of the references.")
]
Described = Annotated[
    dict[Name, list[Pair]] | None,
    Field(description="Relations that the graph lacks, by name, each with references (head, tail)."),
]
Count = Annotated[int, Field(ge=1, le=MAX_ROWS)]
SHOWN = ("head", "head_name", "rank", "tail", "tail_name", "score", "probability", "known")  # of a prediction
T = TypeVar("T")


def make_server(linker: Linker) -> Any:
    """An MCP server with the tools about, find, ask, explain, check and relations, each call in a thread.

    Errors that a user can correct become tool errors.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.server.mcpserver.tools import Tool
        from mcp.types import ToolAnnotations
    except ImportError:
        raise MissingExtra("fewlink mcp", "mcp") from None
    import anyio

    one_at_a_time = anyio.CapacityLimiter(1)
    tools = []

    async def run(work: Callable[[], T]) -> T:
        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=one_at_a_time)
        except FewlinkError as error:
            raise ToolError(str(error)) from None

    def tool(function: Callable[..., Awaitable[Any]]) -> None:
        """Add a tool that refuses unknown arguments."""
        reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
        made = Tool.from_function(function, annotations=reads, structured_output=True)
        arguments = made.fn_metadata.arg_model
        arguments.model_config["extra"] = "forbid"
        arguments.model_rebuild(force=True)
        made.parameters = arguments.model_json_schema(by_alias=True)
        tools.append(made)

    @tool
    async def about() -> dict[str, Any]:
        """The graph: its size, and the names of its relations and types."""
        return await run(functools.partial(described_graph, linker))

    @tool
    async def find(text: Name, limit: Count = 10) -> list[dict[str, Any]]:
        """Find entities whose name or id begins with, contains or else resembles a text, best first."""
        return await run(functools.partial(found_entities, linker, text, limit))

    @tool
    async def ask(
        heads: Heads,
        references: References = None,
        relation: Relation = None,
        k: Annotated[int, Field(ge=1, le=MAX_ROWS, description="Number of tails per head.")] = 5,
        candidates: Candidates = None,
        explain: Annotated[bool, Field(description="Include the reasons for each prediction.")] = False,
    ) -> dict[str, Any]:
        """Rank the most likely missing tails of each head, for a relation described by references or by name.

        Example: references [["virus", "cell"], ["fungus", "plant"]], heads ["bacterium"].
        """

        def answer() -> dict[str, Any]:
            found = linker.predict(
                pairs_of(references),
                heads,
                k,
                relation=relation,
                candidates=candidates,
                explain="full" if explain else False,
            )
            rows = [{name: getattr(row, name) for name in SHOWN} for row in found]
            for row, prediction in zip(rows, found, strict=True):
                row["reasons"] = prediction.reasons and prediction.reasons.lines()
            trust = found.trust and found.trust.sentence
            return {"predictions": rows, "trust": trust, "notes": list(found.notes)}

        return await run(answer)

    @tool
    async def explain(
        head: Name, tail: Name, references: References = None, relation: Relation = None
    ) -> dict[str, Any]:
        """Explain the score of a tail for a head: paths drawn with arrows, and other evidence."""

        def answer() -> dict[str, Any]:
            found = linker.explain(pairs_of(references), head, tail, relation=relation)
            return {"score": found.score, "lines": found.lines()}

        return await run(answer)

    @tool
    async def check(
        relation: Annotated[
            Name | None, Field(description="A relation; by default all, which may take minutes.")
        ] = None,
        k: Count = 20,
    ) -> list[dict[str, Any]]:
        """Find the triples of a relation that look most like errors, the oddest first, with reasons."""
        return await run(lambda: linker.check(relation, k).to_dicts())

    @tool
    async def relations(head: Name, tail: Name, described: Described = None, k: Count = 10) -> list[dict[str, Any]]:
        """Find relations that are likely to hold between two entities, the best fit first."""
        references = {name: pairs_of(pairs) or [] for name, pairs in (described or {}).items()}
        return await run(lambda: linker.relations(head, tail, references, k).to_dicts())

    return MCPServer(
        "fewlink", instructions=INSTRUCTIONS, version=fewlink.__version__, log_level="WARNING", tools=tools
    )


def pairs_of(references: list[list[str]] | None) -> list[tuple[str, str]] | None:
    """References as pairs; None if there are none."""
    return [(head, tail) for head, tail in references] if references else None


def described_graph(linker: Linker) -> dict[str, Any]:
    """The size of the graph, and the first of its relations and types."""
    graph = linker.graph
    tasks = [task.name for tasks in linker.benchmark.tasks.values() for task in tasks]
    relations = [graph.relation_name(number) for number in range(min(len(graph.relations), MAX_LISTED))]
    return {
        "graph": linker.benchmark.name,
        "model": linker.scorer.name,
        "entities": len(graph.entities),
        "relations": [*relations, *tasks][:MAX_LISTED],
        "types": [name for name, _ in linker.names.complete_types("", MAX_LISTED)],
        "triples": graph.triple_count,
    }


def found_entities(linker: Linker, text: str, limit: int) -> list[dict[str, Any]]:
    """Entities that a text begins, is part of, or else resembles."""
    names = linker.names
    graph = linker.graph
    numbers = [graph.entities.id(entity.id) for entity in names.complete(text, limit)]
    numbers = numbers or names.nearest(text, limit)
    return [{"id": graph.entities[n], "name": graph.name(n), "hint": names.hint(n)} for n in numbers]
