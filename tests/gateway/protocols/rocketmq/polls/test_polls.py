"""Polls over the limit: held, forwarded, answered empty-handed; and what their answers bring."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest

from gateway.protocols.rocketmq.polls.held import POLL_OVERHEAD
from gateway.protocols.rocketmq.polls.terms import NO_OFFSET, read_terms
from gateway.protocols.rocketmq.requests import Poll
from gateway.protocols.rocketmq.template_cache import known
from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.rocketmq import stored_messages
from support.rocketmq.frames import Value, encode_request, frame, heartbeat, read_response, response, send, split_frames
from support.rocketmq.stored_messages import found, nothing_found, notification, pop, stored
from support.wires.conversations import SECOND, Talk, bytewise, randomly

MS = 1_000_000

pull = partial(stored_messages.pull, signed=True)  # so that it stays as it is: its answer may bring far more than passes in a second
pop_lite = partial(stored_messages.pop_lite, signed=True)


def limit(messages: int | None = 5, *, size: int | None = None, mode: str = "enforce", per: str = "topic", **match: str) -> Rule:
    rates = Limit(messages=None if messages is None else Rate(messages), bytes=None if size is None else Rate(size))
    return Rule(f"slow-{mode}", match=Match(protocol="rocketmq", operation="consume", **match), limit=rates, mode=mode, per=per)


def answers(talk: Talk) -> list[dict[str, object]]:
    return [read_response(one) for one in split_frames(talk.to_client)]


def dry(talk: Talk, *, opaque: int = 900) -> None:
    """Another queue's answer has emptied the topic's bucket, and the broker's words about it are through."""
    talk.client(pull(queue=9, opaque=opaque))
    talk.broker(found(opaque, *[stored()] * 32))
    talk.to_broker = talk.to_client = b""


# ---- held, and forwarded -----------------------------------------------------------------------------------------------


def test_a_pull_passes_as_it_came_while_there_are_tokens_and_waits_when_there_are_none() -> None:
    talk = Talk("rocketmq", limit(5))
    first, second = pull(queue=0, opaque=1), pull(queue=1, opaque=2)
    talk.client(first + second)
    assert talk.to_broker == first
    assert talk.conversation.budget.held_polls == 1
    answer = found(1, *[stored()] * 32)
    talk.broker(answer)
    assert talk.to_client == answer, "an answer is never altered"
    talk.wait(6300 * MS)
    assert talk.to_broker == first, "27 are owed and 5 make a full bucket: 6.4 s"
    talk.wait(200 * MS)
    assert talk.to_broker == first + second
    assert talk.conversation.budget.held_polls == 0
    talk.broker(found(2, stored()))
    talk.wait(2 * SECOND)
    assert talk.holds_nothing()


def test_others_on_the_connection_pass_by() -> None:
    talk = Talk("rocketmq", limit(5, topic="orders"))
    dry(talk)
    held = pull(queue=0, opaque=1)
    others = [pull("free", opaque=2), send("orders", opaque=3), heartbeat(opaque=4), encode_request(15, {"topic": "orders"}, opaque=5)]
    talk.client(held + b"".join(others))
    assert talk.to_broker == b"".join(others)
    assert talk.conversation.budget.held_polls == 1
    assert talk.conversation.budget.held_messages == 0, "a pull is no message: nobody's end waits for it"


@pytest.mark.parametrize("cut", ["bytewise", "randomly"])
def test_bytes_that_come_in_pieces_make_no_difference(cut: str) -> None:
    talk = Talk("rocketmq", limit(5))
    data = pull(queue=0, opaque=1) + pull(queue=1, opaque=2)
    talk.client(b"", bytewise(data) if cut == "bytewise" else randomly(data, 3))
    assert talk.to_broker == pull(queue=0, opaque=1)
    answer = found(1, *[stored(reconsumed=1)] * 5, *[stored()] * 27)
    talk.broker(b"", bytewise(answer) if cut == "bytewise" else randomly(answer, 3))
    assert talk.to_client == answer
    assert sum(one.forwarded for one in talk.conversation.reports.delivered) == 32
    assert sum(one.size for one in talk.conversation.reports.delivered) == 3200
    assert sum(one.redelivered for one in talk.conversation.reports.delivered) == 5
    talk.wait(6500 * MS)
    assert talk.to_broker == data


