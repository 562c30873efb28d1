"""The conversation: frames to parts, verdicts to bytes."""

from __future__ import annotations

import pytest

from gateway.pipeline.conversation import DROPPED
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import Part
from gateway.protocols.rocketmq.conversation import RocketmqConversation
from gateway.protocols.rocketmq.requests import Sends
from limiter.limits import NEVER
from support.cases import in_one_loop
from support.rocketmq.frames import (
    LONG,
    SHORT,
    Value,
    batch_body,
    encode_request,
    frame,
    heartbeat,
    json_header,
    read_response,
    response,
    send,
    send_back,
    split_frames,
)
from support.wires.conversations import MAX_FRAME, SECOND, Talk, bytewise, randomly, rule, say_close

MIB = 1 << 20
SEND_CODES = (10, 310, 320, 324, 325)


def replies(talk: Talk) -> list[dict[str, object]]:
    return [read_response(one) for one in split_frames(talk.to_client)]


# ---- what is limited ---------------------------------------------------------------------------------------------------


@in_one_loop
@pytest.mark.parametrize("code", SEND_CODES)
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize(("topic", "name"), [("orders", "orders"), (17, "17"), (True, "true"), ("%RETRY%g", "%RETRY%g")])
def test_sends_of_every_code_are_requests_of_their_topic(code: int, binary: bool, topic: Value, name: str) -> None:
    names = LONG if code in (10, 324) else SHORT
    talk = Talk("rocketmq")
    data = encode_request(code, {names["group"]: "g", names["topic"]: topic, names["batch"]: "false"}, b"body", binary=binary)
    talk.client(data)
    assert talk.requests == [(name, "g", 1, 4)]
    assert talk.to_broker == data


@in_one_loop
@pytest.mark.parametrize("code", SEND_CODES)
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("flag", ["true", True, "TRUE"])
def test_messages_of_a_batch_count_whatever_the_code(code: int, binary: bool, flag: Value) -> None:
    body = batch_body(b"one", b"two", b"three")
    talk = Talk("rocketmq")
    talk.client(send("orders", body, code=code, batch=flag, binary=binary))
    assert talk.requests == [("orders", "producers", 3, len(body))]


def test_a_batch_body_without_the_flag_is_one_message_as_it_is_to_the_broker() -> None:
    talk = Talk("rocketmq")
    talk.client(send("orders", batch_body(b"one", b"two"), code=320, batch="false"))
    assert [messages for _, _, messages, _ in talk.requests] == [1]


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_send_backs_and_sends_to_the_retry_topic_share_a_limit(binary: bool) -> None:
    """Java falls back from one to the other when refused, so two buckets would only move the traffic."""
    talk = Talk("rocketmq", rule(messages=1))
    talk.client(
        send_back("workers", opaque=1, binary=binary) + send("%RETRY%workers", opaque=2, group="CLIENT_INNER_PRODUCER", binary=binary)
    )
    assert [key for key, *_ in talk.requests] == ["%RETRY%workers"] * 2
    assert [reply["opaque"] for reply in replies(talk)] == [2]


def test_topics_that_are_not_utf8_are_named_as_java_names_them() -> None:
    """And never collide: the separator of raw keys is a byte that UTF-8 has not."""
    talk = Talk("rocketmq")
    names = [(b"a\xffb", b"c"), (b"a", b"b\xffc"), (b"a", b"b")]
    for topic, group in names:
        data = send("T" * len(topic), group="G" * len(group), binary=True).replace(b"T" * len(topic), topic, 1)
        talk.client(data.replace(b"G" * len(group), group, 1))
    assert [(key, group) for key, group, *_ in talk.requests] == [("a\ufffdb", "c"), ("a", "b\ufffdc"), ("a", "b")]


def test_other_requests_pass_within_the_stream_though_all_topics_are_shut() -> None:
    passing = [
        heartbeat(opaque=1),
        encode_request(11, {"topic": "orders", "consumerGroup": "g", "queueId": 0}, opaque=2),
        encode_request(37, {"topic": "orders", "producerGroup": "g"}, opaque=3, flag=2),
        encode_request(371, {"topic": "orders"}, opaque=4),
        encode_request(310, {"b": "orders"}, opaque=5, flag=1),
        encode_request(310, None, opaque=6),
        encode_request(310, {"a": "producers"}, opaque=7),
        encode_request(9999, {"b": "orders"}, b"?" * 100, opaque=8),
        encode_request(9998, {"b": "orders"}, opaque=9, binary=True),
    ]
    talk = Talk("rocketmq", rule(messages=0))
    talk.client(b"".join(part for one in passing for part in (one, send(opaque=100))))
    assert talk.to_broker == b"".join(passing)
    assert len(replies(talk)) == len(passing)


