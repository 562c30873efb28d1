"""RocketMQ sends that the gateway accepts (`answer: accepted_by_gateway`): what clients are told, order, and every end of them."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path

import pytest

from gateway.protocols.rocketmq.conversation import RocketmqConversation
from gateway.session.session import Session
from gateway.spool.disk import SpoolDisk
from limiter.limits import Limit, Rate
from limiter.rules.rule import Match, Rule
from limiter.rules.rule_set import RuleSet
from support.rocketmq.frames import batch_body, encode_request, read_response, response, send, send_back, split_frames
from support.wires.spooling import elapse, spooling, work
from support.wires.wires import Wires

SECOND = 1_000_000_000
LARGE = 1_100_000  # bytes: more than the gateway keeps whole


def accepting(per_second: int, *, burst: int = 10, max_age_ns: int | None = None, answer: str = "accepted_by_gateway") -> Rule:
    limit = Limit(messages=Rate(per_second), messages_burst=burst)
    match = Match(protocol="rocketmq")
    return Rule("orders", match, limit=limit, open_for_ns=0, action="spool", max_age_ns=max_age_ns, answer=answer)


def numbered(number: int, *, binary: bool = False) -> bytes:
    return send(body=struct.pack(">Q", number) + bytes(192), opaque=number, binary=binary)


def say(wires: Wires, disk: SpoolDisk, client: socket.socket, count: int, *, binary: bool = False) -> None:
    for first in range(0, count, 10):
        client.sendall(b"".join(numbered(number, binary=binary) for number in range(first, min(first + 10, count))))
        wires.run()
        work(disk)
    wires.run()


def forwarded(frames: bytes) -> list[tuple[int, int]]:
    """(number in the body, opaque) of the sends that reach the broker."""
    found = []
    for each in split_frames(frames):
        word = int.from_bytes(each[4:8])
        end = 8 + (word & 0xFFFFFF)
        opaque = struct.unpack_from(">i", each, 13)[0] if word >> 24 else json.loads(each[8:end])["opaque"]
        found.append((struct.unpack_from(">Q", each, end)[0], opaque))
    return found


def control(wires: Wires) -> tuple[int, int, int]:
    counts = wires.shared.spool_control
    return counts.accepted, counts.accepted_refused, counts.accepted_lost


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_sends_over_the_limit_are_answered_at_once_and_pass_at_the_limit_in_order(tmp_path: Path, *, binary: bool) -> None:
    with spooling(tmp_path, accepting(5)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 100, binary=binary)
        assert disk.written > 10_000
        answers = [read_response(each) for each in split_frames(wires.received(client))]
        passed = forwarded(wires.received(broker))
        unanswered = {opaque for _, opaque in passed if opaque >= 0}
        assert {each["opaque"] for each in answers} == set(range(100)) - unanswered, "all but those that the broker is to answer"
        assert len({json.dumps(each["extFields"]) for each in answers}) == len(answers) >= 80
        for each in answers:
            number = each["opaque"]
            assert isinstance(number, int)
            fields = each["extFields"]
            assert isinstance(fields, dict)
            assert each["code"] == 0
            assert each["remark"] == "accepted by the gateway; the broker does not have it yet"
            assert (fields["queueId"], fields["queueOffset"]) == (str(number % 4), "-1")
            assert fields["transactionId"] == f"7F00000112342A139A5534EF{number:08X}", "the message's own key, as a broker says it"
            assert len(fields["msgId"]) == 32
            assert fields["msgId"].startswith("0" * 16), "no address of a broker"
        elapse(wires, disk, 22)
        passed += forwarded(wires.received(broker))
        assert [number for number, _ in passed] == list(range(100))
        own = [opaque for _, opaque in passed if opaque < 0]
        assert len(set(own)) == len(own) == len(answers)
        for _, opaque in passed:
            broker.sendall(response(opaque))
            wires.sweep()
        wires.run()
        assert {read_response(each)["opaque"] for each in split_frames(wires.received(client))} == unanswered, "only these, and once"
        assert wires.session().conversation.settled()
        assert control(wires) == (len(answers), 0, 0)


def test_the_frame_is_the_clients_but_for_its_opaque(tmp_path: Path) -> None:
    with spooling(tmp_path, accepting(5, burst=1)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        client.sendall(numbered(1) + numbered(2))
        elapse(wires, disk, 2)
        _, second = split_frames(wires.received(broker))
        (_, (_, opaque)) = forwarded(numbered(1) + second)
        assert _header(second).replace(b"%d" % opaque, b"2") == _header(numbered(2))
        assert _body(second) == _body(numbered(2))


def _header(data: bytes) -> bytes:
    return data[8 : 8 + (int.from_bytes(data[4:8]) & 0xFFFFFF)]


def _body(data: bytes) -> bytes:
    return data[8 + (int.from_bytes(data[4:8]) & 0xFFFFFF) :]


@pytest.mark.parametrize("step", [1, 3, 7, 50, 10_000])
def test_the_brokers_answers_are_kept_back_however_they_come_and_all_others_pass(tmp_path: Path, step: int) -> None:
    with spooling(tmp_path, accepting(20, burst=5)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        client.sendall(b"".join(numbered(number) for number in range(20)))
        elapse(wires, disk, 2)
        wires.received(client)
        words, others, got = b"", b"", b""
        for number, opaque in forwarded(wires.received(broker)):
            mine = response(opaque, 0 if number % 3 else 1, b"body" * (number % 2), remark="no" if number % 3 == 0 else None)
            other = response(1000 + number, number % 2, b"x" * 30)
            words += mine + other
            others += (mine if opaque >= 0 else b"") + other
        for at in range(0, len(words), step):
            broker.sendall(words[at : at + step])
            wires.sweep()
            got += wires.received(client)
        wires.run()
        assert got + wires.received(client) == others
        assert control(wires) == (15, 5, 0), "6, 9, 12, 15 and 18 are refused; 0 and 3 were passed on, and are the client's"


@pytest.mark.parametrize(
    "odd",
    [
        encode_request(310, {"a": "producers", "b": "orders", "e": "0", "f": "4", "i": "UNIQ_KEY\x01k\x02"}, b"x" * 200, opaque=77),
        encode_request(310, {"a": "producers", "b": "orders", "e": "0", "f": "0", "i": "TRAN_MSG\x01true\x02"}, b"x" * 200, opaque=77),
        encode_request(
            310, {"a": "producers", "b": "orders", "e": "0", "f": "4", "i": "UNIQ_KEY\x01k\x02"}, b"x" * 200, opaque=77, binary=True
        ),
        send(code=324, opaque=77),
        send(opaque=77, body=bytes(LARGE)),
        encode_request(310, {"a": "producers", "b": "orders", "e": "0", "opaque": "77"}, b"x", opaque=77).replace(b'"77"', b"77"),
    ],
    ids=["half", "half by property", "half, binary", "reply", "large", "two opaques"],
)
@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind others"])
def test_what_the_broker_itself_must_answer_is_refused(tmp_path: Path, odd: bytes, *, behind: bool) -> None:
    if odd.count(b'"opaque":77') == 2:  # `replace` made it shorter
        length = int.from_bytes(odd[:4]) - 2
        odd = length.to_bytes(4, "big") + (int.from_bytes(odd[4:8]) - 2).to_bytes(4, "big") + odd[8:]
    with spooling(tmp_path, accepting(1)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 15 if behind else 10)
        wires.received(client)
        wires.received(broker)
        for at in range(0, len(odd), 100_000):
            client.sendall(odd[at : at + 100_000])
            wires.run()
        (refusal,) = split_frames(wires.received(client))
        assert (read_response(refusal)["code"], read_response(refusal)["opaque"]) == (215, 77)


def test_a_send_back_and_a_send_to_a_retry_topic_are_refused(tmp_path: Path) -> None:
    """A consumer would forget the message."""
    with spooling(tmp_path, accepting(1, burst=1)) as (wires, _):
        client, _ = wires.connect("rocketmq")
        client.sendall(send_back(opaque=1) + send_back(opaque=2) + send("%RETRY%other", opaque=3) + send("%RETRY%other", opaque=4))
        wires.run()
        answers = [read_response(each) for each in split_frames(wires.received(client))]
        assert [(each["opaque"], each["code"]) for each in answers] == [(2, 215), (4, 215)]


def test_without_the_rules_word_nothing_is_accepted(tmp_path: Path) -> None:
    with spooling(tmp_path, accepting(1, answer="broker")) as (wires, disk):
        client, _ = wires.connect("rocketmq")
        say(wires, disk, client, 20)
        assert {read_response(each)["code"] for each in split_frames(wires.received(client))} == {215}
        assert control(wires) == (0, 0, 0)


def test_a_batch_is_accepted_and_counts_its_messages(tmp_path: Path) -> None:
    with spooling(tmp_path, accepting(100, burst=5)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        body = batch_body(*[b"x" * 20] * 5)
        client.sendall(b"".join(send(body=body, opaque=number, code=320, batch=True) for number in range(3)))
        wires.run()
        assert [read_response(each)["opaque"] for each in split_frames(wires.received(client))] == [1, 2]
        assert control(wires) == (10, 0, 0)
        elapse(wires, disk, 2)
        assert len(split_frames(wires.received(broker))) == 3


def test_accepted_and_one_way_sends_keep_one_order(tmp_path: Path) -> None:
    with spooling(tmp_path, accepting(20)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        for first in range(0, 60, 6):
            words = [send(body=struct.pack(">Q", n) + bytes(192), opaque=n, one_way=n % 2 == 0) for n in range(first, first + 6)]
            client.sendall(b"".join(words))
            wires.run()
            work(disk)
        elapse(wires, disk, 10)
        assert [number for number, _ in forwarded(wires.received(broker))] == list(range(60))


def test_when_the_client_hangs_up_what_was_accepted_goes_on_and_refusals_are_counted(tmp_path: Path) -> None:
    with spooling(tmp_path, accepting(20)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 40)
        wires.received(client)
        client.close()
        elapse(wires, disk, 3)
        passed = forwarded(wires.received(broker))
        assert [number for number, _ in passed] == list(range(40))
        accepted = [opaque for _, opaque in passed if opaque < 0]
        broker.sendall(b"".join(response(opaque, 1, remark="disk full") for _, opaque in passed))
        wires.run()
        assert control(wires) == (len(accepted), len(accepted), 0)
        assert broker.recv(1) == b"", "then the broker is told that nothing more comes"


def test_what_was_accepted_and_is_too_old_is_dropped_and_counted(tmp_path: Path) -> None:
    with spooling(tmp_path, accepting(10, max_age_ns=SECOND)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        elapse(wires, disk, 3)
        passed = [number for number, _ in forwarded(wires.received(broker))]
        assert 12 <= len(passed) <= 30
        assert passed == sorted(passed)
        lost = 60 - len(passed)
        assert wires.totals("rocketmq", "orders")["dropped"] == lost
        assert control(wires)[2] == lost == wires.shared.spool_control.expired


def test_a_broker_that_goes_away_loses_what_was_accepted_and_it_is_counted(tmp_path: Path) -> None:
    with spooling(tmp_path, accepting(1)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        passed = forwarded(wires.received(broker))
        broker.close()
        client.close()
        elapse(wires, disk, 1)
        assert len(wires.ended) == 1
        assert wires.totals("rocketmq", "orders")["abandoned"] == 60 - len(passed)
        accepted, refused, lost = control(wires)
        assert accepted == lost == 60 - len([opaque for _, opaque in passed if opaque >= 0])
        assert refused == 0


def test_a_rule_that_changes_to_reject_drops_nothing_that_was_accepted(tmp_path: Path) -> None:
    with spooling(tmp_path, accepting(20)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 40)
        limit = Limit(messages=Rate(20), messages_burst=10)
        wires.enforce(RuleSet((Rule("orders", Match(protocol="rocketmq"), limit=limit, open_for_ns=0),)))
        elapse(wires, disk, 4)
        assert [number for number, _ in forwarded(wires.received(broker))] == list(range(40))


def test_a_full_spool_refuses_instead_of_accepting(tmp_path: Path) -> None:
    with spooling(tmp_path, accepting(1), size=20_000) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 200)
        codes = [read_response(each)["code"] for each in split_frames(wires.received(client))]
        assert codes.count(0) > 20
        assert codes.count(215) > 20
        session: Session = wires.session()
        assert not session.spool_full()
        assert len(codes) + len([1 for _, opaque in forwarded(wires.received(broker)) if opaque >= 0]) == 200, "all are answered"


def test_a_rule_that_changes_to_reject_accepts_nothing_more(tmp_path: Path) -> None:
    """Even while something waits: who takes the rule's word back expects no success that the broker does not know of."""
    with spooling(tmp_path, accepting(20)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        limit = Limit(messages=Rate(20), messages_burst=10)
        wires.enforce(RuleSet((Rule("orders", Match(protocol="rocketmq"), limit=limit, open_for_ns=0),)))
        elapse(wires, disk, 0.5)
        wires.received(client)
        accepted = control(wires)[0]
        client.sendall(numbered(60) + numbered(61))
        wires.run()
        answers = [read_response(each) for each in split_frames(wires.received(client))]
        assert [(each["opaque"], each["code"]) for each in answers] == [(60, 215), (61, 215)]
        elapse(wires, disk, 4)
        assert [number for number, _ in forwarded(wires.received(broker))] == list(range(60))
        assert control(wires) == (accepted, 0, 0)


def test_nothing_is_accepted_once_the_connection_is_to_be_closed(tmp_path: Path) -> None:
    closing = Rule("closing", Match(protocol="rocketmq", topic="alerts"), limit=Limit(messages=Rate(1), messages_burst=1), action="close")
    match = Match(protocol="rocketmq", topic="orders")
    limit = Limit(messages=Rate(1), messages_burst=10)
    orders = Rule("orders", match, limit=limit, open_for_ns=0, action="spool", answer="accepted_by_gateway")
    with spooling(tmp_path, closing, orders) as (wires, disk):
        client, _ = wires.connect("rocketmq")
        say(wires, disk, client, 20)
        wires.received(client)
        accepted = control(wires)[0]
        client.sendall(send("alerts", opaque=100) + send("alerts", opaque=101) + numbered(102))
        wires.run()
        assert split_frames(wires.received(client)) == [], "102 is not said to be safe: it goes nowhere"
        client.close()
        elapse(wires, disk, 1)
        assert control(wires)[0] == accepted


def test_nothing_is_accepted_behind_what_cannot_be_read_back(tmp_path: Path) -> None:
    """The connection is about to be closed for that; while the broker takes nothing, that waits."""
    with spooling(tmp_path, accepting(1)) as (wires, disk):
        client, _ = wires.connect("rocketmq")
        say(wires, disk, client, 40)
        wires.received(client)
        conversation = wires.session().conversation
        assert isinstance(conversation, RocketmqConversation)
        (queue,) = conversation.held_sends.spooled.values()
        assert queue.has_room(200)
        queue.damage = "its checksum does not fit"
        assert not queue.has_room(200)


def test_what_a_broker_refuses_at_once_is_one_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with spooling(tmp_path, accepting(100, burst=20)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        client.sendall(b"".join(numbered(number) for number in range(40)))
        elapse(wires, disk, 2)
        caplog.clear()
        broker.sendall(b"".join(response(opaque, 1, remark="disk full") for _, opaque in forwarded(wires.received(broker))))
        wires.run()
        assert control(wires) == (20, 20, 0)
        assert len([record for record in caplog.records if record.getMessage() == "accepted_send_refused"]) == 1


def test_an_answer_whose_numbers_are_too_large_is_the_clients_affair(tmp_path: Path) -> None:
    """JSON has no largest number, compiled code has."""
    with spooling(tmp_path, accepting(100)) as (wires, _):
        client, broker = wires.connect("rocketmq")
        client.sendall(numbered(1))
        wires.run()
        wires.received(broker)
        for header in (b'{"code":1,"flag":1,"opaque":%d}' % (1 << 64), b'{"code":%d,"flag":1,"opaque":1}' % (1 << 64)):
            frame = (len(header) + 4).to_bytes(4) + len(header).to_bytes(4) + header
            broker.sendall(frame)
            wires.run()
            assert wires.received(client) == frame
        assert not wires.session().conversation.settled(), "1 is not answered by that"


def test_a_frame_that_had_begun_to_pass_passes_whole_whatever_it_answers(tmp_path: Path) -> None:
    """It cannot answer what had not been sent when it began; half a frame would leave the client within it for ever."""
    with spooling(tmp_path, accepting(100, burst=5)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        frame = response(-1_000_000_000)
        broker.sendall(frame[:30])
        wires.run()
        assert wires.received(client) == frame[:30]
        client.sendall(b"".join(numbered(number) for number in range(8)))
        elapse(wires, disk, 1)
        assert forwarded(wires.received(broker))[5] == (5, -1_000_000_000)
        broker.sendall(frame[30:] + response(1))
        wires.run()
        assert split_frames(frame[:30] + wires.received(client))[0] == frame
