"""Drives a conversation without sockets or a loop, as the handlers and the session do: decode, judge, settle, forward."""

from __future__ import annotations

from gateway.actions import ACTIONS
from gateway.conversation import Circumstances, Conversation
from gateway.messages import NEVER, REQUEST, Part
from limiter.judge import Judge
from limiter.rule import Rule
from limiter.rules import RuleSet

START_NS = 1_000_000_000_000


def judge(*rules: Rule) -> Judge:
    return Judge(RuleSet(rules), 1000)


def circumstances(the_judge: Judge, *, max_frame: int = 16 << 20, hold_bytes: int = 1 << 20) -> Circumstances:
    return Circumstances(the_judge, "listener", "10.0.0.1", 50000, max_frame, hold_bytes)


class Drive:
    """One conversation with a judge. `to_broker` and `to_client` gather what was sent; time stands still but for `pass_time`."""

    def __init__(self, conversation: Conversation, the_judge: Judge, *, room: int = 512) -> None:
        self.conversation = conversation
        self.judge = the_judge
        self.room = room
        self.now = START_NS
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self.rest = b""
        self.offered: list[tuple[str, int]] = []  # (key, bytes) of every request decoded, in order
        self.abandoned = 0

    def client(self, data: bytes) -> None:
        """The client sends `data`."""
        self.rest += data
        while self.rest and len(self.rest) >= self.conversation.need:
            parts: list[Part] = []
            before = len(self.rest)
            position = self.conversation.decode(self.rest, 0, self.room, parts)
            self.rest = self.rest[position:]
            for part in parts:
                if part.kind == REQUEST:
                    assert part.key is not None
                    self.offered.extend([(part.key.text, part.size)] * part.count)
            self._settle(parts)
            if len(self.rest) == before:
                assert self.conversation.need > before or not self.rest
                break

    def broker(self, data: bytes) -> None:
        """The broker sends `data`."""
        out: list[bytes] = []
        self.conversation.relay(data, out)
        self.to_client += b"".join(out)
        self._flush()

    def pass_time(self, duration_ns: int) -> None:
        """Let time pass, and what is held be judged when it is due."""
        until = self.now + duration_ns
        while self.conversation.next_due <= until:
            self.now = max(self.now, self.conversation.next_due)
            parts = self.conversation.take_due(self.now, 256)
            assert parts, "due, but nothing to judge"
            self._settle(parts)
        self.now = until

    def judge_parts(self, parts: list[Part]) -> None:
        requests = [part for part in parts if part.kind == REQUEST and not part.paid]
        if requests:
            self.judge.decide(list(requests), self.now)

    def settle_judged(self, parts: list[Part]) -> None:
        for part in parts:
            if part.kind != REQUEST or part.paid or part.passed >= part.count:
                self.conversation.admit(part)
                continue
            if part.passed > 0:
                self.conversation.admit(self.conversation.split(part, part.passed))
            assert part.rule is not None
            ACTIONS[part.rule.action](self.conversation, part, self.now)
        self._flush()

    def _settle(self, parts: list[Part]) -> None:
        self.judge_parts(parts)
        self.settle_judged(parts)

    def _flush(self) -> None:
        conversation = self.conversation
        for part in conversation.onward:
            self.to_broker += part.data[part.start : part.end]
        conversation.onward = []
        self.abandoned += sum(part.count for part in conversation.abandoned)
        conversation.abandoned = []
        self.to_client += conversation.take_replies()
        assert (conversation.held_messages == 0) or conversation.holds_close()
        if conversation.held_messages == 0 and not conversation.holds_close():
            assert conversation.held_bytes == 0
            assert conversation.next_due == NEVER

    def take_client(self) -> bytes:
        """What has gone to the client since the last call."""
        data = bytes(self.to_client)
        self.to_client.clear()
        return data

    def take_broker(self) -> bytes:
        """What has gone to the broker since the last call."""
        data = bytes(self.to_broker)
        self.to_broker.clear()
        return data
