"""The names that outsiders rely on, read from the code: metrics, verbs and options, settings, the API, log events, causes, problem types.

`names()` gives them all; `tests/contracts/data/published-names.json` has those that were published. Scripts and dashboards of users hold
them, so a refactoring keeps them. New ones are added to the file with

    PYTHONPATH=.:tests .venv/bin/python -m support.public_names

which removes nothing: a name that is to go is taken out by hand, with a line under "Changed" in the CHANGELOG.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import click
import trio
from msgspec import to_builtins

from admin.endpoints import ROUTES
from admin.http.problems import PROBLEMS
from admin.openapi import document
from admin.store.store import Store
from cli.main import sluice
from config import load
from config.schema import rules_schema, schema
from control_plane.standalone import Standalone
from gateway.clock import now_ns
from gateway.close_causes import COMMON
from gateway.protocols import PROTOCOLS
from gateway.telemetry.metrics import METRICS
from limiter.keys import Key, Origin
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic
from support.log_calls import LOG_EVENTS
from support.wires.wires import Wires

ROOT: Final = Path(__file__).parents[2]
PUBLISHED: Final = ROOT / "tests" / "contracts" / "data" / "published-names.json"

CONFIGURATION: Final = """\
gateway: {name: one, state_directory: state}
listeners:
  - {name: rabbit, protocol: amqp, bind: "127.0.0.1:0", upstream: "127.0.0.1:1"}
  - {name: rocket, protocol: rocketmq, bind: "127.0.0.1:0", upstream: "127.0.0.1:1"}
  - name: names
    protocol: rocketmq-nameserver
    bind: 127.0.0.1:0
    upstream: 127.0.0.1:1
    advertise: 127.0.0.1
    broker_ports: 21911-21912
