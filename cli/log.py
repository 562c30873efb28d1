"""`sluice log`: what becomes of the access log's files once they are closed. Needs no running gateway."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.exits import CommandError
from cli.output import columns, emit, print_status
from cli.verb import VerbGroup, output_option
from common.failures import FAILED, NOT_AUTHORISED, NOT_FOUND, OK, UNREACHABLE, USAGE
from common.figures import pluralise
from common.masking import mask_secrets
from limiter.units import format_size, parse_duration

if TYPE_CHECKING:
    from common.log_files.compaction import CompactedHour
    from common.log_files.shipment import Sent
    from common.log_files.targets import Target, TargetError

DIRECTORY: Final = click.Path(path_type=Path)
SENT: Final = columns("gateway", "hour", "files", "bytes", "already_there", "fault")
COMPACTED: Final = columns("gateway", "hour", "files", "lines", "corrupt", "before", "after", "fault")


def duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Seconds of a time with its unit."""
    if value is None:
        return None
    try:
        return parse_duration(value) / 1e9
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group(cls=VerbGroup, example="sluice log compact /var/log/sluice")
def log() -> None:
    """The access log's closed files: compact them, ship them. The gateway compresses and deletes them (access_log.compress, keep)."""


def existing(directory: Path) -> Path:
    """Raises CommandError where there is no log."""
    if not directory.is_dir():
        raise CommandError(NOT_FOUND, f"{directory} is no directory; give that of access_log.directory")
    return directory


@log.command(example="sluice log compact /var/log/sluice")
@click.argument("directory", type=DIRECTORY)
@click.option(
    "--settle", callback=duration, default="10min", show_default=True, metavar="TIME", help="How long an hour must be over to be compacted."
)
@output_option
def compact(directory: Path, settle: float, form: str) -> int:
    """Make one Parquet file of each gateway's hour, sorted by topic and second, and remove the files it stands for.

    Lines that are none are kept in DIRECTORY/corrupt. An hour with a damaged file stays as it is. May be killed and run again at any time.
    Exit codes: 0 all is compacted, 1 an hour could not be, 7 no such directory.
    """
    existing(directory)
    if find_spec("pyarrow") is None:
        raise CommandError(FAILED, "compacting needs the Python package pyarrow: pip install 'sluice-gateway[compact]'")
    from common.log_files import compaction

    with contextlib.suppress(OSError):
        os.nice(19)  # a gateway may be beside it
    done: list[CompactedHour] = []
    try:
        for each in compaction.compact(directory, time.time(), settle):
            done.append(each)
            if each.fault:
                print_status(f"{hour_of(each)} stays as it is: {each.fault}")
    except OSError as error:
        raise CommandError(FAILED, f"{error}; what was compacted stays so, and the next run goes on") from None
    rows = [describe_hour(each) for each in done]
    if rows or form != "table":
        emit(form, rows, COMPACTED)
    faulty = sum(bool(each.fault) for each in done)
    print_status(f"{pluralise(len(done) - faulty, 'hour')} compacted" + (f", {faulty} left as they are" if faulty else ""))
    return FAILED if faulty else OK


@log.command(example="sluice log ship /var/log/sluice --to s3://logs/sluice --every 10min")
@click.argument("directory", type=DIRECTORY)
@click.option("--to", "url", required=True, metavar="URL", help="s3://BUCKET/PREFIX, webhdfs://HOST:9870/PATH, or a folder (a mount).")
@click.option("--endpoint", metavar="URL", help="An S3 server other than AWS' (or AWS_ENDPOINT_URL).")
@click.option(
    "--settle", callback=duration, default="10min", show_default=True, metavar="TIME", help="How long an hour must be over to be shipped."
)
@click.option("--every", callback=duration, metavar="TIME", help="Go on until SIGTERM, with a round so often; default: one round.")
@output_option
def ship(directory: Path, url: str, endpoint: str | None, settle: float, every: float | None, form: str) -> int:
    """Copy closed hours to another place, every file once, with checksums in a manifest per hour that is written last.

    Nothing is deleted here; the gateway's access_log.keep does that, and waits for what is not shipped. May be killed and run again at any
    time. Credentials of S3 come from where AWS' tools take them.
    Exit codes: 0 all is shipped, 1 an hour could not be, 4 the target cannot be reached, 5 no credentials or no right, 7 no such directory
    or bucket.
    """
    existing(directory)
    target = target_named(url, endpoint)
    if every is None:
        return one_round(directory, target, settle, form)
    with contextlib.suppress(Stopped):
        signal.signal(signal.SIGTERM, stop)
        while True:
            began = time.monotonic()
            try:
                one_round(directory, target, settle, "none")
            except CommandError as error:
                error.show()
            time.sleep(max(0.0, every - (time.monotonic() - began)))
    return OK


