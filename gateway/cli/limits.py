"""`sluice limits`: look at limits, and change those of keys live. The options of a live change serve rules too (`rules.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from gateway.cli.client import Reply, path
from gateway.cli.exits import USAGE, CommandError
from gateway.cli.explain import explained, in_flight, tried
from gateway.cli.output import Column, clean, column, print_status, summarise
from gateway.cli.verb import Change, Group, Remote, changing, remote, report_change
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.rule import ACTIONS, FALLBACKS, MODES, OPERATIONS, REPLIES
from limiter.units import format_size, parse_byte_rate, parse_duration, parse_from_now, parse_rate, parse_size


def _byte_burst(level: dict[str, Any]) -> object:
    tokens = (level.get("limit") or {}).get("bytes_burst")
    return format_size(tokens) if isinstance(tokens, int) else tokens


def _in_flight(item: dict[str, Any]) -> object:
    return in_flight(item["level"].get("usage") or {})


LEVELS: Final[list[Column]] = [
    column("operation", "operation"),
    column("per", "per"),
    column("for", "thing"),
    column("messages", "limit.messages"),
    column("burst", "limit.messages_burst"),
    column("bytes", "limit.bytes"),
    ("byte burst", _byte_burst),
    column("concurrent", "limit.concurrent"),
    column("action", "action"),
    column("fallback", "fallback"),
    column("mode", "mode"),
    column("candidate", "candidate.messages", "candidate.bytes"),
    column("origin", "origin"),
    column("rule", "rule"),
    column("place", "place"),
    column("by", "by"),
    column("at", "at"),
    column("until", "expires"),
    column("reason", "reason"),
]
IN_USE: Final[list[Column]] = [
    column("protocol", "protocol"),
    column("operation", "operation"),
    column("per", "level.per"),
    column("for", "level.thing"),
    column("messages", "level.limit.messages"),
    column("bytes", "level.limit.bytes"),
    ("in flight", _in_flight),
    column("origin", "level.origin"),
    column("rule", "level.rule"),
    column("place", "level.place"),
    column("received/s", "level.usage.received_per_second"),
    column("refused/s", "level.usage.refused_per_second"),
    column("refused", "level.usage.refused"),
    column("fill", "level.usage.fill"),
    column("breaker", "level.usage.breaker"),
    column("last refused", "level.usage.last_refused"),
    ("candidate", lambda item: tried(item["level"].get("candidate"), (item["level"].get("usage") or {}).get("candidate"))),
]


def _checked(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A callback that checks an option's value with `parse`, whose message it shows."""

    def check(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            try:
                parse(value)
            except ValueError as error:
                raise click.BadParameter(str(error)) from None
        return value

    return check


def _expires(text: str) -> None:
    if not text[:4].isdigit() or text[4:5] != "-":  # else a time, which the gateway reads
        parse_from_now(text)


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a live change."""
    options = (
        click.option(
            "--messages", metavar="RATE", callback=_checked(parse_rate), help="Rate of messages, e.g. 500/s, 30k/min; 0/s refuses all."
        ),
        click.option("--bytes", "size", metavar="RATE", callback=_checked(parse_byte_rate), help="Rate of bytes, e.g. 5MiB/s."),
        click.option("--burst", metavar="TIME", callback=_checked(parse_duration), help="Burst, as a time of the rate, e.g. 2s."),
        click.option("--burst-messages", metavar="N", type=click.IntRange(min=1), help="Burst in messages."),
        click.option("--burst-bytes", metavar="SIZE", callback=_checked(parse_size), help="Burst in bytes, e.g. 1MiB."),
        click.option(
            "--concurrent", metavar="N", type=click.IntRange(min=1), help="Most requests in flight (algorithm concurrency or adaptive)."
        ),
        click.option("--action", type=click.Choice(ACTIONS), help="What happens to messages over the limit."),
        click.option(
            "--fallback", type=click.Choice(FALLBACKS), help="What happens where reject has no answer: AMQP channels without confirms."
        ),
        click.option(
            "--reply", type=click.Choice(REPLIES), help="The code that refuses RocketMQ clients: flow_control 215, system_busy 2."
        ),
        click.option("--mode", type=click.Choice(MODES), help="enforce; shadow: counted, never enforced; off."),
        click.option(
            "--open-for", metavar="TIME", callback=_checked(parse_duration), help="How long the breaker stays open; 0s: no breaker."
        ),
        click.option(
            "--max-delay", metavar="TIME", callback=_checked(parse_duration), help="With action delay: the longest that a message is held."
        ),
        click.option(
            "--candidate-messages",
            metavar="RATE",
            callback=_checked(parse_rate),
            help="A rate of messages to try: judged and counted, never enforced.",
        ),
        click.option("--candidate-bytes", metavar="RATE", callback=_checked(parse_byte_rate), help="A rate of bytes to try."),
        click.option("--candidate-burst", metavar="TIME", callback=_checked(parse_duration), help="A burst to try, as a time."),
        click.option("--no-candidate", is_flag=True, help="Try no candidate, not even the rule's."),
        click.option(
            "--for",
            "--expires",
            "expires",
            metavar="TIME",
            callback=_checked(_expires),
            help="When the change ends: 30m from now, or 2026-11-21T12:00:00Z.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _candidate(options: dict[str, Any]) -> dict[str, Any] | str | None:
    """The candidate, whose options are taken out of `options`; raises CommandError where they contradict one another."""
    given = {name: options.pop(f"candidate_{name}") for name in ("messages", "bytes", "burst")}
    given = {name: value for name, value in given.items() if value is not None}
    if not options.pop("no_candidate"):
        return given or None
    if given:
        raise CommandError(USAGE, "--no-candidate contradicts the options of a candidate; give one or the other")
    return "none"


def change_body(change: Change, options: dict[str, Any]) -> dict[str, Any]:
    """The body of a PUT from the options given; raises CommandError where they change nothing."""
    options["candidate"] = _candidate(options)
    tokens = {"messages": options.pop("burst_messages"), "bytes": options.pop("burst_bytes")}
    tokens = {name: value for name, value in tokens.items() if value is not None}
    if tokens and options["burst"] is not None:
        raise CommandError(USAGE, "--burst is a time, --burst-messages and --burst-bytes are tokens; give one or the other")
    options["bytes"] = options.pop("size")
    body = {name: value for name, value in {**options, "burst": options["burst"] or tokens or None}.items() if value is not None}
    if not set(body) - {"expires"}:
        raise CommandError(USAGE, "name the new limit, e.g. --messages 500/s")
    return {**body, **({"reason": change.reason} if change.reason else {})}


def key_path(words: tuple[str, ...]) -> str:
    """`rocketmq TOPIC` or `amqp VHOST EXCHANGE ROUTING_KEY`, raw, as the path of the key. Raises CommandError."""
    protocol, *rest = words
    names = PROTOCOL_NAMES.get(protocol)
    if names is None:
        raise CommandError(USAGE, f"{protocol}: no such protocol; say {' or '.join(PROTOCOL_NAMES)}")
    parts = names.topic_parts
    if len(rest) != len(parts) or any(part.empty is None and not word for part, word in zip(parts, rest, strict=True)):
        raise CommandError(USAGE, f"a key of {names.title} is {names.key_words}, such as: {' '.join([names.name, *names.example])}")
    return path("limits", protocol, *(word or part.empty or "" for part, word in zip(parts, rest, strict=True)))


KEY: Final = click.argument("key", nargs=-1, required=True, metavar=" | ".join(names.key_words for names in PROTOCOL_NAMES.values()))


def show_key(remote: Remote, reply: Reply) -> None:
    """A key's limits: a row for each level; in JSON and YAML also the version for --if-version."""
    show(remote, reply, lambda body: body.get("levels"), LEVELS)


def show(remote: Remote, reply: Reply, rows: Callable[[dict[str, Any]], Any], shown: list[Column]) -> None:
    body = reply.body
    if remote.form == "table" and isinstance(body, dict) and body.get("dry_run"):
        remote.emit(_preview(body), [column("protocol", "protocol"), column("topic", "topic"), column("", "when"), *LEVELS])
    elif remote.form == "table" and isinstance(body, dict) and isinstance(rows(body), list):
        remote.emit(rows(body), shown)
    elif remote.form != "table" and isinstance(body, dict) and reply.etag:
        remote.emit({**body, "version": reply.etag.strip('"')})
    else:
        remote.emit(body)


def _preview(body: dict[str, Any]) -> list[dict[str, Any]]:
    """A dry run as rows: each topic's levels as they are and as they would be."""
    return [
        {"protocol": topic.get("protocol"), "topic": topic.get("topic"), "when": when, **level}
        for topic in body.get("topics", [])
        for when, levels in (("now", topic.get("before")), ("then", topic.get("after")))
        for level in levels or []
    ]


def report_replaced(change: Change, seen: Reply) -> None:
    """Report which live change the new one replaces, if there was one."""
    earlier = seen.body.get("override") if isinstance(seen.body, dict) else None
    if isinstance(earlier, dict):
        print_status(f"{'would replace' if change.dry_run else 'replaced'} the earlier change: {summarise(earlier)}")


@click.group(cls=Group, example="sluice limits set rocketmq orders --messages 500/s --reason 'incident 12'")
def limits() -> None:
    """Look at the limit of each topic and why it holds, and change it live."""


@limits.command("list", example="sluice limits list --sort refused\nsluice limits list --protocol amqp -q order -o json")
@click.option("--protocol", type=click.Choice([*PROTOCOL_NAMES]), help="Only limits of this protocol.")
@click.option("-q", "--query", metavar="TEXT", help="Only limits whose name contains TEXT.")
@click.option(
    "--sort", type=click.Choice(["name", "fill", "rate", "refused", "last_refused"]), default="name", show_default=True, help="Order."
)
@click.option("--limit", "most", type=click.IntRange(min=1), help="Show at most this many.")
@remote
def list_(remote: Remote, protocol: str | None, query: str | None, sort: str, most: int | None) -> None:
    """List limits in use or changed live."""
    wanted = {"protocol": protocol or "", "q": query or "", "sort": sort}
    found = list(remote.client.items("/v1/limits", {name: value for name, value in wanted.items() if value}, most=most))
    remote.emit(found, IN_USE)


@limits.command(
    example="sluice limits get rocketmq orders\n"
    "sluice limits get amqp / orders order.created --client 10.0.0.7 --user shop\n"
    "sluice limits get amqp / amq.default jobs -o yaml"
)
@KEY
@click.option("--client", metavar="ADDRESS", help="For messages from this client address.")
@click.option("--user", metavar="NAME", help="For messages of this user.")
@click.option("--group", metavar="NAME", help="For messages of this RocketMQ group.")
@click.option("--listener", metavar="NAME", help="For messages by this listener.")
@click.option("--operation", type=click.Choice(OPERATIONS), help="Only limits of this operation.")
@remote
def get(remote: Remote, key: tuple[str, ...], **sender: str | None) -> None:
    """Show the limits of a key, used or not: their origin, and the rules they won over.

    A rule that names a client, user or group holds only for such senders: name the sender you mean.
    """
    query = {"explain": "1", **{name: value for name, value in sender.items() if value is not None}}
    reply = remote.client.ask("GET", key_path(key), query=query)
    body = reply.body if isinstance(reply.body, dict) else {}
    if remote.form != "table" or (body.get("levels") != [] and not body.get("explanation")):
        show_key(remote, reply)
        return
    if body.get("explanation"):
        for line in explained(body):
            click.echo(clean(line).rstrip())
    if not body.get("levels"):
        print_status("no limit holds for this key")


@limits.command(
    "set",
    example="sluice limits set rocketmq orders --messages 500/s --bytes 5MiB/s --burst 2s --reason 'incident 12'\n"
    "sluice limits set amqp / orders order.created --messages 100/s --for 30m",
)
@KEY
@limit_options
@changing
@remote
def set_(remote: Remote, change: Change, key: tuple[str, ...], **options: Any) -> None:
    """Change the limit of a key live. Options left out keep the rule's value. This replaces an earlier live change of the key."""
    target = key_path(key)
    body = change_body(change, options)
    client = remote.client
    seen = client.ask("GET", target)
    reply = client.ask("PUT", target, query=change.query(), body=body, if_match=change.if_match(seen))
    show_key(remote, reply)
    report_change(change, f"limit of {' '.join(key)} changed", f"change the limit of {' '.join(key)}")
    report_replaced(change, seen)
    for remark in reply.body.get("remarks") or [] if isinstance(reply.body, dict) else []:
        print_status(str(remark))


@limits.command(example="sluice limits unset rocketmq orders --reason 'incident over'")
@KEY
@changing
@remote
def unset(remote: Remote, change: Change, key: tuple[str, ...]) -> None:
    """Take the live change of a key back; the rules hold again."""
    target = key_path(key)
    client = remote.client
    seen = client.ask("GET", target) if change.if_version is None else None
    reply = client.ask("DELETE", target, query=change.query(), if_match=change.if_match(seen))
    show_key(remote, reply)
    report_change(change, f"live change of {' '.join(key)} taken back", f"take back the live change of {' '.join(key)}")