rules: [{name: all, limit: {messages: 100/s}}]
limiter: {threads: 0}
"""

Names = dict[str, Any]
API: Final[Names] = document(ROUTES)


def metrics() -> dict[str, dict[str, Any]]:
    """Every metric: its type, and its labels in their order."""
    return {metric.name: {"type": metric.kind, "labels": list(metric.labels)} for metric in METRICS.values()}


def verbs() -> dict[str, list[str]]:
    """Every verb of the command line, with its arguments and options."""
    found: dict[str, list[str]] = {}

    def add(verb: click.Command, words: tuple[str, ...]) -> None:
        found[" ".join(words)] = sorted(
            name
            for parameter in verb.params
            for name in ([parameter.name or ""] if isinstance(parameter, click.Argument) else parameter.opts)
        )
        if isinstance(verb, click.Group):
            context = click.Context(verb)
            for name in verb.list_commands(context):
                command = verb.get_command(context, name)
                assert command is not None
                add(command, (*words, name))

    add(sluice, ("sluice",))
    return found


def settings(made: Any, path: str = "") -> Iterator[str]:
    """Every key that a JSON Schema names; `[]` is an item of a list, `*` any key, and `=value` a choice."""
    for each in made.get("anyOf", ()):
        yield from settings(each, path)
    for value in (*made.get("enum", ()), *([made["const"]] if "const" in made else ())):
        yield f"{path}={value}"
    for name, inner in made.get("properties", {}).items():
        yield f"{path}.{name}".removeprefix(".")
        yield from settings(inner, f"{path}.{name}".removeprefix("."))
    for inner, step in ((made.get("items"), "[]"), (made.get("additionalProperties"), ".*")):
        if isinstance(inner, dict):
            yield from settings(inner, path + step)


def routes() -> dict[str, dict[str, list[str]]]:
    """Every request of the admin API: its parameters, and the outermost fields of its body and its answer where they have types."""
    found = {}
    for path, methods in API["paths"].items():
        for method, operation in methods.items():
            answers = [made for answer in operation["responses"].values() for made in shared(answer).get("content", {}).values()]
            bodies = operation.get("requestBody", {}).get("content", {}).values()
            found[f"{method.upper()} {path}"] = {
                "parameters": sorted(parameter["name"] for parameter in operation.get("parameters", ())),
                "body": sorted({name for made in bodies for name, _ in fields(made)}),
                "answer": sorted({name for made in answers for name, _ in fields(made)}),
            }
    return found


def shared(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer itself, or the one of all operations that it refers to."""
    found: dict[str, Any] = API["components"]["responses"][answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
    return found


def objects() -> dict[str, list[str]]:
    """What the fields of bodies and answers hold: by the field's name, the fields within it, of all the types that have such a field."""
    found: dict[str, set[str]] = {}
    for made in API["components"]["schemas"].values():
        for name, inner in fields(made):
            found.setdefault(name, set()).update(within for within, _ in fields(inner))
    return {name: sorted(within) for name, within in sorted(found.items())}


def fields(made: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a JSON Schema's objects, each with its own schema."""
    yield from made.get("properties", {}).items()
    if "$ref" in made:
        yield from fields(API["components"]["schemas"][made["$ref"].rpartition("/")[2]])
    for inner in (*made.get("anyOf", ()), *made.get("oneOf", ()), *(made[key] for key in ("schema", "items") if key in made)):
        yield from fields(inner)


def log_events() -> dict[str, list[str]]:
    """Every event of the log, with its fields."""
    return {name: sorted(event.fields) for name, event in LOG_EVENTS.items()}


def names() -> Names:
    return {
        "metrics": metrics(),
        "verbs": verbs(),
        "settings": sorted(settings(schema())),
        "rule_settings": sorted(settings(rules_schema())),
        "routes": routes(),
        "objects": objects(),
        "log_events": log_events(),
        "close_causes": {"every protocol": sorted(COMMON), **{name: sorted(each.close_causes) for name, each in PROTOCOLS.items()}},
        "problem_types": sorted(PROBLEMS),
    }


async def answers(folder: Path) -> dict[str, list[str]]:
    """The fields of the answers of the admin API that have no type of their own: those of a gateway with a connection of each protocol."""
    file = folder / "sluice.yaml"
    file.write_text(CONFIGURATION)
    configured = load(file, {})
    store = Store.open(configured.gateway.state_directory, configured.rules)
    standalone = Standalone(configured, store, cast(Any, None))
    gateway = standalone.gateway
    gateway.sweeper.close()
    key = Key(Origin("rocketmq", Sender("rocket", "10.0.0.7", None), b""), rocketmq_topic(b"orders"), None, "produce")
    gateway.accounts.note(key)
    key.tally.received = key.tally.refused = 1
    gateway.accounts.fold(now_ns())
    with Wires() as wires:
        for protocol in ("amqp", "rocketmq"):
            wires.connect(protocol)
        gateway.sweeper = wires.sweeper
        connections = await standalone.describe_connections([1, 2])
        found = {
            "status": standalone.status(),
            "connections of amqp": connections[0],
            "connections of rocketmq": connections[1],
            "topics": (await standalone.topics())[0],
            **{f"listeners of {each.protocol}": each for each in standalone.listeners()},
        }
    gateway.executor.close(5)
    store.close()
    return {name: sorted(_keys(to_builtins(answer))) for name, answer in sorted(found.items())}


def _keys(answer: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, value in answer.items():
        yield path + name
        if isinstance(value, dict):
            yield from _keys(value, f"{path}{name}.")


def missing(published: Any, present: Any, path: str = "") -> Iterator[str]:
    """What was published and is no more."""
    match published:
        case dict():
            for name, value in published.items():
                if name not in present:
                    yield f"{path}{name}"
                else:
                    yield from missing(value, present[name], f"{path}{name} / ")
        case list():
            yield from (f"{path}{name}" for name in published if name not in present)
        case _ if published != present:
            yield f"{path}{published} (now {present})"


def with_additions(published: Any, present: Any) -> Any:
    match published:
        case dict():
            merged = {name: with_additions(value, present[name]) if name in present else value for name, value in published.items()}
            return dict(sorted({**present, **merged}.items()))
        case list():
            return sorted({*published, *present})
        case _:
            return published


def encoded(made: Names) -> str:
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    with TemporaryDirectory() as folder:
        present = {"names": names(), "answers": trio.run(answers, Path(folder))}
    published = json.loads(PUBLISHED.read_text()) if PUBLISHED.exists() else present
    PUBLISHED.write_text(encoded(with_additions(published, present)))


if __name__ == "__main__":
    main()
