"""Memory above the high watermark: publishers are not read and told so, consumers go on, and nothing is waited for that cannot come."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest
from pamqp import commands

from gateway.event_loop.memory_watermark import FINISH_NS, MIN_CHECK_BYTES, STOPPED_NS, MemoryWatermark
from gateway.event_loop.sweeper import RECEIVE_BYTES
from gateway.session import description
from gateway.session.states import OPEN
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.processes import HANG_S
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

MARK = 250_000
BODY = b"x" * 4000


def never(protocol: str = "amqp") -> Rule:
    """A rule that holds every message for `never`."""
    limit = Limit(messages=Rate(0))
    match = Match(protocol=protocol, routing_key="never") if protocol == "amqp" else Match(protocol=protocol, topic="never")
    return Rule("never", match, "topic", limit, open_for_ns=0, action="block" if protocol == "amqp" else "delay")


class Ground:
    """Sessions and the watch over their memory."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.watch = MemoryWatermark(MARK, wires.shared)

    def join(self) -> tuple[socket.socket, socket.socket]:
        """An AMQP session after its handshake, with channel 1 open."""
        client, broker = self.wires.connect("amqp")
        client.sendall(amqp.greeting(capabilities={"connection.blocked": True}, heartbeat=0, channels=(1,)))
        self.wires.run(0.003)
        broker.sendall(amqp.broker_opens() + amqp.method(1, commands.Channel.OpenOk()))
        self.wires.run(0.003)
        self.wires.received(client)
        self.wires.received(broker)
        return client, broker

    def check(self) -> bool:
        changed = self.watch.check(self.wires.sweeper, self.wires.now())
        self.wires.run(0.003)
        return changed

    def fill(self, broker: socket.socket, client: socket.socket) -> None:
        """Publish for a broker that does not read, until nobody takes more."""
        data = amqp.publish(1, "free", BODY)
        client.setblocking(False)
        for _ in range(1000):
            try:
                client.send(data * 10)
            except BlockingIOError:
                break
            self.wires.run(0.001)
        client.settimeout(HANG_S)

    def pour(self, broker: socket.socket) -> None:
        """The broker reads again, all there is."""
        while self.wires.received(broker):
            self.wires.run(0.003)


def names(data: bytes) -> list[str]:
    return [frame.name for frame in amqp.read(data) if frame.channel == 0]


def test_publishers_are_not_read_and_told_so_and_consumers_go_on() -> None:
    with Wires(never(), backlog_bytes=MARK) as wires:
        ground = Ground(wires)
        hoarder, hoarding = ground.join()
        publisher, reading = ground.join()
        consumer, delivering = ground.join()
        publisher.sendall(amqp.publish(1, "free"))
        wires.run(0.003)
        wires.received(reading)
        assert not ground.check()
        ground.fill(hoarding, hoarder)
        assert ground.check()
        assert (ground.watch.full, ground.watch.stopped) == (True, 2)
        assert ground.watch.held >= MARK

        publisher.sendall(amqp.publish(1, "free"))
        consumer.sendall(amqp.method(1, commands.Basic.Ack(1)))
        delivering.sendall(amqp.deliver(1, b"d" * 100_000))
        wires.run(0.003)
        assert wires.received(reading) == b"", "it holds nothing, and is not read all the same"
        assert names(wires.received(publisher)) == ["Connection.Blocked"]
        assert description.bottleneck(wires.session(2), wires.now()) == "memory"
        assert len(wires.received(consumer)) > 100_000
        assert amqp.names(wires.received(delivering)) == ["Basic.Ack"]

        ground.pour(hoarding)
        assert ground.check()
        assert (ground.watch.full, ground.watch.stopped) == (False, 0)
        assert amqp.names(wires.received(reading))[0] == "Basic.Publish"
        wires.elapse(0.5)
        assert names(wires.received(publisher)) == ["Connection.Unblocked"]


def test_a_first_publish_while_memory_is_full_stops_its_connection_at_the_next_check() -> None:
    with Wires(never(), backlog_bytes=MARK) as wires:
        ground = Ground(wires)
        hoarder, hoarding = ground.join()
        late, reading = ground.join()
        ground.fill(hoarding, hoarder)
        assert ground.check()
        assert ground.watch.stopped == 1
        late.sendall(amqp.publish(1, "free"))
        wires.run(0.003)
        assert amqp.names(wires.received(reading))[0] == "Basic.Publish"
        assert not ground.check()
        assert ground.watch.stopped == 2
        late.sendall(amqp.publish(1, "free"))
        wires.run(0.003)
        assert wires.received(reading) == b""
        assert names(wires.received(late)) == ["Connection.Blocked"]


@pytest.mark.parametrize(
    ("held", "full"),
    [([249_999], False), ([250_000], True), ([250_000, 200_000], True), ([250_000, 199_999], False), ([199_999, 249_999], False)],
)
def test_it_is_full_at_the_mark_and_until_below_four_fifths_of_it(held: list[int], full: bool) -> None:
    with Wires(never()) as wires:
        watch = MemoryWatermark(MARK, wires.shared)
        _client, _broker = wires.connect("amqp")
        wires.run(0.003)
        for now, size in enumerate(held):
            wires.session().conversation.budget.held_bytes = size
            watch.check(wires.sweeper, now)
        assert (watch.full, wires.shared.memory_full) == (full, full)
        wires.session().conversation.budget.held_bytes = 0


