"""`sluice limits`: look at limits, and change those of keys live. The options of a live change serve rules too (`rules.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

import click

from cli.client import AdminClient, Reply
from cli.exits import CommandError
from cli.explain import explain_key, explain_levels
from cli.key_completion import complete_any_key
from cli.keys import OPERATION, sender_options, topic_path
from cli.keys import key_path as any_key_path
from cli.limit_columns import IN_USE, LEVELS
from cli.listing import limit_option, sort_option, watchable
from cli.output import Column, is_wide, on_terminal, print_status, prose, summarise
from cli.tables import column
from cli.verb import ChangeOptions, Remote, VerbGroup, changing, remote, report_change, with_options
from common.failures import USAGE
from common.shell_words import command as command_line
from limiter.operations import CONSUME
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.rows import DURATION, SIZE, WHOLE, YES_NO, RuleSetting
from limiter.rules.rule import LIVE_SETTINGS
from limiter.rules.rule_words import MODES
from limiter.units import parse_byte_rate, parse_duration, parse_from_now, parse_rate, parse_size


def check_by(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
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


METAVARS: Final = {DURATION: ("TIME", parse_duration), SIZE: ("SIZE", parse_size)}


def setting_option(row: RuleSetting) -> Callable[..., Any]:
    """The option of a setting of a rule."""
    more: dict[str, Any] = {"type": row.json_type}
    told = row.doc
    if row.choices:
        more = {"type": click.Choice(row.choices)}
        told += f" Default: {row.default}." if row.default and not row.live else ""
    elif row.kind == YES_NO:
        more = {"is_flag": True}
    elif row.kind == WHOLE:
        more = {"type": click.IntRange(row.least, row.most), "metavar": "N"}
    elif row.kind in METAVARS:
        metavar, parse = METAVARS[row.kind]
        more = {"metavar": metavar, "callback": check_by(parse)}
    return click.option(f"--{row.key.replace('_', '-')}", help=told, **more)


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a live change."""
    return with_options(
        command,
        click.option(
            "--messages", metavar="RATE", callback=check_by(parse_rate), help="Rate of messages, e.g. 500/s, 30k/min; 0/s refuses all."
        ),
        click.option("--bytes", "size", metavar="RATE", callback=check_by(parse_byte_rate), help="Rate of bytes, e.g. 5MiB/s."),
        click.option("--burst", metavar="TIME", callback=check_by(parse_duration), help="Burst, as a time of the rate, e.g. 2s."),
        click.option("--burst-messages", metavar="N", type=click.IntRange(min=1), help="Burst in messages."),
        click.option("--burst-bytes", metavar="SIZE", callback=check_by(parse_size), help="Burst in bytes, e.g. 1MiB."),
        click.option(
            "--concurrent", metavar="N", type=click.IntRange(min=1), help="Most requests in flight (algorithm concurrency or adaptive)."
        ),
        *(setting_option(row) for row in LIVE_SETTINGS.values() if row.key != "mode"),
        click.option("--mode", type=click.Choice(MODES), help="enforce (of a key: the default); shadow: counted, never enforced; off."),
        click.option(
            "--open-for", metavar="TIME", callback=check_by(parse_duration), help="How long the breaker stays open; 0s: no breaker."
        ),
        click.option(
            "--candidate-messages",
            metavar="RATE",
            callback=check_by(parse_rate),
            help="A rate of messages to try: judged and counted, never enforced.",
        ),
        click.option("--candidate-bytes", metavar="RATE", callback=check_by(parse_byte_rate), help="A rate of bytes to try."),
        click.option("--candidate-burst", metavar="TIME", callback=check_by(parse_duration), help="A burst to try, as a time."),
        click.option("--no-candidate", is_flag=True, help="Try no candidate, not even the rule's."),
        click.option(
            "--for",
            "--expires",
            "expires",
            metavar="TIME",
            callback=check_by(_expires),
            help="When the change ends: 30m from now, or 2026-11-21T12:00:00Z. Default: when the earlier change ends, if there is one.",
        ),
        click.option("--no-end", is_flag=True, help="The change has no end, though the earlier one has."),
    )


