"""`limit_reached` and `limit_recovered`: when, how often, with which fields."""

from __future__ import annotations

import logging
import time
from datetime import datetime

import pytest
from msgspec import to_builtins

from gateway.clock import now_ns
from gateway.counting.accounts import TopicTotals
from gateway.pipeline.actions.counting import count_held, count_outcome
from gateway.pipeline.conversation import REFUSED
from gateway.pipeline.parts import REQUEST, Part
from gateway.telemetry.limit_events import AGAIN_NS, BOUTS_NS, MAX_EPISODES, RECOVERED_NS, LimitEvents
from limiter.judge import Judge
from limiter.keys import Key, Tally
from limiter.limits import SECOND, Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from limiter.topics import amqp_topic, rocketmq_topic

LIMIT = Limit(messages=Rate(500), bytes=Rate(10 << 20))
PER_TOPIC = Rule("orders", Match(protocol="amqp"), limit=LIMIT, open_for_ns=0, place="limits.yaml:7")
PER_CONNECTION = Rule("each", Match(protocol="amqp"), per="connection", limit=LIMIT, open_for_ns=0)
RETRIES = Rule("retries", Match(protocol="rocketmq", topic="%RETRY%*"), limit=Limit(messages=Rate(100)), open_for_ns=0)
WORK = Rule("work", Match(protocol="amqp", operation=("produce", "declare")), per="vhost", limit=Limit(messages=Rate(100)), open_for_ns=0)
GIVEN_BACK = Rule("loops", Match(protocol="rocketmq", operation="requeue"), per="group", limit=Limit(messages=Rate(10)), open_for_ns=0)
NOTHING = Rule("none", Match(protocol="amqp"), limit=Limit(messages=Rate(0)), open_for_ns=0)


class Over:
    """A judge whose refusals are settled, counted and folded as the gateway does it."""

    def __init__(self, rule: Rule, caplog: pytest.LogCaptureFixture) -> None:
        self.judge = Judge(RuleSet((rule,)))
        self.totals = TopicTotals("amqp", "%2F/orders/created")
        self.events = LimitEvents({("amqp", "%2F/orders/created", "produce"): self.totals})
        self.now = now_ns()
        self.caplog = caplog
        self.origin = self.judge.origin("amqp", "rabbit", "10.0.0.7", "shop", b"/", 17)

    def rocketmq_key(self, client: str, topic: bytes, group: bytes) -> Key:
        return self.judge.key(self.judge.origin("rocketmq", "rocket", client, None, b"", 18), topic, rocketmq_topic(topic), group)

    def key(self, routing_key: bytes = b"created") -> Key:
        return self.judge.key(self.origin, routing_key, amqp_topic(b"/", b"orders", routing_key))

    def work_key(self, client: str, operation: str) -> Key:
        origin = self.judge.origin("amqp", "rabbit", client, None, b"/", 19)
        return self.judge.key(origin, operation.encode(), amqp_topic(b"/", b"orders", b"created"), operation=operation)

    def ask(self, count: int, *, key: Key | None = None, hold: bool = False, given_back: Key | None = None) -> None:
        """`count` messages of `key`; what is over the limit is refused, or held."""
        key = key or self.key()
        part = Part(REQUEST, 1, b"", 0, 0, key, count, 1, 10)
        part.copies = None if given_back is None else [given_back]
        self.judge.decide([part], self.now)
        key.tally.received += count
        if part.passed < count:
            part.count -= part.passed
            key.tally.refused_by, key.tally.retry_after_ns = part.bucket, part.wait_ns
            if hold:
                count_held(part)
            else:
                count_outcome(part, REFUSED)

    def fold(self, *keys: Key) -> None:
        for key in keys or (self.key(),):
            tally, key.tally = key.tally, Tally()
            self.events.add(key, tally)

    def reached(self) -> list[dict[str, object]]:
        return [fields for name, fields in self.said() if name == "limit_reached"]

    def said(self) -> list[tuple[str, dict[str, object]]]:
        return [(record.getMessage(), record.fields) for record in self.caplog.records]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("sluice"), "propagate", True)
    caplog.set_level(logging.INFO, logger="sluice")


