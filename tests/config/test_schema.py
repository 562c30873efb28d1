"""The published JSON Schemas are up to date, and say what the decoder does."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from config import ConfigError, load, rules_schema, schema
from config.schema import text

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "made"), [("sluice", schema()), ("limits", rules_schema())])
def test_files_in_config_are_up_to_date(name: str, made: dict[str, Any]) -> None:
    """If this fails: `sluice config schema > config/sluice.schema.json`, `sluice config schema --rules > config/limits.schema.json`."""
    assert (ROOT / "config" / f"{name}.schema.json").read_text() == text(made)
    jsonschema.Draft202012Validator.check_schema(made)


def as_editors_see_it(node: yaml.Node) -> Any:
    """A YAML tree as an editor's YAML 1.2 core schema resolves it."""
    if isinstance(node, yaml.MappingNode):
        return {key.value: as_editors_see_it(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [as_editors_see_it(item) for item in node.value]
    if not isinstance(node, yaml.ScalarNode):
        raise TypeError(f"a node of another kind: {node}")
    if node.style in {"'", '"'}:
        return node.value
    known = {"": None, "~": None, "null": None, "true": True, "false": False, ".nan": float("nan"), ".inf": float("inf")}
    if node.value in known:
        return known[node.value]
    for kind in (int, float):
        try:
            return kind(node.value)
        except ValueError:
            continue
    return node.value


def resolved(document: str) -> Any:
    node = yaml.compose(document, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert node is not None
    return as_editors_see_it(node)


@pytest.mark.parametrize(("name", "made"), [("sluice", schema()), ("limits", rules_schema())])
def test_files_in_config_fit_their_schema(name: str, made: dict[str, Any]) -> None:
    jsonschema.validate(resolved((ROOT / "config" / f"{name}.yaml").read_text()), made)


GOOD_LISTENER = {"name": "a", "protocol": "amqp", "bind": "127.0.0.1:1", "upstream": "127.0.0.1:2"}
GOOD_RULE: dict[str, str] = {"name": "a", "limit": "{messages: 1/s}"}
SCALARS = [
    "", "~", "0", "1", "-1", "3", "010", "1.5", ".nan", ".inf", "true", "false", "off", "no", "x", "''", "'1'", "500/s", "5k/min", "-5/s", "0/s",
    "1/0s", "500", "10MiB/s", "10MIB/s", "5MiB", "5", "1s", "0s", "1m", "90min", "token_bucket", "delay", "block", "amqp", "rocketmq",
    "127.0.0.1:5", "5672", "':5672'", "host", "'[::1]:5'", "a b:5", "{}", "[]", "[1]", "{a: b}", "enforce", "admin", "pass", "debug", "none",
]  # fmt: skip
LISTENER_KEYS = [
    *GOOD_LISTENER,
    "handshake_timeout",
    "frame_timeout",
    "max_frame",
    "tls",
    "upstream_tls",
    "accept_proxy_protocol",
    "trusted_proxies",
    "send_proxy_protocol",
    "idle_timeout",
    "max_connections",
    "max_connection_rate",
    "other_protocols",
    "nonsense",
]
RULE_KEYS = [
    "name", "match", "per", "limit", "algorithm", "breaker", "action", "fallback", "reply", "max_delay", "mode", "candidate", "weight", "protected",
    "nonsense",
]  # fmt: skip
SECTION_KEYS = {
    "gateway": ["name", "workers", "state_directory", "watchdog"],
    "limiter": ["threads", "queue", "on_rejection", "max_bypass", "max_keys"],
    "credit": ["initial", "more_after", "bytes"],
    "memory": ["per_connection", "high_watermark", "delivery_watermark", "limit"],
    "disk": ["low_watermark"],
    "drain": ["timeout", "hold"],
    "admin": ["bind", "tokens", "tls"],
    "access_log": ["directory", "roll_every", "roll_size"],
    "log": ["level", "format", "nonsense"],
}


def documents() -> Iterator[str]:
    """Good documents with one value replaced by each of many."""
    listeners = "listeners: [{" + ", ".join(f"{key}: {value}" for key, value in GOOD_LISTENER.items()) + "}]\n"
    yield listeners
    for key, value in itertools.product(LISTENER_KEYS, SCALARS):
        yield "listeners: [{" + ", ".join(f"{name}: {inner}" for name, inner in {**GOOD_LISTENER, key: value}.items()) + "}]\n"
    for key in GOOD_LISTENER:
        yield "listeners: [{" + ", ".join(f"{name}: {value}" for name, value in GOOD_LISTENER.items() if name != key) + "}]\n"
    for section, keys in SECTION_KEYS.items():
        for value in SCALARS:
            yield f"{listeners}{section}: {value}\n"
            for key in keys:
                yield f"{listeners}{section}: {{{key}: {value}}}\n"
    for key, value in itertools.product(RULE_KEYS, SCALARS):
        yield listeners + "rules: [{" + ", ".join(f"{name}: {inner}" for name, inner in {**GOOD_RULE, key: value}.items()) + "}]\n"
    for key, value in itertools.product(["messages", "bytes", "burst"], SCALARS):
        limit = {"messages": "1/s", key: value}
        yield listeners + "rules: [{name: a, limit: {" + ", ".join(f"{name}: {inner}" for name, inner in limit.items()) + "}}]\n"
    for key, value in itertools.product(["protocol", "listener", "topic", "operation", "nonsense"], SCALARS):
        yield listeners + f"rules: [{{name: a, limit: {{messages: 1/s}}, match: {{{key}: {value}}}}}]\n"
    for value in SCALARS:
        yield f"{listeners}rules: {value}\n"
        yield f"listeners: {value}\n"
        yield f"{listeners}version: {value}\n"


# What the decoder refuses and JSON Schema has no words for: ranges of values with units, numbers written oddly, checks across settings.
BEYOND_SCHEMA = (
    "is too little", "is too much", "is too small", "is not a port", "port 0 cannot", "is not a whole number of", "is not a loopback", "bound twice",
    "own listeners", "is above", "above high", "limits neither", "is not an IPv6", "expected a whole number, got \"010\"", "is not a host",
    "expected a number above 0, got \"010\"", "RocketMQ has no", "reply is RocketMQ's", "is not a name", "a period longer than nothing", "there is no file", "topic is", "is no rate",
)  # fmt: skip


LISTENERS = "listeners: [{name: a, protocol: amqp, bind: '127.0.0.1:1', upstream: '127.0.0.1:2'}]\n"


@pytest.mark.parametrize(
    "section",
    [
        "webhooks: [{}]", "webhooks: [{name: ops}]", "webhooks: [{url: 'http://a', url_file: f, name: ops}]", "webhooks: [{url_file: f}]",
        "webhooks: [~]", "webhooks: [{url: 'http://a', user: x}]", "fleet: {redis: {url: 'rediss://a', name: a, tls: {key: k}}}",
    ],
)  # fmt: skip
def test_keys_that_need_each_other(section: str, write: Callable[..., Path]) -> None:
    document = f"{LISTENERS}{section}\n"
    assert messages(write(document))
    assert not jsonschema.Draft202012Validator(schema()).is_valid(resolved(document))


@pytest.mark.parametrize("webhook", ["url: 'http://a'", "url_file: f, name: ops", "url: 'http://a', user: x, token_file: f"])
def test_a_webhook_with_what_it_needs_fits(webhook: str, write: Callable[..., Path]) -> None:
    document = f"{LISTENERS}webhooks: [{{{webhook}}}]\n"
    assert messages(write(document)) == []
    jsonschema.validate(resolved(document), schema())


def messages(path: Path) -> list[str]:
    """What the decoder says against a file."""
    try:
        load(path)
    except ConfigError as error:
        return [problem.message for problem in error.errors]
    return []


def test_decoder_and_schema_agree(write: Callable[..., Path]) -> None:
    """On a thousand documents: what the decoder takes the schema takes, and what only the decoder refuses is beyond a schema."""
    validator = jsonschema.Draft202012Validator(schema())
    taken = refused = 0
    for document in random.Random(2026).sample(list(documents()), 1000):
        fits = validator.is_valid(resolved(document))
        said = messages(write(document))
        if said:
            refused += 1
            unsayable = all(any(words in message for words in BEYOND_SCHEMA) for message in said)
            assert not fits or unsayable, f"the schema takes what the decoder refuses: {document}\n{said}"
        else:
            taken += 1
            assert fits, f"the schema refuses what the decoder takes: {document}"
    assert taken > 60
    assert refused > 600
