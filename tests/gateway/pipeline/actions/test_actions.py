"""The actions: what the conversation is asked for a refused part, for how long it waits, and how it is counted."""

from __future__ import annotations

import pytest

from gateway.pipeline.actions import holding
from gateway.pipeline.actions.holding import (
    CONTENDED_NS,
    MAX_TURNS,
    REJUDGE_AFTER_NS,
    REJUDGE_WITHIN_NS,
    SHUFFLE_NS,
    compute_due,
    next_turn,
)
from gateway.pipeline.actions.table import OWNER_NS
from gateway.pipeline.conversation import DROPPED, LATER, REFUSED, UNABLE
from limiter.buckets.bucket import Bucket
from limiter.leases.lease import Lease
from limiter.leases.leased_places import concurrency_places
from limiter.limits import NEVER, Limit
from limiter.reservation import Reservation
from support.wires.recorded import MS, NOW, Desk


def counts(desk: Desk) -> tuple[int, int, int]:
    """Messages refused, dropped, held."""
    return desk.key.tally.refused, desk.key.tally.dropped, desk.key.tally.delayed


@pytest.mark.parametrize(
    ("fallback", "outcome", "unable", "asked", "counted"),
    [
        ("delay", REFUSED, "", ["refuse"], (10, 0, 0)),
        ("delay", DROPPED, "", ["refuse"], (0, 10, 0)),
        ("delay", UNABLE, "", ["refuse", "hold"], (0, 0, 10)),
        ("close", UNABLE, "", ["refuse", "close"], (10, 0, 0)),
        ("drop", UNABLE, "", ["refuse", "drop"], (0, 10, 0)),
        ("drop", UNABLE, "drop", ["refuse", "hold"], (0, 0, 10)),
        ("close", LATER, "", ["refuse", "hold"], (0, 0, 10)),
        ("drop", LATER, "", ["refuse", "hold"], (0, 0, 10)),
    ],
)
def test_what_is_refused_is_told_or_its_rule_says_what_happens_instead(
    fallback: str, outcome: int, unable: str, asked: list[str], counted: tuple[int, int, int]
) -> None:
    desk = Desk("reject", fallback=fallback)
    desk.conversation.outcome, desk.conversation.unable = outcome, {unable}
    part = desk.part(0, 2, messages=5)
    assert [what for what, *_ in desk.settle(part)] == asked
    assert counts(desk) == counted
    assert (desk.bucket.refused, desk.bucket.held) == (counted[0] + counted[1], counted[2])
    if counted[2]:
        assert (part.again, part.deadline) == (True, NEVER)
        desk.settle(part, now=NOW + MS)
        assert counts(desk) == counted, "once, however often it is judged again"


def test_a_close_that_would_lose_what_is_held_before_it_waits() -> None:
    desk = Desk("close")
    desk.conversation.closed = LATER
    part = desk.part()
    assert [what for what, *_ in desk.settle(part)] == ["close", "hold"]
    desk.conversation.closed = REFUSED
    assert [what for what, *_ in desk.settle(part, now=NOW + MS)] == ["close"]
    assert counts(desk) == (1, 0, 1)


def test_what_is_dropped_is_counted_and_refused_where_an_answer_was_promised() -> None:
    desk = Desk("drop")
    assert [what for what, *_ in desk.settle(desk.part(0, 2, messages=5))] == ["drop"]
    assert (counts(desk), desk.bucket.refused) == ((0, 10, 0), 10)
    desk.conversation.unable = {"drop"}
    assert [what for what, *_ in desk.settle(desk.part())] == ["refuse"]
    assert counts(desk) == (1, 10, 0)


@pytest.mark.parametrize(("action", "patience_ms", "last_ms"), [("delay", 900, 100), ("delay", 60, 60), ("block", 250, 250)])
def test_what_is_held_is_refused_when_its_time_or_the_clients_patience_is_over(action: str, patience_ms: int, last_ms: int) -> None:
    desk = Desk(action, max_delay_ns=100 * MS)
    desk.conversation.lines.patience_ns = patience_ms * MS
    part = desk.part(wait_ms=1000)
    hold = "hold" if action == "delay" else "block"
    assert desk.settle(part) == [(hold, part, NOW + min(last_ms, 100) * MS)]
    assert (part.again, part.deadline) == (True, NOW + last_ms * MS)
    last = NOW + last_ms * MS
    assert desk.settle(part, now=last - 1) == [(hold, part, last)]
    assert [what for what, *_ in desk.settle(part, now=last)] == ["refuse"]
    assert counts(desk) == (1, 0, 1)


