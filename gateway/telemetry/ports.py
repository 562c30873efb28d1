"""A running gateway, as status and metrics see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gateway.ports import RunningGateway

if TYPE_CHECKING:
    from gateway.telemetry.client_ranking import ClientRanking
    from gateway.telemetry.limit_events import LimitEvents
    from gateway.telemetry.refused_clients import RefusedClients
    from gateway.telemetry.span_export import SpanExport
    from gateway.telemetry.topic_limits import TopicLimits


class ObservedGateway(RunningGateway, Protocol):
    """A running gateway, and what is learnt of its topics and clients."""

    client_ranking: ClientRanking
    limit_events: LimitEvents
    refused_clients: RefusedClients
    span_export: SpanExport | None
    topic_limits: TopicLimits
