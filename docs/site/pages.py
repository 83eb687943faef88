"""What the pages need besides Markdown: links out of the folder, pages that may be missing, tables that scroll."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
REPOSITORY = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["urls"]["Repository"] + "/blob/main/"
EXTERNAL: dict[str, str] = {}  # addresses outside the site, each with a page that links to it
SHORT, LONG = 18, 32  # characters of a cell that stays in one line, and of one that needs room
LINK = re.compile(r"\]\(([^()\s]+)\)")


def included(app: Sphinx, docname: str, source: list[str]) -> None:
    """`<!-- include PATH -->` is another Markdown file; with `part MARK` before the end, what is between its marks."""
    here = Path(app.srcdir) / Path(docname).parent

    def text(match: re.Match[str]) -> str:
        path = Path(os.path.normpath(here / match[1]))
        app.env.note_dependency(str(path))

        def moved(link: re.Match[str]) -> str:
            if "://" in link[1] or link[1].startswith("#"):
                return link[0]
            return f"]({Path(os.path.relpath(path.parent / link[1], here)).as_posix()})"

        content = path.read_text("utf-8")
        if match[2]:
            content = content.partition(f"<!-- {match[2]}: begin -->\n")[2].partition(f"<!-- {match[2]}: end -->")[0]
        return LINK.sub(moved, content)

    source[0] = re.sub(r"^<!-- include (\S+)(?: part (\w+))? -->$", text, source[0], flags=re.MULTILINE)


def repository_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links to files outside this folder lead to the repository."""
    docs, here = Path(app.srcdir), Path(app.srcdir) / Path(docname).parent

    def outside(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        path = Path(os.path.normpath(here / target))
        if "://" in target or not target or path.is_relative_to(docs) or not path.exists():
            return match[0]
        return f"]({REPOSITORY}{path.relative_to(docs.parent).as_posix()}{'#' * bool(anchor)}{anchor})"

    source[0] = LINK.sub(outside, source[0])


def generated_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """A page that only the site has, such as `results.md`, is named in backticks in documents; here it is a link."""
    up = "../" * docname.count("/")
    source[0] = re.sub(r"`(results|speed|commands)\.md`", rf"[]({up}\1.md)", source[0])


def page_titles(app: Sphinx, docname: str, source: list[str]) -> None:
    """A link whose text is the name of the page shows the title of the page, or of the part that it leads to."""
    source[0] = re.sub(r"\[(?:docs/)?([\w.-]+\.md)\]\(((?:[\w./-]*/)?\1(?:#[^)\s]*)?)\)", r"[](\2)", source[0])


def file_titles(app: Sphinx, docname: str, source: list[str]) -> None:
    """The title of a code block, the file that it belongs to, as its caption."""
    source[0] = re.sub(
        r'^```(\w+) title="([^"\n]+)"\n', r"```{code-block} \1\n:caption: \2\n\n", source[0], flags=re.MULTILINE
    )


def optional_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """`<!-- if PAGE -->…<!-- end -->` stays where the page exists, a file or, with a `*`, any such file."""

    def kept(match: re.Match[str]) -> str:
        return match[2] if any(Path(app.srcdir).glob(match[1])) else ""

    source[0] = re.sub(r"^<!-- if (\S+) -->\n(.*?)^<!-- end -->\n", kept, source[0], flags=re.DOTALL | re.MULTILINE)


def scrolling_tables(app: Sphinx, doctree: nodes.document) -> None:
    """Every table in a box of its own that scrolls sideways, reachable by keyboard; numbers stay in one line."""
    for table in list(doctree.findall(nodes.table)):
        for cell in table.findall(nodes.entry):
            text = cell.astext()
            if len(text) <= SHORT or re.fullmatch(r"[\s\d.,·±+−–%-]*", text):
                cell["classes"].append("short")
            elif len(text) > LONG:
                cell["classes"].append("prose")
        before = nodes.raw("", '<div class="wide" tabindex="0" role="region" aria-label="table">', format="html")
        place, after = table.parent, nodes.raw("", "</div>", format="html")
        position = place.index(table)
        place[position : position + 1] = [before, table, after]


def unbroken_code(app: Sphinx, doctree: nodes.document) -> None:
    """Short pieces of code in a sentence stay on one line: `--explain` is not broken after its hyphens."""
    for literal in doctree.findall(nodes.literal):
        if len(literal.astext()) <= LONG:
            literal["classes"].append("short")


def external_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Remember the addresses outside the site; `make docs` lists them and fetches none."""
    found = {node["refuri"] for node in doctree.findall(nodes.reference) if "://" in node.get("refuri", "")}
    EXTERNAL.update(dict.fromkeys(found, docname))


def list_external_links(app: Sphinx, error: Exception | None) -> None:
    text = "".join(f"{address}\t{docname}\n" for address, docname in sorted(EXTERNAL.items()))
    (Path(app.outdir) / "external-links.txt").write_text(text, "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", optional_pages)
    app.connect("source-read", included)
    app.connect("source-read", repository_links)
    app.connect("source-read", generated_pages)
    app.connect("source-read", page_titles)
    app.connect("source-read", file_titles)
    app.connect("doctree-read", scrolling_tables)
    app.connect("doctree-read", unbroken_code)
    app.connect("doctree-resolved", external_links)
    app.connect("build-finished", list_external_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