@pytest.mark.parametrize(("action", "last"), [("reject", "refuse"), ("close", "close"), ("drop", "drop")])
def test_nothing_is_refused_before_the_owner_of_a_shared_limit_has_said_how_much_there_is(action: str, last: str) -> None:
    """Nor for longer than a moment, whatever becomes of the owner."""
    desk, lease = Desk(action), Lease(2)
    member = concurrency_places(Limit(concurrent=64), NOW, lease)
    desk.bucket.algorithm = member
    assert member.available(3, 1, 0, NOW) == 1
    member.take(1, 1, 0)
    first, second, third = desk.part(), desk.part(), desk.part()
    assert [what for what, *_ in desk.settle(first, second)] == ["hold", "hold"]
    assert counts(desk) == (0, 0, 2)
    assert [what for what, *_ in desk.settle(first, now=NOW + OWNER_NS)] == [last]
    assert lease.asks(NOW) == [(member, 3, 1)]
    member.grant(1, 0, NOW)
    assert [what for what, *_ in desk.settle(second, third, now=NOW + MS)] == [last, last]


def test_an_action_that_holds_does_so_for_its_own_time_also_where_an_owner_is_asked() -> None:
    desk = Desk("delay", max_delay_ns=900 * MS)
    desk.bucket.algorithm = member = concurrency_places(Limit(concurrent=64), NOW, Lease(2))
    member.take(member.available(3, 1, 0, NOW), 1, 0)
    part = desk.part()
    desk.settle(part)
    assert part.deadline == NOW + 900 * MS


def test_a_client_with_endless_patience_is_blocked_for_as_long_as_it_takes() -> None:
    desk = Desk("block")
    part = desk.part()
    desk.settle(part)
    assert part.deadline == NEVER


@pytest.mark.parametrize("action", ["delay", "block", "spool"])
def test_what_cannot_be_held_is_refused_at_once_and_is_as_it_was(action: str) -> None:
    desk = Desk(action)
    desk.conversation.unable = {"hold", "block", "spool"}
    part = desk.part()
    assert [what for what, *_ in desk.settle(part)] == ["refuse"]
    assert (part.again, part.deadline, counts(desk)) == (False, 0, (1, 0, 0))


def test_a_poll_is_held_whatever_the_action_until_its_clients_patience_is_over() -> None:
    """Recorded has a patience of 300 ms with polls."""
    desk = Desk("reject")
    part = desk.part(messages=0, wait_ms=1000)
    part.reservation = Reservation(1, 100)
    assert desk.settle(part) == [("hold", part, NOW + 100 * MS)]
    assert (part.again, part.deadline, desk.bucket.held) == (True, NOW + 300 * MS, 1)
    assert desk.settle(part, now=NOW + 250 * MS) == [("hold", part, NOW + 300 * MS)]
    assert desk.bucket.held == 1
    assert desk.settle(part, now=NOW + 300 * MS) == [("refuse", part, 1)]
    other = desk.part(messages=0)
    other.reservation = Reservation(1, 100)
    desk.conversation.unable = {"hold"}
    assert desk.settle(other) == [("refuse", other, 1)]


def test_what_is_spooled_waits_as_long_as_its_rule_allows_or_each_message_itself() -> None:
    desk = Desk("spool")
    desk.conversation.runs = [(2, 10 * MS), (3, NEVER)]
    part = desk.part(0, 3)
    desk.settle(part)
    assert part.deadline == NEVER, "the rule does not ask for how long they are of use"
    desk = Desk("spool", max_age_ns=50 * MS, drop_expired=True)
    desk.conversation.runs = [(2, 10 * MS), (4, 90 * MS), (5, NEVER)]
    part = desk.part(0, 11)
    said = desk.settle(part)
    assert [(what, each.count, each.deadline) for what, each, _ in said] == [
        ("spool", 2, NOW + 10 * MS), ("spool", 4, NOW + 50 * MS), ("spool", 5, NOW + 50 * MS)
    ]  # fmt: skip
    endless = Desk("spool", drop_expired=True)
    endless.conversation.runs = [(1, NEVER)]
    part = endless.part()
    endless.settle(part)
    assert part.deadline == NEVER


