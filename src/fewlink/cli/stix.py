"""The command `fewlink data to-stix`."""

from __future__ import annotations

from pathlib import Path

import typer


def to_stix(
    links: Path = typer.Argument(
        ..., metavar="FILE", help="Accepted links: head, relation, tail and optionally a probability per line."
    ),
    bundle: Path = typer.Option(..., help="The STIX bundle with the objects that these links join."),
    out: Path = typer.Option(..., help="The bundle to write; an existing file is replaced."),
    author: str = typer.Option("fewlink", help="Name of the identity that creates the relationships."),
    note: str = typer.Option(
        "Suggested by fewlink from links of the graph, and accepted by a person.",
        help="Description of the relationships.",
    ),
) -> None:
    """Write accepted links as STIX 2.1 relationships, with a confidence from 0 to 100, their author and their objects.

    Example: `fewlink data to-stix accepted.tsv --bundle enterprise-attack.json --out accepted.json`
    """
    from fewlink.core.files import write_json
    from fewlink.curation.stix import read_links, relationships
    from fewlink.curation.store import now
    from fewlink.graph.formats.stix import read_bundle

    written = relationships(read_links(links), read_bundle(bundle), author=author, note=note, now=now())
    write_json(out, written)
    count = sum(each["type"] == "relationship" for each in written["objects"])
    print(f"{out}: {count:,} relationships")
