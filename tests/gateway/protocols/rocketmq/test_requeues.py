"""What consumers give back: send-backs, sends to their retry topic, and changes of the invisible time, at a limit of their group."""

from __future__ import annotations

from typing import Any

import pytest

from limiter.limits import Limit, Rate
from limiter.operations import REQUEUE
from limiter.rules.level_keys import LevelKey
from limiter.rules.live_change import Override
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.rocketmq.frames import encode_request, frame, json_header, read_response, send, send_back, split_frames
from support.wires.conversations import SECOND, Talk

MS = SECOND // 1000


def limit(messages: int = 10, *, burst: int = 1, per: str = "topic", match: dict[str, str] | None = None, **more: Any) -> Rule:
    rate = Limit(messages=Rate(messages), messages_burst=burst)
    return Rule("requeues", Match(operation=REQUEUE, **(match or {})), per=per, limit=rate, action="delay", **more)


def change_invisible_time(group: str = "workers", *, opaque: int = 1, topic: str = "orders") -> bytes:
    """CHANGE_MESSAGE_INVISIBLETIME, as Java's POP consumer gives a message back."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "offset": "7", "invisibleTime": "10000"}
    return encode_request(200_053, fields | {"extraInfo": "7 1795247411000 60000 0 0 broker-a 0 7"}, opaque=opaque)


def to_retry(group: str = "workers", *, opaque: int = 1, one_way: bool = False) -> bytes:
    return send(f"%RETRY%{group}", b"x", opaque=opaque, one_way=one_way)


def told(talk: Talk) -> bytes:
    data, talk.to_broker = talk.to_broker, b""
    return data


WAYS = pytest.mark.parametrize("gives_back", [send_back, to_retry, change_invisible_time], ids=lambda each: each.__name__)


@WAYS
def test_what_is_over_the_limit_of_its_group_waits_and_all_else_passes(gives_back: Any) -> None:
    talk = Talk("rocketmq", limit())
    first, second = gives_back(opaque=1), gives_back(opaque=2)
    others = gives_back("others", opaque=3) + send(opaque=4) + encode_request(200_051, {"consumerGroup": "workers"}, opaque=5)
    talk.client(first + second + others)
    assert told(talk) == first + others
    talk.wait(99 * MS)
    assert told(talk) == b""
    talk.wait(1 * MS)
    assert told(talk) == second
    assert talk.to_client == b""
    assert talk.holds_nothing()


@WAYS
def test_what_would_wait_too_long_is_refused_and_its_consumer_keeps_the_message(gives_back: Any) -> None:
    talk = Talk("rocketmq", limit(1))
    frames = [gives_back(opaque=opaque) for opaque in range(1, 6)]
    talk.client(b"".join(frames))
    talk.wait(2_500 * MS)
    assert told(talk) == b"".join(frames[:3])
    answers = [read_response(each) for each in split_frames(talk.to_client)]
    assert [(each["code"], each["opaque"]) for each in answers] == [(215, 4), (215, 5)]
    assert "for %RETRY%workers need wait" in str(answers[0]["remark"])
    assert talk.holds_nothing()


def test_all_ways_of_one_group_draw_on_one_limit() -> None:
    talk = Talk("rocketmq", limit())
    ways = [send_back(opaque=1), to_retry(opaque=2), change_invisible_time(opaque=3)]
    talk.client(b"".join(ways))
    assert told(talk) == ways[0]
    talk.wait(400 * MS)  # two keys wait, and take turns
    assert sorted(split_frames(told(talk))) == sorted(ways[1:])


def test_a_limit_on_the_retry_topic_holds_as_well() -> None:
    """It was there first: what is sent back is a message to that topic, and refused by its rule's action."""
    retries = Rule("retries", Match(topic="%RETRY%*"), limit=Limit(messages=Rate(10), messages_burst=2), open_for_ns=0)
    talk = Talk("rocketmq", retries, limit(10, burst=3))
    frames = [send_back(opaque=opaque) for opaque in range(1, 6)]
    talk.client(b"".join(frames))
    assert told(talk) == b"".join(frames[:2])
    assert [read_response(each)["opaque"] for each in split_frames(talk.to_client)] == [3, 4, 5]
    talk.to_client = b""
    talk.client(change_invisible_time(opaque=6))
    assert told(talk) == change_invisible_time(opaque=6), "the one token that is left; POP's nack is no message to the retry topic"
    talk.client(change_invisible_time(opaque=7))
    assert (told(talk), talk.to_client) == (b"", b"")


