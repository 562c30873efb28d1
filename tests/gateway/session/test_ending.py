"""How an AMQP connection ends, from either side, at any moment: who is told what, what still arrives, what is counted.

Rows F07, F14 and F20 to F27 of `docs/design/reliability.md`, with a broker played by hand.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from pamqp import commands

from gateway.app import find_in_the_way
from gateway.assembly import assemble
from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.session.description import describe
from gateway.session.ending import send_close
from gateway.session.listener_config import ListenerConfig
from gateway.transport.channel import Channel
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.amqp.link import Link, over_tcp
from support.processes import HANG_S
from support.wires.wires import Decide, Wires

LOST = "CONNECTION_FORCED - the broker behind this gateway closed the connection"
UNANSWERED = "the broker has not answered connection.close in time"
CLOSE = commands.Connection.Close
CLOSE_OK = amqp.method(0, commands.Connection.CloseOk())


def close(code: int = 200, text: str = "bye") -> bytes:
    return amqp.method(0, CLOSE(code, text, 0, 0))


def limited(rate: int = 0, burst: int = 3, **more: object) -> Rule:
    limit = Limit(messages=Rate(rate), messages_burst=burst) if rate else Limit(messages=Rate(0))
    return Rule("limited", Match(protocol="amqp", routing_key="limited"), "topic", limit, open_for_ns=0, **more)  # type: ignore[arg-type]


def reset(end: socket.socket) -> None:
    """Close with RST."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


@pytest.fixture
def wires() -> Iterator[Wires]:
    with Wires(limited()) as made:
        yield made


# ---- the broker goes away ----------------------------------------------------------------------------------------------


def test_the_client_is_told_in_the_protocol_of_a_broker_that_ends_without_a_close(wires: Wires) -> None:
    link = Link(wires, confirms=(1,))
    link.say(amqp.publish(1, "free") * 3)
    link.answer(amqp.ack(1, 1))
    link.broker.close()
    wires.run()
    frames = amqp.read(link.at_client())
    assert [frame.name for frame in frames] == ["Basic.Ack", "Connection.Close"], "nothing is acked that the broker did not ack"
    assert (frames[1].value.reply_code, frames[1].value.reply_text) == (320, LOST)
    assert link.client.recv(1) == b"", "and the connection is closed"
    link.client.close()
    wires.run()
    assert [session.cause for session, _ in wires.ended] == ["broker_lost"]


def test_the_client_is_told_of_a_broker_that_resets_after_its_last_frames(wires: Wires) -> None:
    """A send of ours that fails must not take what it had said before."""
    link = over_tcp(wires, confirms=(1,))
    link.say(amqp.publish(1, "free") * 3)
    link.at_broker()
    link.broker.sendall(amqp.ack(1, 2, multiple=True))
    link.client.sendall(amqp.publish(1, "free") * 50)
    reset(link.broker)
    wires.run()
    frames = amqp.read(link.at_client())
    assert [frame.name for frame in frames] == ["Basic.Ack", "Connection.Close"]
    assert frames[1].value.reply_code == 320
    link.client.close()
    wires.run()
    assert [(session.cause, error) for session, error in wires.ended] == [("broker_lost", None)]


def test_nothing_is_sent_within_a_frame_that_was_half_passed_on(wires: Wires) -> None:
    link = Link(wires)
    half = amqp.deliver(1, b"d" * 1000)[:-400]
    link.answer(half)
    link.broker.close()
    wires.run()
    assert link.at_client() == half
    assert link.client.recv(1) == b""


def test_before_the_connection_is_open_a_bare_end_stays_one(wires: Wires) -> None:
    """Clients read it as the answer to wrong credentials (RabbitMQ closes so where the client cannot be told otherwise)."""
    client, broker = wires.connect("amqp")
    broker.sendall(amqp.broker_start())
    client.sendall(amqp.greeting())
    wires.run()
    broker.close()
    wires.run()
    assert amqp.names(wires.received(client)) == ["Connection.Start"]
    assert client.recv(1) == b""


