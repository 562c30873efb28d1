"""What every list of the command line takes: `--sort`, `--limit` and `--watch`.

The gateway sorts what may be long (topics, limits, connections); short lists are sorted here, by `Orders`.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from cli.exits import CommandError, passes
from cli.output import capture_lines, clean, on_terminal, terminal_width
from cli.tables import Read, column, shorten
from cli.verb import read_seconds
from common.failures import INTERRUPTED

if TYPE_CHECKING:
    from cli.client import AdminClient

WATCH_S: Final = "2"  # seconds; between two looks where --watch does not say
MIN_WATCH_S: Final = 0.2  # seconds; more often would be a load and no help


def limit_option(default: int | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--limit N`; the command gets `most`."""
    return click.option(
        "--limit", "most", type=click.IntRange(min=1), default=default, show_default=default is not None, help="Show at most this many."
    )


def sort_option(
    choices: Iterable[str],
    default: str = "name",
    help: str = "Order; what is largest now first.",  # noqa: A002  -- click's word
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--sort WORD`; the command gets `sort`."""
    return click.option("--sort", type=click.Choice([*choices]), default=default, show_default=True, help=help)


Orders = Mapping[str, Read | None]  # a word of --sort -> what an item is sorted by; None: as the gateway has them


def order_items(items: Iterable[dict[str, Any]], orders: Orders, sort: str) -> list[dict[str, Any]]:
    """The items in one of the orders: texts by the alphabet, numbers the largest first, what has neither at the end."""
    read = orders[sort]
    if read is None:
        return [*items]

    def key(item: dict[str, Any]) -> tuple[int, float, str]:
        value = read(item)
        if value is None or value == "":
            return 2, 0.0, ""
        if isinstance(value, int | float):
            return 0, -float(value), ""
        return 1, 0.0, str(value).casefold()

    return sorted(items, key=key)


def gather_items(
    client: AdminClient, target: str, orders: Orders, sort: str, most: int | None, query: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """The first `most` of a list that the gateway does not sort: it is read to its end, unless the order is the gateway's own."""
    found = client.items(target, query, most=most if orders[sort] is None else None)
    return order_items(found, orders, sort)[:most]


def moment_of(*names: str) -> Read:
    """The time that stands in the first of these members that has one, as a number: the latest comes first."""
    read = column("", *names).read

    def moment(item: dict[str, Any]) -> object:
        try:
            return datetime.fromisoformat(str(read(item))).timestamp()
        except ValueError:
            return None

    return moment


def _watch_seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    return None if value is None else read_seconds(value, MIN_WATCH_S, "; write seconds, such as --watch 5")


def watchable(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--watch [SECONDS]`: the command's output again and again. It writes by `output.emit` and `print_status`."""

    @click.option(
        "--watch", "watch_s", is_flag=False, flag_value=WATCH_S, default=None, callback=_watch_seconds, metavar="[SECONDS]",
        help=f"Show it again every {WATCH_S} s, or every SECONDS, until ctrl-c.",
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(*args: Any, watch_s: float | None, **kwargs: Any) -> Any:
        if watch_s is None:
            return command(*args, **kwargs)
        look = functools.partial(command, *args, **kwargs)
        try:
            _watch_screen(look, watch_s) if on_terminal() else _watch_pipe(look, watch_s)
        except KeyboardInterrupt:
            click.get_current_context().exit(INTERRUPTED)
        return None

    return wrapped


def _watch_pipe(look: Callable[[], Any], seconds: float) -> None:
    """One table after another, an empty line between."""
    due = time.monotonic()
    while True:
        look()
        click.echo("")
        sys.stdout.flush()
        due = max(due + seconds, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


def _watch_screen(look: Callable[[], Any], seconds: float) -> None:
    """The last table stays on the terminal when it ends."""
    from cli.screen import screen

    lines: list[str] = []
    try:
        with screen(keys=False) as terminal:
            while True:
                lines = frame(look, lines)
                terminal.draw(lines)
                due = time.monotonic() + seconds
                while (left := due - time.monotonic()) > 0:
                    if terminal.wait(left) == "resize":
                        break
    finally:
        click.echo("\n".join(lines))


def frame(look: Callable[[], Any], before: list[str]) -> list[str]:
    """One look as lines; while the gateway cannot be reached the lines of before, with a first one that says so."""
    at = datetime.now(UTC).strftime("%H:%M:%S UTC")
    try:
        with capture_lines() as lines:
            look()
    except CommandError as error:
        if not passes(error):
            raise
        return [shorten(clean(f"{at}  {error.message}; trying again"), terminal_width()), *before[1:]]
    return [at, *lines]
