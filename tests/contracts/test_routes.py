"""Every route of the admin API: who may ask it, that it is documented as it is served, and that no other site can make a browser ask it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from admin.authentication.auth import FORGIVE_EVERY_NS, Role
from admin.dashboard import PAGES
from admin.endpoints import ROUTES, level_limits
from admin.http.routing import Route, Router
from admin.openapi import document, encode
from support.admin.admin_client import TOKENS, Control, Reply, control, folder_in_memory
from support.cases import cases

pytestmark = pytest.mark.slow  # a gateway, and requests of every kind

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
EXAMPLES = {
    "protocol": "rocketmq",
    "topic": "orders",
    "vhost": "%2F",
    "exchange": "orders",
    "routing_key": "order.created",
    "name": "rocketmq-topics",
    "revision": "0",
    "id": "7",
    "client": "10.0.0.7",
    "user": "shop",
    "listener": "rocket",
    "group": "billing",
    "namespace": "team",
    "queue": "jobs",
}
LEVELS = (
    "limits/client/{client}", "limits/user/{user}", "limits/listener/{listener}", "limits/vhost/{vhost}",
    "limits/exchange/{vhost}/{exchange}", "limits/group/{group}", "limits/namespace/{namespace}",
    "limits/consume/queue/{vhost}/{queue}", "limits/consume/rocketmq/{topic}", "limits/consume/client/{client}",
    "limits/consume/user/{user}", "limits/consume/listener/{listener}", "limits/consume/vhost/{vhost}", "limits/consume/group/{group}",
    "limits/consume/namespace/{namespace}", "limits/requeue/queue/{vhost}/{queue}",
    *(f"limits/requeue/{who}/{{{who}}}" for who in ("client", "user", "listener", "vhost", "group")),
)  # fmt: skip
QUOTAS = {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "1", "quotas": []}
ROLES = ["nobody", "viewer", "operator", "admin"]
ENDLESS = "/v1/stream"  # whose body has no end: tests ask for its head


def name_of(route: Route) -> str:
    return f"{route.method} {route.template}"


def path_of(route: Route) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: EXAMPLES[found[1]], route.template)


def body_of(route: Route) -> Any:
    if route.body is None:
        return None
    if "quotas" in route.template and route.method == "PUT":
        return QUOTAS
    if route.template == "/v1/session":
        return {"token": TOKENS["viewer"]}
    if route.template == "/v1/log/level":
        return {"level": "debug", "for": "10min"}
    body = (get_args(route.body) or (route.body,))[0]
    return {
        "LimitBody": {"messages": "5/s"}, "ConfirmBody": {"confirm": True}, "ReasonBody": {"reason": "test"}, "RotateBody": {},
        "NewTokenBody": {"name": "new", "role": "viewer"},
        "LiveChangesBody": {"changes": {"limits/rocketmq/orders": {"messages": "5/s"}}},
    }[body.__name__]  # fmt: skip


LIVE_CHANGES: dict[str, Any] = {}  # what `prepare` makes, once one by one, and then all by one request


async def prepare(api: Control) -> None:
    """Something there for every path to be about."""
    api.gateway.open_connections = [{"id": 7, "client": "127.0.0.1:5", "state": "open"}]
    if LIVE_CHANGES:
        assert (await api.ask("PUT", "/v1/live-changes?force=1", {"changes": LIVE_CHANGES})).status == 200
    else:
        change = {"messages": "9/s", "candidate": {"messages": "8/s"}}
        level_paths = [path_of(route) for route in ROUTES if route.handler is level_limits.delete]
        for path in ("/v1/limits/rocketmq/orders", "/v1/limits/amqp/%2F/orders/order.created", "/v1/rules/rocketmq-topics", *level_paths):
            assert (await api.ask("PUT", f"{path}?force=1", change)).status == 200
        LIVE_CHANGES.update((await api.ask("GET", "/v1/live-changes")).json()["changes"])
    assert (await api.ask("PUT", "/v1/quotas?force=1", QUOTAS)).status == 200
    assert (await api.ask("POST", "/v1/tokens", {"name": EXAMPLES["name"], "role": "viewer"})).status in {201, 409}


async def ask(api: Control, route: Route, role: str, query: str | None = None, headers: dict[str, str] | None = None) -> Reply:
    query = query if query is not None else ("?force=1" if route.conditional else "")
    method = "HEAD" if route.template == ENDLESS else route.method
    return await api.ask(method, path_of(route) + query, body_of(route), role=None if role == "nobody" else role, headers=headers)


@pytest.fixture
async def api(tmp_path: Path) -> Any:
    with folder_in_memory(tmp_path) as folder:
        async with control(folder) as running:
            await prepare(running)
            yield running


async def test_each_role_may_what_the_route_says_and_no_more(api: Control) -> None:
    with cases() as case:
        for number, route in enumerate(ROUTES):
            with case(name_of(route)):
                api.fail_at(number * FORGIVE_EVERY_NS)
                if "history/{revision}" in route.template and route.method == "GET":
                    EXAMPLES["revision"] = "1"
                else:
                    EXAMPLES["revision"] = "0"
                for role in ROLES:
                    before = (api.store.revision, api.gateway.drains, api.gateway.reloads, list(api.gateway.closed))
                    answer = await ask(api, route, role)
                    may = ROLES.index(role) >= route.role
                    if role == "nobody" and (route.method, route.template) == ("GET", "/v1/session"):
                        assert answer.status == 401, "nobody is who asks"
                    elif may:
                        assert answer.status in route.statuses, (role, answer.body)
                        if route.method != "GET":
                            await prepare(api)
                    else:
                        assert answer.status == (401 if role == "nobody" else 403), role
                        assert (api.store.revision, api.gateway.drains, api.gateway.reloads, api.gateway.closed) == before


CHANGING = [route for route in ROUTES if route.method != "GET"]


async def test_no_other_site_can_make_a_browser_ask(api: Control) -> None:
    with cases() as case:
        for route in CHANGING:
            with case(name_of(route)):
                before = (api.store.revision, api.gateway.drains, api.gateway.reloads, list(api.gateway.closed))
                for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
                    assert (await ask(api, route, "admin", headers=headers)).status == 403
                assert (await ask(api, route, "admin", headers={"Host": "evil.example"})).status == 421
                assert (api.store.revision, api.gateway.drains, api.gateway.reloads, api.gateway.closed) == before


CONDITIONAL = [route for route in ROUTES if route.conditional]


@pytest.mark.parametrize("route", CONDITIONAL, ids=name_of)
async def test_writes_of_the_state_need_if_match(api: Control, route: Route) -> None:
    EXAMPLES["revision"] = "0"
    before = api.store.revision
    assert (await ask(api, route, "admin", query="")).status == 428
    assert (await ask(api, route, "admin", query="", headers={"If-Match": '"stale"'})).status == 412
    dry = await ask(api, route, "admin", query="?dry_run=1")
    assert (dry.status, dry.json()["dry_run"], api.store.revision) == (200, True, before)
    assert (await ask(api, route, "admin", query="", headers={"If-Match": "*"})).status == 200
    assert api.store.revision == before + 1


READS = [route for route in ROUTES if route.method == "GET" and route.template.startswith("/v1") and route.template != ENDLESS]


async def test_reads_carry_an_etag_and_change_nothing(api: Control) -> None:
    EXAMPLES["revision"] = "1"
    with cases() as case:
        for route in READS:
            with case(name_of(route)):
                before = (api.store.revision, len(await api.store.lines(1 << 60, 500)))
                answer = await ask(api, route, "admin")
                assert re.fullmatch(r'"[0-9a-f]{32}"', answer.etag)
                assert (api.store.revision, len(await api.store.lines(1 << 60, 500))) == before


async def test_answers_are_as_documented(api: Control) -> None:
    described = json.loads(DOCUMENT.read_bytes())
    EXAMPLES["revision"] = "1"
    with cases() as case:
        for route in READS:
            with case(name_of(route)):
                operation = described["paths"][route.template]["get"]
                schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
                jsonschema.validate((await ask(api, route, "admin")).json(), {**schema, "components": described["components"]})


async def test_problems_are_as_documented(api: Control) -> None:
    described = json.loads(DOCUMENT.read_bytes())
    schema = {"$ref": "#/components/schemas/ProblemBody", "components": described["components"]}
    for answer in (
        await api.ask("GET", "/v1/nothing"),
        await api.ask("GET", "/v1/status", role=None),
        await api.ask("PUT", "/v1/limits/rocketmq/x?force=1", {"messages": 1}),
        await api.ask("PUT", "/v1/status", {}),
    ):
        assert answer.headers["content-type"] == "application/problem+json"
        jsonschema.validate(answer.json(), schema)


def test_no_operation_declares_a_default_answer() -> None:
    """With one, every status counts as declared: until November 2026 the fuzzer's check of statuses was empty for that reason."""
    described = document(ROUTES)
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert "default" not in operation["responses"], (method, path)
            for each in operation["responses"].values():
                assert each.get("$ref", "").rpartition("/")[2] in {"", *described["components"]["responses"]}


