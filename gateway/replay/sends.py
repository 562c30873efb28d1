"""A RocketMQ client of the gateway's own, which sends one request after the other and waits for the answer to each.

Its socket is one end of a socket pair; the listener has the other, as that of any client. One at a time, because a broker handles the
requests of a connection on several threads, and would swap them. What a limit holds back is answered later; the session knows that this
client waits (`Conversation.be_patient`).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import trio

from gateway.protocols.octets import u16, u32
from gateway.protocols.rocketmq.headers import JSON, RESPONSE
from gateway.protocols.rocketmq.outstanding import STORED, binary_remark
from gateway.replay.session import ReplayError

if TYPE_CHECKING:
    from gateway.protocols.rocketmq.sends_again import SendAgain

READ_BYTES: Final = 65_536
FLOW_CONTROL: Final = 215  # a rule of this gateway refuses it, or the broker
LATER: Final = (2, 14)  # SYSTEM_BUSY, SERVICE_NOT_AVAILABLE: the broker takes nothing just now
WAIT: Final = re.compile(r"need wait:([0-9]+)microsecs")
MAX_WAIT_S: Final = 1.0  # seconds; until a send that was refused is tried again, so that a raised limit holds soon (a guess)


class SendSession:
    """One connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.opaque = 0
        self._data = bytearray()

    async def send(self, message: SendAgain) -> str:
        """Send it until it is stored or refused for good: "", or why the broker does not take it. Raises ReplayError."""
        while True:
            self.opaque += 1
            try:
                frame = message.frame(self.opaque)
            except (ValueError, LookupError, TypeError, RecursionError) as error:  # whoever wrote it, nobody else could read it either
                return f"it cannot be read: {error}"
            await self.stream.send_all(frame)
            code, remark = await self._answer(self.opaque)
            if code in STORED:
                return ""
            if code in LATER:
                raise ReplayError(f"{code} {remark}", code)
            if code != FLOW_CONTROL:
                return f"{code} {remark}"
            said = WAIT.search(remark)
            await trio.sleep(MAX_WAIT_S if said is None else min(int(said[1]) / 1e6, MAX_WAIT_S))

    async def _answer(self, opaque: int) -> tuple[int, str]:
        """The code and the remark of the answer to that request."""
        while True:
            frame = await self._frame()
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

    async def _frame(self) -> bytes:
        data = self._data
        while True:
            if len(data) >= 4:
                whole = 4 + int.from_bytes(data[:4], "big")
                if len(data) >= whole:
                    one = bytes(data[:whole])
                    del data[:whole]
                    return one
            try:
                more = await self.stream.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ReplayError(f"the connection has ended: {error}") from error
            if not more:
                raise ReplayError("the connection has ended")
            data += more

    def __repr__(self) -> str:
        return f"<SendSession sent={self.opaque}>"
