"""STIX 2.1 bundles, MITRE's or any others: objects become entities with names and types, relationships triples.

Names follow the built-in graph `attack`. The id of an entity is its public id (G0082) if it has one, or else its STIX
id. A relation is `<type>_<verb>_<type>`, such as `group_uses_malware`. Platforms and tactics of ATT&CK's objects become
entities and triples too. Revoked and deprecated objects are left out together with their relationships.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fewlink.core.errors import InputError, unique_keys
from fewlink.graph.plain import COMPRESSIONS, WHOLE_FACTOR, bounded, opened
from fewlink.graph.tables import Reader

SUFFIX = ".json"
KINDS = {"attack-pattern": "technique", "intrusion-set": "group", "course-of-action": "mitigation"}
CAPEC_KIND = "attack_pattern"  # the kind of an attack-pattern with a CAPEC id
PUBLIC_SOURCES = ("mitre", "capec", "cwe")  # prefixes of sources whose ids become entity ids
NOT_ENTITIES = {"relationship", "sighting", "bundle", "marking-definition", "extension-definition", "language-content"}
BEGIN = re.compile(rb'\s*\{.{0,2000}?"type"\s*:\s*"bundle"', re.DOTALL)
MAX_LISTED_IDS = 3  # in a remark

Triple = tuple[str, str, str]


def read_stix(reader: Reader) -> None:
    """Read a STIX bundle, with the names and types of its entities."""
    reader.reject_columns()
    bundle = read_bundle(reader.path, lambda problem: reader.bad(problem, None))
    reader.facts.notes += bundle.remarks()
    for triple in bundle.triples:
        if not all(triple):
            reader.bad(f"links '{triple[0]}' to '{triple[2]}' by '{triple[1]}', one of which has no name", None)
    reader.add_fields([_utf8(name) for triple in bundle.triples if all(triple) for name in triple])
    reader.add_labels([(_utf8(name), 0, _utf8(text)) for name, text in bundle.names.items()])
    reader.add_kinds([(_utf8(name), _utf8(kind)) for name, kind in bundle.kinds.items()])


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # JSON may hold a lone surrogate


@dataclass
class Bundle:
    """The triples and entities of a bundle.

    `names`, `kinds` and `refs` (STIX ids) are by entity; entities made from properties, such as platforms, have no ref.
    `objects` are all objects by STIX id, in their last modified versions.
    `left_out` lists the STIX ids of objects that are not in the graph, by reason.
    """

    triples: list[Triple] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, reason: str, identifier: str) -> None:
        """Record that an object is not in the graph, and why."""
        self.left_out.setdefault(reason, []).append(identifier)

    def remarks(self) -> list[str]:
        """A line for each reason to leave objects out."""
        lines = []
        for reason, ids in self.left_out.items():
            listed = ", ".join(ids[:MAX_LISTED_IDS]) + (", …" if len(ids) > MAX_LISTED_IDS else "")
            lines.append(f"left out, {reason}: {len(ids):,} ({listed})")
        return lines


def is_bundle(path: Path) -> bool:
    """Whether a file, plain or compressed, has the suffix and the beginning of a bundle."""
    name = path.with_suffix("").name if path.suffix.lower() in COMPRESSIONS else path.name
    if not name.lower().endswith(SUFFIX) or not path.is_file():
        return False
    return BEGIN.match(_read(path, 1 << 12).removeprefix(b"\xef\xbb\xbf")) is not None


def _read(path: Path, size: int = -1) -> bytes:
    """The first `size` bytes of a file, or all of them, decompressed."""
    with opened(path) as file:
        return bounded(file, path, WHOLE_FACTOR).read(size)


def read_bundle(path: Path, on_problem: Callable[[str], None] | None = None) -> Bundle:
    """Read a bundle. Calls `on_problem` with each problem of an object; by default a problem raises."""

    def stop(problem: str) -> None:
        raise InputError(path, problem)

    report = on_problem or stop
    bundle = Bundle()
    try:
        content = json.loads(_read(path), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not valid JSON ({error})") from None
    if not isinstance(content, dict) or not isinstance(content.get("objects", []), list):
        raise InputError(path, "is not a STIX bundle: it must be a JSON object with a list 'objects'")
    objects = bundle.objects = _by_id(content.get("objects", []), report)
    entity_of = _add_entities(bundle, objects)
    tactics = {
        str(each.get("x_mitre_shortname")): entity_of[each["id"]]
        for each in objects.values()
        if each["type"] == "x-mitre-tactic" and each["id"] in entity_of
    }
    for each in objects.values():
        if each["type"] == "relationship":
            _add_relationship(bundle, each, objects, entity_of, report)
        elif each["id"] in entity_of:
            _add_attributes(bundle, each, entity_of[each["id"]], tactics)
    return bundle


def _by_id(objects: list[Any], report: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """The objects by id, each in its last modified version."""
    latest: dict[str, dict[str, Any]] = {}
    for number, each in enumerate(objects, 1):
        if not isinstance(each, dict) or not all(isinstance(each.get(key), str) for key in ("type", "id")):
            name = each.get("id", f"number {number}") if isinstance(each, dict) else f"number {number}"
            report(f"object {name} has no type or no id")
        elif _modified(each) >= _modified(latest.get(each["id"], {})):
            latest[each["id"]] = each
    return latest


def _modified(each: dict[str, Any]) -> str:
    """The time of an object's last change, as text that sorts by time with or without fractions of a second."""
    return str(each.get("modified", "")).rstrip("Zz")