# ---- parts -------------------------------------------------------------------------------------------------------------


def parts_of(data: bytes, **fields: int) -> list[Part]:
    talk = Talk("rocketmq", **fields)  # type: ignore[arg-type]
    talk.client(data)
    return talk.parts


def test_like_sends_in_one_read_are_one_part() -> None:
    (part,) = parts_of(b"".join(send(opaque=opaque) for opaque in range(50)))
    assert isinstance(part, Sends)
    assert (part.count, part.messages, part.size, part.opaques) == (50, 1, 200, list(range(50)))


@pytest.mark.parametrize(
    "other",
    [
        send("other", opaque=2),
        send(opaque=2, body=b"x" * 201),
        send(opaque=2, group="others"),
        send(opaque=2, one_way=True),
        send(opaque=2, body=batch_body(b"x" * 78, b"x" * 78, properties=b""), batch=True),
        heartbeat(opaque=2),
    ],
    ids=["topic", "size", "group", "one-way", "messages", "not a send"],
)
def test_unlike_requests_are_parts_of_their_own(other: bytes) -> None:
    first, last = send(opaque=1), send(opaque=3)
    parts = parts_of(first + other + last)
    assert [part.data[part.start : part.end] for part in parts] == [first, other, last]
    assert [part.count for part in parts] == [1, 1, 1]


def test_room_bounds_what_is_decoded() -> None:
    talk = Talk("rocketmq")
    data = b"".join(send(opaque=opaque) for opaque in range(10))
    size = len(data) // 10
    parts: list[Part] = []
    assert talk.conversation.decode(data, 0, 3, parts) == 3 * size
    assert [part.count for part in parts] == [3]
    assert talk.conversation.need <= 7 * size


def test_need_is_the_whole_frame_so_that_one_byte_at_a_time_costs_no_attempt_each() -> None:
    talk = Talk("rocketmq")
    data = send()
    needs = []
    for there in range(len(data)):
        if there >= talk.conversation.need:
            assert talk.conversation.decode(data[:there], 0, 512, []) == 0
            needs.append(talk.conversation.need)
    assert needs == [8, len(data)]


def test_split_takes_whole_requests_from_the_front() -> None:
    talk = Talk("rocketmq")
    data = b"".join(send(opaque=10**opaque) for opaque in range(6))
    parts: list[Part] = []
    talk.conversation.decode(data, 0, 512, parts)
    (part,) = parts
    head = talk.conversation.split(part, 2)
    frames = split_frames(data)
    assert isinstance(head, Sends)
    assert isinstance(part, Sends)
    assert (head.count, head.passed, head.opaques) == (2, 2, [1, 10])
    assert head.data[head.start : head.end] == b"".join(frames[:2])
    assert (part.count, part.passed, part.opaques) == (4, 0, [100, 1000, 10_000, 100_000])
    assert part.data[part.start : part.end] == b"".join(frames[2:])


# ---- refusals ----------------------------------------------------------------------------------------------------------


def test_the_first_ones_pass_and_each_refused_one_gets_its_answer() -> None:
    talk = Talk("rocketmq", rule(messages=2))
    talk.client(b"".join(send(opaque=opaque) for opaque in (5, 6, 2_147_483_647, -1)))
    assert talk.to_broker == send(opaque=5) + send(opaque=6)
    assert replies(talk) == [
        {
            "code": 215,
            "flag": 1,
            "language": "JAVA",
            "opaque": opaque,
            "remark": "[RateLimit] for orders need wait:500000microsecs",
            "serializeTypeCurrentRPC": "JSON",
            "version": 479,
        }
        for opaque in (2_147_483_647, -1)
    ]


def test_the_code_is_2_where_the_rule_says_system_busy() -> None:
    talk = Talk("rocketmq", rule(messages=0, reply="system_busy"))
    talk.client(send() + send_back("workers"))
    assert [reply["code"] for reply in replies(talk)] == [2, 2]


