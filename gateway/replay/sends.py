"""A RocketMQ client of the gateway's own, which sends one request after the other and waits for the answer to each.

Its socket is one end of a socket pair; the listener has the other, as that of any client. One at a time, because a broker handles the
requests of a connection on several threads, and would swap them. What a limit holds back is answered later; the session knows that this
client waits (`Conversation.be_patient`).

A broker that hangs takes connections, since its machine does that for it, and answers nothing. So there is a deadline for each answer,
which runs while the broker has the request, not while a limit or an operator keeps it here. The naive way then sends the message again,
on another connection, every few seconds: all of these the broker finds, and stores, once it goes on. So a connection begins with a
heartbeat, as that of any client, and nothing is sent before that is answered: of a broker that hangs one message comes twice.

What a broker refuses it may refuse for now, or for good, and its code does not always say which: NO_PERMISSION is what it answers to a
signature it does not know, and what it answers while it is read-only. Set aside at once, a minute's trouble would put all
that waits into a file; tried for ever, one message would stop all behind it. So such a code has `Patience`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from gateway.protocols.octets import u16, u32
from gateway.protocols.rocketmq.headers import JSON, RESPONSE
from gateway.protocols.rocketmq.outstanding import STORED, binary_remark
from gateway.protocols.rocketmq.refusals import VERSION
from gateway.replay.frame_stream import FrameStream, ReplayError

if TYPE_CHECKING:
    from gateway.protocols.rocketmq.sends_again import SendAgain

LENGTH_BYTES: Final = 4
FLOW_CONTROL: Final = 215  # a rule of this gateway refuses it, or the broker
LATER: Final = (2, 14, 1500)  # SYSTEM_BUSY, SERVICE_NOT_AVAILABLE, GO_AWAY: the broker takes nothing just now, whatever it is
# SYSTEM_ERROR, NO_PERMISSION (also of a broker that is read-only just now), NO_BUYER_ID, NOT_IN_CURRENT_UNIT: Java's producers try again
# after these, as after TOPIC_NOT_EXIST, which here stands for a topic that is gone (DefaultMQProducer.retryResponseCodes).
PERHAPS_LATER: Final = (1, 16, 204, 205)
TRIES: Final = 40  # of a message that is refused so: some nine minutes, by the pauses between two tries (`replayer.py`; a guess)
FEW_TRIES: Final = 3  # of one that is refused so after another has been set aside for it (a guess)
WAIT: Final = re.compile(r"need wait:([0-9]+)microsecs")
MAX_WAIT_S: Final = 1.0  # seconds; until a send that was refused is tried again, so that a raised limit holds soon (a guess)
ANSWER_S: Final = 10.0  # seconds; no answer comes later: clients give up after 3 s, a broker waits 5 s for its disk (syncFlushTimeout)
LOOK_S: Final = 0.5  # seconds; between two looks whether the broker has the request
HEART_BEAT: Final = 34  # a request's code
NOBODY: Final = b'{"clientID":"sluice replay","consumerDataSet":[],"producerDataSet":[]}'
SILENT: Final = (
    f"the broker has taken a connection and has not answered for {ANSWER_S:g} s: see whether it hangs; "
    "it is asked again all the time, and gets no message before it answers"
)


class Patience:
    """How often a stream is tried again after answers that may pass. Counts tries, not time: a broker that is away has not refused.

    Once a message was set aside for a code, the next is tried once, if that code came at once again: then it is about all of them. If
    something was stored in between, it is about single messages, and each has a few tries.
    """

    def __init__(self) -> None:
        self.tries: dict[int, int] = {}  # by code: since something was stored, or set aside for it
        self.most: dict[int, int] = {}  # where it is not TRIES

    def lasts(self, code: int) -> bool:
        """A message was refused so: whether it is to be tried again."""
        tries = self.tries[code] = self.tries.get(code, 0) + 1
        if tries < self.most.get(code, TRIES):
            return True
        self.tries[code] = 0
        self.most[code] = 1
        return False

    def stored(self) -> None:
        """The broker has taken a message."""
        self.tries.clear()
        self.most = dict.fromkeys(self.most, FEW_TRIES)

    def __repr__(self) -> str:
        return f"<Patience tries={self.tries}>"


class SendSession:
    """One connection. `answered`: whether the broker has answered all that it was sent, so what has no answer is kept by the gateway.

    `patience` is the stream's, and outlives the connection.
    """

    def __init__(self, stream: trio.SocketStream, answered: Callable[[], bool], patience: Patience) -> None:
        self.stream = stream
        self.patience = patience
        self.opaque = 0
        self._answered = answered
        self._frames = FrameStream(stream, LENGTH_BYTES, size_of)

    async def begin(self) -> None:
        """See whether the broker answers at all, whatever it says: one with ACL takes no unsigned request. Raises ReplayError."""
        self.opaque += 1
        await self._ask(heartbeat(self.opaque))

    async def send(self, message: SendAgain) -> str:
        """Send it until it is stored or refused for good: "", or why the broker does not take it. Raises ReplayError."""
        while True:
            self.opaque += 1
            try:
                frame = message.frame(self.opaque)
            except (ValueError, LookupError, TypeError, RecursionError) as error:  # whoever wrote it, nobody else could read it either
                return f"it cannot be read: {error}"
            code, remark = await self._ask(frame)
            if code in STORED:
                self.patience.stored()
                return ""
            if code in LATER or (code in PERHAPS_LATER and self.patience.lasts(code)):
                raise ReplayError(f"{code} {remark}", code)
            if code != FLOW_CONTROL:
                return f"{code} {remark}"
            said = WAIT.search(remark)
            await trio.sleep(MAX_WAIT_S if said is None else min(int(said[1]) / 1e6, MAX_WAIT_S))

    async def _ask(self, frame: bytes) -> tuple[int, str]:
        """The code and the remark of the answer to `frame`, which has the last opaque. Raises ReplayError."""
        await self.stream.send_all(frame)
        since = -1.0  # when the broker was first seen to have it; below 0: it has not
        while True:
            with trio.move_on_after(LOOK_S):
                return await self._answer(self.opaque)
            now = trio.current_time()
            if self._answered():  # a limit, or an operator, keeps it here
                since = -1.0
            elif since < 0:
                since = now
            elif now - since >= ANSWER_S:
                raise ReplayError(SILENT)

    async def _answer(self, opaque: int) -> tuple[int, str]:
        """The code and the remark of the answer to that request."""
        while True:
            frame = await self._frames.next()
            word = int(u32(frame, 4))
            end = 8 + (word & 0xFFFFFF)
            if word >> 24 == JSON:
                try:
                    head = json.loads(frame[8:end])
                    found = int(head["code"]), int(head["opaque"]), int(head.get("flag") or 0), str(head.get("remark") or "")
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise ReplayError(f"the broker's answer is not understood: {error}") from error
            else:
                at = int.from_bytes(frame[13:17], "big", signed=True)
                found = int(u16(frame, 8)), at, int(u32(frame, 17)), binary_remark(frame, 8, end)
            if found[1] == opaque and found[2] & RESPONSE:
                return found[0], found[3]

    def __repr__(self) -> str:
        return f"<SendSession sent={self.opaque}>"


def size_of(head: bytes) -> int:
    """Bytes of the frame that begins so."""
    return LENGTH_BYTES + int.from_bytes(head, "big")


def heartbeat(opaque: int) -> bytes:
    """The frame of a heartbeat, of a client that neither produces nor consumes."""
    said = {"code": HEART_BEAT, "flag": 0, "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": VERSION}
    header = json.dumps(said, separators=(",", ":")).encode()
    return (4 + len(header) + len(NOBODY)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + NOBODY