async def test_each_refusal_is_declared(api: Control) -> None:
    documented = document(ROUTES)
    with cases() as case:
        for number, route in enumerate(ROUTES):
            with case(name_of(route)):
                api.fail_at(number * FORGIVE_EVERY_NS)
                declared = documented["paths"][route.template][route.method.lower()]["responses"]
                method = "HEAD" if route.template == ENDLESS else route.method
                refused = [
                    await ask(api, route, "nobody"),
                    await ask(api, route, "viewer"),
                    await ask(api, route, "admin", query="?no_such_parameter=1"),
                    await ask(api, route, "admin", headers={"Host": "evil.example"}),
                    await ask(api, route, "admin", headers={"X-Long": "x" * 20_000}),
                    await ask(api, route, "admin", headers={"If-Match": '"stale"'}, query=""),
                    await ask(api, route, "admin", headers={"Content-Type": "text/plain"}),
                    await api.ask("TRACE", path_of(route)),
                    await api.ask(method, f"{path_of(route)}{'?force=1' if route.conditional else ''}", b"{"),
                ]
                assert {str(answer.status) for answer in refused} <= {*declared}
                assert {answer.status for answer in refused} >= {405, 421, 431} | ({422} if not route.any_query else set())


def test_the_committed_document_is_current() -> None:
    assert DOCUMENT.read_bytes() == encode(ROUTES), "run: make docs"