def _candidate(options: dict[str, Any]) -> dict[str, Any] | str | None:
    """The candidate, whose options are taken out of `options`; raises CommandError where they contradict one another."""
    given = {name: options.pop(f"candidate_{name}") for name in ("messages", "bytes", "burst")}
    given = {name: value for name, value in given.items() if value is not None}
    if not options.pop("no_candidate"):
        return given or None
    if given:
        raise CommandError(USAGE, "--no-candidate contradicts the options of a candidate; give one or the other")
    return "none"


def change_body(change: ChangeOptions, options: dict[str, Any], *, may_be_empty: bool = False) -> dict[str, Any]:
    """The body of a PUT from the options given; raises CommandError where they change nothing. `no_end` stays in `options`."""
    no_end = options.pop("no_end")
    if no_end and options["expires"] is not None:
        raise CommandError(USAGE, "--no-end contradicts --for; give one or the other")
    options["candidate"] = _candidate(options)
    tokens = {"messages": options.pop("burst_messages"), "bytes": options.pop("burst_bytes")}
    tokens = {name: value for name, value in tokens.items() if value is not None}
    if tokens and options["burst"] is not None:
        raise CommandError(USAGE, "--burst is a time, --burst-messages and --burst-bytes are tokens; give one or the other")
    options["bytes"] = options.pop("size")
    body = {name: value for name, value in {**options, "burst": options["burst"] or tokens or None}.items() if value is not None}
    if not set(body) - {"expires"} and not may_be_empty:
        raise CommandError(USAGE, "name the new limit, e.g. --messages 500/s")
    options["no_end"] = no_end
    return {**body, **({"reason": change.reason} if change.reason else {})}


DETAIL: Final = " " * 8  # what the explanation of a level has before its text (`explain.details`)
ANY_KEY: Final = click.argument("key", nargs=-1, required=True, metavar="KEY...", shell_complete=complete_any_key)
KEY: Final = click.argument("key", nargs=-1, required=True, metavar=" | ".join(names.key_words for names in PROTOCOL_NAMES.values()))


def show_key(remote: Remote, reply: Reply) -> None:
    """A key's limits: a row for each level; in JSON and YAML also the version for --if-version."""

    def rows(body: dict[str, Any]) -> object:
        levels = body.get("levels")
        return [{**level, "protocol": body.get("protocol")} for level in levels] if isinstance(levels, list) else None

    show(remote, reply, rows, LEVELS)


def show(remote: Remote, reply: Reply, rows: Callable[[dict[str, Any]], Any], shown: Sequence[Column]) -> None:
    body = reply.members
    if remote.form == "table" and body.get("dry_run"):
        rows_of_topics = _preview(body)
        if rows_of_topics:
            remote.emit(rows_of_topics, [column("protocol", "protocol"), column("topic", "topic"), column("", "when"), *LEVELS])
        else:
            print_status("no topic in use would have another limit; one that is used later would")
    elif remote.form == "table" and isinstance(rows(body), list):
        remote.emit(rows(body), shown)
    elif remote.form != "table" and body and reply.etag:
        remote.emit({**body, "version": reply.etag.strip('"')})
    else:
        remote.emit(reply.body)


def show_lines(lines: Iterable[str]) -> None:
    for line in lines:
        prose(line, DETAIL if line.startswith(" ") else "")


def _preview(body: dict[str, Any]) -> list[dict[str, Any]]:
    """A dry run as rows: each topic's levels as they are and as they would be."""
    return [
        {"protocol": topic.get("protocol"), "topic": topic.get("topic"), "when": when, **level}
        for topic in body.get("topics", [])
        for when, levels in (("now", topic.get("before")), ("then", topic.get("after")))
        for level in levels or []
    ]


def keep_end(body: dict[str, Any], seen: Reply, *, no_end: bool) -> bool:
    """Let the change end when the one that it replaces does, unless it says otherwise; whether it does so."""
    earlier = seen.members.get("override")
    if no_end or "expires" in body or not isinstance(earlier, dict) or not earlier.get("expires"):
        return False
    body["expires"] = earlier["expires"]
    return True


def report_end(reply: Reply, *, kept: bool) -> None:
    """Report when the change ends."""
    stored = reply.members.get("override")
    if isinstance(stored, dict) and stored.get("expires"):
        why = ", as the earlier change did (--for says another end, --no-end none)" if kept else ""
        print_status(f"it holds until {stored['expires']}{why}")


def report_remarks(reply: Reply) -> None:
    """Print the gateway's sentences on what is changed: above all on limits that are not enforced."""
    for remark in reply.members.get("remarks") or []:
        print_status(str(remark))


