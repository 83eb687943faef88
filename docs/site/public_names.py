"""The reference of Python names from docstrings.

`{{names fewlink load Linker}}` describes these names of a package, and `{{names fewlink.tasks}}` all that it exports
and `fewlink` itself does not. Docstrings are Markdown with code in backticks; types in signatures lead to the public
name of the same class.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

MARK = re.compile(r"^\{\{names (\S+)((?: \w+)*)\}\}$", re.MULTILINE)


def exported(package: str) -> list[str]:
    """The public classes and functions of a package, without those that `fewlink` exports."""
    module = importlib.import_module(package)
    above = set() if package == "fewlink" else set(importlib.import_module("fewlink").__all__)
    names = sorted(set(module.__all__) - above, key=str.lower)
    return [name for name in names if inspect.isclass(found := getattr(module, name)) or inspect.isfunction(found)]


def described(package: str, names: list[str]) -> str:
    """The directives that describe names of a package."""
    module = importlib.import_module(package)
    lines = ["```{eval-rst}", f".. py:currentmodule:: {package}", ""]
    for name in names:
        if inspect.isclass(getattr(module, name)):
            lines += [f".. autoclass:: {package}.{name}", "   :members:", ""]
        else:
            lines += [f".. autofunction:: {package}.{name}", ""]
    return "\n".join([*lines, "```"])


def fill(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = MARK.sub(lambda match: described(match[1], match[2].split() or exported(match[1])), source[0])


def restructured(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A docstring as reStructuredText: code in backticks, columns of names and their meaning, all else literally."""
    paragraphs = "\n".join(lines).split("\n\n")
    lines[:] = "\n\n".join(columns(text) or marked(text) for text in paragraphs).splitlines()


def columns(paragraph: str) -> str:
    """A paragraph of names, each with its meaning in a second column, as a list; empty if it is not one."""
    found = re.match(r"(\w[\w, ]*?)  +(?=\S)", paragraph)
    if not found:
        return ""
    items: list[str] = []
    for line in paragraph.splitlines():
        name, meaning = line[: found.end()].strip(), marked(line[found.end() :])
        items += [f":{name}: {meaning}"] if name else [f"    {meaning}"]
    return "\n".join(items)


def marked(text: str) -> str:
    """Text with code in double backticks, and with signs that reStructuredText would read escaped."""
    pieces = re.split(r"(`[^`]+`)", text)
    pieces[::2] = [re.sub(r"([*|\\]|_(?=\W|$))", r"\\\1", piece) for piece in pieces[::2]]
    pieces[1::2] = [f"`{piece}`" for piece in pieces[1::2]]
    return "".join(pieces)


def public_name(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement) -> nodes.Node | None:
    """A type in a signature: leads to the public name with its last part, or is plain text if there is none."""
    if node["refdomain"] != "py" or node.get("refexplicit"):
        return None
    last = node["reftarget"].rpartition(".")[2]
    for full, entry in env.domains.python_domain.objects.items():
        if full.rpartition(".")[2] == last and entry.objtype in ("class", "function", "exception"):
            place = app.builder.get_relative_uri(node["refdoc"], entry.docname)
            return nodes.reference("", "", text, internal=True, refuri=f"{place}#{full}", reftitle=full)
    return text


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", restructured)
    app.connect("missing-reference", public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
