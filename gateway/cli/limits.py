"""`sluice limits`: look at limits and change those of keys live. What a live change may say is here for rules too (`rules.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from gateway.cli.client import Reply, path
from gateway.cli.exits import USAGE, CommandError
from gateway.cli.explain import explained, in_flight, tried
from gateway.cli.output import Column, clean, column, print_status, summarise
from gateway.cli.verbs import Change, Group, Remote, changing, remote, report_change
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
    """A check of an option's value, with the units' own words."""

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
    """What a live change may say."""
    options = (
        click.option("--messages", metavar="RATE", callback=_checked(parse_rate), help="Messages, e.g. 500/s, 30k/min; 0/s refuses all."),
        click.option("--bytes", "size", metavar="RATE", callback=_checked(parse_byte_rate), help="Bytes, e.g. 5MiB/s."),
        click.option(
            "--burst", metavar="TIME", callback=_checked(parse_duration), help="How much at once, as a time of the rate, e.g. 2s."
        ),
        click.option("--burst-messages", metavar="N", type=click.IntRange(min=1), help="How many messages at once."),
        click.option("--burst-bytes", metavar="SIZE", callback=_checked(parse_size), help="How many bytes at once, e.g. 1MiB."),
        click.option(
            "--concurrent", metavar="N", type=click.IntRange(min=1), help="Requests in flight (algorithm concurrency or adaptive)."
        ),
        click.option("--action", type=click.Choice(ACTIONS), help="What happens to what is over the limit."),
        click.option("--fallback", type=click.Choice(FALLBACKS), help="And where reject has no words: AMQP channels without confirms."),
        click.option("--reply", type=click.Choice(REPLIES), help="How RocketMQ clients are refused."),
        click.option("--mode", type=click.Choice(MODES), help="shadow: counted, never enforced."),
        click.option("--open-for", metavar="TIME", callback=_checked(parse_duration), help="The breaker's time; 0s: none."),
        click.option("--max-delay", metavar="TIME", callback=_checked(parse_duration), help="With action delay: how long at most."),
        click.option(
            "--candidate-messages", metavar="RATE", callback=_checked(parse_rate), help="A rate to be tried: judged and counted only."
        ),
        click.option("--candidate-bytes", metavar="RATE", callback=_checked(parse_byte_rate), help="The same of bytes."),
        click.option("--candidate-burst", metavar="TIME", callback=_checked(parse_duration), help="The same of the burst, as a time."),
        click.option("--no-candidate", is_flag=True, help="Try nothing, whatever the rule's candidate is."),
        click.option(
            "--for", "--expires", "expires", metavar="TIME", callback=_checked(_expires), help="Until when: 30m, or 2026-11-21T12:00:00Z."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _candidate(said_: dict[str, Any]) -> dict[str, Any] | str | None:
    """What the options say of a candidate, which are taken out; raises CommandError where they contradict one another."""
    given = {name: said_.pop(f"candidate_{name}") for name in ("messages", "bytes", "burst")}
    given = {name: value for name, value in given.items() if value is not None}
    if not said_.pop("no_candidate"):
        return given or None
    if given:
        raise CommandError(USAGE, "--no-candidate and a candidate: say one or the other")
    return "none"


def change_body(change: Change, said_: dict[str, Any]) -> dict[str, Any]:
    """The body of a PUT from the options given; raises CommandError where they say nothing."""
    said_["candidate"] = _candidate(said_)
    tokens = {"messages": said_.pop("burst_messages"), "bytes": said_.pop("burst_bytes")}
    tokens = {name: value for name, value in tokens.items() if value is not None}
    if tokens and said_["burst"] is not None:
        raise CommandError(USAGE, "--burst is a time, --burst-messages and --burst-bytes are tokens: say one or the other")
    said_["bytes"] = said_.pop("size")
    body = {name: value for name, value in {**said_, "burst": said_["burst"] or tokens or None}.items() if value is not None}
    if not set(body) - {"expires"}:
        raise CommandError(USAGE, "say what the limit shall be, e.g. --messages 500/s")
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
    """The limit of each topic: what holds, why, and how full; change it live."""


@limits.command("list", example="sluice limits list --sort refused\nsluice limits list --protocol amqp -q order -o json")
@click.option("--protocol", type=click.Choice([*PROTOCOL_NAMES]), help="Only this protocol's.")
@click.option("-q", "--query", metavar="TEXT", help="Only those whose name has this in it.")
@click.option(
    "--sort", type=click.Choice(["name", "fill", "rate", "refused", "last_refused"]), default="name", show_default=True, help="Order."
)
@click.option("--limit", "most", type=click.IntRange(min=1), help="At most so many.")
@remote
def list_(remote: Remote, protocol: str | None, query: str | None, sort: str, most: int | None) -> None:
    """Limits in use, or changed live."""
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
@click.option("--listener", metavar="NAME", help="For messages that come by this listener.")
@click.option("--operation", type=click.Choice(OPERATIONS), help="Only what holds for this.")
@remote
def get(remote: Remote, key: tuple[str, ...], **sender: str | None) -> None:
    """What holds for a key, used or not, from where, what it lost against and why.

    Rules that ask for a client, user or group hold for senders that are one: say whose messages you mean.
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
    """Change the limit of a key live. What is not said is as the rule says; an earlier live change of the key is replaced."""
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
