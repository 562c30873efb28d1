"""Limit requests: read out of either header, allowed or not, answered in JSON."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.rocketmq.limit_requests import LimitRequest, Permission, build_answer, number
from gateway.protocols.rocketmq.requests import GatewayRequest
from support.cases import in_one_loop
from support.rocketmq import frames as rocketmq

BOTH = pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])


def request(
    extra: dict[str, rocketmq.Value] | None, *, code: int = 9003, binary: bool = False, header: bytes | None = None
) -> LimitRequest:
    """The request as it is read behind other bytes of a read."""
    text = header or (rocketmq.binary_header if binary else rocketmq.json_header)(code, extra, opaque=-7)
    frame = rocketmq.frame(text, b"a body that nobody reads", 1 if binary else 0)
    data = b"before" + frame + b"after"
    return LimitRequest(GatewayRequest(data, 6, 6 + len(frame), 14, 14 + len(text), code, -7, False))


@BOTH
def test_a_change_is_read(binary: bool) -> None:
    read = request({"topic": "%RETRY%中文", "topicLimitQps": "500.5", "AccessKey": "mqcloud"}, binary=binary)
    assert (read.fault, read.topic, read.rate) == ("", "%RETRY%中文".encode(), 500.5)
    assert (read.code, read.opaque, read.access_key, read.changes()) == (9003, -7, "mqcloud", True)


@BOTH
@pytest.mark.parametrize("code", [9002, 329])
def test_a_view_needs_no_fields(code: int, binary: bool) -> None:
    read = request(None, code=code, binary=binary)
    assert (read.fault, read.changes()) == ("", False)


@pytest.mark.parametrize(("written", "rate"), [(0, 0.0), (12, 12.0), ("1.0E7", 1e7), (" 5.0d ", 5.0), ("+.5", 0.5), ("-0.0", 0.0)])
def test_rates_as_clients_write_them(written: rocketmq.Value, rate: float) -> None:
    read = request({"topic": "t", "topicLimitQps": written})
    assert (read.fault, read.rate) == ("", rate)


def test_a_rate_may_be_a_number_with_a_fraction_in_json() -> None:
    header = b'{"code":9003,"extFields":{"topic":"t","topicLimitQps":2.5},"flag":0,"opaque":-7}'
    assert request(None, header=header).rate == 2.5


FAULTS: list[tuple[dict[str, rocketmq.Value] | None, str]] = [
    (None, "topic is missing"),
    ({"topicLimitQps": "5"}, "topic is missing"),
    ({"topic": "", "topicLimitQps": "5"}, "topic is missing"),
    ({"topic": "t"}, "topicLimitQps is missing"),
    ({"topic": "t", "topicLimitQps": None}, "topicLimitQps is missing"),
    ({"topic": "t", "topicLimitQps": "many"}, "'many' is no number"),
    ({"topic": "t", "topicLimitQps": "NaN"}, "'NaN' is no number"),
    ({"topic": "t", "topicLimitQps": "Infinity"}, "'Infinity' is no number"),
    ({"topic": "t", "topicLimitQps": "1e999"}, "is no number"),
    ({"topic": "t", "topicLimitQps": True}, "'true' is no number"),
    ({"topic": "t", "topicLimitQps": "5" * 100}, "is no number"),
    ({"topic": "t", "topicLimitQps": "-1.0"}, "sluice limits unset rocketmq 't'"),
    ({"topic": "t", "topicLimitQps": "-0.5"}, "is negative: 0 refuses all"),
    ({"topic": "t", "topicLimitQps": "5", "defaultLimitQps": "100.0"}, "defaultLimitQps is not changed by this request"),
    ({"sendMsgBackLimitQps": "100.0"}, "sluice rules set NAME"),
    ({"disabled": "true"}, "disabled is not changed by this request"),
]


@in_one_loop
@pytest.mark.parametrize(("extra", "said"), FAULTS, ids=[case[1] for case in FAULTS])
@BOTH
def test_a_change_that_cannot_be_made_is_a_fault(extra: dict[str, rocketmq.Value] | None, said: str, binary: bool) -> None:
    assert said in request(extra, binary=binary).fault


def test_the_older_requests_other_fields_say_nothing_where_they_are_minus_one() -> None:
    """So MQCloud's class of the header has them when they are not set."""
    read = request({"topic": "t", "topicLimitQps": "5.0", "defaultLimitQps": "-1.0", "sendMsgBackLimitQps": "-1.0"}, code=330)
    assert (read.fault, read.rate) == ("", 5.0)


@in_one_loop
@pytest.mark.parametrize("cut", range(1, 60, 3))
def test_a_broken_binary_header_is_a_fault_and_no_crash(cut: int) -> None:
    whole = rocketmq.binary_header(9003, {"topic": "orders", "topicLimitQps": "5.0"})
    assert "unreadable" in request(None, binary=True, header=whole[: len(whole) - cut] or b"\0").fault


@given(st.binary(max_size=200), st.booleans(), st.sampled_from([9002, 9003, 330]))
@settings(max_examples=300, deadline=None)
def test_whatever_comes_is_a_request_or_a_fault(header: bytes, binary: bool, code: int) -> None:
    read = request(None, code=code, binary=binary, header=header or b"{}")
    assert read.opaque == -7
    assert math.isfinite(read.rate)
    assert read.rate >= 0


@pytest.mark.parametrize("text", ["", "x", "0x1p3", "1_000", "5,0", "--5", "5 5", "\u0665"])
def test_other_numbers_are_none(text: str) -> None:
    assert number(text) is None


# ---- who may -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "key", "said"),
    [
        ("10.1.2.3", "", ""),
        ("::ffff:10.1.2.3", "anything", ""),
        ("127.0.0.1", "", ""),
        ("127.0.0.2", "", "127.0.0.2 is not in this listener's remote_admin.allow"),
        ("192.168.0.1", "mqcloud", "remote_admin.allow"),
        ("no address", "", "remote_admin.allow"),
    ],
)
def test_the_address_must_be_allowed(client: str, key: str, said: str) -> None:
    fault = Permission(("10.0.0.0/8", "127.0.0.1"), (), False).fault(client, key)
    assert said in fault
    assert bool(fault) == bool(said)


@pytest.mark.parametrize(
    ("client", "key", "may"),
    [("10.0.0.1", "mqcloud", True), ("10.0.0.1", "", False), ("10.0.0.1", "x", False), ("11.0.0.1", "mqcloud", False)],
)
def test_where_access_keys_are_named_one_of_them_must_be_claimed_too(client: str, key: str, may: bool) -> None:
    assert (Permission(("10.0.0.0/8",), ("mqcloud", "ops"), False).fault(client, key) == "") == may


def test_the_older_codes_only_where_the_listener_says_so() -> None:
    assert Permission(("10.0.0.0/8",), (), False).codes == {9002, 9003}
    assert Permission(("10.0.0.0/8",), (), True).codes == {9002, 9003, 329, 330}


# ---- answers -------------------------------------------------------------------------------------------------------------


def test_an_answer_is_a_json_frame_with_the_requests_opaque() -> None:
    frame = build_answer(-7, 16, 'not "you"', b"{}")
    assert frame.endswith(b"{}")
    (one,) = rocketmq.split_frames(frame)
    fields = rocketmq.read_response(rocketmq.frame(one[8:-2]))
    assert fields == {
        "code": 16, "flag": 1, "language": "JAVA", "opaque": -7, "remark": 'not "you"', "serializeTypeCurrentRPC": "JSON", "version": 479,
    }  # fmt: skip
