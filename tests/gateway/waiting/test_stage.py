"""Wait: what becomes of each part by its verdict."""

from __future__ import annotations

import pytest

from gateway.pipeline.conversation import DROPPED, UNABLE
from gateway.pipeline.parts import Part
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.limits import NEVER
from support.wires.recorded import MS, NOW, Desk

PLACE = ("amqp", "%2F/amq.default/orders", "produce")


def held_since(part: Part) -> int:
    return 0 if part.held is None else part.held.since


def test_what_passes_goes_on_and_the_rest_is_refused_in_the_order_it_came() -> None:
    desk = Desk()
    all_, none, some = desk.part(3, 3), desk.part(0, 2), desk.part(1, 4, messages=5)
    said = desk.settle(all_, none, some)
    assert [(what, count) for what, _, count in said] == [("admit", 3), ("refuse", 2), ("admit", 1), ("refuse", 3)]
    assert said[0][1] is all_
    assert (said[2][1].passed, some.passed) == (1, 0), "each has its own"
    assert said[3][1] is some
    tally = desk.key.tally
    assert (tally.refused, tally.refused_bytes, tally.dropped, tally.refused_by, tally.retry_after_ns) == (
        2 + 15, 500, 0, desk.bucket, 30 * MS
    )  # fmt: skip
    assert desk.bucket.refused == 17
    assert (desk.handler.refused_at, desk.handler.refused_key, desk.handler.refused_rule) == (NOW, desk.key, desk.rule)
    assert desk.handler.refusals is not None
    assert desk.handler.refusals.total == 17


def test_what_a_limit_held_before_another_spools_it_waits_on_in_memory() -> None:
    """It has begun to wait where nothing pages, which is told as the time that it has waited since."""
    desk, part = Desk("delay"), Desk("delay").part()
    desk.settle(part)
    assert (held_since(part), part.find_paged_at()) == (NOW, 0)
    part.rule = Desk("spool").rule
    desk.settle(part, now=NOW + MS)
    assert (held_since(part), part.find_paged_at()) == (NOW, 0)
    fresh = desk.part()
    fresh.rule = part.rule
    desk.settle(fresh, now=NOW + MS)
    assert (held_since(fresh), fresh.find_paged_at()) == (0, NOW + MS)


def test_every_message_is_handled_once_when_it_is_judged_first() -> None:
    """What was held has been paid for when it was read."""
    desk = Desk()
    desk.reader.spend(100, NOW)
    held = desk.part(9, 9)
    held.deadline = NEVER
    desk.settle(desk.part(2, 2, messages=5), desk.part(0, 3), held, desk.part(4, 4, messages=0))
    assert desk.reader.credit == 10 + 3 + 4
    desk.forwarder.spend(99, NOW)
    desk.settle(desk.part(1, 1))
    assert desk.reader.credit == 18, "the forwarder may pass on one more: nobody would grant later what waits now"
    desk.forwarder.spend(1, NOW)
    desk.settle(desk.part(1, 1))
    assert desk.reader.credit == 18, "the forwarder is behind: what is granted waits"
    desk.reader.grant(NOW)
    assert desk.reader.credit == 19


def test_who_has_just_passed_lets_others_go_first() -> None:
    desk = Desk("delay")
    first, same, line, stranger = desk.part(1), desk.part(line=2), desk.part(other=True), desk.part(other=True, line=3)
    desk.settle(stranger, first, same, line)
    assert [desk.conversation.turns_had[part] for part in (stranger, same, line)] == [False, True, True]
    some, later = desk.part(1, 2), desk.part(line=5)
    desk.settle(later, some)
    assert [desk.conversation.turns_had[part] for part in (later, some)] == [True, True]
    lone = [desk.part(), desk.part(other=True)]
    desk.settle(*lone)
    assert [desk.conversation.turns_had[part] for part in lone] == [False, False]


