"""How the gateway leaves a RocketMQ client: nothing it has asked is lost, nothing it asks anew is swallowed."""

from __future__ import annotations

import select
import socket
from functools import partial

import pytest

from gateway.session import description
from gateway.session.ending import close_gracefully
from gateway.session.graceful_close import MAX_NS, MAX_REJECTING_NS, begin_graceful_close, finish_graceful_close
from gateway.session.graceful_close_state import DONE
from gateway.session.listener_config import ListenerConfig
from gateway.transport.channel import Channel
from gateway.transport.channel_states import FIN_SENT
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.processes import HANG_S
from support.rocketmq import stored_messages
from support.rocketmq.frames import (
    Value,
    encode_request,
    frame,
    heartbeat,
    json_header,
    read_response,
    response,
    send,
    split_frames,
)
from support.wires.conversations import Ports, rule
from support.wires.wires import Wires

S = 1_000_000_000
TICK_S = 0.25
PULL: dict[str, Value] = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": 0,
    "queueOffset": 0,
    "sysFlag": 2,
    "suspendTimeoutMillis": 15000,
}


def pull(opaque: int) -> bytes:
    return encode_request(11, PULL, opaque=opaque)


def of_version(version: int, language: str = "JAVA", *, opaque: int = 1, code: int = 34, flag: int = 0) -> bytes:
    return frame(json_header(code, None, opaque=opaque, language=language, version=version, flag=flag))


def leave(wires: Wires) -> None:
    session = wires.session()
    wires.sweeper.attempt(session, partial(begin_graceful_close, session, "the gateway is stopping", "drain", wires.now()))


def told(data: bytes) -> list[tuple[object, object]]:
    """(code, opaque) of each response."""
    headers = [read_response(one) for one in split_frames(data)]
    return [(header["code"], header["opaque"]) for header in headers]


def closed(end: socket.socket) -> bool:
    """Whether the gateway's FIN has come, and nothing before it."""
    return end.recv(1) == b""


def test_a_client_that_understands_is_sent_elsewhere_and_gets_what_it_had_asked_for() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send("orders", opaque=1))
        wires.run()
        assert wires.received(broker) == send("orders", opaque=1)
        leave(wires)
        one_way = send("orders", opaque=3, one_way=True)
        to_the_brokers_question = response(77, body=b"running")
        client.sendall(send("orders", opaque=2) + one_way + heartbeat(opaque=4) + to_the_brokers_question + pull(5))
        wires.run()
        assert wires.received(broker) == one_way + to_the_brokers_question
        assert told(wires.received(client)) == [(1500, 2), (1500, 4), (1500, 5)]
        wires.elapse(2)
        assert description.describe(wires.session(), wires.now()).state == "draining"
        assert wires.session().client.write_state < FIN_SENT, "the answer to the first is outstanding"
        broker.sendall(response(1))
        wires.run()
        assert wires.received(client) == response(1)
        wires.elapse(TICK_S)
        assert closed(client)


def test_after_the_end_of_what_it_is_told_its_one_way_requests_still_arrive_and_then_its_end() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(heartbeat(opaque=1))
        wires.run()
        broker.sendall(response(1))
        wires.run()
        leave(wires)
        wires.elapse(0.75)
        assert wires.session().client.write_state < FIN_SENT, "it has just asked something: it may ask again"
        wires.elapse(2 * TICK_S)
        assert wires.received(client) == response(1)
        assert closed(client)
        one_way = send("orders", opaque=2, one_way=True)
        client.sendall(one_way + send("orders", opaque=3))
        broker.sendall(encode_request(40, {"consumerGroup": "g"}, flag=2))
        wires.run()
        assert wires.received(broker) == heartbeat(opaque=1) + one_way, "what wants an answer will be repeated: it must not be done twice"
        client.close()
        wires.run()
        assert closed(broker)
        broker.close()
        wires.run()
        ((session, error),) = wires.ended
        assert (session.cause, session.detail, error) == ("drain", "the gateway is stopping", None)
        assert wires.totals("rocketmq", "orders") == {
            "received": 1, "forwarded": 1, "refused": 0, "dropped": 0, "abandoned": 0, "bypassed": 0, "delayed": 0, "waiting": 0,
        }  # fmt: skip


def test_over_tcp_answers_and_end_arrive_together() -> None:
    """In one segment, or a request could slip in between."""
    with Wires() as wires:
        client, ours = wires.tcp_pair()
        broker, upstream = wires.tcp_pair()
        wires.join("rocketmq", Channel(ours), Channel(upstream))
        for end in (client, broker):
            end.settimeout(HANG_S)
        client.sendall(of_version(409, opaque=1) + of_version(409, opaque=2))
        wires.until(lambda: wires.session().conversation.settled() is False)
        leave(wires)
        broker.sendall(response(1) + response(2))
        wires.until(lambda: wires.session().client.write_state == FIN_SENT)
        assert client.recv(1 << 16) == response(1) + response(2)
        poll = select.poll()
        poll.register(client, select.POLLRDHUP)
        assert poll.poll(0), "the answers are here, and the end is not"


