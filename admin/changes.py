"""Words around a change of the state: who makes it, what it would do, and why it could not be made."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from admin.journal import Change
from admin.state import State
from limiter.rules.rule_set import RuleSet

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class StoreError(Exception):
    """The state directory cannot be used; says why and the way out."""


class WriteFailedError(Exception):
    """A change could not be made durable and is not in force. `full`: for want of space."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.full = error.errno in FULL


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes something, and by which request."""

    name: str
    role: str = ""
    address: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A change before (or after) it is made: the state, what becomes of each target, and the rules."""

    state: State
    changes: list[Change]
    rules: RuleSet
