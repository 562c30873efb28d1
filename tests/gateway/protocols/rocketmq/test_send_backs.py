"""Send-backs over a limit: told to clients that heed a refusal, and to the others so that no message is lost."""

from __future__ import annotations

import pytest

from support.rocketmq.frames import frame, json_header, read_response, send, split_frames
from support.wires.conversations import SECOND, Talk, rule

HEEDING = [("JAVA", 479), ("JAVA", 409), ("JAVA", 121), ("CPP", 333)]  # ali-ons says JAVA too


def send_backs(*opaques: int, language: str, version: int) -> bytes:
    extra = {"group": "workers", "offset": "12345", "delayLevel": "0", "originTopic": "orders"}
    return b"".join(frame(json_header(36, extra, opaque=opaque, language=language, version=version)) for opaque in opaques)


def told(talk: Talk) -> list[object]:
    return [read_response(one)["opaque"] for one in split_frames(talk.to_client)]


def fates(talk: Talk) -> tuple[int, int]:
    """Of the retry topic: refused, dropped."""
    key = talk.parts[0].key
    assert key is not None
    return key.tally.refused, key.tally.dropped


@pytest.mark.parametrize(("language", "version"), HEEDING)
def test_clients_that_heed_a_refusal_get_one(language: str, version: int) -> None:
    talk = Talk("rocketmq", rule(messages=1))
    talk.client(send_backs(1, 2, 3, language=language, version=version))
    assert told(talk) == [2, 3]


def test_go_takes_silence_for_a_refusal() -> None:
    talk = Talk("rocketmq", rule(messages=1))
    talk.client(send_backs(1, 2, 3, language="GO", version=317))
    assert talk.to_broker == send_backs(1, language="GO", version=317)
    assert talk.to_client == b""
    assert fates(talk) == (2, 0)
    talk.wait(5 * SECOND)
    assert talk.to_broker == send_backs(1, language="GO", version=317)
    assert talk.holds_nothing()


@pytest.mark.parametrize("action", ["reject", "delay", "block"])
def test_early_cpp_waits_as_long_as_it_takes(action: str) -> None:
    talk = Talk("rocketmq", rule(action, messages=1, max_delay_ns=SECOND))
    sent = send_backs(1, 2, 3, 4, language="CPP", version=63)
    talk.client(sent)
    talk.wait(3 * SECOND)
    assert talk.to_broker == sent
    assert talk.to_client == b""
    assert fates(talk) == (0, 0)
    assert talk.holds_nothing()


def test_early_cpp_is_cut_off_where_the_rule_says_so() -> None:
    talk = Talk("rocketmq", rule(messages=1, fallback="close"))
    talk.client(send_backs(1, 2, language="CPP", version=63))
    assert talk.conversation.reports.close_reason
    assert fates(talk) == (1, 0)


@pytest.mark.parametrize(("language", "version"), [("GO", 317), ("CPP", 63)])
def test_other_sends_are_refused_as_ever(language: str, version: int) -> None:
    talk = Talk("rocketmq", rule(messages=1))
    talk.client(send_backs(1, language=language, version=version))
    talk.client(send("%RETRY%workers", b"", opaque=2))
    assert told(talk) == [2]
