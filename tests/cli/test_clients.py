"""`sluice clients`: who is refused or held, over all topics, and by which library."""

from __future__ import annotations

from typing import Any

import pytest

from cli.clients import library_text

PIKA = {"product": "Pika Python Client Library", "version": "1.4.4", "platform": "Python 3.11.7"}


def client(**more: Any) -> dict[str, Any]:
    return {
        "protocol": "amqp", "listener": "rabbit", "client": "10.0.0.7", "user": "shop", "names": ["checkout-7"], "libraries": [PIKA],
        "topic": "%2F/amq.default/orders", "operation": "produce", "refused": 4096, "delayed": 0, "refused_per_second": 170.25,
        "delayed_per_second": 0.0, "refused_per_second_1s": 171.0, "delayed_per_second_1s": 0.0, "idle_seconds": 0.5, **more,
    }  # fmt: skip


def test_it_asks_for_the_worst_twenty_and_shows_each_with_its_library_and_worst_topic(sluice: Any, admin: Any) -> None:
    admin.topics = [client()]
    head, line = sluice("clients").out.splitlines()
    assert all(name in head for name in ("client", "user", "library", "refused/s", "topic", "refused"))
    assert all(word in line for word in ("10.0.0.7", "shop", "checkout-7", "pika 1.4.4", "170.25", "%2F/amq.default/orders", "4096"))
    (asked,) = admin.requests
    assert (asked.path, asked.query["sort"], asked.query["limit"]) == ("/v1/clients", "refused", "20")


def test_sorted_and_filtered_by_the_gateway(sluice: Any, admin: Any) -> None:
    admin.topics = [client()]
    assert sluice("clients", "list", "--sort", "total", "--limit", "3", "-q", "shop", "-o", "json").json == [client()]
    assert {name: admin.requests[0].query[name] for name in ("sort", "limit", "q")} == {"sort": "total", "limit": "3", "q": "shop"}


def test_nobody_over_a_limit_is_said_in_words(sluice: Any, admin: Any) -> None:
    admin.topics = []
    ran = sluice("clients")
    assert (ran.code, ran.err) == (0, "no client was over a limit in the last 10 minutes\n")


@pytest.mark.parametrize(
    ("protocol", "said", "text"),
    [
        ("amqp", [PIKA], "pika 1.4.4"),
        ("amqp", [PIKA, {"product": "RabbitMQ", "version": "5.20.0", "platform": "Java"}], "pika 1.4.4, Java amqp-client 5.20.0"),
        ("amqp", [{"product": "homegrown", "version": "3"}], "homegrown 3"),
        ("amqp", [{}], None),
        ("amqp", [], None),
        ("rocketmq", [{"language": "COBOL", "version": 7}], "COBOL"),
    ],
)
def test_a_library_has_the_name_that_people_call_it(protocol: str, said: list[dict[str, Any]], text: str | None) -> None:
    assert library_text({"protocol": protocol, "libraries": said}) == text
