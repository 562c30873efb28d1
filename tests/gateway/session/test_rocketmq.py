"""RocketMQ in real sessions: the largest frames, half-closes, cuts, any chunks, and brokers that mean harm (F03, F06, F07, F11, F26)."""

from __future__ import annotations

import select
import socket
import struct
import tracemalloc
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from gateway.protocols.rocketmq.broker_stream import MAX_HEAD_BYTES
from gateway.session.listener_config import ListenerConfig
from gateway.transport.channel import READ_BYTES, Channel
from gateway.transport.channel_states import FIN_SENT
from support.rocketmq.frames import encode_request, frame, heartbeat, json_header, read_response, response, send, split_frames
from support.rocketmq.talks import check_broker, check_client, said_by_broker, said_by_client
from support.wires.conversations import randomly, rule
from support.wires.wires import Wires

MIB = 1 << 20
LARGEST = 16 * MIB
PULL = encode_request(11, {"topic": "orders", "queueId": 0, "sysFlag": 2}, opaque=3)
CALLBACK = encode_request(307, {"clientId": "c"}, opaque=3)


def sweep(wires: Wires, times: int = 5) -> None:
    for _ in range(times):
        wires.sweeper.sweep(0)


def passed(wires: Wires, source: socket.socket, target: socket.socket, data: bytes) -> bytes:
    """Send `data` and sweep until as much has come out at the other end; nothing waits for anything but the sockets."""
    source.setblocking(False)
    sent = 0
    found = b""
    for _ in range(200_000):
        if sent < len(data):
            with suppress(BlockingIOError):
                sent += source.send(data[sent : sent + MIB])
        wires.sweeper.sweep(0)
        found += wires.received(target)
        if len(found) >= len(data) or not wires.sweeper.sessions:
            return found
    raise AssertionError(f"{len(found)} of {len(data)} bytes have come")


def ended(end: socket.socket) -> bool:
    """Whether the gateway has closed its side, everything before it having been read."""
    end.settimeout(1)
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def codes(frames: bytes) -> list[object]:
    return [read_response(each)["code"] for each in split_frames(frames)]


def sized(whole: int, opaque: int = 1, code: int = 310, topic: str = "orders", batch: str = "false") -> bytes:
    """A frame of exactly so many bytes."""
    header = json_header(code, {"b": topic, "a": "g", "m": batch}, opaque=opaque)
    return frame(header, b"\xa5" * (whole - 8 - len(header)))


@pytest.mark.parametrize("code", [310, 9_999], ids=["a send", "an unknown code"])
def test_a_frame_as_large_as_allowed_passes_both_ways_and_little_of_it_is_kept(code: int) -> None:
    with Wires(rule(messages=1000)) as wires:
        client, broker = wires.connect("rocketmq")
        data = sized(LARGEST, code=code) + heartbeat(opaque=2)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        assert passed(wires, client, broker, data) == data
        assert wires.session().buffered() == 0
        tracemalloc.stop()
        assert before < LARGEST
        assert passed(wires, broker, client, data) == data
        assert wires.ended == []


def test_a_byte_more_than_allowed_is_refused_and_none_of_it_forwarded() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(heartbeat() + sized(LARGEST + 1)[:100_000])
        sweep(wires)
        assert wires.received(broker) == heartbeat()
        ((session, _),) = wires.ended
        assert session.cause == "frame_too_large"
        assert str(LARGEST + 1) in session.detail
        assert ended(broker)


def test_the_largest_refused_frame_is_swallowed_and_answered_once() -> None:
    with Wires(rule(messages=0, topic="orders", protocol="rocketmq")) as wires:
        client, broker = wires.connect("rocketmq")
        data = sized(LARGEST, opaque=77)
        tracemalloc.start()
        for at in range(0, len(data), 50_000):
            client.sendall(data[at : at + 50_000])
            wires.sweeper.sweep(0)
        client.sendall(heartbeat(opaque=78))
        sweep(wires)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert wires.received(broker) == heartbeat(opaque=78)
        (reply,) = split_frames(wires.received(client))
        assert b'"opaque":         77,' in reply
        assert peak < 3 * MIB, "a refused body is not collected"


