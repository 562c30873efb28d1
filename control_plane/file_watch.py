"""Reloads the configuration when one of its files has changed (`gateway.reload_on_change`).

Once a second each file is looked at by its name: which inode the name leads to, how large it is, when it was written. Symbolic links are
followed, so the swap of Kubernetes' `..data`, which replaces all files of a ConfigMap or Secret at once, is a change as well. inotify would
have to watch each folder on the way of each link, and sees nothing of network file systems.

A change is acted on when two looks in a row have found the same: what an editor writes in pieces is not read halfway. A configuration that
is not good changes nothing (`reload_failed`); it is read again when its files change again. Where it was not the files' fault (a mount that
hung, no thread for it) it is read again each RETRY_S. What changes while the process builds itself, or waits to take over, is a change as
well: what it has read was looked at then.
"""

from __future__ import annotations

import logging
import stat
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from common import log
from common.supervised_loop import SupervisedLoop
from config.hung_files import READ_S, hung_file
from control_plane.reload import reload_or_go_on

if TYPE_CHECKING:
    from config import Settings

LOOK_EVERY_S: Final = 1.0  # seconds; so a change is in force within two or three. Kubernetes' own part takes up to a minute
RETRY_S: Final = 30.0  # seconds; between two tries where one has failed for a cause that may pass (a guess)
UNWATCHED: Final = frozenset({"command_line", "environ", "flags", "origins", "sources", "rules"})  # of `Settings`: no files are named there
Look: TypeAlias = dict[Path, tuple[int, int, int, int] | None]  # device, inode, bytes, ns of the last writing; None: no file is there


def list_watched(settings: Settings) -> tuple[Path, ...]:
    """All files that the configuration names, itself included. Folders and sockets among them are no files to `look`."""
    return tuple(dict.fromkeys(_paths(settings)))


def _paths(value: object) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _paths(each)
    elif is_dataclass(value):
        for each in fields(value):
            if each.name not in UNWATCHED:
                yield from _paths(getattr(value, each.name))


def look(paths: Iterable[Path]) -> Look:
    """What these names lead to now. Blocks as long as the file systems do."""
    found: Look = {}
    for path in paths:
        try:
            about = path.stat()
        except OSError:
            found[path] = None
            continue
        found[path] = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns) if stat.S_ISREG(about.st_mode) else None
    return found


class Changes:
    """Tells from looks that follow each other when files have changed."""

    def __init__(self, known: Look) -> None:
        self._known = known  # what was read last
        self._before: Look = {}

    def find_changed(self, found: Look) -> list[str]:
        """The names of files that have changed, and are as they were at the look before; empty while there is nothing to read."""
        # A name that the configuration had not before is no change: it was read with it.
        changed = sorted(str(path) for path, file in found.items() if self._known.get(path, file) != file)
        settled = not changed or found == self._before
        if settled:
            self._known = found
        self._before = found
        return changed if settled else []


class Looks:
    """Looks on a thread, one at a time: where a mount hangs the next one waits for it, and the log says once which file it is."""

    def __init__(self) -> None:
        self._one = trio.CapacityLimiter(1)
        self._thread = 0  # that looked last
        self._told = False

    async def take_look(self, paths: tuple[Path, ...]) -> Look | None:
        """None: no answer within READ_S."""

        def on_it() -> Look:
            self._thread = threading.get_ident()
            return look(paths)

        with trio.move_on_after(READ_S):
            found = await trio.to_thread.run_sync(on_it, abandon_on_cancel=True, limiter=self._one)
            self._told = False
            return found
        if not self._told:
            self._told = True
            log.event(
                logging.ERROR, "reload_failed", err=f"{hung_file(self._thread, READ_S)}; until then no change is seen",
                remedy="the last good configuration stays in force",
            )  # fmt: skip
        return None

    def __repr__(self) -> str:
        return f"<Looks {'waiting' if self._told else 'looking'}>"


async def reload_on_change(settings: Callable[[], Settings], reload: Callable[[], Awaitable[object]], known: Look) -> None:
    """Until cancelled: reload when the files of the settings in force have changed, while `gateway.reload_on_change` is set. `known`: as
    they were at the start."""
    loop, changes, looks = SupervisedLoop("reload on change"), Changes(known), Looks()
    while True:
        with loop:
            now = settings()
            wanted = list_watched(now) if now.gateway.reload_on_change else ()
            found = await looks.take_look(wanted) if wanted else {}
            changed = [] if found is None else changes.find_changed(found)
            if changed:
                log.event(logging.INFO, "files_changed", files=changed)
                while await reload_or_go_on(reload):
                    await trio.sleep(RETRY_S)
        await trio.sleep(LOOK_EVERY_S)