def test_that_a_limit_refuses_again_after_a_second_is_told() -> None:
    desk = Desk()
    told: list[int] = []
    desk.accounts.on_dry = lambda: told.append(1)
    desk.bucket.dry_at = 0
    for now, so_far in ((NOW, 1), (NOW + 1000 * MS, 1), (NOW + 2000 * MS + 1, 2), (NOW + 2001 * MS, 2)):
        desk.settle(desk.part(), now=now)
        assert (len(told), desk.bucket.dry_at) == (so_far, now)
    endless = desk.part()
    endless.wait_ns = NEVER
    desk.settle(endless, now=NOW + 9000 * MS)
    assert len(told) == 2, "a limit of nothing refuses always"


def test_how_long_a_message_waited_is_noted_when_it_passes_is_refused_or_dropped() -> None:
    desk = Desk("delay", max_delay_ns=100 * MS)
    part = desk.part(0, 2, messages=5)
    assert [what for what, *_ in desk.settle(part)] == ["hold"]
    assert held_since(part) == NOW
    assert desk.accounts.waits.p99_ms(PLACE, NOW) is None
    desk.settle(part, now=NOW + 50 * MS)
    assert held_since(part) == NOW, "since it was held first"
    part.passed = 1
    assert [what for what, *_ in desk.settle(part, now=NOW + 64 * MS)] == ["admit", "hold"]
    assert desk.accounts.waits.p99_ms(PLACE, NOW) == 64
    assert held_since(part) == NOW
    assert [what for what, *_ in desk.settle(part, now=NOW + 100 * MS)] == ["refuse"]
    assert desk.accounts.waits.p99_ms(PLACE, NOW) == pytest.approx(100, rel=0.2)
    assert held_since(part) == 0
    assert (desk.key.tally.delayed, desk.key.tally.refused) == (10, 5)


def test_what_was_held_and_passes_waits_no_more() -> None:
    desk = Desk("delay")
    part = desk.part()
    desk.settle(part)
    part.passed = 1
    assert desk.settle(part, now=NOW + 8 * MS) == [("admit", part, 1)]
    assert (held_since(part), desk.accounts.waits.p99_ms(PLACE, NOW)) == (0, 8)


def test_what_a_rule_in_shadow_would_refuse_and_what_passes_unjudged_are_counted() -> None:
    desk = Desk()
    shadow, bypassed = desk.part(5, 5, messages=2), desk.part(3, 3, messages=2)
    shadow.shadow_refused = 4
    bypassed.bypassed = True
    desk.settle(shadow, bypassed)
    assert (desk.key.tally.shadow_refused, desk.key.tally.bypassed) == (8, 6)
    assert desk.key.dirty, "it is folded into the metrics"


# ---- what is spooled ---------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A rule that spools, for 500 ms, and something of the connection is."""
    found = Desk("spool", max_age_ns=500 * MS)
    found.conversation.lines.has_paged = True
    found.conversation.context.disk = WaitingDisk(tmp_path_factory.mktemp("spool"), 1 << 20, 1 << 20, threads=False)
    return found


def expired(desk: Desk) -> int:
    assert desk.conversation.context.disk is not None
    return desk.conversation.context.disk.expired


def test_what_waits_behind_something_spooled_is_not_judged_before_its_turn(desk: Desk) -> None:
    part, first = desk.part(0, 2, messages=5), desk.part(1)
    desk.conversation.behind = {part}
    desk.reader.spend(100, NOW)
    assert [said[:2] for said in desk.settle(part, first)] == [("postpone", part), ("admit", first)]
    assert desk.asked == [first]
    assert (part.unjudged, part.deadline, part.find_paged_at(), desk.key.tally.delayed) == (0, NEVER, NOW, 10)
    assert desk.reader.credit == 11
    part.passed = 2
    assert [said[:2] for said in desk.settle(part, now=NOW + MS)] == [("admit", part)], "it has waited, and is asked for no more"
    assert part.find_paged_at() == 0


