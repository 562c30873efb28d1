"""What operators see of one session: its state, what holds it up, and its line in `GET /v1/connections`.

Reads only. The bottleneck is found from the states of the session's stages as `docs/design/limiter.md` 6 says. A stage waits for credit
because the one behind it is slow: reader in flow and limiter not, the limiter is; both in flow, the broker is.
"""

from __future__ import annotations

from typing import Any, Final

from common.views.connections import ConnectionView, CreditView, HeldView, SpoolStageView, StageView
from gateway.session.deadlines import unread_ns
from gateway.session.session import Session
from gateway.session.states import DRAINING
from limiter.credit import Credit

UNREAD_NS: Final = 1_000_000_000  # a client that takes nothing for so long is what holds its connection up (a guess)
REFUSED_NS: Final = 10_000_000_000  # ns; how long a refusal is shown: as long as rates are means over


def bottleneck(session: Session, now: int) -> str:
    """What keeps this connection from being faster.

    "broker_blocked" (the broker has said so), "spool" (it is full, or slower than the client), "limit" (something is held by a rule:
    `held_by`), "client" (it does not read), "broker" (it takes its time), "memory" (the gateway as a whole holds too much, and this client
    publishes), "limit" again (something was refused within the last REFUSED_NS: `refused_by`), "limiter" (the judge takes its time), or
    "none". Credit shows for a second after it was used up.
    """
    if session.reports.broker_blocked:
        return "broker_blocked"
    if session.disk_full():
        return "spool"
    if session.disk_waits_for_broker():
        return "broker"
    if session.budget.waiting():
        return "limit"
    if session.client.backlog > session.shared.backlog_bytes or unread_ns(session, now) > UNREAD_NS:
        return "client"
    if session.upstream.backlog > 0 or session.forward.credit.flow(now):
        return "broker"
    if session.budget.held_back:
        return "memory"
    if _has_refusal(session, now):
        return "limit"
    return "limiter" if session.decode.credit.flow(now) else "none"


def state(session: Session, now: int) -> str:
    """ "draining", "client_gone" (it has closed, or is gone, and what it had sent goes on), "blocked" (by the broker), "throttled"
    (something is held), "flow" (not read now or a moment ago) or "running"."""
    if session.state >= DRAINING or session.graceful_close is not None:
        return "draining"
    if session.gone_at:
        return "client_gone"
    if session.reports.broker_blocked:
        return "blocked"
    if session.budget.waiting():
        return "throttled"
    return "flow" if session.withheld() or session.decode.credit.flow(now) else "running"


def describe(session: Session, now: int) -> ConnectionView:
    """One item of `GET /v1/connections`."""
    conversation = session.conversation
    return ConnectionView(
        id=session.number,
        listener=session.listener_config.name,
        protocol=session.listener_config.protocol,
        client=f"{conversation.context.client}:{conversation.context.client_port}",
        user=conversation.user,
        state=state(session, now),
        bottleneck=bottleneck(session, now),
        held_by=_find_holding_rule(session),
        refused_by=_find_refusing_rule(session, now),
        credit=CreditView(
            reader=_stage(session.decode.credit, now), limiter=_stage(session.forward.credit, now), spool=_spool_stage(session)
        ),
        client_gone_seconds=_seconds(now - session.gone_at) if session.gone_at else 0.0,
        age_seconds=_seconds(now - session.opened_at),
        bytes_from_client=session.client.received,
        bytes_to_client=session.client.sent,
        backlog_to_client=session.client.backlog,
        upstream=session.upstream.heard.address or None,
        unread_seconds=_seconds(unread_ns(session, now)),
        backlog_to_broker=session.upstream.backlog,
        held_messages=session.budget.held_messages,
        held_bytes=session.budget.held_bytes,
        spooled_bytes=session.budget.paged_bytes,
        held_deliveries=session.budget.parked_messages,
        held_delivery_bytes=session.budget.parked_bytes,
        messages_forwarded=session.forward.messages,
        **_refusals(session, now),
        broker_blocked=session.reports.broker_blocked,
        broker_blocked_seconds=_seconds(session.flow.broker_blocked_ns(now)),
        send_blocked_seconds=_seconds(session.upstream.send_blocked_ns(now)),
        tls=session.client.encryption(),
        upstream_tls=session.upstream.encryption(),
        **conversation.describe(),
    )


def _find_holding_rule(session: Session) -> HeldView | None:
    """The rule that holds something of this connection, and of which topic; one of them where there are more."""
    part = session.conversation.lines.first_waiting()
    if part is None or part.rule is None or part.key is None:
        return None
    return HeldView(rule=part.rule.name, topic=part.key.text, operation=part.key.operation)


def _has_refusal(session: Session, now: int) -> bool:
    """Whether a message of this client was refused or dropped within the last REFUSED_NS."""
    at = session.wait.refused_at
    return at > 0 and now - at < REFUSED_NS


def _find_refusing_rule(session: Session, now: int) -> HeldView | None:
    """The rule that refused or dropped something of this client last, within REFUSED_NS, and of which topic."""
    rule, key = session.wait.refused_rule, session.wait.refused_key
    if rule is None or key is None or not _has_refusal(session, now):
        return None
    return HeldView(rule=rule.name, topic=key.text, operation=key.operation)


def _refusals(session: Session, now: int) -> dict[str, Any]:
    """Messages of this client refused or dropped since it connected, and per second: a mean over REFUSED_NS."""
    refusals = session.wait.refusals
    if refusals is None:
        return {"messages_refused": 0, "refused_per_second": 0.0}
    return {"messages_refused": refusals.total, "refused_per_second": round(refusals.per_second(now), 3)}


def _stage(credit: Credit, now: int) -> StageView:
    """A stage of the connection: whether it waits for credit from the next one or did within the last second, and for how long in all."""
    return StageView(flow=credit.flow(now), credit=credit.credit, blocked_seconds=_seconds(credit.blocked_ns(now)))


def _spool_stage(session: Session) -> SpoolStageView | None:
    """Where the spool keeps what waits of this connection; None: nothing does.

    `stage`: "memory" (a burst short enough), "disk" (some of it is there, or on its way), "full" (the client is not read: there is no room,
    or the disk is slower than the client). In memory is all that rules hold of the connection, as `held_bytes` says it.
    """
    budget = session.budget
    if budget.paged_queues == 0:
        part = session.conversation.lines.first_waiting()
        if part is None or part.held is None or not part.held.counted:
            return None
    stage = "disk" if budget.paged_bytes > 0 or budget.paging_bytes > 0 else "memory"
    if session.disk_full():
        stage = "full"
    return SpoolStageView(stage=stage, memory_bytes=budget.held_bytes, disk_bytes=budget.paged_bytes)


def _seconds(ns: int) -> float:
    return round(ns / 1e9, 3)
