"""Requests of a name server's client that wait for a limit (`gateway/waiting/lines.py`): a line for each key, and nothing else waits."""

from __future__ import annotations

from collections.abc import Callable

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import REQUEST, Part
from gateway.pipeline.reports import Reports
from gateway.protocols.rocketmq.held_sends import PART_OVERHEAD, PATIENCE_NS
from gateway.waiting.line import Line
from gateway.waiting.lines import Lines
from limiter.keys import Key


class LimitedRequest(Part):
    """One whole request that a rule looks at."""

    __slots__ = ("code", "one_way", "opaque")

    def __init__(self, data: bytes, start: int, end: int, key: Key, code: int, opaque: int, one_way: bool) -> None:  # noqa: FBT001
        super().__init__(REQUEST, 0, data, start, end, key, 1, 1, 0)
        self.code = code
        self.opaque = opaque
        self.one_way = one_way
        self.unanswered = one_way


class HeldRequests(Lines):
    """Those of one connection."""

    def __init__(self, context: ConversationContext, budget: HeldBudget, reports: Reports, forward: Callable[[Part], None]) -> None:
        super().__init__(context, budget, reports, PART_OVERHEAD)
        self.patience_ns = PATIENCE_NS
        self.forward = forward

    def name_of(self, part: Part) -> object:
        return part.key

    def line_of(self, part: Part) -> Line | None:
        return self.by_name.get(part.key) if part.kind == REQUEST else None

    def may_page(self, part: Part) -> bool:
        return False