def test_what_would_pass_by_something_spooled_is_refused_and_not_for_its_age(desk: Desk) -> None:
    part = desk.part(0, 2)
    part.rule = part.bucket = None  # as the judge was not asked
    desk.conversation.overtaking = {part}
    desk.reader.spend(100, NOW)
    assert desk.settle(part) == [("refuse expired", part, 2)]
    assert (part.unjudged, expired(desk), desk.reader.credit, desk.key.tally.refused) == (0, 0, 2, 2)
    assert desk.handler.refused_rule == desk.rule, "the one that spools"
    assert desk.key.tally.refused_by is desk.key.buckets[0], "else no rule has it in its metrics, and no limit is said to be over"
    assert desk.key.buckets[0].refused == 2
    waits = desk.part()
    desk.conversation.behind = desk.conversation.overtaking = {waits}
    assert [what for what, *_ in desk.settle(waits)] == ["postpone"]


@pytest.mark.parametrize("age_ms", [499, 500])
def test_what_is_too_old_is_given_up_and_counted(desk: Desk, age_ms: int) -> None:
    part = desk.part(0, 2, messages=5)
    assert [what for what, *_ in desk.settle(part)] == ["spool"]
    assert (part.find_paged_at(), held_since(part), part.deadline) == (NOW, 0, NOW + 500 * MS)
    desk.reader.spend(50, NOW)
    credit = desk.reader.credit
    said = desk.settle(part, now=NOW + age_ms * MS)
    assert [what for what, *_ in said] == (["spool"] if age_ms == 499 else ["refuse expired"])
    assert (expired(desk), desk.reader.credit) == (0 if age_ms == 499 else 10, credit)
    assert part.find_paged_at() == NOW


def test_what_became_too_old_while_it_was_with_the_judge_is_counted_too(desk: Desk) -> None:
    part = desk.part(0, 3)
    part.deadline, part.again = NOW, True
    part.begin_hold().paged_at = NOW - 500 * MS
    desk.conversation.unable = {"expire"}  # then only the action finds it out
    assert desk.settle(part) == [("refuse expired", part, 3)]
    assert (expired(desk), part.unjudged) == (3, 0)


def test_a_delay_that_ends_in_a_refusal_gives_nothing_of_the_spool_up(desk: Desk) -> None:
    delayed = Desk("delay", max_delay_ns=500 * MS)
    delayed.conversation.context.disk = desk.conversation.context.disk
    part = delayed.part()
    delayed.settle(part)
    assert delayed.settle(part, now=NOW + 500 * MS) == [("refuse", part, 1)]
    assert expired(delayed) == 0


def test_of_what_is_neither_refused_nor_dropped_nothing_is_given_up(desk: Desk) -> None:
    part = desk.part()
    desk.settle(part)
    desk.conversation.outcome = UNABLE
    desk.conversation.unable = {"drop"}
    assert [what for what, *_ in desk.settle(part, now=NOW + 500 * MS)] == ["refuse expired", "hold"]
    assert (expired(desk), desk.handler.refused_at) == (0, 0)
    desk.conversation.unable = set()
    assert [what for what, *_ in desk.settle(part, now=NOW + 600 * MS)] == ["refuse expired", "drop"]
    assert (expired(desk), desk.key.tally.dropped, desk.handler.refused_at) == (1, 1, NOW + 600 * MS)


def test_what_has_passed_before_keeps_its_place_and_is_not_looked_at_again(desk: Desk) -> None:
    part = desk.part(1)
    part.again = True
    desk.conversation.behind = desk.conversation.overtaking = {part}
    assert desk.settle(part) == [("admit", part, 1)]
    paid = desk.part(1)
    paid.paid, paid.deadline = True, 1
    desk.conversation.behind = {paid}
    assert desk.settle(paid) == [("admit", paid, 1)]
    desk.conversation.outcome = DROPPED
    assert [what for what, *_ in desk.settle(desk.part())] == ["spool"]
