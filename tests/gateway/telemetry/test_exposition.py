"""The exposition: what a Prometheus parser reads out of it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from gateway.counting.accounts import OTHER, Accounts
from gateway.counting.histogram import Histogram
from gateway.telemetry import exposition
from gateway.telemetry.metrics import candidate_samples
from limiter.decisions.candidate import CandidateCounts
from limiter.keys import Key, Origin, rocketmq_topic


def account(topics: int) -> Accounts:
    accounts = Accounts()
    origin = Origin("rocketmq", "rocket", "10.0.0.7", None, b"")
    for number in range(topics):
        key = Key(origin, rocketmq_topic(b"t%d" % number), None, "produce")
        accounts.note(key)
        key.tally.received = 10 + number
        key.tally.messages = 7 + number
        key.tally.refused = 2
        key.tally.dropped = 1
    accounts.fold(1)
    return accounts


def read(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_received_is_what_became_of_it_for_every_topic() -> None:
    found = read("".join(exposition.topic_lines(account(3))))
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


def test_what_a_rules_candidate_would_have_done_is_counted_by_rule() -> None:
    counts = CandidateCounts(0)
    counts.add(9, 3, "10.0.0.7", 1)
    found = read("".join(exposition.family("sluice_candidate_messages_total", "counter", "help", candidate_samples({"orders": counts}))))
    assert found == {
        "sluice_candidate_messages_total": [({"rule": "orders", "result": "admitted"}, 9.0), ({"rule": "orders", "result": "refused"}, 3.0)]
    }


def test_a_scrape_is_one_moment_whatever_happens_while_it_is_written() -> None:
    """Even the topics summed under __other__, and topics that come while it is written."""
    accounts = account(exposition.TOPICS_SHOWN + 20)
    histogram = Histogram((0.1,))
    histogram.observe(0.05)
    closed = {"client": 1}
    lines = [
        exposition.topic_lines(accounts),
        exposition.histogram("h", "help", ((), histogram)),
        exposition.family("closed", "counter", "help", (((("cause", cause),), count) for cause, count in closed.items())),
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
            closed[f"cause{number}"] = number
    found = read("".join(written))
    waiting = {labels["topic"]: value for labels, value in found["sluice_messages_waiting"]}
    assert len(waiting) == exposition.TOPICS_SHOWN + 1
    assert sum(value for _, value in found["sluice_messages_received_total"]) == sum(10 + number for number in range(520))
    for labels, received in found["sluice_messages_received_total"]:
        names = ("forwarded", "refused", "dropped", "abandoned")
        gone = [{each["topic"]: value for each, value in found[f"sluice_messages_{name}_total"]} for name in names]
        assert received == sum(each[labels["topic"]] for each in gone) + waiting[labels["topic"]]
    assert (found["h_count"], found["h_sum"], found["closed_total"]) == ([({}, 1)], [({}, 0.05)], [({"cause": "client"}, 1)])


def test_topics_beyond_the_cap_are_summed_under_other() -> None:
    topics = exposition.TOPICS_SHOWN + 25
    found = read("".join(exposition.topic_lines(account(topics))))["sluice_messages_received_total"]
    assert len(found) == exposition.TOPICS_SHOWN + 1
    assert sum(value for _, value in found) == sum(10 + number for number in range(topics))
    assert [value for labels, value in found if labels["topic"] == OTHER] == [sum(10 + number for number in range(25))]


def test_hostile_topic_names_are_escaped() -> None:
    accounts = Accounts()
    accounts.totals("rocketmq", 'a"b\\c\nd{}').received = 5
    found = read("".join(exposition.topic_lines(accounts)))
    assert found["sluice_messages_received_total"] == [({"protocol": "rocketmq", "topic": 'a"b\\c\nd{}', "operation": "produce"}, 5)]


def test_histogram_buckets_are_cumulative_and_include_their_bound() -> None:
    histogram = Histogram((0.1, 0.5))
    for seconds in (0.05, 0.1, 0.3, 9.0):
        histogram.observe(seconds)
    found = read("".join(exposition.histogram("h", "help", ((), histogram))))
    assert [(labels["le"], value) for labels, value in found["h_bucket"]] == [("0.1", 2), ("0.5", 3), ("+Inf", 4)]
    assert found["h_count"] == [({}, 4)]
    assert found["h_sum"] == [({}, 9.45)]


def test_pieces_are_small_and_complete() -> None:
    lines = [f"line {number}\n" for number in range(exposition.LINES_PER_PIECE * 2 + 5)]
    found = list(exposition.pieces(lines))
    assert len(found) == 3
    assert "".join(found) == "".join(lines)
