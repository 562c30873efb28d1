"""A message that its client lets wait in the broker counts for where it goes."""

from __future__ import annotations

import pytest

from gateway.protocols.amqp.delayed_keys import destination
from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.wires.conversations import Talk

LIMITED = Rule("orders", match=Match(protocol="amqp", routing_key="r.orders"), limit=Limit(messages=Rate(2)), open_for_ns=0)
CELERY = [f"{number:028b}" for number in (300, 301, 86_400)]


def key(bits: str, behind: str = "r.orders") -> str:
    return ".".join([*bits, behind])


@pytest.mark.parametrize("exchange", ["celery_delayed_27", "nsb.v2.delay-level-27"])
def test_tasks_with_any_delay_share_the_limit_of_their_destination(exchange: str) -> None:
    talk = Talk("amqp", LIMITED)
    talk.client(amqp.greeting(channels=(1,), confirms=(1,)))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1))
    talk.to_client = b""
    talk.client(b"".join(amqp.publish(1, key(bits), exchange=exchange) for bits in CELERY))
    assert {request[0] for request in talk.requests} == {f"%2F/{exchange}/r.orders"}
    assert [confirm.acked for confirm in amqp.confirms(talk.to_client)] == [False]


@pytest.mark.parametrize(
    ("exchange", "routing_key", "counts_as"),
    [
        ("nsb.v2.delay-level-3", key(CELERY[0], "billing"), ("nsb.v2.delay-level-27", "billing")),
        ("nsb.v2.delay-level-28", key(CELERY[0]), None),
        ("celery_delayed_27", "orders", None),
        ("celery_delayed_27", key(CELERY[0][1:]), None),
        ("celery_delayed_27", key("2" * 28), None),
        ("celery_delayed_27x", key(CELERY[0]), None),
        ("orders", key(CELERY[0]), None),
        ("celery_delayed_0", key(CELERY[0], ""), ("celery_delayed_27", "")),
    ],
)
def test_only_keys_of_that_shape_are_read_so(exchange: str, routing_key: str, counts_as: tuple[str, str] | None) -> None:
    found = tuple(name.decode() for name in destination(exchange.encode(), routing_key.encode()))
    assert found == (counts_as or (exchange, routing_key))
