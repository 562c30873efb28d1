"""Wait: settles every part by its verdict. What passes is admitted, what is refused gets its rule's action, and what has to wait is held.

A refused part's action is one of `ACTIONS` (`gateway/pipeline/actions/table.py`), phrased by the protocol. Parts are settled in the order
they came, so nothing overtakes within a line. What is held here comes back by `Lines.take_due`, and is judged again.
"""

from __future__ import annotations

from gateway.counting.accounts import Accounts
from gateway.counting.recent_refusals import RecentRefusals
from gateway.pipeline.actions.counting import HELD, count_held, count_refusal
from gateway.pipeline.actions.spool import expire
from gateway.pipeline.actions.table import apply_action
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.message_spans import MessageSpans
from gateway.pipeline.parts import POSTPONED, REQUEST, Part, pieces_of
from gateway.pipeline.pipeline import Batch, Handler
from limiter.buckets.bucket import Bucket
from limiter.columns import Columns
from limiter.credit import Credit
from limiter.keys import Key
from limiter.limits import NEVER, SECOND
from limiter.operations import WAITING
from limiter.rules.rule import FIT, Rule


class Wait(Handler):
    """Settles the parts of a batch."""

    def __init__(
        self,
        conversation: Conversation,
        reader: Credit,
        forwarder: Credit,
        accounts: Accounts,
        spans: MessageSpans | None = None,
    ) -> None:
        self.conversation = conversation
        self.lines = conversation.lines
        self.accounts = accounts
        self.reader = reader  # credit the reader spends towards us; granted back as we handle
        self.forwarder = forwarder  # credit we spend towards the forwarder; while it is used up our grants wait
        self.spans = spans  # None: nothing is traced
        self.refused_at = 0  # when something was refused or dropped last; 0: never
        self.refused_key: Key | None = None  # and of which key
        self.refused_rule: Rule | None = None  # by which rule
        self.refusals: RecentRefusals | None = None  # how many were, of late; None: none yet

    def carry(self, batch: Batch) -> bool:
        conversation = self.conversation
        now = batch.now
        handled = 0
        passed: Part | None = None  # the last that did
        passing: set[Key | None] | None = None  # keys of which something passes; made for the first that is refused
        if batch.mixed:
            batch.parts = pieces_of(batch.parts)
        at = 0
        while at < len(batch.parts):
            part = batch.parts[at]
            if part.columns is not None and part.passed < part.count:
                messages = part.count
                if not self._settle_rows(part, part.columns, now):
                    part.cut()
                    batch.parts = batch.parts[:at] + pieces_of([part]) + batch.parts[at + 1 :]
                    continue
                handled += messages
                if part.passed > 0:
                    passed = part
                at += 1
                continue
            at += 1
            if part.kind != REQUEST or part.paid:
                conversation.admit(part)
                continue
            if part.deadline == 0:
                handled += part.count if part.messages <= 1 else part.count * part.messages
            if part.unjudged != 0:
                if part.unjudged == POSTPONED:
                    self._postpone(part, now)
                else:
                    self._expire(part, now)
                continue
            if part.shadow_refused or part.bypassed:
                self._count_shadow_and_bypass(part)
            if part.held is not None:
                self._look_at_span(part, now)
            if part.passed >= part.count:
                if part.held is not None:
                    self._end_hold(part, now)
                passed = part
                conversation.admit(part)
                continue
            if part.passed > 0:
                passed = conversation.split(part, part.passed)
                if passed.held is not None:
                    self._end_hold(passed, now)
                conversation.admit(passed)
            if passing is None:
                passing = passing_keys(batch.parts)
            if passed is not None:
                passing.add(passed.key)
            lines = self.lines
            lines.had_turn = part.key in passing or (passed is not None and lines.name_of(passed) == lines.name_of(part))
            self._refuse(part, now)
        if handled:
            self.reader.handle(handled, now, blocked=self.forwarder.credit <= 0)
        return True

    def _postpone(self, part: Part, now: int) -> None:
        """What is before `part` in its line is spooled: it is judged when its turn comes."""
        part.unjudged = 0
        part.deadline = NEVER
        part.begin_hold().paged_at = now
        count_held(part)
        if not self.lines.postpone(part, now):  # closed meanwhile
            self.conversation.admit(part)

    def _expire(self, part: Part, now: int) -> None:
        key = part.key
        assert key is not None
        tally = self.accounts.tally_of(key)
        too_old = part.deadline != 0  # else it would have overtaken
        outcome = expire(self.conversation, part, now)
        if outcome == HELD:
            return
        if too_old:
            self._count_expired(part)
        tally.refused_by = part.bucket
        self._note_refused(key, part.rule, part.count * part.messages, now)
        if self.spans is not None:
            self.spans.settle(part, outcome, now, first=part not in self.spans.waiting)

    def _settle_rows(self, part: Part, columns: Columns, now: int) -> bool:
        """Settle `part`, of which some messages are refused, as it is; False, changing nothing, where it must be cut."""
        if self.spans is not None:
            return False
        for refusal in columns.refusals:
            if refusal.rule.action != "reject" or refusal.of_key.key.operation in WAITING:
                return False
        if not self.conversation.settle_rows(part):
            return False
        for refusal in columns.refusals:
            key = refusal.of_key.key
            self._note_verdict(key, refusal.bucket, refusal.wait_ns, now)
            count_refusal(refusal)
            self._note_refused(key, refusal.rule, refusal.count, now)
        return True

    def _note_verdict(self, key: Key, bucket: Bucket | None, wait_ns: int, now: int) -> None:
        """`bucket` has refused messages of `key`, for `wait_ns`."""
        tally = self.accounts.tally_of(key)
        tally.refused_by = bucket
        if bucket is not None:
            if now - bucket.dry_at > SECOND and wait_ns < NEVER and self.accounts.on_dry is not None:
                self.accounts.on_dry()
            bucket.dry_at = now
        tally.retry_after_ns = wait_ns

    def _refuse(self, part: Part, now: int) -> None:
        key = part.key
        assert key is not None
        self._note_verdict(key, part.bucket, part.wait_ns, now)
        spans = self.spans
        first = part.deadline == 0
        rule = part.rule
        spools = rule is not None and rule.action == "spool" and part.unfit == FIT
        if spools:
            held = part.begin_hold()
            if held.paged_at == 0 and held.since == 0:
                held.paged_at = now  # before it is held, since it may be written to a file at once
        outcome = apply_action(self.conversation, part, now)
        if spans is not None and part.reservation is None:
            spans.settle(part, outcome, now, first=first)
        if outcome != HELD:
            self._note_refused(key, part.rule, part.count * part.messages, now)
            if spools and 0 < part.deadline <= now:  # it became too old while it was with the judge
                self._count_expired(part)
            self._note_wait(part, now)
        elif not spools:
            held = part.begin_hold()
            if held.since == 0:
                held.since = now

    def _look_at_span(self, part: Part, now: int) -> None:
        """`part`, which has waited, was judged again."""
        spans = self.spans
        if spans is None:
            return
        if part.deadline != 0:
            spans.let_go(part, now)
        if part.passed > 0 and part.find_paged_at() != 0:
            spans.let_go_spooled(part, now)

    def _end_hold(self, part: Part, now: int) -> None:
        """`part`, which has waited, passes."""
        self._note_wait(part, now)
        part.begin_hold().paged_at = 0

    def _note_wait(self, part: Part, now: int) -> None:
        """Count how long a limit held `part`, if one did, which is over."""
        held = part.held
        key = part.key
        if held is not None and held.since != 0 and key is not None:
            self.accounts.waits.note(key, now - held.since, part.count * part.messages, now)
            held.since = 0

    def _count_expired(self, part: Part) -> None:
        disk = self.conversation.context.disk
        if disk is not None:
            disk.expired += part.count * part.messages

    def _note_refused(self, key: Key, rule: Rule | None, messages: int, now: int) -> None:
        """Note that `messages` of `key` were refused or dropped, for whoever looks at the connection."""
        self.refused_at, self.refused_key, self.refused_rule = now, key, rule
        if self.refusals is None:
            self.refusals = RecentRefusals(now)
        self.refusals.add(messages, now)

    def _count_shadow_and_bypass(self, part: Part) -> None:
        if part.columns is not None:  # nothing in shadow mode goes in columns
            for of_key in part.columns.sums:
                self.accounts.tally_of(of_key.key).bypassed += of_key.count
            return
        key = part.key
        assert key is not None
        tally = self.accounts.tally_of(key)
        if part.bypassed:
            tally.bypassed += part.count * part.messages
        tally.shadow_refused += part.shadow_refused * part.messages


def passing_keys(parts: list[Part]) -> set[Key | None]:
    """The keys of which something passes."""
    found: set[Key | None] = set()
    for part in parts:
        if part.passed > 0:
            found.add(part.key)
            if part.columns is not None:
                found.update(of_key.key for of_key in part.columns.sums if of_key.refused < of_key.count)
    return found
