"""What RocketMQ's client libraries make of every action: the table of `docs/rocketmq.md`, and of `docs/design/rocketmq.md` 3.1, executable.

A row per situation, and per library how a send ends and how often it was tried on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.clients.rocketmq_probes import LIBRARIES

ONE_A_MINUTE = {"messages": "1/min", "burst": {"messages": 1}}  # the first passes, the second is over the limit
TEN_A_MINUTE = {"messages": "10/min", "burst": {"messages": 10}}
ONE_IN_2_S = {"messages": "30/min", "burst": {"messages": 1}}  # the second has to wait 2 s
TEN_A_SECOND = {"messages": "10/s", "burst": {"messages": 10}}
GIVEN_UP_AFTER_MS = 1500  # at the libraries' own 3 s a row would take 12 s
THREE_ATTEMPTS_MS = 20_000  # for which a busy machine has time as well

FREE_SENDS = 5
BATCH = 10


@dataclass(frozen=True)
class End:
    """How a send ends: what the application is told (`TOPIC` stands for the topic), and after how many requests on the wire."""

    kind: str
    code: int | None
    text: str
    attempts: int = 1
    late_code: int | None = None  # where the last request was written just as its connection ended: the client waits for its time-out


OK = End("", 0, "")

JAVA_5, JAVA_4 = "java-5", "java-4"
FLOW_CONTROL = End("MQBrokerException", 215, "CODE: 215  DESC: [RateLimit] for TOPIC need wait:")
NO_ROUTE = End("ProducerSendSyncFailed", None, "No route info of this topic: TOPIC,error:-1", attempts=3)  # whatever the reason
REFUSED = {
    JAVA_5: FLOW_CONTROL,
    JAVA_4: FLOW_CONTROL,
    "cpp": NO_ROUTE,
    "go": End("*errors.errorString", None, "CODE: 215, DESC: [RateLimit] for TOPIC need wait:"),
    "node": End("MQClientException", 215, "[RateLimit] for TOPIC need wait:"),
}
REFUSED_ASYNC = REFUSED | {"cpp": End("ProducerSendAsyncFailed", None, "")}  # not a word why
REFUSED_IN_ORDER = {
    JAVA_5: FLOW_CONTROL,
    JAVA_4: FLOW_CONTROL,
    "cpp": End("ProducerSendOrderlyFailed", None, "No route info of this topic, ", attempts=2),
}
BUSY = {
    JAVA_5: End("MQClientException", 2, "Send [3] times, still failed, cost [", attempts=3),
    JAVA_4: End("MQBrokerException", 2, "CODE: 2  DESC: [RateLimit] for TOPIC need wait:"),
    "cpp": NO_ROUTE,
    "go": End("*errors.errorString", None, "CODE: 2, DESC: [RateLimit] for TOPIC need wait:"),
    "node": End("MQClientException", 2, "[RateLimit] for TOPIC need wait:"),
}
UNANSWERED = {
    JAVA_5: End("RemotingTooMuchRequestException", -1, "sendDefaultImpl call timeout"),
    JAVA_4: End("RemotingTooMuchRequestException", -1, "sendDefaultImpl call timeout"),
    "cpp": NO_ROUTE,
    "go": End("*errors.errorString", None, "request timeout", attempts=4),  # the last three without waiting: the context has ended
    "node": End("Error", None, "Send [4] times, still failed, cost ["),
}
CUT_OFF = UNANSWERED | {  # the others wait for an answer on a connection that is no more
    JAVA_5: End("MQClientException", -1, "Send [3] times, still failed, cost [", attempts=3, late_code=10002),
    "go": End("*net.OpError", None, "dial tcp "),  # of the second attempt, when the context had ended
}


def ends(ok: int, failed: dict[str, End] | None = None, count: int = 0) -> dict[str, list[End]]:
    """Per library: the first `ok` sends succeed, then `count` fail."""
    failed = failed or dict.fromkeys(LIBRARIES, OK)
    return {library: [OK] * ok + [end] * count for library, end in failed.items()}


def only(table: dict[str, list[End]], *libraries: str) -> dict[str, list[End]]:
    return {library: table[library] for library in libraries}


WITH_ONE_WAY = (JAVA_5, JAVA_4, "cpp", "go")
WITH_BATCHES = (JAVA_5, JAVA_4, "go")  # the C++ core's batch of ten is one message, to the broker as well
FLAGGED = (JAVA_5, JAVA_4)  # one-way requests that say so; the other two leave the flag out, so they are answered


@dataclass(frozen=True)
class Situation:
    """A rule, the sends under it, and how each ends per library."""

    rule: dict[str, Any]
    order: dict[str, Any]
    ends: dict[str, list[End]]
    lost: str = "refused"  # how what was not forwarded is counted
    overtaken: bool | None = None  # whether sends to another topic of the connection pass while these are held
    at_least_s: float = 0.0  # what the waiting takes
    given_up_after_ms: Mapping[str, int] = field(default_factory=dict)  # by library: the last one may wait for an answer that never comes


SITUATIONS = {
    "sync": Situation({}, {"count": 20}, ends(20)),
    "async": Situation({}, {"count": 20, "mode": "async"}, ends(20)),
    "oneway": Situation({}, {"count": 20, "mode": "oneway"}, only(ends(20), *WITH_ONE_WAY)),
    "batch": Situation({}, {"count": 2, "mode": "batch", "batch": BATCH}, only(ends(2), *WITH_BATCHES)),
    "reject": Situation({"limit": ONE_A_MINUTE}, {"count": 3}, ends(1, REFUSED, 2)),
    "reject-async": Situation({"limit": ONE_A_MINUTE}, {"count": 3, "mode": "async"}, ends(1, REFUSED_ASYNC, 2)),
    "reject-ordered": Situation({"limit": ONE_A_MINUTE}, {"count": 2, "mode": "ordered"}, ends(1, REFUSED_IN_ORDER, 1)),
    "reject-oneway-flagged": Situation(
        {"limit": ONE_A_MINUTE}, {"count": 3, "mode": "oneway"}, only(ends(3), *FLAGGED), lost="dropped"
    ),
    "reject-oneway-unflagged": Situation({"limit": ONE_A_MINUTE}, {"count": 3, "mode": "oneway"}, only(ends(3), "cpp", "go")),
    "reject-batch": Situation(
        {"limit": TEN_A_MINUTE}, {"count": 2, "mode": "batch", "batch": BATCH}, only(ends(1, REFUSED, 1), *WITH_BATCHES)
    ),
    "reject-busy": Situation({"limit": ONE_A_MINUTE, "reply": "system_busy"}, {"count": 3}, ends(1, BUSY, 2)),
    "delay": Situation(
        {"limit": ONE_IN_2_S, "action": "delay", "max_delay": "2.4s"}, {"count": 3}, ends(3), overtaken=True, at_least_s=3.9
    ),
    "delay-too-long": Situation(
        {"limit": ONE_A_MINUTE, "action": "delay", "max_delay": "0.3s"}, {"count": 2}, ends(1, REFUSED, 1), at_least_s=0.3
    ),
    "block": Situation({"limit": ONE_IN_2_S, "action": "block"}, {"count": 3}, ends(3), overtaken=False, at_least_s=3.9),
    "block-too-long": Situation({"limit": ONE_A_MINUTE, "action": "block"}, {"count": 2}, ends(1, REFUSED, 1), at_least_s=2.4),
    "drop": Situation(
        {"limit": ONE_A_MINUTE, "action": "drop"}, {"count": 2}, ends(1, UNANSWERED, 1), lost="dropped",
        given_up_after_ms=dict.fromkeys(LIBRARIES, GIVEN_UP_AFTER_MS),
    ),
    "drop-oneway": Situation(
        {"limit": ONE_A_MINUTE, "action": "drop"}, {"count": 3, "mode": "oneway"}, only(ends(3), *WITH_ONE_WAY), lost="dropped"
    ),
    "close": Situation(
        {"limit": ONE_A_MINUTE, "action": "close"}, {"count": 2}, ends(1, CUT_OFF, 1),
        given_up_after_ms=dict.fromkeys(LIBRARIES, GIVEN_UP_AFTER_MS) | {JAVA_5: THREE_ATTEMPTS_MS},
    ),
}  # fmt: skip
