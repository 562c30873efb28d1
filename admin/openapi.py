"""The OpenAPI 3.1 document, made from the routes and the msgspec types of their bodies. `make docs` writes it.

It is committed as `docs/openapi.json`; a test compares that with the code.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from types import UnionType
from typing import Any, Final, get_args

import msgspec

from admin.auth import Role
from admin.problems import ProblemBody
from admin.routing import JSON, Parameter, Route

VERSION: Final = "1"  # of the API: the /v1 of its paths
NO_TYPE: Final = {"type": "string"}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "text": {"type": "string"},
    "flag": {"type": "string", "enum": ["0", "1", "true", "false"]},
    "count": {"type": "integer", "minimum": 1},
}
IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "ETag of the value that was read; * for any. Without it, ?force=1 is needed (428).",
    "schema": {"type": "string"},
}


def document(routes: list[Route]) -> dict[str, Any]:
    """The whole document. Deterministic: the order is that of `routes`."""
    types = [kind for route in routes for kind in (*_alternatives(route.answer), *_alternatives(route.body))]
    schemas, components = msgspec.json.schema_components([*types, ProblemBody], ref_template="#/components/schemas/{name}")
    for component in components.values():
        component["description"] = cleandoc(component.get("description", ""))
    by_type = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        answers = [next(by_type) for _ in _alternatives(route.answer)]
        bodies = [next(by_type) for _ in _alternatives(route.body)]
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, _one_of(answers), _one_of(bodies))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sluice admin API",
            "version": VERSION,
            "description": "Limits, their live changes and history; the traffic through the gateway; the gateway as a process.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "problem": {
                    "description": "The request failed (RFC 9457).",
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
                }
            },
        },
        "security": [{"token": []}],
    }


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union one by one: msgspec makes no schema of a union of untagged structs."""
    if kind is None:
        return ()
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _one_of(schemas: list[dict[str, Any]]) -> dict[str, Any] | None:
    if len(schemas) > 1:
        return {"anyOf": schemas}
    return schemas[0] if schemas else None


def _operation(route: Route, answer: dict[str, Any] | None, body: dict[str, Any] | None) -> dict[str, Any]:
    content = {route.answer_type: {"schema": answer if answer is not None else NO_TYPE}}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in re.findall(r"\{(\w+)\}", route.template)
    ]
    parameters += [_parameter(parameter) for parameter in route.parameters]
    if route.conditional:
        parameters.append(IF_MATCH)
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.summary,
        "x-role": route.role.word,
        "responses": {
            **{str(status): {"description": "Done." if status < 300 else "Not now.", "content": content} for status in route.statuses},
            "default": {"$ref": "#/components/responses/problem"},
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": route.body_required, "content": {JSON: {"schema": body}}}
    if route.role is Role.NOBODY:
        operation["security"] = []
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema = dict(KINDS[parameter.kind])
    if parameter.most:
        schema["maximum"] = parameter.most
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    return {"name": parameter.name, "in": "query", "required": False, "description": parameter.summary, "schema": schema}


def _name(route: Route) -> str:
    """`put_limits_rocketmq_topic`: stable, one per method and path."""
    words = re.findall(r"\w+", route.template.removeprefix("/v1")) or ["front_page"]
    return "_".join([route.method.lower(), *words])


def encoded(routes: list[Route]) -> bytes:
    """The document as it is committed."""
    return msgspec.json.format(msgspec.json.encode(document(routes)), indent=1) + b"\n"
