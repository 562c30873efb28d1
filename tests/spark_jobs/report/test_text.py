"""One topic on a terminal of 80 columns."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.report.text import for_encoding, render_topic
from support.models import quota_evidence

NOW = quota_evidence.snapshot(12)


def test_every_line_fits_80_columns_and_ascii_can_draw_it() -> None:
    for topic in (*(quota.topic for quota in NOW.quotas), "launch", "billing"):
        lines = render_topic(NOW, topic)
        assert lines
        assert max(map(len, lines)) <= 80
        assert all(for_encoding(line, "ascii").isascii() and len(for_encoding(line, "ascii")) == len(line) for line in lines)
        assert all(for_encoding(line, "utf-8") == line for line in lines)


def test_the_quota_its_reason_the_chart_and_the_nights_are_shown() -> None:
    text = "\n".join(render_topic(NOW, "stock-00003"))
    for part in (
        "stock-00003 (rocketmq, held)",
        "messages: 32.4k/s, burst 324k; was 16.2k/s (\u00d7 2)",
        "forecast 3.6k/s \u00d7 peakiness 5 \u00d7 k 1.8",
        "as published         0.005 %        \u00d7 3.1",
        "oracle ",
        "20 Nov",
        "gw-a 62 %, gw-b 38 %",
        "Computed 2026-11-21 00:15:07 UTC (2026-11-21 01:15 Europe/Berlin)",
    ):
        assert part in text
    assert text.count("━") > 2 * 20


def test_a_topic_that_is_learned_or_pinned_says_so() -> None:
    assert render_topic(NOW, "launch")[0] == "launch (rocketmq) has no quota. learning: 1 of 3 active days"
    assert render_topic(NOW, "launch", "amqp") == []
    assert render_topic(NOW, "no such") == []


def test_one_day_of_traffic_is_a_day() -> None:
    quota = replace(NOW.quotas[-1], evidence={**NOW.quotas[-1].evidence, "days": 1})
    assert "learned from 1 day with traffic" in render_topic(replace(NOW, quotas=(quota,)), quota.topic)


def test_an_older_snapshot_says_what_is_not_known_yet() -> None:
    text = "\n".join(render_topic(quota_evidence.older(NOW), "mail-00004"))
    assert text.count("not known yet") >= 6
    assert "0 %" not in text


def test_a_topic_of_two_protocols_is_shown_twice_and_one_of_them_on_request() -> None:
    other = replace(NOW.quotas[-1], protocol="amqp", topic="%2F/orders/a")
    both = replace(NOW, quotas=(*NOW.quotas, other, replace(other, protocol="rocketmq")))
    assert "\n".join(render_topic(both, other.topic)).count("learned from") == 2
    assert "\n".join(render_topic(both, other.topic, "amqp")).count("learned from") == 1