def _add_entities(bundle: Bundle, objects: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Add all entities to the bundle, and return the entity of each STIX id."""
    entity_of: dict[str, str] = {}
    for identifier, each in objects.items():
        if each["type"] in NOT_ENTITIES:
            continue
        if _is_retired(each):
            bundle.leave_out("objects that are revoked or deprecated", identifier)
            continue
        public = _public_id(each)
        entity = public if public and public not in bundle.names else identifier
        entity_of[identifier] = entity
        _add_entity(bundle, entity, str(each.get("name") or each.get("value") or entity), _kind(each, public))
        bundle.refs[entity] = identifier
    return entity_of


def _add_entity(bundle: Bundle, entity: str, name: str, kind: str) -> None:
    bundle.names.setdefault(entity, " ".join(name.split()) or entity)
    bundle.kinds.setdefault(entity, kind)


def _add_relationship(
    bundle: Bundle,
    each: dict[str, Any],
    objects: dict[str, dict[str, Any]],
    entity_of: dict[str, str],
    report: Callable[[str], None],
) -> None:
    required = ("relationship_type", "source_ref", "target_ref")
    missing = next((key for key in required if not (isinstance(each.get(key), str) and each[key])), None)
    if missing:
        return report(f"object {each['id']} is a relationship without {missing}")
    ends = (each["source_ref"], each["target_ref"])
    if _is_retired(each) or any(end in objects and _is_retired(objects[end]) for end in ends):
        return bundle.leave_out("relationships that are revoked or deprecated, or link such an object", each["id"])
    if not all(end in entity_of for end in ends):
        return bundle.leave_out("relationships that link an object outside the bundle", each["id"])
    head, tail = (entity_of[end] for end in ends)
    relation = f"{bundle.kinds[head]}_{_word(each['relationship_type'])}_{bundle.kinds[tail]}"
    bundle.triples.append((head, relation, tail))


def _add_attributes(bundle: Bundle, each: dict[str, Any], entity: str, tactics: dict[str, str]) -> None:
    """Add the platforms and tactics of an object; a tactic that is no object of the bundle is made from its name."""
    for name in _texts(each.get("x_mitre_platforms")):
        platform = f"platform:{_word(name.lower())}"
        _add_entity(bundle, platform, name, "platform")
        bundle.triples.append((entity, f"{bundle.kinds[entity]}_runs_on_platform", platform))
    phases = each.get("kill_chain_phases")
    for phase in phases if isinstance(phases, list) else []:
        name = str(phase.get("phase_name") or "") if isinstance(phase, dict) else ""
        if name:
            tactic = tactics.get(name, f"tactic:{_word(name)}")
            _add_entity(bundle, tactic, name, "tactic")
            bundle.triples.append((entity, f"{bundle.kinds[entity]}_serves_tactic", tactic))


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str) and each] if isinstance(value, list) else []


def _is_retired(each: dict[str, Any]) -> bool:
    return bool(each.get("revoked") or each.get("x_mitre_deprecated"))


def _public_id(each: dict[str, Any]) -> str | None:
    """The id that analysts use for an object, such as T1059."""
    references = each.get("external_references")
    for reference in references if isinstance(references, list) else []:
        if isinstance(reference, dict) and str(reference.get("source_name", "")).lower().startswith(PUBLIC_SOURCES):
            number = reference.get("external_id")
            if isinstance(number, str) and number and not any(map(str.isspace, number)):
                return number
    return None


def _kind(each: dict[str, Any], public: str | None) -> str:
    if each["type"] == "attack-pattern" and (public or "").startswith("CAPEC"):
        return CAPEC_KIND
    return KINDS.get(each["type"], _word(each["type"].removeprefix("x-mitre-")))


def _word(text: str) -> str:
    return re.sub(r"[^\w]+", "_", text).strip("_")
