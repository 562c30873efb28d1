"""`sluice rules`: the rules of the configuration, their live changes and candidates."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from gateway.cli.client import AdminClient, Reply, listed, path
from gateway.cli.exits import NOT_FOUND, CommandError
from gateway.cli.explain import tried
from gateway.cli.limits import change_body, limit_options, report_replaced, show
from gateway.cli.output import Column, column, print_status
from gateway.cli.verb import Change, Group, Remote, changing, remote, report_change

RULES: Final[list[Column]] = [
    column("rule", "name"),
    column("match", "match"),
    column("per", "per"),
    column("key words", "routing_key_words"),
    column("messages", "limit.messages"),
    column("concurrent", "limit.concurrent"),
    column("bytes", "limit.bytes"),
    column("action", "action"),
    column("fallback", "fallback"),
    column("mode", "mode"),
    ("candidate", lambda rule: tried(rule.get("candidate"), rule.get("candidate_usage"))),
    column("origin", "origin"),
    column("place", "place"),
    column("by", "override.by"),
    column("until", "override.expires"),
    column("reason", "override.reason"),
]


@click.group(cls=Group, example="sluice rules set rocketmq-topics --messages 1000/s --reason 'new broker'")
def rules() -> None:
    """Look at the rules of the configuration, and change one's limit live."""


@rules.command("list", example="sluice rules list")
@remote
def list_rules(remote: Remote) -> None:
    """List all rules, in the order in which they are tried."""
    body = remote.client.ask("GET", "/v1/rules").body
    remote.emit(listed(body) if remote.form == "table" else body, RULES)


@rules.command("set", example="sluice rules set rocketmq-topics --messages 1000/s --reason 'new broker'")
@click.argument("name")
@limit_options
@changing
@remote
def set_rule(remote: Remote, change: Change, name: str, **options: Any) -> None:
    """Change a rule's limit live. Options left out keep the file's value.

    This replaces an earlier live change of the rule, a promoted candidate too. Live changes of keys stay as they are.
    """
    body = change_body(change, options)
    client = remote.client
    target = path("rules", name)
    with _naming(client, name):
        seen = client.ask("GET", target)
        reply = client.ask("PUT", target, query=change.query(), body=body, if_match=change.if_match(seen))
    show(remote, reply, lambda body: [body] if "name" in body else None, RULES)
    report_change(change, f"rule {name} changed", f"change rule {name}")
    report_replaced(change, seen)


@rules.command(example="sluice rules promote orders --dry-run\nsluice rules promote orders --reason 'a week without refusals'")
@click.argument("name")
@changing
@remote
def promote(remote: Remote, change: Change, name: str) -> None:
    """Make a rule's candidate its limit, and remove the candidate: one change, which `sluice history rollback` takes back."""
    client = remote.client
    target = path("rules", name)
    with _naming(client, name):
        seen = client.ask("GET", target)
        body = {"reason": change.reason} if change.reason else {}
        reply = client.ask("POST", f"{target}:promote", query=change.query(), body=body, if_match=change.if_match(seen))
    show(remote, reply, lambda body: [body] if "name" in body else None, RULES)
    rule = seen.body if isinstance(seen.body, dict) else {}
    print_status(f"the candidate of {name}: {tried(rule.get('candidate'), rule.get('candidate_usage'))}")
    report_change(change, f"the candidate of rule {name} is its limit now", f"make the candidate of rule {name} its limit")


@rules.command(example="sluice rules reset rocketmq-topics")
@click.argument("name")
@changing
@remote
def reset(remote: Remote, change: Change, name: str) -> None:
    """Take a rule's live change back; the file's limit holds again."""
    client = remote.client
    target = path("rules", name)
    if_match = change.if_match(_seen_rule(client.ask, target) if change.if_version is None else None)
    with _naming(client, name):
        reply = client.ask("DELETE", target, query=change.query(), if_match=if_match or "*")
    show(remote, reply, lambda body: [body] if "name" in body else None, RULES)
    report_change(change, f"rule {name} returned to the file's limit", f"return rule {name} to the file's limit")


@contextmanager
def _naming(client: AdminClient, name: str) -> Iterator[None]:
    """Turn the gateway's 404 into an error that suggests the rule that was meant."""
    try:
        yield
    except CommandError as error:
        if error.status != 404:
            raise
        known = [str(rule.get("name")) for rule in listed(client.ask("GET", "/v1/rules").body)]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "`sluice rules list` shows all"
        raise CommandError(NOT_FOUND, f"there is no rule {name}; {hint}", status=404) from None


def _seen_rule(ask: Callable[..., Reply], target: str) -> Reply | None:
    """The rule as it is; None where the file no longer has it, though a live change of it may be left."""
    try:
        return ask("GET", target)
    except CommandError as error:
        if error.code != NOT_FOUND:
            raise
        return None