def test_one_limit_for_messages_and_what_is_given_back_counts_each_once() -> None:
    both = Rule(
        "both", Match(operation=("produce", REQUEUE)), per="client", limit=Limit(messages=Rate(10), messages_burst=4), open_for_ns=0
    )
    talk = Talk("rocketmq", both)
    talk.client(b"".join(send_back(opaque=opaque) for opaque in range(1, 7)))
    assert told(talk) == b"".join(send_back(opaque=opaque) for opaque in range(1, 5))
    assert [read_response(each)["opaque"] for each in split_frames(talk.to_client)] == [5, 6], "by the rule's own action"


def test_it_is_no_copy() -> None:
    refusing = Rule("copies", copies="refuse", limit=Limit(messages=Rate(100)), open_for_ns=0)
    talk = Talk("rocketmq", refusing, limit(100, burst=100))
    talk.client(send_back() + to_retry(opaque=2))
    assert told(talk) == send_back() + to_retry(opaque=2)
    for part in talk.parts:
        assert part.key is not None
        assert (part.key.tally.refused_copies, part.copies) == (0, None)


def of(language: str, version: int, opaque: int) -> bytes:
    extra = {"group": "workers", "offset": "12345", "delayLevel": "0", "originTopic": "orders"}
    return frame(json_header(36, extra, opaque=opaque, language=language, version=version))


def test_early_cpp_waits_as_long_as_it_takes() -> None:
    talk = Talk("rocketmq", limit(1))
    sent = b"".join(of("CPP", 63, opaque) for opaque in range(6))
    talk.client(sent)
    talk.wait(6 * SECOND)
    assert told(talk) == sent
    assert talk.to_client == b""


def test_go_is_not_answered_and_keeps_the_message() -> None:
    talk = Talk("rocketmq", limit(1))
    frames = [of("GO", 317, opaque) for opaque in range(6)]
    talk.client(b"".join(frames))
    talk.wait(6 * SECOND)
    assert told(talk) == b"".join(frames[:3])
    assert talk.to_client == b""
    assert talk.holds_nothing()


def test_what_expects_no_answer_waits_on() -> None:
    talk = Talk("rocketmq", limit(1))
    sent = b"".join(to_retry(opaque=opaque, one_way=True) for opaque in range(6))
    talk.client(sent)
    talk.wait(6 * SECOND)
    assert told(talk) == sent


@pytest.mark.parametrize("one_way", [False, True])
def test_a_send_that_cannot_be_kept_whole_is_refused_at_once_or_dropped(one_way: bool) -> None:
    talk = Talk("rocketmq", limit(1))
    small, large = to_retry(opaque=1), send("%RETRY%workers", bytes(2 << 20), opaque=2, one_way=one_way)
    talk.client(small + large[:5000])
    talk.client(large[5000:] + send(opaque=3))
    assert told(talk) == small + send(opaque=3)
    assert [read_response(each)["opaque"] for each in split_frames(talk.to_client)] == ([] if one_way else [2])
    assert talk.holds_nothing()


def test_a_request_that_nobody_waits_for_longer_is_dropped() -> None:
    """One-way, with a TTL: it can neither be refused nor wait for as long as it takes."""
    fields = {"b": "%RETRY%workers", "a": "p", "i": "TTL\x0150\x02CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01me\x02"}
    talk = Talk("rocketmq", limit(1))
    talk.client(to_retry() + encode_request(310, fields, b"x", opaque=2, flag=2))
    talk.wait(5 * SECOND)
    assert told(talk) == to_retry()
    assert talk.holds_nothing()


def test_a_limit_on_sizes_is_for_messages_alone() -> None:
    sizes = Rule("sizes", max_message_size=50)
    bytes_of_both = Limit(messages=Rate(100), bytes=Rate(50))
    both = Rule("both", Match(operation=("produce", "declare")), per="client", limit=bytes_of_both, open_for_ns=0)
    talk = Talk("rocketmq", limit(100, burst=100), sizes, both)
    lists = encode_request(18, None, bytes(200), opaque=4)
    talk.client(send("%RETRY%workers", bytes(51), opaque=1) + send_back(opaque=2) + send("%RETRY%workers", bytes(50), opaque=3) + lists)
    assert told(talk) == send_back(opaque=2) + send("%RETRY%workers", bytes(50), opaque=3) + lists
    assert [(read_response(each)["opaque"], read_response(each)["code"]) for each in split_frames(talk.to_client)] == [(1, 13)]


