"""`sluice topics`, `connections`, `listeners`, `status`, `health`, `reload`, `drain`: look at a running gateway, and act on it."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from cli.client import AdminClient, find_items
from cli.exits import CommandError
from cli.key_completion import complete_connection
from cli.listing import Orders, gather_items, limit_option, sort_option, watchable
from cli.output import clean, is_wide, on_terminal, print_status, terminal_width
from cli.tables import fold
from cli.traffic_columns import CONNECTIONS, LISTENERS, TOPICS
from cli.verb import DRY, ChangeOptions, Remote, Verb, VerbGroup, acting, optional_list_word, remote, report_change
from common.failures import FAILED, INVALID, OK, UNREACHABLE
from limiter.units import parse_duration

RELOADED: Final = {"in_force": ("in force", "would be in force"), "needs_restart": ("needs a restart", "would need a restart")}


def _query(query: str | None, sort: str) -> dict[str, str]:
    return {"q": query or "", "sort": "" if sort == "name" else sort}


@click.command(cls=Verb, example="sluice topics --sort refused --limit 10 --watch\nsluice topics -q order -o json")
@click.option("-q", "--query", metavar="TEXT", help="Only topics whose name has each word of TEXT.")
@sort_option(["used", "worst", "refused", "rate", "wait", "name"])
@limit_option()
@optional_list_word
@watchable
@remote
def topics(remote: Remote, query: str | None, sort: str, most: int | None) -> None:
    """List topics seen lately: messages received, forwarded and refused, per second (means over 10 s) and in all.

    Limit: that of the topic, whoever sends. Used: the share of it that passes. Wait: until one more message would pass. Operation consume:
    messages to consumers of a queue. Group: the consumer group whose retries a RocketMQ topic holds. Worst client: the one refused most.
    """
    empty = "no topics yet: none was used since the gateway started; a client that publishes through it makes the first"
    if query:
        empty = f"no topic's name contains {query}; `sluice topics` lists all"
    remote.emit(list(remote.client.items("/v1/topics", _query(query, sort), most=most)), TOPICS, empty=empty)


@click.group(cls=VerbGroup, example="sluice connections list")
def connections() -> None:
    """Look at client connections, and close one."""


@connections.command("list", example="sluice connections list -q 10.0.0.7")
@click.option(
    "-q", "--query", metavar="TEXT", help="Only connections whose client, name, user, virtual host, listener, rule or topic contains TEXT."
)
@sort_option(["wait", "refused", "backlog", "forwarded", "blocked", "age", "name"], help="Order; what is largest first. Name: by number.")
@limit_option()
@watchable
@remote
def list_(remote: Remote, query: str | None, sort: str, most: int | None) -> None:
    """List connections with their state and bottleneck, and the seconds spent blocked.

    Passed: messages it published; refused: by limits, per second. Delivered: messages sent to it. Unread: bytes that wait for it; unread
    for: it has taken none for so long. Spooled: bytes of held messages that are on disk only. Flow s: not read for want of credit.
    Blocked s: the broker had sent connection.blocked. Send blocked s: the broker was slow to take bytes.

    Bottleneck: broker_blocked (the broker says so), spool (it is full, or slower than the client), limit (a rule holds messages, or
    refused some in the last 10 s; see rule and topic), memory (the gateway holds too much, and this client publishes), client (it does
    not read), broker (it is slow), limiter (it is slow).

    Sort: wait is by messages held, refused by messages refused per second, backlog by bytes that wait, forwarded by messages since it was
    opened, blocked by the seconds that its broker kept it waiting.
    """
    empty = f"no connection has {query} in it" if query else "no client is connected; `sluice listeners` shows where they can"
    remote.emit(list(remote.client.items("/v1/connections", _query(query, sort), most=most)), CONNECTIONS, empty=empty)


@connections.command("close", example="sluice connections close 42 --reason 'runaway job'")
@click.argument("connection", metavar="ID", type=click.IntRange(min=1), shell_complete=complete_connection)
@acting
@remote
def close(remote: Remote, change: ChangeOptions, connection: int) -> None:
    """Close one connection in the way of its protocol; the client is sent the reason. `list` shows the IDs."""
    client, target = remote.client, f"/v1/connections/{connection}"
    change.confirm(f"Close connection {connection} of the gateway at {remote.url}?", lambda: client.ask("DELETE", target, query=DRY))
    body = client.ask("DELETE", target, query=change.query()).body
    if remote.form != "table":
        remote.emit(body)
    report_change(change, f"connection {connection} is being closed", f"close connection {connection}")


LISTENER_ORDERS: Final[Orders] = {
    "place": None,
    "name": lambda item: item.get("name"),
    "connections": lambda item: (item.get("seats") or {}).get("taken"),
    "refused": lambda item: sum((item.get("connections_refused") or {}).values()),
}


@click.command(cls=Verb, example="sluice listeners\nsluice listeners --sort connections\nsluice listeners -o yaml")
@optional_list_word
@sort_option(LISTENER_ORDERS, "place", "Order; place: as in the configuration, else what is largest now first.")
@limit_option()
@watchable
@remote
def listeners(remote: Remote, sort: str, most: int | None) -> None:
    """List listeners: TLS, PROXY headers, connections and their bounds, refused ones, and whether the broker was reachable last.

    Queued, inline: batches of requests judged on the limiter's threads and on the event loop. Unjudged: messages that passed without a
    verdict, because the limiter was too busy or failed.
    """
    found = gather_items(remote.client, "/v1/listeners", LISTENER_ORDERS, sort, most)
    remote.emit(found, LISTENERS, empty="this gateway has no listener: name one under `listeners` in its configuration")


@click.command(cls=Verb, example="sluice status\nsluice status -o wide\nsluice status -o json")
@remote
def status(remote: Remote) -> None:
    """Show how the gateway is in ten lines: its health, the worst topics, what was changed live and ends, the age of the quotas.

    With -o wide all its counters. Limiter: where batches of requests are judged (limiter.inline) and how many went which way: queued, on
    its threads; inline, on the event loop; bypassed, passed without a verdict.

    Limits: keys and origins (senders) of open connections; levels: buckets in memory, at most max_keys. Since the start: buckets
    forgotten (they were full), shelved (packed until they are full), overflowed (topics that shared one bucket). Needs restart:
    settings in the file that differ from those in force and that a reload cannot change.
    """
    client = remote.client
    body = client.ask("GET", "/v1/status").body
    if remote.form != "table" or not isinstance(body, dict):
        remote.emit(body)
    elif is_wide():
        remote.emit(_once(body))
    else:
        from cli.status_text import lines

        topics = find_items(client.ask("GET", "/v1/topics", query={"sort": "worst", "limit": "10"}).body)
        width = terminal_width() if on_terminal() else None
        for line in map(clean, lines(body, topics, list(client.items("/v1/listeners")))):
            click.echo(line if width is None else "\n".join(fold(line.split(" "), width, indent=" " * 10)))


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
        return AdminClient(remote.url, None, remote.timeout_s, tls=remote.tls)


@click.command(cls=Verb, example="sluice reload --dry-run\nsluice reload --reason 'rule for invoices'")
@acting
@remote
def reload(remote: Remote, change: ChangeOptions) -> None:
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


DRAIN_POLL_S: Final = 0.2  # seconds; between two looks whether it has ended
DRAIN_S: Final = 13.0  # seconds; beyond `drain.timeout`, until the process must have ended


@click.command(cls=Verb, example="sluice drain --yes --reason 'upgrade'\nsluice drain --yes --wait")
@click.option("--wait", is_flag=True, help=f"Wait until the gateway has ended; exit code 1 if it has not by drain.timeout + {DRAIN_S:g} s.")
@acting
@remote
def drain(remote: Remote, change: ChangeOptions, wait: bool) -> None:  # noqa: FBT001  -- click's way
    """Have the gateway stop gracefully: it accepts no new connections, finishes what is in flight, and ends."""
    question = f"Drain the gateway at {remote.url}? It stops, and clients have to connect elsewhere."
    change.confirm(question, lambda: remote.client.ask("POST", "/v1/drain", query=DRY, body={"confirm": True}))
    if change.dry_run:
        status = remote.client.ask("GET", "/v1/status").body
        remote.emit({"connections": status.get("connections") if isinstance(status, dict) else None, "draining": False})
    else:
        patience_s = drain_timeout_s(remote.client) + DRAIN_S if wait else 0.0
        body = {"confirm": True, **({"reason": change.reason} if change.reason else {})}
        remote.emit(remote.client.ask("POST", "/v1/drain", body=body).body)
    report_change(change, "draining begun", "begin to drain")
    if wait and not change.dry_run:
        wait_for_the_end(remote.client, patience_s)


def drain_timeout_s(client: AdminClient) -> float:
    """The gateway's own `drain.timeout`; that of a gateway which has no such setting yet, where it has none."""
    settings = client.ask("GET", "/v1/config").body
    said = settings.get("drain") if isinstance(settings, dict) else None
    text = said.get("timeout") if isinstance(said, dict) else None
    if isinstance(text, str):
        return parse_duration(text) / 1e9
    from config.known_settings import DrainSettings

    return DrainSettings().timeout_ns / 1e9


def wait_for_the_end(client: AdminClient, patience_s: float) -> None:
    """Ask until nobody answers any more. Raises CommandError."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        try:
            client.ask("GET", "/livez")
        except CommandError as error:
            if error.code == UNREACHABLE:
                print_status("the gateway has ended")
                return
        time.sleep(DRAIN_POLL_S)
    raise CommandError(
        FAILED, f"{client.url} still answers after {patience_s:g} s; its log says why, `sluice connections list` shows the last"
    )