@pytest.mark.parametrize(("answer", "sends_proxy", "told"), [(b"", False, "none"), (amqp.PROTOCOL_HEADER, True, "v2")])
def test_the_client_is_told_of_a_broker_that_closes_early_with_the_likely_reason(
    wires: Wires, answer: bytes, sends_proxy: bool, told: str
) -> None:
    """RabbitMQ with proxy_protocol closes without a word where no PROXY header comes; without, it answers one with its own header."""
    (client, ours_client), (broker, ours_upstream) = wires.tcp_pair(), wires.tcp_pair()
    config = ListenerConfig("here", "amqp", 1 << 24, 10_000_000_000, sends_proxy=sends_proxy)
    wires.sweeper.add(assemble(1, Channel(ours_client), ("10.0.0.7", 1), Channel(ours_upstream), config, wires.shared), wires.now())
    client.sendall(amqp.PROTOCOL_HEADER)
    wires.run()
    broker.recv(100)
    broker.sendall(answer)
    broker.close()
    wires.run()
    heard = wires.received(client)
    client.sendall(amqp.greeting()[len(amqp.PROTOCOL_HEADER) :])
    wires.run()
    heard += wires.received(client)
    frames = amqp.read(heard)
    assert [frame.name for frame in frames] == ["Connection.Start", "Connection.Tune", "Connection.Close"]
    text = f"the broker closed before connection.start; does send_proxy_protocol ({told}) fit the broker's proxy_protocol?"
    assert (frames[2].value.reply_code, frames[2].value.reply_text) == (320, f"CONNECTION_FORCED - {text}")
    client.sendall(CLOSE_OK)
    wires.run()
    assert client.recv(1) == b""
    client.close()
    wires.run()
    assert [(session.cause, session.detail) for session, _ in wires.ended] == [("broker_closed_early", text)]


