"""The text of a second: byte for byte what `json` would write, in slices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.counting.access_log_lines import REST_S, SLICE_LINES, RunningSecond, Second, text_of
from limiter.keys import Key, Origin, Tally
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic

NOON = 1_795_262_400
WORDS = ["orders", "", 'a"b\\c/', "\u00e4\u4e2d\U0001f600", "\n\t\x00\x1f\x7f", "\ud800", "%RETRY%g\\xff"]


def key(topic: str, group: bytes = b"p1") -> Key:
    return Key(Origin("rocketmq", Sender("rocket", "10.0.0.7", None), b""), rocketmq_topic(topic.encode()), group, "produce")


def tally(**counts: int) -> Tally:
    made = Tally()
    for name, value in counts.items():
        setattr(made, name, value)
    return made


def second(*happened: tuple[Key, Tally]) -> Second:
    gathering = RunningSecond()
    for each, counts in happened:
        gathering.add(each, counts)
    return Second(NOON, 42, gathering)


def topics(number: int) -> list[tuple[Key, Tally]]:
    return [(key(f"t{each}"), tally(messages=1)) for each in range(number)]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("quiet", [True, False], ids=["all passed", "all kinds"])
def test_lines_are_what_json_would_write(word: str, quiet: bool) -> None:
    counts = {} if quiet else {
        "refused": 12, "refused_bytes": 2710, "delayed": 5, "dropped": 6, "bypassed": 7, "shadow_refused": 8,
    }  # fmt: skip
    one = Key(Origin(word, Sender("here", word, word), b""), rocketmq_topic(b"x"), None, word, word)
    found = second((one, tally(messages=412, bytes=1 << 70, received=500, peak_100ms=90, **counts)))
    line: dict[str, Any] = {
        "v": 1, "ts": NOON, "gateway": word, "boot": "6f1c", "seq": 7, "protocol": word, "topic": word, "client": word,
        "user": word, "group": None, "operation": word, "messages": 412, "bytes": 1 << 70,
        "refused_messages": counts.get("refused", 0), "refused_bytes": counts.get("refused_bytes", 0),
        "delayed_messages": counts.get("delayed", 0), "dropped_messages": counts.get("dropped", 0),
        "bypassed_messages": counts.get("bypassed", 0), "shadow_refused_messages": counts.get("shadow_refused", 0),
        "max_100ms_messages": 90, "revision": 42,
    }  # fmt: skip
    heartbeat = {"v": 1, "ts": NOON, "gateway": word, "boot": "6f1c", "seq": 8, "heartbeat": True, "revision": 42}
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in (line, heartbeat))
    assert found.lines_at_most() == 2
    assert text_of(found, word, "6f1c", 7) == text
    assert found.lines == 2


def test_keys_of_one_line_are_added_up() -> None:
    """Connections, or listeners; a key that was folded twice in the second, too."""
    one, two, other = key("orders"), key("orders"), key("orders", b"p2")
    counts = tally(messages=2, bytes=200, received=10, peak_100ms=7, refused=8, refused_bytes=800)
    more = tally(messages=1, received=2, peak_100ms=9, delayed=1, dropped=1, bypassed=1, shadow_refused=1)
    found = second((one, counts), (two, counts), (one, more), (other, counts), (two, more))
    lines = [json.loads(line) for line in text_of(found, "here", "boot", 0).splitlines()]
    assert found.lines == len(lines) == 3
    assert found.lines_at_most() == 4, "three keys, two of which make one line"
    first, second_line = ({name: line[name] for name in line if name.endswith(("messages", "bytes", "group"))} for line in lines[:2])
    assert first == {
        "group": "p1", "messages": 6, "bytes": 400, "refused_messages": 16, "refused_bytes": 1600, "delayed_messages": 2,
        "dropped_messages": 2, "bypassed_messages": 2, "shadow_refused_messages": 2, "max_100ms_messages": 18,
    }  # fmt: skip
    assert (second_line["group"], second_line["messages"], second_line["max_100ms_messages"]) == ("p2", 2, 7)


def test_the_peak_is_at_most_what_was_offered() -> None:
    """The 100 ms may have begun in the second before."""
    found = second((key("orders"), tally(received=3, peak_100ms=8)))
    assert json.loads(text_of(found, "here", "boot", 0).splitlines()[0])["max_100ms_messages"] == 3


@pytest.mark.parametrize("number", [0, 1, SLICE_LINES - 1, SLICE_LINES, 3 * SLICE_LINES])
def test_the_thread_rests_between_slices(number: int) -> None:
    """The interpreter is the event loop's meanwhile."""
    rests: list[float] = []
    one = second(*topics(number))
    text = text_of(one, "here", "boot", 5, rests.append)
    adding_up, making = max(0, -(-number // SLICE_LINES) - 1), -(-one.lines // SLICE_LINES) - 1
    assert rests == [REST_S] * (adding_up + making)
    assert text.endswith("\n")
    assert [json.loads(line)["seq"] for line in text.splitlines()] == list(range(5, 5 + one.lines))
