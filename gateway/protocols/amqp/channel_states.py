"""The states of an AMQP channel, in the manner of h11's `_state.py`: which there are, and what leads from one to the next.

A channel is looked at in three places, and these do not stand at the same message: where the client's bytes are decoded, where decoded
parts are settled (a batch later, or much later when they are held), and where the broker's bytes are relayed. So a channel has three
states, one for each place. A single one, or a flag for each event, would mix what happens at different times.

`client_state`, as decoded::

    CLIENT_CLOSED ──channel.open──► CLIENT_OPEN ──somebody else closes it──► CLIENT_IGNORED
          ▲                              │                                          │
          └─────────channel.close────────┴───────────────close-ok───────────────────┘

`settled_state`, for the parts that are settled::

    PASSING ──broker closes it──► CLOSED_BY_BROKER ──parts were held──► CLOSED_WHILE_HELD
       │
       └──gateway closes it──► CLOSED_BY_GATEWAY ──broker closes it, or the connection──► CLOSED_BY_BOTH

    and from any of them back to PASSING, when the client's close-ok or its next channel.open is settled

`gateway_close`, the gateway's own channel.close, as relayed::

    NO_CLOSE ──broker is told──► CLOSE_WAITS ──client is told──► CLOSE_SENT ──broker's close-ok──► NO_CLOSE
                                                     (or has been told by the broker's own close)

The meaning of each state is beside its constant; the sequence on the wire is in `channel_close.py`.
"""

from __future__ import annotations

from typing import Final

CLIENT_CLOSED: Final = 0  # methods pass unjudged; the broker answers what is wrong with them
CLIENT_OPEN: Final = 1
CLIENT_IGNORED: Final = 2  # the side that closed the channel ignores the client until close-ok: what it still sends is no request

PASSING: Final = 0  # parts go on to the broker
CLOSED_BY_BROKER: Final = 1  # parts go on, and the broker throws them away
CLOSED_WHILE_HELD: Final = 2  # held parts were given up: of what follows only channel.close and close-ok go on
CLOSED_BY_GATEWAY: Final = 3  # nothing goes on
CLOSED_BY_BOTH: Final = 4  # nothing goes on; the broker has closed the channel, too

NO_CLOSE: Final = 0
CLOSE_WAITS: Final = 1  # the broker has been told; the client is told at the next boundary, behind the delivery under way
CLOSE_SENT: Final = 2  # frames the broker still sends there are not for the client

OF_CLIENT: Final = b"c"  # a basic.recover, whose answer is for the client
WITHOUT_ANSWER: Final = b"a"  # its basic.recover-async, said to the broker as basic.recover
OF_GATEWAY: Final = b"g"  # for a client that leaves

# The tables: what leads from each state, and which states a channel has at the same time, outside a batch, while client and broker keep to
# the specification. Nothing reads them at run time; `tests/gateway/protocols/amqp/test_channel_states.py` walks conversations along them.

CLIENT_STEPS: Final = {
    CLIENT_CLOSED: {CLIENT_OPEN},
    CLIENT_OPEN: {CLIENT_CLOSED, CLIENT_IGNORED},
    CLIENT_IGNORED: {CLIENT_CLOSED},
}
SETTLED_STEPS: Final = {
    PASSING: {CLOSED_BY_BROKER, CLOSED_BY_GATEWAY},
    CLOSED_BY_BROKER: {PASSING, CLOSED_WHILE_HELD},
    CLOSED_WHILE_HELD: {PASSING},
    CLOSED_BY_GATEWAY: {PASSING, CLOSED_BY_BOTH},
    CLOSED_BY_BOTH: {PASSING},
}
GATEWAY_CLOSE_STEPS: Final = {
    NO_CLOSE: {CLOSE_WAITS},
    CLOSE_WAITS: {CLOSE_SENT},
    CLOSE_SENT: {NO_CLOSE},
}
LEGAL: Final = {
    # nobody but the client has closed it, or its close-ok is settled
    (CLIENT_CLOSED, PASSING, NO_CLOSE),
    (CLIENT_OPEN, PASSING, NO_CLOSE),
    # the broker has closed it; where the client had closed it, too, its close-ok is to come
    (CLIENT_CLOSED, CLOSED_BY_BROKER, NO_CLOSE),
    (CLIENT_CLOSED, CLOSED_WHILE_HELD, NO_CLOSE),
    (CLIENT_IGNORED, CLOSED_BY_BROKER, NO_CLOSE),
    (CLIENT_IGNORED, CLOSED_WHILE_HELD, NO_CLOSE),
    # the gateway has closed it; the broker may answer before the client
    (CLIENT_CLOSED, CLOSED_BY_GATEWAY, CLOSE_WAITS),
    (CLIENT_CLOSED, CLOSED_BY_GATEWAY, CLOSE_SENT),
    (CLIENT_CLOSED, CLOSED_BY_GATEWAY, NO_CLOSE),
    (CLIENT_IGNORED, CLOSED_BY_GATEWAY, CLOSE_WAITS),
    (CLIENT_IGNORED, CLOSED_BY_GATEWAY, CLOSE_SENT),
    (CLIENT_IGNORED, CLOSED_BY_GATEWAY, NO_CLOSE),
    # the client has answered that, the broker has not: the client's next channel.open is held
    (CLIENT_CLOSED, PASSING, CLOSE_SENT),
    (CLIENT_OPEN, PASSING, CLOSE_SENT),
    # the same, and the broker has closed the connection
    (CLIENT_CLOSED, CLOSED_BY_BROKER, CLOSE_SENT),
    (CLIENT_IGNORED, CLOSED_WHILE_HELD, CLOSE_SENT),
    (CLIENT_CLOSED, CLOSED_BY_BOTH, CLOSE_SENT),
    (CLIENT_CLOSED, CLOSED_BY_BOTH, NO_CLOSE),
    (CLIENT_IGNORED, CLOSED_BY_BOTH, CLOSE_SENT),
    (CLIENT_IGNORED, CLOSED_BY_BOTH, NO_CLOSE),
}