@pytest.mark.parametrize("who", ["broker", "client"])
def test_a_client_that_was_told_already_is_not_told_again(wires: Wires, who: str) -> None:
    link = Link(wires)
    if who == "broker":
        link.answer(close(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"))
        link.broker.close()
        wires.run()
        assert amqp.names(link.at_client()) == ["Connection.Close"]
    else:
        link.say(close())
        assert link.at_broker() == close()
        link.answer(CLOSE_OK)
        link.broker.close()
        wires.run()
        assert link.at_client() == CLOSE_OK
    assert link.client.recv(1) == b""
    link.client.close()
    wires.run()
    assert [session.cause for session, _ in wires.ended] == ["broker"]


def test_held_messages_are_abandoned_and_counted_when_the_broker_goes(wires: Wires) -> None:
    link = Link(wires)
    link.say(amqp.publish(1, "limited") * 7 + amqp.publish(2, "free") * 2)
    link.broker.close()
    wires.run()
    link.say(amqp.publish(2, "free"))  # discarded: nothing goes anywhere any more
    link.client.close()
    wires.run()
    assert wires.ended
    assert counts(wires, "limited") == {"received": 7, "forwarded": 0, "abandoned": 7, "waiting": 0}
    assert counts(wires, "free") == {"received": 2, "forwarded": 2, "abandoned": 0, "waiting": 0}


def test_messages_being_judged_are_abandoned_and_counted_when_the_broker_goes() -> None:
    gate = threading.Event()

    def slow(decide: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            gate.wait(HANG_S)
            decide(requests, now)

        return judge

    with Wires(limited(rate=1000, burst=1000), threads=1, wrap=slow) as wires:
        link = Link(wires)
        link.say(amqp.publish(1, "limited") * 7)
        assert link.session.batch is not None
        link.broker.close()
        wires.run()
        gate.set()
        wires.until(lambda: link.session.batch is None)
        link.client.close()
        wires.run()
        assert wires.ended
        assert counts(wires, "limited") == {"received": 7, "forwarded": 0, "abandoned": 7, "waiting": 0}


def test_a_client_that_does_not_close_after_it_was_told_is_closed_in_time(wires: Wires) -> None:
    link = Link(wires)
    link.broker.close()
    wires.elapse(9)
    assert wires.sweeper.sessions
    wires.elapse(2)
    assert [session.cause for session, _ in wires.ended] == ["broker_lost"]


def test_a_client_that_takes_nothing_for_five_minutes_is_closed_and_the_broker_told() -> None:
    with Wires(backlog_bytes=50_000) as wires:
        link = Link(wires)
        link.flood(link.broker, amqp.deliver(1, b"d" * 10_000))
        assert link.session.client.backlog <= 50_000 + (1 << 18) + 20_000, "the cap, and one read"
        wires.elapse(299)
        assert link.cause() == ""
        wires.elapse(2)
        assert link.cause() == "client_stalled"
        assert amqp.names(link.at_broker()) == ["Connection.Close"]


def stalled(wires: Wires) -> Link:
    """A client that has taken nothing for five minutes, with more waiting for it than the gateway reads ahead."""
    link = Link(wires)
    link.flood(link.broker, amqp.deliver(1, b"d" * 10_000))
    wires.elapse(301)
    assert link.cause() == "client_stalled"
    assert amqp.names(link.at_broker()) == ["Connection.Close"]
    return link


def test_a_client_that_takes_nothing_is_gone_when_its_broker_has_closed() -> None:
    """Its own end is not waited for: the close stands behind what it does not take. The broker's was not read while that was so."""
    with Wires(backlog_bytes=50_000) as wires:
        link = stalled(wires)
        link.answer(amqp.deliver(1, b"d" * 10_000) + CLOSE_OK)
        link.broker.close()
        wires.run()
        assert [session.cause for session, _ in wires.ended] == ["client_stalled"]
        assert not wires.sweeper.sessions


def test_a_client_that_takes_nothing_is_gone_within_ten_seconds_where_its_broker_is_silent() -> None:
    with Wires(backlog_bytes=50_000) as wires:
        stalled(wires)
        wires.elapse(8)
        assert wires.sweeper.sessions
        wires.elapse(4)
        assert [session.cause for session, _ in wires.ended] == ["client_stalled"]
        assert not wires.sweeper.sessions


def test_a_consumer_that_does_not_read_shows_as_one() -> None:
    with Wires(backlog_bytes=50_000) as wires:
        link = Link(wires)
        link.answer(amqp.deliver(1, b"d" * 10) * 7)
        shown = describe(link.session, wires.now())
        assert (shown.messages_delivered, shown.backlog_to_client, shown.unread_seconds) == (7, 0, 0)
        assert (shown.messages_forwarded, shown.bottleneck) == (0, "none")
        link.flood(link.broker, amqp.deliver(1, b"d" * 10_000))
        wires.elapse(30)
        shown = describe(link.session, wires.now())
        assert int(str(shown.messages_delivered)) > 7
        assert int(str(shown.backlog_to_client)) > 50_000
        assert 29 <= float(str(shown.unread_seconds)) <= 31
        assert shown.bottleneck == "client"


# ---- the client goes away ----------------------------------------------------------------------------------------------


def test_confirms_still_reach_a_client_that_has_finished_sending(wires: Wires) -> None:
    """RabbitMQ drops the confirms it owes when its connection is closed, so that comes behind them."""
    link = Link(wires, confirms=(1,))
    link.say(amqp.publish(1, "free") * 3)
    link.at_broker()
    link.client.shutdown(socket.SHUT_WR)
    wires.elapse(1)
    assert_nothing(link.broker)
    link.answer(amqp.ack(1, 3, multiple=True))
    assert amqp.confirms(link.at_client()) == [amqp.Confirm(1, acked=True, tag=3, multiple=True)]
    link.end_in_words()
    link.broker.close()
    wires.run()
    assert link.client.recv(1) == b""
    assert [session.cause for session, _ in wires.ended] == ["client"]


def test_confirms_are_not_waited_for_for_ever(wires: Wires) -> None:
    link = Link(wires, confirms=(1,))
    link.say(amqp.publish(1, "free"))
    link.at_broker()
    link.client.shutdown(socket.SHUT_WR)
    wires.elapse(3)
    link.end_in_words()


def test_a_client_without_outstanding_confirms_is_not_kept(wires: Wires) -> None:
    """Its exclusive queues and its unacked deliveries wait for the broker to notice."""
    link = Link(wires)
    link.say(amqp.publish(1, "free"))
    link.at_broker()
    link.client.shutdown(socket.SHUT_WR)
    wires.run()
    link.end_in_words()


def test_a_client_that_is_gone_is_not_kept_once_a_reset_shows_it() -> None:
    with Wires() as wires:
        link = over_tcp(wires, confirms=(1,))
        link.say(amqp.publish(1, "free") * 3)
        link.client.close()
        wires.run()
        link.at_broker()
        link.answer(amqp.ack(1, 1))  # draws a RST: nobody is there any more
        wires.run()
        link.end_in_words()
        link.broker.close()
        wires.run()
        assert [session.cause for session, _ in wires.ended] == ["client"]


def test_of_those_whose_client_is_gone_the_one_with_the_fewest_messages_makes_room() -> None:
    with Wires(limited()) as wires:
        links = [Link(wires, address=address) for address in ("10.0.0.7", "10.0.0.7", "10.0.0.7", "10.0.0.8")]
        for link, count in zip(links, (1, 5, 3, 2), strict=True):
            link.say(amqp.publish(1, "limited") * count)
        for link in links[1:]:
            link.client.close()
        wires.run()
        sessions = [link.session for link in links]
        assert find_in_the_way(sessions, "here", None, None, None) is sessions[3]
        assert find_in_the_way(sessions, "here", "10.0.0.7", None, None) is sessions[2], "the first has its client"
        assert find_in_the_way(sessions, None, "10.0.0.7", "guest", "/") is sessions[2]
        assert find_in_the_way(sessions, "there", None, None, None) is None
        assert find_in_the_way(sessions[:1], "here", None, None, None) is None


def test_a_broker_that_ends_after_its_client_has_is_no_loss(wires: Wires) -> None:
    link = Link(wires, confirms=(1,))
    link.say(amqp.publish(1, "free"))
    link.client.shutdown(socket.SHUT_WR)
    wires.run()
    link.broker.close()
    wires.run()
    assert link.client.recv(100) == b""
    assert [session.cause for session, _ in wires.ended] == ["client"]


@pytest.mark.parametrize("seed", range(12))
def test_accounts_are_exact_whenever_a_client_vanishes(seed: int) -> None:
    """At a random moment, by FIN or RST, with messages held, with the judge, half in: what was not forwarded is abandoned."""
    dice = random.Random(seed)
    with Wires(limited(rate=200, burst=5), threads=seed % 2, hold_bytes=30_000) as wires:
        link = over_tcp(wires, confirms=(2,) if seed % 3 else ())
        data = b"".join(amqp.publish(dice.choice((1, 2)), dice.choice(("limited", "free")), b"x" * dice.randrange(900)) for _ in range(120))
        cut = dice.randrange(len(data))
        link.client.setblocking(False)
        sent = link.client.send(data[:cut])
        for _ in range(dice.randrange(12)):
            wires.sweeper.sweep(wires.now(), 0)
        (reset if dice.random() < 0.5 else socket.socket.close)(link.client)
        wires.run()
        read = link.at_broker()
        wires.elapse(20)
        read += link.at_broker()
        link.broker.close()
        wires.until(lambda: bool(wires.ended))
        names = [frame.name for frame in amqp.read(whole(read))]
        forwarded = received = 0
        wires.accounts.fold(wires.now())
        for totals in wires.accounts.topics.values():
            assert totals.received == totals.forwarded + totals.refused + totals.dropped + totals.abandoned, totals
            forwarded += totals.forwarded
            received += totals.received
        assert forwarded == names.count("Basic.Publish")
        assert received <= amqp.names(whole(data[:sent])).count("Basic.Publish") + 1


def whole(data: bytes) -> bytes:
    """`data` without the frame it ends within."""
    at = 0
    while len(data) - at >= 8 and at + 8 + int.from_bytes(data[at + 3 : at + 7], "big") <= len(data):
        at += 8 + int.from_bytes(data[at + 3 : at + 7], "big")
    return data[:at]


def counts(wires: Wires, routing_key: str) -> dict[str, int]:
    totals = wires.totals("amqp", f"%2F/amq.default/{routing_key}")
    return {name: totals[name] for name in ("received", "forwarded", "abandoned", "waiting")}


def assert_nothing(end: socket.socket) -> None:
    """Neither bytes nor an end have arrived."""
    end.setblocking(False)
    with pytest.raises(BlockingIOError):
        end.recv(1)
    end.settimeout(HANG_S)


# ---- connection.close, from anywhere, at any moment --------------------------------------------------------------------


def test_both_sides_close_at_once(wires: Wires) -> None:
    link = Link(wires)
    link.client.sendall(close(200, "from the client"))
    link.broker.sendall(close(320, "from the broker"))
    wires.run()
    assert link.at_client() == close(320, "from the broker")
    assert link.at_broker() == close(200, "from the client")
    link.say(CLOSE_OK)
    link.answer(CLOSE_OK)
    assert (link.at_client(), link.at_broker()) == (CLOSE_OK, CLOSE_OK)
    link.client.close()
    link.broker.close()
    wires.run()
    assert wires.ended[0][1] is None


def test_the_broker_closes_while_a_frame_of_the_clients_flows_through() -> None:
    with Wires() as wires:
        link = Link(wires, frame_max=0)
        message = amqp.publish(1, "free", b"B" * 500_000, cut=500_000)
        link.say(message[:300_000])
        link.answer(close(320, "shutdown"))
        assert link.at_client() == close(320, "shutdown")
        got = link.at_broker()
        link.say(message[300_000:] + CLOSE_OK)
        assert got + link.at_broker() == message + CLOSE_OK


def test_the_broker_closes_while_publishes_are_held_and_the_clients_answer_passes(wires: Wires) -> None:
    link = Link(wires)
    link.say(amqp.publish(1, "limited") * 4)
    link.answer(close(320, "shutdown"))
    link.say(CLOSE_OK)
    assert link.at_broker() == CLOSE_OK
    link.broker.close()
    link.client.close()
    wires.run()
    assert counts(wires, "limited") == {"received": 4, "forwarded": 0, "abandoned": 4, "waiting": 0}


def test_an_operator_closes_while_the_client_stands_within_a_frame() -> None:
    """The broker cannot be told in the middle of a frame: it sees the end."""
    with Wires() as wires:
        link = Link(wires, frame_max=0)
        head = amqp.publish(1, "free", b"B" * 500_000, cut=500_000)[:300_000]
        link.say(head)
        got = link.at_broker()
        send_close(link.session, "closed by an operator: runaway job", "admin", wires.now())
        wires.sweeper.end(link.session)
        wires.run()
        told = link.close_of(link.at_client())
        assert (told.reply_code, told.reply_text) == (320, "CONNECTION_FORCED - closed by an operator: runaway job")
        got += link.at_broker()
        assert head.startswith(got)
        assert link.broker.recv(1) == b""


def test_an_operator_closes_while_the_broker_stands_within_a_frame(wires: Wires) -> None:
    """The client cannot be told in the middle of a frame: it sees the end."""
    link = Link(wires)
    half = amqp.deliver(1, b"d" * 1000)[:-400]
    link.answer(half)
    send_close(link.session, "closed by an operator", "admin", wires.now())
    wires.sweeper.end(link.session)
    wires.run()
    assert link.at_client() == half
    assert link.client.recv(1) == b""
    assert link.at_broker() == amqp.method(0, CLOSE(200, "closed by an operator", 0, 0))


def closed_by_the_gateway(link: Link) -> None:
    send_close(link.session, "the gateway is stopping", "drain", link.wires.now())
    link.wires.sweeper.end(link.session)
    link.wires.run()
    link.say(CLOSE_OK)
    link.client.close()


def closed_by_itself(link: Link) -> None:
    link.say(close())
    link.client.close()


def gone_without_a_word(link: Link) -> None:
    link.client.close()


BY_ALL_ENDS = pytest.mark.parametrize("end", [closed_by_the_gateway, closed_by_itself, gone_without_a_word])


@BY_ALL_ENDS
def test_the_broker_has_answered_connection_close_before_its_connection_ends(wires: Wires, end: Callable[[Link], None]) -> None:
    """RabbitMQ drops what it has read and not handled when a FIN comes first."""
    link = Link(wires)
    link.say(amqp.publish(1, "free") * 3)
    end(link)
    wires.elapse(5)
    assert amqp.names(link.at_broker())[-1] == "Connection.Close"
    assert_nothing(link.broker)
    link.answer(CLOSE_OK)
    assert link.broker.recv(1) == b"", "the FIN"
    link.broker.close()
    wires.run()
    assert wires.ended
    assert (wires.accounts.unanswered, wires.accounts.unsent) == (0, 0)


@BY_ALL_ENDS
def test_a_broker_that_never_answers_connection_close_is_not_waited_for_for_ever(wires: Wires, end: Callable[[Link], None]) -> None:
    link = Link(wires)
    link.say(amqp.publish(1, "free") * 3)
    end(link)
    wires.elapse(55)
    assert not wires.ended, "it may have much to handle"
    wires.elapse(7)
    ((session, _),) = wires.ended
    assert session.detail in {UNANSWERED, "the gateway is stopping"}
    assert (wires.accounts.unanswered, wires.accounts.unsent) == (1, 0)


@BY_ALL_ENDS
def test_a_broker_that_closes_first_ends_it(wires: Wires, end: Callable[[Link], None]) -> None:
    link = Link(wires)
    link.say(amqp.publish(1, "free") * 3)
    end(link)
    link.answer(close(320, "CONNECTION_FORCED - shutdown"))
    link.broker.close()
    wires.elapse(1)
    assert wires.ended
    assert wires.accounts.unanswered == 0


def test_what_the_brokers_socket_has_not_taken_when_its_connection_ends_is_counted() -> None:
    with Wires(backlog_bytes=50_000) as wires:
        link = Link(wires)
        link.flood(link.client, amqp.publish(1, "free", b"x" * 3000))
        reset(link.broker)
        link.client.close()
        wires.elapse(15)
        assert wires.ended
        assert 0 < wires.accounts.unsent < wires.totals("amqp", "%2F/amq.default/free")["forwarded"]


@pytest.mark.parametrize("channel_id", [1, 2])
def test_a_broker_that_waits_for_the_rest_of_a_message_keeps_no_consumer(wires: Wires, channel_id: int) -> None:
    """It takes no cancel on that channel: the connection is closed, and what waits is given up and counted; on another it goes on."""
    link = Link(wires)
    link.say(amqp.method(1, commands.Basic.Consume(queue="jobs", consumer_tag="c")))
    link.answer(amqp.method(1, commands.Basic.ConsumeOk(consumer_tag="c")))
    half = amqp.read(amqp.publish(channel_id, "free", b"x" * 20_000))[:2]
    link.say(b"".join([frame.raw for frame in half]) + amqp.publish(3 - channel_id, "limited") * 2)
    link.at_broker()
    link.client.close()
    wires.elapse(1)
    if channel_id == 1:
        link.end_in_words()
        link.broker.close()
        wires.run()
        assert counts(wires, "limited")["abandoned"] == 2
    else:
        assert amqp.names(link.at_broker()) == ["Basic.Cancel"]
        assert counts(wires, "limited")["waiting"] == 2


# ---- a broker that is slow, short of memory, or hostile ----------------------------------------------------------------


def test_confirms_have_no_timeout_of_ours_and_keep_their_order_and_flags(wires: Wires) -> None:
    link = Link(wires, confirms=(1,))
    link.say(amqp.publish(1, "free") * 9)
    link.at_broker()
    said = [amqp.ack(1, 2), amqp.nack(1, 5, multiple=True), amqp.ack(1, 9), amqp.ack(1, 8, multiple=True)]
    for confirm in said:
        wires.elapse(600)
        link.answer(confirm)
        assert link.at_client() == confirm
    assert wires.sweeper.sessions


def test_returns_and_channel_closes_pass_verbatim_and_tags_are_the_clients(wires: Wires) -> None:
    link = Link(wires, confirms=(1,))
    link.say(amqp.publish(1, "limited") * 2 + amqp.publish(1, "free", mandatory=True) + amqp.publish(1, "free"))
    assert [confirm.tag for confirm in amqp.confirms(link.at_client())] == [1, 2]
    returned = amqp.method(1, commands.Basic.Return(312, "NO_ROUTE", "", "free")) + amqp.content(1, b"hello")
    closed = amqp.method(1, commands.Channel.Close(404, "NOT_FOUND - no exchange", 60, 40))
    link.answer(returned + amqp.ack(1, 1) + amqp.nack(1, 2) + closed)
    got = link.at_client()
    assert got.startswith(returned)
    assert got.endswith(closed)
    assert amqp.confirms(got) == [amqp.Confirm(1, acked=True, tag=3, multiple=False), amqp.Confirm(1, acked=False, tag=4, multiple=False)]


def test_while_the_broker_is_blocked_a_client_is_not_read_beyond_the_caps() -> None:
    with Wires(backlog_bytes=50_000) as wires:
        link = Link(wires)
        link.answer(amqp.method(0, commands.Connection.Blocked("low on memory")))
        link.flood(link.client, amqp.publish(1, "free", b"x" * 3000))
        assert link.session.withheld()
        assert link.session.buffered() <= 50_000 + (1 << 18) + 4000, "the cap, one read, one message"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(amqp.raw_frame(1, 1, b"\x00\x3c\x00\x3c" + b"x" * 131072), id="a frame above what was agreed on"),
        pytest.param(b"\x02\x00\x01\xff\xff\xff\xff", id="the announcement of one"),
        pytest.param(amqp.ack(1, 1), id="an unsolicited ack"),
        pytest.param(amqp.ack(1, 7, multiple=True), id="an unsolicited ack of many"),
        pytest.param(amqp.ack(1, 0), id="an ack of tag 0"),
        pytest.param(amqp.raw_frame(9, 1, b""), id="a frame of unknown type"),
        pytest.param(amqp.raw_frame(1, 0, b"\x00\x0a\x00\x3d", end=0), id="a frame without its end"),
        pytest.param(amqp.raw_frame(1, 1, b"\x00\x3c"), id="half a method"),
        pytest.param(amqp.raw_frame(2, 1, b"\x00\x3c"), id="half a content header"),
    ],
)
def test_a_hostile_broker_is_cut_off_and_the_client_told(wires: Wires, data: bytes) -> None:
    link = Link(wires, confirms=(1,))
    link.answer(amqp.deliver(2, b"before"))
    link.answer(data)
    got = link.at_client()
    told = link.close_of(got)
    assert told.reply_code == 541
    assert told.reply_text.startswith("INTERNAL_ERROR - the broker behind this gateway broke the protocol: ")
    assert got.startswith(amqp.deliver(2, b"before")), "what came before it passes"
    assert amqp.confirms(got) == [], "and nothing of it"
    assert link.broker.recv(1 << 16) in (b"", amqp.PROTOCOL_HEADER)
    assert link.cause() == "broker_protocol_error"


def test_a_header_that_never_ends_costs_no_more_than_a_frame(wires: Wires) -> None:
    link = Link(wires)
    frame = amqp.method(1, commands.Basic.Deliver("c", 1, redelivered=False, exchange="", routing_key="q"))
    link.answer(frame + b"\x02\x00\x01" + (131072).to_bytes(4, "big") + b"\x00\x3c\x00\x00" + bytes(8))
    for _ in range(200):
        link.broker.sendall(b"\x00" * 640)
        wires.sweeper.sweep(wires.now(), 0)
    wires.run()
    conversation = link.session.conversation
    assert isinstance(conversation, AmqpConversation)
    kept = conversation.broker_stream.rest_size
    assert kept <= 131072 + 8
    link.answer(b"\x00" * 4000)
    assert link.close_of(link.at_client()).reply_code == 541, "its end octet is not where it was announced"


# ---- a broker with other parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame_max", [4096, 8192, 131072, 0])
def test_the_negotiated_frame_size_is_kept_to(wires: Wires, frame_max: int) -> None:
    """From RabbitMQ 3.10 (at least 4096) to 4.1 (at least 8192): neither below one side's minimum nor above the other's maximum."""
    client, broker = wires.connect("amqp")
    tune = amqp.method(0, commands.Connection.Tune(2047, frame_max, 0))
    seen = amqp.method(0, commands.Connection.Tune(2047, frame_max or 1 << 24, 0))  # no more than the listener takes
    greeting = amqp.greeting(frame_max=frame_max, heartbeat=0, channels=(1,), confirms=(1,))
    broker.sendall(amqp.broker_start() + tune)
    client.sendall(greeting)
    wires.run()
    assert wires.received(client) == amqp.broker_start() + seen
    assert wires.received(broker) == amqp.greeting(frame_max=frame_max, heartbeat=0)
    broker.sendall(amqp.method(0, commands.Connection.OpenOk()))
    wires.run()
    assert wires.received(broker) == greeting[len(amqp.greeting(frame_max=frame_max, heartbeat=0)) :]
    link = Link(wires, frame_max=frame_max, confirms=(1,))
    largest = (frame_max or 200_000) - 8
    message = amqp.publish(1, "free", b"x" * (2 * largest), cut=largest)
    delivery = amqp.deliver(1, b"d" * (2 * largest), cut=largest)
    link.say(message)
    link.answer(delivery)
    assert link.at_broker() == message
    assert link.at_client() == delivery
    link.say(amqp.publish(1, "limited", b"x" * (2 * largest), cut=largest, mandatory=True))
    returned = amqp.read(link.at_client())
    assert [frame.name for frame in returned][:2] == ["Basic.Return", "ContentHeader"]
    assert returned[-1].name == "Basic.Nack"
    assert max(len(frame.raw) for frame in returned) <= (frame_max or 131072), "frames of our own keep to it too"
    if frame_max:
        link.say(amqp.publish(1, "free", b"x" * (frame_max + 1), cut=frame_max + 1))
        assert link.close_of(link.at_client()).reply_code == 501
