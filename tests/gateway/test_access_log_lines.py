"""The text of a second: byte for byte what `json` would write, in slices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.access_log_lines import REST_S, SLICE, Second, lines_of, text_of
from limiter.keys import Key, Origin, rocketmq_topic

NOON = 1_795_262_400
WORDS = ["orders", "", 'a"b\\c/', "\u00e4\u4e2d\U0001f600", "\n\t\x00\x1f\x7f", "\ud800", "%RETRY%g\\xff"]


def key() -> Key:
    return Key(Origin("rocketmq", "rocket", "10.0.0.7", None, b""), rocketmq_topic(b"orders"), b"p1", "produce")


def second(topics: int, seq: int = 0) -> Second:
    places = [("rocketmq", f"t{number}", "10.0.0.7", None, None, "produce") for number in range(topics)]
    return Second(NOON, seq, 3, {place: ([1] * 9, {}) for place in places})


@pytest.mark.parametrize("word", WORDS)
def test_lines_are_what_json_would_write(word: str) -> None:
    counts = [412, 1 << 70, 12, 2710, 5, 6, 7, 8, 90]
    one, two = key(), key()
    found = lines_of(Second(NOON, 7, 42, {(word, word, word, word, None, word): (counts, {one: 60, two: 31})}), word, "6f1c")
    line: dict[str, Any] = {
        "v": 1, "ts": NOON, "gateway": word, "boot": "6f1c", "seq": 7, "protocol": word, "topic": word, "client": word,
        "user": word, "group": None, "operation": word, "messages": 412, "bytes": 1 << 70,
        "refused_messages": 12, "refused_bytes": 2710, "delayed_messages": 5, "dropped_messages": 6, "bypassed_messages": 7,
        "shadow_refused_messages": 8, "max_100ms_messages": 90, "revision": 42,
    }  # fmt: skip
    heartbeat = {"v": 1, "ts": NOON, "gateway": word, "boot": "6f1c", "seq": 8, "heartbeat": True, "revision": 42}
    assert list(found) == [json.dumps(each, separators=(",", ":")) for each in (line, heartbeat)]


@pytest.mark.parametrize("topics", [0, 1, SLICE - 1, SLICE, 3 * SLICE])
def test_the_thread_rests_between_slices(topics: int) -> None:
    """The interpreter is the event loop's meanwhile."""
    rests: list[float] = []
    one = second(topics, 5)
    text = text_of(one, "here", "boot", rests.append)
    assert rests == [REST_S] * (-(-one.lines // SLICE) - 1)
    assert text.endswith("\n")
    assert [json.loads(line)["seq"] for line in text.splitlines()] == list(range(5, 5 + one.lines))
