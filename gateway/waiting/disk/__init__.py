"""The spool: messages that are over their limit wait on disk, in order, instead of in memory (`docs/spooling.md`)."""

from __future__ import annotations

from typing import Final

UNWRITABLE: Final = (  # said wherever the trouble of a write is: in the log, in warnings and on the command line
    "clients whose messages are to be spooled are not read; messages in the spool go on to the broker, and nothing is lost; "
    "free some space there, or let the gateway write there: it is tried again all the time"
)
