"""A client's groups, and how it leaves them when it is gone while its one-way sends still wait here.

Brokers know the members of a group by their connections, and this client's stays until all it has sent is forwarded. So the broker is told
UNREGISTER_CLIENT in its name, once per group: as when the connection ends, the others of the group get its queues at once, and no
transaction is asked of it any more. The groups are those of the client's last heartbeat, of which only the bytes are kept until then.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import msgspec

HEART_BEAT: Final = 34
UNREGISTER_CLIENT: Final = 35
LOCK_BATCH_MQ: Final = 41  # keeps queues for a minute
ONE_WAY: Final = 2  # bit of the flag
MAX_HEARTBEAT_BYTES: Final = 65_536  # of a body that is kept; a client of some hundred groups has a tenth of it (a guess)

Group: Final[Any] = msgspec.defstruct("Group", [("groupName", str, "")], gc=False)
Heartbeat: Final[Any] = msgspec.defstruct(
    "Heartbeat", [("clientID", str, ""), ("consumerDataSet", list[Group], []), ("producerDataSet", list[Group], [])], gc=False
)
decode_heartbeat: Final = msgspec.json.Decoder(Heartbeat).decode


def leave_groups(heartbeat: bytes, language: str, version: int) -> bytes:
    """The requests that take the client of `heartbeat` (a body) out of its groups; b"" where it is in none, or cannot be read."""
    try:
        found = decode_heartbeat(heartbeat)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b""
    consumers = [group.groupName for group in found.consumerDataSet]
    producers = [group.groupName for group in found.producerDataSet]
    frames: list[bytes] = []
    for consumer, producer in itertools.zip_longest(consumers, producers):
        fields: dict[str, str] = {"clientID": found.clientID}
        if consumer:
            fields["consumerGroup"] = consumer
        if producer:
            fields["producerGroup"] = producer
        header = msgspec.json.encode(
            {
                "code": UNREGISTER_CLIENT,
                "extFields": fields,
                "flag": ONE_WAY,
                "language": language or "JAVA",
                "opaque": 0,
                "serializeTypeCurrentRPC": "JSON",
                "version": max(version, 0),
            }
        )
        size: int = len(header)
        frames.append((size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + header)
    return b"".join(frames)