def test_a_backoff_makes_a_loop_pause_longer_and_longer() -> None:
    talk = Talk("rocketmq", limit(10, backoff_ns=SECOND))
    talk.client(b"".join(change_invisible_time(opaque=opaque) for opaque in range(30)))
    assert len(split_frames(told(talk))) == 1
    begun, passed = talk.now, []
    while talk.conversation.budget.held_messages:
        talk.wait(10 * MS)
        passed += [(talk.now - begun) // MS] * len(split_frames(told(talk)))
    assert passed == [200, 500, 1000, 1900, 2500], (
        "100 ms for the limit, and a pause of 0.1, 0.2, 0.4, 0.8 s; then its client would give up"
    )
    assert len(split_frames(talk.to_client)) == 24
    talk.wait(100 * MS)
    talk.client(change_invisible_time(opaque=40) * 2)
    talk.wait(200 * MS)
    assert len(split_frames(told(talk))) == 2, "when nothing waits, the pauses begin anew"


def test_a_backoff_pauses_nothing_but_what_is_given_back() -> None:
    rate = Limit(messages=Rate(10), messages_burst=1)
    both = Rule("both", Match(operation=("produce", REQUEUE)), per="client", limit=rate, action="delay", backoff_ns=SECOND)
    talk = Talk("rocketmq", both)
    talk.client(b"".join(send(opaque=opaque) for opaque in range(5)))
    assert len(split_frames(told(talk))) == 1
    talk.wait(400 * MS)
    assert len(split_frames(told(talk))) == 4, "a publisher is in no loop"


@pytest.mark.parametrize(
    ("match", "per", "limited"),
    [
        ({"group": "workers"}, "group", True),
        ({"group": "others"}, "group", False),
        ({"topic": "%RETRY%*"}, "topic", True),
        ({"topic": "%RETRY%workers"}, "topic", True),
        ({"namespace": "eu"}, "namespace", False),
        ({"protocol": "rocketmq"}, "client", True),
        ({"protocol": "amqp"}, "client", False),
        ({"client": "10.0.0.7"}, "connection", True),
    ],
)
def test_whose_it_is(match: dict[str, str], per: str, limited: bool) -> None:
    talk = Talk("rocketmq", limit(0, per=per, match=match))
    sent = send_back(opaque=1) + change_invisible_time(opaque=2) + send_back(opaque=3)
    talk.client(sent)
    assert (told(talk) != sent) == limited


def test_a_limit_set_live_for_a_group_holds_without_a_rule() -> None:
    talk = Talk("rocketmq")
    talk.client(send_back() * 3)
    assert told(talk) == send_back() * 3
    change = {LevelKey(REQUEUE, "group", "", "workers"): Override(messages=Rate(10))}
    talk.judge.replace(RuleSet(level_overrides=change), talk.now)
    talk.client(change_invisible_time() * 12 + send_back("others"))
    assert told(talk).endswith(send_back("others"))
    assert talk.conversation.budget.held_messages > 0


@pytest.mark.parametrize("backoff", [None, 30 * SECOND])
def test_what_nothing_refuses_waits_with_its_backoff_and_is_not_judged_all_the_time(backoff: int | None) -> None:
    """One-way send-backs, and those of a library that takes no refusal: after 2.5 s they wait on, and ask no more often than others."""
    talk = Talk(
        "rocketmq", Rule("slow", Match(operation=REQUEUE), limit=Limit(messages=Rate(1, 60 * SECOND)), action="delay", backoff_ns=backoff)
    )
    header = json_header(36, {"group": "workers", "offset": "1", "originTopic": "orders"}, opaque=3, language="CPP", version=63)
    talk.client(b"".join([to_retry(opaque=opaque, one_way=True) for opaque in (1, 2)]) + frame(header) * 2)
    judged = 0
    conversation = talk.conversation
    while conversation.budget.next_due <= 1_010 * SECOND and judged < 1_000:
        talk.now = max(talk.now, conversation.budget.next_due)
        due = conversation.lines.take_due(talk.now, 256)
        judged += len(due)
        talk.settle(due)
    assert 0 < judged < 500