def test_how_long_it_was_full_is_a_counter() -> None:
    with Wires(never()) as wires:
        watch = MemoryWatermark(MARK, wires.shared)
        _client, _broker = wires.connect("amqp")
        wires.run(0.003)
        conversation = wires.session().conversation
        conversation.budget.held_bytes = MARK
        assert watch.check(wires.sweeper, 1000)
        assert watch.full_ns(1500) == 500
        conversation.budget.held_bytes = 0
        assert watch.check(wires.sweeper, 1600)
        assert watch.full_ns(9000) == 600
        assert repr(watch) == "<MemoryWatermark open 0/250000 stopped=0>"


def unfinished(ground: Ground, connections: int, missing: int = 1, size: int = 150_000) -> list[tuple[socket.socket, socket.socket]]:
    """RocketMQ clients that each owe the last bytes of a frame."""
    ends = [ground.wires.connect("rocketmq") for _ in range(connections)]
    for client, broker in ends:
        client.sendall(rocketmq.send("orders"))
        client.sendall(rocketmq.send("orders", body=b"x" * size)[:-missing])
        ground.wires.run(0.003)
        ground.wires.received(broker)
    return ends


@pytest.mark.parametrize(("connections", "size"), [(3, 150_000), (5, 60_000)], ids=["large", "small"])
def test_unfinished_frames_fill_memory_and_are_finished_one_after_the_other(connections: int, size: int) -> None:
    with Wires(never("rocketmq")) as wires:
        ground = Ground(wires)
        ends = unfinished(ground, connections, size=size)
        assert ground.check()
        assert ground.watch.held >= MARK
        assert ground.watch.stopped == connections - 1
        for client, _ in ends:
            client.sendall(b"x")
        done: list[int] = []
        while len(done) < connections:
            ground.check()
            done += [at for at, (_, broker) in enumerate(ends) if wires.received(broker)]
        assert sorted(done) == list(range(connections))
        ground.check()
        assert (ground.watch.full, ground.watch.stopped, ground.watch.closed) == (False, 0, 0)


def test_unfinished_frames_that_stay_so_are_closed_in_words_until_there_is_room() -> None:
    """As if they were finished in time by somebody who means well: the others would wait for ever."""
    with Wires(never("rocketmq")) as wires:
        ground = Ground(wires)
        unfinished(ground, 4)
        ground.check()
        held = ground.watch.held
        assert ground.watch.full
        start = wires.now()
        ground.watch.check(wires.sweeper, start + FINISH_NS + 1_000_000_000)
        assert ground.watch.closed == 1, "the one that was read on has had its time"
        ground.watch.check(wires.sweeper, start + STOPPED_NS + 2_000_000_000)
        ground.watch.check(wires.sweeper, start + STOPPED_NS + 2_000_000_000)
        assert not ground.watch.full
        assert held > MARK > ground.watch.held
        assert ground.watch.closed == 3
        [left] = [session for session in wires.sweeper.sessions.values() if session.state == OPEN]
        assert left.decode.undecoded() >= 150_000
        [closed, *_] = [session for session in wires.sweeper.sessions.values() if session.state != OPEN]
        assert closed.cause == "memory_full"
        assert "memory.high_watermark" in closed.detail
        assert closed.decode.undecoded() == 0


def test_what_is_read_between_two_ticks_is_looked_at_in_time() -> None:
    """A flood of unfinished frames passes the mark by a sixteenth of it and a read, not by what a quarter of a second brings."""
    mark = 4 << 20
    with Wires(never("rocketmq")) as wires:
        watch = MemoryWatermark(mark, wires.shared)

        def check(now: int) -> None:
            watch.check(wires.sweeper, now)

        wires.sweeper.watch_volume(wires.shared, check)  # no tick comes before the flood
        frame = rocketmq.send("orders", body=b"x" * 1_000_000)
        clients = [wires.connect("rocketmq")[0] for _ in range(12)]
        left = {client: memoryview(frame)[:-1] for client in clients}
        for client in clients:
            client.sendall(rocketmq.send("orders"))
            client.setblocking(False)
        most = 0
        rounds = 0  # after it is full
        for _ in range(5_000):
            if rounds == 50:
                break
            for client in clients:
                with suppress(BlockingIOError):
                    left[client] = left[client][client.send(left[client]) :] if left[client] else left[client]
            wires.run(0.001)
            most = max(most, wires.sweeper.buffered())
            rounds += watch.full
        assert rounds == 50, "it was never full"
        assert mark <= most <= mark * 17 // 16 + 1_000_000 + MIN_CHECK_BYTES + 12 * RECEIVE_BYTES, "a frame more, and a read of each"


