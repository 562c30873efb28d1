"""What the judge is asked, and where it writes its verdict.

The naive way asks once per message: one object, one queue entry and one look-up each, which costs more than the protocol. But a
flood is made of like messages: those of one key and one cost that arrived in one read are **one** `Request` with a `count`. Because
`take(n)` admits exactly as many as n times `take(1)` at the same instant (`docs/design/limiter.md` 2.3), the verdict is one number: the
first `passed` of them pass, the rest is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from limiter.rules.rule import FIT

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket
    from limiter.columns import Columns
    from limiter.in_flight import Flight
    from limiter.keys import Key
    from limiter.reservation import Reservation
    from limiter.rules.rule_set import Rule


class UnjudgedError(Exception):
    """The judge has failed, for the reason that is the cause: the requests before number `at` have their verdict, no others."""

    def __init__(self, at: int) -> None:
        super().__init__(f"the judge failed on request number {at}")
        self.at = at


class Request:
    """`count` requests alike: each costs `messages` messages and `size` bytes, and passes or is refused as a whole.

    The numbers are below 2^63. Compiled they are native integers: a run of requests costs half of the instructions so. Mixed with an `int`
    they make a native integer of the result: counters that have no bound take them as `int` first.
    """

    __slots__ = (
        "again", "bucket", "bypassed", "columns", "copies", "count", "flight", "key", "messages", "passed", "pieces", "prepaid",
        "reservation", "rule", "shadow_refused", "size", "turn_at", "unanswered", "unfit", "wait_ns",
    )  # fmt: skip

    def __init__(self, key: Key | None, count: i64, messages: i64, size: i64) -> None:
        self.key = key  # None: not limited, passes unseen; or there are several (`columns`)
        self.count = count
        self.messages = messages  # of each; more than 1 for a RocketMQ batch
        self.size = size  # bytes of each, as on the wire
        self.copies: list[Key] | None = None  # of topics that get one of each, or of giving it back; with `key` it passes by all, or not
        self.turn_at: i64 = (
            0  # monotonic ns; its cost has come in by then, if nobody else asks; 0: never asked (`limiter.decisions.single`)
        )
        self.reservation: Reservation | None = None  # where the cost is known only later: that is judged, not `messages` and `size`
        self.again = False  # judged and refused before, held since: the refusal is not counted a second time
        self.unanswered = False  # the broker never says what became of it: it counts in no limit on what is in flight
        self.prepaid = False  # has passed, and gave its slots back because it had to wait behind others: judged again for slots alone
        self.flight: Flight | None = None  # the slots that those which passed hold, where a bucket counts them; the verdict's, too
        # The verdict, written by Judge.decide (or by Executor where it gave none):
        self.passed: i64 = 0  # how many of `count` pass: always the first ones
        self.wait_ns: i64 = 0  # true time until the first refused one would pass, if no other asked; NEVER at most
        self.rule: Rule | None = None  # the rule that refused; its action says what happens now
        self.bucket: Bucket | None = None  # whose bucket `rule` is about; of no meaning where nothing was refused
        self.unfit: i64 = FIT  # refused for what it is, however long it waits; else FIT
        self.shadow_refused: i64 = 0  # how many of `count` a rule in shadow mode would have refused
        self.bypassed = False  # passed without a verdict: limiter busy or failed
        # Where it is of several keys and costs, `count` messages in all, and passes as a whole or is cut into its pieces:
        self.columns: Columns | None = None  # then `key` is None, and `size` says nothing
        self.pieces: list[Request] | None = None  # once it was cut: they have the verdicts

    def cut(self) -> list[Request]:
        """The requests it is made of, in order; from now on they are its `pieces`."""
        pieces = self.make_pieces()
        self.pieces = pieces
        return pieces

    def add_fate(self, columns: Columns, row: i64) -> None:
        """Add to its verdict that of row number `row`, whose messages belong to it, where rows were judged."""
        if row >= len(columns.fates):
            return
        fate: i64 = columns.fates[row]
        refused: i64 = fate & 0xFFFF
        self.passed += (columns.rows[row] >> 16 & 0xFFFF) - refused
        if refused > 0:
            refusal = columns.refusals[fate >> 16]
            self.rule = refusal.rule
            self.bucket = refusal.bucket
            self.wait_ns = refusal.wait_ns
            self.turn_at = columns.judged_at + refusal.wait_ns

    def make_pieces(self) -> list[Request]:
        """The requests that one with `columns` is made of, in order, without a verdict."""
        raise NotImplementedError
