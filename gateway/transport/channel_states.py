"""The states of a channel, one for each direction, in the manner of h11's `_state.py`.

A socket has six ends that matter: the peer's FIN, our FIN, a failure of either direction, and either of these announced but not there yet.
A flag for each allows 64 combinations, most of which cannot be. The two directions end independently, so there are two states.

`read_state`::

    READ_OPEN ──the peer's FIN is read──► READ_EOF
        └─────────reading fails─────────► READ_FAILED

`write_state`::

    WRITE_OPEN ──the owner wants no more sent──► FIN_PENDING ──backlog is empty──► FIN_SENT
        │ └───────────────the owner ends it at once, the backlog being empty─────────▲ │
        └──────────────────────────┬────────────────────────────────────────────────────┘
                                   └──sending fails (from any of these)──► WRITE_FAILED

A socket on which reading fails is of no more use: nothing can be sent there either. The reverse does not hold: where sending fails, what
the peer had sent before may still be read.

What the kernel has announced and no call has shown yet is no state, only a hint for the next call: `readable`, `writable` and
`hangup_pending`. Whether the descriptor is closed is `closed`; the states stay as they were then.
"""

from __future__ import annotations

from typing import Final

READ_OPEN: Final = 0
READ_EOF: Final = 1  # the peer's FIN was read
READ_FAILED: Final = 2  # nothing more will come; `read_error` says why

WRITE_OPEN: Final = 0
FIN_PENDING: Final = 1  # nothing more is to be sent: FIN once the backlog is empty
FIN_SENT: Final = 2
WRITE_FAILED: Final = 3  # nothing more can be sent; `write_error` says why

READ_STEPS: Final = {
    READ_OPEN: {READ_EOF, READ_FAILED},
    READ_EOF: set[int](),
    READ_FAILED: set[int](),
}
WRITE_STEPS: Final = {
    WRITE_OPEN: {FIN_PENDING, FIN_SENT, WRITE_FAILED},
    FIN_PENDING: {FIN_SENT, WRITE_FAILED},
    FIN_SENT: {WRITE_FAILED},
    WRITE_FAILED: set[int](),
}
LEGAL: Final = {
    (READ_OPEN, WRITE_OPEN),
    (READ_OPEN, FIN_PENDING),
    (READ_OPEN, FIN_SENT),
    (READ_OPEN, WRITE_FAILED),
    (READ_EOF, WRITE_OPEN),
    (READ_EOF, FIN_PENDING),
    (READ_EOF, FIN_SENT),
    (READ_EOF, WRITE_FAILED),
    (READ_FAILED, WRITE_FAILED),
}
