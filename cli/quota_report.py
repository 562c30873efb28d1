"""`sluice quotas show` and `sluice quotas report`: the quotas in force or in a file, one topic with its chart, a report."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from cli.client import Reply
from cli.exits import CommandError
from cli.output import Column, clean, column, print_status
from cli.quota_state import is_short, with_nights
from cli.verb import Remote, Verb, reaching, remote
from common.failures import FAILED, INVALID, NOT_FOUND, USAGE
from common.figures import pluralise
from limiter.quota_snapshot import Snapshot, SnapshotError, load, read_snapshot
from spark_jobs.nights.plan import show_burst, show_rate

MAX_SUGGESTED: Final = 5  # topics named where the one asked for has no quota (a guess)
FORMS: Final = {".html": "report.html", ".htm": "report.html", ".md": "report.md", ".json": "report.json"}  # suffix -> which report

QUOTAS: Final[list[Column]] = [
    column("protocol", "protocol"),
    column("topic", "topic"),
    ("messages", lambda item: show_rate("messages", (item.get("messages") or {}).get("rate"))),
    column("burst", "messages.burst"),
    ("bytes", lambda item: show_rate("bytes", (item.get("bytes") or {}).get("rate"))),
    ("byte burst", lambda item: show_burst("bytes", (item.get("bytes") or {}).get("burst"))),
    column("days", "evidence.days"),
    column("p99", "evidence.p99"),
    column("max", "evidence.max"),
    column("reason", "evidence.reason"),
]


def snapshot_in(file: Path, option: str = "") -> Snapshot:
    """The snapshot in `file`; raises CommandError, which begins with `option`: 2 where there is no such file, 3 where it is no snapshot."""
    try:
        return load(file.read_bytes())
    except OSError as error:
        raise CommandError(USAGE, f"{option}{file}: {error.strerror}") from None
    except SnapshotError as error:
        raise CommandError(INVALID, f"{option}{file}: {error}") from None


def snapshot_of(reply: Reply) -> Snapshot:
    """The snapshot that a gateway answered with; raises CommandError 1 where it cannot be read."""
    try:
        return read_snapshot(reply.body)
    except SnapshotError as error:
        raise CommandError(
            FAILED, f"the gateway's quotas cannot be read: {error}; do the versions of sluice here and there agree?"
        ) from None


def _resolve(word: str | None, file: Path | None, topic: str | None) -> tuple[Path | None, str | None]:
    """(file, topic) of `show [TOPIC | FILE] [--file FILE] [--topic TOPIC]`. A word is a file if one is there, or it ends with .json."""
    if word is None:
        return file, topic
    if topic is not None:
        if file is not None:
            raise click.UsageError(f"{clean(word)}: --file and --topic are given already; leave one of the three out")
        return Path(word), topic
    if file is not None:
        return file, word
    return (Path(word), None) if word.endswith(".json") or Path(word).is_file() else (None, word)


def state_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the nights are kept; the command gets `state` and `conf`."""
    state = click.option(
        "--state", metavar="URL", envvar="SLUICE_QUOTAS_STATE",
        help="The state of `quotas nightly` (or SLUICE_QUOTAS_STATE): the 28 days of what is in force, which gateways do not keep.",
    )  # fmt: skip
    conf = click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Setting of Spark, for a STATE elsewhere; may be repeated.")
    return state(conf(command))


def in_force(remote: Remote, state: str | None, conf: tuple[str, ...]) -> Snapshot:
    """What the gateway has in force; with the evidence of its night, where STATE has that night. Says where it has not."""
    live = snapshot_of(remote.client.ask("GET", "/v1/quotas"))
    if state is None:
        if is_short(live):
            print_status("without the 28 days, which gateways do not keep: --state URL reads them from the state of `quotas nightly`")
        return live
    found, lacking = with_nights(live, state, conf)
    if lacking:
        print_status(lacking)
    return found