def test_the_first_refusal_is_said_and_names_everything(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(PER_TOPIC, caplog)
    over.ask(700)
    over.fold()
    over.events.tick(over.now)
    since = over.said()[0][1].pop("since")
    assert abs(datetime.fromisoformat(str(since)).timestamp() - time.time()) < 60
    assert over.said() == [
        (
            "limit_reached",
            {
                "listener": "rabbit", "protocol": "amqp", "topic": "%2F/orders/created", "per": "topic", "thing": "%2F/orders/created",
                "rule": "orders", "place": "limits.yaml:7", "origin": "default", "limit": "500/s, 10MiB/s",
                "seconds": 1.0, "rate": 700, "refused": 200, "delayed": 0, "waiting": 0, "retry_after_ms": 2.0, "clients": 1,
                "client_refused": 200,
                "client": "10.0.0.7", "user": "shop", "operation": "produce",
            },
        )
    ]  # fmt: skip


def test_a_loop_of_requeues_names_its_consumer(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(PER_TOPIC, caplog)
    over.key().consumer = "ctag1.4"
    over.ask(700, hold=True)
    over.fold()
    over.events.tick(over.now)
    assert over.said()[0][1]["consumer"] == "ctag1.4"


def test_all_topics_that_draw_from_one_bucket_are_one_event_with_its_numbers(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(PER_CONNECTION, caplog)
    keys = [over.key(b"k%d" % number) for number in range(5)]
    for key in keys:
        over.ask(200, key=key)
    over.fold(*keys)
    over.events.tick(over.now)
    ((name, fields),) = over.said()
    assert (name, fields["per"], fields["thing"], fields["topic"]) == ("limit_reached", "connection", "17", "%2F/orders/k4")
    assert (fields["rate"], fields["refused"]) == (1000, 500)


def test_a_retry_storm_names_the_consumer_group_and_the_worst_of_its_clients(caplog: pytest.LogCaptureFixture) -> None:
    """Also where it comes as sends to the retry topic, from a producer group that all clients share."""
    over = Over(RETRIES, caplog)
    keys = [
        over.rocketmq_key("10.0.0.7", b"%RETRY%workers", b"CLIENT_INNER_PRODUCER"),
        over.rocketmq_key("10.0.0.8", b"%RETRY%workers", b"workers"),
        over.rocketmq_key("10.0.0.9", b"%RETRY%workers", b"workers"),
    ]
    for key, count in zip(keys, (100, 700, 30), strict=True):
        over.ask(count, key=key)
    over.fold(*keys)
    over.events.tick(over.now)
    ((_, fields),) = over.said()
    assert (fields["topic"], fields["group"], fields["refused"]) == ("%RETRY%workers", "workers", 730)
    assert (fields["client"], fields["client_refused"], fields["clients"]) == ("10.0.0.8", 700, 2)
    assert over.events.over()[0].group == "workers"


def test_a_rule_for_several_operations_is_one_limit_and_names_the_worst_client_with_its_operation(caplog: pytest.LogCaptureFixture) -> None:
    """It had an episode per operation: the first one, of a client that was within the limit, had all that the other one was over."""
    over = Over(WORK, caplog)
    publisher, declarer = over.work_key("10.0.0.1", "produce"), over.work_key("10.0.0.2", "declare")
    over.ask(1, key=publisher)
    over.ask(5000, key=declarer, hold=True)
    over.fold(publisher, declarer)
    over.events.tick(over.now)
    ((name, fields),) = over.said()
    assert (name, fields["operation"], fields["client"], fields["clients"]) == ("limit_reached", "declare", "10.0.0.2", 1)
    assert (fields["rate"], fields["delayed"]) == (5001, 4901)
    over.events.tick(over.now + RECOVERED_NS + SECOND)
    assert [(name, fields["operation"]) for name, fields in over.said()[1:]] == [("limit_recovered", "declare")]


def test_the_alert_of_such_a_rule_is_the_same_whichever_operation_is_the_worst(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(WORK, caplog)
    found = []
    for second, (client, operation) in enumerate((("10.0.0.1", "produce"), ("10.0.0.2", "declare"))):
        key = over.work_key(client, operation)
        over.ask(500, key=key)
        over.fold(key)
        over.events.tick(over.now + second * AGAIN_NS)
        found += over.events.over()
    assert [(each.operation, each.operations) for each in found] == [("produce", "produce, declare"), ("declare", "produce, declare")]
    assert len({each.key() for each in found}) == 1


def test_a_limit_that_was_not_told_of_does_not_recover(caplog: pytest.LogCaptureFixture) -> None:
    """Its refusal is judged again, and costs nothing new."""
    over = Over(PER_TOPIC, caplog)
    over.ask(1)
    over.key().tally.refused_by = over.key().buckets[0]
    over.fold()
    over.events.tick(over.now)
    over.events.tick(over.now + RECOVERED_NS + SECOND)
    assert (over.said(), over.events.over()) == ([], [])


def test_bouts_within_a_minute_are_one_since_the_first(caplog: pytest.LogCaptureFixture) -> None:
    """A flood that takes breath for three seconds was over its limit since just now, beside a chart that was red for minutes."""
    over = Over(PER_TOPIC, caplog)

    def bout(at: int) -> tuple[float, float]:
        over.events.tick(at - SECOND)
        over.ask(1000)
        over.fold()
        over.events.tick(at)
        (facts,) = over.events.over()
        over.events.tick(at + RECOVERED_NS + SECOND)
        assert over.events.over() == []
        return facts.since, facts.bouts_since

    first, again, later = bout(over.now), bout(over.now + 30 * SECOND), bout(over.now + 30 * SECOND + BOUTS_NS + 6 * SECOND)
    assert first[0] == first[1] == again[1] < again[0] < later[0] == later[1]


def test_what_waits_for_no_message_names_who_waits_and_not_who_was_there_first(caplog: pytest.LogCaptureFixture) -> None:
    """A request for messages is counted at the limit, and not in its key's tally."""
    over = Over(WORK, caplog)
    publisher, declarer = over.work_key("10.0.0.1", "produce"), over.work_key("10.0.0.2", "declare")
    over.ask(1, key=publisher)
    over.ask(1, key=declarer)
    (bucket,) = declarer.buckets
    bucket.held += 1
    declarer.tally.refused_by = bucket
    over.fold(publisher, declarer)
    over.events.tick(over.now)
    ((_, fields),) = over.said()
    assert (fields["client"], fields["delayed"]) == ("10.0.0.2", 1)


def test_a_send_back_over_a_limit_of_requeues_is_told_as_one_with_what_was_offered(caplog: pytest.LogCaptureFixture) -> None:
    """RocketMQ's are judged as publishes to the retry topic: the line said operation=produce and rate=0, and `sluice why` found none."""
    over = Over(GIVEN_BACK, caplog)
    key = over.rocketmq_key("10.0.0.7", b"%RETRY%workers", b"workers")
    given_back = over.judge.key(key.origin, b"back", rocketmq_topic(b"%RETRY%workers"), b"workers", "requeue")
    over.ask(50, key=key, hold=True, given_back=given_back)
    over.fold(key)
    over.events.tick(over.now)
    ((_, fields),) = over.said()
    assert (fields["operation"], fields["rate"], fields["delayed"]) == ("requeue", 50, 40)
    assert (fields["per"], fields["thing"], fields["topic"], fields["client"]) == ("group", "workers", "%RETRY%workers", "10.0.0.7")
    (found,) = over.events.over()
    assert (found.operation, found.key()) == ("requeue", ("group", "workers", "loops", "requeue", ""))


def test_each_line_names_the_worst_client_since_the_line_before(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(RETRIES, caplog)
    keys = [over.rocketmq_key(f"10.0.0.{number}", b"%RETRY%workers", b"workers") for number in range(2)]
    for second, key in enumerate(keys):
        over.ask(200 - 100 * second, key=key)
        over.fold(key)
        over.events.tick(over.now + second * AGAIN_NS)
    assert [(fields["client"], fields["client_refused"], fields["clients"]) for fields in over.reached()] == [
        ("10.0.0.0", 100, 1),
        ("10.0.0.1", 100, 1),
    ]


def test_messages_refused_after_a_hold_count_for_their_client_too(caplog: pytest.LogCaptureFixture) -> None:
    """Held in one second, refused in a later one, in which nobody judged it."""
    over = Over(RETRIES, caplog)
    key = over.rocketmq_key("10.0.0.7", b"%RETRY%workers", b"workers")
    over.ask(130, key=key, hold=True)
    over.fold(key)
    over.events.tick(over.now)
    part = Part(REQUEST, 1, b"", 0, 0, key, 30, 1, 10)
    part.bucket = key.buckets[0]
    count_outcome(part, REFUSED)
    over.fold(key)
    over.events.tick(over.now + AGAIN_NS)
    assert [(fields["delayed"], fields["refused"], fields["client"], fields["client_refused"]) for fields in over.reached()] == [
        (30, 0, "10.0.0.7", 0),
        (0, 30, "10.0.0.7", 30),
    ]


def test_a_topics_line_names_its_producer_group(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(Rule("all", Match(protocol="rocketmq"), limit=Limit(messages=Rate(1)), open_for_ns=0), caplog)
    key = over.rocketmq_key("10.0.0.7", b"orders", b"shop")
    over.ask(2, key=key)
    over.fold(key)
    over.events.tick(over.now)
    assert over.said()[0][1]["group"] == "shop"
    assert over.events.over()[0].group == "shop"


def test_none_has_a_line_for_what_only_waits_on(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(PER_TOPIC, caplog)
    over.ask(505, hold=True)
    for _ in range(10):  # folded at every scrape of the metrics
        over.ask(3)
        over.fold()
    over.events.tick(over.now)
    over.key().tally.refused_by = over.key().buckets[0]  # judged again, and still held
    over.fold()
    over.events.tick(over.now + AGAIN_NS)
    assert [(fields["refused"], fields["delayed"]) for fields in over.reached()] == [(30, 5)]


def test_one_that_goes_on_is_told_at_once_and_then_each_minute_with_the_sums(caplog: pytest.LogCaptureFixture) -> None:
    """It was told each second: two topics were 90 MB of log a day."""
    over = Over(PER_TOPIC, caplog)
    for second in range(121):
        over.now += SECOND
        over.ask(700 if second == 0 else 510)
        over.fold()
        over.events.tick(over.now)
    assert [(fields["seconds"], fields["rate"], fields["refused"]) for fields in over.reached()] == [
        (1.0, 700, 200), (60.0, 510, 600), (60.0, 510, 600)
    ]  # fmt: skip
    (described,) = over.events.over()
    assert (described.rate, described.refused, described.client_share) == (510, 1400, 1.0)


def test_what_is_held_is_over_its_limit_until_its_turn_has_come(caplog: pytest.LogCaptureFixture) -> None:
    """At 1/10s nothing is judged for longer than RECOVERED_NS, and it is not over for that."""
    over = Over(Rule("slow", Match(protocol="amqp"), limit=Limit(messages=Rate(1, 10 * SECOND)), open_for_ns=0), caplog)
    over.ask(3, hold=True)
    over.fold()
    over.totals.received, over.totals.forwarded = 3, 1
    over.events.tick(over.now)
    assert over.said()[0][1]["waiting"] == 2
    over.events.tick(over.now + RECOVERED_NS + 5 * SECOND)
    assert [item.waiting for item in over.events.over()] == [2]
    over.totals.forwarded = 3
    over.events.tick(over.now + RECOVERED_NS + 6 * SECOND)
    assert over.events.over() == []


def test_the_rate_is_per_second_however_late_the_tick(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(PER_TOPIC, caplog)
    over.events.tick(over.now)
    over.ask(900)
    over.fold()
    over.events.tick(over.now + 3 * SECOND)
    assert over.said()[0][1]["rate"] == 300


def test_a_limit_of_nothing_gives_no_time(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(NOTHING, caplog)
    over.ask(1)
    over.fold()
    over.events.tick(over.now)
    assert "retry_after_ms" not in over.said()[0][1]


def test_recovery_is_said_once_with_what_was_refused_in_all(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(PER_TOPIC, caplog)
    for second, count in enumerate((501, 30)):
        over.ask(count)
        over.fold()
        over.events.tick(over.now + second * SECOND)
    assert len(over.said()) == 1
    over.events.tick(now_ns() + RECOVERED_NS + SECOND)
    over.events.tick(now_ns() + 2 * RECOVERED_NS)
    name, fields = over.said()[-1]
    assert (name, fields["refused"], fields["rule"], fields["listener"], len(over.said())) == ("limit_recovered", 31, "orders", "rabbit", 2)


def test_what_is_over_is_described_from_the_first_line_until_it_has_recovered(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(PER_TOPIC, caplog)
    for second, count in enumerate((501, 30)):
        over.ask(count)
        over.fold()
        assert len(over.events.over()) == second  # not before it was said
        over.events.tick(over.now + second * SECOND)
    (found,) = over.events.over()
    described = to_builtins(found)
    since = described.pop("since")
    assert since == described.pop("bouts_since")
    assert isinstance(since, float)
    assert abs(since - time.time()) < 60
    assert described == {
        "per": "topic", "thing": "%2F/orders/created", "rule": "orders", "operation": "produce", "operations": "",
        "place": "limits.yaml:7", "origin": "default", "limit": "500/s, 10MiB/s", "rate": 30, "refused": 31, "delayed": 0,
        "protocol": "amqp", "topic": "%2F/orders/created", "listener": "rabbit", "client": "10.0.0.7", "user": "shop", "group": "",
        "client_refused": 30, "clients": 1, "waiting": 0, "client_over": {"10.0.0.7": 30}, "over": 30, "client_share": 1.0,
    }  # fmt: skip
    over.events.tick(now_ns() + RECOVERED_NS + SECOND)
    assert over.events.over() == []


def test_made_up_names_do_not_fill_the_log_or_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    over = Over(Rule("few", Match(protocol="amqp"), limit=Limit(messages=Rate(1)), open_for_ns=0), caplog)
    keys = [over.key(b"made-up-%d" % number) for number in range(MAX_EPISODES + 20)]
    for key in keys:
        over.ask(3, key=key)
    over.fold(*keys)
    caplog.clear()
    over.events.tick(over.now)
    assert [name for name, _ in over.said()] == ["limit_reached"] * MAX_EPISODES + ["limits_reached"]
    assert over.said()[-1][1]["messages"] == 20 * 2


def test_an_episode_keeps_its_beginning_until_it_has_recovered(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    over = Over(PER_TOPIC, caplog)
    clock = [1795247411.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    for second in range(3):
        over.ask(700 if second == 0 else 600)
        over.fold()
        clock[0] += 1
        over.now += SECOND
        over.events.tick(now_ns())
    over.events.tick(now_ns() + RECOVERED_NS + SECOND)
    over.ask(700)
    over.fold()
    over.events.tick(now_ns())
    first, later = "2026-11-21T07:50:11.000Z", "2026-11-21T07:50:14.000Z"
    assert [(name, fields["since"]) for name, fields in over.said()] == [
        ("limit_reached", first), ("limit_recovered", first), ("limit_reached", later)
    ]  # fmt: skip
