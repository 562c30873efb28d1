"""A question that any broker of a protocol answers, whoever asks: how readiness learns that a broker lives, and `sluice init` what it is.

That a broker takes a TCP connection says little: the kernel does that for a process that hangs. An answer in the protocol is what a client
would get. Each protocol has its question in `gateway/protocols/<package>/question.py`. Sans-IO: bytes to send, bytes that have come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_ANSWER_BYTES: Final = 64 << 10  # read of an answer; RabbitMQ's connection.start has 500 bytes, a name server's route some kilobytes


class WrongAnswerError(ValueError):
    """What has come is no answer of this protocol. The text ends the sentence "it ...". `misheard`: it seems that the peer got something
    before the question that it did not expect.
    """

    def __init__(self, text: str, *, misheard: bool = False) -> None:
        super().__init__(text)
        self.misheard = misheard


@dataclass(frozen=True, slots=True)
class Question:
    """`send` goes out on a new connection. `answered(data)` says whether `data` is the whole answer; raises WrongAnswerError."""

    name: str  # what is asked, for messages: "AMQP's header"
    send: bytes
    answered: Callable[[bytes], bool]


def began_with(data: bytes, spoken: str) -> WrongAnswerError:
    return WrongAnswerError(f"does not speak {spoken} (it began with {data[:8]!r})")
