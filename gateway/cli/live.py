"""`sluice topics`, `connections`, `listeners`, `status`, `health`, `reload`, `drain`: look at a running gateway, and act on it."""

from __future__ import annotations

from typing import Any, Final

import click

from gateway.cli.client import AdminClient, listed
from gateway.cli.exits import FAILED, INVALID, OK, UNREACHABLE, CommandError
from gateway.cli.output import Column, clean, column, print_status
from gateway.cli.verb import Change, Group, Remote, Verb, acting, optional_list_word, remote, report_change


def _culprits(item: dict[str, Any]) -> object:
    """The clients refused now, each with its messages per second. If none is: those refused before, with their messages."""
    clients = [client for client in item.get("clients") or [] if isinstance(client, dict)]
    now = [client for client in clients if client.get("refused_per_second")]
    if now:
        return ", ".join(f"{client.get('client')} {client['refused_per_second']:.0f}/s" for client in now)
    return ", ".join(f"{client.get('client')} {client.get('refused')}" for client in clients)


TOPICS: Final[list[Column]] = [
    column("protocol", "protocol"),
    column("topic", "topic"),
    column("operation", "operation"),
    column("received/s", "received_per_second"),
    column("forwarded/s", "forwarded_per_second"),
    column("refused/s", "refused_per_second"),
    column("bytes/s", "bytes_per_second"),
    column("received", "received"),
    column("forwarded", "forwarded"),
    column("refused", "refused"),
    column("dropped", "dropped"),
    column("abandoned", "abandoned"),
    column("waiting", "waiting"),
    column("group", "group"),
    ("refused most", _culprits),
]
CONNECTIONS: Final[list[Column]] = [
    column("id", "id"),
    column("listener", "listener"),
    column("client", "client"),
    column("name", "client_properties.connection_name"),
    column("user", "user"),
    column("vhost", "vhost"),
    column("state", "state"),
    column("bottleneck", "bottleneck"),
    column("rule", "held_by.rule"),
    column("topic", "held_by.topic"),
    column("forwarded", "messages_forwarded"),
    column("held", "held_messages"),
    column("held bytes", "held_bytes"),
    column("flow s", "credit.reader.blocked_seconds"),
    column("blocked s", "broker_blocked_seconds"),
    column("send blocked s", "send_blocked_seconds"),
    column("age s", "age_seconds"),
]


def _reachable(item: dict[str, Any]) -> object:
    """Whether the last connection attempt or probe reached the broker; None before the first."""
    if item.get("upstream_reachable") is False:
        return f"unreachable: {item.get('upstream_error')}"
    return "reachable" if item.get("upstream_reachable") else None


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


LISTENERS: Final[list[Column]] = [
    column("listener", "name"),
    column("protocol", "protocol"),
    column("bind", "bind"),
    ("tls", lambda item: _guarded(item.get("tls"), "client certificates")),
    ("proxy", lambda item: "accepted" if item.get("accept_proxy_protocol") else None),
    column("seats", "seats.taken"),
    column("of", "seats.most"),
    column("per address", "max_connections_per_address"),
    column("per user", "max_connections_per_user"),
    column("rate", "max_connection_rate"),
    ("refused", lambda item: sum((item.get("connections_refused") or {}).values())),
    column("queued", "judged.queued"),
    column("inline", "judged.inline"),
    ("unjudged", lambda item: (item.get("judged") or {}).get("bypassed_messages")),
    ("cap", _cap),
    ("broker busy", lambda item: sum((item.get("broker_busy") or {}).values())),
    column("upstream", "upstream"),
    ("upstream tls", lambda item: _guarded(item.get("upstream_tls"), "verified")),
    column("proxy sent", "send_proxy_protocol"),
    ("state", _reachable),
]
RELOADED: Final = {"in_force": ("in force", "would be in force"), "needs_restart": ("needs a restart", "would need a restart")}


@click.command(cls=Verb, example="sluice topics\nsluice topics -q order -o json")
@click.option("-q", "--query", metavar="TEXT", help="Only topics whose name contains TEXT.")
@optional_list_word
@remote
def topics(remote: Remote, query: str | None) -> None:
    """List topics seen lately: messages received, forwarded and refused, per second and in all.

    Operation consume: messages to consumers of a queue. Group: the consumer group whose retries a RocketMQ topic holds.
    Refused most: the clients behind the refusals, each with its refused messages per second; if none is refused now, in all.
    """
    remote.emit(list(remote.client.items("/v1/topics", {"q": query} if query else None)), TOPICS)


@click.group(cls=Group, example="sluice connections list")
def connections() -> None:
    """Look at client connections, and close one."""


@connections.command("list", example="sluice connections list -q 10.0.0.7")
@click.option(
    "-q", "--query", metavar="TEXT", help="Only connections whose client, name, user, virtual host, listener, rule or topic contains TEXT."
)
@remote
def list_(remote: Remote, query: str | None) -> None:
    """List connections with their state and bottleneck, and the seconds spent blocked.

    Flow s: not read for want of credit. Blocked s: the broker had sent connection.blocked. Send blocked s: the broker was slow to
    take bytes.

    Bottleneck: broker_blocked (the broker says so), limit (a rule holds messages; see rule and topic), memory (the gateway holds too
    much, and this client publishes), client (it does not read), broker (it is slow), limiter (it is slow).
    """
    remote.emit(list(remote.client.items("/v1/connections", {"q": query} if query else None)), CONNECTIONS)


