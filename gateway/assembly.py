"""How a session is put together. The page to read first.

::

      client                                                                                       broker
        │ bytes                                                                                       ▲ bytes
        ▼                                                                                             │
     Channel ──► Decode ────────► SpendCredit ─────► RateLimit ───────────────────────► Forward ──► Channel
                 bytes→parts,      one credit per     asks the judge, on the limiter's   original bytes,
                 by the protocol   request; none      own executor; what is refused      one slice where they
                 (Conversation)    left: not read     turns round here (ACTIONS)         are contiguous
        ▲                                                   │ refusal, phrased by the protocol
        │                                                   ▼
     Channel ◄──────────────────────────── Conversation.relay / take_replies ◄────────────────────── Channel
                                            whole frames; confirms' tags rewritten where a publish was refused

What is shared by all sessions stands in `Shared`: the judge and its executor, the accounts, the configuration's numbers. What belongs
to one client stands in `Session`: two channels, one conversation (the protocol's state), one pipeline, two credits.

To add a broker protocol: `gateway/protocols/__init__.py` (PROTOCOLS). An action: `gateway/actions/__init__.py` (ACTIONS).
An algorithm: `limiter/algorithms/__init__.py` (ALGORITHMS). An admin endpoint: `admin/endpoints/__init__.py` (ROUTES).
"""

from __future__ import annotations

import socket

from gateway.accounts import Accounts
from gateway.channel import Channel
from gateway.conversation import Circumstances
from gateway.handlers.decode import Decode
from gateway.handlers.forward import Forward
from gateway.handlers.rate_limit import RateLimit
from gateway.handlers.spend_credit import SpendCredit
from gateway.pipeline import Pipeline
from gateway.protocols import PROTOCOLS
from gateway.session import Session, SessionLimits
from limiter.credit import Credit
from limiter.judge import Judge


class Shared:
    """What all sessions of a gateway share."""

    def __init__(self, judge: Judge, accounts: Accounts, limits: SessionLimits, credit_initial: int, credit_more_after: int) -> None:
        self.judge = judge
        self.accounts = accounts
        self.limits = limits
        self.credit_initial = credit_initial
        self.credit_more_after = credit_more_after


def assemble(shared: Shared, number: int, protocol: str, listener: str, max_frame: int, client: socket.socket, upstream: socket.socket) -> Session:
    """Build the session of one accepted client and its own upstream connection; both sockets are connected."""
    address, port = client.getpeername()[:2]
    circumstances = Circumstances(shared.judge, listener, address, port, max_frame, shared.limits.hold_bytes)
    conversation = PROTOCOLS[protocol](circumstances)
    accounts = shared.accounts
    reader = Credit(shared.credit_initial, shared.credit_more_after)
    forwarder = Credit(shared.credit_initial, shared.credit_more_after)
    to_broker = Channel(upstream)
    decode = Decode(conversation, reader, accounts)
    forward = Forward(conversation, to_broker, forwarder, accounts)
    pipeline = Pipeline([decode, SpendCredit(reader), RateLimit(conversation, reader, forwarder, accounts), forward])
    return Session(number, listener, protocol, Channel(client), to_broker, conversation, pipeline, decode, forward, shared.limits, accounts)
