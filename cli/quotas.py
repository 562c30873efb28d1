"""`sluice quotas`: compute them from the access log, see what would change, publish, go back.

`plan` has exit codes of its own (`docs/design/contract.md` 2): 0 no change, 1 error, 2 changes, 3 guard rail tripped, 4 conflict, 5
insufficient input. A wrong option is 1 there, because 2 means changes to a cron job that runs `plan`. All other verbs end as verbs
elsewhere do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from cli.client import Reply
from cli.exits import CHANGES, GUARD_RAIL, INSUFFICIENT, NO_CHANGE, QUOTA_CONFLICT, CommandError, spark_part
from cli.interrupts import sigterm_as_interrupt
from cli.limits import report_remarks
from cli.output import Column, column, columns, print_status
from cli.quota_lifts import LiftedQuota, find_lifted, report_lifted
from cli.quota_options import parameter_options, rail_options
from cli.quota_report import report, show, snapshot_in, snapshot_of
from cli.verb import ChangeOptions, Remote, Verb, VerbGroup, changing, remote, report_change
from common.failures import CONFLICT, FAILED, OK, POLICY, Failure
from common.figures import pluralise
from limiter.quota_snapshot import Snapshot
from spark_jobs.nights.gateways import PUBLISH_TIMEOUT_S, drop_long_evidence, encode_snapshot
from spark_jobs.nights.plan import QuotaPlan, describe_held, plan, show_burst, show_rate
from spark_jobs.nights.rails import Rails


def _arrow(name: str) -> Callable[[dict[str, Any]], object]:
    """A column `120/s (240) -> 150/s (300)`: rate and burst before and after."""

    def read(item: dict[str, Any]) -> object:
        both = item.get(name)
        if both is None:
            return None
        shown = (
            "none" if pair is None else f"{show_rate(name, pair['rate'])} ({show_burst(name, pair['burst'])})"
            for pair in (both["before"], both["after"])
        )
        return " -> ".join(shown)

    return read


CHANGED: Final[list[Column]] = [
    column("protocol", "protocol"),
    column("topic", "topic"),
    column("change", "change"),
    ("messages (burst)", _arrow("messages")),
    ("bytes (burst)", _arrow("bytes")),
    column("reason", "reason"),
]


MAX_LIMITS_SHOWN: Final = 500  # limits in force beside a plan; one page of the API, so one request


class PlanVerb(Verb):
    """A verb whose exit codes are those of `quotas plan`."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            ctx = error.ctx
            hint = f"; see `{ctx.command_path} --help`" if ctx is not None else ""
            raise CommandError(FAILED, f"{error.format_message()}{hint}") from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Failure as error:
            if not isinstance(error, _PlanError):
                error.code = QUOTA_CONFLICT if error.code == CONFLICT else FAILED
            raise


class _PlanError(CommandError):
    """A CommandError whose code is one of `quotas plan` already."""


FILE: Final = click.argument("file", type=click.Path(path_type=Path))


def _limits_now(remote: Remote) -> dict[tuple[str, str], str]:
    """(protocol, topic) -> the limit in force of each topic in use, which a first quota would replace. At most MAX_LIMITS_SHOWN."""
    found: dict[tuple[str, str], str] = {}
    for item in remote.client.items("/v1/limits", most=MAX_LIMITS_SHOWN):
        level = item.get("level") or {}
        if level.get("per") == "topic":
            limit = level.get("limit") or {}
            found[str(item.get("protocol")), str(level.get("thing"))] = ", ".join(
                f"{name} {limit[name]}" for name in ("messages", "bytes") if limit.get(name)
            )
    return found


def _show_plan(remote: Remote, found: QuotaPlan, seen: Reply, new: Snapshot, above: tuple[LiftedQuota, ...]) -> None:
    changes = found.to_json()["changes"]
    if remote.form == "table":
        shown = CHANGED
        if any(each.before is None for each in found.differences):
            now = _limits_now(remote)
            shown = [*CHANGED[:-1], ("limit now", lambda item: now.get((item["protocol"], item["topic"]))), CHANGED[-1]]
        if changes:
            remote.emit(changes, shown, stack=True)
        in_force = pluralise(found.live, "quota")
        print_status(f"{pluralise(len(changes), 'change')}; {in_force} in force, {found.new} in the snapshot of {new.computed_at}")
        for each in found.held:
            print_status(f"held: {describe_held(each)}")
        for sentence in found.lowered:
            print_status(sentence)
        for sentence in found.tripped:
            print_status(f"guard rail: {sentence}")
        report_lifted(above, found.new)
        return
    remote.emit({**found.to_json(), "above_rules": [each.to_json() for each in above], "version": seen.etag.strip('"')})


