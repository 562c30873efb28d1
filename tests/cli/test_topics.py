"""`sluice topics`: of a storm it names the consumer group and the clients that it comes from."""

from __future__ import annotations

from typing import Any


def topic(*clients: tuple[str, int, float], **more: Any) -> dict[str, Any]:
    return {
        "protocol": "rocketmq",
        "topic": "%RETRY%workers",
        "operation": "produce",
        "group": "workers",
        "clients": [
            {"client": address, "forwarded": 9, "refused": refused, "refused_per_second": rate} for address, refused, rate in clients
        ],
        **more,
    }


def last_columns(sluice: Any) -> tuple[str, str]:
    """What stands under group and refused most, which are the last."""
    head, line = sluice("topics").out.splitlines()
    at = head.index("refused most")
    return line[head.index("group") : at].strip(), line[at:].strip()


def test_names_the_group_and_the_clients_that_are_refused_now(sluice: Any, admin: Any) -> None:
    admin.topics = [topic(("10.0.0.7", 2000, 899.6), ("10.0.0.8", 600, 300.0), ("10.0.0.9", 7000, 0.0))]
    assert last_columns(sluice) == ("workers", "10.0.0.7 900/s, 10.0.0.8 300/s")


def test_names_the_clients_refused_earlier_once_none_is_refused_now(sluice: Any, admin: Any) -> None:
    admin.topics = [topic(("10.0.0.9", 7000, 0.0), ("10.0.0.7", 2000, 0.0))]
    assert last_columns(sluice) == ("workers", "10.0.0.9 7000, 10.0.0.7 2000")


def test_a_topic_that_nobody_is_refused_of_has_dashes(sluice: Any, admin: Any) -> None:
    admin.topics = [topic(group=None)]
    assert last_columns(sluice) == ("-", "-")


def test_an_older_gateway_tells_neither(sluice: Any, admin: Any) -> None:
    older = topic()
    del older["group"], older["clients"]
    admin.topics = [older]
    assert last_columns(sluice) == ("-", "-")
