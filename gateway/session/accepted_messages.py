"""What became of messages that the gateway has answered for before the broker had them (`answer: accepted_by_gateway`).

Their clients have their answer and are not told, so the log and the metrics are.
"""

from __future__ import annotations

import logging

from gateway import log
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.reports import LateRefusal, Reports
from gateway.pipeline.spool_orders import SpoolControl


def note_accepted(reports: Reports, control: SpoolControl, number: int) -> None:
    """Count what the conversation of connection `number` reports, and log what the broker has refused."""
    control.accepted += reports.accepted
    reports.accepted = 0
    control.accepted_lost += reports.dropped_accepted
    reports.dropped_accepted = 0
    control.accepted_given_up += reports.ordered_accepted
    reports.ordered_accepted = 0
    if not reports.late_refusals:
        return
    alike: dict[tuple[str, int], list[LateRefusal]] = {}  # a broker that refuses all would fill the log
    for refusal in reports.late_refusals:
        control.accepted_refused += refusal.messages
        alike.setdefault((refusal.key.text, refusal.code), []).append(refusal)
    for (topic, code), refusals in alike.items():
        log.event(
            logging.WARNING,
            "accepted_send_refused",
            conn=number,
            topic=topic,
            messages=sum([refusal.messages for refusal in refusals]),
            code=code,
            err=refusals[-1].remark,
            remedy="the client believes it stored: send it again",
        )
    reports.late_refusals = []


def note_lost(conversation: Conversation, control: SpoolControl, number: int) -> None:
    """Connection `number` is over, and nothing of it abandoned yet: count and log what its client believes to be safe."""
    note_accepted(conversation.reports, control, number)
    waiting, unanswered = conversation.lost_accepted()
    if waiting + unanswered == 0:
        return
    control.accepted_lost += waiting + unanswered
    log.event(logging.WARNING, "accepted_sends_lost", conn=number, messages=waiting, unanswered=unanswered)
