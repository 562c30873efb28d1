"""`sluice status` as ten lines that a person reads: health, the worst topics, what was changed and ends, the age of the quotas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cli.account_text import culprit
from cli.explain import JSONObject, ago, moment
from cli.names import quote_topic
from cli.traffic_columns import limit_and_mode
from common import figures
from common.figures import pluralise

MOST_LINES: Final = 10
HEAD: Final = 10  # columns; of a line's first word
WORDS: Final = {"refused": "limited", "waiting": "waiting"}  # states of a topic's account that are told


def lines(status: JSONObject, topics: list[JSONObject], listeners: list[JSONObject]) -> list[str]:
    """`status`: of `GET /v1/status`; `topics`: the worst, of `GET /v1/topics`."""
    before = [health(status), *warnings(status), brokers(listeners), *fleet(status), process(status), *spool(status)]
    after = [changes(status), quotas(status)]
    limited = [topic for topic in topics if (topic.get("account") or {}).get("state") in WORDS]
    room = MOST_LINES - len(before) - len(after)  # 1 at least
    shown = limited if len(limited) <= room else limited[: room - 1]
    told = [topic_line(topic) for topic in shown]
    if len(limited) > len(shown):
        told.append(line("limited", "more topics are: `sluice topics --sort refused`, `sluice top`"))
    return [*before, *(told or [line("limits", "no topic is over its limit")]), *after]


def line(word: str, text: str) -> str:
    return f"{word:{HEAD}}{text}"


def health(status: JSONObject) -> str:
    reasons = status.get("not_ready_because") or []
    state = "draining" if status.get("draining") else "ready" if status.get("ready") else "NOT READY"
    text = f"{state}{': ' + '; '.join(map(str, reasons)) if reasons else ''}"
    up = figures.duration(float(status.get("uptime_seconds") or 0))
    return line("health", f"{text}, up {up}, {status.get('name')} {status.get('version')}, revision {status.get('revision') or 0}")


def warnings(status: JSONObject) -> Iterator[str]:
    """The first that is worth a look, and settings that wait for a restart."""
    found = [str(each) for each in status.get("warnings") or []]
    if found:
        yield line("warning", f"{found[0]}{f' (and {len(found) - 1} more: -o wide)' if len(found) > 1 else ''}")
    if status.get("needs_restart"):
        yield line("restart", f"needed for {', '.join(map(str, status['needs_restart']))}")


def brokers(listeners: list[JSONObject]) -> str:
    away = [each for each in listeners if each.get("upstream_reachable") is False]
    blocked = [each for each in listeners if each.get("broker_blocked_connections")]
    if away:
        return line("brokers", "; ".join(f"{each['name']}: {each['upstream']} UNREACHABLE: {each.get('upstream_error')}" for each in away))
    if blocked:
        return line("brokers", "; ".join([blocked_text(each) for each in blocked]))
    return line("brokers", f"reachable ({', '.join(str(each['name']) for each in listeners)})" if listeners else "no listener")


def blocked_text(listener: JSONObject) -> str:
    """`rabbit: 10.0.0.1:5672 takes no messages: low on memory, since 03:12:40 (connection.blocked on 8 connections)`."""
    reason = f": {listener['broker_blocked_reason']}" if listener.get("broker_blocked_reason") else ""
    since = f", since {moment(str(listener['broker_blocked_since']))[-8:]}" if listener.get("broker_blocked_since") else ""
    told = f"connection.blocked on {pluralise(int(listener['broker_blocked_connections']), 'connection')}"
    return f"{listener['name']}: {listener['upstream']} takes no messages{reason}{since} ({told})"


def fleet(status: JSONObject) -> Iterator[str]:
    found = status.get("fleet") or {}
    if found:
        reached = "" if found.get("reachable") else f", Redis UNREACHABLE: {found.get('reason') or '?'}"
        yield line("fleet", f"{found.get('name')}, {pluralise(int(found.get('gateways') or 0), 'gateway')} share the limits{reached}")


def process(status: JSONObject) -> str:
    memory, limit = status.get("memory") or {}, status.get("memory_limit") or {}
    held = f"{figures.size(memory['held_bytes'])} of messages held in memory" if memory.get("held_bytes") is not None else ""
    taken = f"process {figures.size(limit['size_bytes'])} of {figures.size(limit['limit_bytes'])}" if limit.get("limit_bytes") else ""
    late = f"loop {figures.duration(float((status.get('event_loop') or {}).get('lag_ms') or 0) / 1e3)} late"
    return line("load", ", ".join(filter(None, [pluralise(int(status.get("connections") or 0), "connection"), held, taken, late])))


def spool(status: JSONObject) -> Iterator[str]:
    spooled = status.get("spool") or {}
    if spooled.get("messages"):
        text = f"{figures.count(spooled['messages'])} messages wait, {figures.count(spooled['disk_messages'])} of them on disk"
        yield line("spool", f"{text}; {figures.size(spooled['used_bytes'])} of {figures.size(spooled['size_bytes'])} used")


def topic_line(topic: JSONObject) -> str:
    """`waiting   / bills bill.eu: 60/s of 30/s, 3.9k waiting for 2min 10s, 10.1.0.9 (billing) 67 %`."""
    account, limit = topic["account"], topic.get("limit")
    parts = [figures.rate(topic["received_per_second"])]
    if limit:
        parts[0] += f" of {limit_and_mode(limit, limit.get('mode'))}"
    if topic.get("refused_per_second"):
        parts.append(f"{figures.rate(topic['refused_per_second'])} refused")
    if account["state"] == "waiting":
        last = account.get("last_waits_seconds")
        long = "without end" if last is None else f"for {figures.duration(round(last))}"
        parts.append(f"{figures.count(topic['waiting'])} waiting {long}")
    parts.append(culprit(topic) or "")
    since = f", since {moment(account['since'])[-8:]}" if account.get("since") else ""
    return line(WORDS[account["state"]], f"{quote_topic(topic['protocol'], topic['topic'])}: {', '.join(filter(None, parts))}{since}")


def changes(status: JSONObject) -> str:
    state = status.get("state") or {}
    keys, rules = int(state.get("live_changes_of_keys") or 0), int(state.get("live_changes_of_rules") or 0)
    if not keys and not rules:
        return line("changes", "none: the configuration's rules hold")
    ends = f"; the next ends {moment(str(state['next_expiry']))} UTC" if state.get("next_expiry") else "; none has an end"
    return line("changes", f"{keys} of limits, {rules} of rules are changed live{ends}")


def quotas(status: JSONObject) -> str:
    found = (status.get("state") or {}).get("quotas")
    if not isinstance(found, dict):
        return line("quotas", "none are published")
    at = str(found.get("at") or found.get("computed_at") or "")
    return line("quotas", f"of {found.get('date') or moment(at)}, published {ago(at)} ago by {found.get('by') or 'somebody'}")
