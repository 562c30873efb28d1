"""`sluice log`: what becomes of the access log's files once they are closed. Needs no running gateway."""

from __future__ import annotations

import contextlib
import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.cli.exits import FAILED, NOT_FOUND, OK, CommandError
from gateway.cli.output import columns, counted, emit, print_status
from gateway.cli.verb import Group, output_option
from limiter.units import format_size, parse_duration

if TYPE_CHECKING:
    from gateway.log_files.compaction import Done

DIRECTORY: Final = click.Path(path_type=Path)
COMPACTED: Final = columns("gateway", "hour", "files", "lines", "corrupt", "before", "after", "fault")


def duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Seconds of a time with its unit."""
    if value is None:
        return None
    try:
        return parse_duration(value) / 1e9
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group(cls=Group, example="sluice log compact /var/log/sluice")
def log() -> None:
    """The access log's closed files: compact them. The gateway itself compresses and deletes them (access_log.compress, keep)."""


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
    from gateway.log_files import compaction

    with contextlib.suppress(OSError):
        os.nice(19)  # a gateway may be beside it
    done: list[Done] = []
    try:
        for each in compaction.compact(directory, time.time(), settle):
            done.append(each)
            if each.fault:
                print_status(f"{hour_of(each)} stays as it is: {each.fault}")
    except OSError as error:
        raise CommandError(FAILED, f"{error}; what was compacted stays so, and the next run goes on") from None
    rows = [shown(each) for each in done]
    if rows or form != "table":
        emit(form, rows, COMPACTED)
    faulty = sum(bool(each.fault) for each in done)
    print_status(f"{counted(len(done) - faulty, 'hour')} compacted" + (f", {faulty} left as they are" if faulty else ""))
    return FAILED if faulty else OK


def hour_of(each: Done) -> str:
    from gateway.log_files.names import folder_of

    return f"{folder_of(each.hour)} of {each.gateway}"


def shown(each: Done) -> dict[str, Any]:
    from gateway.log_files.names import hour_text

    return {
        "gateway": each.gateway, "hour": hour_text(each.hour), "files": each.files, "lines": each.lines, "corrupt": each.corrupt,
        "before": format_size(each.bytes_before), "after": format_size(each.bytes_after), "fault": each.fault or None,
    }  # fmt: skip
