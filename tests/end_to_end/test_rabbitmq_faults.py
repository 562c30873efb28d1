"""What clients see when RabbitMQ fails: killed, stopped, short of memory; and a client that has fallen silent (F05, F20, F21, F25)."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pika
import pika.exceptions
import pytest
from pamqp import commands

from support.amqp import frames as amqp
from support.brokers.rabbitmq import RabbitMQ
from support.clients.raw_amqp import RawClient, opening
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, wait_until

pytestmark = pytest.mark.rabbitmq

AGREED = 2  # seconds of heartbeat


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A broker of this module's own, to be killed."""
    with RabbitMQ(tmp_path_factory.mktemp("mortal")) as broker:
        yield broker


@pytest.fixture
def gateway(mortal: RabbitMQ, start_gateway: StartGateway) -> Gateway:
    return start_gateway([amqp_listener(f"{LOOPBACK}:{mortal.port}")], [])


class Publisher(threading.Thread):
    """Publishes persistent messages one by one, each confirmed, until the connection ends. `acked` are those it was told are safe."""

    def __init__(self, url: str, queue: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.queue = queue
        self.acked: list[str] = []
        self.ended_with: BaseException | None = None

    def run(self) -> None:
        try:
            for number in range(1_000_000):
                identity = f"{self.name}-{number}"
                self.channel.basic_publish("", self.queue, b"x" * 100, pika.BasicProperties(delivery_mode=2, message_id=identity))
                self.acked.append(identity)
        except BaseException as error:
            self.ended_with = error


class Raw:
    """A client that says only what it is told to, after the handshake. `frames` reads what has come."""

    def __init__(self, port: int, frame_max: int = 131_072) -> None:
        self.sock = socket.create_connection((LOOPBACK, port))
        self.rest = b""
        self.sock.sendall(amqp.greeting(password="guest", heartbeat=AGREED, frame_max=frame_max))
        self.opening = self.until("Connection.OpenOk")

    def close(self) -> None:
        self.sock.close()

    def frames(self, within: float) -> list[amqp.Frame]:
        """Frames that have come within so many seconds; returns early when the other side closes."""
        found: list[amqp.Frame] = []
        deadline = time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0:
            self.sock.settimeout(left)
            with contextlib.suppress(TimeoutError):
                data = self.sock.recv(65536)
                if not data:
                    return found
                self.rest += data
                size = whole(self.rest)
                found += amqp.read(self.rest[:size])
                self.rest = self.rest[size:]
        return found

    def until(self, name: str, *, beats: bool = False, within: float = HANG_S) -> list[amqp.Frame]:
        """Everything up to the first frame of that name; `beats`: send a heartbeat every half second meanwhile."""
        found: list[amqp.Frame] = []
        deadline = time.monotonic() + within
        while not any(frame.name == name for frame in found):
            assert time.monotonic() < deadline, f"no {name} within {within} s, only {[frame.name for frame in found]}"
            if beats:
                self.sock.sendall(amqp.HEARTBEAT)
            found += self.frames(0.5 if beats else 0.1)
        return found


def whole(data: bytes) -> int:
    """How many bytes of `data` are whole frames."""
    at = 0
    while len(data) - at >= 8 and at + 8 + int.from_bytes(data[at + 3 : at + 7], "big") <= len(data):
        at += 8 + int.from_bytes(data[at + 3 : at + 7], "big")
    return at


def stored(broker: RabbitMQ, queue: str) -> list[str]:
    """The message ids in the broker's durable queue, which is deleted."""
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as connection:
        channel = connection.channel()
        found = []
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(str(got[1].message_id))
        channel.queue_delete(queue)
        return found


def connected(url: str) -> bool:
    with contextlib.suppress(pika.exceptions.AMQPError, OSError):
        pika.BlockingConnection(pika.URLParameters(url)).close()
        return True
    return False


def closed_total(gateway: Gateway, cause: str) -> float:
    samples = gateway.samples()
    return sum(s.value for s in samples if s.name == "sluice_connections_closed_total" and s.labels["cause"] == cause)


def test_a_broker_killed_under_load_has_every_message_that_was_acked(mortal: RabbitMQ, gateway: Gateway) -> None:
    url = gateway.amqp_url()
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(mortal.url))) as direct:
        direct.channel().queue_declare("durable", durable=True)
    mortal.control("eval", "mnesia:sync_log().")  # else the queue itself may be what a killed broker has forgotten
    publishers = [Publisher(url, "durable", f"p{number}") for number in range(3)]
    for publisher in publishers:
        publisher.start()
    wait_until(lambda: all(len(publisher.acked) > 30 for publisher in publishers), within=20, what="all publish")
    mortal.kill()
    for publisher in publishers:
        publisher.join(HANG_S)
        assert isinstance(publisher.ended_with, pika.exceptions.ConnectionClosedByBroker), publisher.ended_with
        assert publisher.ended_with.reply_code == 320
        assert "the broker behind this gateway closed the connection" in publisher.ended_with.reply_text
    assert not connected(url), "its broker is gone"
    wait_until(lambda: not gateway.answers("/readyz"), within=5, what="the gateway is not ready without its broker")
    mortal.start_node()
    wait_until(lambda: connected(url), within=5, what="clients can connect again")
    arrived = stored(mortal, "durable")
    acked = {identity for publisher in publishers for identity in publisher.acked}
    assert acked <= set(arrived), f"{len(acked - set(arrived))} messages were acked and are lost"
    assert len(arrived) <= len(acked) + len(publishers), "each publisher had one message on its way"
    wait_until(lambda: closed_total(gateway, "broker_lost") == 3, within=5, what="all three are counted")
    wait_until(lambda: gateway.answers("/readyz"), within=5, what="the gateway is ready again")