class Stopped(BaseException):
    """SIGTERM has come."""


def stop(*_: object) -> None:
    raise Stopped


def target_named(url: str, endpoint: str | None) -> Target:
    """Raises CommandError."""
    from common.log_files.target_urls import target_of
    from common.log_files.targets import TargetError

    try:
        return target_of(url, os.environ, endpoint)
    except ValueError as error:
        raise CommandError(USAGE, str(error)) from None
    except TargetError as error:
        raise target_error(error) from None
    except ModuleNotFoundError as error:
        message = f"shipping to {mask_secrets(url)} needs the Python package {error.name}: pip install 'sluice-gateway[ship]'"
        raise CommandError(FAILED, message) from None


def target_error(error: TargetError) -> CommandError:
    from common.log_files import targets

    codes = {targets.UNREACHABLE: UNREACHABLE, targets.REFUSED: NOT_AUTHORISED, targets.MISSING: NOT_FOUND}
    return CommandError(codes.get(error.kind, FAILED), mask_secrets(str(error)))


def one_round(directory: Path, target: Target, settle: float, form: str) -> int:
    """Ship what there is. Raises CommandError."""
    from common.log_files import shipment
    from common.log_files.names import look
    from common.log_files.targets import TargetError

    sent: list[Sent] = []
    try:
        for each in shipment.ship(directory, target, time.time(), settle):
            sent.append(each)
            if each.fault:
                print_status(f"{hour_of(each)} is not shipped: {each.fault}")
        foreign = look(directory).foreign
    except TargetError as error:
        raise target_error(error) from None
    except ValueError as error:
        raise CommandError(USAGE, str(error)) from None
    except OSError as error:
        raise CommandError(FAILED, f"{error}; it needs to write marks into {directory}; the next run goes on") from None
    if foreign:
        more = " ..." if foreign[1:] else ""
        print_status(f"{pluralise(len(foreign), 'file')} no gateway has written, not shipped: {foreign[0]}{more}")
    if form != "none" and (sent or form != "table"):
        emit(form, [describe_sent(each) for each in sent], SENT)
    faulty = sum(bool(each.fault) for each in sent)
    if sent or form != "none":
        files = pluralise(sum(each.files for each in sent), "file")
        print_status(f"{files} shipped to {target.url}" + (f", {pluralise(faulty, 'hour')} not" if faulty else ""))
    return FAILED if faulty else OK


def describe_sent(each: Sent) -> dict[str, Any]:
    from common.log_files.names import hour_text

    return {
        "gateway": each.gateway, "hour": hour_text(each.hour), "files": each.files, "bytes": format_size(each.bytes),
        "already_there": each.already, "fault": each.fault or None,
    }  # fmt: skip


def hour_of(each: CompactedHour | Sent) -> str:
    from common.log_files.names import folder_of

    return f"{folder_of(each.hour)} of {each.gateway}"


def describe_hour(each: CompactedHour) -> dict[str, Any]:
    from common.log_files.names import hour_text

    return {
        "gateway": each.gateway, "hour": hour_text(each.hour), "files": each.files, "lines": each.lines, "corrupt": each.corrupt,
        "before": format_size(each.bytes_before), "after": format_size(each.bytes_after), "fault": each.fault or None,
    }  # fmt: skip