@pytest.mark.parametrize(
    ("request_frame", "seconds", "code", "fields"),
    [
        (pull(offset=70, opaque=3, suspend_ms=15_000), 9, 19, ["0", "70", "70"]),
        (pull(offset=70, opaque=3, suspend_ms=20_000, code=361), 4, 19, ["0", "70", "70"]),
        (pull(offset=70, opaque=3, suspend_ms=60_000), 1, 19, ["0", "70", "70"]),
        (pull(offset=70, opaque=3, suspend_ms=0), 9, 19, ["0", "70", "70"]),
        (pull(offset=70, opaque=3, sys_flag=4), 5, 19, ["0", "70", "70"]),
        (pull(offset=70, opaque=3, binary=True), 9, 19, ["0", "70", "70"]),
        (pop(opaque=3), 14, 210, []),
        (pop(opaque=3, poll_ms=0), 1, 210, []),
        (pop(opaque=3, poll_ms=600_000), 14, 210, []),
        (notification(opaque=3, poll_ms=5000), 4, 0, ["false"]),
        (pop_lite(opaque=3), 14, 210, ["0", "0", "0"]),
        (pop_lite(opaque=3, poll_ms=5000), 4, 210, ["0", "0", "0"]),
    ],
)
def test_a_poll_that_cannot_be_held_longer_gets_an_empty_answer(request_frame: bytes, seconds: int, code: int, fields: list[str]) -> None:
    talk = Talk("rocketmq", limit(0))
    talk.client(request_frame)
    talk.wait(seconds * SECOND - 100 * MS)
    assert (talk.to_client, talk.to_broker) == (b"", b"")
    talk.wait(100 * MS)
    (answer,) = answers(talk)
    assert (answer["code"], answer["opaque"], answer["flag"]) == (code, 3, 1)
    extra = answer.get("extFields")
    assert isinstance(extra, dict)
    if code == 19:
        assert [extra["minOffset"], extra["nextBeginOffset"], extra["maxOffset"]] == fields
        assert extra["suggestWhichBrokerId"] == "0"
    elif code == 0:
        assert extra["hasMsg"] == "false"
    elif fields:
        assert [extra[name] for name in ("popTime", "invisibleTime", "reviveQid")] == fields, "what the client class may not miss"
    assert talk.conversation.budget.held_polls == 0
    assert talk.conversation.budget.next_due == NEVER


@pytest.mark.parametrize("text", [b"a||\\ud83d", b"a\tb", b"a\\x41", "标签".encode(), "标 of all".encode("gbk")])
def test_an_empty_answer_has_the_offset_that_was_asked_for_whatever_the_subscription_says(text: bytes) -> None:
    """Brokers read texts that are no JSON."""
    request = pull(offset=123_456, queue=3)
    header = request[8:].replace(b'"subscription":"*"', b'"subscription":"' + text + b'"')
    talk = Talk("rocketmq", limit(0))
    talk.client(frame(header))
    talk.wait(9 * SECOND - 100 * MS)
    assert talk.to_client == b"", "kept as long as any other"
    talk.wait(100 * MS)
    (answer,) = answers(talk)
    assert answer["extFields"] == {
        "maxOffset": "123456", "minOffset": "0", "nextBeginOffset": "123456", "suggestWhichBrokerId": "0",
    }  # fmt: skip


@pytest.mark.parametrize("offset", [None, "+7", "9" * 30, "7.5"])
def test_no_offset_is_made_up_for_a_pull_whose_own_cannot_be_read(offset: Value) -> None:
    extra: dict[str, Value] = {"topic": "orders", "consumerGroup": "g", "queueId": 0, "queueOffset": offset, "sysFlag": 4}
    talk = Talk("rocketmq", limit(0))
    talk.client(encode_request(11, extra, opaque=3))
    talk.wait(5 * SECOND)
    (answer,) = answers(talk)
    assert (answer["code"], answer["opaque"], answer["flag"], answer.get("extFields")) == (1, 3, 1, None)
    assert talk.holds_nothing()


