"""What the pages need besides Markdown: links out of the folder, pages that may be missing, tables that scroll."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

REPOSITORY = "https://github.com/fewlink/fewlink/blob/main/"
LINK = re.compile(r"\]\(([^()\s]+)\)")


def included(app: Sphinx, docname: str, source: list[str]) -> None:
    """`<!-- include PATH -->` is another Markdown file, with its links as seen from here."""
    here = Path(app.srcdir) / Path(docname).parent

    def text(match: re.Match[str]) -> str:
        path = Path(os.path.normpath(here / match[1]))
        app.env.note_dependency(str(path))

        def moved(link: re.Match[str]) -> str:
            if "://" in link[1] or link[1].startswith("#"):
                return link[0]
            return f"]({Path(os.path.relpath(path.parent / link[1], here)).as_posix()})"

        return LINK.sub(moved, path.read_text("utf-8"))

    source[0] = re.sub(r"^<!-- include (\S+) -->$", text, source[0], flags=re.MULTILINE)


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
    """Every table in a box of its own that scrolls sideways, reachable by keyboard."""
    for table in list(doctree.findall(nodes.table)):
        before = nodes.raw("", '<div class="wide" tabindex="0" role="region" aria-label="table">', format="html")
        place, after = table.parent, nodes.raw("", "</div>", format="html")
        position = place.index(table)
        place[position : position + 1] = [before, table, after]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", optional_pages)
    app.connect("source-read", included)
    app.connect("source-read", file_titles)
    app.connect("source-read", repository_links)
    app.connect("doctree-read", scrolling_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