def test_a_client_that_has_finished_still_gets_its_answers_and_then_the_end() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send(opaque=1) + PULL)
        client.shutdown(socket.SHUT_WR)
        sweep(wires)
        assert wires.received(broker) == send(opaque=1) + PULL
        broker.sendall(response(1))
        sweep(wires)
        assert wires.received(client) == response(1)
        broker.sendall(CALLBACK + response(3, 19))
        sweep(wires)
        assert wires.received(client) == CALLBACK + response(3, 19)
        assert wires.ended == [], "while the broker has not finished"
        assert ended(broker), "and it is told that the client has"
        broker.shutdown(socket.SHUT_WR)
        sweep(wires)
        assert ended(client)
        assert [session.cause for session, _ in wires.ended] == ["client"]


def test_held_sends_of_a_client_that_has_finished_go_before_its_end() -> None:
    with Wires(rule("delay", messages=1, burst=1, protocol="rocketmq", topic="orders")) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send(opaque=1) + send(opaque=2))
        client.shutdown(socket.SHUT_WR)
        wires.run()
        assert wires.received(broker) == send(opaque=1)
        wires.elapse(1.25)
        assert wires.received(broker) == send(opaque=2)
        assert ended(broker)


@pytest.mark.parametrize("code", [34, 41, 11, 200_050, 310], ids=["heartbeat", "lock", "pull", "pop", "send"])
def test_what_a_client_said_before_its_end_passes_also_where_its_end_shows_first(code: int) -> None:
    """What would consume for it was thrown away, though the broker learns of the end right behind it: a pull commits an offset, too."""
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        said = sized(2 * READ_BYTES, code=9_999) + encode_request(code, {"topic": "orders", "b": "orders", "queueId": 0}, b"{}", opaque=2)
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        wires.run()
        assert wires.received(broker) == said
        assert ended(broker)


def test_a_client_that_ends_while_its_sends_wait_leaves_its_groups_behind_its_last_heartbeat_and_polls_no_more() -> None:
    group = b'{"clientID":"c@1","consumerDataSet":[{"groupName":"g"}],"producerDataSet":[]}'
    with Wires(rule("delay", messages=1, burst=1, protocol="rocketmq", topic="orders")) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send(opaque=1) + send(opaque=2) + sized(2 * READ_BYTES, code=9_999) + PULL + encode_request(34, None, group))
        client.shutdown(socket.SHUT_WR)
        wires.run()
        assert codes(wires.received(broker)) == [310, 9_999, 34, 35]
        wires.elapse(1.25)
        assert codes(wires.received(broker)) == [310]
        assert ended(broker)


def test_a_broker_that_has_finished_is_an_end_for_the_client_behind_its_last_bytes() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send(opaque=1))
        sweep(wires)
        broker.sendall(response(1) + CALLBACK)
        broker.shutdown(socket.SHUT_WR)
        sweep(wires)
        assert wires.received(client) == response(1) + CALLBACK
        assert ended(client)
        client.close()
        sweep(wires)
        assert [session.cause for session, _ in wires.ended] == ["broker"]


def has_received(wires: Wires, size: int) -> bool:
    return wires.session().client.received >= size


@pytest.mark.parametrize("how", ["rst", "fin"])
@pytest.mark.parametrize("refused", [False, True], ids=["passing", "refused"])
def test_a_client_cut_at_any_byte_leaves_the_broker_a_beginning_of_what_it_said(how: str, refused: bool) -> None:
    """F06: the broker throws half a frame away; of a refused one it gets nothing at all."""
    first, cut, large = send("free", opaque=1), send(opaque=2), sized(5_000, opaque=3)
    said = cut + large
    rules = [rule(messages=0, protocol="rocketmq", topic="orders")] if refused else []
    for offset in (*range(20), *range(20, len(said), 331), len(cut) - 1, len(cut), len(cut) + 1, len(said) - 1):
        with Wires(*rules, hold_bytes=2048) as wires:
            client, ours = wires.tcp_pair()
            broker, theirs = wires.tcp_pair()
            wires.join("rocketmq", Channel(ours), Channel(theirs))
            client.sendall(first + said[:offset])
            wires.until(partial(has_received, wires, len(first) + offset))
            sweep(wires, 2)
            if how == "rst":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            else:
                client.shutdown(socket.SHUT_WR)
            sweep(wires, 3)
            got = wires.received(broker)
            if refused:
                assert got == first, f"cut at {offset}"
            else:
                assert (first + said).startswith(got), f"cut at {offset}"
                assert got.startswith(first)
                whole = split_frames(first + (cut if offset >= len(cut) else b""))
                assert got.startswith(b"".join(whole))
            assert ended(broker)


