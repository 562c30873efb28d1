"""Accounts: what slices of a fold and of a tick leave as it is, what they cost, and which topics are forgotten."""

from __future__ import annotations

from itertools import chain, count

from gateway.counting import accounts as of_accounts
from gateway.counting.accounts import (
    BRIEF_S,
    FORGET_AFTER,
    FORGET_ANYWAY_AFTER,
    FORGET_BRIEF_AFTER,
    OTHER,
    SERIES_PAUSE_NS,
    SLICE_KEYS,
    Accounts,
    Place,
    TopicTotals,
)
from gateway.counting.hourly_demand import readings_of
from gateway.counting.recent_rates import TICKS
from limiter.keys import Key, Origin
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic
from support.steps import result

ORIGIN = Origin("rocketmq", Sender("rocket", "10.0.0.7", None), b"")
MANY = 2 * SLICE_KEYS + 1


def key(number: int) -> Key:
    return Key(ORIGIN, rocketmq_topic(b"t%d" % number), None, "produce")


def offer(accounts: Accounts, keys: list[Key], messages: int = 1) -> None:
    for each in keys:
        each.tally.received += messages
        each.tally.messages += messages
        if not each.dirty:
            accounts.note(each)


def received(accounts: Accounts) -> int:
    return sum(totals.received for totals in accounts.topics.values())


def test_slices_fold_everything_in_order() -> None:
    accounts = Accounts()
    heard: list[Key] = []
    accounts.observers.append(lambda key, _: heard.append(key))
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys)
    folded = [received(accounts) for _ in accounts.slices(5)]
    assert folded == [SLICE_KEYS, 2 * SLICE_KEYS, MANY]
    assert heard == keys
    assert not any(each.dirty for each in keys)
    assert {totals.last_seen for totals in accounts.topics.values()} == {5}
    assert list(accounts.slices(6)) == []


def test_messages_between_two_slices_are_counted_once() -> None:
    """Keys folded already are noted again, those not folded yet take it along; a scrape that folds meanwhile leaves nothing to do."""
    accounts = Accounts()
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys)
    slices = accounts.slices(5)
    next(slices)
    offer(accounts, keys, 10)
    accounts.fold(6)
    assert received(accounts) == 11 * MANY
    offer(accounts, keys[:3], 100)
    assert len(list(slices)) <= 2
    accounts.fold(7)
    assert received(accounts) == 11 * MANY + 300


def test_traffic_that_does_not_end_does_not_keep_a_fold_from_its_end() -> None:
    accounts = Accounts()
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys)
    for turns, _ in enumerate(accounts.slices(5)):
        offer(accounts, keys)
        assert turns < 3
    accounts.fold(6)
    assert received(accounts) == 4 * MANY


def test_rates_are_means_and_of_the_last_tick_and_idle_topics_cost_nothing() -> None:
    accounts = Accounts()
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys, 4)
    accounts.fold(1)
    assert len(list(accounts.tick(2.0))) == 3
    assert {(totals.rates, totals.last_rates) for totals in accounts.topics.values()} == {((2.0, 2.0, 0.0, 0.0),) * 2}
    offer(accounts, keys[:1], 5)
    accounts.fold(2)
    assert len(list(accounts.tick(2.0))) == 3, "rates that were not zero become so"
    assert [totals.last_rates[0] for totals in accounts.topics.values()] == [2.5] + [0.0] * (MANY - 1)
    assert [totals.rates[0] for totals in accounts.topics.values()] == [2.25] + [1.0] * (MANY - 1)
    for _ in range(TICKS - 2):
        assert len(list(accounts.tick(2.0))) == 3, "what happened is still within the window"
    assert len(list(accounts.tick(2.0))) == 3
    assert [totals.rates[0] for totals in accounts.topics.values()] == [0.25] + [0.0] * (MANY - 1)
    assert len(list(accounts.tick(2.0))) == 1
    assert list(accounts.tick(2.0)) == []
    offer(accounts, keys[1:2], 5)
    accounts.fold(3)
    assert len(list(accounts.tick(1.0))) == 1
    assert [totals.rates[0] for totals in accounts.topics.values()][:3] == [0.0, 5.0, 0.0]


def test_a_fold_between_the_slices_of_a_tick_loses_no_rate() -> None:
    accounts = Accounts()
    keys = [key(number) for number in range(MANY)]
    offer(accounts, keys)
    accounts.fold(1)
    slices = accounts.tick(1.0)
    next(slices)
    offer(accounts, keys, 2)
    accounts.fold(2)
    list(slices)
    list(accounts.tick(1.0))
    assert {totals.rates[0] for totals in accounts.topics.values()} == {1.5}
    assert sorted({totals.last_rates[0] for totals in accounts.topics.values()}) == [0.0, 2.0]
    for _ in range(TICKS):
        list(accounts.tick(1.0))
    assert {totals.rates[0] for totals in accounts.topics.values()} == {0.0}
    assert list(accounts.tick(1.0)) == []


