"""Why a broker cannot be reached: labels for metrics, words for people, and the errors that carry them."""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from gateway.listeners.tls_handshake import TlsHandshakeError

SHORTAGES: Final = {  # what no connection can be made for want of -> the way out
    errno.EMFILE: "raise the nofile limit of this process (ulimit -n)",
    errno.ENFILE: "the whole machine has no descriptor left: see which process has them, or raise fs.file-max",
    errno.ENOBUFS: "the kernel has no memory for a socket: see what fills the machine's or the control group's memory",
    errno.ENOMEM: "the kernel has no memory for a socket: see what fills the machine's or the control group's memory",
}
DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})  # the shortages of descriptors; the others are of memory
# Why a broker is down, for metrics; the texts are for people.
REFUSED: Final = "refused"  # nobody listens there
TIMEOUT: Final = "timeout"  # no connection in time
NO_ANSWER: Final = "no_answer"  # a connection, and no answer in time: the broker hangs
WRONG_ANSWER: Final = "wrong_answer"  # an answer, and not in the listener's protocol
CLOSED: Final = "closed"  # the connection was closed in place of an answer, or reset
NAME: Final = "name"  # the host's name does not resolve
TLS: Final = "tls"
OTHER: Final = "other"  # no route to the host, among others
HELD: Final = "held"  # it answers again, and another address is used until it has done so for a while (`hold_down.py`)
REASONS: Final = (REFUSED, TIMEOUT, NO_ANSWER, WRONG_ANSWER, CLOSED, NAME, TLS, OTHER, HELD)


class UnreachableError(Exception):
    """The broker cannot be reached. The text says why, for the client too."""


class SparedError(UnreachableError):
    """Nothing was dialled, because the broker is known to be down."""


class NoAnswerError(OSError):
    """The broker takes connections, and does not answer as it should. `label` is one of REASONS."""

    def __init__(self, label: str, text: str) -> None:
        super().__init__(errno.EPROTO, text)
        self.label = label


def reason(error: BaseException) -> str:
    """Why a dial failed, in the system's words: of the last attempt where several addresses were tried."""
    cause = _last_attempt(error)
    if isinstance(cause, ConnectionError | socket.gaierror) or errno_of(cause) in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        number = errno_of(cause)  # trio's text repeats the address
        return os.strerror(number) if number > 0 else str(cause.args[-1])
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def label(error: BaseException) -> str:
    """Why a dial or a probe failed, as one of REASONS."""
    cause = _last_attempt(error)
    if isinstance(cause, NoAnswerError):
        return cause.label
    if isinstance(cause, TlsHandshakeError):
        return TIMEOUT if cause.label == "timeout" else TLS
    if isinstance(cause, socket.gaierror | UnicodeError):
        return NAME
    if isinstance(cause, ConnectionRefusedError):
        return REFUSED
    if isinstance(cause, TimeoutError):
        return TIMEOUT
    return CLOSED if isinstance(cause, ConnectionError) else OTHER


def _last_attempt(error: BaseException) -> BaseException:
    """trio raises a bare OSError from the attempt that failed, or from a group of them."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return _last_attempt(cause.exceptions[-1])
    return _last_attempt(cause) if isinstance(cause, OSError) and errno_of(error) == 0 else error


def errno_of(error: BaseException) -> int:
    number = getattr(error, "errno", None)
    return number if isinstance(number, int) else 0
