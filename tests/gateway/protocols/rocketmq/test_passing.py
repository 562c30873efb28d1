"""Whatever either side says passes byte for byte, however it is cut, unless it was refused; the gateway's own words stand between frames.

Conversations at random (`support.rocketmq.talks`), and the frames of RocketMQ's own RemotingCommand cut at every byte.
"""

from __future__ import annotations

import gzip
import json
from random import Random

import pytest

from gateway.protocols.rocketmq.refusals import build_refusals, remark
from limiter.limits import NEVER
from support.rocketmq.frames import encode_request, frame, heartbeat, response, send, split_frames
from support.rocketmq.remoting import frames_file
from support.rocketmq.talks import CALLBACKS, LIMITED, check_broker, check_client, said_by_broker, said_by_client
from support.wires.conversations import SECOND, Talk, randomly, rule

RULES = [rule(action, messages=3, burst=3, topic=topic, name=action, max_delay_ns=2 * SECOND) for action, topic in LIMITED.items()]
RULES.append(rule("reject", messages=2, burst=2, topic="%RETRY%d", name="retries"))


@pytest.mark.parametrize("seed", range(60))
def test_a_conversation_cut_at_random_arrives_whole(seed: int) -> None:
    random = Random(seed)
    client, broker = said_by_client(random, 60), said_by_broker(random, 60)
    hold_bytes = random.choice((4096, 1 << 20))
    talk = Talk("rocketmq", *RULES, hold_bytes=hold_bytes, room=random.choice((1, 7, 512)))
    chunks = [(True, chunk) for chunk in randomly(b"".join(one.frame for one in client), seed)]
    chunks += [(False, chunk) for chunk in randomly(b"".join(broker), seed + 1)]
    order = [True] * sum(1 for of_client, _ in chunks if of_client) + [False] * sum(1 for of_client, _ in chunks if not of_client)
    random.shuffle(order)
    pieces = {of_client: iter([chunk for which, chunk in chunks if which == of_client]) for of_client in (True, False)}
    fed = 0
    for of_client in order:
        chunk = next(pieces[of_client])
        if of_client:
            talk.client(chunk)
        else:
            fed += len(chunk)
            before = len(talk.to_client)
            talk.broker(chunk)
            assert len(talk.to_client) >= before + len(chunk), "bytes of the broker's were kept back"
        if random.random() < 0.05:
            talk.wait(random.randrange(SECOND))
    talk.wait(10 * SECOND)
    assert fed == sum(map(len, broker))
    answered = check_client(broker, talk.to_client)
    check_broker(client, talk.to_broker, answered, silent={LIMITED["drop"]}, whole_frame=hold_bytes)
    assert (talk.rest, talk.conversation.budget.held_bytes, talk.conversation.budget.held_messages) == (b"", 0, 0)


def test_nothing_of_ours_goes_to_the_broker_within_a_frame_that_is_not_judged() -> None:
    """A send that waited is due while the client's large request is half there."""
    talk = Talk("rocketmq", rule("delay", messages=1, burst=1, max_delay_ns=2 * SECOND), hold_bytes=4096)
    held, large = send("orders", opaque=2), frame(encode_request(999, None, opaque=3)[8:], b"x" * 50_000)
    talk.client(send("orders", opaque=1) + held)
    assert talk.conversation.budget.held_messages == 1
    for cut, left in ((20_000, len(large) - 20_000), (40_000, len(large) - 40_000), (len(large), 0)):
        talk.client(large[max(cut - 20_000, 0) : cut] if cut < len(large) else large[40_000:])
        assert talk.conversation.budget.frame_left == left
        talk.wait(SECOND if cut == 20_000 else 0)
    assert talk.to_broker.index(held) == talk.to_broker.index(large) + len(large)


def vectors(speaker: str) -> list[bytes]:
    lines = [json.loads(line) for line in gzip.decompress(frames_file("5.3.3").read_bytes()).decode().splitlines()]
    return [bytes.fromhex(line["frame"]) for line in lines if line["from"] == speaker and len(line["frame"]) < 3000]


def test_the_brokers_frames_cut_at_every_byte_pass_at_once_and_a_reply_stands_exactly_behind_them() -> None:
    after = heartbeat()
    reply = build_refusals([77], 215, "[RateLimit] for t need wait:1microsecs")
    for whole in vectors("broker")[::3]:
        header_end = 8 + int.from_bytes(whole[5:8], "big")
        cuts = {*range(1, 12), *range(12, len(whole), 9), header_end - 1, header_end, header_end + 1, len(whole) - 1}
        for cut in sorted(cut for cut in cuts if cut < len(whole)):
            talk = Talk("rocketmq", rule(messages=0))
            talk.broker(whole[:cut])
            assert talk.to_client == whole[:cut]
            talk.client(send("t", opaque=77))
            assert talk.to_client == whole[:cut], "a reply within a frame of the broker's"
            talk.broker(whole[cut:] + after)
            first, second, third = split_frames(talk.to_client)
            assert (first, third) == (whole, after)
            assert second[8:60] == reply[8:60]


