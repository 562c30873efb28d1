"""RateLimit: asks the judge, then settles every part by its verdict.

`carry` gathers what needs a verdict and keeps the batch; the event loop submits the requests of all sessions of a sweep at once and
calls `resume` when the verdicts are there. What passes is admitted. What is refused gets its rule's action here (`ACTIONS`), phrased by the
protocol. Parts are settled in the order they came, so nothing overtakes within an ordering key.
"""

from __future__ import annotations

from gateway.counting.accounts import Accounts
from gateway.pipeline.actions.counting import HELD, count_held
from gateway.pipeline.actions.spool import expire
from gateway.pipeline.actions.table import apply_action
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.message_spans import MessageSpans
from gateway.pipeline.parts import REQUEST, Part
from gateway.pipeline.pipeline import Batch, Handler
from limiter.credit import Credit
from limiter.keys import Key
from limiter.limits import NEVER
from limiter.rules.rule import Rule


class RateLimit(Handler):
    """Settles the parts of a batch by their verdicts."""

    def __init__(
        self, conversation: Conversation, reader: Credit, forwarder: Credit, accounts: Accounts, spans: MessageSpans | None = None
    ) -> None:
        self.conversation = conversation
        self.accounts = accounts
        self.reader = reader  # credit the reader spends towards us; granted back as we handle
        self.forwarder = forwarder  # credit we spend towards the forwarder; while it is used up our grants wait
        self.spans = spans  # None: nothing is traced
        self.refused_at = 0  # when something was refused or dropped last; 0: never
        self.refused_key: Key | None = None  # and of which key
        self.refused_rule: Rule | None = None  # by which rule

    def carry(self, batch: Batch) -> bool:
        parts = batch.parts
        if self.conversation.has_spooled:
            self._look_at_spooled(parts, batch.now)
        asking = 0
        for part in parts:
            if part.kind == REQUEST and not (part.paid or part.postponed or part.expired):
                asking += 1
        if asking == len(parts):
            batch.requests = parts
        else:
            batch.requests = [part for part in parts if part.kind == REQUEST and not (part.paid or part.postponed or part.expired)]
        if asking:
            return False
        self._settle(batch)
        return True

    def resume(self, batch: Batch) -> None:
        self._settle(batch)

    def _settle(self, batch: Batch) -> None:
        conversation = self.conversation
        now = batch.now
        handled = 0
        for part in batch.parts:
            if part.kind != REQUEST or part.paid:
                conversation.admit(part)
                continue
            if part.postponed:
                handled += part.count if part.messages <= 1 else part.count * part.messages
                part.postponed = False
                part.deadline = NEVER
                count_held(part)
                conversation.postpone(part, now)
                continue
            if part.expired:
                part.expired = False
                if part.deadline == 0:
                    handled += part.count if part.messages <= 1 else part.count * part.messages
                expire(conversation, part, now)
                continue
            if part.deadline == 0:
                handled += part.count if part.messages <= 1 else part.count * part.messages
            elif self.spans is not None:
                self.spans.let_go(part, now)
            if part.shadow_refused or part.bypassed:
                self._count_shadow_and_bypass(part)
            if part.passed >= part.count:
                if part.held_at != 0:
                    self._note_wait(part, now)
                conversation.admit(part)
                continue
            if part.passed > 0:
                head = conversation.split(part, part.passed)
                if head.held_at != 0:
                    self._note_wait(head, now)
                conversation.admit(head)
            self._refuse(part, now)
        if handled:
            self.reader.handle(handled, now, blocked=self.forwarder.credit <= 0)

    def _look_at_spooled(self, parts: list[Part], now: int) -> None:
        """Mark what waits behind something spooled (judged now, it would take the tokens of what is before it), and what is too old."""
        for part in parts:
            if part.kind != REQUEST or part.paid:
                continue
            if part.deadline == 0:
                part.postponed = self.conversation.waits_behind(part)
                part.expired = not part.postponed and self.conversation.would_overtake(part)
            elif part.deadline <= now:
                part.expired = self.conversation.may_expire(part)

    def _refuse(self, part: Part, now: int) -> None:
        key = part.key
        assert key is not None
        tally = self.accounts.tally_of(key)
        tally.refused_by = part.bucket
        tally.retry_after_ns = part.wait_ns
        spans = self.spans
        first = part.deadline == 0
        rule = part.rule
        outcome = apply_action(self.conversation, part, now)
        if spans is not None and part.reservation is None and (rule is None or rule.action != "spool"):  # what is spooled outlives its part
            spans.settle(part, outcome, now, first=first)
        if outcome != HELD:
            self.refused_at, self.refused_key, self.refused_rule = now, key, part.rule
            if part.held_at != 0:
                self._note_wait(part, now)
        elif part.held_at == 0 and (rule is None or rule.action != "spool"):
            part.held_at = now

    def _note_wait(self, part: Part, now: int) -> None:
        """Count how long `part` was held, which is over."""
        key = part.key
        assert key is not None
        self.accounts.waits.note(key, now - part.held_at, part.count * part.messages, now)
        part.held_at = 0

    def _count_shadow_and_bypass(self, part: Part) -> None:
        key = part.key
        assert key is not None
        tally = self.accounts.tally_of(key)
        if part.bypassed:
            tally.bypassed += part.count * part.messages
        tally.shadow_refused += part.shadow_refused * part.messages