@click.command(
    cls=Verb,
    example="sluice quotas show\nsluice quotas show orders --state /srv/quota-state\nsluice quotas show orders --file quotas.json\n"
    "sluice quotas show -o json > in-force.json\nsluice quotas show quotas.json",
)
@click.argument("file", required=False, metavar="[TOPIC | FILE]")
@click.option(
    "--file", "read", type=click.Path(path_type=Path), help="Read this snapshot instead of asking the gateway; the word is a topic then."
)
@click.option("--topic", metavar="TOPIC", help="A topic whose name is also that of a file here.")
@click.option("--protocol", metavar="NAME", help="Only the topic of this protocol.")
@state_options
@remote
def show(
    remote: Remote, file: str | None, read: Path | None, topic: str | None, protocol: str | None, state: str | None, conf: tuple[str, ...]
) -> None:
    """The quotas in force, or those in FILE. With TOPIC: why it is what it is, 28 days of demand, and how well it did.

    A word that ends with .json, or is the name of a file here, is a FILE; any other is a TOPIC. Of quotas in force the 28 days are in
    STATE only.
    """
    read, topic = _resolve(file, read, topic)
    if read is not None:
        snapshot = snapshot_in(read)
    elif topic is not None or state is not None:
        snapshot = in_force(remote, state, conf)
    else:
        snapshot = snapshot_of(remote.client.ask("GET", "/v1/quotas"))
    if topic is not None:
        _show_topic(remote, snapshot, topic, protocol)
        return
    document = snapshot.to_json()
    if protocol is not None:
        document["quotas"] = [quota.to_json() for quota in snapshot.quotas if quota.protocol == protocol]
    if remote.form != "table":
        remote.emit(document)
        return
    if not snapshot.quotas:
        print_status("no quotas are published" if read is None else f"{read} holds no quotas")
        return
    remote.emit(document["quotas"], QUOTAS, stack=True)
    print_status(
        f"{pluralise(len(snapshot.quotas), 'quota')}, computed {snapshot.computed_at} by {snapshot.code}, sha256 {snapshot.sha256()}"
    )


def _show_topic(remote: Remote, snapshot: Snapshot, topic: str, protocol: str | None) -> None:
    from spark_jobs.report.text import for_encoding, render_topic

    quotas = [quota.to_json() for quota in snapshot.quotas if quota.topic == topic and protocol in {None, quota.protocol}]
    lines = render_topic(snapshot, topic, protocol)
    if not lines or (not quotas and remote.form != "table"):
        raise CommandError(NOT_FOUND, f"{topic} has no quota{_nearest(snapshot, topic)}")
    if remote.form != "table":
        remote.emit(quotas[0] if len(quotas) == 1 else quotas)
        return
    for line in lines:
        click.echo(for_encoding(line, sys.stdout.encoding))


def _nearest(snapshot: Snapshot, topic: str) -> str:
    """`; did you mean ...`: topics that hold the word, or are written much like it."""
    names = sorted({quota.topic for quota in snapshot.quotas})
    holding = [name for name in names if topic.lower() in name.lower()]
    near = holding[:MAX_SUGGESTED] or difflib.get_close_matches(topic, names[:10_000], n=MAX_SUGGESTED)
    return f"; did you mean {' or '.join(near)}?" if near else "; `sluice quotas show` lists all that have one"


@click.command(
    cls=Verb,
    example="sluice quotas report --state /srv/quota-state -o report.html\n"
    "sluice quotas report quotas.json --before last-night.json -o report.html -o report.md",
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--before", type=click.Path(path_type=Path), help="The snapshot that FILE replaces, for changes, new topics and removed ones."
)
@click.option(
    "-o", "--output", "outputs", multiple=True, required=True, type=click.Path(path_type=Path),
    help="File to write: .html, .md or .json. May be repeated.",
)  # fmt: skip
@state_options
@reaching
def report(
    remote: Remote, file: Path | None, before: Path | None, outputs: tuple[Path, ...], state: str | None, conf: tuple[str, ...]
) -> None:
    """A report of the quotas in force, or those in FILE: the biggest changes, each topic's demand against its quota, how well it did.

    Of quotas in force the charts and the figures of 28 nights are in STATE only.
    """
    for output in outputs:
        if output.suffix.lower() not in FORMS:
            raise click.UsageError(f"-o {output}: what form is this? End its name with .html, .md or .json")
    snapshot = snapshot_in(file) if file is not None else in_force(remote, state, conf)
    earlier = snapshot_in(before) if before is not None else None
    from spark_jobs.report import write_reports

    reports = write_reports(snapshot, earlier)
    for output in outputs:
        try:
            output.write_bytes(reports[FORMS[output.suffix.lower()]])
        except OSError as error:
            raise CommandError(FAILED, f"{output}: {error.strerror}; nothing more was written") from None
        print_status(f"{output}: {pluralise(len(snapshot.quotas), 'quota')}")