S = 10**9


class Gateway:
    """Accounts with few places, and a clock."""

    def __init__(self, most: int = 4, most_shown: int = 2) -> None:
        self.accounts = Accounts(most, most_shown)
        self.now = 1000 * S
        self.forgotten: list[str] = []
        self.accounts.forget_observers.append(lambda totals: self.forgotten.append(totals.text))
        self.keys: dict[int, Key] = {}

    def second(self, *topics: int, waiting: int = 0) -> None:
        """A message to each topic, of which so many wait then."""
        for number in topics:
            each = self.keys.setdefault(number, key(number))
            tally = self.accounts.tally_of(each)
            tally.received += 1
            tally.messages += 1 - waiting
        self.accounts.fold(self.now)
        list(self.accounts.tick(1.0, self.now))
        self.now += S

    def steady(self, *topics: int) -> None:
        for _ in range(BRIEF_S + 1):
            self.second(*topics)

    def idle(self, ns: int) -> None:
        for _ in range(TICKS + 1):
            list(self.accounts.tick(1.0, self.now))
        self.now += ns

    def known(self) -> list[str]:
        return sorted(text for _, text, _ in self.accounts.topics)

    def listed(self) -> list[Place]:
        return [*chain.from_iterable(result(self.accounts.index.find(None, "")))]

    def shown(self) -> list[str]:
        return sorted(text for _, text, _ in self.accounts.shown)


def test_a_new_topic_takes_the_place_of_the_one_that_is_idle_longest() -> None:
    gateway = Gateway()
    for number in range(4):
        gateway.steady(number)
    gateway.second(0)
    gateway.idle(FORGET_AFTER)
    gateway.second(7)
    gateway.second(8)
    assert gateway.forgotten == ["t1", "t2"]
    assert gateway.known() == ["t0", "t3", "t7", "t8"]


def test_names_used_once_make_room_soon_and_before_all_others() -> None:
    gateway = Gateway()
    gateway.steady(0, 1)
    gateway.second(2, 3)
    gateway.second(7)
    assert gateway.known() == [OTHER, "t0", "t1", "t2", "t3"], "none is idle"
    gateway.idle(FORGET_BRIEF_AFTER)
    gateway.second(8, 9, 10)
    assert gateway.known() == [OTHER, "t0", "t1", "t8", "t9"], "the third has no room"
    gateway.idle(FORGET_BRIEF_AFTER)
    gateway.second(11)
    assert gateway.forgotten == ["t2", "t3", "t8"]
    gateway.idle(FORGET_AFTER)
    gateway.second(12)
    assert gateway.forgotten == ["t2", "t3", "t8", "t9"], "before those that had steady traffic, though these are idle for longer"


def test_a_topic_with_messages_waiting_is_not_forgotten_and_one_under_other_stays_there_until_they_have_gone() -> None:
    gateway = Gateway(most=1)
    gateway.second(0, waiting=1)
    gateway.second(1, waiting=1)
    gateway.idle(FORGET_ANYWAY_AFTER)
    gateway.second(2)
    assert gateway.forgotten == []
    gateway.accounts.tally_of(gateway.keys[0]).abandoned += 1
    gateway.second()
    gateway.idle(FORGET_BRIEF_AFTER)
    gateway.accounts.topics["rocketmq", "x", "produce"] = TopicTotals("rocketmq", "x")  # idle, ready to go
    gateway.accounts.index.add(("rocketmq", "x", "produce"))
    gateway.second(1)
    other = gateway.accounts.topics["rocketmq", OTHER, "produce"]
    assert (other.received, other.waiting) == (3, 1)
    gateway.accounts.tally_of(gateway.keys[1]).abandoned += 1
    gateway.second()
    gateway.idle(FORGET_BRIEF_AFTER)
    gateway.second(1)
    assert other.waiting == 0
    assert gateway.accounts.topics["rocketmq", "t1", "produce"].received == 1


def test_one_that_comes_back_begins_at_0_and_its_demand_goes_on() -> None:
    gateway = Gateway(most=2)
    gateway.second(0, 5)
    gateway.idle(FORGET_BRIEF_AFTER)
    gateway.second(1)
    assert readings_of(gateway.accounts) == [("rocketmq", f"t{number}", 1, 0) for number in (5, 1, 0)]
    gateway.idle(FORGET_BRIEF_AFTER)
    gateway.second(0)
    assert gateway.accounts.topics["rocketmq", "t0", "produce"].received == 1
    assert ("rocketmq", "t0", 2, 0) in readings_of(gateway.accounts)
    assert gateway.forgotten == ["t0", "t5"]


def test_what_is_idle_for_more_than_a_day_is_forgotten_though_there_is_room() -> None:
    gateway = Gateway()
    gateway.steady(0)
    gateway.idle(FORGET_ANYWAY_AFTER - 2 * S)
    gateway.second()
    assert gateway.known() == ["t0"]
    gateway.now += of_accounts.LOOK_ANYWAY_NS
    gateway.second()
    assert gateway.known() == []


