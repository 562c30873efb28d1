"""Faults of a rule that was given as text: what reads rules (the settings) and what takes them from people (the admin API) share them."""

from __future__ import annotations

from typing import Final, NamedTuple

LIVE: Final = "live"  # the place of a rule that stands in no file


class RuleFault(NamedTuple):
    """One thing wrong with the text of a rule: the member (`match.topic`; "" the whole), and what would do."""

    field: str
    message: str


class RuleTextError(ValueError):
    """The text of a rule that cannot be used, with all its faults."""

    def __init__(self, faults: list[RuleFault]) -> None:
        super().__init__("; ".join(f"{fault.field}: {fault.message}" for fault in faults))
        self.faults = faults
