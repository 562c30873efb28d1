"""The limit in force of each topic, results by rule, and series that never go back whatever topics come."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from gateway.counting.accounts import Accounts
from gateway.telemetry import exposition, topic_metrics
from gateway.telemetry.process_metrics import process_lines
from gateway.telemetry.topic_limits import TopicLimits
from gateway.telemetry.topic_metrics import topic_lines
from gateway.workers import scrapes
from limiter.judge import Judge
from limiter.keys import Key, Tally
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule import Match, Override, Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import rocketmq_topic
from support.expositions import series

ORDERS = Rule("orders", Match(topic="orders"), "topic", Limit(messages=Rate(500), bytes=Rate(2_000_000)))
TRIED = Rule("tried", Match(topic="tried"), "topic", Limit(messages=Rate(5)), mode="shadow")
SETTLED = ("forwarded", "refused", "dropped", "abandoned")


def key_of(judge: Judge, topic: bytes) -> Key:
    return judge.key(judge.origin("rocketmq", "rocket", "10.0.0.7", None), topic, rocketmq_topic(topic))


def limits(found: TopicLimits, rules: RuleSet) -> dict[tuple[str, str, str], float]:
    samples = series("".join(found.lines(rules))).get("sluice_topic_limit", [])
    return {(labels["topic"], labels["dimension"], labels["origin"]): value for labels, value in samples}


def test_a_topics_limit_is_the_one_in_force_and_an_old_origin_vanishes() -> None:
    rules = RuleSet((ORDERS, TRIED))
    judge, found = Judge(rules), TopicLimits()
    for topic in (b"orders", b"tried", b"free"):
        found.add(key_of(judge, topic), Tally())
    from_file = {("orders", "messages", "file"): 500, ("orders", "bytes", "file"): 2_000_000}
    assert limits(found, rules) == from_file, "neither what is only tried nor what has no limit"
    changed = RuleSet((ORDERS,), overrides={rocketmq_topic(b"orders"): Override(messages=Rate(40))})
    assert limits(found, changed) == {("orders", "messages", "override"): 40, ("orders", "bytes", "override"): 2_000_000}
    assert limits(found, rules) == from_file


def test_results_are_counted_by_rule_from_zero_and_stay_when_the_rule_goes() -> None:
    rules = RuleSet((ORDERS, TRIED))
    judge, found = Judge(rules), TopicLimits()
    assert set(found.rule_samples(rules)) >= {(("orders", "passed"), 0), (("tried", "shadow_refused"), 0)}
    key = key_of(judge, b"orders")
    judge.decide([Request(key, 1, 1, 10)], 0)
    key.tally.messages, key.tally.refused, key.tally.dropped, key.tally.delayed = 7, 3, 2, 1
    key.tally.refused_by = key.buckets[0]
    found.add(key, key.tally)
    counts = dict(found.rule_samples(RuleSet(())))
    assert [counts["orders", result] for result in ("passed", "refused", "dropped", "delayed", "shadow_refused")] == [7, 3, 2, 1, 0]


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
    for labels, received in found["sluice_messages_received_total"]:
        names = [*(f"sluice_messages_{each}_total" for each in SETTLED), "sluice_messages_waiting"]
        parts = [value for name in names for other, value in found.get(name, []) if labels.items() <= other.items()]
        assert received == sum(parts), labels


EVENTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 11), st.integers(1, 50)), max_size=40
)  # worker, topic, messages


@given(events=EVENTS, ends=st.sets(st.integers(0, 39)))
def test_no_counter_ever_goes_back_whatever_topics_and_workers_come_and_go(events: list[tuple[str, int, int]], ends: set[int]) -> None:
    with patch.object(topic_metrics, "MAX_TOPICS_SHOWN", 3):
        workers: dict[str, Accounts] = {}
        retired: dict[str, scrapes.Family] = {}
        shown = scrapes.ShownTopics(4)
        before: dict[tuple[str, tuple[str, ...]], float] = {}
        for number, (worker, topic, messages) in enumerate(events):
            totals = workers.setdefault(worker, Accounts()).totals("rocketmq", f't"{topic}')
            totals.received += messages
            totals.forwarded += messages // 2
            totals.refused += messages // 3
            totals.tick(1.0)
            living = [(name, scrapes.parse("".join(topic_lines(accounts)))) for name, accounts in workers.items()]
            text = "".join(scrapes.lines(scrapes.merged(living, retired, shown)))
            now = counters(text)
            assert {name: value for name, value in before.items() if now.get(name, 0) < value} == {}
            assert len({labels for name, labels in now if name == "sluice_messages_forwarded_total"}) <= 4 + 1
            for accounts in workers.values():
                holds("".join(topic_lines(accounts)))
            before = now
            if number in ends:
                for totals in workers[worker].topics.values():
                    totals.abandoned += totals.waiting  # its clients are gone
                scrapes.add(retired, scrapes.parse("".join(topic_lines(workers.pop(worker)))), None)
                living = [(name, scrapes.parse("".join(topic_lines(accounts)))) for name, accounts in workers.items()]
            holds("".join(scrapes.lines(scrapes.merged(living, retired, shown))))


def test_of_several_workers_the_limit_is_told_once_and_its_last_origin_wins() -> None:
    def told(origin: str, rate: int) -> dict[str, scrapes.Family]:
        return scrapes.parse("".join(exposition.family("sluice_topic_limit", [(("rocketmq", "o", "produce", "messages", origin), rate)])))

    found = scrapes.merged([("1", told("file", 500)), ("2", told("override", 40))], {}, scrapes.ShownTopics())
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