def unsent(gateway: Gateway) -> float:
    return sum(sample.value for sample in gateway.samples() if sample.name == "sluice_messages_unsent_total")


def test_what_a_killed_broker_had_not_taken_is_counted_with_and_without_workers(mortal: RabbitMQ, start_gateway: StartGateway) -> None:
    both = [
        start_gateway(
            [amqp_listener(f"{LOOPBACK}:{mortal.port}")], [], gateway={"name": "end-to-end", "state_directory": "state", "workers": workers}
        )
        for workers in (1, 2)
    ]
    clients = [RawClient(gateway.port("rabbit")) for gateway in both]
    for client in clients:
        client.say(opening(1))
        client.wait_for("Channel.OpenOk")
    mortal.pause()
    try:
        for client in clients:
            client.socket.settimeout(None)
            flood = amqp.publish(1, "nobody-listens", b"x" * 100_000) * 300
            threading.Thread(target=client.say, args=[flood], daemon=True).start()
        wait_until(lambda: all(waits_for_broker(gateway) for gateway in both), within=60, what="the sockets to the broker to be full")
        assert [unsent(gateway) for gateway in both] == [0, 0]
    finally:
        mortal.kill()
        mortal.start_node()
    wait_until(lambda: all(unsent(gateway) > 0 for gateway in both), within=30, what="what was not taken to be counted")
    for client in clients:
        client.socket.close()


def waits_for_broker(gateway: Gateway) -> bool:
    return [item["bottleneck"] for item in gateway.get("/v1/connections")["items"]] == ["broker"]


def test_a_stopped_broker_costs_its_clients_a_close_in_words_after_heartbeats(mortal: RabbitMQ, gateway: Gateway) -> None:
    patient = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url() + "?heartbeat=60"))
    with contextlib.closing(Raw(gateway.port("rabbit"))) as client:
        mortal.pause()
        try:
            heard = client.until("Connection.Close", beats=True)
        finally:
            mortal.resume()
    names = [frame.name for frame in heard]
    assert names.count("Heartbeat") >= 2, "the gateway beats for a broker that cannot"
    close = heard[-1].value
    assert close.reply_code == 320
    assert close.reply_text.startswith("CONNECTION_FORCED - the broker behind this gateway has been silent for ")
    channel = patient.channel()  # a longer agreement outlives the pause
    channel.confirm_delivery()
    channel.basic_publish("", "nobody-listens", b"x")
    patient.close()
    wait_until(lambda: closed_total(gateway, "broker_heartbeat") == 1, within=15, what="the session of the dead broker is over")


