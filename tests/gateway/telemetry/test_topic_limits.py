"""The limit in force of each topic, results by rule, and series that never go back whatever topics come."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.workers import named_series, scrapes
from gateway.counting.accounts import OTHER, Accounts
from gateway.telemetry import exposition, topic_limits
from gateway.telemetry.metrics import TOPIC
from gateway.telemetry.process_metrics import process_lines
from gateway.telemetry.topic_limits import TopicLimits
from gateway.telemetry.topic_metrics import topic_lines
from limiter.judge import Judge
from limiter.keys import Key, Tally
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.live_change import Override
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import rocketmq_topic
from support.expositions import series

ORDERS = Rule("orders", Match(topic="orders"), "topic", Limit(messages=Rate(500), bytes=Rate(2_000_000)))
TRIED = Rule("tried", Match(topic="tried"), "topic", Limit(messages=Rate(5)), mode="shadow")
SETTLED = ("forwarded", "refused", "dropped", "abandoned")


class All:
    """All topics are shown."""

    def __contains__(self, place: object) -> bool:
        return True


def key_of(judge: Judge, topic: bytes) -> Key:
    return judge.key(judge.origin("rocketmq", "rocket", "10.0.0.7", None), topic, rocketmq_topic(topic))


def limits(found: TopicLimits, rules: RuleSet) -> dict[tuple[str, str, str], float]:
    samples = series("".join(found.lines(rules))).get("sluice_topic_limit", [])
    return {(labels["topic"], labels["dimension"], labels["origin"]): value for labels, value in samples}


def test_a_topics_limit_is_the_one_in_force_and_an_old_origin_vanishes() -> None:
    rules = RuleSet((ORDERS, TRIED))
    judge, found = Judge(rules), TopicLimits(All())
    for topic in (b"orders", b"tried", b"free"):
        found.add(key_of(judge, topic), Tally())
    from_file = {("orders", "messages", "file"): 500, ("orders", "bytes", "file"): 2_000_000}
    assert limits(found, rules) == from_file, "neither what is only tried nor what has no limit"
    changed = RuleSet((ORDERS,), overrides={rocketmq_topic(b"orders"): Override(messages=Rate(40))})
    assert limits(found, changed) == {("orders", "messages", "override"): 40, ("orders", "bytes", "override"): 2_000_000}
    assert limits(found, rules) == from_file


def test_results_are_counted_by_rule_from_zero_and_stay_when_the_rule_goes() -> None:
    rules = RuleSet((ORDERS, TRIED))
    judge, found = Judge(rules), TopicLimits(All())
    assert set(found.rule_samples(rules)) >= {(("orders", "passed"), 0), (("tried", "shadow_refused"), 0)}
    key = key_of(judge, b"orders")
    judge.decide([Request(key, 1, 1, 10)], 0)
    key.tally.messages, key.tally.refused, key.tally.dropped, key.tally.delayed = 7, 3, 2, 1
    key.tally.refused_by = key.buckets[0]
    found.add(key, key.tally)
    counts = dict(found.rule_samples(RuleSet(())))
    assert [counts["orders", result] for result in ("passed", "refused", "dropped", "delayed", "shadow_refused")] == [7, 3, 2, 1, 0]


class Traffic:
    """Messages under rules that come and go, and what was shown of them last."""

    def __init__(self, workers: int) -> None:
        self.workers = [TopicLimits(All()) for _ in range(workers)]
        self.retired: dict[str, scrapes.Family] = {}
        self.in_force: tuple[Rule, ...] = ()
        self.passed = 0.0
        self.shown: dict[tuple[str, ...], float] = {}

    def send(self, worker: int, rule: str, messages: int) -> None:
        of_rule = Rule(rule, Match(topic="orders"), "topic", Limit(messages=Rate(500)))
        self.in_force = (*(each for each in self.in_force if each.name != rule), of_rule)
        judge = Judge(RuleSet((of_rule,)))
        key = key_of(judge, b"orders")
        judge.decide([Request(key, 1, 1, 10)], 0)
        key.tally.messages = messages
        self.workers[worker].add(key, key.tally)
        self.passed += messages

    def told(self, worker: TopicLimits) -> dict[str, scrapes.Family]:
        return scrapes.parse("".join(exposition.family(scrapes.BY_RULE, worker.rule_samples(RuleSet(self.in_force)))))

    def replace_worker(self, number: int) -> None:
        scrapes.add(self.retired, self.told(self.workers[number]), None)
        self.workers[number] = TopicLimits(All())

    def scrape(self) -> None:
        """Nothing that is in force has gone back, nor what is summed; nothing is lost; and the series are bounded."""
        living = [(str(number), self.told(worker)) for number, worker in enumerate(self.workers)]
        scrapes.forget_gone_rules(self.retired, [families for _, families in living])
        now = dict(counters("".join(scrapes.lines(scrapes.merge_families(living, self.retired)))))
        found = {labels: value for (_, labels), value in now.items()}
        lasting = {rule.name for rule in self.in_force} | {OTHER}
        assert {name: value for name, value in self.shown.items() if name[0] in lasting and found[name] < value} == {}
        assert sum(found.values()) == self.passed
        assert len({name for name, _ in found} - lasting) <= 2 * len(self.workers)
        self.shown = {name: value for name, value in found.items() if name[0] in lasting}


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(0, 1), st.integers(0, 9)),
            st.tuples(st.just("remove"), st.integers(0, 1), st.integers(0, 9)),
            st.tuples(st.just("replace"), st.integers(0, 1), st.just(0)),
        ),
        max_size=40,
    ),
    workers=st.integers(1, 2),
)
def test_series_of_rules_that_are_gone_are_bounded_and_no_counter_goes_back(steps: list[tuple[str, int, int]], workers: int) -> None:
    """Until November 2026 every rule that was ever live had five series for good."""
    with patch.object(topic_limits, "MAX_GONE_RULES", 2):
        traffic = Traffic(workers)
        for what, worker, rule in steps:
            if what == "send":
                traffic.send(worker % workers, f'r"{rule}', rule + 1)
            elif what == "remove":
                traffic.in_force = tuple(each for each in traffic.in_force if each.name != f'r"{rule}')
            else:
                traffic.replace_worker(worker % workers)
            traffic.scrape()


def test_a_thousand_rules_added_and_removed_leave_a_bounded_number_of_series() -> None:
    found = TopicLimits(All())
    for number in range(1000):
        samples = found.rule_samples(RuleSet((Rule(f"live-{number}", Match(topic="orders"), "topic", Limit(messages=Rate(5))),)))
    assert len({labels[0] for labels, _ in samples}) == topic_limits.MAX_GONE_RULES + 2, "the one in force, the last ones, the others"


def test_seconds_at_the_limit_are_those_in_which_something_was_over_it() -> None:
    accounts = Accounts()
    totals = accounts.totals("rocketmq", "orders")
    for field in ("refused", "dropped", "delayed"):
        setattr(totals, field, 3)
        totals.tick(1.0)
        totals.tick(1.0)  # nothing
    totals.received += 9
    totals.tick(1.0)
    assert series("".join(topic_lines(accounts)))["sluice_topic_limited_seconds_total"][0][1] == 3


def counters(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (name, tuple(labels.values())): value
        for name, samples in series(text).items()
        if name.endswith("_total")
        for labels, value in samples
    }


def holds(text: str) -> None:
    """Received = forwarded + refused + dropped + abandoned + waiting, for every topic shown and for the others."""
    found = series(text)
    for labels, received in found.get("sluice_messages_received_total", []):
        names = [*(f"sluice_messages_{each}_total" for each in SETTLED), "sluice_messages_waiting"]
        parts = [value for name in names for other, value in found.get(name, []) if labels.items() <= other.items()]
        assert received == sum(parts), labels


class Worker:
    """Accounts with room for few topics, and messages that wait."""

    def __init__(self) -> None:
        self.accounts = Accounts(most=6, most_shown=3)
        self.judge = Judge(RuleSet(()))
        self.waiting: dict[Key, int] = {}
        self.received = 0

    def second(self, topic: int, messages: int, left: int, now: int) -> None:
        """Some come, and all but `left` go."""
        key = key_of(self.judge, b't"%d' % topic)
        tally = self.accounts.tally_of(key)
        tally.receive(messages, now)
        self.received += messages
        waiting = self.waiting.pop(key, 0) + messages
        self.waiting[key] = left = min(left, waiting)
        tally.refused += (waiting - left) // 3
        tally.messages += waiting - left - (waiting - left) // 3
        self.accounts.fold(now)
        list(self.accounts.tick(1.0, now))

    def idle(self, now: int) -> None:
        for _ in range(11):
            list(self.accounts.tick(1.0, now))

    def told(self) -> dict[str, scrapes.Family]:
        text = "".join(topic_lines(self.accounts))
        holds(text)
        assert len(self.accounts.topics) <= 6 + 1
        assert self.received == self.accounts.everything.received
        return scrapes.parse(text)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),  # worker
        st.integers(0, 11),  # topic
        st.integers(0, 50),  # messages
        st.sampled_from([0, 0, 0, 1, 60]),  # left waiting
        st.integers(1, 4),  # seconds of that
        st.sampled_from([1, 1, 12, 700, 100_000]),  # seconds until the next
    ),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(events=EVENTS, ends=st.sets(st.integers(0, 29)))
def test_no_counter_ever_goes_back_whatever_topics_and_workers_come_and_go(
    events: list[tuple[str, int, int, int, int, int]], ends: set[int]
) -> None:
    """Series end and begin, at 0, as topics are forgotten; what is summed under __other__ stays there."""
    workers: dict[str, Worker] = {}
    named = named_series.NamedSeries(TOPIC, 4)
    before: dict[tuple[str, tuple[str, ...]], float] = {}
    now = 10**9

    def scrape() -> None:
        nonlocal before
        living = [(name, worker.told()) for name, worker in workers.items()]
        text = "".join(scrapes.lines(scrapes.merge_families(living, {}, [named], now)))
        holds(text)
        found = counters(text)
        assert {name: value for name, value in before.items() if found.get(name, value) < value} == {}
        assert {name for name, value in before.items() if OTHER in name[1] and value} <= found.keys()
        assert len({labels for name, labels in found if name == "sluice_messages_forwarded_total"}) <= 4 + 1
        before = found

    for number, (worker, topic, messages, left, seconds, pause) in enumerate(events):
        for _ in range(seconds):
            workers.setdefault(worker, Worker()).second(topic, messages, left, now)
            now += 10**9
            scrape()
        if pause > 1:
            now += pause * 10**9
            for each in workers.values():
                each.idle(now)
        if number in ends:
            named.report(worker, workers.pop(worker).told(), now)
            named.retire_worker(worker, now)
            scrape()


def test_of_several_workers_the_limit_is_told_once_and_its_last_origin_wins() -> None:
    def told(origin: str, rate: int) -> dict[str, scrapes.Family]:
        seen = exposition.family("sluice_messages_received_total", [(("rocketmq", "o", "produce"), 1)])
        limit = exposition.family("sluice_topic_limit", [(("rocketmq", "o", "produce", "messages", origin), rate)])
        return scrapes.parse("".join((*seen, *limit)))

    found = scrapes.merge_families([("1", told("file", 500)), ("2", told("override", 40))], {}, named_series.all_named())
    assert list(found["sluice_topic_limit"].series.values()) == [40]
    assert 'origin="override"' in next(iter(found["sluice_topic_limit"].series))


def test_the_process_tells_what_every_exporter_tells() -> None:
    found = {name: samples[0][1] for name, samples in series("".join(process_lines())).items()}
    assert found["process_virtual_memory_bytes"] >= found["process_resident_memory_bytes"] > 1_000_000
    assert 3 <= found["process_open_fds"] <= found["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    age = float(Path(f"/proc/{os.getpid()}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    began = time.time() - (uptime - age / os.sysconf("SC_CLK_TCK"))
    assert abs(found["process_start_time_seconds"] - began) < 5
    read, write = os.pipe()
    try:
        assert series("".join(process_lines()))["process_open_fds"][0][1] == found["process_open_fds"] + 2
    finally:
        os.close(read)
        os.close(write)
