"""RateLimit: what is asked of the judge."""

from __future__ import annotations

from gateway.pipeline.parts import BODY, EXPIRED, PLAIN, POSTPONED, Part
from gateway.pipeline.pipeline import Batch
from support.wires.recorded import NOW, Desk


def test_only_requests_without_a_verdict_are_judged_and_what_needs_none_goes_on_at_once() -> None:
    desk = Desk()
    paid, asked, plain, body = desk.part(), desk.part(), Part(PLAIN, 1, b"", 0, 0), Part(BODY, 1, b"", 0, 0)
    paid.paid = True
    batch = Batch(None, b"", NOW)
    batch.parts = [plain, paid, asked, body]
    assert not desk.limit.carry(batch)
    assert batch.requests == [asked]
    assert desk.conversation.said == []
    batch.parts = [asked, desk.part()]
    assert not desk.limit.carry(batch)
    assert batch.requests is batch.parts
    batch.parts = [plain, paid, body]
    assert desk.limit.carry(batch)
    assert batch.requests == []


def test_what_waits_behind_something_spooled_or_would_overtake_it_is_not_judged() -> None:
    desk = Desk("spool")
    behind, overtaking, asked = desk.part(), desk.part(), desk.part()
    desk.conversation.behind, desk.conversation.overtaking = {behind}, {overtaking}
    batch = Batch(None, b"", NOW)
    batch.parts = [behind, overtaking, asked]
    assert not desk.limit.carry(batch)
    assert batch.requests == batch.parts, "nothing is spooled"
    desk.conversation.lines.has_paged = True
    assert not desk.limit.carry(batch)
    assert (batch.requests, behind.unjudged, overtaking.unjudged, asked.unjudged) == ([asked], POSTPONED, EXPIRED, 0)
    batch.parts = [behind]
    assert desk.limit.carry(batch), "it goes on to the stage that postpones it"
