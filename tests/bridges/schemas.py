"""JSON schemas of the Reconciliation Service API 0.2, written after the text of its specification.

They are stricter than the text where this service promises more: an object has no fields that are not specified.
"""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
NAMED: dict[str, Any] = {"type": "string", "minLength": 1}


def objects(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def lists(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def maps(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


TYPE = objects({"id": TEXT, "name": NAMED}, {"description": TEXT, "broader": lists({"type": "object"})})
TEMPLATE = {"type": "string", "pattern": r"^https?://.*\{\{id\}\}.*"}
URL = {"type": "string", "pattern": "^https?://"}
SERVICE = objects({"service_url": URL, "service_path": {"type": "string", "pattern": "^/"}})


def setting(kind: str, default: dict[str, Any], more: dict[str, Any] | None = None) -> dict[str, Any]:
    fixed = {"type": {"enum": [kind]}, "label": NAMED, "name": NAMED, **(more or {})}
    return objects(fixed, {"default": default, "help_text": TEXT})


CHOICES = {"choices": lists(objects({"value": TEXT, "name": TEXT}))}
MANIFEST = objects(
    {
        "versions": lists(TEXT, contains={"enum": ["0.2"]}),
        "name": NAMED,
        "identifierSpace": {"type": "string", "pattern": "^[a-z]+:"},
        "schemaSpace": {"type": "string", "pattern": "^[a-z]+:"},
    },
    {
        "documentation": URL,
        "logo": URL,
        "serviceVersion": TEXT,
        "defaultTypes": lists(TYPE, uniqueItems=True),
        "view": objects({"url": TEMPLATE}),
        "feature_view": objects({"url": TEMPLATE}),
        "preview": objects({"url": TEMPLATE, "width": {"type": "integer"}, "height": {"type": "integer"}}),
        "suggest": objects({}, dict.fromkeys(("entity", "property", "type"), SERVICE)),
        "extend": objects(
            {},
            {
                "propose_properties": SERVICE,
                "property_settings": lists(
                    {
                        "oneOf": [
                            setting("number", {"type": "number"}),
                            setting("text", TEXT),
                            setting("checkbox", {"type": "boolean"}),
                            setting("select", TEXT, CHOICES),
                        ]
                    }
                ),
            },
        ),
        "batchSize": {"type": "integer", "minimum": 1},
        "authentication": objects({"type": {"enum": ["apiKey"]}, "name": NAMED, "in": {"enum": ["query", "header"]}}),
    },
)
FEATURE = objects({"id": NAMED, "value": {"type": ["boolean", "number"]}})
CANDIDATE = objects(
    {"id": NAMED, "name": NAMED, "score": {"type": "number"}},
    {"description": TEXT, "features": lists(FEATURE), "match": {"type": "boolean"}, "type": lists(TYPE)},
)
RESULTS = maps(objects({"result": lists(CANDIDATE)}))
SUGGESTED_ENTITIES = objects(
    {"result": lists(objects({"id": NAMED, "name": NAMED}, {"description": TEXT, "notable": lists(TYPE)}))}
)
SUGGESTED_TYPES = objects({"result": lists(TYPE)})
SUGGESTED_PROPERTIES = objects({"result": lists(objects({"id": NAMED, "name": NAMED}, {"description": TEXT}))})
PROPOSED = objects(
    {"properties": lists(objects({"id": NAMED, "name": NAMED}, {"description": TEXT})), "type": TEXT},
    {"limit": {"type": "integer"}},
)
CELL = {
    "oneOf": [
        objects({}),
        objects({"id": NAMED, "name": NAMED}, {"description": TEXT}),
        objects({"str": TEXT}),
        objects({"float": {"type": "number"}}),
        objects({"int": {"type": "integer"}}),
        objects({"date": TEXT}),
    ]
}
EXTENDED = objects(
    {
        "meta": lists(objects({"id": NAMED, "name": NAMED}, {"type": objects({"id": TEXT}, {"name": TEXT})})),
        "rows": maps(maps(lists(CELL))),
    }
)