def test_a_silent_client_is_closed_and_the_broker_told_in_words(mortal: RabbitMQ, gateway: Gateway) -> None:
    log = mortal.directory / "log" / "rabbit.log"
    seen = len(log.read_text())
    begun = time.monotonic()
    with contextlib.closing(Raw(gateway.port("rabbit"))) as client:
        heard = client.until("Connection.Close")
    assert time.monotonic() - begun >= 2 * AGREED - 0.1, "silence may last twice what was agreed on"
    assert heard[-1].value.reply_text.startswith("CONNECTION_FORCED - the client has been silent for ")
    wait_until(lambda: closed_total(gateway, "heartbeat") == 1, within=15, what="the session is over")
    assert "missed heartbeats" not in log.read_text()[seen:], "the broker saw an orderly close"


def test_a_memory_alarm_is_seen_shown_and_over(mortal: RabbitMQ, gateway: Gateway) -> None:
    told: list[str] = []
    connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
    connection.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
    connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
    channel = connection.channel()

    def shown() -> dict[str, object]:
        connection.process_data_events(time_limit=0)
        item: dict[str, object]
        (item,) = gateway.get("/v1/connections")["items"]
        return item

    def published_into_the_alarm() -> bool:
        channel.basic_publish("", "nobody-listens", b"x")
        return bool(shown()["broker_blocked"])

    mortal.control("set_vm_memory_high_watermark", "0.00001")
    try:
        wait_until(published_into_the_alarm, within=15, every=0.2, what="the gateway sees connection.blocked")
        item = shown()
        assert (item["state"], item["bottleneck"]) == ("blocked", "broker_blocked")
        assert [s.value for s in gateway.samples() if s.name == "sluice_broker_blocked_connections"] == [1]
        line = gateway.cli("connections", "list").stdout.splitlines()[1]
        assert {"guest", "/", "blocked", "broker_blocked"} <= set(line.split())
    finally:
        mortal.control("set_vm_memory_high_watermark", "0.4")
    wait_until(lambda: not shown()["broker_blocked"] and told[-1:] == ["unblocked"], within=15, what="all see connection.unblocked")
    assert told == ["blocked", "unblocked"], "and the client was told the same"
    item = shown()
    assert item["state"] != "blocked"
    assert float(str(item["broker_blocked_seconds"])) > 0
    (seconds,) = [s.value for s in gateway.samples() if s.name == "sluice_broker_blocked_seconds_total"]
    assert seconds > 0

    channel.confirm_delivery()
    channel.basic_publish("", "nobody-listens", b"x")
    (timed,) = [s.value for s in gateway.samples() if s.name == "sluice_confirm_latency_seconds_count"]
    assert timed == 1

    done = gateway.cli("connections", "close", str(item["id"]), "--yes", "--reason", "runaway job")
    assert "is being closed" in done.stderr
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="closed by an operator: runaway job") as caught:
        connection.process_data_events(time_limit=HANG_S)
    assert caught.value.reply_code == 320
    assert gateway.cli("connections", "close", "99999", "--yes", check=False).returncode == 7


def test_a_delivery_above_max_frame_passes_where_the_broker_knows_no_frame_max(
    start_gateway: StartGateway, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """RabbitMQ with `frame_max = 0` sends a body as one frame, unless the client has agreed to less."""
    with RabbitMQ(tmp_path_factory.mktemp("unbounded"), settings=("frame_max = 0",)) as broker:
        gateway: Gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{broker.port}", max_frame="1MiB")], [])
        body = bytes(number % 251 for number in range(3 << 20))
        with contextlib.closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as connection:
            channel = connection.channel()
            channel.queue_declare("large", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "large", body)
        client = Raw(gateway.port("rabbit"), frame_max=1 << 20)
        (tune,) = [frame.value for frame in client.opening if frame.name == "Connection.Tune"]
        assert tune.frame_max == 1 << 20
        client.sock.sendall(amqp.method(1, commands.Channel.Open()) + amqp.method(1, commands.Basic.Get(queue="large", no_ack=True)))
        found = client.until("ContentHeader")
        while sum(len(frame.value.value) for frame in found if frame.name == "ContentBody") < len(body):
            found += client.frames(0.1)
        bodies = [frame for frame in found if frame.name == "ContentBody"]
        assert b"".join(frame.value.value for frame in bodies) == body
        assert max(len(frame.raw) for frame in bodies) <= 1 << 20
        client.close()
