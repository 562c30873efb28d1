"""Consumers of a limited queue on a real broker: the gateway takes what passes within a second or two, and nothing while nothing passes."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, amqp_listener
from support.processes import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.rabbitmq

QUORUM = {"x-queue-type": "quorum"}


TIMEOUT_S = 6  # after which the broker closes the channel of a consumer that has not acknowledged


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limits]:
    rules = [
        {"name": name, "match": {"queue": f"{name}.*", "operation": "consume"}, "limit": {"messages": rate, "burst": {"messages": 1}}}
        for name, rate in {"shut": "0/s", "live": "100000/s", "twenty": "20/s", "fifty": "50/s", "rare": "20/min", "closes": "1/h"}.items()
    ]
    rules[-1]["action"] = "close"
    timeouts = f"-rabbit consumer_timeout {1000 * TIMEOUT_S} -rabbit channel_tick_interval 500"
    rabbitmq = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), erlang=timeouts)
    gateway = Gateway(tmp_path_factory.mktemp("gateway"), [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], rules)
    with rabbitmq, gateway:
        found = Limits(rabbitmq, gateway)
        with found.past:
            yield found


@pytest.fixture(autouse=True)
def none_outlives(limits: Limits) -> Iterator[None]:
    """The clients of a test end with it."""
    yield
    for taker in limits.takers:
        taker.close()
    limits.takers.clear()
    limits.set("shut", "0/s")
    limits.set("live", "100000/s")
    limits.set("rare", "20/min")


class Limits:
    """A gateway with a rule `shut`, `live`, `twenty`, `fifty`, `rare` for the queues whose names begin so, and a way past it."""

    def __init__(self, broker: RabbitMQ, gateway: Gateway) -> None:
        self.rabbitmq = broker
        self.gateway = gateway
        self.past = pika.BlockingConnection(pika.URLParameters(f"{broker.url}?heartbeat=0"))
        self.direct = self.past.channel()
        self.direct.confirm_delivery()
        self.takers: list[Taker] = []

    def queue(self, name: str, count: int = 0, **arguments: Any) -> str:
        """A fresh queue with so many messages, numbered from 0."""
        with suppress(ChannelClosedByBroker):
            self.direct.queue_delete(name)
        self.direct.queue_declare(name, durable=bool(arguments.get("x-queue-type")), arguments=arguments)
        for number in range(count):
            self.direct.basic_publish("", name, b"%d" % number)
        return name

    def ready(self, queue: str) -> int:
        return int(self.direct.queue_declare(queue, passive=True).method.message_count)

    def passed(self, queue: str) -> int:
        """How many the gateway has passed on by now; asked for behind what is compared with it."""
        return int(self.gateway.messages_by_fate("amqp", f"%2F/amq.default/{queue}", "consume")["forwarded"])

    def set(self, rule: str, rate: str) -> None:
        self.gateway.put(f"/v1/rules/{rule}", {"messages": rate})

    def connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.URLParameters(f"{self.gateway.amqp_url()}?heartbeat=0"))


class Taker:
    """A client that consumes on one channel, and notes what comes."""

    def __init__(self, limits: Limits, prefetch: int = 0) -> None:
        self.connection = limits.connect()
        limits.takers.append(self)
        self.channel = self.connection.channel()
        if prefetch:
            self.channel.basic_qos(prefetch_count=prefetch)
        self.got: list[int] = []
        self.tags: list[int] = []
        self.redelivered = 0

    def consume(
        self, queue: str, *, ack: bool = True, auto_ack: bool = False, exclusive: bool = False, arguments: dict[str, str] | None = None
    ) -> str:
        def take(channel: Any, method: Any, _: Any, body: bytes) -> None:
            self.got.append(int(body))
            self.tags.append(method.delivery_tag)
            self.redelivered += method.redelivered
            if ack and not auto_ack:
                channel.basic_ack(method.delivery_tag)

        return str(self.channel.basic_consume(queue, take, auto_ack=auto_ack, exclusive=exclusive, arguments=arguments))

    def until(self, there: Callable[[], bool], within: float = HANG_S) -> None:
        end = time.monotonic() + within
        while not there():
            assert time.monotonic() < end, f"{len(self.got)} have come: {self.got[-10:]}"
            self.connection.process_data_events(0.02)

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.connection.process_data_events(0.02)

    def close(self) -> None:
        if self.connection.is_open:
            self.connection.close()


def test_a_shut_queue_is_left_alone_however_often_its_consumer_comes(limits: Limits) -> None:
    """A quorum queue drops what was delivered more often than its delivery limit, whoever saw it."""
    queue = limits.queue("shut.quorum", 5, **QUORUM, **{"x-delivery-limit": 3})
    for _ in range(6):
        taker = Taker(limits)
        taker.consume(queue)
        taker.run(0.3)
        assert limits.ready(queue) == 5
        taker.close()
    taker = Taker(limits)
    taker.consume(queue)

    def shown() -> list[tuple[Any, ...]]:
        items = limits.gateway.get("/v1/connections")["items"]
        return [(one["state"], one["bottleneck"], (one["held_by"] or {}).get("rule")) for one in items]

    wait_until(lambda: shown() == [("throttled", "limit", "shut")], within=10, what="the last one, and it alone, to be held")
    limits.set("shut", "1000/s")
    taker.until(lambda: taker.got == [0, 1, 2, 3, 4])
    assert taker.redelivered == 0


def test_a_prompt_client_meets_no_consumer_timeout(limits: Limits) -> None:
    queue = limits.queue("fifty.prompt", 400)
    taker = Taker(limits)
    begun = time.monotonic()
    taker.consume(queue)
    taker.until(lambda: len(taker.got) == 400)
    assert taker.got == list(range(400))
    assert time.monotonic() - begun > TIMEOUT_S


@pytest.mark.parametrize("prefetch", [0, 1000])
def test_a_limit_set_on_a_consumer_that_is_there_holds_likewise(limits: Limits, prefetch: int) -> None:
    queue = limits.queue("live.there", 1)
    taker = Taker(limits, prefetch)
    taker.consume(queue)
    taker.until(lambda: taker.got == [0])
    before = limits.passed(queue)
    limits.set("live", "20/s")
    for number in range(1, 200):
        limits.direct.basic_publish("", queue, b"%d" % number)
    taker.until(lambda: len(taker.got) > 20)
    assert limits.ready(queue) >= 199 - (limits.passed(queue) - before) - 40  # what passes within two seconds
    taker.until(lambda: len(taker.got) > 120)  # longer than the broker lets a delivery be unsettled
    limits.set("live", "0/s")
    taker.until(lambda: limits.ready(queue) + len(taker.got) == 200)
    before = len(taker.got)
    taker.run(TIMEOUT_S + 2)
    assert (len(taker.got), limits.ready(queue)) == (before, 200 - before)
    limits.set("live", "100000/s")
    taker.until(lambda: len(taker.got) == 200)
    assert taker.got == list(range(200))


def test_messages_keep_their_lifetime_and_their_priority(limits: Limits) -> None:
    queue = limits.queue("twenty.priority", 0, **{"x-max-priority": 9})
    for number in range(200):
        limits.direct.basic_publish("", queue, b"%d" % number, pika.BasicProperties(priority=0, expiration="3000"))
    taker = Taker(limits)
    taker.consume(queue)
    taker.until(lambda: len(taker.got) > 10)
    limits.direct.basic_publish("", queue, b"1000", pika.BasicProperties(priority=9))
    passed = limits.passed(queue)
    taker.until(lambda: 1000 in taker.got)
    assert taker.got.index(1000) - passed < 60  # 3 s of 20/s
    taker.run(5)
    assert len(taker.got) < 120  # 3 s of 20/s, and what was on its way
    assert limits.ready(queue) == 0


def test_an_auto_ack_consumer_that_ends_loses_no_more_than_directly(limits: Limits) -> None:
    queue = limits.queue("fifty.auto", 300)
    before = limits.passed(queue)
    taker = Taker(limits)
    other = taker.connection.channel()
    taker.consume(queue, auto_ack=True)
    taker.until(lambda: len(taker.got) >= 60)
    assert other.queue_declare(queue, passive=True).method.message_count > 300 - (limits.passed(queue) - before) - 110
    taker.channel._impl.close(200, "bye")  # not `close()`: pika cancels its consumers first, and throws away what comes with the cancel-ok
    taker.until(lambda: taker.channel._impl.is_closed)
    taker.close()
    # What was passed on and came behind the close is pika's to drop.
    wait_until(lambda: limits.ready(queue) + limits.passed(queue) - before == 300, within=20, what="what the broker still had")
    assert len(taker.got) <= limits.passed(queue) - before


def test_single_messages_over_the_limit_are_answered_like_those_of_an_empty_queue(limits: Limits) -> None:
    queue = limits.queue("shut.gets", 3)
    with limits.connect() as connection:
        channel = connection.channel()
        for _ in range(2):
            asked = time.monotonic()
            assert channel.basic_get(queue)[0] is None
            assert time.monotonic() - asked > 0.5
        assert limits.ready(queue) == 3


def test_single_messages_over_a_limit_that_closes_get_a_channel_error_and_stay_in_their_queue(limits: Limits) -> None:
    queue = limits.queue("closes.gets", 3)
    taker = Taker(limits)
    with limits.connect() as connection:
        channel = connection.channel()
        assert channel.basic_get(queue, auto_ack=True)[2] == b"0"
        for _ in range(2):
            with pytest.raises(ChannelClosedByBroker, match="rule closes") as closed:
                channel.basic_get(queue)
            assert closed.value.reply_code == 506
            channel = connection.channel(channel.channel_number)
        assert limits.ready(queue) == 2
        taker.consume(queue)
        taker.run(0.3)
        assert (taker.got, channel.is_open) == ([], True)
        limits.set("closes", "100000/s")
        taker.until(lambda: taker.got == [1, 2])


@pytest.mark.parametrize("auto_ack", [False, True])
def test_consumers_that_no_answer_names_are_limited(limits: Limits, auto_ack: bool) -> None:
    """basic.consume without an answer and without a tag, which no library says."""
    queue = limits.queue("twenty.nameless", 200)
    taker = Taker(limits, 50)
    got: list[int] = []
    before = limits.passed(queue)
    impl = taker.channel._impl

    def take(method: Any, _: Any, body: bytes) -> None:
        got.append(int(body))
        if not auto_ack and impl.is_open:  # what comes while the test closes it is nobody's
            impl.basic_ack(method.method.delivery_tag)

    impl._on_deliver = take
    begun = time.monotonic()
    impl._send_method(pika.spec.Basic.Consume(queue=queue, consumer_tag="", nowait=True, no_ack=auto_ack))
    while len(got) < 40:
        taker.connection.process_data_events(0.02)
        assert time.monotonic() - begun < HANG_S
    took = time.monotonic() - begun
    assert took >= (40 - 2) / 20 * 0.99
    assert limits.ready(queue) >= 200 - (limits.passed(queue) - before) - 41


@pytest.mark.parametrize("auto_ack", [False, True])
def test_consuming_and_cancelling_in_turns_is_no_way_round_a_limit(limits: Limits, auto_ack: bool) -> None:
    queue = limits.queue("twenty.turns", 1000)
    taker = Taker(limits, 0 if auto_ack else 100)
    before = limits.passed(queue)
    begun = time.monotonic()
    while time.monotonic() - begun < 6 or limits.passed(queue) - before < 60:
        assert time.monotonic() - begun < HANG_S
        tag = taker.consume(queue, auto_ack=auto_ack)
        taker.run(0.05)
        taker.channel.basic_cancel(tag)
    took = time.monotonic() - begun
    got = limits.passed(queue) - before  # pika keeps those that come with the cancel-ok
    assert got <= 20 * (took + 3) + 1
    if auto_ack:  # what has passed is acknowledged, and does not come again
        taker.close()
        wait_until(lambda: limits.ready(queue) >= 1000 - got, within=20, what="what was not passed on")
        assert limits.ready(queue) == 1000 - got


@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
def test_a_client_that_acknowledges_many_at_once_gets_as_many(limits: Limits, arguments: dict[str, str]) -> None:
    queue = limits.queue("fifty.batches", 240, **arguments)
    taker = Taker(limits, 120)
    taker.consume(queue, ack=False)
    taker.until(lambda: len(taker.got) == 120)
    taker.channel.basic_ack(taker.tags[-1], multiple=True)
    taker.until(lambda: len(taker.got) == 240)
    assert taker.got == list(range(240))
    taker.channel.basic_ack(0, multiple=True)
    taker.close()
    assert limits.ready(queue) == 0


def test_refusals_of_the_broker_reach_a_consumer_of_a_shut_queue(limits: Limits) -> None:
    with limits.connect() as connection, limits.connect() as owner:
        owner.channel().queue_declare("shut.mine", exclusive=True)
        for queue, code in (("shut.missing", 404), ("shut.mine", 405)):
            channel = connection.channel()
            with pytest.raises(ChannelClosedByBroker) as closed:
                channel.basic_consume(queue, print)
            assert closed.value.reply_code == code
        queue = limits.queue("shut.taken")
        limits.direct.basic_consume(queue, print, consumer_tag="direct")
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker) as closed:
            channel.basic_consume(queue, print, exclusive=True)
        limits.direct.basic_cancel("direct")
        assert closed.value.reply_code == 403
        again = connection.channel()
        queue = limits.queue("shut.twice", 1)
        again.basic_consume(queue, print, consumer_tag="one")
        again._impl._send_method(pika.spec.Basic.Consume(queue=queue, consumer_tag="one"))
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as reused:
            again.queue_declare(queue, passive=True)
        assert reused.value.reply_code == 530


def test_a_limit_of_a_few_a_minute_takes_one_at_a_time(limits: Limits) -> None:
    queue = limits.queue("rare.ones", 5, **QUORUM, **{"x-delivery-limit": 1})
    before = limits.passed(queue)
    taker = Taker(limits)
    taker.consume(queue, auto_ack=False)
    taker.until(lambda: len(taker.got) >= 1)
    assert limits.ready(queue) >= 5 - (limits.passed(queue) - before)
    taker.run(1)
    assert limits.ready(queue) >= 5 - (limits.passed(queue) - before)
    taker.until(lambda: len(taker.got) >= 3)
    assert taker.got == list(range(len(taker.got)))
    assert taker.redelivered == 0
    taker.close()


def test_consumers_that_share_a_slow_limit_take_its_messages_in_turns(limits: Limits) -> None:
    """Each delivery that goes back counts for the delivery limit."""
    queue = limits.queue("rare.shared", 3, **QUORUM, **{"x-delivery-limit": 1})
    takers = [Taker(limits) for _ in range(4)]
    for taker in takers:
        taker.consume(queue)

    def all_there() -> bool:
        for taker in takers:
            taker.run(0.02)
        return sum(len(taker.got) for taker in takers) == 3

    takers[0].until(all_there)
    assert sum(taker.redelivered for taker in takers) == 0


@pytest.fixture
def no_timeout(limits: Limits) -> Iterator[None]:
    """What may not leave its queue runs into the broker's timeout."""
    limits.rabbitmq.control("eval", f"application:set_env(rabbit, consumer_timeout, {1000 * int(HANG_S)}).")
    yield
    limits.rabbitmq.control("eval", f"application:set_env(rabbit, consumer_timeout, {1000 * TIMEOUT_S}).")