@connections.command("close", example="sluice connections close 42 --reason 'runaway job'")
@click.argument("connection", metavar="ID", type=click.IntRange(min=1))
@acting
@remote
def close(remote: Remote, change: Change, connection: int) -> None:
    """Close one connection in the way of its protocol; the client is sent the reason. `list` shows the IDs."""
    change.confirm(f"Close connection {connection} of the gateway at {remote.url}?")
    body = remote.client.ask("DELETE", f"/v1/connections/{connection}", query=change.query()).body
    if remote.form != "table":
        remote.emit(body)
    report_change(change, f"connection {connection} is being closed", f"close connection {connection}")


@click.command(cls=Verb, example="sluice listeners\nsluice listeners -o yaml")
@optional_list_word
@remote
def listeners(remote: Remote) -> None:
    """List listeners: TLS, PROXY headers, connections and their bounds, refused ones, and whether the broker was reachable last.

    Queued, inline: batches of requests judged on the limiter's threads and on the event loop. Unjudged: messages that passed without a
    verdict, because the limiter was too busy or failed.
    """
    remote.emit(listed(remote.client.ask("GET", "/v1/listeners").body), LISTENERS)


@click.command(cls=Verb, example="sluice status -o json")
@remote
def status(remote: Remote) -> None:
    """Show the gateway's build, uptime, connections and memory, and the fleet that it shares its limits with.

    Limits: keys and origins (senders) of open connections; levels: buckets in memory, at most max_keys. Since the start: buckets
    forgotten (they were full), shelved (packed until they are full), overflowed (topics that shared one bucket). Needs restart:
    settings in the file that differ from those in force and that a reload cannot change.
    """
    body = remote.client.ask("GET", "/v1/status").body
    remote.emit(_once(body) if remote.form == "table" and isinstance(body, dict) else body)


def _once(status: dict[str, Any]) -> dict[str, Any]:
    """A status without the members that stand in it twice for the sake of older scripts."""
    shown = dict(status)
    if isinstance(shown.get("memory"), dict):
        shown.pop("memory_full", None)  # memory.full
    if "revision" in shown and isinstance(shown.get("state"), dict):
        shown["state"] = {name: value for name, value in shown["state"].items() if name != "revision"}
    if isinstance(shown.get("workers"), list):
        shown["workers"] = [_once(worker) if isinstance(worker, dict) else worker for worker in shown["workers"]]
    return shown


@click.command(cls=Verb, example="sluice health && echo ready")
@remote
@click.pass_context
def health(ctx: click.Context, remote: Remote) -> None:
    """Ask whether the gateway is ready: exit 0 ready, 1 not ready, 4 not reachable."""
    client = _client(remote)
    try:
        body = client.ask("GET", "/readyz").body
    except CommandError as error:
        if error.code == UNREACHABLE:
            raise
        content = error.content if isinstance(error.content, dict) else {}
        reasons = [str(reason) for reason in content.get("reasons") or []]
        if not reasons and content.get("detail"):
            reasons = [str(content["detail"])]
        print_status(f"{client.url} is not ready{':' if reasons else ''}")
        for reason in reasons:
            print_status(f"  {reason}")
        if not reasons and content.get("ready") is False and not client.has_token:
            print_status("the reasons are shown only with a token; see --token-file")
        elif not reasons:
            error.show()
        if remote.form != "table":
            remote.emit({"ready": False, "reasons": reasons or [error.message]})
        ctx.exit(FAILED)
    for warning in body.get("warnings") or [] if isinstance(body, dict) else []:
        print_status(f"ready, but {warning}")
    shown = body if isinstance(body, dict) else {"ready": True}
    remote.emit({"ready": shown.get("ready")} if remote.form == "table" else shown)
    ctx.exit(OK)


def _client(remote: Remote) -> AdminClient:
    """A probe needs no token, so an unreadable token file does not make the gateway unhealthy."""
    try:
        return remote.client
    except CommandError:
        return AdminClient(remote.url, None, remote.timeout_s)


@click.command(cls=Verb, example="sluice reload --dry-run\nsluice reload --reason 'rule for invoices'")
@acting
@remote
def reload(remote: Remote, change: Change) -> None:
    """Have the gateway read its configuration again. Rules take effect at once; settings that need a restart are listed.

    A faulty file changes nothing: exit 3, with all its mistakes.
    """
    try:
        reply = remote.client.ask("POST", "/v1/config:reload", query=change.query())
    except CommandError as error:
        if error.status == 422:
            error.code = INVALID
        raise
    if remote.form != "table" or not isinstance(reply.body, dict):
        remote.emit(reply.body)
        return
    lines = [f"{words[change.dry_run]}: {line}" for name, words in RELOADED.items() for line in reply.body.get(name, [])]
    for line in lines:
        click.echo(clean(line))
    if change.dry_run:
        print_status("dry run, the configuration in force stays" if lines else "dry run: nothing would change")
    else:
        print_status("configuration read again" if lines else "configuration read again: nothing changed")


@click.command(cls=Verb, example="sluice drain --yes --reason 'upgrade'")
@acting
@remote
def drain(remote: Remote, change: Change) -> None:
    """Have the gateway stop gracefully: it accepts no new connections, finishes what is in flight, and ends."""
    change.confirm(f"Drain the gateway at {remote.url}? It stops, and clients have to connect elsewhere.")
    if change.dry_run:
        status = remote.client.ask("GET", "/v1/status").body
        remote.emit({"connections": status.get("connections") if isinstance(status, dict) else None, "draining": False})
    else:
        body = {"confirm": True, **({"reason": change.reason} if change.reason else {})}
        remote.emit(remote.client.ask("POST", "/v1/drain", body=body).body)
    report_change(change, "draining begun", "begin to drain")