LATE: Final = {"backtest": ".quota_backtest:backtest", "nightly": ".quota_nightly:nightly"}


@click.group(cls=VerbGroup, late=LATE, example="sluice quotas plan quotas.json && echo nothing to do")
def quotas() -> None:
    """Quotas learned from the access log: compute, plan, apply, roll back."""


quotas.add_command(show)
quotas.add_command(report)


@quotas.command(example="sluice quotas compute --log access-log --date 2026-11-20 --state daily -o quotas.json")
@click.option("--log", "log", required=True, metavar="PATH|URL", help="Folder of the access log.")
@click.option("--date", metavar="YYYY-MM-DD", help="Day to read.  [default: yesterday, in the time zone]")
@click.option("--state", required=True, metavar="PATH|URL", help="Folder of the daily states.")
@click.option("-o", "--output", required=True, metavar="PATH|URL", help="File to write.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--driver-memory", metavar="SIZE", help="Java's heap on a local master, like 4g.  [default: by the log's size]")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Setting of Spark. May be repeated.")
@click.option("--previous", metavar="PATH|URL", help="Snapshot in force, so that no quota moves too far in one night.")
@parameter_options
@click.option("--pins", metavar="PATH|URL", help="File of pinned quotas (YAML).")
@click.option("--exclude", multiple=True, metavar="FROM/TO:TOPIC", help="An incident that teaches nothing. May be repeated.")
@click.option("--allow-partial", is_flag=True, help="Scale a day on which gateways are missing, instead of refusing it.")
@click.pass_context
def compute(
    ctx: click.Context, /, date: str | None, given: dict[str, Any], exclude: tuple[str, ...], *, allow_partial: bool, **paths: Any
) -> None:
    """Compute quotas from one day's access log and the states of earlier days, on Spark.

    Exit 0, 1 failed, 2 usage, 5 insufficient input, 130 interrupted.
    """
    with spark_part():
        from spark_jobs.commands import compute as compute_quotas
    log, state, output, master = (paths.pop(name) for name in ("log", "state", "output", "master"))
    with sigterm_as_interrupt():
        code = compute_quotas(log, date, state, output, master, exclude=exclude, allow_partial=allow_partial, **paths, **given)
    ctx.exit(code)


@quotas.command("plan", cls=PlanVerb, example="sluice quotas plan quotas.json")
@FILE
@rail_options
@remote
@click.pass_context
def plan_(ctx: click.Context, remote: Remote, rails: Rails, file: Path) -> None:
    """What publishing FILE would change, which topics would be held at their rail, and which quotas are above the rule of today.

    Exit 0 nothing, 1 error, 2 changes, 3 guard rail tripped, 5 insufficient input.
    """
    try:
        new = snapshot_in(file)
    except CommandError as error:
        raise _PlanError(INSUFFICIENT, error.message) from None
    seen = remote.client.ask("GET", "/v1/quotas")
    found = plan(snapshot_of(seen), new, rails)
    _show_plan(remote, found, seen, new, find_lifted(remote.client, found.publish))
    ctx.exit(GUARD_RAIL if found.tripped else CHANGES if found.differences else NO_CHANGE)


