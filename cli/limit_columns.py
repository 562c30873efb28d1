"""The columns of limits: those of one key, and those in use. `docs/reading-the-tables.md` explains each."""

from __future__ import annotations

from typing import Any, Final

from cli.explain import cost_text, describe_trial_beside, in_flight, limit, moment
from cli.names import quote_topic
from cli.tables import ESSENTIAL, Read, TableColumn, column
from cli.traffic_columns import byte_limit, limit_and_mode, limit_in_figures, some
from common import figures
from limiter.units import format_size


def time_of(name: str) -> Read:
    """The time in this member, for people: one of today by its hour; UTC."""
    return lambda item: moment(str(item[name])) if item.get(name) else None


def _byte_burst(level: dict[str, Any]) -> object:
    tokens = (level.get("limit") or {}).get("bytes_burst")
    return format_size(tokens) if isinstance(tokens, int) else tokens


def _in_flight(item: dict[str, Any]) -> object:
    return in_flight(item["level"].get("usage") or {})


def _last_refused(item: dict[str, Any]) -> object:
    last = (item["level"].get("usage") or {}).get("last_refused")
    return moment(last) if last else None


def _would_refuse(item: dict[str, Any]) -> object:
    return some("would_refuse", figures.count)(item["level"].get("usage") or {})


def thing_of(level: dict[str, Any], protocol: object) -> object:
    """A limit's subject as people write it: a topic's words, a client's address."""
    return quote_topic(protocol, level["thing"]) if level.get("per") == "topic" and level.get("thing") else level.get("thing") or "all"


def _rule_limit(level: dict[str, Any]) -> object:
    """The rule's own limit, where a live change or a quota holds over it."""
    own = level.get("rule_limit")
    return None if own is None else limit(own)


def cost(item: dict[str, Any]) -> object:
    """What a rule or a limit counts for one, where that is not one."""
    return cost_text(item["cost"]) if item.get("cost") else None


LEVELS: Final[list[TableColumn]] = [
    column("operation", "operation", rank=12),
    column("per", "per", rank=1),
    column("for", "thing", rank=0, people=lambda level: thing_of(level, level.get("protocol"))),
    column("messages", "limit.messages", rank=2, short="limit", people=lambda level: limit_in_figures(level.get("limit"))),
    column("burst", "limit.messages_burst", rank=13, figure=figures.count),
    column("bytes", "limit.bytes", rank=11, short="byte limit", people=lambda level: byte_limit(level.get("limit"))),
    TableColumn("byte burst", _byte_burst, 20),
    column("concurrent", "limit.concurrent", rank=61),
    column("action", "action", rank=5),
    column("fallback", "fallback", rank=21),
    column("mode", "mode", rank=6),
    TableColumn("rule's limit", _rule_limit, 23),
    column("candidate", "candidate.messages", "candidate.bytes", rank=14),
    column("origin", "origin", rank=3),
    column("rule", "rule", rank=4),
    column("place", "place", rank=9),
    column("by", "by", rank=8),
    TableColumn("at", column("", "at").read, 22, people=time_of("at"), whole=True),
    TableColumn("until", column("", "expires").read, 7, people=time_of("expires"), whole=True),
    column("reason", "reason", rank=10),
    column("cost", "cost", rank=24, people=cost),
]
IN_USE: Final[list[TableColumn]] = [
    column("protocol", "protocol", rank=32),
    column("operation", "operation", rank=33),
    column("per", "level.per", rank=6),
    column("for", "level.thing", rank=0, people=lambda item: thing_of(item["level"], item.get("protocol"))),
    column(
        "messages",
        "level.limit.messages",
        rank=1,
        short="limit",
        people=lambda item: limit_and_mode(item["level"].get("limit"), item["level"].get("mode")),
    ),
    column("bytes", "level.limit.bytes", rank=14, short="byte limit", people=lambda item: byte_limit(item["level"].get("limit"))),
    TableColumn("in flight", _in_flight, 12),
    column("mode", "level.mode", rank=16),
    column("would refuse", "level.usage.would_refuse", rank=17, people=_would_refuse, pressing=ESSENTIAL),
    column("origin", "level.origin", rank=7),
    column("rule", "level.rule", rank=11),
    column("place", "level.place", rank=34),
    column("used", "level.usage.used", rank=2, figure=figures.percent),
    column("received/s", "level.usage.received_per_second", rank=3, short="in", figure=figures.rate),
    column("forwarded/s", "level.usage.forwarded_per_second", rank=8, short="passed", figure=figures.rate),
    column("refused/s", "level.usage.refused_per_second", rank=4, short="refused", figure=figures.rate),
    column("refused", "level.usage.refused", rank=13, short="total refused", figure=figures.count),
    column("wait ms", "level.usage.wait_ms", rank=9, short="wait", figure=figures.wait),
    column("fill", "level.usage.fill", rank=35, short="burst left", figure=figures.percent),
    column("breaker", "level.usage.breaker", rank=10),
    column("last refused", "level.usage.last_refused", rank=14, people=_last_refused),
    TableColumn("candidate", lambda item: describe_trial_beside(item["level"]), 15),
]