def test_the_documented_routes_are_exactly_the_served_ones() -> None:
    described = json.loads(DOCUMENT.read_bytes())["paths"]
    documented = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert documented == {(route.method, route.template) for route in ROUTES}
    router = Router(ROUTES)
    for method, path in documented:
        assert router.find(method, re.sub(r"\{(\w+)\}", lambda found: EXAMPLES[found[1]], path))[0].template == path


async def test_the_served_document_is_the_committed_one(api: Control) -> None:
    assert (await api.ask("GET", "/v1/openapi.json")).json() == json.loads(DOCUMENT.read_bytes())


def test_every_list_has_pages_and_filters() -> None:
    described = document(ROUTES)
    lists = {}
    for path, methods in described["paths"].items():
        answer = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
        fields = described["components"]["schemas"].get(answer.get("$ref", "").rpartition("/")[2], {}).get("properties", {})
        if "items" in fields:
            lists[path] = {parameter["name"] for parameter in methods["get"]["parameters"]}
            assert "next" in fields, path
    assert set(lists) == {
        "/v1/audit", "/v1/clients", "/v1/connections", "/v1/events", "/v1/history", "/v1/limits", "/v1/listeners", "/v1/rules",
        "/v1/spool", "/v1/tokens", "/v1/topics",
    }  # fmt: skip
    for path, parameters in lists.items():
        assert {"limit", "after" if path == "/v1/events" else "cursor"} <= parameters, path
        assert parameters & {"q", "kind"}, path


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [operation["operationId"] for path in document(ROUTES)["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) == len(ROUTES)


def test_only_the_probes_the_dashboards_files_and_signing_in_are_for_everybody() -> None:
    assert {route.template for route in ROUTES if route.role is Role.NOBODY} == {
        "/livez", "/readyz", "/startupz", "/v1/session", *PAGES,
    }  # fmt: skip


def test_reads_need_no_more_than_operator_and_changes_no_less() -> None:
    for route in ROUTES:
        if route.template in {"/v1/tokens", "/v1/session"}:
            continue  # an admin's alone; everybody's own
        assert route.role <= Role.OPERATOR if route.method == "GET" else route.role >= Role.OPERATOR


def test_the_contracts_paths_are_there() -> None:
    """docs/design/contract.md 5, in full."""
    promised = {
        "/v1/limits": {"GET"},
        "/v1/limits/rocketmq/{topic}": {"GET", "PUT", "PATCH", "DELETE"},
        "/v1/limits/amqp/{vhost}/{exchange}/{routing_key}": {"GET", "PUT", "PATCH", "DELETE"},
        **{f"/v1/{path}": {"GET", "PUT", "PATCH", "DELETE"} for path in LEVELS},
        "/v1/rules": {"GET"},
        "/v1/rules/{name}": {"GET", "PUT", "DELETE"},
        "/v1/rules/{name}:promote": {"POST"},
        "/v1/quotas": {"GET", "PUT"},
        "/v1/quotas/shadow": {"GET", "PUT", "DELETE"},
        "/v1/quotas/status": {"GET"},
        "/v1/quotas:rollback": {"POST"},
        "/v1/live-changes": {"GET", "PUT"},
        "/v1/history": {"GET"},
        "/v1/history/{revision}": {"GET"},
        "/v1/history/{revision}:rollback": {"POST"},
        "/v1/topics": {"GET"},
        "/v1/connections": {"GET"},
        "/v1/connections/{id}": {"GET", "DELETE"},
        "/v1/listeners": {"GET"},
        "/v1/clients": {"GET"},
        "/v1/spool": {"GET"},
        "/v1/series": {"GET"},
        "/v1/status": {"GET"},
        "/v1/events": {"GET"},
        "/v1/stream": {"GET"},
        "/v1/config:reload": {"POST"},
        "/v1/config": {"GET"},
        "/v1/log/level": {"GET", "PUT", "DELETE"},
        "/v1/drain": {"POST"},
        "/v1/tokens": {"GET", "POST"},
        "/v1/tokens/{name}": {"DELETE"},
        "/v1/tokens/{name}:rotate": {"POST"},
        "/v1/session": {"GET", "POST", "DELETE"},
        "/v1/audit": {"GET"},
        "/v1/audit:verify": {"GET"},
        "/v1/openapi.json": {"GET"},
        "/livez": {"GET"},
        "/readyz": {"GET"},
        "/startupz": {"GET"},
        "/metrics": {"GET"},
        "/": {"GET"},
        "/t/{protocol}/{topic}": {"GET"},
        "/t/amqp/{vhost}/{exchange}/{routing_key}": {"GET"},
        **{path: {"GET"} for path in PAGES},
    }
    served: dict[str, set[str]] = {}
    for route in ROUTES:
        served.setdefault(route.template, set()).add(route.method)
    assert served == promised


async def test_405_names_what_is_allowed(api: Control) -> None:
    for template in {route.template for route in ROUTES}:
        route = next(route for route in ROUTES if route.template == template)
        answer = await api.ask("OPTIONS", path_of(route))
        served = {each.method for each in ROUTES if each.template == template}
        assert answer.status == 405
        assert set(answer.headers["allow"].split(", ")) == served | ({"HEAD"} if "GET" in served else set())
