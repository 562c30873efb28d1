"""A limited poll asks for no more than passes in a second; whatever else its header says stays as it is."""

from __future__ import annotations

import json

import pytest

from gateway.protocols.rocketmq.polls.fewer import rewrite_for_fewer
from gateway.protocols.rocketmq.polls.terms import read_terms
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.rocketmq import stored_messages as rocketmq
from support.rocketmq.frames import encode_request
from support.wires.conversations import Talk


def talking(rate: int) -> Talk:
    return Talk("rocketmq", Rule("slow", Match(protocol="rocketmq", operation="consume"), limit=Limit(messages=Rate(rate))))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("rate", "most", "asked"), [(1, 32, 1), (20, 32, 20), (32, 32, 32), (1000, 32, 32), (5, 3, 3)])
def test_a_pull_asks_for_what_passes_in_a_second(rate: int, most: int, asked: int, binary: bool) -> None:
    talk = talking(rate)
    talk.client(rocketmq.pull(most=most, binary=binary))
    assert talk.to_broker == rocketmq.pull(most=asked, binary=binary)


def test_pops_do_too() -> None:
    talk = talking(3)
    talk.client(rocketmq.pop(most=32))
    assert talk.to_broker == rocketmq.pop(most=3)
    talk = talking(3)
    talk.client(rocketmq.pop_lite(most=32))
    assert talk.to_broker == rocketmq.pop_lite(most=3)


def test_a_number_that_is_no_text_is_found() -> None:
    data = encode_request(11, {"topic": "orders", "consumerGroup": "g", "maxMsgNums": 32, "queueId": 0})
    changed = rewrite_for_fewer(data, 0, len(data), 11, 5)
    assert read_terms(changed, 8, len(changed), 0, 11).max_messages == 5
    assert json.loads(changed[8:])["extFields"] | {"maxMsgNums": 32} == json.loads(data[8:])["extFields"]


@pytest.mark.parametrize(
    "extra",
    [
        {"maxMsgNums": "32", "Signature": "abc", "AccessKey": "me"},  # over this number, too
        {"topic": "orders"},
        {"maxMsgNums": "32", "consumerGroup": 'x", "maxMsgNums": "7'},  # stands within a text as well, escaped
    ],
)
@pytest.mark.parametrize("binary", [False, True])
def test_what_cannot_be_changed_safely_stays(extra: dict[str, str], binary: bool) -> None:
    data = encode_request(11, extra, binary=binary)
    changed = rewrite_for_fewer(data, 0, len(data), 11, 5)
    if "consumerGroup" in extra:
        assert changed in (b"", encode_request(11, extra | {"maxMsgNums": "5"}, binary=binary))
    else:
        assert changed == b""


def test_one_that_is_said_twice_stays() -> None:
    data = encode_request(11, {"maxMsgNums": "32"}, binary=True) + b""
    field = data[-len(b"\x00\x0amaxMsgNums\x00\x00\x00\x0232") :]
    header = data[8 : -len(field) - 4] + (2 * len(field)).to_bytes(4, "big") + 2 * field
    twice = (4 + len(header)).to_bytes(4, "big") + (len(header) | 1 << 24).to_bytes(4, "big") + header
    assert rewrite_for_fewer(twice, 0, len(twice), 11, 5) == b""
