"""pins.yaml: strict, bounded, with the place of a fault."""

from __future__ import annotations

import pytest

from spark_jobs.method.pins import Pin, describe_pin_conflicts, list_pinned_rates, read_pins
from spark_jobs.parameters import Parameters
from support.cases import in_one_loop

EXAMPLE = b"""
pins:
  - {protocol: rocketmq, topic: orders, messages: 500/s, burst: 900, bytes: 5MiB/s, byte_burst: 20MiB, reason: contract, until: 2026-12-31}
  - {protocol: amqp, topic: "%2F/x/y", messages: 3/min}
"""


def test_the_documented_example() -> None:
    first, second = read_pins(EXAMPLE)
    assert first == Pin("rocketmq", "orders", (500.0, 900), (5 * 2**20, 20 * 2**20), "contract", "2026-12-31")
    assert second == Pin("amqp", "%2F/x/y", (0.05, 3), None, "pinned", None)
    assert first.holds_after("2026-12-30")
    assert not first.holds_after("2026-12-31")
    assert second.holds_after("2099-01-01")
    assert read_pins(b"") == read_pins(b"pins:") == read_pins(b"pins: []") == []


@pytest.mark.parametrize("written", ["%2F/orders/a%3Ab%20c", "%2F/orders/a:b c", "%2f/%6Frders/a%3ab%20c"])
def test_a_topic_is_pinned_however_it_is_written(written: str) -> None:
    """`:` and a blank made a second quota of the topic; the alphabet decided which of the two held."""
    [pin] = read_pins(f"pins: [{{protocol: amqp, topic: '{written}', messages: 7/s}}]".encode())
    assert pin.topic == "%2F/orders/a%3Ab%20c"


@in_one_loop
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "not YAML"),
        ("[1]", "write a list under the one key pins"),
        ("[pins]", "write a list under the one key pins"),
        ("[]", "write a list under the one key pins"),
        ("p", "write a list under the one key pins"),
        ("{pins: [], more: 1}", "write a list under the one key pins"),
        ("pins: 5", "must be a list"),
        ("pins: [5]", "pins[0] must be a mapping"),
        ("pins: [{protocol: rocketmq, topic: t, messages: 5/s, rate: 3}]", "pins[0].rate is unknown"),
        ("pins: [{protocol: kafka, topic: t, messages: 5/s}]", "pins[0].protocol: 'kafka' is unknown; known: amqp, rocketmq"),
        ("pins: [{protocol: rocketmq, topic: '', messages: 5/s}]", "pins[0].topic"),
        ("pins: [{protocol: amqp, topic: orders, messages: 5/s}]", "pins[0].topic: 'orders': a topic of AMQP is vhost/exchange/"),
        (
            "pins: [{protocol: amqp, topic: '%2F/x/a b', messages: 5/s}, {protocol: amqp, topic: '%2F/x/a%20b', bytes: 5/s}]",
            "is pinned twice",
        ),
        ("pins: [{protocol: rocketmq, topic: t}]", "pins[0] pins nothing"),
        ("pins: [{protocol: rocketmq, topic: t, burst: 5, bytes: 1/s}]", "pins[0].burst is given without messages"),
        ("pins: [{protocol: rocketmq, topic: t, messages: 500}]", "'500' is not a rate like 500/s"),
        ("pins: [{protocol: rocketmq, topic: t, messages: -5/s}]", "'-5/s' is not a rate"),
        ("pins: [{protocol: rocketmq, topic: t, messages: 5/s, burst: many}]", "'many' is not a number like 900"),
        ("pins: [{protocol: rocketmq, topic: t, messages: 5/s, until: soon}]", "'soon' is not a day"),
        ("pins: [{protocol: rocketmq, topic: t, messages: 5/s}, {protocol: rocketmq, topic: t, bytes: 5/s}]", "is pinned twice"),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="--pins") as caught:
        read_pins(text.encode())
    assert complaint in str(caught.value)


PINS = [
    Pin("rocketmq", "a", (50.0, 500), None, "contract", None),
    Pin("rocketmq", "b", (7.0, 70), (900.0, 9000), "contract", "2026-03-05"),
]


@pytest.mark.parametrize(
    ("date", "parameters", "said"),
    [
        ("2026-03-04", Parameters(capacity_messages=58), []),
        ("2026-03-04", Parameters(capacity_messages=57), ["the pins alone are 57 messages/s, and the capacity is 57"]),
        ("2026-03-05", Parameters(capacity_messages=57), []),  # the second one has ended
        (
            "2026-03-04",
            Parameters(ceiling_messages=40, ceiling_bytes=800),
            ["a is pinned at 50 messages/s, above", "b is pinned at 900 bytes/s"],
        ),
    ],
)
def test_pins_above_the_capacity_or_the_ceiling_are_said(date: str, parameters: Parameters, said: list[str]) -> None:
    found = describe_pin_conflicts(PINS, date, parameters)
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


def test_the_rates_that_pins_set_are_those_of_the_dimension_and_the_day() -> None:
    assert list_pinned_rates(PINS, "2026-03-04", "messages") == {("rocketmq", "a"): 50.0, ("rocketmq", "b"): 7.0}
    assert list_pinned_rates(PINS, "2026-03-04", "bytes") == {("rocketmq", "b"): 900.0}
    assert list_pinned_rates(PINS, "2026-03-05", "bytes") == {}
