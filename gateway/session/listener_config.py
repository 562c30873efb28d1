"""What a session knows of its listener: name, protocol, numbers of the configuration, and the counters all its sessions add to.

The listener itself (`gateway/listeners/listener.py`) is trio's side, which sessions know nothing of.
"""

from __future__ import annotations

from typing import Final

from common.views.listeners import JudgingView
from gateway.pipeline.routes import Routes
from gateway.protocols.rocketmq.limit_requests import Permission
from gateway.session.broker_flow import BrokerFlow

DEFAULT_FRAME_NS: Final = 30_000_000_000  # frame_timeout


class JudgingCounts:
    """How a listener's batches were judged since the start. A batch is one session's requests of one sweep."""

    def __init__(self) -> None:
        self.queued = 0  # batches judged on a thread of the limiter
        self.inline = 0  # batches judged on the event loop
        self.bypassed = 0  # batches of which something passed without a verdict
        self.bypassed_messages = 0

    def describe(self) -> JudgingView:
        return JudgingView(
            queued=self.queued,
            inline=self.inline,
            bypassed=self.bypassed,
            bypassed_messages=self.bypassed_messages,
        )

    def __repr__(self) -> str:
        return f"<JudgingCounts queued={self.queued} inline={self.inline} bypassed={self.bypassed}>"


class ListenerConfig:
    """One listener's. `flow` and `judging` count what its sessions see."""

    def __init__(
        self,
        name: str,
        protocol: str,
        max_frame: int,
        handshake_ns: int,
        idle_ns: int = 0,
        others_pass: bool = False,  # noqa: FBT001, FBT002  -- as the others: a record of numbers
        sends_proxy: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        self.name = name
        self.protocol = protocol
        self.max_frame = max_frame  # bytes
        self.handshake_ns = handshake_ns  # a client must have begun by then (`Conversation.handshake_done`)
        self.idle_ns = idle_ns  # a connection is closed after so long without a byte from either side; 0: never
        self.frame_ns = DEFAULT_FRAME_NS  # within which a frame that a client has begun must come, or go on at a least rate
        self.others_pass = others_pass  # other versions of the protocol pass opaquely
        self.sends_proxy = sends_proxy  # a PROXY header goes to the broker before anything else
        self.routes: Routes | None = None  # of a name server's listener; set once there are ports for its brokers
        self.broker_id = 0  # of the one RocketMQ broker behind it; 0 is a master, or a listener that does not know
        self.remote_admin: Permission | None = None  # who may view and change limits by RocketMQ requests; None: the broker answers those
        self.flow = BrokerFlow()  # the broker's own flow control, as its connections see it
        self.judging = JudgingCounts()
        self.delivery_bytes = 0  # that wait for this listener's clients, when memory was last summed up
        self.deliveries_full = False  # more than `memory.delivery_watermark`: brokers of clients that do not read are not read