def test_a_topic_with_steady_traffic_gets_series_in_the_place_of_a_brief_one_and_they_begin_at_0() -> None:
    gateway = Gateway(most=8)
    gateway.second(0, 1)
    gateway.steady(2)
    assert gateway.shown() == ["t0", "t1"]
    gateway.idle(FORGET_BRIEF_AFTER)
    gateway.second(2)
    assert gateway.shown() == ["t1", "t2"]
    totals = gateway.accounts.topics["rocketmq", "t2", "produce"]
    assert (totals.received, totals.count_since_shown().received) == (4, 0), "what came before is under OTHER"
    gateway.second(2)
    assert totals.count_since_shown().received == 1
    assert [each.received for each in gateway.accounts.list_others()] == [4]


def test_series_that_have_ended_begin_again_after_a_pause() -> None:
    gateway = Gateway(most=8, most_shown=1)
    gateway.second(0)
    gateway.steady(1)
    gateway.idle(FORGET_BRIEF_AFTER)
    gateway.second(1)
    assert gateway.shown() == ["t1"]
    gateway.idle(FORGET_AFTER - SERIES_PAUSE_NS)
    gateway.steady(0)
    gateway.idle(SERIES_PAUSE_NS)
    gateway.second(0)
    assert gateway.shown() == ["t0"]


def test_a_million_invented_names_do_not_hide_a_topic_and_leave_the_table_bounded() -> None:
    gateway = Gateway(most=100, most_shown=10)
    numbers = count(10)
    for _ in range(200):
        gateway.second(*(next(numbers) for _ in range(50)), 0)
    assert "t0" in gateway.known()
    assert "t0" in gateway.shown()
    accounts = gateway.accounts
    assert len(accounts.topics) <= 101
    assert len(accounts.forgotten_demand) <= 100
    assert accounts.everything.received == 51 * 200


def test_a_look_that_finds_nothing_is_not_repeated_for_every_name() -> None:
    gateway = Gateway(most=100)
    gateway.steady(*range(100))
    looks = []
    table = gateway.accounts._idle._table

    class Watched(dict[tuple[str, str, str], TopicTotals]):
        def values(self):  # type: ignore[no-untyped-def]
            looks.append(gateway.now)
            return super().values()

    gateway.accounts._idle._table = Watched(table)
    for number in range(20):
        gateway.second(*range(1000 + 100 * number, 1100 + 100 * number))
    assert len(looks) <= 3, "2,000 names in 20 s"


def test_sums_over_all_topics_are_counted_as_they_come_whatever_is_shown_or_forgotten() -> None:
    gateway = Gateway(most=4, most_shown=1)
    for number in range(9):
        gateway.steady(number)
        gateway.idle(FORGET_AFTER)
    accounts = gateway.accounts
    assert accounts.everything.received == 9 * (BRIEF_S + 1)
    shown = sum(totals.count_since_shown().received for totals in accounts.shown.values())
    ended = accounts.everything.received - shown - sum(each.received for each in accounts.list_others())
    assert ended >= 0, "series that have ended take what they showed with them"


def test_the_index_of_topics_grows_with_them_and_lacks_those_that_are_forgotten() -> None:
    gateway = Gateway()
    gateway.steady(0, 1, 2, 3)
    first = gateway.listed()
    assert first == sorted(gateway.accounts.topics)
    gateway.idle(FORGET_AFTER)
    gateway.second(4)
    assert gateway.listed() == sorted(gateway.accounts.topics)
    assert len(first) == 4, "nobody's list changes"


def test_what_waits_at_rest_is_active_until_it_is_over() -> None:
    """An open page looks at active topics alone: 100,000 that are at rest cost it nothing."""
    gateway = Gateway(most=9)
    gateway.second(0, 1, waiting=1)
    gateway.second(2, 3)
    assert len(gateway.accounts.active_topics()) == 4
    gateway.idle(0)
    assert [each.text for each in gateway.accounts.active_topics()] == ["t0", "t1"]
    gateway.accounts.tally_of(gateway.keys[1]).messages += 1
    gateway.accounts.fold(gateway.now)
    assert sorted(each.text for each in gateway.accounts.active_topics()) == ["t0", "t1"], "once each, though one moves again"
    gateway.idle(0)
    assert [each.text for each in gateway.accounts.active_topics()] == ["t0"]


def test_all_that_moves_is_told_amid_a_tick() -> None:
    accounts = Accounts()
    offer(accounts, [key(number) for number in range(MANY)])
    accounts.fold(S)
    for _ in accounts.tick(1.0):
        assert len(accounts.active_topics()) == MANY
        break
    list(accounts.tick(1.0))
    assert len(accounts.active_topics()) == MANY, "a tick that is given up loses none"