@pytest.mark.parametrize("binary_answer", [False, True])
def test_an_empty_answer_repeats_what_the_broker_said_last(binary_answer: bool) -> None:
    talk = Talk("rocketmq", limit(5))
    talk.client(pull(queue=0, offset=40, opaque=1))
    talk.broker(found(1, *[stored()] * 32, next_offset=72, minimum=12, maximum=500, broker=1, binary=binary_answer))
    talk.to_client = b""
    talk.client(pull(queue=0, offset=72, opaque=2) + pull(queue=1, offset=3, opaque=3))
    talk.wait(9 * SECOND)
    by_opaque = {answer["opaque"]: answer["extFields"] for answer in answers(talk)}
    assert by_opaque == {}, "both went on: 6.4 s each, and the topic was quiet then"
    talk.to_client = b""
    shut = Talk("rocketmq", judge=talk.judge)
    shut.now = talk.now
    talk.judge.replace(talk.judge.rules.__class__((limit(0),)), talk.now)
    for opaque in (2, 3):
        talk.broker(nothing_found(opaque, next_offset=72, minimum=12, maximum=510, broker=1, binary=binary_answer))
    talk.to_client = b""
    talk.client(pull(queue=0, offset=72, opaque=4) + pull(queue=2, offset=600, opaque=5))
    talk.wait(9100 * MS)
    by_opaque = {answer["opaque"]: answer["extFields"] for answer in answers(talk)}
    assert by_opaque == {
        4: {"maxOffset": "510", "minOffset": "12", "nextBeginOffset": "72", "suggestWhichBrokerId": "1"},
        5: {"maxOffset": "600", "minOffset": "0", "nextBeginOffset": "600", "suggestWhichBrokerId": "1"},
    }


def test_empty_answers_stand_between_the_brokers_frames() -> None:
    talk = Talk("rocketmq", limit(0))
    talk.client(pull(opaque=1, sys_flag=4) + heartbeat(opaque=2))
    answer = response(2, body=b"x" * 100)
    talk.broker(answer[:50])
    talk.wait(5 * SECOND)
    assert talk.to_client == answer[:50]
    assert talk.conversation.budget.reply_bytes > 0, "what waits for a boundary counts as held"
    talk.broker(answer[50:])
    frames = split_frames(talk.to_client)
    assert frames[0] == answer
    assert [read_response(one)["opaque"] for one in frames[1:]] == [1]
    assert talk.holds_nothing()


def test_the_rest_of_a_large_send_is_never_torn() -> None:
    """While the broker waits for the rest of a frame nothing held may go before it."""
    talk = Talk("rocketmq", limit(5), hold_bytes=4096)
    dry(talk)
    talk.client(pull(queue=0, opaque=1))
    large = send("other", b"x" * 10_000, opaque=2)
    talk.client(large[:6000])
    talk.wait(8 * SECOND)
    assert talk.to_broker == large[:6000]
    talk.client(large[6000:])
    talk.wait(SECOND)
    assert talk.to_broker == large + pull(queue=0, opaque=1)


def test_a_poll_that_is_repeated_keeps_its_place() -> None:
    """Queue 0 waited 9 s and was answered empty-handed; queue 1 came 5 s later."""
    talk = Talk("rocketmq", limit(2))
    dry(talk)
    talk.client(pull(queue=0, opaque=1))
    talk.wait(5 * SECOND)
    talk.client(pull(queue=1, opaque=2))
    talk.wait(4 * SECOND)
    assert [answer["opaque"] for answer in answers(talk)] == [1]
    talk.client(pull(queue=0, opaque=3))
    talk.wait(5 * SECOND)
    assert [answer["opaque"] for answer in answers(talk)] == [1, 2]
    talk.client(pull(queue=1, opaque=4))
    talk.wait(SECOND)
    assert talk.to_broker == b""
    talk.wait(SECOND)
    assert split_frames(talk.to_broker) == [pull(queue=0, opaque=3)]


