"""`sluice rules`: the rules of the configuration, those added live, their live changes and candidates."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from cli.client import AdminClient, Reply, path
from cli.exits import CommandError
from cli.explain import describe_trial
from cli.key_completion import complete_match
from cli.limit_columns import cost
from cli.limits import change_body, keep_end, limit_options, report_end, report_remarks, report_replaced, setting_option, show
from cli.listing import Orders, gather_items, limit_option, moment_of, order_items, sort_option, watchable
from cli.literal_match import WholeName, command_with, unseen_name
from cli.output import print_status
from cli.tables import ESSENTIAL, TableColumn, column
from cli.traffic_columns import byte_limit, limit_in_figures, some
from cli.verb import ChangeOptions, Remote, VerbGroup, changing, remote, report_change, with_options
from common import figures
from common.failures import CONFLICT, NOT_FOUND, POLICY, USAGE
from limiter.operations import HELD_OPERATIONS, OPERATIONS, PRODUCE
from limiter.rules.match import MATCH_KEYS, PROTOCOLS
from limiter.rules.rule import RULE_SETTINGS


def _limit(rule: dict[str, Any]) -> object:
    return limit_in_figures(rule.get("limit"))


RULES: Final[list[TableColumn]] = [
    column("rule", "name", rank=0),
    column("match", "match", rank=3),
    column("per", "per", rank=2),
    column("key words", "routing_key_words", rank=20),
    column("messages", "limit.messages", rank=1, short="limit", people=_limit),
    column("concurrent", "limit.concurrent", rank=60),
    column("bytes", "limit.bytes", rank=12, short="byte limit", people=lambda rule: byte_limit(rule.get("limit"))),
    column("action", "action", rank=4),
    column("fallback", "fallback", rank=30),
    column("mode", "mode", rank=5),
    column("would refuse", "would_refuse", rank=13, people=some("would_refuse", figures.count), pressing=ESSENTIAL),
    TableColumn("candidate", lambda rule: describe_trial(rule.get("candidate"), rule.get("candidate_usage")), 9),
    column("origin", "origin", rank=6),
    column("place", "place", rank=10),
    column("by", "override.by", "live.by", rank=8),
    column("until", "override.expires", "live.expires", rank=7),
    column("reason", "override.reason", "live.reason", rank=11),
    column("cost", "cost", rank=15, people=cost),
]


@click.group(cls=VerbGroup, example="sluice rules set rocketmq-topics --messages 1000/s --reason 'new broker'")
def rules() -> None:
    """Look at the rules of the configuration, and change one's limit live."""


RULE_ORDERS: Final[Orders] = {
    "place": None,
    "name": lambda rule: rule.get("name"),
    "rate": lambda rule: (rule.get("limit") or {}).get("messages_per_second"),
    "changed": moment_of("override.at", "live.at"),
}


@rules.command("list", example="sluice rules list\nsluice rules list --sort changed --limit 5\nsluice rules list -o wide")
@sort_option(
    RULE_ORDERS,
    "place",
    "Order; place: as they are tried, rate: the largest limit of messages first, changed: the latest live change first.",
)
@limit_option()
@watchable
@remote
def list_rules(remote: Remote, sort: str, most: int | None) -> None:
    """List all rules, in the order in which they are tried."""
    empty = "there is no rule: nothing is limited; `sluice limits set` limits one topic, rules_file names a file of rules"
    if remote.form in {"table", "csv"} or most is not None:
        remote.emit(gather_items(remote.client, "/v1/rules", RULE_ORDERS, sort, most), RULES, empty=empty)
    else:
        whole = remote.client.whole("/v1/rules")
        remote.emit({**whole, "items": order_items(whole["items"], RULE_ORDERS, sort)} if "items" in whole else whole, RULES, empty=empty)


