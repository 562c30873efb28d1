"""Actions: what happens to a message over its limit. One record each, from which follow the words of rules, their checks and defaults, what
`sluice why` and the dashboard say, and which advice for client libraries is shown.

To add one, write its record here and its function in `gateway/pipeline/actions/`, in a file of its name. Then `make docs`.

Plain values, never compiled, as `limiter/protocols.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One action of a rule."""

    name: str
    situation: str  # how it shows at clients: a key of their advice (`cli/client_advice.py`)
    does: str  # a sentence for operators; {max_delay} is the rule's
    page: tuple[str, ...] = ()  # the dashboard's sentence, English and Chinese; {max} is the rule's. (): it has one for each protocol
    does_for: Mapping[str, str] = field(default_factory=dict)  # by protocol, where the sentence is another
    holds: bool = False  # a message waits its turn: a breaker would make a refusal of a short wait, so there is none by default
    ends_in_refusal: bool = True  # sooner or later, or where it cannot be had: then `reply` says how
    then: tuple[str, ...] = ()  # situations that may follow
    instead: str = ""  # words for people where it is the fallback, as in "its channel waits"; "": it is none
    deliveries: bool = True  # may stand in a rule of consumers, whose deliveries are only ever held
    settings: tuple[str, ...] = ()  # a rule's settings that no other action uses


ACTION_RECORDS: Final[Mapping[str, ActionRecord]] = {
    record.name: record
    for record in (
        ActionRecord("reject", "refused", "refused", settings=("fallback",)),
        ActionRecord(
            "delay", "held", "a message waits up to {max_delay}, then it is refused",
            page=("Messages over it wait up to {max}, then they are refused; where a publisher has no confirms, they wait for their turn.",
                  "超出部分最多等待 {max}，之后拒绝；发布方未启用 confirm 时则一直等到轮到。"),
            does_for={"amqp": "a message waits up to {max_delay}, then it is refused; on a channel without confirms it waits for its turn"},
            holds=True, then=("refused",), instead="its channel waits", settings=("max_delay",),
        ),
        ActionRecord(
            "block", "blocked", "the connection is not read until the message may pass",
            page=("The connection is not read until the message may pass.", "暂停读取连接，直到消息可以通过。"),
            holds=True,
        ),
        ActionRecord(
            "drop", "dropped", "the message is swallowed and counted",
            page=("Messages over it are swallowed and counted.", "超出部分被丢弃并计数。"),
            ends_in_refusal=False, instead="the message is swallowed", deliveries=False,
        ),
        ActionRecord(
            "close", "closed", "the connection is closed", does_for={"amqp": "the channel is closed"},
            page=("The channel or connection is closed.", "关闭信道或连接。"),
            ends_in_refusal=False, instead="its channel is closed", deliveries=False,
        ),
        ActionRecord(
            "spool", "spooled",
            "publishers go on sending; a message waits on the gateway's disk, and the broker's answer comes when it has passed",
            page=("Publishers go on; messages over it wait on the gateway’s disk, and their answers come later.",
                  "发布方可继续发送；超出部分暂存在网关磁盘上，应答稍后返回。"),
            holds=True, deliveries=False, settings=("spool_size", "max_age", "drop_expired"),
        ),
    )
}  # fmt: skip
ACTIONS: Final = tuple(ACTION_RECORDS)
FALLBACKS: Final = tuple(record.name for record in ACTION_RECORDS.values() if record.instead)
PATIENT: Final = tuple(record.name for record in ACTION_RECORDS.values() if record.holds)