def test_polls_are_not_waited_for_but_their_clients_are_told_to_repeat_them() -> None:
    """A client whose connection just ends waits for 3 s before it pulls again."""
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(pull(1) + pull(2) + pull(3))
        wires.run()
        broker.sendall(response(2, code=19))
        wires.run()
        assert told(wires.received(client)) == [(19, 2)]
        wires.elapse(1)
        leave(wires)
        wires.elapse(TICK_S)
        broker.sendall(response(1))
        wires.run()
        assert told(wires.received(client)) == [(1500, 1), (1500, 3)]


def test_a_client_that_has_just_begun_to_poll_is_not_given_as_long_as_one_that_sends() -> None:
    with Wires() as wires:
        client, _ = wires.connect("rocketmq")
        client.sendall(pull(1))
        wires.run()
        leave(wires)
        wires.elapse(TICK_S)
        assert wires.session().client.write_state < FIN_SENT
        wires.elapse(TICK_S)
        assert told(wires.received(client)) == [(1500, 1)]
        assert closed(client)


def test_polls_that_a_rule_holds_are_not_waited_for_either() -> None:
    none = Limit(messages=Rate(0))
    with Wires(Rule("stopped", Match(protocol="rocketmq", topic="orders", operation="consume"), "topic", none)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(stored_messages.pull(opaque=1) + heartbeat(opaque=2))
        wires.run()
        broker.sendall(response(2))
        wires.run()
        assert wires.session().conversation.budget.held_polls == 1
        leave(wires)
        wires.elapse(1.25)
        assert told(wires.received(client)) == [(0, 2), (1500, 1)]
        assert wires.session().conversation.budget.held_polls == 0
        assert wires.received(broker) == heartbeat(opaque=2)


def test_frames_of_the_gateway_never_stand_within_an_answer_and_no_answer_is_cut() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(pull(1) + pull(2))
        wires.run()
        answer = response(1, body=b"m" * 1000)
        broker.sendall(answer[:600])
        wires.run()
        leave(wires)
        client.sendall(heartbeat(opaque=3))
        wires.run()
        assert wires.received(client) == answer[:600]
        wires.elapse(2 * TICK_S)
        assert wires.session().client.write_state < FIN_SENT
        broker.sendall(answer[600:])
        wires.run()
        got = wires.received(client)
        assert got.startswith(answer[600:])
        assert told(got[len(answer) - 600 :]) == [(1500, 3), (1500, 2)]
        assert closed(client)


OTHERS = pytest.mark.parametrize(("language", "version"), [("JAVA", 409), ("JAVA", 475), ("CPP", 479), ("GO", 493), ("OTHER", 479)])


@OTHERS
def test_others_get_all_their_answers_at_once_and_the_end_behind_them(language: str, version: int) -> None:
    """So they have nothing to ask while they do not know yet: 4.9.8 would wait for the answer until its time is out."""
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        asked = [of_version(version, language, opaque=opaque) for opaque in range(1, 4)]
        client.sendall(asked[0])
        wires.run()
        client.sendall(asked[1])
        leave(wires)
        wires.run()
        assert wires.received(broker) == asked[0] + asked[1], "it was in the socket when the close began"
        broker.sendall(response(1))
        wires.run()
        assert wires.received(client) == b"", "or a client that sends one by one would never come to rest"
        client.sendall(asked[2])
        wires.run()
        assert wires.received(broker) == asked[2]
        broker.sendall(response(2) + response(3))
        wires.run()
        assert wires.received(client) == response(1) + response(2) + response(3)
        assert closed(client)
        one_way = of_version(version, language, opaque=4, flag=2)
        client.sendall(one_way + of_version(version, language, opaque=5))
        wires.run()
        assert wires.received(broker) == one_way


@OTHERS
def test_others_that_do_not_come_to_rest_are_not_read_any_more_after_a_second(language: str, version: int) -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        asked = [of_version(version, language, opaque=opaque) for opaque in range(1, 5)]
        client.sendall(asked[0] + asked[1])
        wires.run()
        leave(wires)
        broker.sendall(response(1))
        wires.run()
        wires.elapse(0.75)
        client.sendall(asked[2])
        broker.sendall(response(2))
        wires.run()
        assert wires.received(client) == b""
        wires.elapse(0.5)
        assert wires.received(client) == response(1) + response(2)
        client.sendall(asked[3])
        wires.run()
        assert wires.received(broker) == b"".join(asked[:3])
        assert wires.session().client.write_state < FIN_SENT
        broker.sendall(response(3))
        wires.run()
        assert wires.received(client) == response(3)
        assert closed(client)


def test_answers_are_not_gathered_beyond_the_backlog() -> None:
    with Wires(backlog_bytes=10_000) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(of_version(409, opaque=1) + of_version(409, opaque=2))
        wires.run()
        leave(wires)
        large = response(1, body=b"x" * 20_000)
        broker.sendall(large)
        wires.run()
        assert wires.received(client) == large


def test_polls_of_others_end_with_an_error_before_the_end() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(frame(json_header(11, PULL, opaque=7, version=409)))
        wires.run()
        assert wires.received(broker)
        leave(wires)
        wires.elapse(TICK_S)
        assert told(wires.received(client)) == [(14, 7)]
        assert closed(client)


def test_a_broker_that_never_answers_is_waited_for_until_it_has_been_silent_for_a_second() -> None:
    """Go and C++ do not mark what is one-way."""
    with Wires() as wires:
        client, _ = wires.connect("rocketmq")
        client.sendall(of_version(317, "GO", code=37))
        wires.run()
        leave(wires)
        wires.elapse(0.75)
        assert wires.session().client.write_state < FIN_SENT
        wires.elapse(0.5)
        assert closed(client)


def test_a_client_that_goes_on_asking_is_rejected_for_two_seconds_and_then_closed() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(heartbeat())
        wires.run()
        broker.sendall(response(1))
        wires.run()
        leave(wires)
        asked = [2]
        began_at = wires.now()
        while wires.session().client.write_state < FIN_SENT:
            client.sendall(heartbeat(opaque=asked[-1]))
            wires.run(0.002)
            asked.append(asked[-1] + 1)
            wires.stand_still(0.05)
            assert wires.now() - began_at < MAX_REJECTING_NS + S // 2
        assert wires.now() - began_at >= MAX_REJECTING_NS - S // 10
        assert told(wires.received(client)) == [(0, 1), *((1500, opaque) for opaque in asked[:-1])]


def test_a_held_send_goes_its_way_first() -> None:
    with Wires(rule("delay", messages=2)) as wires:
        client, broker = wires.connect("rocketmq")
        sends = [send("orders", opaque=number) for number in range(4)]
        client.sendall(b"".join(sends))
        wires.run()
        leave(wires)
        forwarded = wires.received(broker)
        broker.sendall(response(0) + response(1))
        wires.until(lambda: wires.session().conversation.budget.held_messages == 0)
        wires.run()
        forwarded += wires.received(broker)
        assert forwarded == b"".join(sends)
        assert wires.session().client.write_state < FIN_SENT
        broker.sendall(response(2) + response(3))
        wires.run()
        wires.elapse(1)  # it is left a second after it was told, however long the machine took until here
        assert told(wires.received(client)) == [(0, 0), (0, 1), (0, 2), (0, 3)]
        assert closed(client)


def test_an_operators_close_is_as_orderly() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(send("orders", opaque=1))
        wires.run()
        wires.sweeper.attempt(wires.session(), partial(close_gracefully, wires.session(), "closed by an operator", "admin", wires.now()))
        wires.sweeper.end(wires.session())
        wires.elapse(1)
        broker.sendall(response(1))
        wires.run()
        wires.elapse(TICK_S)
        assert wires.received(client) == response(1)
        assert closed(client)
        client.close()
        broker.close()
        wires.run()
        assert wires.ended[0][0].cause == "admin"


def test_a_graceful_close_has_a_deadline() -> None:
    """The client does not read: its answers never leave."""
    with Wires(backlog_bytes=1 << 20) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(pull(1))
        wires.run()
        answer = response(1, body=bytes(8 << 20))
        broker.setblocking(False)
        sent = broker.send(answer)
        wires.run()
        assert wires.session().client.backlog or sent < len(answer)
        leave(wires)
        wires.elapse(MAX_NS / S - TICK_S)
        close = wires.session().graceful_close
        assert close is not None
        assert close.phase != DONE
        wires.elapse(2 * TICK_S)
        assert close.phase == DONE


def test_a_name_servers_client_gets_its_route_before_the_end() -> None:
    config = ListenerConfig("names", "rocketmq-nameserver", 1 << 24, 10 * S)
    config.routes = Ports()
    with Wires() as wires:
        client, broker = wires.connect("rocketmq-nameserver", config=config)
        client.sendall(encode_request(105, {"topic": "orders"}, opaque=1))
        wires.run()
        leave(wires)
        route = b'{"brokerDatas":[{"brokerAddrs":{0:"10.1.2.3:10911"},"brokerName":"broker-a","cluster":"c"}],"queueDatas":[]}'
        answer = response(1, body=route)
        broker.sendall(answer[:-20])
        wires.run()
        assert wires.session().client.write_state < FIN_SENT
        broker.sendall(answer[-20:])
        wires.run()
        (got,) = split_frames(wires.received(client))
        assert b'{0:"gateway.example:20911"}' in got
        assert closed(client)


def test_a_connection_that_was_never_used_is_closed_at_once_and_leaving_twice_is_leaving_once() -> None:
    with Wires() as wires:
        client, broker = wires.connect("rocketmq")
        wires.run()
        leave(wires)
        begin_graceful_close(wires.session(), "again", "admin", wires.now())
        wires.elapse(TICK_S)
        assert closed(client)
        finish_graceful_close(wires.session(), wires.now())
        client.close()
        broker.close()
        wires.run()
        ((session, _),) = wires.ended
        assert (session.cause, session.detail) == ("drain", "the gateway is stopping")
        assert repr(session.graceful_close) == "<GracefulClose done rejections=0 the gateway is stopping>"