@rules.command("set", example="sluice rules set rocketmq-topics --messages 1000/s --reason 'new broker'")
@click.argument("name")
@limit_options
@changing
@remote
def set_rule(remote: Remote, change: ChangeOptions, name: str, **options: Any) -> None:
    """Change a rule's limit live. Options left out keep the file's value.

    This replaces an earlier live change of the rule, a promoted candidate too. Live changes of keys stay as they are. A rule that is only
    tried (mode: shadow) stays so unless --mode enforce is given.
    """
    body = change_body(change, options)
    client = remote.client
    target = path("rules", name)
    with _naming(client, name):
        seen = client.ask("GET", target)
        kept = keep_end(body, seen, no_end=options["no_end"])
        reply = client.ask("PUT", target, query=change.query(), body=body, if_match=change.if_match(seen))
    _show_rule(remote, reply)
    report_change(change, f"rule {name} changed", f"change rule {name}")
    report_end(reply, kept=kept)
    report_replaced(change, seen, reply)
    report_remarks(reply)


@rules.command(example="sluice rules promote orders --dry-run\nsluice rules promote orders --reason 'a week without refusals'")
@click.argument("name")
@changing
@remote
def promote(remote: Remote, change: ChangeOptions, name: str) -> None:
    """Make a rule's candidate its limit, and remove the candidate: one change, which `sluice history rollback` takes back.

    Prints the rule as it is then, to be put into the rules file. Of a rule that was added live and has no candidate it prints that alone.
    """
    client = remote.client
    target = path("rules", name)
    with _naming(client, name):
        seen = client.ask("GET", target)
        if seen.members.get("live") and not seen.members.get("candidate"):
            remote.emit(seen.body, None) if remote.form != "table" else click.echo(as_yaml(seen.body))
            print_status(f"{name} was added live and has no candidate: nothing is changed. {PUT_INTO_FILE}")
            return
        body = {"reason": change.reason} if change.reason else {}
        reply = client.ask("POST", f"{target}:promote", query=change.query(), body=body, if_match=change.if_match(seen))
    _show_rule(remote, reply)
    print_status(f"the candidate of {name}: {describe_trial(seen.members.get('candidate'), seen.members.get('candidate_usage'))}")
    report_change(change, f"the candidate of rule {name} is its limit now", f"make the candidate of rule {name} its limit")
    report_remarks(reply)
    if not change.dry_run and reply.members.get("text") and remote.form == "table":
        print_status(PUT_INTO_FILE)
        click.echo(as_yaml(reply.body))


@rules.command(example="sluice rules reset rocketmq-topics")
@click.argument("name")
@changing
@remote
def reset(remote: Remote, change: ChangeOptions, name: str) -> None:
    """Take a rule's live change back; the file's limit holds again."""
    client = remote.client
    target = path("rules", name)
    seen = _fetch_rule(client.ask, target)
    if seen is not None and seen.members.get("live"):
        raise CommandError(POLICY, f"{name} was added live and is in no file to return to; `sluice rules remove {name}` takes it away")
    if_match = change.if_match(seen)
    with _naming(client, name):
        reply = client.ask("DELETE", target, query=change.query(), if_match=if_match or "*")
    _show_rule(remote, reply)
    report_change(change, f"rule {name} returned to the file's limit", f"return rule {name} to the file's limit")
    report_remarks(reply)


MATCHES: Final = ", ".join(MATCH_KEYS)
PUT_INTO_FILE: Final = "To keep it, put this into the rules file; after `sluice reload` and `sluice rules remove` the file's holds:"


@rules.command("show", example="sluice rules show rocketmq-topics")
@click.argument("name")
@remote
def show_text(remote: Remote, name: str) -> None:
    """Show a rule as it holds, in the form of the rules file."""
    client = remote.client
    with _naming(client, name):
        reply = client.ask("GET", path("rules", name))
    if remote.form == "table" and reply.members.get("text"):
        click.echo(as_yaml(reply.body))
    else:
        remote.emit(reply.body)
    report_remarks(reply)


OPTIONS: Final = {row.key: row for row in RULE_SETTINGS.values() if not row.live}


