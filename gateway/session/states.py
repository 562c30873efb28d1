"""The states of a session, in the manner of h11's `_state.py`: which there are, and what leads from one to the next.

::

    OPEN ───────begin_drain──────► DRAINING
      │ │                           │    │
      │ └──FIN, but not the end─────┼─┐  │
      │                             ▼ ▼  │
      │                        HALF_CLOSED
      │                             │    │
      └──────────last bytes────────►▼◄───┘
                                 CLOSING ───both sides have ended──► OVER

    and from any state to OVER: both sides have ended, a deadline, a fault

A drain takes nothing new from the client, and ends when nothing is in flight. Then a protocol with close frames sends these as the last
bytes: CLOSING. A protocol without one makes a graceful close (`graceful_close.py`): the client gets its FIN, and what it still sends goes
on to the broker, until its own FIN: HALF_CLOSED. So is a client that broke the protocol while messages of its own wait. Whatever ends a
session from without, such as a lost broker, leads from any state to CLOSING.

The states are in an order, and code asks for `state >= CLOSING`. The two ends of the connection have states of their own
(`gateway/transport/channel_states.py`). Those depend on the session's, because it is the session that passes one side's end on to the
other. The tables below name the combinations that occur whenever a session has settled; `tests/gateway/session/test_states.py` walks
sessions along them.
"""

from __future__ import annotations

from typing import Final

from gateway.transport.channel_states import (
    FIN_PENDING,
    FIN_SENT,
    LEGAL,
    READ_EOF,
    READ_FAILED,
    READ_OPEN,
    WRITE_FAILED,
    WRITE_OPEN,
)

OPEN: Final = 0
HALF_CLOSED: Final = 1  # the client has its FIN; it is read on, and what it had sent goes on
DRAINING: Final = 2  # nothing new is taken from the client; what is in flight goes its way
CLOSING: Final = 3  # the last bytes are queued to either side; nothing follows them, and both are read until they end
OVER: Final = 4  # the loop takes it out

STEPS: Final = {
    OPEN: {HALF_CLOSED, DRAINING, CLOSING, OVER},
    HALF_CLOSED: {CLOSING, OVER},
    DRAINING: {HALF_CLOSED, CLOSING, OVER},
    CLOSING: {OVER},
    OVER: set[int](),
}

# What is below CLOSING serves the broker, which has neither failed nor finished. The client may have finished, or be gone: what it had
# sent goes on (`ending.py`).
GONE_CLIENT: Final = {(READ_OPEN, WRITE_FAILED), (READ_EOF, WRITE_FAILED), (READ_FAILED, WRITE_FAILED)}
SERVED_CLIENT: Final = {(READ_OPEN, WRITE_OPEN), (READ_EOF, WRITE_OPEN)} | GONE_CLIENT
SERVED_BROKER: Final = {(READ_OPEN, WRITE_OPEN), (READ_OPEN, FIN_SENT), (READ_OPEN, WRITE_FAILED)}

# (read_state, write_state) of either channel, by the session's state.
CLIENT_LEGAL: Final = {
    OPEN: SERVED_CLIENT,
    HALF_CLOSED: {(READ_OPEN, FIN_PENDING), (READ_OPEN, FIN_SENT), (READ_EOF, FIN_PENDING), (READ_EOF, FIN_SENT)} | GONE_CLIENT,
    DRAINING: SERVED_CLIENT,
    CLOSING: LEGAL,
    OVER: LEGAL,
}
BROKER_LEGAL: Final = {
    OPEN: SERVED_BROKER,
    HALF_CLOSED: SERVED_BROKER,
    DRAINING: SERVED_BROKER,
    CLOSING: LEGAL,
    OVER: LEGAL,
}
