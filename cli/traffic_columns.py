"""The columns of topics, connections and listeners. `docs/reading-the-tables.md` explains each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cli.names import quote_topic, topic_of
from cli.tables import Read, Special, TableColumn, choose_columns, column
from common import figures
from common.views import columns
from limiter.units import parse_byte_rate, parse_rate


def limit_in_figures(limit: object) -> str | None:
    """`500/s`, or where it has no rate of messages `5 MiB/s` or `64 at once`; None without a limit. `byte_limit` is the second column."""
    if not isinstance(limit, dict):
        return None
    if limit.get("messages"):
        return _rate(limit["messages"])
    return byte_limit(limit) or (f"{limit['concurrent']} at once" if limit.get("concurrent") is not None else None)


def limit_and_mode(limit: object, mode: object) -> str | None:
    """`500/s`, or `500/s, shadow` where it is not enforced."""
    figures_of_it = limit_in_figures(limit)
    return figures_of_it if figures_of_it is None or mode in {None, "enforce"} else f"{figures_of_it}, {mode}"


def byte_limit(limit: object) -> str | None:
    """`5 MiB/s`."""
    return _byte_rate(limit["bytes"]) if isinstance(limit, dict) and limit.get("bytes") else None


def _rate(text: str) -> str:
    try:
        return figures.rate(parse_rate(text).per_second)
    except ValueError:
        return text


def _byte_rate(text: str) -> str:
    try:
        return figures.byte_rate(parse_byte_rate(text).per_second)
    except ValueError:
        return text


def worst_client(item: dict[str, Any]) -> object:
    """Who has most of what is refused now, or else of what waits, and which part of it; None while nobody has."""
    account = item.get("account") or {}
    return f"{account['client']} {figures.percent(account['client_share'])}" if account.get("client") else None


def last_wait(item: dict[str, Any]) -> object:
    """How long a message that comes now will wait: behind those that wait already."""
    account = item.get("account") or {}
    if account.get("state") == "waiting":
        last = account.get("last_waits_seconds")
        return "without end" if last is None else figures.duration(round(last))
    return None if item.get("wait_ms") is None else figures.wait(item["wait_ms"])


def some(name: str, figure: Callable[[float], str]) -> Read:
    """A number for people; none where it is 0, so that a column of nothing but that is left out."""

    def read(item: dict[str, Any]) -> object:
        return figure(item[name]) if item.get(name) else None

    return read


TOPICS: Final = choose_columns(
    columns.TOPICS,
    {
        "topic": Special(topic_of),
        "limit": Special(lambda item: limit_and_mode(item.get("limit"), (item.get("limit") or {}).get("mode"))),
        "byte limit": Special(lambda item: byte_limit(item.get("limit"))),
        "wait ms": Special(last_wait),
        "refused most": Special(worst_client, whole=True),
    },
)


def held_topic(item: dict[str, Any]) -> str | None:
    """The topic whose messages a limit holds, or else refused of late."""
    held = item.get("held_by") or item.get("refused_by")
    return quote_topic(item.get("protocol"), held["topic"]) if isinstance(held, dict) and held.get("topic") else None


BOTTLENECKS: Final = {"client": "client does not read", "spool": "spool full or slow"}  # as people read them; the others say it themselves


def _state(item: dict[str, Any]) -> object:
    """In the words of the page: one that passes bytes on as they come, but has messages refused, is not simply running."""
    if item.get("refused_by") and item.get("state") in {"running", "flow"}:
        return "refused"
    return "waiting" if item.get("state") == "throttled" else item.get("state")


def _bottleneck(item: dict[str, Any]) -> object:
    return BOTTLENECKS.get(str(item.get("bottleneck")), item.get("bottleneck"))


def _describe_gone(item: dict[str, Any]) -> object:
    """A client that has closed, or is gone, and what it had sent."""
    if item.get("state") != "client_gone":
        return None
    return f"its client is gone; {figures.count(item.get('held_messages') or 0)} messages still go on"


CONNECTIONS: Final = choose_columns(
    columns.CONNECTIONS,
    {
        "state": Special(_state),
        "bottleneck": Special(_bottleneck),
        "topic": Special(held_topic, below=True),
        "client gone s": Special(_describe_gone, below=True),
    },
)


def _reachable(item: dict[str, Any]) -> object:
    """Whether the last connection attempt or probe reached the broker; None before the first. Of several addresses, the state of each."""
    upstreams = item.get("upstreams") or []
    if len(upstreams) > 1:
        return "; ".join(map(_upstream_state, upstreams))
    if item.get("upstream_reachable") is False:
        return f"unreachable: {item.get('upstream_error')}"
    return "reachable" if item.get("upstream_reachable") else None


def _upstream_state(upstream: dict[str, Any]) -> str:
    """An address and its state: `10.0.0.1:5672 in use`, `10.0.0.2:5672 stands by`."""
    state, error, left = upstream.get("state"), upstream.get("error"), upstream.get("held_seconds") or 0
    if state == "up":
        return f"{upstream['address']} {'in use' if upstream.get('preferred') else 'stands by'}"
    if state == "held":
        return f"{upstream['address']} answers again, held for {figures.duration(left)}"
    return f"{upstream['address']} {'untried' if state == 'untried' else f'unreachable: {error}'}"


def _describe_tls(hop: object, verified: str) -> object:
    """TLS on one side of a listener: on, permissive, or `verified` where the peer's certificate is checked. None without TLS."""
    if not isinstance(hop, dict):
        return None
    if hop.get("mode") == "permissive":
        return "permissive"
    return verified if hop.get("peer_verified") else "on"


def _cap(item: dict[str, Any]) -> object:
    """The listener's caps in use: the limit now and, where that is below the rule's, the rule's limit and the reason."""
    caps = [cap for cap in item.get("caps") or [] if isinstance(cap, dict)]
    return "; ".join(f"{cap['now']} of {cap['limit']} ({cap['reason']})" if cap.get("reason") else f"{cap['now']}" for cap in caps) or None


LISTENERS: Final[list[TableColumn]] = [
    column("listener", "name", rank=0),
    column("protocol", "protocol", rank=6),
    column("bind", "bind", rank=2),
    TableColumn("tls", lambda item: _describe_tls(item.get("tls"), "client certificates"), 8),
    TableColumn("proxy", lambda item: "accepted" if item.get("accept_proxy_protocol") else None, 20),
    column("seats", "seats.taken", rank=4, short="connections"),
    column("of", "seats.most", rank=5, short="at most"),
    column("per address", "max_connections_per_address", rank=21),
    column("per user", "max_connections_per_user", rank=22),
    column("rate", "max_connection_rate", rank=23),
    TableColumn("refused", lambda item: sum((item.get("connections_refused") or {}).values()), 9),
    column("queued", "judged.queued", rank=30, figure=figures.count),
    column("inline", "judged.inline", rank=31, figure=figures.count),
    TableColumn("unjudged", lambda item: (item.get("judged") or {}).get("bypassed_messages"), 12),
    TableColumn("cap", _cap, 11),
    TableColumn("broker busy", lambda item: sum((item.get("broker_busy") or {}).values()), 10),
    column("upstream", "upstream", rank=3),
    TableColumn("upstream tls", lambda item: _describe_tls(item.get("upstream_tls"), "verified"), 13),
    column("proxy sent", "send_proxy_protocol", rank=24),
    TableColumn("state", _reachable, 1),
]
