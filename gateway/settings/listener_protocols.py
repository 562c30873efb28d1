"""What a listener may speak, and which of its settings its protocol has a use for.

One record per word that `protocol:` takes. The checks and lints of a listener ask these instead of asking for names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from limiter.protocols import AMQP, ROCKETMQ, ProtocolNames


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


LISTENER_PROTOCOLS: Final[dict[str, ListenerProtocol]] = {
    each.name: each
    for each in (
        ListenerProtocol(AMQP.name, AMQP, authenticates_users=True, versions=True, permissive_tls=False, limit_requests=False),
        ListenerProtocol(ROCKETMQ.name, ROCKETMQ),
        ListenerProtocol(ROCKETMQ.name_server, ROCKETMQ, opens_listeners=True),
    )
}
OPENING: Final = " or ".join(each.name for each in LISTENER_PROTOCOLS.values() if each.opens_listeners)
