"""Schedules: a pretend client, a pretend broker, a conversation between them, and a judge of moods.

A **schedule** is one connection's life: some dozen random acts of the client, the broker, the judge and the network, then everything that
is under way is let come to its end. The truth is kept by identity, not by count: each publish carries in its body who it is, the broker
writes down what it said about whom before it says it, and the client compares.

Raises AssertionError where a promise is broken; ProtocolError would be a fault too, because nobody here breaks the protocol.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.conversation import LATER, REFUSED, UNABLE
from gateway.pipeline.parts import EXPIRED, POSTPONED, REQUEST
from gateway.protocols import PROTOCOLS
from limiter.judge import Judge
from limiter.limits import NEVER
from limiter.rules.rule_set import RuleSet
from support.amqp import frames as amqp
from support.amqp.pretend_broker import PretendBroker
from support.amqp.pretend_client import PretendClient
from support.wires.conversations import rule

if TYPE_CHECKING:
    from gateway.pipeline.parts import Part

RULE = rule()
JUDGE = Judge(RuleSet(()))
GREETING = amqp.greeting(frame_max=8192)
OPENING = amqp.broker_opens()


class Schedule:
    """One connection. `run` plays `acts` acts on `channels` channels and brings everything to its end.

    With `long_lived` no channel is closed, and one publish at least is always outstanding: a hundred refusals are passed, and remembered.
    """

    def __init__(self, random: Random, channels: int, acts: int, *, long_lived: bool = False) -> None:
        self.random = random
        self.acts = acts
        self.conversation = PROTOCOLS["amqp"].conversation(ConversationContext(JUDGE, "here", "10.0.0.7", 4, 1 << 20, 1 << 20))
        self.now = 1_000
        self.kindness = random.choice((0.2, 0.5, 0.8))  # how often the judge lets pass
        self.careless = random.random() < 0.3  # bytes are cut anywhere rather than sent as written
        self.broker = PretendBroker(random)
        self.broker.unconfirmed = int(long_lived)
        self.client = PretendClient(random, channels, self.broker.truth, long_lived=long_lived)
        self.to_decode = b""  # what the gateway has read of the client and not decoded
        self.batch: list[Part] = []  # decoded, with the judge

    # ---- the network -----------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Returns the number of publishes."""
        self._decode(GREETING)
        self._relay(OPENING)
        random = self.random.random
        for _ in range(self.acts):
            act = random()
            if act < 0.45:
                self.client.act()
                if random() < 0.5:
                    continue
                self._carry_up()
            elif act < 0.65:
                self.broker.act()
                if random() < 0.5:
                    continue
                self._carry_down()
            elif act < 0.8:
                self._carry_up()
            elif act < 0.9:
                self._carry_down()
            else:
                self.now += 3
                self._take_due()
        self._finish()
        return self.client.publishes

    def _piece(self, queue: deque[bytes]) -> bytes:
        """Some of what was written: frame by frame, or cut anywhere."""
        if not queue:
            return b""
        if not self.careless:
            pieces = [queue.popleft() for _ in range(min(len(queue), 1 + int(self.random.random() * 12)))]
            return b"".join(pieces)
        data = queue.popleft()
        if queue and self.random.random() < 0.5:
            data += queue.popleft()
        size = 1 + int(self.random.random() * len(data))
        if size < len(data):
            queue.appendleft(data[size:])
        return data[:size]

    def _carry_up(self) -> None:
        if self.batch:
            self._settle()
        else:
            self._decode(self._piece(self.client.out))

    def _decode(self, data: bytes) -> None:
        conversation = self.conversation
        self.to_decode += data
        if not self.to_decode or len(self.to_decode) < conversation.need:
            return
        room = 1 + int(self.random.random() * 8)
        position = conversation.decode(self.to_decode, 0, room, self.batch)
        self.to_decode = self.to_decode[position:]
        self._look(self.batch)
        if self.random.random() < 0.8:
            self._settle()

    def _look(self, batch: list[Part]) -> None:
        """`batch` was decoded, and will go to the judge."""

    def _carry_down(self) -> None:
        data = self._piece(self.broker.out)
        if data:
            self._relay(data)

    def _relay(self, data: bytes) -> None:
        out: list[bytes] = []
        self.conversation.relay(data, out)
        self._flush(b"".join(out))

    def _flush(self, said: bytes = b"") -> None:
        conversation = self.conversation
        said += conversation.take_replies()
        if said:
            self.client.read(said)
        if conversation.outbox:
            data = b"".join([part.data[part.start : part.end] for part in conversation.outbox])
            conversation.outbox = []
            self.broker.read(data.removeprefix(amqp.PROTOCOL_HEADER))
        conversation.reports.abandoned = []

    # ---- the judge -------------------------------------------------------------------------------------------------

    def _take_due(self) -> None:
        if not self.batch and self.conversation.budget.next_due <= self.now:
            self.batch = self.conversation.lines.take_due(self.now, 1 + int(self.random.random() * 8))
            self._settle()

    def _settle(self) -> None:
        """Random verdicts, settled as `gateway.pipeline.handlers.rate_limit` and the actions do."""
        conversation = self.conversation
        random = self.random.random
        batch = self.batch
        self.batch = []
        for part in batch:
            if part.kind != REQUEST or part.paid:
                conversation.admit(part)
                continue
            if part.unjudged == POSTPONED:
                part.unjudged = 0
                part.deadline = NEVER
                if not conversation.lines.postpone(part, self.now):
                    conversation.admit(part)
                continue
            if part.unjudged == EXPIRED:
                part.unjudged = 0
                self._give_up(part)
                continue
            part.passed = part.count if random() < self.kindness else int(random() * int(part.count))
            if part.passed >= part.count:
                conversation.admit(part)
                continue
            if part.passed:
                passed = part.passed
                head = conversation.split(part, passed)
                head.passed = passed
                part.passed = 0
                conversation.admit(head)
            part.rule = RULE
            part.wait_ns = 5
            self._refuse(part, random())
        self._flush()

    def _refuse(self, part: Part, whim: float) -> None:
        conversation = self.conversation
        due = self.now + 1 + int(whim * 10)
        if whim < 0.3 and conversation.lines.hold(part, due):
            return
        count = part.count
        outcome = conversation.refuse(part)
        if outcome == REFUSED:
            self.client.sides[part.ordering_key].refused += count
        elif outcome in (UNABLE, LATER):
            if whim < 0.4 and conversation.drop(part):
                self.client.sides[part.ordering_key].dropped += count
                return
            assert conversation.lines.hold(part, due), "neither refused nor held"

    def _give_up(self, part: Part) -> bool:
        """As `gateway.pipeline.actions.spool.expire` does; False: it waits on."""
        conversation = self.conversation
        side = self.client.sides[part.ordering_key]
        count = part.count
        outcome = conversation.refuse(part)
        if outcome == REFUSED:
            side.refused += count
        elif outcome == UNABLE and conversation.drop(part):
            side.dropped += count
        elif outcome in (UNABLE, LATER):
            assert conversation.lines.hold(part, self.now + 5), "neither refused nor held"
            return False
        return True

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Everything under way arrives, everything the broker has is confirmed: nobody may be left waiting."""
        self.careless = False
        self.broker.unconfirmed = 0
        conversation = self.conversation
        for rounds in range(10_000):
            while self.client.out or self.batch or len(self.to_decode) >= conversation.need:
                self._carry_up()
            while self.broker.out:
                self._carry_down()
            if rounds == 20:
                self.kindness = 1.0
            self.now += 5
            self._take_due()
            for number, side in self.broker.sides.items():
                if side.outstanding and side.state == "open":
                    self.broker.confirm(number, side, single=self.random.random() < 0.3)
            if self.broker.out or self.client.out or self.batch or conversation.budget.next_due < NEVER:
                continue
            if not any(side.outstanding for side in self.broker.sides.values()):
                break
        self._check_end()

    def _check_end(self) -> None:
        conversation = self.conversation
        assert self.to_decode == self.broker.rest == self.client.rest == b"", "something stays within a frame"
        assert (conversation.budget.held_bytes, conversation.budget.held_messages, conversation.budget.reply_bytes) == (0, 0, 0), (
            "something is held for ever"
        )
        assert (conversation.budget.next_due, conversation.budget.frame_left) == (NEVER, 0)
        client = self.client
        assert not client.refused & self.broker.truth.keys(), "refused, and forwarded all the same"
        assert client.lone <= self.broker.lone, "a multiple with nothing else outstanding below it"
        for number, side in client.sides.items():
            assert side.missing == -1
            if side.state == "open":
                assert side.outstanding == {}, f"channel {number}: never confirmed: {list(side.outstanding)}"
                assert side.nacked == side.refused, f"channel {number}: {side.refused} refused, {side.nacked} nacked"
                lost = side.said - self.broker.sides[number].arrived - side.refused - side.dropped
                assert lost == 0, f"channel {number}: {lost} publishes or acks never arrived"
            else:
                assert side.state == "closed", f"channel {number}: the client waits for its close-ok for ever"
                assert number not in self.broker.sides, "closed for the client, open for the broker"
        assert conversation.settled()


def play(seed: int, channels: int, acts: int) -> int:
    """Play one schedule; the number of its publishes. A failing one is played again by the same three numbers."""
    return Schedule(Random(seed), channels, acts).run()
