"""Trace contexts: which values of `traceparent` are taken for one, and which traces are sampled."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from gateway.pipeline.trace_context import bound_of, is_sampled, valid_traceparent

GOOD = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_specification_s_example_is_taken() -> None:
    assert valid_traceparent(GOOD) == GOOD


@pytest.mark.parametrize(
    "value",
    [
        b"",
        GOOD[:-1],
        GOOD + b"0",
        GOOD + b"-00",  # version 00 ends there
        GOOD.upper(),
        GOOD.replace(b"0af7", b"0AF7"),
        GOOD.replace(b"0af7", b"0ag7"),
        GOOD.replace(b"-", b"_"),
        GOOD.replace(b"00-", b"ff-", 1),
        b"00-" + b"0" * 32 + GOOD[35:],
        GOOD[:36] + b"0" * 16 + b"-01",
        b"01" + GOOD[2:] + b"x",  # a later version goes on with a hyphen
        b" " + GOOD[1:],
        b"\xff" * 55,
    ],
)
def test_what_the_specification_does_not_allow_is_no_trace_context(value: bytes) -> None:
    assert valid_traceparent(value) == b""


def test_of_a_later_version_its_first_fields_are_taken() -> None:
    assert valid_traceparent(b"01" + GOOD[2:]) == b"01" + GOOD[2:]
    assert valid_traceparent(b"cc" + GOOD[2:] + b"-what-comes-later") == b"cc" + GOOD[2:]


@given(st.one_of(st.binary(max_size=80), st.text("0123456789abcdefABCDEF-", min_size=55, max_size=58).map(str.encode)))
@example(GOOD)
def test_whatever_is_taken_has_the_form(value: bytes) -> None:
    found = valid_traceparent(value)
    form = rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    expected = re.match(rb"(?:00-.{52}|(?!00).{55})(?:\Z|(?<!\A00.{53})-)", value, re.DOTALL) is not None
    matched = re.match(form, value)
    if matched is None or not expected or (len(value) > 55 and value.startswith(b"00")):
        assert found == b""
    else:
        assert found == value[:55]


@given(trace_id=st.integers(1, (1 << 128) - 1), thousandths=st.integers(1, 1000))
def test_a_trace_is_sampled_as_opentelemetry_s_own_sampler_does(trace_id: int, thousandths: int) -> None:
    traceparent = f"00-{trace_id:032x}-b7ad6b7169203331-01".encode()
    own = TraceIdRatioBased(thousandths / 1000).should_sample(None, trace_id, "name").decision is Decision.RECORD_AND_SAMPLE
    assert is_sampled(traceparent, bound_of(thousandths)) == own


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)])
def test_a_trace_that_the_client_does_not_sample_is_not_sampled(flags: str, sampled: bool) -> None:
    assert is_sampled(GOOD[:-2] + flags.encode(), bound_of(1000)) is sampled
