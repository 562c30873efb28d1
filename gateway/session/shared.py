"""What all sessions of a gateway share: the judge, the accounts, and the configuration's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.counting.accounts import Accounts
from gateway.pipeline.message_spans import SpanRecorder
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pipeline.parts import Part


class Shared:
    """What all sessions of a gateway share. Bytes and nanoseconds."""

    def __init__(
        self,
        judge: Judge,
        accounts: Accounts,
        credit_initial: int,
        credit_more_after: int,
        hold_bytes: int,
        backlog_bytes: int,
        credit_bytes: int,
    ) -> None:
        self.judge = judge
        self.accounts = accounts
        self.credit_initial = credit_initial
        self.credit_more_after = credit_more_after
        self.hold_bytes = hold_bytes  # held parts per connection (memory.per_connection)
        self.credit_bytes = credit_bytes  # that may wait for the broker; above this the client is not read
        self.backlog_bytes = backlog_bytes  # the same for the client, and for what is gathered for it
        # Called with (session, request) for requests the gateway answers itself; None: no listener takes any.
        self.take_gateway_request: Callable[[object, Part], None] | None = None
        # Called with a session whose client was refused by a limit on connections (`Reports.full`)
        self.make_room: Callable[[object], None] | None = None
        self.spans: SpanRecorder | None = None  # None: nothing is traced
        self.disk: WaitingDisk | None = None  # where messages wait that are too much for memory; None: none do
        self.unchecked_bytes = 0  # read from either side since memory was last summed up (`gateway/event_loop/memory_watermark.py`)
        self.patience_divisor = 1  # time-outs are so much shorter while memory is scarce
        self.standing_still = False  # no client that is in is read: the next process takes over, and limits are to be one over both
        self.memory_full = False  # the gateway as a whole is above memory.high_watermark: a connection that holds something is not read