@pytest.mark.parametrize("rate", [1, 3, 7, 999, 30_000, 1_000_000])
def test_the_wait_is_true_to_the_microsecond(rate: int) -> None:
    talk = Talk("rocketmq", rule(messages=rate, burst=1))
    talk.client(send(opaque=1) + send(opaque=2))
    (reply,) = replies(talk)
    wait = int(str(reply["remark"]).removeprefix("[RateLimit] for orders need wait:").removesuffix("microsecs"))
    for early, passes in ((1000, False), (0, True)):
        again = Talk("rocketmq", rule(messages=rate, burst=1))
        again.client(send(opaque=1))
        again.now += wait * 1000 - early
        again.client(send(opaque=3))
        assert (again.to_broker == send(opaque=1) + send(opaque=3)) == passes


@pytest.mark.parametrize("topic", ['quote"back\\slash', "100%d%%", "%RETRY%group", "\u4e2d\u6587", "line\nend", "%" * 37, "a" * 255])
@pytest.mark.parametrize("count", [1, 3])
def test_any_topic_stands_in_the_remark_as_it_is(topic: str, count: int) -> None:
    talk = Talk("rocketmq", rule(messages=0))
    talk.client(b"".join(send(topic, opaque=opaque) for opaque in range(count)))
    assert [reply["opaque"] for reply in replies(talk)] == list(range(count))
    assert {str(reply["remark"]).split(" need wait:")[0] for reply in replies(talk)} == {f"[RateLimit] for {topic}"}


def test_one_way_requests_are_dropped_without_an_answer() -> None:
    talk = Talk("rocketmq", rule(messages=1))
    talk.client(b"".join(send(opaque=opaque, one_way=True) for opaque in range(5)))
    assert (talk.to_broker, talk.to_client) == (send(opaque=0, one_way=True), b"")
    parts: list[Part] = []
    talk.conversation.decode(send(one_way=True), 0, 512, parts)
    assert talk.conversation.refuse(parts[0]) == DROPPED


def test_drop_swallows_without_an_answer() -> None:
    talk = Talk("rocketmq", rule("drop", messages=1))
    talk.client(b"".join(send(opaque=opaque) for opaque in range(5)))
    assert (talk.to_broker, talk.to_client) == (send(opaque=0), b"")


def test_a_batch_passes_or_is_refused_as_a_whole_and_is_charged_by_its_messages() -> None:
    talk = Talk("rocketmq", rule(messages=4))
    batch = [send(opaque=opaque, body=batch_body(b"1", b"2", b"3"), batch=True) for opaque in (1, 2)]
    talk.client(b"".join(batch) + send(opaque=3) + send(opaque=4))
    assert talk.to_broker == batch[0] + send(opaque=3)
    assert [reply["opaque"] for reply in replies(talk)] == [2, 4]


# ---- chunks ------------------------------------------------------------------------------------------------------------

MIXED = b"".join(
    [
        heartbeat(opaque=0),
        *(send(opaque=opaque) for opaque in range(1, 6)),
        send("other", opaque=6, binary=True),
        send(opaque=7, body=batch_body(b"a", b"b"), batch=True),
        send_back(opaque=8),
        send(opaque=9, one_way=True),
        encode_request(11, {"topic": "orders"}, opaque=10),
        send(opaque=11, code=10),
        *(send(f"t{opaque % 3}", opaque=opaque, body=b"") for opaque in range(12, 24)),
    ]
)


@pytest.mark.parametrize("action", ["reject", "drop", "delay"])
@pytest.mark.parametrize("messages", [0, 3, 1000])
def test_all_chunkings_have_the_same_outcome(action: str, messages: int) -> None:
    def outcome(chunks: list[bytes]) -> tuple[object, ...]:
        talk = Talk("rocketmq", rule(action, messages=messages, max_delay_ns=2 * SECOND))
        talk.client(b"", chunks)
        at_once = (talk.requests, talk.to_broker, sorted(split_frames(talk.to_client)), talk.conversation.budget.held_messages)
        talk.wait(3 * SECOND)
        assert talk.holds_nothing()
        return *at_once, talk.to_broker, sorted(split_frames(talk.to_client)), talk.rest

    whole = outcome([MIXED])
    assert outcome(bytewise(MIXED)) == whole
    for seed in range(5):
        assert outcome(randomly(MIXED, seed)) == whole


