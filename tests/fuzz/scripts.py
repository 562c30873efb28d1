"""What fuzz targets share: inputs read as scripts, streams cut in three ways, and how much a talk may keep."""

from __future__ import annotations

from gateway.protocols.rocketmq.conversation import RocketmqConversation
from support.wires.conversations import Talk, bytewise, randomly

LARGEST_HELD = 1 << 20  # bytes; Talk's budget
AMPLIFIED = 100  # held memory above this many times the input is a security bug (Envoy's rule; `docs/design/reliability.md` 4)


class Script:
    """Reads an input as a script: each choice takes a byte, 0 when there are no more."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]


def check_memory(talk: Talk, size: int) -> None:
    conversation = talk.conversation
    held = conversation.budget.held_bytes + conversation.budget.reply_bytes
    assert held <= LARGEST_HELD + AMPLIFIED * (size + 1000), f"{held} bytes held for {size} bytes said"
    conversation.abandon()
    replies = (
        conversation.broker_stream.reply_bytes if isinstance(conversation, RocketmqConversation) else 0
    )  # for the end of a broker's frame
    assert (conversation.budget.held_bytes, conversation.budget.held_messages) == (replies, 0)
    conversation.ended()


def cut(data: bytes, how: int) -> list[bytes]:
    return [data] if how == 0 else bytewise(data) if how == 1 else randomly(data, how)
