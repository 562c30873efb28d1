"""Protocols: what a listener may speak. One package each; `tests/contracts/test_protocols.py` runs over every member.

To add one: write `gateway/protocols/<package>/` with a subclass of `gateway.pipeline.conversation.Conversation`, describe it by a
`Protocol` in the package's `__init__.py`, and name that here (`docs/writing-a-protocol.md`).
"""

from __future__ import annotations

from typing import Final

from gateway.protocols.amqp import AMQP
from gateway.protocols.nameserver import NAMESERVER
from gateway.protocols.protocol import Protocol
from gateway.protocols.rocketmq import ROCKETMQ

RECORDS: Final[tuple[Protocol, ...]] = (
    AMQP,
    ROCKETMQ,
    NAMESERVER,
)

PROTOCOLS: Final[dict[str, Protocol]] = {record.name: record for record in RECORDS}