def test_a_second_poll_of_a_queue_has_no_part_in_the_place_of_the_first() -> None:
    """Sent together or one after the other: while the first waits for more than is left, one that asks for less does not pass it."""
    talk = Talk("rocketmq", limit(3))
    first, second = pull(queue=0, opaque=1, most=32), pull(queue=0, opaque=2, most=1)
    talk.client(pull(queue=0, opaque=3, most=1))
    for request in (first, second):
        talk.client(request)
    assert split_frames(talk.to_broker) == [pull(queue=0, opaque=3, most=1)]
    assert talk.conversation.budget.held_polls == 2


def test_a_client_that_goes_away_takes_its_polls_along() -> None:
    talk = Talk("rocketmq", limit(0))
    talk.client(pull(queue=0, opaque=1) + pull(queue=1, opaque=2))
    parts = talk.conversation.abandon()
    assert [part.count * part.messages for part in parts] == [0, 0], "no message is abandoned"
    assert talk.holds_nothing()


def test_held_polls_pass_under_other_rules() -> None:
    talk = Talk("rocketmq", limit(0))
    talk.client(pull(opaque=1))
    talk.judge.replace(talk.judge.rules.__class__(()), talk.now)
    talk.conversation.renew_keys()
    talk.wait(200 * MS)
    assert talk.to_broker == pull(opaque=1)


# ---- what is counted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [[], [limit(1000)]], ids=["unlimited", "limited"])
@pytest.mark.parametrize("binary", [False, True])
def test_messages_are_counted_per_topic_and_group_whether_limited_or_not(rules: list[Rule], binary: bool) -> None:
    talk = Talk("rocketmq", *rules)
    talk.client(pull("orders", group="a", opaque=1, binary=binary) + pull("%RETRY%b", group="b", opaque=2))
    talk.broker(found(2, stored(b"x")) + found(1, stored(b"12345"), stored(b"678"), maximum=10))
    seen = [
        (one.key.text, one.key.group, one.key.operation, one.received, one.forwarded, one.size)
        for one in talk.conversation.reports.delivered
    ]
    assert seen == [("%RETRY%b", b"b", "consume", 1, 1, 1), ("orders", b"a", "consume", 2, 2, 8)]
    assert talk.requests == ([("orders", "a", 0, 0), ("%RETRY%b", "b", 0, 0)] if rules else []), "a pull is no message itself"


@pytest.mark.parametrize("code", [19, 20, 21, 1, 2])
def test_only_messages_that_were_found_count(code: int) -> None:
    talk = Talk("rocketmq", limit(5))
    talk.client(pull(opaque=1))
    talk.broker(response(1, code, stored() * 3))
    assert talk.conversation.reports.delivered == []
    (state,) = talk.judge.states(talk.now)
    assert (state.fill, state.admitted) == (1, 0), "what was reserved is given back"


def test_requests_other_than_pulls_and_pops_are_not_consumed() -> None:
    talk = Talk("rocketmq", limit(0))
    peek = encode_request(200_052, {"topic": "orders", "consumerGroup": "a", "queueId": 0}, opaque=1)
    query = encode_request(12, {"topic": "orders", "key": "k"}, opaque=2)
    ack = encode_request(200_051, {"topic": "orders", "consumerGroup": "a"}, opaque=3)
    talk.client(peek + query + ack)
    assert talk.to_broker == peek + query + ack
    talk.broker(response(1, body=stored()) + response(2, body=stored()) + response(3))
    assert talk.conversation.reports.delivered == []


def test_a_group_may_have_a_limit_of_its_own() -> None:
    talk = Talk("rocketmq", limit(0, group="slow"))
    free, slow = pull(group="fast", opaque=1), pull(group="slow", opaque=2)
    talk.client(slow + free)
    assert talk.to_broker == free


