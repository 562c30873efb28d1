"""What a broken configuration is answered: file, line, column, path, the offending text and the way out, all at once."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from config import ConfigError, ConfigProblem, load

Faults = Callable[..., list[ConfigProblem]]

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}\n"

# name, text after two lines of listeners (so line 3 is its first), line, column, path, what is said, remedy
BROKEN = [
    ("unknown key", "limiter: {treads: 1}\n", 3, 11, "limiter.treads", "unknown key", "did you mean `threads`?"),
    ("unknown section", "creditt: {}\n", 3, 1, "creditt", "unknown key", "did you mean `credit`?"),
    ("section in another", "gateway: {drain: {timeout: 5s}}\n", 3, 11, "gateway.drain", "unknown key", "drain is a section of its own: drain: ..."),
    ("key of the top in a section", "gateway: {rules_file: limits.yaml}\n", 3, 11, "gateway.rules_file", "unknown key", "rules_file is a key at the top of the file"),
    ("one letter of a section", "listener: []\n", 3, 1, "listener", "unknown key", "did you mean `listeners`?"),
    ("key of another section", "gateway: {roll_every: 5min}\n", 3, 11, "gateway.roll_every", "unknown key", "roll_every has its place at access_log.roll_every"),
    ("key of a section within", "rules: [{name: a, routing_key: 'a.#', limit: {messages: 1/s}}]\n", 3, 19, "rules[0].routing_key", "unknown key", "has its place at rules[].match.routing_key"),
    ("wrong type", "limiter:\n  threads: two\n", 4, 12, "limiter.threads", 'expected a whole number, got "two"', "write it like 1"),
    ("bare number", "rules:\n  - name: a\n    limit: {messages: 500}\n", 5, 23, "rules[0].limit.messages", "500 has no unit", "did you mean 500/s?"),
    ("duplicate key", "log: {level: info}\nlog: {level: debug}\n", 4, 1, "", 'duplicate key "log"', "the first is in line 3"),
    ("negative", "credit: {initial: -5}\n", 3, 19, "credit.initial", "-5 is too small", "the least is 1"),
    ("not a number", "credit: {initial: .nan}\n", 3, 19, "credit.initial", 'expected a whole number, got ".nan"', "write it like 400"),
    ("negative rate", "rules: [{name: a, limit: {messages: -5/s}}]\n", 3, 37, "rules[0].limit.messages", "cannot be negative", "write it like 500/s"),
    ("infinite rate", "rules: [{name: a, limit: {bytes: .inf}}]\n", 3, 34, "rules[0].limit.bytes", "'.inf' is no rate", "write it like 10MiB/s"),
    ("unknown unit", "memory: {per_connection: 1MIB}\n", 3, 26, "memory.per_connection", "unknown unit 'MIB'", "did you mean 1MiB?"),
    ("burst without a unit", "rules: [{name: a, limit: {messages: 20/s, burst: 5}}]\n", 3, 50, "rules[0].limit.burst", "5 has no unit", "write burst: {messages: 5} for as many messages, or burst: 5s for what comes in in that time"),
    ("unit forgotten", "access_log: {roll_every: 5}\n", 3, 26, "access_log.roll_every", "5 has no unit", "did you mean 5s?"),
    ("unknown word", "log: {level: inof}\n", 3, 14, "log.level", '"inof" is not one of', "did you mean info?"),
    ("empty candidate", "rules: [{name: a, limit: {messages: 1/s}, candidate: {}}]\n", 3, 54, "rules[0].candidate", "is empty", "give messages, bytes or burst"),
    ("candidate without a unit", "rules: [{name: a, limit: {messages: 1/s}, candidate: {messages: 3}}]\n", 3, 65, "rules[0].candidate.messages", "3 has no unit", "did you mean 3/s?"),
    ("unknown key of a candidate", "rules: [{name: a, limit: {messages: 1/s}, candidate: {mesages: 3/s}}]\n", 3, 55, "rules[0].candidate.mesages", "unknown key", "did you mean `messages`?"),
    ("no worker", "gateway: {workers: 0}\n", 3, 20, "gateway.workers", "0 is too small", "the least is 1"),
    ("anchor", "log: &here {level: info}\n", 3, 6, "", 'anchor "&here"', "write the value out"),
    ("alias", "log: *there\n", 3, 6, "", 'alias "*there"', "write the value out"),
    ("tag", "log: !!python/object:os.system {}\n", 3, 6, "", "tag ", "remove it"),
    ("tab", "log:\n\tlevel: info\n", 4, 1, "", "tab character", "use spaces"),
    ("tab between", "log: {level:\tinfo}\n", 3, 13, "", "tab character", "use spaces"),
    ("open bracket", "log: {level: info\n", 4, 1, "", "not YAML", "close the brace"),
    ("open quote", "log: {level: 'info}\n", 4, 1, "", "not YAML", "close the quotes"),
    ("half a character", 'log: {"level": "in\\ud83dfo"}\n', 3, 19, "", '"\\ud83d" is half a character', "write both halves"),
    ("halves the wrong way round", 'log: {level: "\\ude00\\ud83d"}\n', 3, 15, "", '"\\ude00" is half a character', "write both halves"),
    ("no such character", 'log: {level: "\\U00110000"}\n', 3, 17, "", "not YAML", "no character has this number"),
    ("unknown escape", 'log: {level: "C:\\queue"}\n', 3, 17, "", "not YAML", "for a backslash"),
    ("short escape", 'log: {level: "\\u12"}\n', 3, 17, "", "not YAML", "write all digits"),
    ("bad indentation", "log:\n  level: info\n format: json\n", 5, 2, "", "not YAML", "indent"),
    ("two documents", "---\nlog: {}\n", 3, 1, "", "a second YAML document", "remove this `---`"),
    ("list for a mapping", "log: [info]\n", 3, 6, "log", "expected a mapping, got a list", "its keys are level, format"),
    ("mapping for a list", "rules: {name: a}\n", 3, 8, "rules", "expected a list, got a mapping", "begin each item with"),
    ("quoted number", 'limiter: {threads: "1"}\n', 3, 20, "limiter.threads", 'expected a whole number, got the text "1"', "without quotes"),
    ("leading zero", "limiter: {queue: 010}\n", 3, 18, "limiter.queue", 'got "010"', "write it like 10"),
    ("nothing", "log: {level: }\n", 3, 14, "log.level", "got nothing", "write it like"),
    ("admin without loopback", "admin: {bind: 0.0.0.0:9180}\n", 3, 15, "admin.bind", "0.0.0.0:9180 is not a loopback address", "add admin.tls"),
    ("port alone", "admin: {bind: 9180}\n", 3, 15, "admin.bind", '"9180" is a port without a host', "did you mean 127.0.0.1:9180?"),
    ("no such port", "admin: {bind: 127.0.0.1:99999}\n", 3, 15, "admin.bind", "99999 is not a port", "up to 65535"),
    ("no such address", "admin: {bind: 127.0.0.256:1}\n", 3, 15, "admin.bind", '"127.0.0.256" is not a host', "write it like"),
    ("empty label", "admin: {bind: a..b:1}\n", 3, 15, "admin.bind", '"a..b" is not a host: it has a dot with nothing before it', "write it like"),
    ("leading dot", "admin: {bind: .example:1}\n", 3, 15, "admin.bind", '".example" is not a host: it has a dot with', "write it like"),
    ("long label", f"admin: {{bind: {'a' * 64}.b:1}}\n", 3, 15, "admin.bind", "a part between dots has 63 characters at most", "write it like"),
    ("long name", f"admin: {{bind: {'abc.' * 63}ab:1}}\n", 3, 15, "admin.bind", "a name has 253 characters at most", "write it like"),
    ("hyphen", "admin: {bind: a.b-.c:1}\n", 3, 15, "admin.bind", '"a.b-.c" is not a host: no part', "write it like"),
    ("IPv6 without quotes", "admin: {bind: [::1]:9180}\n", 3, 16, "", "not YAML", "in quotes"),
    ("merge key", "log: {<<: {level: info}}\n", 3, 7, "log.<<", "unknown key", "merge keys are not supported"),
    ("no limit", "rules:\n  - name: a\n    limit: {}\n", 5, 12, "rules[0].limit", "limits neither messages nor bytes", "give one of them"),
    ("burst of pacing", "rules: [{name: a, algorithm: pacing, limit: {messages: 1/s, burst: 2s}}]\n", 3, 68, "rules[0].limit.burst", "has no burst",
     "leave it out, or use algorithm: token_bucket"),
    ("breaker of pacing", "rules: [{name: a, algorithm: pacing, limit: {messages: 1/s}, breaker: {open_for: 1s}}]\n", 3, 82,
     "rules[0].breaker.open_for", "has no breaker", "leave it out, or set 0s"),
    ("warm_up without it", "rules: [{name: a, limit: {messages: 1/s}, warm_up: {over: 10s}}]\n", 3, 52, "rules[0].warm_up",
     "is for algorithm: warm_up, and this rule's is token_bucket", "set algorithm: warm_up"),
    ("warm_up in no time", "rules: [{name: a, algorithm: warm_up, limit: {messages: 1/s}, warm_up: {over: 1us}}]\n", 3, 79, "rules[0].warm_up.over",
     "1us is too little", "the least is 1ms"),
    ("wrong field", "rules: [{name: a, match: {protocol: amqp, topic: t}, limit: {messages: 1/s}}]\n", 3, 50, "rules[0].match.topic",
     "topic is RocketMQ's", "AMQP's is routing_key"),
    ("bad network", "rules: [{name: a, match: {client: 10.0.0.300}, limit: {messages: 1/s}}]\n", 3, 35, "rules[0].match.client", "10.0.0.300",
     "write an address or a network"),
    ("delay too long", "rules: [{name: a, max_delay: 5s, limit: {messages: 1/s}}]\n", 3, 30, "rules[0].max_delay", "5s is outside 0s to 2.5s", "set at most 2.5s, or 8s with"),
    ("delay too long for AMQP", "rules: [{name: a, max_delay: 9s, match: {protocol: amqp}, limit: {messages: 1/s}}]\n", 3, 30, "rules[0].max_delay",
     "9s is too much", "the most is 8s"),
    ("no such file", "rules_file: none.yaml\n", 3, 13, "rules_file", "there is no file", "check the name"),
    ("both", "rules_file: sluice.yaml\nrules: []\n", 4, 1, "rules", "given twice", "keep one of the two"),
    ("credit", "credit: {initial: 10, more_after: 20}\n", 3, 35, "credit.more_after", "more_after 20 is above initial 10", "set more_after to 5"),
    ("share without a window", "limiter: {max_bypass: 10%}\n", 3, 23, "limiter.max_bypass", "no share of a time", "10%/10s"),
    ("share of too much", "limiter: {max_bypass: 101%/10s}\n", 3, 23, "limiter.max_bypass", "more than all messages", "the most is 100%"),
    (
        "never inline without threads", "limiter: {threads: 0, inline: never}\n", 3, 31, "limiter.inline", "never needs a thread", "set threads to 1",
    ),
    ("share of a moment", "limiter: {max_bypass: 10%/10ms}\n", 3, 23, "limiter.max_bypass", "1s to 10min", "10%/10s"),
    ("credit by default", "credit: {initial: 10}\n", 3, 19, "credit.initial", "more_after 200 is above initial 10", "set more_after to 5"),
    ("a delay that is most of the stop", "drain: {delay: 14s}\n", 3, 16, "drain.delay", "more than half of timeout", "lower delay or raise timeout"),
    ("a stop shorter than its delay", "drain: {delay: 1s, timeout: 1s}\n", 3, 16, "drain.delay", "more than half of timeout", "lower delay"),
    ("memory", "memory: {per_connection: 2MiB, high_watermark: 1MiB}\n", 3, 26, "memory.per_connection", "above high_watermark", "lower"),
    ("admin on a listener's port", "admin: {bind: 127.0.0.1:5672}\n", 3, 15, "admin.bind", "127.0.0.1:5672 is bound twice", "listeners[0].bind has it (line 2)"),
    ("same token name", "admin:\n  tokens:\n  - {name: a, role: admin, file: x}\n  - {name: a, role: viewer, file: y}\n", 6, 12,
     "admin.tokens[1].name", 'duplicate name "a"', "tell them apart"),
    ("workers and name servers", "  - {name: b, protocol: rocketmq-nameserver, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, broker_ports: 20911-20950}\ngateway: {workers: 2}\n",
     3, 25, "listeners[1].protocol", "cannot have a name server's listener", "set gateway.workers: 1"),
    ("many topics and workers", "gateway: {workers: 2, max_topics: 20000}\n", 3, 35, "gateway.max_topics",
     "several workers cannot tell more than 10,000 topics apart", "gateway.workers: 1"),
    ("remote admin of AMQP", "  - {name: b, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, remote_admin: {allow: [10.0.0.0/8]}}\n", 3, 87,
     "listeners[1].remote_admin", "AMQP has no requests that change limits", "use the admin API"),
    ("remote admin by key alone", "  - {name: b, protocol: rocketmq, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, remote_admin: {access_keys: [a]}}\n", 3, 91,
     "listeners[1].remote_admin.allow", "is missing", "add allow: Client addresses"),
    ("no access key is none", "  - {name: b, protocol: rocketmq, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, remote_admin: {allow: [10.0.0.0/8], access_keys: ['']}}\n",
     3, 127, "listeners[1].remote_admin.access_keys[0]", "is not an access key of 1 to 64 characters", "write it like mqcloud"),
    ("remote admin for nobody", "  - {name: b, protocol: rocketmq, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, remote_admin: {allow: []}}\n", 3, 99,
     "listeners[1].remote_admin.allow", "the list is empty", "10.0.0.0/8"),
    ("remote admin, bad network", "  - {name: b, protocol: rocketmq, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, remote_admin: {allow: [10.0.0.1/8]}}\n", 3, 100,
     "listeners[1].remote_admin.allow[0]", "10.0.0.1/8 has host bits set", "write an address or a network like 10.0.0.0/8"),
    ("future version", "version: 2\n", 3, 10, "version", "2: this version of sluice reads version 1", "set version: 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "column", "path", "said", "remedy"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_names_line_column_and_remedy(faults: Faults, text: str, line: int, column: int, path: str, said: str, remedy: str) -> None:
    problems = faults(LISTENERS + text)
    found = [problem for problem in problems if (problem.line, problem.column) == (line, column)]
    assert found, [problem.headline for problem in problems]
    assert found[0].path == path
    assert said in found[0].message
    assert remedy in found[0].remedy
    assert Path(found[0].file).name == "sluice.yaml"


@pytest.mark.parametrize(
    ("fields", "path", "said", "remedy"),
    [
        ("weight: 0", "weight", "0 would get nothing at all", "write 0.1"),
        ("weight: -1", "weight", "expected a number above 0", "write it like 3"),
        ("weight: 1001", "weight", "1001 is too large", "the most is 1000"),
        ("weight: '3'", "weight", "expected a number above 0", "write it like 3"),
        ("weight: 3, per: client", "weight", "a topic's share of a listener's cap", "per: topic"),
        ("protected: yes", "protected", "expected true or false", "write true or false"),
        ("per: listener, breaker: {open_for: 1s}", "breaker.open_for", "would refuse all topics of the listener at once", "leave it out"),
        ("adapt: {}", "adapt", "is for a listener's cap", "leave it out"),
        ("per: listener, adapt: {floor: 20}", "adapt.floor", 'expected a part of the whole, got "20"', "did you mean 20%?"),
        ("per: listener, adapt: {floor: 0%}", "adapt.floor", "0% is too little", "the least is 0.1%"),
        ("per: listener, adapt: {every: 1ms}", "adapt.every", "1ms is too little", "the least is 100ms"),
    ],
)
def test_parts_of_a_cap(faults: Faults, fields: str, path: str, said: str, remedy: str) -> None:
    (problem,) = faults(LISTENERS + f"rules: [{{name: a, limit: {{messages: 1/s}}, {fields}}}]\n")
    assert problem.path == f"rules[0].{path}"
    assert said in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("setting", "said", "remedy"),
    [
        ("accept_proxy_protocol: yes", "expected true or false, got 'yes'", "write true or false"),
        ("accept_proxy_protocol: 'true'", "expected true or false, got 'true'", "without quotes"),
        ("accept_proxy_protocol: true", "needs trusted_proxies: whoever may send", "believes anybody"),
        ("send_proxy_protocol: v1", "'v1' is not one of none, v2", "use none or v2"),
        ("max_connections: 0", "0 is too small", "the least is 1"),
        ("max_connections: 10k", "expected a whole number, got '10k'", "write it like 10"),
        ("max_connection_rate: 0/s", "0/s admits no connection", "leave it out for no cap"),
        ("max_connection_rate: 100", "100 has no unit", "did you mean 100/s?"),
        ("idle_timeout: 500ms", "500ms is too little", "the least is 1s"),
        ("other_protocols: allow", "'allow' is not one of refuse, pass", ""),
    ],
)
def test_the_doors_settings(faults: Faults, setting: str, said: str, remedy: str) -> None:
    (problem,) = faults(f"listeners: [{{name: r, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, {setting}}}]\n")
    assert problem.path == f"listeners[0].{setting.partition(':')[0]}"
    assert said in problem.message.replace('"', "'")
    assert remedy in problem.remedy


@pytest.mark.parametrize("trusted", ["[]", "~", "[]   # none yet"])
def test_proxy_headers_of_nobody_in_particular_are_not_taken(faults: Faults, trusted: str) -> None:
    text = (
        "listeners:\n  - name: r\n    protocol: amqp\n    bind: 127.0.0.1:1\n    upstream: 127.0.0.1:2\n    accept_proxy_protocol: true\n"
    )
    (problem,) = faults(f"{text}    trusted_proxies: {trusted}\n")
    assert (problem.path, problem.line) == ("listeners[0].accept_proxy_protocol", 6)
    assert "trusted_proxies: [10.0.0.5, 10.1.0.0/24]" in problem.remedy
    assert '[0.0.0.0/0, "::/0"] believes anybody' in problem.remedy


def test_a_trusted_proxy_that_is_no_network_is_told_alone(faults: Faults) -> None:
    (problem,) = faults(
        "listeners: [{name: r, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, accept_proxy_protocol: true, trusted_proxies: [lb1]}]\n"
    )
    assert problem.path == "listeners[0].trusted_proxies[0]"
    assert "write an address or a network like 10.0.0.5" in problem.remedy


def test_values_that_ask_for_nothing_may_stand_where_a_feature_is_missing(write: Callable[..., Path]) -> None:
    path = write(
        "listeners: [{name: r, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, accept_proxy_protocol: false, send_proxy_protocol: none,\n"
        "  tls: off, upstream_tls: off}]\nrules: [{name: a, limit: {messages: 1/s}, weight: 1, protected: false}]\n"
    )
    assert load(path).rules[0].name == "a"


def test_all_errors_of_both_files_come_at_once_in_order(faults: Faults) -> None:
    problems = faults(
        LISTENERS + "limiter: {threads: -1, quue: 2}\nrules_file: limits.yaml\n",
        limits="rules:\n  - {name: a, limit: {messages: 5}}\n  - {name: a, limit: {messages: 5/s}, action: blok}\n",
    )
    assert [(Path(each.file).name, each.line, each.path) for each in problems] == [
        ("sluice.yaml", 3, "limiter.threads"),
        ("sluice.yaml", 3, "limiter.quue"),
        ("limits.yaml", 2, "rules[0].limit.messages"),
        ("limits.yaml", 3, "rules[1].name"),
        ("limits.yaml", 3, "rules[1].action"),
    ]


def test_shows_the_line_with_a_caret_under_the_offence(faults: Faults) -> None:
    (problem,) = faults(LISTENERS + "limiter: {threads: two}\n")
    first, line, caret = str(problem).splitlines()
    assert first == problem.headline
    assert first.endswith('sluice.yaml:3:20: limiter.threads: expected a whole number, got "two"; write it like 1')
    assert line == "    3 | limiter: {threads: two}"
    assert line[caret.index("^")] == "t"
    assert line[caret.index("^") :].startswith("two}")


def test_the_caret_stays_true_in_a_line_too_long_to_show(faults: Faults) -> None:
    (problem,) = faults(LISTENERS + "rules: [" + "{name: a, limit: {messages: 1/s}, match: {topic: " + "x" * 300 + "}, mode: nof}]\n")
    _, line, caret = str(problem).splitlines()
    assert len(line) < 140
    assert line[caret.index("^") :].startswith("nof}")


@pytest.mark.parametrize(
    "text",
    ["admin: {tokens: [{name: a, role: admin, token: hunter2hunter2}]}", "admin: {password: 'hunter2hunter2'}",
     "listeners: [{name: r, protocol: amqp, bind: 127.0.0.1:1, upstream: 'amqp://user:hunter2hunter2@host:1'}]",
     "admin: {bind: 'amqp://user:hunter2hunter2@host'}"],
)  # fmt: skip
def test_secrets_are_masked_in_messages(faults: Faults, text: str) -> None:
    prefix = "" if text.startswith("listeners") else LISTENERS
    said = "\n".join(str(problem) for problem in faults(prefix + text + "\n"))
    assert "hunter2" not in said
    assert "*" in said


def test_names_keep_their_masks_off(faults: Faults) -> None:
    """`routing_key` is no secret, nor is the name of a file with one."""
    (problem,) = faults(LISTENERS + "rules: [{name: a, match: {routing_key: orders, topic: x}, limit: {messages: 1/s}}]\n")
    assert "routing_key: orders" in str(problem)
    (problem,) = faults(LISTENERS.replace("amqp,", "rocketmq, own_login: {user: u, password_file: secrets/rabbit.password},"))
    assert "password_file: secrets/rabbit.password" in str(problem)


@pytest.mark.parametrize(("key", "instead"), [("durable: true", "uses confirms"), ("answer: accepted_by_gateway", "only one-way sends")])
def test_a_key_that_was_never_released_says_what_to_do_instead(faults: Faults, key: str, instead: str) -> None:
    (problem,) = faults(f"{LISTENERS}rules: [{{name: a, limit: {{messages: 1/s}}, action: spool, {key}}}]\n")
    assert (problem.path, problem.message) == (f"rules[0].{key.partition(':')[0]}", "unknown key")
    assert "it was never released and is gone: remove it" in problem.remedy
    assert instead in problem.remedy


@pytest.mark.parametrize(
    ("data", "line", "column", "said"),
    [
        (b"\xef\xbb\xbflisteners: []\n", 1, 1, "byte order mark"),
        ("listeners: []\n".encode("utf-16"), 1, 1, "UTF-16"),
        (b"log:\n  level: \xff\n", 2, 10, "byte 0xff is not UTF-8"),
        (b"log:\n  level: \x00\n", 2, 10, "control character U+0000"),
        (b"\x7fELF\x02\x01", 1, 1, "control character U+007F"),
        (b"", 1, 1, "the file is empty"),
        (b"# nothing\n", 1, 1, "the file is empty"),
        (b"just words\n", 1, 1, "the file is not a mapping"),
        (b"- a\n- b\n", 1, 1, "the file is not a mapping"),
        (b"x: " + b"[" * 30 + b"]" * 30 + b"\n", 1, 19, "nested deeper than 16 levels"),
        (b"#" * (5 << 20), 1, 1, "larger than 4 MiB"),
        (b"? [a]\n: b\n", 1, 3, "a list as a key"),
    ],
)  # fmt: skip
def test_files_that_are_no_configuration(faults: Faults, data: bytes, line: int, column: int, said: str) -> None:
    problems = faults(data)
    assert any((each.line, each.column) == (line, column) and said in each.message for each in problems), [
        each.headline for each in problems
    ]


def test_brackets_without_end(faults: Faults) -> None:
    """libyaml 0.2.6 gives up at the 1000th bracket, before its first event; 0.2.5 hands out one event per bracket."""
    (problem,) = faults(b"x: " + b"[" * 5000)
    assert (problem.line, problem.column) in {(1, 19), (1, 1003)}
    assert "nested deeper than 16 levels" in problem.message


def test_an_alias_bomb_costs_nothing(faults: Faults) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert any('anchor "&a"' in problem.message for problem in faults(bomb))


def test_a_missing_file_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "none.yaml")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_listeners_are_needed(faults: Faults) -> None:
    (problem,) = faults("log: {}\n")
    assert problem.path == "listeners"
    assert problem.message == "is missing"
    (problem,) = faults("listeners: []\n")
    assert problem.message == "the list is empty"


def test_missing_keys_of_a_listener_are_each_named(faults: Faults) -> None:
    assert {each.path for each in faults("listeners: [{name: x}]\n")} == {
        "listeners[0].protocol",
        "listeners[0].bind",
        "listeners[0].upstream",
    }


def test_duplicate_listeners_are_found_beside_other_errors(faults: Faults) -> None:
    problems = faults(
        "listeners:\n"
        "  - {name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:9}\n"
        "  - {name: a, protocol: amqp, bind: 0.0.0.0:1, upstream: nowhere}\n"
    )
    assert [(each.line, each.path, each.message.partition(";")[0]) for each in problems] == [
        (3, "listeners[1].name", 'duplicate name "a"'),
        (3, "listeners[1].bind", "0.0.0.0:1 is bound twice"),
        (3, "listeners[1].upstream", '"nowhere" has no port'),
    ]


def test_a_listener_must_not_dial_the_gateway_itself(faults: Faults) -> None:
    (problem,) = faults("listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:1}]\n")
    assert problem.message == "127.0.0.1:1 is this gateway's own listeners[0].bind"


def test_two_free_ports_are_not_the_same(write: Callable[..., Path]) -> None:
    text = "".join(f"  - {{name: {name}, protocol: amqp, bind: 127.0.0.1:0, upstream: 127.0.0.1:9}}\n" for name in "ab")
    assert [each.bind.port for each in load(write("listeners:\n" + text)).listeners] == [0, 0]


BEFORE_UPSTREAM = "listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: "


@pytest.mark.parametrize(
    ("upstream", "path", "message", "remedy"),
    [
        ("[]", "upstream", "the list is empty", "add an item, e.g. [10.0.0.1:5672, 10.0.0.2:5672]"),
        ("[a:5672, b:5672, a:5672]", "upstream[2]", "a:5672 is named twice", "take one out"),
        ("'a:9876;b:9876'", "upstream", '"a:9876;b:9876" is not an address but several', "write a list: upstream: [a:9876, b:9876]"),
        ("'a:5672, b:5672'", "upstream", '"a:5672, b:5672" is not an address but several', "write a list: upstream: [a:5672, b:5672]"),
        ("[a:5672, nowhere]", "upstream[1]", '"nowhere" has no port', "write it like 127.0.0.1:5673"),
        ("[a:5672, 5]", "upstream[1]", '"5" is a port without a host', "did you mean 127.0.0.1:5?"),
        ("[a:5672, {b: 1}]", "upstream[1]", "expected host:port, got a mapping", "write it like"),
        ("[a:5672, [b:5672]]", "upstream[1]", "expected host:port, got a list", "write it like"),
        ("{a: 5672}", "upstream", "expected host:port, got a mapping", "write it like"),
        ("[127.0.0.1:9, 127.0.0.1:1]", "upstream[1]", "127.0.0.1:1 is this gateway's own listeners[0].bind", "name the broker's address"),
        (str([f"a{n}:1" for n in range(17)]), "upstream", "the list has 17 items", "the most is 16"),
    ],
)
def test_several_addresses_behind_a_listener(faults: Faults, upstream: str, path: str, message: str, remedy: str) -> None:
    (problem,) = faults(f"{BEFORE_UPSTREAM}{upstream}}}]\n")
    assert (problem.path, problem.message) == (f"listeners[0].{path}", message)
    assert remedy in problem.remedy


def test_every_key_has_a_place_that_can_be_named() -> None:
    """Each setting of the schema is found by its name, so that none is "unknown" without a word where it stands elsewhere."""
    from config.sections import places_of
    from config.settings import ROOT

    def paths(schema: Any, path: str = "") -> set[str]:
        found: set[str] = set()
        for each in (schema, *schema.get("oneOf", []), *schema.get("anyOf", [])):
            for name, inner in each.get("properties", {}).items():
                place = f"{path}.{name}" if path else name
                found |= {place} | paths(inner, place)
            if isinstance(each.get("items"), dict):
                found |= paths(each["items"], f"{path}[]")
        return found

    of_schema = paths(ROOT.schema())
    assert len(of_schema) > 100
    for place in of_schema:
        assert place in dict(places_of(ROOT, place.rpartition(".")[2])), place