def test_deliveries_of_one_listener_stop_nobodys_publishers() -> None:
    with Wires(never(), backlog_bytes=MARK) as wires:
        ground = Ground(wires)
        stalled = wires.connect("amqp")
        wires.run(0.003)
        [session] = wires.sweeper.sessions.values()
        config = session.listener_config
        ground.watch.listener_configs = [config]
        session.client.queue(bytes(20 * MARK), 0, 20 * MARK)
        ground.check()
        assert (config.deliveries_full, ground.watch.full, ground.watch.held) == (True, False, 0)
        assert config.delivery_bytes > MARK * 4 // 5
        assert not session.reads_broker(), "its client does not read"
        other = wires.connect("amqp")
        wires.run(0.003)
        assert [each.reads_broker() for each in wires.sweeper.sessions.values()] == [False, True]
        wires.sweeper.wake(session)
        wires.run(0.003)
        ground.pour(stalled[0])
        ground.check()
        assert (config.deliveries_full, config.delivery_bytes) == (False, 0)
        assert all(each.reads_broker() for each in wires.sweeper.sessions.values())
        assert other


def test_rocketmq_clients_that_send_are_not_read_and_those_that_pull_or_send_back_are() -> None:
    with Wires(never("rocketmq")) as wires:
        ground = Ground(wires)
        (hoarder, _), (sender, to_sender), (worker, to_worker) = [wires.connect("rocketmq") for _ in range(3)]
        sender.sendall(rocketmq.send("orders"))
        worker.sendall(rocketmq.pull() + rocketmq.send_back("workers"))
        wires.run(0.003)
        wires.received(to_sender)
        wires.received(to_worker)
        ten = b"".join(rocketmq.send("never", opaque=number, body=BODY) for number in range(10))

        def filled() -> bool:
            """Ten more at a time: what is held is refused after a while of real time, in which a busy machine may do little."""
            hoarder.sendall(ten)
            return ground.check()

        wires.until(filled)
        assert ground.watch.stopped == 2
        sender.sendall(rocketmq.send("orders"))
        worker.sendall(rocketmq.pull(opaque=7))
        wires.run(0.003)
        assert wires.received(to_sender) == b""
        assert wires.received(to_worker) == rocketmq.pull(opaque=7)
        wires.elapse(3)  # what was held is refused: its patience is over
        assert ground.check()
        assert wires.received(to_sender) == rocketmq.send("orders")


@pytest.mark.parametrize("protocol", ["amqp", "rocketmq"])
def test_a_rules_block_given_up_while_memory_is_full_leaves_the_client_stopped(protocol: str) -> None:
    """`blocking` counts both reasons; giving up what was held takes back its own only."""
    with Wires(never(protocol)) as wires:
        _client, _broker = wires.connect(protocol)
        wires.run(0.003)
        conversation = wires.session().conversation
        conversation.budget.hold_back(yes=True)
        conversation.budget.hold_back(yes=True)
        conversation.abandon()
        if protocol == "rocketmq":
            conversation.answer(b"")
        assert conversation.budget.blocking == 1
        conversation.budget.hold_back(yes=False)
        assert conversation.budget.blocking == 0


def test_whole_frames_that_were_read_before_memory_was_full_go_on_with_the_broker() -> None:
    """They leave memory in no other way: else it would be full for ever, and the broker idle."""
    with Wires() as wires:
        ground = Ground(wires)
        ends = [ground.join() for _ in range(6)]
        flood = amqp.publish(1, "free", b"x" * 10) * 10_000
        left = [flood for _ in ends]
        for _ in range(100):
            for at, (client, _) in enumerate(ends):
                client.setblocking(False)
                with suppress(BlockingIOError):
                    left[at] = left[at][client.send(left[at]) :]
            wires.run(0.003)
        assert ground.check()
        assert all(session.decode.pending for session in wires.sweeper.sessions.values())
        for _ in range(100):
            ground.check()
            for _, broker in ends:
                wires.received(broker)
        assert (ground.watch.full, ground.watch.held < MARK, ground.watch.closed) == (False, True, 0)


def test_under_pressure_half_a_frame_lets_nobody_publish_on() -> None:
    """`pressed` says that memory is short, however little is held here: floods, whose reads end within a frame, stay stopped."""
    data = amqp.publish(1, "free", BODY)
    half = len(data) // 2
    with Wires() as wires:
        ground = Ground(wires)
        pairs = [ground.join() for _ in range(5)]
        for client, broker in pairs:
            client.sendall(data + data[:half])
            wires.run(0.003)
            assert wires.received(broker)
        ground.watch.pressed = True
        ground.check()
        assert ground.watch.stopped == 5
        for _ in range(5):
            for client, _broker in pairs:
                client.sendall(data[half:] + data[:half])
            wires.run(0.003)
            ground.check()
        assert ground.watch.stopped == 5
        assert not any(wires.received(broker) for _, broker in pairs)
        ground.watch.pressed = False
        ground.check()
        wires.run(0.01)
        assert all(wires.received(broker) for _, broker in pairs)
