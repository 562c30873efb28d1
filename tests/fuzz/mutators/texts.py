"""Mutations of JSON, of lines, of YAML and of HTTP requests that keep them what they are, most of the time."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from fuzz.mutators.octets import below, mutate

WORDS = (
    "500/s", "0/s", "1/7s", "0.5/s", "99999999999999/ms", "5MiB/s", "1e9/s", "2s", "0s", "10min", "1ns",
    "999999999d", "10%/10s", "none", "reject",
    "delay", "drop", "block", "close", "shadow", "enforce", "topic", "user", "client", "*", "#", "a*", "orders",
    "rocketmq", "amqp", "first",
    "before x", "2026-11-21T12:00:00Z", "2026-11-21", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "1MiB",
    "", "\u00e9", "\x00", "x" * 5000,
    "\ud800", "limits/rocketmq/orders", "limits/amqp/%2F/e/r", "rules/orders", "quotas", "applied", "void",
    "%RETRY%g", "null", "~", "true", "no",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *WORDS, None, True, False, 0, 1, -1, 2, 0.5, 1e300, -1e300, 10**15, 2**31, 2**53 + 1, 2**63, 10**40, 1e-9, [],
    {}, [[]], [{}], {"messages": 5},
    {"messages": "5/s"}, {"rate": 1, "burst": 1}, ["a", "a"],
)  # fmt: skip
OCTETS = tuple(word.encode(errors="surrogatepass") for word in WORDS)
YAML = (b"- ", b": ", b"{", b"}", b"[", b"]", b"'", b'"', b"*a", b"&a ", b"!!x ", b"|\n", b"%", b"\n---\n",
    b"\n...\n", b"? ", b"#", b"\r", b"\t",
        b"\xc2\x85", b"\xe2\x80\xa8", b"9" * 500, b"<<: ", b"~", b"\xef\xbb\xbf", b"\xff\xfe", b", ", b"\n  ", b"\n", *OCTETS)  # fmt: skip
QUANTITY = (*OCTETS, b"0", b".", b"/", b"ms", b"KiB", b"%", b"\xc2\xb5s", b"\xd9\xa3", b"9" * 70, b" ", b"-")
HEADERS = (
    b"Transfer-Encoding: chunked", b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: +5", b"Content-Length: 5, 5",
    b"Transfer-Encoding: gzip, chunked", b"Authorization: Bearer admin", b"Authorization: Bearer no",
    b"Authorization: Basic YTpi", b"If-Match: *",
    b'If-Match: "1"', b"If-Match: W/\"0\"", b"Expect: 100-continue", b"Connection: close", b"Connection: Upgrade, HTTP2-Settings",
    b"Upgrade: h2c", b"Host: 127.0.0.1", b"Host: evil.example", b"Host:", b"Origin: http://evil.example", b"Sec-Fetch-Site: cross-site",
    b"Idempotency-Key: k", b"Content-Type: application/json", b"Content-Type: text/plain", b" folded",
    b"Bad Name: x", b"Name : x", b"X: \x80",
    b"Accept: application/openmetrics-text", b"Transfer-Encoding:\tchunked", b"content-length:5\r\ncontent-length:6",
)  # fmt: skip
METHODS = (b"GET", b"HEAD", b"PUT", b"PATCH", b"DELETE", b"POST", b"OPTIONS", b"TRACE", b"get", b"G@T", b"PRI")
QUERIES = (
    b"?force=1",
    b"?dry_run=1",
    b"?dry_run=1&force=1",
    b"?reason=%C3%A9",
    b"?limit=1",
    b"?%",
    b"?a=1&a=2",
    b"?token=x",
    b"?",
    b"#f",
    b"?limit=-1",
)


# ---- JSON --------------------------------------------------------------------------------------------------------------


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value inside, at most some hundred."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 300:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
        for key in keys:
            found.append((each, key))
            waiting.append(each[key])
    return found


def changed(value: Any, luck: Random) -> Any:
    """The value with one thing in it replaced, removed, doubled, moved or renamed."""
    inside = places(value)
    if not inside:
        return VALUES[below(luck, len(VALUES))]
    container, key = inside[below(luck, len(inside))]
    other, its = inside[below(luck, len(inside))]
    what = below(luck, 7)
    if what < 3:
        container[key] = VALUES[below(luck, len(VALUES))]
    elif what == 3:
        del container[key]
    elif what == 4 and isinstance(container, list):
        container.insert(key, container[key])
    elif what == 4:
        container[WORDS[below(luck, len(WORDS))]] = container[key]
    elif what == 5 and its in (other if isinstance(other, dict) else range(len(other))):
        container[key] = json.loads(json.dumps(other[its]))
    elif isinstance(container[key], int | float) and not isinstance(container[key], bool):
        container[key] += (1, -1, 0.5)[below(luck, 3)]
    return value


def json_text(data: bytes, luck: Random) -> bytes:
    """JSON with one to three things changed; by its octets where it is none."""
    try:
        value = json.loads(data)
        for _ in range(1 + below(luck, 3)):
            value = changed(value, luck)
        text = json.dumps(value, separators=((",", ":"), (", ", ": "))[below(luck, 2)], ensure_ascii=below(luck, 2) == 0)
    except (ValueError, RecursionError, OverflowError):
        return mutate(data, luck, OCTETS)
    if below(luck, 20) == 0:
        text = text.replace("}", ',"v":1}', 1)  # a name twice
    return text.encode(errors="surrogatepass")


def flagged_json(data: bytes, luck: Random) -> bytes:
    """JSON behind a byte of the target's own."""
    mode = data[:1] if below(luck, 4) else bytes((below(luck, 256),))
    return mode + json_text(data[1:], luck)