def test_a_thousand_frames_in_a_segment_and_one_byte_a_segment_mean_the_same() -> None:
    """F11, with the work counted in decoded requests rather than in time."""
    said = (send(opaque=1) + heartbeat(opaque=2) + send("other", opaque=3, binary=True) + PULL) * 250
    told = (response(1) + CALLBACK + response(3, 2, remark="busy")) * 250
    for size in (len(said), 64, 1):
        with Wires(rule(messages=1_000_000)) as wires:
            client, broker = wires.connect("rocketmq")
            for source, target, words in ((client, broker, said), (broker, client, told)):
                if size == len(said):
                    assert passed(wires, source, target, words) == words
                    continue
                data = words if size > 1 else words[: len(words) // 25]
                found = b""
                for at in range(0, len(data), size):
                    source.sendall(data[at : at + size])
                    wires.sweeper.sweep(0)
                    found += wires.received(target)
                wires.run(0.005)
                assert found + wires.received(target) + wires.session().decode.rest == data


@pytest.mark.parametrize("seed", [*range(7), 13])  # 13: its last frame was thrown away
def test_a_conversation_over_sockets_arrives_whole(seed: int) -> None:
    """As in protocols/rocketmq/test_passing.py, with everything around the conversation that a session has."""
    random = Random(seed)
    said, told = said_by_client(random, 80), said_by_broker(random, 80)
    rules = [rule("reject", messages=5, burst=5, topic=topic, name=topic) for topic in ("r", "d")]
    with Wires(*rules, hold_bytes=random.choice((4096, MIB)), threads=seed % 2) as wires:
        client, broker = wires.connect("rocketmq")
        arrived = heard = b""
        pieces = [(client, piece) for piece in randomly(b"".join(one.frame for one in said), seed)]
        pieces += [(broker, piece) for piece in randomly(b"".join(told), seed + 1)]
        order = [end for end, _ in pieces]
        random.shuffle(order)
        rest = {end: iter([piece for whose, piece in pieces if whose is end]) for end in (client, broker)}
        for end in order:
            while random.random() < 0.3 or not select.select([], [end], [], 0)[1]:  # full while the judge's thread gets no turn
                wires.sweeper.sweep(0)
                arrived += wires.received(broker)
                heard += wires.received(client)
            end.sendall(next(rest[end]))
        client.shutdown(socket.SHUT_WR)
        wires.until(lambda: wires.session().upstream.write_state == FIN_SENT)  # the judge's thread may be late
        wires.run(0.02)
        arrived += wires.received(broker)
        heard += wires.received(client)
        check_broker(said, arrived, check_client(told, heard), silent=set())
        assert ended(broker)


@pytest.mark.parametrize("batch", ["false", "true"])
def test_a_large_frame_that_trickles_costs_its_bytes_and_little_more(batch: str) -> None:
    """Each piece used to be kept as an object of its own: 33 bytes more than it had."""
    with Wires(rule(messages=1_000_000)) as wires:
        client, broker = wires.connect("rocketmq")
        data = sized(60_000, batch=batch)
        client.sendall(data[:40_000])  # more than is copied at each read
        sweep(wires)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for at in range(40_000, len(data) - 1, 3):
            client.send(data[at : min(at + 3, len(data) - 1)])
            wires.sweeper.sweep(0)
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert wires.received(broker) == b""
        assert kept < 60_000
        client.send(data[-1:])
        sweep(wires)
        assert wires.received(broker) == data


# ---- brokers that mean harm ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        response(999) * 50,  # nobody asked
        response(1) * 50,  # once would have been enough
        response(-1) + response(2**31 - 1) + response(0),
        frame(b'{"code":0,"flag":1,"opaque":99999999999999999999}'),
        frame(b'{"code":1e400,"flag":1}') + frame(b"[" * 10_000) + frame(b'{"code":0,"opaque":}') + frame(b""),
        frame(b'{"code":0,"flag":1,"opaque":"1"}') + frame(b'{"code":"0","flag":1,"opaque":1}'),
        frame(b"\x00" * 21, kind=1) + frame(b"\xff" * 21, kind=1) + frame(b"\x00", kind=1) + frame(b"", kind=1) + frame(b"x", kind=7),
        frame(struct.pack(">HBHiiI", 2, 0, 0, 1, 1, 0xFFFFFFFF), kind=1),  # a remark of 4 GiB
        response(1, 2, remark="[TIMEOUT_CLEAN_QUEUE]" + "period in queue: 9" * 5000),
        response(1, 2, remark="period in queue: 99999999999999999999ms, size of queue: 1e400"),
        frame(b'{"code":2,"flag":1,"opaque":1,"remark":"\xff"}') + frame(b'{"code":2,"flag":1,"opaque":1,"remark":"\\ud800"}'),
    ],
    ids=lambda words: repr(words[8:40]),
)
def test_whatever_a_broker_answers_passes_as_it_is_and_harms_no_other_connection(words: bytes) -> None:
    """F26: the client takes the answers it can place and drops the others; the gateway never takes one for another."""
    with Wires(rule(messages=2, protocol="rocketmq", topic="orders")) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send(opaque=1) + send(opaque=2) + send(opaque=3) + PULL)
        sweep(wires)
        (refusal,) = split_frames(wires.received(client))
        assert b'"opaque":          3,' in refusal
        broker.sendall(words)
        sweep(wires)
        assert wires.received(client) == words
        client.sendall(heartbeat(opaque=9))
        broker.sendall(response(9))
        sweep(wires)
        assert wires.received(client) == response(9)
        assert wires.session().conversation.budget.held_bytes == 0
        assert wires.ended == []


