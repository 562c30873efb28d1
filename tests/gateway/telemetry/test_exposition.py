"""The exposition: what a Prometheus parser reads out of it."""

from __future__ import annotations

from gateway.counting.accounts import MAX_TOPICS_SHOWN, OTHER, Accounts
from gateway.counting.histogram import Histogram
from gateway.telemetry import exposition
from gateway.telemetry.collector import candidate_samples
from gateway.telemetry.topic_metrics import topic_lines
from limiter.buckets.candidate import CandidateCounts
from limiter.keys import Key, Origin
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic
from support.expositions import series


def account(topics: int) -> Accounts:
    accounts = Accounts()
    origin = Origin("rocketmq", Sender("rocket", "10.0.0.7", None), b"")
    for number in range(topics):
        key = Key(origin, rocketmq_topic(b"t%d" % number), None, "produce")
        accounts.note(key)
        key.tally.received = 10 + number
        key.tally.messages = 7 + number
        key.tally.refused = 2
        key.tally.dropped = 1
    accounts.fold(1)
    return accounts


def test_received_is_what_became_of_it_for_every_topic() -> None:
    found = series("".join(topic_lines(account(3))))
    for labels, received in found["sluice_messages_received_total"]:
        parts = [
            sum(value for other, value in found[name] if other["topic"] == labels["topic"])
            for name in (
                "sluice_messages_forwarded_total", "sluice_messages_refused_total", "sluice_messages_dropped_total",
                "sluice_messages_abandoned_total", "sluice_messages_waiting",
            )
        ]  # fmt: skip
        assert received == sum(parts)
        assert parts[1] == 2


def test_only_topics_that_have_had_something_delivered_again_have_a_series_for_it() -> None:
    accounts = account(3)
    accounts.topics["rocketmq", "t1", "produce"].redelivered = 5
    found = series("".join(topic_lines(accounts)))["sluice_messages_redelivered_total"]
    assert [(labels["topic"], value) for labels, value in found] == [("t1", 5)]


def test_a_candidates_verdicts_are_counted_by_rule() -> None:
    counts = CandidateCounts(0)
    counts.add(9, 3, "10.0.0.7", 1)
    found = series("".join(exposition.family("sluice_candidate_messages_total", candidate_samples({"orders": counts}))))
    assert found == {
        "sluice_candidate_messages_total": [({"rule": "orders", "result": "admitted"}, 9.0), ({"rule": "orders", "result": "refused"}, 3.0)]
    }


def test_a_scrape_is_one_moment_whatever_happens_while_it_is_written() -> None:
    """Even the topics summed under __other__, and topics that come while it is written."""
    accounts = account(MAX_TOPICS_SHOWN + 20)
    histogram = Histogram((0.1,))
    histogram.observe(0.05)
    refused = {"workers": 1}
    lines = [
        topic_lines(accounts),
        exposition.histogram("sluice_overhead_seconds", ((), histogram)),
        exposition.family("sluice_retries_refused_total", (((group,), count) for group, count in refused.items())),
    ]
    written = []
    for part in lines:
        for number, text in enumerate(part):
            written.append(text)
            for totals in accounts.topics.values() if number % 500 == 0 else ():
                totals.received += 3
                totals.forwarded += 2
            accounts.totals("rocketmq", f"new{number}").received += 1
            histogram.observe(0.05)
            refused[f"group{number}"] = number
    found = series("".join(written))
    waiting = {labels["topic"]: value for labels, value in found["sluice_messages_waiting"]}
    assert len(waiting) == MAX_TOPICS_SHOWN + 1
    assert sum(value for _, value in found["sluice_messages_received_total"]) == sum(10 + number for number in range(520))
    for labels, received in found["sluice_messages_received_total"]:
        names = ("forwarded", "refused", "dropped", "abandoned")
        gone = [{each["topic"]: value for each, value in found[f"sluice_messages_{name}_total"]} for name in names]
        assert received == sum(each[labels["topic"]] for each in gone) + waiting[labels["topic"]]
    assert (found["sluice_overhead_seconds_count"], found["sluice_overhead_seconds_sum"]) == ([({}, 1)], [({}, 0.05)])
    assert found["sluice_retries_refused_total"] == [({"group": "workers"}, 1)]


def test_topics_beyond_the_cap_are_summed_under_other() -> None:
    topics = MAX_TOPICS_SHOWN + 25
    found = series("".join(topic_lines(account(topics))))["sluice_messages_received_total"]
    assert len(found) == MAX_TOPICS_SHOWN + 1
    assert sum(value for _, value in found) == sum(10 + number for number in range(topics))
    assert [value for labels, value in found if labels["topic"] == OTHER] == [
        sum(10 + number for number in range(MAX_TOPICS_SHOWN, topics))
    ]


def test_hostile_topic_names_are_escaped() -> None:
    accounts = Accounts()
    accounts.totals("rocketmq", 'a"b\\c\nd{}').received = 5
    found = series("".join(topic_lines(accounts)))
    assert found["sluice_messages_received_total"] == [({"protocol": "rocketmq", "topic": 'a"b\\c\nd{}', "operation": "produce"}, 5)]


def test_histogram_buckets_are_cumulative_and_include_their_bound() -> None:
    histogram = Histogram((0.1, 0.5))
    for seconds in (0.05, 0.1, 0.3, 9.0):
        histogram.observe(seconds)
    found = series("".join(exposition.histogram("sluice_overhead_seconds", ((), histogram))))
    assert [(labels["le"], value) for labels, value in found["sluice_overhead_seconds_bucket"]] == [("0.1", 2), ("0.5", 3), ("+Inf", 4)]
    assert found["sluice_overhead_seconds_count"] == [({}, 4)]
    assert found["sluice_overhead_seconds_sum"] == [({}, 9.45)]


def test_pieces_are_small_and_complete() -> None:
    lines = [f"line {number}\n" for number in range(exposition.LINES_PER_PIECE * 2 + 5)]
    found = list(exposition.pieces(lines))
    assert len(found) == 3
    assert "".join(found) == "".join(lines)
