"""Graphs that visitors open from files of their own, each with its page at /graphs/NAME/.

A folder holds one folder for each graph: the file, `reading.json` with the options to read it, `compiled` with the
graph that a process of its own read from the file, and `decisions`, its project file. Processes that share the folder
serve the same graphs; each opens a graph when it is first asked for.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from fewlink.core.errors import FewlinkError
from fewlink.linker import Linker, load
from fewlink.server.admission import Job
from fewlink.server.connections import ON_STOP
from fewlink.server.errors import ApiError, as_json
from fewlink.server.schema import MAX_NAME_LENGTH, FilePreview, GraphList, OpenedGraph
from fewlink.server.service import Service

MAX_GRAPHS = 10  # in one folder
READING_FILE = "reading.json"
PROJECT_FILE = "decisions"
COMPILED_FOLDER = "compiled"
READ_GRAPH = "fewlink.graph.check:check_and_save"
PREVIEWED = ("format", "encoding", "separator", "header", "names", "columns", "ignored", "notes", "first_triples")
FileName = Annotated[str, Query(alias="name", min_length=1, max_length=200, description="The name of the file.")]
BODY: dict[str, Any] = {
    "requestBody": {
        "description": "The file as it is.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@dataclass(frozen=True)
class Options:
    """The options to read a file of triples, as those of `fewlink data check`."""

    columns: str | None = None
    literals: str = "drop"
    on_error: str = "stop"


def options_of(
    columns: Annotated[
        str | None, Query(max_length=MAX_NAME_LENGTH, description="As --columns of `fewlink data check`.")
    ] = None,
    literals: Annotated[
        str, Query(max_length=10, description="`keep`: numbers, dates and truth values are entities.")
    ] = "drop",
    on_error: Annotated[str, Query(max_length=10, description="`skip`: bad lines are left out.")] = "stop",
) -> Options:
    """The options in the query of a request."""
    return Options(columns or None, literals, on_error)


GivenOptions = Annotated[Options, Depends(options_of)]


class GraphFolder:
    """A folder of graphs, and the apps of those that this process has opened."""

    def __init__(
        self, folder: Path, open_app: Callable[[Linker, Path], FastAPI], device: str, service: Service
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.service = service
        self.open_app = open_app
        self.device = device
        self._apps: dict[str, asyncio.Task[FastAPI]] = {}
        self._lifespans = AsyncExitStack()
        self._stops: list[Callable[[], None]] = []

    def names(self) -> list[str]:
        return sorted(path.parent.name for path in self.folder.glob(f"*/{READING_FILE}"))

    def facts(self) -> list[dict[str, Any]]:
        """The graphs by file. From the second graph of a file on, a number tells it from the others."""
        files = {name: self._read(name)[0].name for name in self.names()}
        counts = Counter[str]()
        rows = []
        for name in sorted(files, key=lambda name: (files[name], len(name), name)):  # graph, graph-2, …, graph-10
            counts[files[name]] += 1
            number = f" ({counts[files[name]]})" if counts[files[name]] > 1 else ""
            rows.append({"name": name, "file": f"{files[name]}{number}", "address": address_of(name)})
        return rows

    async def add(self, file_name: str, content: bytes, options: Options, job: Job) -> str:
        """Store a file that can be read, and the graph in it; return the name of the graph."""
        if len(self.names()) >= MAX_GRAPHS:
            raise FewlinkError(f"this server keeps {MAX_GRAPHS} graphs at most: its owner can remove some")
        file_name = safe_name(file_name)
        draft = Path(tempfile.mkdtemp(prefix=".", dir=self.folder))
        try:
            await self.service.run(lambda: (draft / file_name).write_bytes(content), job)
            (draft / READING_FILE).write_text(json.dumps({"file": file_name, **asdict(options)}))
            await self._read_apart(draft / file_name, options, job)
            return self._place(draft, Path(file_name.partition(".")[0]).name)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    async def preview(self, file_name: str, content: bytes, options: Options, job: Job) -> dict[str, Any]:
        """How a file is read, its first triples, counts and likely mistakes, as `fewlink data check` shows them."""
        name = safe_name(file_name)
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / name
            await self.service.run(lambda: file.write_bytes(content), job)
            report = await self._read_apart(file, options, job, save=False)
        counts = {what: count for what, count in report["counts"].items() if count}
        shown = {key: report[key] for key in PREVIEWED}
        problems = [without_folder(problem, file.parent) for problem in report["problems"]]
        return {"file": name, **shown, "counts": counts, "problems": problems}

    async def _read_apart(self, file: Path, options: Options, job: Job, *, save: bool = True) -> dict[str, Any]:
        """Read a file in a process of its own, which saves the graph beside it, and describe it."""
        folder = str(compiled(file)) if save else None
        with naming_file(file.parent):
            report: dict[str, Any] = await self.service.run_apart(
                READ_GRAPH, file.name, job, path=str(file), folder=folder, **asdict(options)
            )
        return report

    def _place(self, draft: Path, stem: str) -> str:
        """Give the folder of a graph a name that no other graph has."""
        stem = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:40] or "graph"
        for number in range(1, MAX_GRAPHS + 2):
            name = stem if number == 1 else f"{stem}-{number}"
            try:
                if name != "preview":  # the name of a route
                    draft.rename(self.folder / name)
                    return name
            except OSError:
                continue  # taken
        raise FewlinkError(f"{stem}: too many graphs have this name")

    def _read(self, name: str) -> tuple[Path, Options]:
        """The file of a graph, and how to read it."""
        folder = self.folder / name
        try:
            stored = json.loads((folder / READING_FILE).read_text())
        except (OSError, ValueError):
            raise ApiError(404, "not-found", f"this server has no graph '{name}'") from None
        return folder / stored.pop("file"), Options(**stored)

    async def _start(self, name: str) -> FastAPI:
        file, options = self._read(name)
        if not compiled(file).exists():
            async with self.service.admission.enter("file") as job:
                await self._read_apart(file, options, job)
        app = await asyncio.to_thread(self._load, file)
        state = await self._lifespans.enter_async_context(app.router.lifespan_context(app))
        self._stops.append((state or {})[ON_STOP])
        return app

    def _load(self, file: Path) -> FastAPI:
        linker = load(compiled(file), device=self.device)
        linker.names.complete("a", 1)  # builds the search index before the first request
        return self.open_app(linker, file.parent / PROJECT_FILE)

    async def app(self, name: str) -> FastAPI:
        """The app of a graph. Requests that come while it is opened wait for it."""
        if name not in self._apps:
            if name not in self.names():
                raise ApiError(404, "not-found", f"this server has no graph '{name}'")
            self._apps[name] = asyncio.ensure_future(self._start(name))
        try:
            return await asyncio.shield(self._apps[name])
        except Exception:
            self._apps.pop(name, None)
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request for /graphs/NAME/… on to the app of that graph."""
        name, slash, _ = scope["path"].removeprefix(scope["root_path"]).lstrip("/").partition("/")
        if not slash:
            await RedirectResponse(f"{scope['root_path']}/{name}/")(scope, receive, send)
            return
        app = await self.app(name)
        await app({**scope, "root_path": f"{scope['root_path']}/{name}", "app": app}, receive, send)

    def stop(self) -> None:
        """Admit no more requests."""
        for stop in self._stops:
            stop()

    async def close(self) -> None:
        await self._lifespans.aclose()