@pytest.mark.parametrize("piece", [1, 3, 4096], ids=lambda size: f"{size} bytes a piece")
def test_a_header_that_never_ends_costs_little_and_passes(piece: int) -> None:
    size = MAX_HEAD_BYTES - 100 if piece > 100 else 8_000
    start = struct.pack(">II", LARGEST - 4, MAX_HEAD_BYTES) + b'{"code":0,"remark":"'
    data = start + b"x" * (size - len(start))
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        sweep(wires)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        found = 0
        for at in range(0, size, piece):
            broker.sendall(data[at : at + piece])
            wires.sweeper.sweep(0)
            found += len(wires.received(client))
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert found == size
        assert kept < 2 * size + 50_000, "bytes kept of a header nobody will see the end of"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (struct.pack(">II", 3, 0), "a frame of 3 bytes"),
        (bytes(8), "a frame of 0 bytes"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it begins with 'HTTP', is `upstream` a RocketMQ broker?"),
        (struct.pack(">II", 10, 7) + bytes(6), "a header of 7 bytes in a frame of 14"),
        (b"AMQP\x00\x00\x09\x01", "it begins with 'AMQP'"),
    ],
    ids=lambda value: repr(value) if isinstance(value, bytes) else "",
)
def test_bytes_of_a_broker_that_are_no_frame_end_the_connection_as_the_brokers_fault(words: bytes, said: str) -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        other, other_broker = wires.connect("rocketmq")
        client.sendall(send(opaque=1))
        sweep(wires)
        broker.sendall(response(1) + words)
        sweep(wires)
        told = wires.received(client)
        assert (response(1) + words).startswith(told)
        ((session, _),) = wires.ended
        assert session.cause == "broker_protocol_error"
        assert said in session.detail
        assert ended(client)
        other.sendall(heartbeat())
        sweep(wires)
        assert wires.received(other_broker) == heartbeat()


def test_a_broker_that_stops_within_a_frame_does_not_let_refusals_pile_up() -> None:
    """The refusals wait for the frame's end and count as held; at the budget the client is not read any more."""
    with Wires(rule(messages=0, protocol="rocketmq", topic="orders"), hold_bytes=32_768) as wires:
        client, broker = wires.connect("rocketmq", config=ListenerConfig("here", "rocketmq", 1 << 24, 10_000_000_000))
        broker.sendall(response(1, body=b"x" * 100)[:-1])
        sweep(wires)
        client.setblocking(False)
        sent = 0
        for opaque in range(20_000):
            try:
                sent += client.send(send(opaque=opaque, body=b""))
            except BlockingIOError:
                break
            wires.sweeper.sweep(0)
        sweep(wires)
        conversation = wires.session().conversation
        assert wires.session().withheld()
        assert conversation.budget.held_bytes < 200_000
        broker.sendall(b"x")
        sweep(wires, 50)
        first, *refusals = split_frames(wires.received(client))
        assert first == response(1, body=b"x" * 100)
        assert refusals