def report_unseen(client: AdminClient, seen: Reply) -> None:
    """Report which topics have a name like one of which no message has come: perhaps it is mistyped, and its limit limits nothing."""
    from cli.why_facts import near_names

    body = seen.members
    topic, protocol = str(body.get("topic") or ""), str(body.get("protocol"))
    if not topic or any(level.get("usage") for level in body.get("levels") or [] if level.get("per") == "topic"):
        return
    if not any(item.get("topic") == topic for item in client.items("/v1/topics", {"q": topic, "protocol": protocol})):
        near = near_names(client, protocol, topic)
        if near:
            print_status(f"it is not among the topics that have come; like it are: {', '.join(f'{protocol} {each}' for each in near)}")


ENCODED: Final = re.compile("%[0-9A-Fa-f]{2}")
NOT_ENCODED: Final = (
    "amqp",
    "vhost",
    "exchange",
    "queue",
)  # keys whose paths are percent-encoded; RocketMQ has topics with %, as %RETRY%ab


def report_encoded(key: tuple[str, ...]) -> None:
    """Report a word of a key that looks percent-encoded, as paths have it: commands take words raw, so another key is limited."""
    word, *parts = key
    if word in NOT_ENCODED and any(map(ENCODED.search, parts)):
        meant = [word, *(unquote(part) if ENCODED.search(part) else part for part in parts)]
        found = next(part for part in parts if ENCODED.search(part))
        print_status(f"{found} looks percent-encoded, and words are given raw: this is the key of that very name. Probably meant, instead:")
        print_status(f"  {command_line('limits set', meant, '...')}")
        print_status(f"  {command_line('limits unset', key)}")


def report_replaced(change: ChangeOptions, seen: Reply, reply: Reply) -> None:
    """Report which live change the new one replaces, if there was one, and which of the two lasts longer."""
    earlier = seen.members.get("override")
    if not isinstance(earlier, dict):
        return
    print_status(f"{'would replace' if change.dry_run else 'replaced'} the earlier change: {summarise(earlier)}")
    body = reply.members
    new = body.get("override") or next((each.get("after") for each in body.get("changes") or []), None)
    before, end = earlier.get("expires"), new.get("expires") if isinstance(new, dict) else None
    if end and not (before and datetime.fromisoformat(before) <= datetime.fromisoformat(end)):
        lasts = f"lasts until {before}" if before else "has no end"
        print_status(f"when it ends, the rule holds again, and not the earlier change, which {lasts}")


@click.group(cls=VerbGroup, example="sluice limits set rocketmq orders --messages 500/s --reason 'incident 12'")
def limits() -> None:
    """Look at the limit of each topic and why it holds, and change it live."""


@limits.command("list", example="sluice limits list --sort refused\nsluice limits list --protocol amqp -q order -o json")
@click.option("--protocol", type=click.Choice([*PROTOCOL_NAMES]), help="Only limits of this protocol.")
@click.option("-q", "--query", metavar="TEXT", help="Only limits whose name contains TEXT.")
@sort_option(["used", "refused", "rate", "wait", "fill", "last_refused", "name"])
@limit_option()
@watchable
@remote
def list_(remote: Remote, protocol: str | None, query: str | None, sort: str, most: int | None) -> None:
    """List limits in use or changed live.

    Used: the share of the rate that passes, a mean over 10 s as every rate. Wait: until one more message would pass. Burst left
    (fill): 100 % at rest. A limit per client, user or rule has no rates of its own: see wait, breaker and the total refused.
    """
    wanted = {"protocol": protocol or "", "q": query or "", "sort": sort}
    found = list(remote.client.items("/v1/limits", {name: value for name, value in wanted.items() if value}, most=most))
    empty = "no limit is in use, and none is changed live (a change taken back takes its counts along); `sluice rules list` shows the rules"
    if protocol or query:
        empty = "no limit in use is like that; `sluice limits list` shows all"
    remote.emit(found, IN_USE, empty=empty)


