"""Links as a STIX 2.1 bundle: relationships with confidence and author, and the objects that they join.

Ids depend on content alone: a link of one author has the same id in every export, so that platforms such as OpenCTI
update it. What versions of an object share (STIX 2.1, section 3.6), its author and its time of creation, never differs.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fewlink.core.errors import FewlinkError, UnknownName, did_you_mean
from fewlink.graph.stix import CAPEC_KIND, KINDS, Bundle

NAMESPACE = uuid.UUID("3142d46c-2289-5e59-9278-44eb5bd8ee53")  # fewlink's own: STIX reserves another one, section 2.9
TYPES = {kind: type for type, kind in KINDS.items()} | {CAPEC_KIND: "attack-pattern"}
NAMED_TYPES = (  # types of STIX whose objects need a name and nothing that a graph lacks
    "attack-pattern",
    "campaign",
    "course-of-action",
    "identity",
    "infrastructure",
    "intrusion-set",
    "malware",
    "threat-actor",
    "tool",
    "vulnerability",
)
PUBLIC_IDS = {  # sources of public ids, as MITRE's bundles name them
    "mitre-attack": re.compile(r"[A-Z]{1,3}\d{4}(\.\d{3})?"),
    "capec": re.compile(r"CAPEC-\d+"),
    "cwe": re.compile(r"CWE-\d+"),
    "cve": re.compile(r"CVE-\d{4}-\d+"),
}
EARLIEST = "1970-01-01T00:00:00.000Z"  # when objects without a time were created: the same in every export
TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z")


@dataclass(frozen=True)
class Link:
    """A link to write, in the graph's names; its probability is None if unknown, its curator and times empty.

    `created` is when the curator first decided so, `time` when last.
    """

    head: str
    relation: str
    tail: str
    probability: float | None = None
    who: str = ""
    time: str = ""
    created: str = ""


def made_bundle(entities: Iterable[tuple[str, str, Sequence[str]]]) -> Bundle:
    """A bundle of objects made from entities (id, name, types); an entity of no type of STIX becomes no object."""
    bundle = Bundle()
    for entity, name, kinds in entities:
        bundle.names[entity] = name
        bundle.kinds[entity] = kinds[0] if kinds else ""
        types = ((kind, TYPES.get(kind, kind.lower().replace("_", "-"))) for kind in kinds)
        kind, type = next((each for each in types if each[1] in NAMED_TYPES), ("", ""))
        if not type:
            continue
        made: dict[str, Any] = {
            "type": type,
            "spec_version": "2.1",
            "id": _made_id(type, entity),
            "created": EARLIEST,
            "modified": EARLIEST,
            "name": name,
        }
        if type == "malware":
            made["is_family"] = True
        source = next((source for source, form in PUBLIC_IDS.items() if form.fullmatch(entity)), None)
        if source:
            made["external_references"] = [{"source_name": source, "external_id": entity}]
        bundle.kinds[entity] = kind
        bundle.refs[entity] = made["id"]
        bundle.objects[made["id"]] = made
    return bundle


def relationships(links: Sequence[Link], bundle: Bundle, *, note: str, now: str) -> dict[str, Any]:
    """A bundle of relationships between objects of another bundle, with these objects.

    The curator of a link is its author, or else the system "fewlink"; a link without a time was modified `now`. Of
    links that are one relationship of STIX, such as those of relations `Uses` and `uses`, the last is written.
    """
    identities: dict[str, dict[str, Any]] = {}
    written: dict[str, dict[str, Any]] = {}
    kinds = {bundle.kinds.get(end, "") for link in links for end in (link.head, link.tail)}
    for link in links:
        source = _ref(bundle, link.head)
        target = _ref(bundle, link.tail)
        verb = _verb(link.relation, kinds)
        created = _time(link.created) or EARLIEST
        maker = _identity(link.who, "individual") if link.who else _identity("fewlink", "system")
        identities[maker["id"]] = maker
        relationship: dict[str, Any] = {
            "type": "relationship",
            "spec_version": "2.1",
            "created": created,
            "modified": max(created, _time(link.time) or _time(now)),
            "id": _made_id("relationship", f"{source} {verb} {target} {maker['id']}"),
            "created_by_ref": maker["id"],
            "relationship_type": verb,
            "source_ref": source,
            "target_ref": target,
            "description": note,
            "labels": ["fewlink"],
        }
        if link.probability is not None:
            relationship["confidence"] = round(100 * link.probability)
        written[relationship["id"]] = relationship
    objects = [*identities.values(), *written.values(), *_joined(written.values(), bundle)]
    content = " ".join(f"{each['id']} {each.get('modified', '')}" for each in objects)
    return {"type": "bundle", "id": _made_id("bundle", content), "objects": objects}


def _identity(name: str, kind: str) -> dict[str, Any]:
    return {
        "type": "identity",
        "spec_version": "2.1",
        "created": EARLIEST,
        "modified": EARLIEST,
        "id": _made_id("identity", name if kind == "system" else f"{kind} {name}"),
        "name": name,
        "identity_class": kind,
    }


def _joined(written: Collection[dict[str, Any]], bundle: Bundle) -> Iterator[dict[str, Any]]:
    """The objects that relationships join, then their authors and markings, as far as the bundle has them."""
    wanted = dict.fromkeys(each[end] for each in written for end in ("source_ref", "target_ref"))
    for identifier in list(wanted):
        each = bundle.objects[identifier]
        markings = each.get("object_marking_refs")
        for other in [each.get("created_by_ref"), *(markings if isinstance(markings, list) else [])]:
            if isinstance(other, str) and other in bundle.objects:
                wanted[other] = None
    return (bundle.objects[identifier] for identifier in wanted)


def _ref(bundle: Bundle, entity: str) -> str:
    """The STIX id of an entity. Raise if the bundle lacks it, or has it only as a property of objects."""
    if entity in bundle.refs:
        return bundle.refs[entity]
    if kind := bundle.kinds.get(entity):
        raise FewlinkError(f"'{entity}' is a {kind}, which STIX has no object for: use another format for its links")
    if entity in bundle.names:
        raise FewlinkError(f"'{entity}' has no type, and STIX needs one: give the graph types such as malware or tool")
    raise UnknownName(f"unknown entity '{entity}': the bundle lacks it{did_you_mean(entity, bundle.refs)}")


def _verb(relation: str, kinds: Iterable[str]) -> str:
    """The verb of a relation: `uses` for `group_uses_malware`; a relation of another form is its own verb."""
    kind = "|".join(map(re.escape, kinds))
    middle = re.fullmatch(f"(?:{kind})[_ ](.+)[_ ](?:{kind})", relation)
    verb = re.sub(r"[\W_]+", "-", (middle[1] if middle else relation).lower()).strip("-")
    if not verb or not verb.isascii():
        raise FewlinkError(
            f"STIX needs a relation in the letters a to z, not '{relation}': give one, as in --relation uses"
        )
    return verb


def _time(text: str) -> str:
    """A time in UTC with milliseconds; empty if the text is not a time."""
    found = TIME.fullmatch(text)
    return f"{found[1]}.{((found[2] or '.') + '000')[1:4]}Z" if found else ""


def _made_id(kind: str, content: str) -> str:
    return f"{kind}--{uuid.uuid5(NAMESPACE, content)}"
