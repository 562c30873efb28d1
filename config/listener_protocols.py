"""What a listener may speak, and which of its settings its protocol has a use for.

One record per word that `protocol:` takes. The checks and lints of a listener ask these instead of asking for names.
"""

from __future__ import annotations

from typing import Final

from common.records import dataclass
from limiter.protocols import AMQP, ROCKETMQ, ProtocolNames

ROCKETMQ_IDLE_NS: Final = 300_000_000_000  # ten of a client's heartbeats, and more than twice what its broker waits for one


@dataclass(frozen=True, slots=True)
class ListenerProtocol:
    """What listeners of one protocol have and have not."""

    name: str
    names: ProtocolNames  # of the messages that come by it, or by the listeners that it opens
    opens_listeners: bool = False  # it limits nothing itself, but leads clients to a listener for each broker
    authenticates_users: bool = False  # on the connection, by SASL; elsewhere a user is what a request claims
    versions: bool = False  # clients of another version of the protocol may be passed through (`other_protocols`)
    permissive_tls: bool = True  # clients with TLS and without may share a port
    limit_requests: bool = True  # it has requests that view and change limits (`remote_admin`)
    # ns; default of `idle_timeout`, which no healthy client meets; 0: never. RocketMQ's clients send each broker a heartbeat every 30 s
    # (heartbeatBrokerInterval), ask the name server for routes as often (pollNameServerInterval), and both ends close what has been idle
    # for 2 min (serverChannelMaxIdleTimeSeconds, clientChannelMaxIdleTimeSeconds). AMQP clients without heartbeats may be silent for days.
    idle_timeout_ns: int = 0


LISTENER_PROTOCOLS: Final[dict[str, ListenerProtocol]] = {
    each.name: each
    for each in (
        ListenerProtocol(AMQP.name, AMQP, authenticates_users=True, versions=True, permissive_tls=False, limit_requests=False),
        ListenerProtocol(ROCKETMQ.name, ROCKETMQ, idle_timeout_ns=ROCKETMQ_IDLE_NS),
        ListenerProtocol(ROCKETMQ.name_server, ROCKETMQ, opens_listeners=True, idle_timeout_ns=ROCKETMQ_IDLE_NS),
    )
}
OPENING: Final = " or ".join(each.name for each in LISTENER_PROTOCOLS.values() if each.opens_listeners)