def add_rule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that only whole rules have."""
    return with_options(command, *map(setting_option, OPTIONS.values()))


@rules.command(
    example="sluice rules add orders-storm --match topic='order*' --per topic --messages 500/s --mode shadow --for 2h\n"
    "sluice rules add batch-hosts --match client=10.1.0.0/16 --per client --messages 50/s --reason 'incident 12'\n"
    "sluice rules add slow-jobs --match queue='jobs.*' --match operation=consume --messages 20/s --before orders"
)
@click.argument("name")
@click.option(
    "--match", "matches", multiple=True, metavar="FIELD=PATTERN", help=f"Which messages; may be given again. Fields: {MATCHES}.",
    shell_complete=complete_match,
)  # fmt: skip
@click.option("--protocol", type=click.Choice(PROTOCOLS), help="The same as --match protocol=...")
@click.option(
    "--operation", type=click.Choice(OPERATIONS), multiple=True,
    help="The same as --match operation=...; default: produce. May be given again: they share the limit.",
)  # fmt: skip
@click.option(
    "--cost", "costs", multiple=True, metavar="WHAT=NUMBER",
    help="What one counts: step=4KiB (a message costs one for each started step of its body), copy=2, declare=10 and the like; again for "
    "others.",
)  # fmt: skip
@add_rule_options
@limit_options
@click.option("--before", metavar="RULE", help="Its place: right before this rule.")
@click.option("--after", metavar="RULE", help="Its place: right after this rule.")
@click.option("--first", "position", flag_value="first", help="Its place: before all others; this is the default.")
@click.option("--last", "position", flag_value="last", help="Its place: after all others.")
@click.option("--literal", is_flag=True, help="A name without a pattern is meant whole, though longer ones have come.")
@click.option("--replace", is_flag=True, help="There may be a rule of this name; it holds no more until yours is removed.")
@changing
@remote
def add(remote: Remote, change: ChangeOptions, name: str, **options: Any) -> None:
    """Add a whole rule live: it holds for the next batch, and after a restart.

    It stands before all others unless its place is said. `sluice rules remove` takes it away.
    """
    own = {each: options.pop(each) for each in OF_RULES}
    replace, literal = options.pop("replace"), options.pop("literal")
    alone = any(row.stands_alone(own[key]) for key, row in OPTIONS.items())
    body = rule_body(change_body(change, options, may_be_empty=alone), own)
    client = remote.client
    target = path("rules", name)
    seen = _fetch_rule(client.ask, target)
    if seen is not None and not replace and change.if_version is None:
        raise CommandError(
            CONFLICT,
            f"there is a rule {name} already: --replace puts yours in its place, `sluice rules set {name}` changes its limit alone",
        )
    unseen = _unseen_name(client, body["match"], seen)
    if unseen is not None and unseen.longer and not literal and not _holds(body["match"]):
        raise CommandError(
            POLICY,
            f"{unseen.unseen()}; it does not match {unseen.missed()}",
            [f"for these, too: {command_with(unseen)}", f"for a {unseen.field} to come that is called {unseen.name}: --literal"],
        )
    reply = client.ask("PUT", target, query=change.query(), body=body, if_match=change.if_match(seen), if_new=seen is None)
    _show_rule(remote, reply)
    report_change(change, f"rule {name} added", f"add rule {name}")
    live = reply.members.get("live")
    if isinstance(live, dict) and live.get("expires"):
        print_status(f"it holds until {live['expires']}")
    report_remarks(reply)
    if unseen is not None:
        print_status(f"{unseen.unseen()}" + (f"; it does not match {unseen.missed()}" if unseen.longer else " yet"))


def _unseen_name(client: AdminClient, match: dict[str, str], before: Reply | None) -> WholeName | None:
    """A whole name in the match that has not come; None where that cannot be read, or the rule to be replaced has the same match."""
    known = None if before is None else before.members.get("match")
    try:
        found = unseen_name(client, match)
    except CommandError:  # the look is a help alone
        return None
    return None if found is not None and isinstance(known, dict) and known.get(found.field) == found.name else found


@rules.command(example="sluice rules remove orders-storm --reason 'incident over'")
@click.argument("name")
@changing
@remote
def remove(remote: Remote, change: ChangeOptions, name: str) -> None:
    """Remove a rule that was added live. Where the file has a rule of this name, that one holds again."""
    client = remote.client
    target = path("rules", name)
    with _naming(client, name):
        seen = client.ask("GET", target)
        if seen.members and not seen.members.get("live"):
            raise CommandError(
                POLICY,
                f"{name} stands in {seen.body.get('place') or 'the configuration'}: remove it there and `sluice reload`; "
                f"`sluice rules set {name} --mode off` lets all pass until then",
            )
        reply = client.ask("DELETE", target, query=change.query(), if_match=change.if_match(seen))
    if change.dry_run or remote.form != "table" or (reply.body or {}).get("name"):  # else no rule is left to be shown
        _show_rule(remote, reply)
    report_change(change, f"rule {name} removed", f"remove rule {name}")


OF_RULES: Final = ("matches", "protocol", "operation", "costs", *OPTIONS, "before", "after", "position")


def rule_body(change: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The body of a PUT that adds a rule: from that of a change, and the options that only rules have. Raises CommandError."""
    match: dict[str, Any] = {}
    for each in own["matches"]:
        field, equals, pattern = each.partition("=")
        if not equals:
            raise CommandError(USAGE, f"--match {each}: write it FIELD=PATTERN, such as topic='order*'")
        if field in match:
            raise CommandError(USAGE, f"--match {field} is given twice; one pattern each, and one rule for each pattern")
        match[field] = pattern
    if own["protocol"] is not None:
        match["protocol"] = own["protocol"]
    operations = own["operation"] or tuple(filter(None, match.get("operation", "").split(",")))
    if operations:
        match["operation"] = operations[0] if len(operations) == 1 else list(operations)
    places = {name: own[name] for name in ("before", "after", "position") if own[name] is not None}
    if len(places) > 1:
        raise CommandError(USAGE, "a rule has one place; give one of --before, --after, --first, --last")
    if change.get("candidate") == "none":
        raise CommandError(USAGE, "--no-candidate is for changes of a rule that has one; leave it out")
    limit = {name: change.pop(name) for name in ("messages", "bytes", "burst", "concurrent") if name in change}
    breaker = {"breaker": {"open_for": change.pop("open_for")}} if "open_for" in change else {}
    more = {name: own[name] for name in OPTIONS if own[name]} | ({"cost": _costs(own["costs"])} if own["costs"] else {})
    return {"match": match, "limit": limit, **breaker, **change, **more, **places}