def test_a_rule_in_shadow_mode_counts_the_polls_it_would_have_held() -> None:
    talk = Talk("rocketmq", limit(5, mode="shadow"))
    talk.client(pull(queue=0, opaque=1) + pull(queue=1, opaque=2))
    assert talk.conversation.budget.held_polls == 0
    talk.broker(found(1, *[stored()] * 32) + found(2, *[stored()] * 10))
    key = talk.conversation.reports.delivered[0].key
    assert (key.tally.shadow_refused, key.tally.delayed) == (10, 0)
    (state,) = talk.judge.states(talk.now)
    assert (state.admitted, state.shadow_refused) == (32, 10)
    assert talk.judge.checks() == {"ok": 32, "limited_shadow": 10, "limited_enforced": 0}


def test_messages_of_a_poll_that_was_held_count_as_delayed() -> None:
    talk = Talk("rocketmq", limit(5))
    dry(talk)
    talk.conversation.reports.delivered.clear()
    talk.client(pull(queue=0, opaque=1))
    talk.wait(7 * SECOND)
    talk.broker(found(1, *[stored()] * 7))
    (delivered,) = talk.conversation.reports.delivered
    assert (delivered.forwarded, delivered.key.tally.delayed) == (7, 7)
    (state,) = talk.judge.states(talk.now)
    assert (state.admitted, state.over_limit, state.held) == (39, 7, 1), "one pull was held"
    assert talk.judge.checks() == {"ok": 32, "limited_shadow": 0, "limited_enforced": 7}


def test_operators_see_which_poll_waits_and_why() -> None:
    talk = Talk("rocketmq", limit(0))
    talk.client(pull(opaque=1) + pull(queue=1, opaque=2))
    part = talk.conversation.lines.first_waiting()
    assert part is not None
    assert part.rule is not None
    assert part.key is not None
    assert (part.rule.name, part.key.text, part.key.operation) == ("slow-enforce", "orders", "consume")
    assert part.key.tally.delayed == 0
    told = talk.conversation.describe()
    assert (told["held_polls"], told["limited_polls"], told["empty_polls"]) == (2, 2, 0)
    talk.wait(9 * SECOND)
    told = talk.conversation.describe()
    assert (told["held_polls"], told["limited_polls"], told["empty_polls"]) == (0, 2, 2)


def test_pulls_are_recognised_by_a_header_template() -> None:
    """Those of one topic and group differ in queue and offset; one in LEARN_EVERY is parsed after the first few."""
    known.clear()
    talk = Talk("rocketmq")
    for number in range(1, 100):
        data = pull(queue=number % 16, offset=number * 997, opaque=number)
        talk.client(data)
        talk.broker(nothing_found(number))
    templates = talk.conversation.frames.templates  # type: ignore[attr-defined]  # RocketMQ's
    one_more = pull(queue=3, offset=123_456_789, opaque=500)
    header = templates.match(one_more, 8, len(one_more))
    assert header is not None
    assert (header.source, header.group, templates.opaque) == (b"orders", b"readers", 500)
    assert templates.learned < 10
    for other in (pull("mail"), pull(group="others"), pull(code=361)):
        assert templates.match(other, 8, len(other)) is None


# ---- what it costs -----------------------------------------------------------------------------------------------------


def deep_size(poll: Poll) -> int:
    """Bytes of a held poll's own objects, beside those of its request."""
    reservation = poll.reservation
    assert reservation is not None
    held = poll.begin_hold()  # as `Wait` does
    held.since = SECOND << 10
    numbers = [poll.opaque, poll.deadline, poll.due, held.since, reservation.since, reservation.asked_at]
    objects = [poll, held, poll.terms, reservation, reservation.buckets, reservation.shadows, poll.data, *numbers]
    places = 8 + 2 * 100  # in its line; in `heads` and its heap entry, if it is first
    return sum(map(sys.getsizeof, objects)) - len(poll.data) + places


