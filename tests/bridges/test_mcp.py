"""The MCP server, called by the official client library in this process and over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.linker.linkers import REFERENCES, trail

from fewlink.bridges.mcp_server import make_server
from fewlink.linker import Linker

pytest.importorskip("mcp.server.mcpserver")
from mcp import Client, StdioServerParameters

PAIRS = [list(pair) for pair in REFERENCES]


def with_client(server: Any, use: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Client(server) as client:
            return await use(client)

    return asyncio.run(run())


def called(linker: Linker, tool: str, **arguments: Any) -> Any:
    """The structured content of a tool's answer."""
    answer = with_client(make_server(linker), lambda client: client.call_tool(tool, arguments))
    assert not answer.is_error, answer.content
    return answer.structured_content


def failed(linker: Linker, tool: str, **arguments: Any) -> str:
    answer = with_client(make_server(linker), lambda client: client.call_tool(tool, arguments))
    assert answer.is_error
    text: str = answer.content[0].text
    return text


def test_tools_have_descriptions_and_schemas() -> None:
    tools = with_client(make_server(trail()), lambda client: client.list_tools()).tools
    assert {"about", "find", "ask", "explain", "check", "relations"} == {tool.name for tool in tools}
    for tool in tools:
        assert tool.description and len(tool.description) > 40, tool.name
        assert tool.output_schema and tool.annotations.read_only_hint
    ask = next(tool for tool in tools if tool.name == "ask")
    assert ask.input_schema["required"] == ["heads"]
    assert "references" in ask.input_schema["properties"]


def test_ask_gives_the_predictions_of_the_linker() -> None:
    linker = trail()
    expected = linker.predict(REFERENCES, ["alga"], 3)
    answer = called(linker, "ask", references=PAIRS, heads=["alga"], k=3)
    assert [row["tail"] for row in answer["predictions"]] == [row.tail for row in expected]
    assert answer["predictions"][0]["reasons"] is None
    assert answer["notes"] == list(expected.notes)
    named = called(linker, "ask", relation="causes", heads=["alga"], k=2, explain=True)
    assert len(named["predictions"]) == 2 and "→" in named["predictions"][0]["reasons"][0]


def test_explain_find_and_about() -> None:
    linker = trail()
    answer = called(linker, "explain", references=PAIRS, head="alga", tail="cell")
    assert answer["lines"] == linker.explain(REFERENCES, "alga", "cell").lines()
    assert called(linker, "find", text="alg")["result"][0]["id"] == "alga"
    assert called(linker, "find", text="bacteriun")["result"][0]["id"] == "bacterium"
    facts = called(linker, "about")
    assert facts["entities"] == len(linker.graph.entities) and {"causes", "affects"} <= set(facts["relations"])


def test_errors_name_the_mistake() -> None:
    linker = trail()
    assert "'alga'" in failed(linker, "ask", references=PAIRS, heads=["algae"])
    assert "references" in failed(linker, "ask", heads=["alga"])
    assert "'eats'" in failed(linker, "ask", relation="eats", heads=["alga"])
    assert "heads" in failed(linker, "ask", references=PAIRS, heads=[])
    assert "k" in failed(linker, "ask", references=PAIRS, heads=["alga"], k=0)
    assert "k" in failed(linker, "ask", references=PAIRS, heads=["alga"], k=101)
    assert "sort" in failed(linker, "find", text="alg", sort="name")


def test_check_and_relations_give_the_rows_of_the_linker() -> None:
    linker = trail()
    assert called(linker, "check", relation="causes", k=7)["result"] == linker.check("causes", 7).to_dicts()
    fits = called(linker, "relations", head="virus", tail="cell", described={"eats": PAIRS}, k=50)["result"]
    assert fits == linker.relations("virus", "cell", {"eats": REFERENCES}, 50).to_dicts()
    assert "eats" in {row["relation"] for row in fits}


@pytest.mark.slow
def test_the_command_speaks_over_standard_input_and_output(tmp_path: Path) -> None:
    graph = tmp_path / "graph.tsv"
    rows = ["ann in oslo", "bob in rome", "oslo of norway", "rome of italy", "cy in paris", "paris of france"]
    graph.write_text("".join("\t".join(row.split()) + "\n" for row in rows))
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "fewlink", "mcp", str(graph)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    ask = {"references": [["ann", "norway"], ["bob", "italy"]], "heads": ["cy"], "k": 1}
    answer = with_client(server, lambda client: client.call_tool("ask", ask))
    assert answer.structured_content["predictions"][0]["tail"] == "france"