# ---- when it is judged again -------------------------------------------------------------------------------------------


def test_it_is_judged_again_after_its_wait_within_bounds() -> None:
    assert compute_due(NOW, 30 * MS) == NOW + 30 * MS
    assert compute_due(NOW, 1) == NOW + REJUDGE_AFTER_NS
    assert compute_due(NOW, NEVER) == NOW + REJUDGE_WITHIN_NS


class Line:
    """Connections that wait for one limit; chance says always a quarter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(holding, "random", lambda: 0.25)
        self.desk = Desk("delay")

    def turn(self, who: int, now: int, wait_ms: int = 30, *, had_turn: bool = False, line: int = 1) -> int:
        part = self.desk.part(wait_ms=wait_ms, line=line)
        self.desk.conversation.lines.had_turn = had_turn
        self.desk.conversation.context.connection = who
        return next_turn(self.desk.conversation, part, now) - now


def test_one_that_waits_alone_loses_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch)
    for at in range(3):
        assert line.turn(1, NOW + at * MS, had_turn=True) == 30 * MS
    unlimited = line.desk.part()
    unlimited.bucket = None
    assert next_turn(line.desk.conversation, unlimited, NOW) == NOW + 30 * MS


def test_of_several_each_that_had_something_lets_the_others_ask_first(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch)
    assert line.turn(1, NOW) == 30 * MS
    assert line.turn(2, NOW) == 30 * MS + SHUFFLE_NS // 4, "as soon as it may, at a moment of its own"
    line.desk.conversation.lines.turns.clear()
    assert line.turn(1, NOW, had_turn=True) == 30 * MS + 30 * MS // 4
    line.desk.conversation.lines.turns.clear()
    assert line.turn(2, NOW, wait_ms=99, had_turn=True) == REJUDGE_WITHIN_NS
    line.desk.conversation.lines.turns.clear()
    assert line.turn(1, NOW, wait_ms=100) == int(100 * MS * 0.625), "a long wait is cut, for all alike"
    line.desk.conversation.lines.turns.clear()
    assert line.turn(1, NOW + CONTENDED_NS, had_turn=True) > 30 * MS
    line.desk.conversation.lines.turns.clear()
    assert line.turn(1, NOW + CONTENDED_NS + 1, had_turn=True) == 30 * MS, "nobody else has asked for so long"


def test_all_of_a_connection_asks_together_where_others_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch)
    line.turn(2, NOW)
    first = line.turn(1, NOW)
    assert line.turn(1, NOW + 10 * MS, wait_ms=90) == first - 10 * MS
    assert line.turn(1, NOW + first, wait_ms=90) > 90 * MS, "that turn has come"


def test_keys_of_a_protocol_without_channels_take_turns_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch)
    line.turn(1, NOW, line=0)
    other = line.desk.part(line=0, other=True)
    other.bucket = line.desk.bucket
    assert next_turn(line.desk.conversation, other, NOW) > NOW + 30 * MS
    assert line.desk.bucket.contended_at == NOW


def test_a_connection_remembers_its_turns_of_a_bounded_number_of_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch)
    line.turn(2, NOW)
    turns = line.desk.conversation.lines.turns
    others: list[Bucket] = [Desk().bucket for _ in range(MAX_TURNS)]
    turns.update(dict.fromkeys(others[:-1], NOW + 5 * MS))
    turns.pop(line.desk.bucket, None)
    line.turn(1, NOW)
    assert len(turns) == MAX_TURNS
    del turns[line.desk.bucket]
    turns.update({others[0]: NOW, others[1]: NOW - 1, others[-1]: NOW + MS})
    line.turn(1, NOW)
    assert set(turns) == {*others[2:], line.desk.bucket}, "what is past is forgotten"
    del turns[line.desk.bucket]
    turns.update(dict.fromkeys(others, NOW + 5 * MS))
    line.turn(1, NOW)
    assert set(line.desk.conversation.lines.turns) == {line.desk.bucket}