def test_the_account_of_the_brokers_frames_does_not_depend_on_how_they_are_cut() -> None:
    """Answers counted, polls answered, busy signals."""
    frames = vectors("broker")
    stream = b"".join(frames) + b"".join(said_by_broker(Random(1), 80))

    def noticed(chunks: list[bytes]) -> tuple[object, ...]:
        talk = Talk("rocketmq")
        talk.client(b"".join(send(opaque=opaque) for opaque in range(200)))
        talk.client(b"".join(encode_request(11, {"topic": "t"}, opaque=opaque) for opaque in range(200, 260)))
        talk.client(b"".join(encode_request(11, {"topic": "t"}, opaque=opaque) for opaque in (-1, 1, 7, -(2**31), 2**31 - 1)))
        talk.broker(b"", chunks)
        conversation = talk.conversation
        return talk.to_client == stream, repr(conversation), conversation.settled(), [repr(signal) for signal in conversation.reports.busy]

    whole = noticed([stream])
    assert whole[0]
    assert noticed([*frames, stream[sum(map(len, frames)) :]]) == whole
    assert noticed([stream[at : at + 1] for at in range(len(stream))]) == whole
    for seed in range(10):
        assert noticed(randomly(stream, seed)) == whole


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("code", CALLBACKS)
def test_the_brokers_requests_and_their_answers_pass_and_answer_no_request_of_the_client(code: int, binary: bool) -> None:
    """Both count their opaques from 0: the broker's request 5 is not the answer to the client's request 5, nor the other way round."""
    talk = Talk("rocketmq", rule(messages=1))
    asked = send(opaque=5) + encode_request(11, {"topic": "t"}, opaque=6)
    talk.client(asked)
    callbacks = b"".join(encode_request(code, {"clientId": "c"}, b"body", opaque=opaque, binary=binary) for opaque in (5, 6))
    talk.broker(callbacks)
    assert not talk.conversation.settled(), "the send is not answered"
    answers = b"".join(encode_request(0, {"b": "orders"}, b"info", opaque=opaque, flag=1, binary=binary) for opaque in (5, 6))
    talk.client(answers)
    assert (talk.to_broker, talk.to_client) == (asked + answers, callbacks)
    talk.broker(response(5))
    assert talk.conversation.settled()


def test_long_polls_answered_out_of_order_pass_as_they_come() -> None:
    talk = Talk("rocketmq")
    polls = [encode_request(11, {"topic": "t", "queueId": opaque, "sysFlag": 2}, opaque=opaque) for opaque in range(8)]
    talk.client(b"".join(polls))
    answers = [response(opaque, 19 if opaque % 2 else 0, b"m" * opaque) for opaque in (3, 7, 0, 1, 6, 2, 5, 4)]
    for answer in answers:
        talk.broker(answer)
    assert talk.to_client == b"".join(answers)


def test_binary_answers_to_json_requests_and_json_answers_to_binary_ones_pass() -> None:
    talk = Talk("rocketmq")
    talk.client(send(opaque=1) + send(opaque=2, binary=True))
    answers = encode_request(0, {"msgId": "m"}, opaque=1, flag=1, binary=True) + response(2)
    talk.broker(answers)
    assert talk.to_client == answers
    assert talk.conversation.settled()


@pytest.mark.parametrize("whose", ["client", "broker"])
@pytest.mark.parametrize("size", [0, 1, -1])
def test_a_frame_of_exactly_max_frame_passes_and_a_longer_one_of_the_clients_does_not(whose: str, size: int) -> None:
    """The broker may answer with more (`docs/design/rocketmq.md` 1.1: a Go client reads 128 MiB)."""
    most = 1 << 16
    body = b"z" * (most + size - len(heartbeat()) + len(b'{"clientID":"10.0.0.7@1","consumerDataSet":[],"producerDataSet":[]}'))
    whole = frame(heartbeat()[8 : 8 + int.from_bytes(heartbeat()[5:8], "big")], body)
    assert len(whole) == most + size
    talk = Talk("rocketmq", max_frame=most)
    if whose == "client" and size > 0:
        with pytest.raises(Exception, match="65537 bytes was announced"):
            talk.client(whole)
        assert talk.to_broker == b""
        return
    (talk.client if whose == "client" else talk.broker)(whole)
    assert (talk.to_broker if whose == "client" else talk.to_client) == whole


def test_a_limit_of_0_asks_for_a_day_and_no_more() -> None:
    assert remark("orders", NEVER) == "[RateLimit] for orders need wait:86400000000microsecs"
    assert remark("orders", 1_500) == "[RateLimit] for orders need wait:2microsecs"
