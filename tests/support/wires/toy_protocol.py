"""A third protocol, as small as one can be that has everything: lines, matched by a number, answered in any order.

    client: PUB 7 orders 5\\n, then 5 bytes     broker: OK 7\\n           gateway, over a limit: BUSY 7 250\\n (milliseconds)
            PING\\n                                      PONG\\n

It stands for the protocol somebody else will write (`docs/writing-a-protocol.md`): the contract suites run over it as over the product's
own, once its record is in PROTOCOLS. Parts keep their order on the connection: while one is held, those behind it wait. What it needs for
that, and for everything else that can be done with what waits, is `ToyLines`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.conversation import REFUSED, Conversation
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.protocols.protocol import Opening, Protocol
from gateway.waiting.line import Line
from gateway.waiting.lines import Lines
from limiter.keys import Key, Origin
from limiter.protocols import ProtocolNames, TopicPart
from limiter.topics import TopicName

MAX_LINE_BYTES: Final = 200
OVERHEAD: Final = 400  # bytes of memory beside a held part's own; a guess
PUBLISH: Final = re.compile(rb"PUB (\d{1,9}) ([!-~]{1,100}) (\d{1,9})")
PING: Final = b"PING"


def publish(number: int, topic: str, body: bytes = b"") -> bytes:
    return b"PUB %d %b %d\n%b" % (number, topic.encode(), len(body), body)


def opening(head: bytes, max_frame: int, others_pass: bool) -> None:
    if not (b"PUB ".startswith(head) or PING.startswith(head)):
        raise ProtocolError(f"the connection began with {head!r}", cause="wrong_protocol")


class ToyLines(Lines):
    """The one line of a connection."""

    def __init__(self, conversation: ToyConversation) -> None:
        super().__init__(conversation.context, conversation.budget, conversation.reports, OVERHEAD)
        self.toy = conversation

    def line_for(self, part: Part) -> Line | None:
        return None if self.reports.close_reason else super().line_for(part)

    def pass_on(self, part: Part) -> None:
        self.toy.send(part)

    def describe(self, line: Line) -> str:
        return "the connection"

    def key_of(self, line: Line, data: bytes) -> Key | None:
        found = PUBLISH.match(data)
        return None if found is None else self.toy.key(found[2])


class ToyConversation(Conversation):
    """One client and its broker."""

    def __init__(self, context: ConversationContext) -> None:
        super().__init__(context)
        self.origin: Origin | None = None
        self.lines = ToyLines(self)
        self.knows_answers = True
        self.replies: list[bytes] = []
        self.at_boundary = True  # of the broker's stream
        self.unanswered = 0

    # ---- client to broker ------------------------------------------------------------------------------------------

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        requests = 0
        while requests < room and start < len(data):
            line_end = data.find(b"\n", start, start + MAX_LINE_BYTES)
            if line_end < 0:
                if len(data) - start >= MAX_LINE_BYTES:
                    raise ProtocolError(f"a line of more than {MAX_LINE_BYTES} bytes", cause="frame_too_large")
                self.need = len(data) - start + 1
                return start
            line = data[start:line_end]
            found = PUBLISH.fullmatch(line)
            if found is None and line != PING:
                raise ProtocolError(f"no request begins with {line[:20]!r}")
            stop = line_end + 1 + (0 if found is None else int(found[3]))
            if stop - start > self.context.max_frame:
                raise ProtocolError(f"a request of {stop - start} bytes", cause="frame_too_large")
            if stop > len(data):
                self.need = stop - start
                return start
            if found is None:
                parts.append(Part(PLAIN, 0, data, start, stop))
            else:
                parts.append(Part(REQUEST, 0, data, start, stop, self.key(found[2]), 1, 1, int(found[3])))
                requests += 1
            self.handshake_done = True
            start = stop
        self.need = 1
        return start

    def key(self, topic: bytes) -> Key:
        context = self.context
        if self.origin is None:
            self.origin = context.judge.origin(TOY.name, context.listener, context.client, None, connection=context.connection)
        key = self.origin.keys.get(topic)
        return key or context.judge.key(self.origin, topic, TopicName(TOY.name, b"", b"", topic))

    def admit(self, part: Part) -> None:
        self.lines.admit(part)

    def send(self, part: Part) -> None:
        part.release_slots(self.reports.endings)  # a slot for as long as the request is unanswered would be a protocol's next step
        self.lines.end_wait(part)
        if not self.reports.close_reason:
            self.unanswered += 1
            self.outbox.append(part)
        elif part.kind == REQUEST:
            self.reports.give_up(part)

    def split(self, part: Part, count: int) -> Part:
        raise AssertionError("each request is a part of its own")

    def refuse(self, part: Part) -> int:
        self.replies.append(b"BUSY %b %d\n" % (number_of(part), part.wait_ns // 1_000_000))
        self.budget.reply_bytes += len(self.replies[-1])
        self.lines.let_go(part)
        return REFUSED

    def close(self, part: Part) -> int:
        self.reports.close_reason = self.reports.close_reason or "over the limit"
        self.lines.let_go(part)
        return REFUSED

    def drop(self, part: Part) -> bool:
        self.lines.let_go(part)
        return True

    # ---- broker to client ------------------------------------------------------------------------------------------

    def relay(self, data: bytes, out: list[bytes]) -> None:
        out.append(data)
        self.unanswered -= data.count(b"\n")
        self.at_boundary = data.endswith(b"\n")

    def take_replies(self) -> bytes:
        if not self.at_boundary:
            return b""
        taken = b"".join(self.replies)
        self.replies = []
        self.budget.reply_bytes = 0
        return taken

    # ---- the rest --------------------------------------------------------------------------------------------------

    def settled(self) -> bool:
        return self.unanswered <= 0

    def renew_keys(self) -> None:
        if self.origin is not None:
            self.origin = self.context.judge.own(self.origin, self.context.connection)

    def end(self) -> None:
        if self.origin is not None:
            self.context.judge.release(self.origin)
            self.origin = None

    def describe(self) -> dict[str, Any]:
        return {"held": self.budget.held_messages, "unanswered": self.unanswered}

    def __repr__(self) -> str:
        return f"<ToyConversation {self.budget}>"


def number_of(part: Part) -> bytes:
    """The number by which the answer is matched with the request."""
    return part.data[part.start : part.end].split(b" ", 2)[1]


TOY: Final = Protocol(
    name="toy",
    names=ProtocolNames("toy", "Toy", (TopicPart("topic", "topic"),), ("orders",), ("topic",)),
    conversation=ToyConversation,
    opening=Opening(4, opening),
    close_causes={"frame_too_large": "A request too long.", "wrong_protocol": "Something else was spoken."},
)
PUBLISHES: Final = 18  # in the script
SCRIPT: Final = [  # who speaks, and what
    ("client", b"PING\n"),
    ("broker", b"PONG\n"),
    ("client", b"".join(publish(number, f"topic-{number % 3}", b"x" * (number % 4)) for number in range(9))),
    ("broker", b"".join(b"OK %d\n" % number for number in range(9))),
    ("client", b"".join(publish(number, f"topic-{number % 3}", b"\n" * (number % 4)) for number in range(9, 18)) + b"PING\n"),
    ("broker", b"".join(b"OK %d\n" % number for number in range(17, 8, -1)) + b"PONG\n"),
]
