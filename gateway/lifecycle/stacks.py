"""What a process is doing: the stack of every thread and of every trio task, as text, taken from any thread.

It shows files, lines and functions, never values: no password or message gets into a log by it. Compiled code (mypyc) has no frames of its
own, so a stack ends at the interpreted function that called it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Final

import trio

MAX_KINDS: Final = 200  # different stacks of tasks that are shown; tasks that stand at the same place are shown once, and counted
MAX_DEPTH: Final = 60  # frames of one stack, the innermost; a guess
TRIES: Final = 5  # the loop may change what is looked at


def dump(root: trio.lowlevel.Task | None) -> str:
    """The stacks of all threads, and of the tasks below `root`, where there are any."""
    return "\n".join([*threads(), *([] if root is None else tasks(root))])


def threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    for ident, frame in sys._current_frames().items():
        if ident != own:
            yield f"thread {names.get(ident, ident)}, innermost frame last:"
            yield from _lines((each, each.f_lineno) for each in _outermost_first(frame))


def tasks(root: trio.lowlevel.Task) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for task in _all(root):
        try:
            stack = "\n".join(_lines(list(task.iter_await_frames())))
        except Exception as error:  # it went on meanwhile
            stack = f"  ({type(error).__name__} while it was looked at)"
        kinds.setdefault(stack, []).append(task.name)
    for stack, names in list(kinds.items())[:MAX_KINDS]:
        yield f"task {names[0]}:" if len(names) == 1 else f"{len(names)} tasks, {names[0]} among them:"
        yield stack
    if len(kinds) > MAX_KINDS:
        yield f"and tasks at {len(kinds) - MAX_KINDS} other places"


def _all(root: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    found = [root]
    for task in found:
        for nursery in list(task.child_nurseries):
            for _ in range(TRIES):
                try:
                    found.extend(nursery.child_tasks)
                    break
                except RuntimeError:  # the set changed while it was copied
                    continue
    return found


def _outermost_first(frame: FrameType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _lines(frames: Iterable[tuple[FrameType, int | None]]) -> Iterator[str]:
    for frame, line in list(frames)[-MAX_DEPTH:]:
        yield f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_qualname}'
