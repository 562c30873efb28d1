"""A protocol, as the gateway sees it from outside: one record, which says all that the other rooms must know of it.

Whatever depends on what a listener speaks asks its record, `PROTOCOLS[listener.protocol]`: how to recognise the protocol, how to reject
a client in it, what it can be measured by. A comparison with a protocol's name elsewhere would be a place that the author of the next
protocol has to find.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.conversation import Conversation
from gateway.protocols.question import Question
from limiter.protocols import ProtocolNames

BLOCKED: Final = "blocked"  # the broker has said that it takes no more publishes for now (`Reports.broker_blocked`)
SLOW_CONFIRMS: Final = "slow_confirms"  # it confirms publishes much more slowly than in the long run

NO_BACKLOGS: Final = 0  # nothing is known of consumers: `algorithm: lag` has nothing to follow
BACKLOGS_OF_QUEUES: Final = 1  # asked per virtual host, with the listener's own_login (`gateway/broker_load/amqp.py`)
BACKLOGS_OF_GROUPS: Final = 2  # asked of the broker as it is (`gateway/broker_load/rocketmq.py`)


class Rejection(typing.Protocol):
    """A client being told why it cannot connect, without a broker. `over`: nothing more will be said or understood."""

    over: bool

    def receive(self, data: bytes) -> bytes:
        """What to answer to `data`."""
        ...


@dataclass(frozen=True, slots=True)
class Opening:
    """How a connection begins: its first `size` bytes, and the check of them (they may be fewer where the client has finished).

    `check(head, max_frame, others_pass)` raises ProtocolError, named after what is spoken instead.
    """

    size: int
    check: Callable[[bytes, int, bool], None]
    header: bytes = b""  # what every client begins with, where the broker answers that at once, and clients send no more until it has


@dataclass(frozen=True, slots=True)
class Protocol:
    """One protocol. Each stands in `gateway/protocols/<package>/__init__.py` and is named in `gateway.protocols.RECORDS`."""

    name: str  # `protocol` of a listener, in its configuration and wherever operators see it
    names: ProtocolNames  # what rules, quotas and the API call its topics; a name server's: those of its brokers' protocol
    conversation: Callable[[ConversationContext], Conversation]  # the subclass of Conversation
    opening: Opening
    close_causes: Mapping[str, str] = field(default_factory=dict)  # those that not every protocol has, with their meanings
    # Of a code, a text, and whether the broker is away; None: it has no words, clients see the close.
    rejection: Callable[[int, str, bool], Rejection] | None = None
    adapt_reasons: tuple[str, ...] = ()  # what the broker shows of its load that tightens a cap with `adapt`
    busy_reasons: tuple[str, ...] = ()  # labels of sluice_broker_busy_total; () where brokers do not say that they are busy
    confirms: bool = False  # publishes are confirmed: their latency is measured
    backlogs: int = NO_BACKLOGS  # how the broker is asked for what waits for consumers
    retry_prefix: str = ""  # how topics for a consumer group's retries begin; the group's name follows
    messaging_system: str = ""  # of its spans: messaging.system of OpenTelemetry's semantic conventions; "": the protocol's name
    send_operation: str = "send"  # likewise: messaging.operation.name of what is limited
    question: Question | None = None  # what its brokers are asked to see that they live; None: that they take connections suffices
    brokers_speak: str = ""  # for a name server: the protocol of the listeners opened for its brokers