def test_a_held_poll_costs_no_more_than_is_counted() -> None:
    talk = Talk("rocketmq", limit(0))
    polls = [pull(queue=number, opaque=number + 1) for number in range(100)]
    talk.client(b"".join(polls))
    held = talk.conversation.abandon()
    assert len(held) == 100
    assert all(isinstance(poll, Poll) and deep_size(poll) <= POLL_OVERHEAD < 1100 for poll in held)
    assert all(len(poll.data) == len(request) for poll, request in zip(held, polls, strict=True)), "not the whole read it came in"


def test_held_polls_count_as_held_bytes() -> None:
    talk = Talk("rocketmq", limit(0))
    talk.client(pull(opaque=1))
    assert talk.conversation.budget.held_bytes == len(pull(opaque=1)) + POLL_OVERHEAD


# ---- what is read of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
def test_terms_are_read_from_either_encoding(binary: bool) -> None:
    data = pull(queue=3, offset=1 << 40, most=16, binary=binary)
    terms = read_terms(data, 8, 8 + int.from_bytes(data[5:8], "big"), data[4], 11)
    assert (terms.queue, terms.offset, terms.max_messages, terms.patience_ns) == (3, 1 << 40, 16, 9 * SECOND)


def test_a_field_that_cannot_be_read_has_its_default() -> None:
    extra: dict[str, str | int | bool | None] = {
        "topic": "orders",
        "consumerGroup": "g",
        "queueId": "x",
        "queueOffset": "9" * 30,
        "maxMsgNums": -3,
        "sysFlag": True,
    }
    data = encode_request(11, extra)
    terms = read_terms(data, 8, len(data), 0, 11)
    assert (terms.queue, terms.offset, terms.max_messages, terms.patience_ns) == (-1, NO_OFFSET, 1, 5 * SECOND)
    bare = encode_request(11, None)
    assert read_terms(bare, 8, len(bare), 0, 11).max_messages == 32


def test_values_may_be_numbers_as_cpp_writes_them() -> None:
    extra: dict[str, str | int | bool | None] = {
        "topic": "orders",
        "consumerGroup": "g",
        "queueId": 2,
        "queueOffset": 5,
        "maxMsgNums": 32,
        "sysFlag": 3,
        "suspendTimeoutMillis": 15000,
    }
    data = encode_request(11, extra)
    terms = read_terms(data, 8, len(data), 0, 11)
    assert (terms.queue, terms.offset, terms.patience_ns) == (2, 5, 9 * SECOND)


# ---- counted exactly ---------------------------------------------------------------------------------------------------


def test_an_inner_batch_counts_with_its_bytes_wherever_its_answer_is_cut() -> None:
    talk = Talk("rocketmq")
    talk.client(pull(opaque=1))
    answer = found(1, stored(b"x" * 1000, inner=5))
    talk.broker(b"", [answer[:-100], answer[-100:]])
    assert [
        sum(one.forwarded for one in talk.conversation.reports.delivered),
        sum(one.size for one in talk.conversation.reports.delivered),
    ] == [5, 1000]


def test_a_poll_whose_answer_is_not_watched_costs_what_was_expected() -> None:
    match = Match(protocol="rocketmq", operation="consume")
    talk = Talk("rocketmq", Rule("slow", match=match, limit=Limit(messages=Rate(1), messages_burst=64)))
    talk.client(pull(queue=0, opaque=1) + pull(queue=1, opaque=1))  # the same opaque twice
    assert talk.conversation.budget.held_polls == 0
    talk.wait(SECOND)
    (state,) = talk.judge.states(talk.now)
    assert state.fill == 33 / 64, "what was for the first is given back: the broker has found nothing yet"
    talk.broker(found(1, *[stored()] * 3))
    assert sum(one.forwarded for one in talk.conversation.reports.delivered) == 3


def quiet(rate: int) -> Talk:
    """The broker keeps this client's pull of queue 0 because there is nothing, so the next answer is expected to bring nothing."""
    talk = Talk("rocketmq", limit(rate))
    talk.client(pull(queue=0, opaque=1))
    talk.wait(1100 * MS)
    assert len(split_frames(talk.to_broker)) == 1
    talk.to_broker = b""
    return talk


