"""Refusals: the gateway's own answers, always JSON (every client reads that; not every one reads the binary encoding).

The naive way encodes one response per refused message and costs more than forwarding it would. All refusals of a run differ only in
their `opaque`; padded to the eleven characters of the longest (`-2147483648`; JSON allows the blanks) they have one length, so one
format string repeated does them all: 110 ns each against 250 ns one by one (2026-11, 2 cores, Python 3.11).

Not every client understands that a send-back was refused. A consumer that fails on a message sends it back and forgets it once that is
answered. Java's and ali-ons look whether the answer was a refusal, try a send to the retry topic instead, and keep the message if that is
refused too. The others (measured 2026-11 with the versions below) would lose each message so refused:

* Go (2.1.2; rocketmq-client-go#1106) keeps a message whose send-back is not answered within 3 s, and consumes it once more 5 s later:
  it takes silence for a refusal. Later versions send it as Java does when nothing is answered.
* C++ before 2.0 (rocketmq-client-cpp#208) forgets it whatever happens: it cannot be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from limiter.keys import Key
    from limiter.rules.rule import Rule

FLOW_CONTROL: Final = 215  # no Java, Go or JavaScript client repeats a send at once that got it (`docs/design/rocketmq.md` 3.1)
MESSAGE_ILLEGAL: Final = 13  # what the broker says of a message that is too large
SYSTEM_BUSY: Final = 2  # what MQCloud's clients look for; Java from 5.3.0 on repeats such a send at once
VERSION: Final = 479  # V5_3_3; clients look at it in requests only
ANSWER_REFUSES: Final = 0  # what a client takes for the refusal of a send-back
SILENCE_REFUSES: Final = 1
NOTHING_REFUSES: Final = 2
CPP_UNDERSTANDS: Final = 333  # V4_6_0, the version C++ 2.0 and later say; earlier ones 63
MAX_WAIT_NS: Final = 86_400_000_000_000  # a day; longer waits are those for a change of the limit
OPAQUE: Final = 11  # width of `%11d`; the placeholder itself has 4 characters, so each frame grows by 7


def remark(key_text: str, wait_ns: int) -> str:
    """The text of a refusal; the wait is the true one, rounded up to a whole microsecond, and a day at most: a limit of 0 has none."""
    return f"[RateLimit] for {key_text} need wait:{-(-min(wait_ns, MAX_WAIT_NS) // 1000)}microsecs"


def explain(key: Key, rule: Rule | None, wait_ns: int) -> tuple[int, str]:
    """Code and text of a refusal by `rule` of what would pass after `wait_ns`."""
    code = SYSTEM_BUSY if rule is not None and rule.reply == "system_busy" else FLOW_CONTROL
    return code, remark(key.text or key.operation, wait_ns)


def explain_unfit(size: int, rule: Rule) -> str:
    """The text of a refusal of a request that no wait lets pass."""
    return f"[RateLimit] message body size {size} is over max_message_size {rule.max_message_size} of rule {rule.name}"


def what_refuses_send_back(language: str, version: int) -> int:
    """What clients of that language and version take for the refusal of a send-back: ANSWER_REFUSES, SILENCE_REFUSES, NOTHING_REFUSES."""
    if language == "GO":
        return SILENCE_REFUSES
    return NOTHING_REFUSES if language == "CPP" and version < CPP_UNDERSTANDS else ANSWER_REFUSES


def build_refusals(opaques: list[int], code: int, text: str) -> bytes:
    """One response frame for each of `opaques`, with `text` as remark."""
    frame = build_format(code, text)
    count = len(opaques)
    if count == 1:
        return frame % opaques[0]
    return frame * count % tuple(opaques)


def build_format(code: int, text: str) -> bytes:
    """A response frame with `text` as remark, and a place for the opaque."""
    escaped = msgspec.json.encode(text).replace(b"%", b"%%")
    header = b'{"code":%d,"flag":1,"language":"JAVA","opaque":%%11d,"remark":%b,"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        code,
        escaped,
        VERSION,
    )
    size = len(header) + OPAQUE - 4 - (escaped.count(b"%") // 2)
    return ((size + 4).to_bytes(4, "big") + size.to_bytes(4, "big")).replace(b"%", b"%%") + header
