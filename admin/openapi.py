"""The OpenAPI 3.1 document, made from the routes and the msgspec types of their bodies. `make docs` writes it.

It is committed as `docs/openapi.json`; a test compares that with the code.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from types import UnionType
from typing import Any, Final, get_args

import msgspec

from admin.authentication.auth import Role
from admin.http.exchange import WITHOUT_BODY
from admin.http.problems import ProblemBody
from admin.http.routing import EVENT_STREAM, JSON, Parameter, Route

PROBLEM: Final = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
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


IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Sent again with the same key, the same request gets the same answer for 24 h, and changes nothing again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"},
    "example": "6f1c03aa-incident-12",
}
LAST_EVENT_ID: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The last `id` that was read: what came after it is sent first. Browsers send it by themselves.",
    "schema": {"type": "string"},
    "example": "6f1c03aa-17",
}
PATH_EXAMPLES: Final = {
    "topic": "orders", "vhost": "/", "exchange": "orders", "routing_key": "order.created", "name": "orders", "revision": "41", "id": "7",
    "protocol": "rocketmq",
}  # fmt: skip
TAGS: Final = {  # by the first word of the path
    "limits": "Limits of topics and other keys: effective ones, and live changes of them.",
    "rules": "Rules of the configuration, and live changes of them.",
    "quotas": "Published quotas.",
    "history": "Every change, and the way back.",
    "audit": "Changes and attempts.",
    "topics": "Traffic by topic.",
    "connections": "Clients that are connected.",
    "listeners": "Addresses that clients connect to.",
    "series": "Points for charts.",
    "events": "What happens, as the log has it.",
    "stream": "What happens, live.",
    "log": "The gateway's own log.",
    "status": "The gateway as a whole.",
    "config": "The configuration.",
    "drain": "The end.",
    "session": "Signing in with a browser.",
    "tokens": "Who may ask.",
    "openapi": "This document.",
    "probes": "For supervisors and scrapers.",
    "dashboard": "For browsers.",
}
REFUSALS: Final = {  # status -> when; each is a problem
    400: "The request cannot be read.",
    401: "No good token.",
    403: "The token's role may not do this, or another site asks.",
    404: "There is no such thing.",
    405: "The path has other methods: `Allow` names them.",
    408: "The request took too long to arrive.",
    409: "It cannot be done now.",
    412: "It has changed since it was read.",
    413: "The body is too long.",
    415: "The body is not JSON, or compressed by something else than gzip.",
    421: "The Host header names another server.",
    422: "A parameter or the body says what cannot be.",
    428: "If-Match is missing.",
    429: "Too many requests without a good token.",
    431: "The request's head is too long.",
    500: "A fault of the gateway, or its state directory could not be written.",
    507: "The disk of the state directory is full. Nothing was changed.",
}
ALWAYS: Final = frozenset({400, 405, 408, 421, 422, 431, 500})  # what any request may get: an unknown parameter, or Host, or method ...
BUSY: Final = 503  # any request may get it, without a body: all connections are worked for (`server.py`)
RESPONSES: Final = {  # those that operations share, by name
    **{f"Problem{status}": {"description": when, "content": PROBLEM} for status, when in REFUSALS.items()},
    "Busy": {"description": "All connections are taken; the answer has no body. `Retry-After` says when to come back."},
    "TooManyStreams": {"description": "All streams are taken, or (without a body) all connections.", "content": PROBLEM},
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
            "description": "Limits, their live changes and history; the traffic through the gateway; the gateway as a process. In a path "
            "a name `.` or `..` is written `~.` or `~..`, because clients take segments of dots out of a path.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": RESPONSES,
        },
        "security": [{"token": []}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items() if name in {tag_of(route) for route in routes}],
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
    content: dict[str, dict[str, Any]] = {route.answer_type: {"schema": answer if answer is not None else NO_TYPE}}
    if route.answer_type == EVENT_STREAM:  # a text, in which JSON stands
        content[EVENT_STREAM] = {"schema": NO_TYPE, "x-snapshot": answer}
    if route.columns:
        content["text/csv"] = {"schema": NO_TYPE}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, **_example(PATH_EXAMPLES.get(name))}
        for name in re.findall(r"\{(\w+)\}", route.template)
    ]
    parameters += [_parameter(parameter) for parameter in route.parameters]
    if route.conditional:
        parameters.append(IF_MATCH)
    if route.method not in ("GET", "HEAD") and not route.answers_secret:
        parameters.append(IDEMPOTENCY_KEY)
    if route.answer_type == EVENT_STREAM:
        parameters.append(LAST_EVENT_ID)
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.summary,
        "tags": [tag_of(route)],
        "x-role": route.role.word,
        "responses": {
            **{str(status): _response(status, content) for status in route.statuses},
            **{str(status): {"$ref": f"#/components/responses/{name}"} for status, name in _refusals(route).items()},
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": route.body_required, "content": {JSON: {"schema": body}}}
    if route.role is Role.NOBODY:
        operation["security"] = []
    return operation


def _response(status: int, content: dict[str, Any]) -> dict[str, Any]:
    if status in WITHOUT_BODY:
        return {"description": "Done." if status < 300 else "It is what `If-None-Match` names."}
    return {"description": "Done." if status < 300 else "Not now.", "content": content}


def tag_of(route: Route) -> str:
    """The first word of the path: `limits` of /v1/limits/rocketmq/{topic}."""
    words = re.findall(r"\w+", route.template.removeprefix("/v1"))
    if route.template.startswith("/v1/"):
        return str(words[0])
    return "dashboard" if route.any_query else "probes"


def _refusals(route: Route) -> dict[int, str]:
    """The statuses other than the route's own that it may answer, each with the name of its response.

    All are named one by one: with a `default` beside them nothing that a server answers would be undeclared.
    """
    found = ALWAYS | set(route.refusals)
    if route.role is not Role.NOBODY:
        found |= {401, 403, 429}
    if "{" in route.template:
        found |= {404}
    if route.method not in ("GET", "HEAD"):
        found |= {403, 409}
    if route.body is not None:
        found |= {413, 415}
    if route.conditional:
        found |= {412, 428, 507}
    names = {status: f"Problem{status}" for status in sorted(found)}
    names[BUSY] = "TooManyStreams" if route.answer_type == EVENT_STREAM else "Busy"
    return {status: name for status, name in names.items() if status not in route.statuses}


def _example(value: object) -> dict[str, Any]:
    return {} if value is None else {"example": value}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema = dict(KINDS[parameter.kind])
    if parameter.most:
        schema["maximum"] = parameter.most
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    described = {"name": parameter.name, "in": "query", "required": False, "description": parameter.summary, "schema": schema}
    return described | _example(parameter.example)


def _name(route: Route) -> str:
    """`put_limits_rocketmq_topic`: stable, one per method and path."""
    words = re.findall(r"\w+", route.template.removeprefix("/v1")) or ["front_page"]
    if route.any_query and words[0] not in ("dashboard", "front_page"):
        words.insert(0, "page")  # /topics is a page, /v1/topics what it shows
    return "_".join([route.method.lower(), *words])


def encode(routes: list[Route]) -> bytes:
    """The document as it is committed."""
    return msgspec.json.format(msgspec.json.encode(document(routes)), indent=1) + b"\n"
