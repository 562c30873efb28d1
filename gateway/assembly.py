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
                                            whole frames; confirms' tags rewritten where a publish was refused;
                                            limited deliveries cut out, judged and given back (LimitDeliveries)

What all sessions share stands in `Shared`: the judge, the accounts, the configuration's numbers. What belongs to one client stands in
`Session`: two channels and what is assembled here, one conversation (the protocol's state), one pipeline, two credits.

To add a broker protocol: `gateway/protocols/__init__.py` (PROTOCOLS). An action: `gateway/pipeline/actions/__init__.py` (ACTIONS).
An algorithm: `limiter/algorithms/__init__.py` (ALGORITHMS). An admin endpoint: `admin/endpoints/__init__.py` (ROUTES).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.counting.accounts import Accounts
from gateway.pipeline.conversation import Conversation, ConversationContext, Routes
from gateway.pipeline.deliveries import LimitDeliveries
from gateway.pipeline.handlers.decode import Decode
from gateway.pipeline.handlers.forward import Forward
from gateway.pipeline.handlers.rate_limit import RateLimit
from gateway.pipeline.handlers.spend_credit import SpendCredit
from gateway.pipeline.pipeline import Pipeline
from gateway.protocols import PROTOCOLS
from gateway.protocols.rocketmq.limit_requests import Permission
from gateway.session.broker_flow import BrokerFlow
from gateway.transport.channel import Channel
from limiter.credit import Credit
from limiter.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.admission import Seat
    from gateway.pipeline.parts import Part


class Shared:
    """What all sessions of a gateway share. Bytes and nanoseconds."""

    def __init__(
        self, judge: Judge, accounts: Accounts, credit_initial: int, credit_more_after: int, hold_bytes: int, backlog_bytes: int
    ) -> None:
        self.judge = judge
        self.accounts = accounts
        self.credit_initial = credit_initial
        self.credit_more_after = credit_more_after
        self.hold_bytes = hold_bytes  # held parts per connection (memory.per_connection)
        self.backlog_bytes = backlog_bytes  # above this the other side is not read
        self.take_gateway_request: Callable[[object, Part], None] | None = (
            None  # gets the session whose client asks something of the gateway itself, and what
        )
        self.memory_full = False  # the gateway as a whole is above memory.high_watermark: who holds something is not read


class Judged:
    """How a listener's batches came to their verdicts, since the start: batches (one session's requests of one sweep) and messages."""

    def __init__(self) -> None:
        self.queued = 0  # batches judged on a thread of the limiter's
        self.inline = 0  # on the event loop
        self.bypassed = 0  # of which something passed without a verdict
        self.bypassed_messages = 0

    def describe(self) -> dict[str, object]:
        return {
            "queued": self.queued,
            "inline": self.inline,
            "bypassed": self.bypassed,
            "bypassed_messages": self.bypassed_messages,
        }

    def __repr__(self) -> str:
        return f"<Judged queued={self.queued} inline={self.inline} bypassed={self.bypassed}>"


class Place:
    """Where a session begins: the listener's name, protocol and numbers."""

    def __init__(
        self,
        listener: str,
        protocol: str,
        max_frame: int,
        handshake_ns: int,
        idle_ns: int = 0,
        others_pass: bool = False,  # noqa: FBT001, FBT002  -- as the others: a record of numbers
        sends_proxy: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        self.listener = listener
        self.protocol = protocol
        self.max_frame = max_frame  # bytes
        self.handshake_ns = handshake_ns  # a client must have begun by then (`Conversation.handshake_done`)
        self.idle_ns = idle_ns  # a connection on which nothing comes from either side for so long is closed; 0: never
        self.others_pass = others_pass  # other versions of the protocol pass opaquely
        self.sends_proxy = sends_proxy  # a PROXY header goes to the broker before anything else
        self.routes: Routes | None = None  # of a name server's listener: put here once there are ports for its brokers
        self.remote_admin: Permission | None = None  # who may view and change limits by RocketMQ requests; None: the broker answers those
        self.flow = BrokerFlow()  # what its connections see of the broker's own flow control
        self.judged = Judged()


class Assembly:
    """One session's way from its client to its broker."""

    def __init__(
        self, conversation: Conversation, decode: Decode, forward: Forward, pipeline: Pipeline, deliveries: LimitDeliveries
    ) -> None:
        self.conversation = conversation
        self.decode = decode
        self.forward = forward
        self.pipeline = pipeline
        self.deliveries = deliveries


def assemble(
    shared: Shared,
    place: Place,
    connection: int,
    client: str,
    client_port: int,
    upstream: Channel,
    seat: Seat | None = None,
    user: str | None = None,
) -> Assembly:
    """The pipeline decode → credit → rate-limit → forward for one client (number, address, the user of its certificate) and its broker."""
    context = ConversationContext(
        shared.judge, place.listener, client, client_port, place.max_frame, shared.hold_bytes, connection, seat, place.others_pass, user,
        upstream.lends_certificate, place.sends_proxy, place.routes,
        frozenset() if place.remote_admin is None else place.remote_admin.codes,
    )  # fmt: skip
    conversation = PROTOCOLS[place.protocol](context)
    reader = Credit(shared.credit_initial, shared.credit_more_after)  # the reader's towards the limiter
    forwarder = Credit(shared.credit_initial, shared.credit_more_after, reader)  # the limiter's; while it is empty, reader's grants wait
    decode = Decode(conversation, reader, shared.accounts)
    forward = Forward(conversation, upstream, forwarder, shared.accounts)
    limit = RateLimit(conversation, reader, forwarder, shared.accounts)
    deliveries = LimitDeliveries(conversation, shared.accounts, shared.hold_bytes)
    return Assembly(conversation, decode, forward, Pipeline([decode, SpendCredit(reader), limit, forward]), deliveries)