def flagged_lines(data: bytes, luck: Random) -> bytes:
    """Lines of JSON behind a byte of the target's own: lines changed, doubled, moved, torn and glued."""
    mode = data[:1] if below(luck, 4) else bytes((below(luck, 256),))
    lines = data[1:].split(b"\n")
    for _ in range(1 + below(luck, 3)):
        at = below(luck, len(lines))
        what = below(luck, 8)
        if what < 4:
            lines[at] = json_text(lines[at], luck)
        elif what == 4:
            lines.insert(at, lines[below(luck, len(lines))])
        elif what == 5 and len(lines) > 1:
            lines[at - 1 : at + 1] = [b"".join(lines[at - 1 : at + 1])]
        elif what == 6:
            lines[at] = lines[at][: below(luck, len(lines[at]) + 1)]
        else:
            lines[at] = mutate(lines[at], luck, OCTETS)
        if not lines:
            lines = [b""]
    return mode + b"\n".join(lines)


# ---- YAML, quantities --------------------------------------------------------------------------------------------------


def yaml(data: bytes, luck: Random) -> bytes:
    """Lines moved, doubled, removed and indented otherwise; a value replaced; else by octets, with YAML's own signs."""
    what = below(luck, 6)
    lines = data.split(b"\n")
    at = below(luck, len(lines))
    if what == 0:
        lines.insert(at, lines[below(luck, len(lines))])
    elif what == 1:
        del lines[at]
    elif what == 2:
        lines[at] = b"  " * below(luck, 5) + lines[at].lstrip()
    elif what == 3:
        key, colon, _ = lines[at].partition(b": ")
        lines[at] = key + (colon or b": ") + OCTETS[below(luck, len(OCTETS))]
    else:
        return mutate(data, luck, YAML)
    return b"\n".join(lines)


def quantity(data: bytes, luck: Random) -> bytes:
    return mutate(data, luck, QUANTITY)


# ---- HTTP --------------------------------------------------------------------------------------------------------------


def http(data: bytes, luck: Random) -> bytes:
    """Requests behind a byte of the target's own; bodies are changed as JSON and their length told anew, most of the time."""
    mode = data[:1] if below(luck, 4) else bytes((below(luck, 256),))
    head, blank, body = data[1:].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    for _ in range(1 + below(luck, 3)):
        at = 1 + below(luck, len(lines))
        what = below(luck, 10)
        if what < 2:
            lines.insert(at, HEADERS[below(luck, len(HEADERS))])
        elif what == 2:
            del lines[at : at + 1]
        elif what == 3:
            lines[0] = METHODS[below(luck, len(METHODS))] + b" " + lines[0].partition(b" ")[2]
        elif what == 4:
            lines[0] = lines[0].replace(b" HTTP", QUERIES[below(luck, len(QUERIES))] + b" HTTP", 1)
        elif what == 5:
            words = lines[0].split(b"/")
            words[below(luck, len(words))] = OCTETS[below(luck, len(OCTETS))].replace(b" ", b"%20")[:60]
            lines[0] = b"/".join(words)
        elif what < 9:
            body = json_text(body, luck) if body.startswith(b"{") else mutate(body, luck)
            length = b"Content-Length: %d" % len(body)
            lines = [length if below(luck, 30) and line.lower().startswith(b"content-length:") else line for line in lines]
        else:
            at = below(luck, len(lines))
            lines[at] = mutate(lines[at], luck, HEADERS)
    made = b"\r\n".join(lines) + (blank or b"\r\n\r\n") + body
    if below(luck, 6) == 0:
        made += data[1:]  # the next one on the same connection
    return mode + made