@quotas.command(example="sluice quotas apply quotas.json --yes --reason nightly")
@FILE
@rail_options
@click.option("--ignore-guard-rails", is_flag=True, help="Publish FILE as it is: nothing is held, no rail stops it; needs --reason.")
@changing
@remote
@click.pass_context
def apply(ctx: click.Context, remote: Remote, change: ChangeOptions, rails: Rails, file: Path, ignore_guard_rails: bool) -> None:  # noqa: FBT001
    """Publish FILE: all quotas at once, unless they were changed meanwhile. A topic beyond its rail is held there.

    The gateway gets the evidence in short form, without the series of 28 days; FILE keeps it for `show --file` and `report`.
    Exit 0 done or nothing to do, 3 FILE is no snapshot, 6 quotas changed meanwhile, 8 a guard rail is tripped.
    """
    new = snapshot_in(file)
    client = remote.client
    seen = client.ask("GET", "/v1/quotas")
    wanted = change.if_match(seen)
    if wanted not in {seen.etag, "*"}:
        raise CommandError(CONFLICT, f"the quotas in force are version {seen.etag}, not {wanted} any more; nothing was published")
    if ignore_guard_rails and not change.reason:
        raise CommandError(POLICY, "nothing was published: --ignore-guard-rails needs --reason TEXT")
    found = plan(snapshot_of(seen), new, None if ignore_guard_rails else rails)
    if found.tripped:
        _show_plan(remote, found, seen, new, find_lifted(client, found.publish))
        hint = "see what the log of that day holds; to publish it all the same: --ignore-guard-rails --reason TEXT"
        raise CommandError(POLICY, f"nothing was published: a guard rail is tripped; {hint}")
    if not found.differences:
        print_status("nothing changes; nothing was published")
        ctx.exit(OK)
    above = find_lifted(client, found.publish)
    if remote.form == "table" and (change.dry_run or not change.yes):
        _show_plan(remote, found, seen, new, above)
    else:
        report_lifted(above, found.new)
    change.confirm(f"Publish {pluralise(found.new, 'quota')} at {remote.url}, {len(found.differences)} of them changed?")
    data = encode_snapshot(drop_long_evidence(found.publish), remote.client.url)
    reply = client.ask("PUT", "/v1/quotas", query=change.query(), data=data, if_match=wanted, timeout_s=PUBLISH_TIMEOUT_S)
    if remote.form != "table":
        remote.emit(reply.body)
    report_change(change, f"{pluralise(found.new, 'quota')} published", f"publish {pluralise(found.new, 'quota')}")
    report_remarks(reply)


@quotas.command(example="sluice quotas rollback --yes --reason 'orders refused too much'")
@click.option("--with-later-changes", is_flag=True, hidden=True, help="Has no effect any more: limits and rules stay as they are.")
@changing
@remote
def rollback(remote: Remote, change: ChangeOptions, with_later_changes: bool) -> None:  # noqa: FBT001  -- click's way
    """Put the quotas before those in force back, and nothing else. Each time it goes one publication further back."""
    del with_later_changes
    client = remote.client
    seen = client.ask("GET", "/v1/quotas/status")
    preview = client.ask("POST", "/v1/quotas:rollback", query={"dry_run": "1"}, body={}).body
    target = next((each.get("after") for each in preview.get("changes", []) if each.get("target") == "quotas"), None)
    there = publication_text(target)
    change.confirm(f"Put the quotas of {remote.url} back to {there}?")
    reason = {"reason": change.reason} if change.reason else {}
    reply = client.ask("POST", "/v1/quotas:rollback", query=change.query(), body=reason, if_match=change.if_match(seen))
    if remote.form != "table":
        remote.emit(reply.body)
    report_change(change, f"the quotas are back to {there}", f"put the quotas back to {there}")


def publication_text(record: dict[str, Any] | None) -> str:
    """A publication in words: `those of 2026-11-20 (30 quotas, published 2026-11-21T01:00:00.000Z, sha256 0123...)`."""
    if record is None:
        return "none: the limits of the rules hold"
    of = record.get("date") or record.get("computed_at")
    return f"those of {of} ({pluralise(record.get('quotas', 0), 'quota')}, published {record.get('at')}, sha256 {record.get('sha256')})"


@quotas.command(example="sluice quotas status\nsluice quotas status -o json")
@remote
def status(remote: Remote) -> None:
    """The quotas in force and those tried: of when, what they have refused since, or would have, and of which topics most."""
    found = remote.client.ask("GET", "/v1/quotas/status").body
    if remote.form != "table":
        remote.emit(found)
        return
    for name, counts in (("published", "realised"), ("shadow", "would_refuse")):
        record, realised = found.get(name), found.get(counts) or {}
        word = "in force" if name == "published" else f"tried, night {(record or {}).get('nights')}"
        print_status(f"{word}: {publication_text(record)}" if record else f"no quotas are {'in force' if name == 'published' else 'tried'}")
        if record:
            would = "refused" if name == "published" else "would have refused"
            print_status(f"  {would} {realised.get('refused', 0)} of {realised.get('offered', 0)} messages since {realised.get('since')}")
            remote.emit(realised.get("topics", []), columns("protocol", "topic", "offered", "refused"))