@limits.command(
    example="sluice limits get rocketmq orders\n"
    "sluice limits get amqp / orders order.created --client 10.0.0.7 --user shop\n"
    "sluice limits get amqp / amq.default jobs -o yaml\n"
    "sluice limits get queue / jobs"
)
@ANY_KEY
@sender_options
@OPERATION
@remote
def get(remote: Remote, key: tuple[str, ...], operation: str | None, **sender: str | None) -> None:
    """Show the limits of a key, used or not: their origin, and the rules they won over.

    A rule that names a client, user or group holds only for such senders: name the sender you mean.
    """
    if key[0] not in PROTOCOL_NAMES or (operation == CONSUME and key[0] == "rocketmq" and not any(sender.values())):
        reply = remote.client.ask("GET", any_key_path(key, operation))
        levels = reply.members.get("levels")
        if remote.form == "table" and on_terminal() and not is_wide() and levels:
            show_lines(explain_levels(reply.body))
        else:
            show_key(remote, reply)
        if not levels:
            print_status("no limit holds for this key alone; `sluice limits set` gives it one")
        report_remarks(reply)
        return
    query = {"explain": "1", **{name: value for name, value in {**sender, "operation": operation}.items() if value is not None}}
    reply = remote.client.ask("GET", topic_path(key), query=query)
    body = reply.members
    if remote.form != "table" or (body.get("levels") != [] and not body.get("explanation")):
        show_key(remote, reply)
        report_remarks(reply)
        return
    if body.get("explanation"):
        show_lines(explain_key(body))
    if not body.get("levels"):
        print_status("no limit holds for this key")
    report_remarks(reply)


NEVER_PATTERNS: Final = ("client", "listener")  # an address, and a name that must be one of the configuration's


@limits.command(
    "set",
    example="sluice limits set rocketmq orders --messages 500/s --bytes 5MiB/s --burst 2s --reason 'incident 12'\n"
    "sluice limits set amqp / orders order.created --messages 100/s --for 30m\n"
    "sluice limits set client 10.0.0.7 --messages 100/s --for 1h\n"
    "sluice limits set queue / jobs --messages 50/s",
)
@ANY_KEY
@OPERATION
@limit_options
@click.option("--literal", is_flag=True, help="The key is called like this, though it looks like a pattern.")
@changing
@remote
def set_(remote: Remote, change: ChangeOptions, key: tuple[str, ...], operation: str | None, **options: Any) -> None:
    """Change the limit of a key live. Options left out keep the rule's value.

    The limit is enforced, also where its rule is only tried (mode: shadow), unless --mode says otherwise.

    This replaces an earlier live change of the key; its end stays unless --for or --no-end says otherwise.

    A key is a topic (rocketmq TOPIC, amqp VHOST EXCHANGE ROUTING_KEY), or client ADDRESS, user NAME, listener NAME, vhost VHOST,
    exchange VHOST EXCHANGE, namespace NAME, group NAME, queue VHOST QUEUE. A pattern is no key: `sluice rules add` adds a rule for all
    that match.
    """
    target = any_key_path(key, operation)
    literal = options.pop("literal")
    if literal and key[0] in NEVER_PATTERNS:
        raise CommandError(USAGE, f"--literal is for names; a {key[0]} is never taken for a pattern")
    body = change_body(change, options)
    client = remote.client
    try:
        seen = client.ask("GET", target)
    except CommandError as error:
        if error.status != 422:
            raise
        seen = Reply(422, '"none"', None)  # a network: the answer to the change knows the command that would do
    kept = keep_end(body, seen, no_end=options["no_end"])
    query = {**change.query(), **({"literal": "1"} if literal else {})}
    reply = client.ask("PUT", target, query=query, body=body, if_match=change.if_match(seen))
    show_key(remote, reply)
    report_change(change, f"limit of {' '.join(key)} changed", f"change the limit of {' '.join(key)}")
    report_end(reply, kept=kept)
    report_replaced(change, seen, reply)
    report_remarks(reply)
    report_encoded(key)
    report_unseen(client, seen)


@limits.command(example="sluice limits unset rocketmq orders --reason 'incident over'\nsluice limits unset client 10.0.0.7")
@ANY_KEY
@OPERATION
@changing
@remote
def unset(remote: Remote, change: ChangeOptions, key: tuple[str, ...], operation: str | None) -> None:
    """Take the live change of a key back; the rules hold again."""
    target = any_key_path(key, operation)
    client = remote.client
    seen = client.ask("GET", target) if change.if_version is None else None
    reply = client.ask("DELETE", target, query=change.query(), if_match=change.if_match(seen))
    show_key(remote, reply)
    report_change(change, f"live change of {' '.join(key)} taken back", f"take back the live change of {' '.join(key)}")