def test_pulls_for_a_queue_that_is_asked_already_reserve_the_most_they_could_bring() -> None:
    talk = quiet(32)
    talk.wait(SECOND)
    talk.client(b"".join(pull(queue=number % 4, opaque=10 + number, offset=32 * number) for number in range(300)))
    passed = [read_response(one)["opaque"] for one in split_frames(talk.to_broker)]
    assert passed == [10, 11, 12, 13], "a second's worth for queue 0, and one each for the others, which nobody has asked"
    assert talk.conversation.budget.held_polls == 296
    talk.wait(900 * MS)
    assert len(split_frames(talk.to_broker)) == 4


def test_a_queue_is_quiet_again_for_whoever_waits_for_the_answer() -> None:
    talk = quiet(5)
    for opaque in range(2, 6):
        talk.broker(nothing_found(opaque - 1))
        talk.client(pull(queue=0, opaque=opaque))
        talk.wait(1100 * MS)
    assert len(split_frames(talk.to_broker)) == 4
    (state,) = talk.judge.states(talk.now)
    assert state.fill == 1.0
    talk.judge.replace(talk.judge.rules.__class__((limit(0),)), talk.now)
    talk.broker(nothing_found(5))
    for opaque in (6, 7):
        talk.client(pull(queue=0, opaque=opaque))
        talk.wait(9 * SECOND)
    assert [answer["opaque"] for answer in answers(talk)[-2:]] == [6, 7]
    queues = {part.queue for part in talk.parts if isinstance(part, Poll)}
    assert [queue.unanswered for queue in queues if queue is not None] == [0]


def one_way_pull(opaque: int) -> bytes:
    """From the queue that is quiet."""
    extra: dict[str, Value] = {"topic": "orders", "consumerGroup": "readers", "queueId": 0, "queueOffset": 0, "maxMsgNums": 5, "sysFlag": 6}
    return encode_request(11, extra, opaque=opaque, flag=2)


@pytest.mark.parametrize("unseen", [pull(queue=0, opaque=1), one_way_pull(2)], ids=["one opaque twice", "one-way"])
def test_a_pull_whose_answer_is_not_seen_leaves_the_queue_as_quiet_as_it_was(unseen: bytes) -> None:
    """It was never answered, so each later pull of the queue reserved the most it could bring, for the connection's life."""
    talk = quiet(64)
    talk.client(unseen)
    talk.wait(2 * SECOND)
    assert len(split_frames(talk.to_broker)) == 1
    talk.broker(nothing_found(1))
    (queue,) = {part.queue for part in talk.parts if isinstance(part, Poll)}
    assert queue is not None
    assert queue.unanswered == 0


def test_one_way_pulls_of_a_quiet_queue_reserve_the_most_they_could_bring() -> None:
    talk = quiet(10)
    talk.broker(nothing_found(1))
    talk.wait(SECOND)
    talk.client(b"".join(one_way_pull(opaque) for opaque in range(10, 310)))
    assert len(split_frames(talk.to_broker)) == 2


def test_waiting_pops_are_not_taken_for_a_flood() -> None:
    """A Proxy asks for all its clients on one connection."""
    talk = Talk("rocketmq", limit(5))
    talk.client(pop(opaque=1))
    talk.wait(1100 * MS)
    talk.client(b"".join(pop(opaque=opaque) for opaque in range(2, 100)))
    assert len(split_frames(talk.to_broker)) == 99


@pytest.mark.parametrize("binary", [False, True])
def test_a_one_way_pull_is_limited_and_what_it_brings_is_counted(binary: bool) -> None:
    """Brokers answer some of them all the same."""
    talk = Talk("rocketmq", limit(5))
    extra: dict[str, Value] = {"topic": "orders", "consumerGroup": "g", "queueId": 0, "queueOffset": 0, "maxMsgNums": 5, "sysFlag": 6}
    first, second = (encode_request(11, extra, opaque=opaque, flag=2, binary=binary) for opaque in (1, 2))
    talk.client(first + second)
    assert talk.to_broker == first
    talk.broker(found(1, *[stored()] * 32))
    assert sum(one.forwarded for one in talk.conversation.reports.delivered) == 32
    talk.to_client = b""
    talk.wait(9 * SECOND)
    assert talk.to_client == b"", "no answer of the gateway's own"
    assert talk.to_broker == first + second
    talk.client(encode_request(11, extra | {"topic": "other"}, opaque=3, flag=2, binary=binary))
    talk.broker(found(2, *[stored()] * 2))
    assert talk.holds_nothing()