def test_large_frames_stream_through_without_being_collected() -> None:
    talk = Talk("rocketmq", hold_bytes=4096)
    data = send(body=b"x" * 100_000) + encode_request(9999, {}, b"y" * 100_000) + send(opaque=2)
    most = 0
    for chunk in (data[at : at + 1000] for at in range(0, len(data), 1000)):
        talk.client(chunk)
        most = max(most, len(talk.rest))
    assert most < 4096
    assert talk.to_broker == data
    assert talk.requests == [("orders", "producers", 1, 100_000), ("orders", "producers", 1, 200)]


@pytest.mark.parametrize("action", ["reject", "delay"])
def test_a_refused_large_frame_is_discarded_as_it_comes_and_answered_at_its_end(action: str) -> None:
    """It cannot be held, so `delay` refuses it too."""
    talk = Talk("rocketmq", rule(action, messages=0), hold_bytes=4096)
    large = send(opaque=77, body=b"x" * 10_000)
    talk.client(large[:5000])
    assert talk.to_client == b""
    talk.client(large[5000:-1])
    assert talk.to_client == b""
    talk.client(large[-1:] + heartbeat(opaque=78))
    assert [reply["opaque"] for reply in replies(talk)] == [77]
    assert talk.to_broker == heartbeat(opaque=78)
    assert talk.holds_nothing()


@pytest.mark.parametrize("action", ["reject", "drop", "delay"])
def test_large_frames_in_any_chunks_have_the_same_outcome(action: str) -> None:
    frames = [send(opaque=opaque, body=b"x" * 6000, one_way=opaque % 3 == 0) for opaque in range(6)]
    frames.insert(3, encode_request(9999, {}, b"y" * 6000))
    data = b"".join(frames)

    def outcome(chunks: list[bytes]) -> tuple[object, ...]:
        talk = Talk("rocketmq", rule(action, messages=2), hold_bytes=4096)
        talk.client(b"", chunks)
        return talk.requests, talk.to_broker, talk.to_client, talk.rest, talk.holds_nothing()

    whole = outcome([data])
    assert whole[1] == frames[0] + frames[1] + frames[3]
    assert outcome(bytewise(data)) == whole
    for seed in range(3):
        assert outcome(randomly(data, seed)) == whole


def test_a_batch_larger_than_a_whole_frame_is_still_counted() -> None:
    body = batch_body(*[b"x" * 100] * 100)
    talk = Talk("rocketmq", hold_bytes=4096)
    data = send(body=body, batch=True)
    talk.client(data, randomly(data, 1))
    assert talk.requests == [("orders", "producers", 100, len(body))]
    assert talk.to_broker == data


# ---- held --------------------------------------------------------------------------------------------------------------


def test_held_sends_go_when_there_are_tokens_and_are_refused_at_the_end_of_their_time() -> None:
    talk = Talk("rocketmq", rule("delay", messages=2, max_delay_ns=SECOND))
    frames = [send(opaque=opaque) for opaque in range(6)]
    talk.client(b"".join(frames))
    assert talk.to_broker == b"".join(frames[:2])
    assert talk.conversation.budget.held_messages == 4
    assert talk.conversation.budget.held_bytes >= sum(len(one) for one in frames[2:])
    assert talk.conversation.lines.holds_close()
    talk.wait(SECOND)
    assert talk.to_broker == b"".join(frames[:4])
    assert [reply["opaque"] for reply in replies(talk)] == [4, 5]
    assert talk.holds_nothing()
    assert not talk.conversation.lines.holds_close()


def test_other_topics_and_other_requests_pass_a_held_one_by() -> None:
    talk = Talk("rocketmq", rule("delay", messages=1))
    talk.client(send(opaque=1) + send(opaque=2) + send("other", opaque=3) + heartbeat(opaque=4))
    assert talk.to_broker == send(opaque=1) + send("other", opaque=3) + heartbeat(opaque=4)


def test_later_sends_of_a_key_never_overtake_held_ones() -> None:
    """A large one waits for bytes; small ones that could pay at once queue behind it, paid."""
    talk = Talk("rocketmq", rule("delay", messages=1000, size=1000))
    large = [send(opaque=opaque, body=b"x" * 800) for opaque in (1, 2)]
    small = [send(opaque=opaque, body=b"x" * 50) for opaque in (3, 4)]
    talk.client(b"".join(large) + b"".join(small))
    assert talk.to_broker == large[0]
    assert talk.conversation.budget.held_messages == 3
    talk.client(send("other", opaque=5))
    assert talk.to_broker == large[0] + send("other", opaque=5)
    talk.wait(SECOND)
    assert talk.to_broker == large[0] + send("other", opaque=5) + large[1] + small[0] + small[1]
    assert talk.holds_nothing()


