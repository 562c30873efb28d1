"""The columns of topics, connections and listeners. `docs/reading-the-tables.md` explains each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cli.names import topic_of, typed
from cli.tables import ESSENTIAL, Read, TableColumn, column
from common import figures
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


def culprits(item: dict[str, Any]) -> object:
    """The clients refused now, each with its messages per second. If none is: those refused before, with their messages."""
    now = _refused_now(item)
    if now:
        return ", ".join(f"{client.get('client')} {client['refused_per_second']:.0f}/s" for client in now)
    return ", ".join(f"{client.get('client')} {client.get('refused')}" for client in _clients(item))


def worst_client(item: dict[str, Any]) -> object:
    """The client refused most now, and its rate; None while none is."""
    now = _refused_now(item)
    return f"{now[0].get('client')} {figures.rate(now[0]['refused_per_second'])}" if now else None


def _clients(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [client for client in item.get("clients") or [] if isinstance(client, dict)]


def _refused_now(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [client for client in _clients(item) if client.get("refused_per_second")]


def wait(milliseconds: float) -> str:
    """Until one message would pass; `never` where the limit lets none pass."""
    return "never" if milliseconds > 1e12 else figures.duration(milliseconds / 1e3)


def some(name: str, figure: Callable[[float], str]) -> Read:
    """A number for people; none where it is 0, so that a column of nothing but that is left out."""

    def read(item: dict[str, Any]) -> object:
        return figure(item[name]) if item.get(name) else None

    return read


TOPICS: Final[list[TableColumn]] = [
    column("protocol", "protocol", rank=35),
    column("topic", "topic", rank=0, people=topic_of),
    column("operation", "operation", rank=38),
    column("received/s", "received_per_second", rank=1, short="in", figure=figures.rate),
    column("forwarded/s", "forwarded_per_second", rank=2, short="passed", figure=figures.rate),
    column("refused/s", "refused_per_second", rank=3, short="refused", figure=figures.rate),
    column("bytes/s", "bytes_per_second", rank=15, short="bytes", figure=figures.byte_rate),
    column("received", "received", rank=40, short="total in", figure=figures.count),
    column("forwarded", "forwarded", rank=41, short="total passed", figure=figures.count),
    column("refused", "refused", rank=32, short="total refused", figure=figures.count),
    column("dropped", "dropped", rank=42, figure=figures.count),
    column("abandoned", "abandoned", rank=43, figure=figures.count),
    column("waiting", "waiting", rank=20, figure=figures.count, pressing=ESSENTIAL),
    column("limit", "limit.messages", rank=5, people=lambda item: limit_and_mode(item.get("limit"), (item.get("limit") or {}).get("mode"))),
    column("mode", "limit.mode", rank=31),
    column("redelivered", "redelivered", rank=34, people=some("redelivered", figures.count)),
    column("would refuse", "shadow_refused", rank=33, people=some("shadow_refused", figures.count), pressing=ESSENTIAL),
    column("byte limit", "limit.bytes", rank=11, people=lambda item: byte_limit(item.get("limit"))),
    column("used", "used", rank=4, figure=figures.percent),
    column("wait ms", "wait_ms", rank=12, short="wait", figure=wait),
    column("wait p99 ms", "wait_p99_ms", rank=13, short="p99 wait", figure=wait),
    column("origin", "limit.origin", rank=30),
    column("group", "group", rank=36),
    TableColumn("refused most", culprits, 10, "worst client", worst_client, whole=True),
]


def held_topic(item: dict[str, Any]) -> str | None:
    """The topic whose messages a limit holds, or else refused of late."""
    held = item.get("held_by") or item.get("refused_by")
    return typed(item.get("protocol"), held["topic"]) if isinstance(held, dict) and held.get("topic") else None


BOTTLENECKS: Final = {"client": "client does not read", "spool": "spool full or slow"}  # as people read them; the others say it themselves


def _bottleneck(item: dict[str, Any]) -> object:
    return BOTTLENECKS.get(str(item.get("bottleneck")), item.get("bottleneck"))


def _gone(item: dict[str, Any]) -> object:
    """A client that has closed, or is gone, and what it had sent."""
    if item.get("state") != "client_gone":
        return None
    return f"its client is gone; {figures.count(item.get('held_messages') or 0)} messages still go on"


CONNECTIONS: Final[list[TableColumn]] = [
    column("id", "id", rank=1),
    column("listener", "listener", rank=30),
    column("client", "client", rank=0),
    column("name", "client_properties.connection_name", rank=8),
    column("user", "user", rank=3),
    column("vhost", "vhost", rank=25),
    column("state", "state", rank=7),
    column("bottleneck", "bottleneck", rank=2, people=_bottleneck),
    column("rule", "held_by.rule", "refused_by.rule", rank=11),
    column("topic", "held_by.topic", "refused_by.topic", rank=9, people=held_topic, below=True),
    column("forwarded", "messages_forwarded", rank=6, short="passed", people=some("messages_forwarded", figures.count)),
    column("refused/s", "refused_per_second", rank=4, short="refused", people=some("refused_per_second", figures.rate)),
    column("refused", "messages_refused", rank=27, short="total refused", people=some("messages_refused", figures.count)),
    column("held", "held_messages", rank=4, people=some("held_messages", figures.count)),
    column("held bytes", "held_bytes", rank=22, figure=figures.size),
    column("spooled bytes", "spooled_bytes", rank=5, short="spooled", people=some("spooled_bytes", figures.size)),
    column("spool stage", "credit.spool.stage", rank=23, short="spool"),
    column("flow s", "credit.reader.blocked_seconds", rank=31, short="in flow", figure=figures.duration),
    column("blocked s", "broker_blocked_seconds", rank=32, short="blocked", figure=figures.duration),
    column("send blocked s", "send_blocked_seconds", rank=33, short="send blocked", figure=figures.duration),
    column("age s", "age_seconds", rank=13, short="age", figure=figures.duration),
    column("delivered", "messages_delivered", rank=10, people=some("messages_delivered", figures.count)),
    column("unread", "backlog_to_client", rank=5, people=some("backlog_to_client", figures.size)),
    column("unread s", "unread_seconds", rank=12, short="unread for", people=some("unread_seconds", figures.duration)),
    column("client gone s", "client_gone_seconds", rank=5, short="client", people=_gone, below=True),
]


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


def _guarded(hop: object, verified: str) -> object:
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
    TableColumn("tls", lambda item: _guarded(item.get("tls"), "client certificates"), 8),
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
    TableColumn("upstream tls", lambda item: _guarded(item.get("upstream_tls"), "verified"), 13),
    column("proxy sent", "send_proxy_protocol", rank=24),
    TableColumn("state", _reachable, 1),
]
