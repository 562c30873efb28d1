"""How a session is put together. The file to read first.

::

      client                                                                                       broker
        │ bytes                                                                                       ▲ bytes
        ▼                                                                                             │
     Channel ──► Decode ────────► SpendCredit ─────► RateLimit ────────► Wait ────────► Forward ──► Channel
                 bytes→parts,      one credit per     asks the judge,     what is        original bytes,
                 by the protocol   message; with      on a thread of      refused gets   one slice where they
                 (Conversation)    none left the      the executor, or    its action     are contiguous
                                   client is not      on the loop's       (ACTIONS);
                                   read               while trusted       Lines hold it
        ▲                                                                   │ refusal, phrased by the protocol
        │                                                                   ▼
     Channel ◄──────────────────────────── Conversation.relay / take_replies ◄────────────────────── Channel
                                            whole frames; confirms' tags rewritten where a publish was refused;
                                            limited deliveries cut out, judged and given back (LimitDeliveries)

What all sessions share stands in `Shared`: the judge, the accounts, the configuration's numbers. What one listener's sessions share stands
in `ListenerConfig`. What belongs to one client stands in `Session`: its two channels and what is assembled here. That is one conversation
(the protocol's state), one pipeline, two credits, and one LimitDeliveries for the way back. The event loop gives each session its turns
(`gateway/event_loop/sweeper.py`). A session's states are in `gateway/session/states.py`, its end is in `gateway/session/ending.py`.

To add a broker protocol: `gateway/protocols/__init__.py` (RECORDS), `limiter/protocols.py` (PROTOCOL_NAMES) and
`config/listener_protocols.py` (LISTENER_PROTOCOLS). An action: `gateway/pipeline/actions/table.py` (ACTIONS), and its record
in `limiter/rules/actions.py`. An algorithm: `limiter/algorithms/__init__.py`, in OF_RATES, OF_REQUESTS_IN_FLIGHT or OF_BACKLOGS, of which
ALGORITHMS is made. An admin endpoint: `admin/endpoints/__init__.py` (ROUTES). `CONTRIBUTING.md` has the complete lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pipeline.context import NO_CODES, ConversationContext
from gateway.pipeline.deliveries import LimitDeliveries
from gateway.pipeline.handlers.decode import Decode
from gateway.pipeline.handlers.forward import Forward
from gateway.pipeline.handlers.rate_limit import RateLimit
from gateway.pipeline.handlers.spend_credit import SpendCredit
from gateway.pipeline.message_spans import MessageSpans
from gateway.pipeline.pipeline import Pipeline
from gateway.protocols import PROTOCOLS
from gateway.session.session import Session, Stages
from gateway.transport.channel import Channel
from gateway.waiting.stage import Wait
from limiter.credit import Credit

if TYPE_CHECKING:
    from gateway.admission import ConnectionPermit
    from gateway.session.listener_config import ListenerConfig
    from gateway.session.shared import Shared


def assemble(
    number: int,
    client: Channel,
    address: tuple[str, int],
    upstream: Channel,
    config: ListenerConfig,
    shared: Shared,
    permit: ConnectionPermit | None = None,
    *,
    broker_greeted: bool = False,
) -> Session:
    """A session, with its pipeline decode → credit → rate-limit → wait → forward, for one client at `address` and its broker connection."""
    context = ConversationContext(
        shared.judge, config.name, address[0], address[1], config.max_frame, shared.hold_bytes, number, permit, config.others_pass,
        client.certificate_user, upstream.lends_certificate, config.sends_proxy, config.routes,
        NO_CODES if config.remote_admin is None else config.remote_admin.codes, broker_greeted, shared.disk,
        config.broker_id, mixes_requests=True,
    )  # fmt: skip
    conversation = PROTOCOLS[config.protocol].conversation(context)
    reader = Credit(shared.credit_initial, shared.credit_more_after)  # messages the reader may pass on to the limiter
    # Messages the limiter may pass on to the forwarder. While none are left, the reader gets no new credit either.
    forwarder = Credit(shared.credit_initial, shared.credit_more_after, reader)
    decode = Decode(conversation, reader, shared.accounts, forwarder)
    forward = Forward(conversation, upstream, forwarder, shared.accounts)
    spans = None if shared.spans is None else MessageSpans(shared.spans, conversation)
    wait = Wait(conversation, reader, forwarder, shared.accounts, spans)
    deliveries = LimitDeliveries(conversation, shared.accounts, shared.hold_bytes)
    pipeline = Pipeline([decode, SpendCredit(reader), RateLimit(conversation), wait, forward])
    stages = Stages(conversation, decode, wait, forward, pipeline, deliveries, spans)
    return Session(number, client, upstream, config, shared, stages, permit)