def own_queues(limits: Limits, rule: str, *, auto_ack: bool = False) -> dict[str, Taker]:
    """Consumers of queues that may not be left, or are read from where one begins, each with a queue that its connection has declared."""
    kinds: dict[str, dict[str, Any]] = {
        "auto-delete": {"auto_delete": True},
        "expires": {"arguments": {"x-expires": 1000}},
        "exclusive": {"exclusive": True},
        "reply": {"exclusive": True, "auto_delete": True},
        "stream": {"durable": True, "arguments": {"x-queue-type": "stream"}},
        "offset": {"durable": True, "arguments": {"x-queue-type": "stream"}},
        "end": {"durable": True, "arguments": {"x-queue-type": "stream"}},
    }
    takers = {}
    for kind, declared in kinds.items():
        of_stream = "durable" in declared
        if (of_stream and auto_ack) or (kind == "end" and rule != "live"):
            continue  # RabbitMQ has none; one that nothing tells from a queue, until something has come, begins where its limit lets it
        queue = f"{rule}.{kind}"
        if of_stream:
            with suppress(ChannelClosedByBroker):
                limits.direct.queue_delete(queue)
        taker = takers[queue] = Taker(limits, 500)
        declarer = limits.past.channel() if kind in ("offset", "end") else taker.channel
        declarer.queue_declare(queue, **declared)
        taker.consume(queue, auto_ack=auto_ack, arguments={"x-stream-offset": "first"} if kind == "offset" else None)
    return takers


