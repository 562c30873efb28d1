"""Whom a client says it is: every response RabbitMQ takes names the user it would take, and none passes as nobody."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.amqp.sasl import user_of
from limiter.judge import Judge
from limiter.rules.rule_set import RuleSet
from support.amqp import frames as amqp

names = st.binary(min_size=0, max_size=20).filter(lambda name: name != b"LOGIN")


def long(kind: bytes, value: bytes) -> bytes:
    return kind + struct.pack(">I", len(value)) + value


def field(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


fixed = {b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"f": 4, b"D": 5, b"l": 8, b"L": 8, b"d": 8, b"T": 8, b"V": 0}
numbers = st.sampled_from(sorted(fixed.items())).flatmap(lambda each: st.binary(min_size=each[1], max_size=each[1]).map(each[0].__add__))
texts = st.tuples(st.sampled_from([b"S", b"x"]), st.binary(max_size=30)).map(lambda each: long(*each))
values = st.recursive(
    numbers | texts,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: long(b"A", b"".join(items)))
        | st.lists(st.tuples(st.binary(max_size=5), inner), max_size=3).map(
            lambda items: long(b"F", b"".join(field(*each) for each in items))
        )
    ),
    max_leaves=6,
)
tables = st.lists(st.tuples(names, values).map(lambda each: field(*each)), max_size=4).map(b"".join)
PASSWORD = field(b"PASSWORD", long(b"S", b"secret"))


@given(before=tables, after=tables, name=st.text(min_size=1), kind=st.sampled_from([b"S", b"x"]))
def test_login_is_found_behind_fields_of_every_type(before: bytes, after: bytes, name: str, kind: bytes) -> None:
    login = field(b"LOGIN", long(kind, name.encode()))
    assert user_of(b"AMQPLAIN", before + login + after + PASSWORD) == name
    assert user_of(b"AMQPLAIN", before + PASSWORD + login + field(b"LOGIN", long(b"S", b"another"))) == name, "RabbitMQ takes the first"


@given(before=tables, name=st.text(min_size=1))
def test_a_table_cut_off_anywhere_before_the_name_is_complete_is_refused(before: bytes, name: str) -> None:
    whole = before + field(b"LOGIN", long(b"S", name.encode()))
    for size in range(len(whole)):
        with pytest.raises(ProtocolError, match="SYNTAX_ERROR - the AMQPLAIN response"):
            user_of(b"AMQPLAIN", whole[:size])


@given(noise=st.binary(max_size=200))
def test_any_bytes_name_a_user_or_are_refused(noise: bytes) -> None:
    for mechanism in (b"PLAIN", b"AMQPLAIN", b"RABBIT-CR-DEMO"):
        refused = b""
        user = None
        try:
            user = user_of(mechanism, noise)
        except ProtocolError as error:
            refused = error.last_frames
        assert user is not None or refused[11:13] == (502).to_bytes(2, "big")


def test_a_nested_table_is_skipped_however_deep_it_claims_to_be() -> None:
    nested = long(b"F", b"\x01aF" * 40_000)
    assert user_of(b"AMQPLAIN", field(b"x", nested) + field(b"LOGIN", long(b"S", b"ann"))) == "ann"


@pytest.mark.parametrize(
    ("mechanism", "response", "said"),
    [
        (b"PLAIN", b"", "the PLAIN response is invalid"),
        (b"PLAIN", b"nonsense", "the PLAIN response is invalid"),
        (b"PLAIN", b"\0ann", "the PLAIN response is invalid"),
        (b"PLAIN", b"\0ann\0secret\0more", "the PLAIN response is invalid"),
        (b"AMQPLAIN", b"", "is missing the field LOGIN"),
        (b"AMQPLAIN", PASSWORD, "is missing the field LOGIN"),
        (b"AMQPLAIN", field(b"login", long(b"S", b"ann")), "is missing the field LOGIN"),
        (b"AMQPLAIN", field(b"LOGIN", b"I\0\0\0\1"), "uses an unsupported type for the field LOGIN"),
        (b"AMQPLAIN", field(b"a", b"Z\0") + field(b"LOGIN", long(b"S", b"ann")), "has a field of a type that AMQP does not know"),
        (b"AMQPLAIN", field(b"LOGIN", b"S\0\0\0\x7fann"), "ends within a field"),
    ],
)
def test_a_name_that_cannot_be_read_is_refused_without_showing_a_secret(mechanism: bytes, response: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said) as caught:
        user_of(mechanism, response)
    assert b"secret" not in caught.value.last_frames


def test_plain_may_name_another_to_act_for_and_the_demo_names_only_the_user() -> None:
    assert user_of(b"PLAIN", b"\0ann\0secret") == "ann"
    assert user_of(b"PLAIN", b"\0\0") == ""
    assert user_of(b"PLAIN", b"boss\0ann\0secret") == "ann"
    assert user_of(b"RABBIT-CR-DEMO", b"ann") == "ann"


@pytest.mark.parametrize("mechanism", [b"EXTERNAL", b"ANONYMOUS", b"OAUTHBEARER", b"plain"])
def test_other_mechanisms_are_the_brokers_to_judge(mechanism: bytes) -> None:
    assert user_of(mechanism, b"\0ann\0secret") is None


# ---- EXTERNAL ----------------------------------------------------------------------------------------------------------


def log_in(mechanism: str, *, certificate_user: str | None, lends: bool) -> AmqpConversation:
    judge = Judge(RuleSet(()))
    context = ConversationContext(judge, "rabbit", "10.0.0.7", 40_000, 1 << 20, 1 << 20, 0, None, False, certificate_user, lends)
    conversation = AmqpConversation(context)
    response = "\0shop\0secret" if mechanism == "PLAIN" else ""
    data = amqp.PROTOCOL_HEADER + amqp.method(0, commands.Connection.StartOk({}, mechanism, response, "en_US"))
    conversation.decode(data, 0, 10, [])
    return conversation


def test_external_without_a_certificate_is_refused_where_the_gateways_own_would_speak_for_the_client() -> None:
    with pytest.raises(ProtocolError) as caught:
        log_in("EXTERNAL", certificate_user=None, lends=True)
    (close,) = amqp.read(caught.value.last_frames)
    assert isinstance(close.value, commands.Connection.Close)
    assert (close.value.reply_code, caught.value.cause) == (403, "access_refused")
    assert close.value.reply_text.startswith(
        "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL: no client certificate"
    )
    assert close.value.reply_text.endswith("log in with PLAIN, or show one (tls.client_ca of the listener)")


@pytest.mark.parametrize(
    ("mechanism", "certificate_user", "lends", "user"),
    [
        ("EXTERNAL", "application", True, "application"),
        ("EXTERNAL", None, False, None),  # the broker sees no certificate either, and refuses
        ("PLAIN", None, True, "shop"),
    ],
)
def test_every_other_login_goes_to_the_broker(mechanism: str, certificate_user: str | None, lends: bool, user: str | None) -> None:
    assert log_in(mechanism, certificate_user=certificate_user, lends=lends).user == user
