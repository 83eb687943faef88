"""The MCP server, called by the official client library in this process and over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.linker.linkers import REFERENCES, trail
from tests.server.servers import Known, small

from fewlink.bridges import mcp_server
from fewlink.bridges.mcp_server import SETTINGS, make_server
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
    assert set(answer["notes"]) < set(expected.notes)  # as over HTTP, the default constraint has no note
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
    assert "limit of 500" in failed(linker, "ask", references=PAIRS, heads=["alga"] * 100, k=100)
    assert "explain" in failed(linker, "ask", references=PAIRS, heads=["alga"] * 100, k=5, explain=True)
    assert "sort" in failed(linker, "find", text="alg", sort="name")


def test_answers_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "MAX_ANSWER_LENGTH", 1_000)
    linker = trail()
    assert called(linker, "ask", references=PAIRS, heads=["alga"], k=1)["predictions"]
    assert "more than 1,000 characters" in failed(linker, "ask", references=PAIRS, heads=["alga"], k=50)


def test_a_cancelled_call_frees_its_work() -> None:
    linker = small()
    assert isinstance(linker.scorer, Known)
    scorer = linker.scorer
    scorer.gate = threading.Event()
    heads = ["bob", "cy"] * 50

    async def use(client: Client) -> Any:
        asked = asyncio.create_task(client.call_tool("ask", {"references": [["ann", "rome"]], "heads": heads, "k": 1}))
        while not scorer.calls:
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        scorer.gate.set()
        return await client.call_tool("ask", {"references": [["ann", "oslo"]], "heads": ["bob"], "k": 1})

    answer = with_client(make_server(linker), use)
    assert not answer.is_error and len(answer.structured_content["predictions"]) == 1
    assert sum(map(len, scorer.calls)) < 20  # one turn of the first call, and the second


def test_a_cancelled_check_ends_after_the_relation_it_reads() -> None:
    linker = small()
    steps: list[int] = []
    stopped, cancelled = threading.Event(), threading.Event()

    def check(relation: str | None, top: int | None, on_relation: Callable[[int], None]) -> Any:
        for done in range(1_000):
            steps.append(done)
            try:
                on_relation(done)
            except BaseException:
                stopped.set()
                raise
            cancelled.wait(20)

    linker.check = check  # type: ignore[method-assign]

    async def use(client: Client) -> None:
        asked = asyncio.create_task(client.call_tool("check", {}))
        while not steps:
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await client.call_tool("about", {})
        cancelled.set()
        assert await asyncio.to_thread(stopped.wait, 20)

    with_client(make_server(linker), use)
    assert len(steps) < 10


def test_calls_have_the_limits_of_http() -> None:
    linker = small()
    assert isinstance(linker.scorer, Known)
    gate = linker.scorer.gate = threading.Event()
    settings = replace(SETTINGS, waiting=1, seconds=0.5)
    ask = {"references": [["ann", "rome"]], "heads": ["bob"], "k": 1}

    async def use(client: Client) -> Any:
        first = asyncio.create_task(client.call_tool("ask", ask))
        while not linker.scorer.calls:
            await asyncio.sleep(0.01)
        return await client.call_tool("find", {"text": "b"}), await first

    try:
        busy, late = with_client(make_server(linker, settings), use)
    finally:
        gate.set()
    assert busy.is_error and "1 requests are waiting" in busy.content[0].text
    assert late.is_error and "0.5 s" in late.content[0].text


def test_check_and_relations_give_the_rows_of_the_linker() -> None:
    linker = trail()
    assert called(linker, "check", relation="causes", k=7)["result"] == linker.check("causes", 7).to_dicts()
    fits = called(linker, "relations", head="virus", tail="cell", described={"eats": PAIRS}, k=50)["result"]
    assert fits == linker.relations("virus", "cell", {"eats": REFERENCES}, 50).to_dicts()
    assert "eats" in {row["relation"] for row in fits}


@pytest.mark.slow
def test_a_line_that_cannot_be_read_is_answered_with_an_error(tmp_path: Path) -> None:
    graph = tmp_path / "graph.tsv"
    graph.write_text("ann\tin\toslo\nbob\tin\trome\n")
    version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "find", "arguments": {"text": "\ud800"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": version}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
        "no JSON",
    ]
    command = [sys.executable, "-m", "fewlink", "mcp", str(graph)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()
        assert process.wait(60) == 0
    assert [answer["id"] for answer in answers] == [1, 2, None]
    assert "surrogate" in answers[1]["error"]["message"] and answers[2]["error"]["code"] == -32700


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