def test_parts_of_one_key_keep_their_order_through_being_judged_again_and_again() -> None:
    talk = Talk("rocketmq", rule("delay", messages=5, max_delay_ns=5 * SECOND // 2, burst=1))
    frames = [send(opaque=opaque, body=b"x" * (opaque % 7)) for opaque in range(12)]
    for one in frames:
        talk.client(one)
        talk.wait(SECOND // 50)
    talk.wait(3 * SECOND)
    assert split_frames(talk.to_broker) == frames
    assert talk.to_client == b""
    assert talk.holds_nothing()


def test_take_due_takes_about_the_room_it_is_given_and_the_rest_at_once_after() -> None:
    talk = Talk("rocketmq", rule("delay", messages=0))
    talk.client(b"".join(send(f"t{topic}", opaque=topic) for topic in range(10)))
    now = talk.conversation.budget.next_due
    first = talk.conversation.lines.take_due(now, 4)
    assert len(first) == 4
    assert talk.conversation.budget.next_due == NEVER, "the judge has them"
    for part in first:
        talk.conversation.refuse(part)
    assert talk.conversation.budget.next_due <= now
    rest = talk.conversation.lines.take_due(now, 100)
    for part in rest:
        talk.conversation.refuse(part)
    assert [part.opaques for part in first + rest if isinstance(part, Sends)] == [[topic] for topic in range(10)]
    assert talk.holds_nothing()


def test_nothing_is_due_before_its_time() -> None:
    talk = Talk("rocketmq", rule("delay", messages=0))
    talk.client(send())
    due = talk.conversation.budget.next_due
    assert talk.now < due < NEVER
    assert talk.conversation.lines.take_due(due - 1, 100) == []
    assert talk.conversation.budget.next_due == due


def test_abandon_gives_everything_up_line_by_line() -> None:
    talk = Talk("rocketmq", rule("delay", messages=1))
    talk.client(b"".join(send(f"t{opaque % 3}", opaque=opaque) for opaque in range(12)))
    parts = talk.conversation.abandon()
    assert [opaque for part in parts if isinstance(part, Sends) for opaque in part.opaques] == [3, 6, 9, 4, 7, 10, 5, 8, 11]
    assert talk.holds_nothing()
    assert talk.conversation.abandon() == []


def test_a_held_part_does_not_keep_the_read_alive() -> None:
    talk = Talk("rocketmq", rule("delay", messages=0))
    talk.client(heartbeat() * 100 + send())
    (part,) = talk.conversation.abandon()
    assert part.data == send()


# ---- the broker's side -------------------------------------------------------------------------------------------------

ANSWERS = b"".join(response(opaque, body=b"b" * (opaque * 7 % 50)) for opaque in range(8)) + frame(b"", b"") + response(9, body=b"z" * 3000)


def test_the_brokers_bytes_pass_as_they_are_in_any_chunks() -> None:
    for chunks in ([ANSWERS], bytewise(ANSWERS), randomly(ANSWERS, 1), randomly(ANSWERS, 2)):
        talk = Talk("rocketmq")
        for chunk in chunks:
            out: list[bytes] = []
            talk.conversation.relay(chunk, out)
            assert len(out) == 1
            assert out[0] is chunk, "passed at once and not copied"


def test_replies_stand_between_the_brokers_frames_and_wherever_they_come() -> None:
    answers = split_frames(ANSWERS)
    for cut in [*range(400), *range(400, len(ANSWERS) + 1, 61), len(ANSWERS)]:
        talk = Talk("rocketmq", rule(messages=0))
        talk.broker(ANSWERS[:cut])
        talk.client(send(opaque=1000))
        talk.client(send(opaque=1001))
        waiting = talk.conversation.budget.reply_bytes
        talk.broker(ANSWERS[cut:])
        frames = split_frames(talk.to_client)
        refusals = [one for one in frames if one not in answers]
        assert [one for one in frames if one in answers] == answers
        assert [read_response(one)["opaque"] for one in refusals] == [1000, 1001]
        assert talk.holds_nothing()
        assert talk.conversation.budget.reply_bytes == 0, "else the client would never be read again"
        ends = {len(b"".join(answers[:count])) for count in range(len(answers) + 1)}
        assert (waiting == 0) == (cut in ends), "what waits for a boundary counts as held, or a client could pile it up"


def test_a_reply_takes_the_first_boundary() -> None:
    talk = Talk("rocketmq", rule(messages=0))
    first, second, third = (response(opaque) for opaque in (1, 2, 3))
    talk.broker(first[:10])
    talk.client(send(opaque=7))
    assert talk.to_client == first[:10]
    talk.broker(first[10:] + second + third[:2])
    assert talk.to_client.startswith(first)
    assert read_response(talk.to_client[len(first) : -len(second) - 2])["opaque"] == 7
    assert talk.to_client.endswith(second + third[:2])


@pytest.mark.parametrize("prefix", [b"\x00\x00\x00\x03", b"\x00\x00\x00\x00", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff"])
@pytest.mark.parametrize("chunked", [False, True])
def test_impossible_lengths_from_the_broker_are_the_brokers_fault(prefix: bytes, chunked: bool) -> None:
    talk = Talk("rocketmq")
    data = response(1) + prefix + b"rest"
    with pytest.raises(ProtocolError) as caught:
        talk.broker(b"", bytewise(data) if chunked else [data])
    assert caught.value.whose == "broker"


# ---- the end -----------------------------------------------------------------------------------------------------------


def test_the_origin_is_given_back_once() -> None:
    talk = Talk("rocketmq")
    second = Talk("rocketmq", judge=talk.judge)
    origin = talk.judge.origin("rocketmq", "listener", "10.0.0.7", None)
    assert origin.sessions == 3
    talk.conversation.end()
    talk.conversation.end()
    assert origin.sessions == 2
    second.conversation.end()
    assert origin.sessions == 1


def test_it_describes_and_shows_itself() -> None:
    talk = Talk("rocketmq", rule("delay", messages=0))
    assert talk.conversation.describe() == {
        "language": None,
        "version": None,
        "held": 0,
        "held_polls": 0,
        "limited_polls": 0,
        "empty_polls": 0,
    }
    talk.client(frame(json_header(310, {"b": "t"}, language="CPP", version=63)))
    assert talk.conversation.describe() == {
        "language": "CPP",
        "version": 63,
        "held": 1,
        "held_polls": 0,
        "limited_polls": 0,
        "empty_polls": 0,
    }
    assert repr(talk.conversation) == "<RocketmqConversation 10.0.0.7 CPP held=1 streaming=0 <BrokerStream between frames replies=0>>"
    assert talk.conversation.settled()
    assert say_close(talk.conversation, "why") == (b"", b"")
    assert talk.conversation.heartbeat() == b""


@pytest.mark.parametrize(("said", "known"), [((1 << 31) - 1, (1 << 31) - 1), (1 << 31, 0), (10**26, 0), (-1, 0), (True, 0)])
def test_a_clients_version_is_an_int_of_java(said: int, known: int) -> None:
    """Any other number is nothing that a worker could tell its parent: the worker ended."""
    talk = Talk("rocketmq")
    talk.client(frame(json_header(310, {"b": "t"}, version=said)))
    version = talk.conversation.describe()["version"]
    assert version == known
    assert type(version) is int


def test_the_longest_frame_is_max_frame() -> None:
    talk = Talk("rocketmq", hold_bytes=MIB)
    data = send(body=b"x" * (MAX_FRAME - len(send(body=b""))))
    assert len(data) == MAX_FRAME
    talk.client(data, [data[at : at + MIB] for at in range(0, len(data), MIB)])
    assert talk.to_broker == data


@pytest.mark.parametrize("binary", [False, True])
def test_the_origins_of_a_connection_know_its_clients_language_and_version(*, binary: bool) -> None:
    """It is known with the first request; users that requests claim later have origins of their own."""
    talk = Talk("rocketmq", rule("delay", messages=0))
    talk.client(encode_request(310, {"b": "t"}, b"body", opaque=1, binary=binary))
    talk.client(encode_request(310, {"b": "t", "AccessKey": "shop", "Signature": "s="}, b"body", opaque=2, binary=binary))
    conversation = talk.conversation
    assert isinstance(conversation, RocketmqConversation)
    origins = conversation.frames.origins.by_user
    said = {"language": conversation.frames.language, "version": conversation.frames.version}
    assert said["language"] == "JAVA"
    assert {user: origin.libraries for user, origin in origins.items()} == {b"": (said,), b"shop": (said,)}
