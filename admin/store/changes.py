"""A change of the state: its author, its plan, and the errors that end it."""

from __future__ import annotations

import errno
from typing import Final

from admin.store.journal import Change
from admin.store.state import State
from common.records import dataclass
from limiter.rules.rule_set import RuleSet

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class StoreError(Exception):
    """A state directory that cannot be used, and the way out."""


class WriteFailedError(Exception):
    """A change could not be made durable and is not in force. `full`: for want of space; `read_only`: until `way_out` or the next start."""

    def __init__(self, error: OSError, *, read_only: bool = False, way_out: str = "") -> None:
        super().__init__(error.strerror or str(error))
        self.full = error.errno in FULL
        self.read_only = read_only
        self.way_out = way_out


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change, and the request."""

    name: str
    role: str = ""
    address: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A change before (or after) it is made: the state, the change of each target, and the rules."""

    state: State
    changes: list[Change]
    rules: RuleSet