def run(takers: dict[str, Taker], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for taker in takers.values():
            taker.connection.process_data_events(0.01)


def publish(limits: Limits, takers: dict[str, Taker], numbers: range) -> None:
    for queue in takers:
        for number in numbers:
            limits.direct.basic_publish("", queue, b"%d" % number, mandatory=True)


def until_all(takers: dict[str, Taker], there: Callable[[Taker], bool], within: float = HANG_S) -> None:
    end = time.monotonic() + within
    while not all(there(taker) for taker in takers.values()):
        assert time.monotonic() < end, [(queue, len(taker.got), taker.got[-3:]) for queue, taker in takers.items()]
        run(takers, 0.05)


@pytest.mark.usefixtures("no_timeout")
@pytest.mark.parametrize("auto_ack", [False, True])
def test_streams_and_queues_that_delete_themselves_are_paused(limits: Limits, auto_ack: bool) -> None:
    """They lose nothing and give nothing twice, also where the limit was there first."""
    limits.set("live", "0/s")
    begun_shut = own_queues(limits, "shut", auto_ack=auto_ack)
    publish(limits, begun_shut, range(40))
    limits.set("live", "100000/s")
    takers = own_queues(limits, "live", auto_ack=auto_ack)
    publish(limits, takers, range(10))
    until_all(takers, lambda taker: len(taker.got) == 10)
    limits.set("live", "0/s")
    publish(limits, takers, range(10, 60))
    both = takers | begun_shut
    run(both, 2.5)
    assert {queue: len(taker.got) for queue, taker in both.items()} == dict.fromkeys(takers, 10) | dict.fromkeys(begun_shut, 0)
    limits.set("live", "20/s")
    limits.set("shut", "20/s")
    until_all(both, lambda taker: len(taker.got) >= 15)
    limits.set("live", "0/s")
    limits.set("shut", "0/s")
    run(both, 1)
    limits.set("live", "100000/s")
    limits.set("shut", "100000/s")
    until_all(takers, lambda taker: len(taker.got) >= 60)
    until_all(begun_shut, lambda taker: len(taker.got) >= 40)
    run(both, 0.3)
    for queue, taker in both.items():
        assert (queue, taker.got) == (queue, list(range(60 if queue in takers else 40)))


@pytest.mark.usefixtures("no_timeout")
def test_streams_and_queues_that_delete_themselves_keep_a_slow_rate(limits: Limits) -> None:
    takers = own_queues(limits, "rare")
    begun = time.monotonic()
    publish(limits, takers, range(5))
    until_all(takers, lambda taker: len(taker.got) >= 3)
    took = time.monotonic() - begun
    for queue, taker in takers.items():
        assert (queue, taker.got) == (queue, list(range(len(taker.got))))
        assert took >= (len(taker.got) - 1) * 3 * 0.99
    limits.set("rare", "100000/s")
    until_all(takers, lambda taker: len(taker.got) >= 5)
    assert [taker.got for taker in takers.values()] == [[0, 1, 2, 3, 4]] * len(takers)


@pytest.mark.parametrize("copied", [False, True])
def test_a_queue_is_no_stream_for_what_its_clients_say(limits: Limits, copied: bool) -> None:
    """Its consumers have a window and are taken away: where messages have headers copied from a stream, where a declaration was refused."""
    queue = limits.queue("live.copies")
    for number in range(100):
        properties = pika.BasicProperties(headers={"x-stream-offset": number} if copied else {})
        limits.direct.basic_publish("", queue, b"%d" % number, properties)
    limits.set("live", "20/s")
    taker = Taker(limits, prefetch=80)
    if not copied:
        with pytest.raises(ChannelClosedByBroker):
            taker.connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
    taker.consume(queue)
    taker.until(lambda: len(taker.got) >= 5)
    limits.set("live", "0/s")
    taker.until(lambda: limits.ready(queue) + len(taker.got) == 100)
    limits.set("live", "100000/s")
    taker.until(lambda: len(taker.got) >= 100)
    assert taker.got == list(range(100))
