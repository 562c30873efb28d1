"""Adds to the committed corpus what fuzzing has found: `python tests/fuzz/minimise.py [--found build/fuzz] [TARGET ...]`.

Of the inputs that reach a step from line to line that no committed one reaches, the shortest; at most MOST of each target. The source tree
is measured, line by line, so this takes a minute a target.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MOST = 25  # inputs added of each target in one run
LONGEST = 1024  # bytes; of an input that is worth to be kept
MEASURED = tuple(f"{ROOT / package}/" for package in ("gateway", "limiter", "admin", "control_plane"))

Step = tuple[str, int, int]  # file, from line, to line


class Steps:
    """The steps from line to line within one function of what is measured."""

    def __init__(self) -> None:
        self.found: set[Step] = set()
        self._before: dict[FrameType, int] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(MEASURED):
            return None
        if event == "return":
            self._before.pop(frame, None)
        elif event == "line":
            self.found.add((file, self._before.get(frame, 0), frame.f_lineno))
            self._before[frame] = frame.f_lineno
        return self


def steps_of(target: Any, data: bytes) -> set[Step]:
    """What an input reaches; nothing where it breaks a promise: it belongs among the crashes."""
    steps = Steps()
    sys.settrace(steps)
    try:
        target(data)
    except Exception as error:
        print(f"{target.__name__}: an input raises {error!r}", file=sys.stderr)
        return set()
    finally:
        sys.settrace(None)
    return steps.found


def minimise(name: str, found: Path) -> int:
    """How many inputs were added."""
    from fuzz.inputs import committed, known
    from fuzz.targets import TARGETS

    target = TARGETS[name]
    for data in known(name)[:3]:
        target(data)  # what is done only once is not an input's own
    reached: set[Step] = set()
    for data in known(name):
        reached |= steps_of(target, data)
    added = 0
    for path in sorted(found.glob(f"{name}/*"), key=lambda path: (path.stat().st_size, path.name)):
        data = path.read_bytes()
        if added == MOST or len(data) > LONGEST:
            break
        new = steps_of(target, data) - reached
        if new:
            reached |= new
            (committed(name) / path.name).write_bytes(data)
            added += 1
    return added


def main() -> None:
    sys.path[:] = [str(ROOT), str(ROOT / "tests"), *(entry for entry in sys.path if entry not in ("", str(HERE)))]
    from fuzz.inputs import FOUND, names

    parser = argparse.ArgumentParser(description="add to the corpus what reaches more than it does")
    parser.add_argument("--found", type=Path, default=FOUND, help="where inputs were kept")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    given = parser.parse_args()
    for name in given.targets or names():
        print(f"{name:20} {minimise(name, given.found):>3} added", flush=True)


if __name__ == "__main__":
    main()
