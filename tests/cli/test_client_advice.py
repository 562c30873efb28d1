"""The table of client libraries: complete, and each library is known by what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.client_advice import CLIENT_ADVICE, SITUATIONS, SPOOLED, SYSTEM_BUSY, find_libraries, library_of, situations_of
from support.cases import in_one_loop

DOCS = Path(__file__).parents[2] / "docs"


@in_one_loop
@pytest.mark.parametrize("advice", CLIENT_ADVICE, ids=lambda advice: advice.name)
def test_every_library_has_a_word_for_every_situation(advice: Any) -> None:
    wanted = set(SITUATIONS) - ({SYSTEM_BUSY} if advice.protocol == "amqp" else {SPOOLED})
    assert set(advice.shows) == wanted
    assert all(advice.shows.values())
    assert advice.to_do
    assert not advice.to_do.endswith(".")


SAID = [
    ({"protocol": "amqp", "client_properties": {"product": "Pika Python Client Library", "platform": "Python 3.11"}}, "pika"),
    ({"protocol": "amqp", "client_properties": {"product": "py-amqp"}}, "Celery / kombu (py-amqp)"),
    ({"protocol": "amqp", "client_properties": {"product": "RabbitMQ", "platform": "Java"}}, "Java amqp-client"),
    (
        {"protocol": "amqp", "client_properties": {"platform": "Java", "connection_name": "rabbitConnectionFactory#1:0"}},
        "Spring AMQP",
    ),
    ({"protocol": "amqp", "client_properties": {"product": "AMQP 0.9.1 Client", "platform": "golang"}}, "amqp091-go"),
    ({"protocol": "amqp", "client_properties": {"connection_name": "java-checkout", "product": "Bunny"}}, "Bunny"),
    ({"protocol": "amqp", "client_properties": {"product": "something of our own"}}, None),
    ({"protocol": "amqp", "client_properties": None}, None),
    ({"protocol": "rocketmq", "language": "JAVA", "version": 479}, "RocketMQ Java 5"),
    ({"protocol": "rocketmq", "language": "JAVA", "version": 409}, "RocketMQ Java 4"),
    ({"protocol": "rocketmq", "language": "JAVA", "version": 121}, "RocketMQ Node (ali-ons)"),
    ({"protocol": "rocketmq", "language": "GO", "version": 317}, "RocketMQ Go"),
    ({"protocol": "rocketmq", "language": "CPP", "version": 63}, "RocketMQ C++"),
    ({"protocol": "rocketmq", "language": None, "version": None}, None),
]  # fmt: skip


@pytest.mark.parametrize(("connection", "name"), SAID)
def test_a_library_is_known_by_what_it_says(connection: dict[str, Any], name: str | None) -> None:
    found = library_of(connection)
    assert (found.name if found is not None else None) == name


@pytest.mark.parametrize(
    ("words", "protocol", "names"),
    [
        ("kombu", "amqp", ["Celery / kombu (py-amqp)"]),
        ("ruby", "amqp", ["Bunny"]),
        ("java", "rocketmq", ["RocketMQ Java 5", "RocketMQ Java 4"]),
        ("gRPC", "rocketmq", ["gRPC clients behind the RocketMQ Proxy"]),
        ("cobol", "amqp", []),
    ],
)
def test_people_may_call_it_otherwise(words: str, protocol: str, names: list[str]) -> None:
    assert [advice.name for advice in find_libraries(words, protocol)] == names


LEVEL = {"protocol": "amqp", "operation": "produce", "action": "reject", "fallback": "delay", "reply": "flow_control"}


@pytest.mark.parametrize(
    ("changed", "confirms", "situations"),
    [
        ({}, True, ("refused",)),
        ({}, False, ("held",)),
        ({}, None, ("refused", "held")),
        ({"fallback": "close"}, False, ("closed",)),
        ({"action": "delay"}, None, ("held", "refused")),
        ({"action": "block"}, True, ("blocked",)),
        ({"action": "spool"}, None, ("spooled",)),
        ({"operation": "consume"}, True, ("consuming",)),
        ({"max_message_size": "1kB"}, True, ("closed",)),
        ({"copies": "refuse", "limit": {"messages": "1/s"}}, True, ("refused", "closed")),
        ({"protocol": "rocketmq", "max_message_size": "1kB"}, None, ("refused",)),
        ({"protocol": "rocketmq"}, None, ("refused",)),
        ({"protocol": "rocketmq", "reply": "system_busy"}, None, ("system_busy",)),
    ],
)
def test_the_situation_follows_from_the_rule(changed: dict[str, Any], confirms: bool | None, situations: tuple[str, ...]) -> None:
    assert situations_of({**LEVEL, **changed}, confirms) == situations


@pytest.mark.parametrize("page", ["rabbitmq.md", "rocketmq.md"])
def test_every_error_class_of_the_table_stands_in_the_documentation(page: str) -> None:
    """What is quoted here as code was measured, and stands there with its version."""
    text = (DOCS / page).read_text()
    classes = {
        "rabbitmq.md": ["NackError", "DeliveryError", "MessageNacked", "AMQPMessageError", "nacked_set", "message nacked", "NotifyClose"],
        "rocketmq.md": ["MQBrokerException", "MQClientException", "RemotingTooMuchRequestException", "No route info of this topic"],
    }[page]
    shown = " ".join(words for advice in CLIENT_ADVICE for words in advice.shows.values())
    for each in classes:
        assert each in text
        assert each in shown