def compiled(file: Path) -> Path:
    """The folder of the graph that was read from a file. It has the name of the file, which becomes the graph's."""
    return file.parent / COMPILED_FOLDER / file.name


def address_of(name: str) -> str:
    return f"graphs/{name}/"


def safe_name(name: str) -> str:
    """The name of a file without anything that a path could mean."""
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".")[-100:] or "graph.tsv"


@contextmanager
def naming_file(folder: Path) -> Iterator[None]:
    """Errors name the file alone, not the folder where the server keeps it."""
    try:
        yield
    except FewlinkError as error:
        raise FewlinkError(without_folder(str(error), folder)) from None


def without_folder(text: str, folder: Path) -> str:
    """A message that names the file alone."""
    return text.replace(f"{folder}/", "")


def install_graphs(app: FastAPI, graphs: GraphFolder) -> None:
    """Add the endpoints that open files, and the pages of opened graphs."""
    admission = graphs.service.admission

    @app.get("/graphs", response_model=GraphList)
    def list_graphs() -> Response:
        """The graphs that visitors have opened."""
        return as_json({"graphs": graphs.facts()})

    @app.post("/graphs/preview", response_model=FilePreview, openapi_extra=BODY)
    async def preview_file(request: Request, name: FileName, options: GivenOptions) -> Response:
        """How a file of triples would be read. Nothing is stored."""
        content = await request.body()
        async with admission.enter("file") as job:
            return as_json(await graphs.preview(name, content, options, job))

    @app.post("/graphs", response_model=OpenedGraph, status_code=201, openapi_extra=BODY)
    async def open_file(request: Request, name: FileName, options: GivenOptions) -> Response:
        """Store a file of triples and open it as a graph with a page of its own."""
        content = await request.body()
        async with admission.enter("file") as job:
            added = await graphs.add(name, content, options, job)
            await graphs.app(added)
        return as_json({"name": added, "address": address_of(added)}, 201)

    app.mount("/graphs", graphs)