def _costs(given: tuple[str, ...]) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for each in given:
        what, equals, number = each.partition("=")
        if not equals or what in found:
            raise CommandError(USAGE, f"--cost {each}: write it WHAT=NUMBER, each once, such as declare=10 or step=4KiB")
        found[what] = int(number) if number.isdigit() else number
    return found


def _holds(match: dict[str, Any]) -> bool:
    """Whether it is for something that waits over its limit."""
    operations = match.get("operation", PRODUCE)
    return any(each in HELD_OPERATIONS for each in ([operations] if isinstance(operations, str) else operations))


def as_yaml(body: dict[str, Any]) -> str:
    """A rule as an item of the rules file."""
    import yaml

    return yaml.safe_dump([body["text"]], sort_keys=False, allow_unicode=True, default_flow_style=None, width=120).rstrip()


def _show_rule(remote: Remote, reply: Reply) -> None:
    show(remote, reply, lambda body: [body] if "name" in body else None, RULES)


@contextmanager
def _naming(client: AdminClient, name: str) -> Iterator[None]:
    """Turn the gateway's 404 into an error that suggests the rule that was meant."""
    try:
        yield
    except CommandError as error:
        if error.status != 404:
            raise
        known = [str(rule.get("name")) for rule in client.items("/v1/rules")]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "`sluice rules list` shows all"
        raise CommandError(NOT_FOUND, f"there is no rule {name}; {hint}", status=404) from None


def _fetch_rule(ask: Callable[..., Reply], target: str) -> Reply | None:
    """The rule as it is; None where the file no longer has it, though a live change of it may be left."""
    try:
        return ask("GET", target)
    except CommandError as error:
        if error.code != NOT_FOUND:
            raise
        return None