@pytest.mark.parametrize("ask", [pull, pop_lite])
def test_polls_of_one_opaque_are_charged_the_most_they_could_bring(ask: Callable[..., bytes]) -> None:
    talk = Talk("rocketmq", limit(32))
    talk.client(ask(opaque=7))
    talk.wait(2 * SECOND)
    talk.to_broker = b""
    talk.client(ask(opaque=7) * 300)
    talk.wait(100 * MS)
    asked = len(split_frames(talk.to_broker))
    assert asked == (1 if ask is pull else 300)
    talk.client(ask(opaque=8))
    talk.wait((9 if ask is pop_lite else 0) * SECOND)
    assert len(split_frames(talk.to_broker)) == asked, "what was passed is to be paid first"


def test_notifications_have_a_place_in_line_of_their_own() -> None:
    talk = Talk("rocketmq", limit(5))
    talk.client(pop(opaque=1) + notification(opaque=2) + pop(queue=0, opaque=3))
    queues = [part.queue for part in talk.parts if isinstance(part, Poll)]
    assert len({id(queue) for queue in queues}) == 3


def test_messages_after_the_goodbye_reach_nobody_and_are_not_counted() -> None:
    talk = Talk("rocketmq", limit(100))
    talk.client(pull(opaque=1))
    talk.conversation.begin_graceful_close()
    assert [read_response(one)["opaque"] for one in split_frames(talk.conversation.end_graceful_close())] == [1]
    talk.broker(found(1, stored(), stored()))
    assert talk.conversation.reports.delivered == []
    talk.wait(2 * SECOND)
    (state,) = talk.judge.states(talk.now)
    assert (state.admitted, state.fill) == (0, 1.0)


# ---- RocketMQ 5.5's light topics -----------------------------------------------------------------------------------------


def test_a_pop_of_light_topics_is_limited_like_a_pop_and_shares_its_bucket() -> None:
    talk = Talk("rocketmq", limit(5))
    talk.client(pop_lite(opaque=1, most=8))
    answer = response(1, body=stored() * 8)
    talk.broker(answer)
    assert talk.to_client == answer
    (delivered,) = talk.conversation.reports.delivered
    assert (delivered.key.text, delivered.forwarded, delivered.size) == ("orders", 8, 800)
    talk.to_broker = b""
    first, second = pop_lite(opaque=2), pop(opaque=3)
    talk.client(first + second)
    assert talk.to_broker == b"", "three are owed"
    assert talk.conversation.budget.held_polls == 2
    talk.wait(2 * SECOND)
    assert talk.to_broker.startswith(first)


def test_a_pop_of_light_topics_reserves_no_more_than_it_asks_for() -> None:
    for asked, taken in ((3, 3), (1, 1), (2000, 1024)):
        data = pop_lite(opaque=1, most=asked)
        terms = read_terms(data, 8, len(data), 0, 200_070)
        assert (terms.queue, terms.max_messages, terms.patience_ns) == (-1, taken, 14 * SECOND)


@pytest.mark.parametrize("code", [200_071, 200_072, 200_073, 200_074, 200_075, 200_076, 200_077, 200_078, 200_079])
def test_the_other_requests_of_light_topics_pass_whatever_the_limit_is(code: int) -> None:
    talk = Talk("rocketmq", limit(0))
    data = encode_request(code, {"topic": "orders", "parentTopic": "orders", "consumerGroup": "readers", "group": "readers"}, opaque=4)
    talk.client(data)
    assert talk.to_broker == data
    assert talk.requests == []
