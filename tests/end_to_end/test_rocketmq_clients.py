"""RocketMQ's client libraries against every action: what the application sees when a limit bites, and what that costs on the wire.

What they are expected to see is the table in `support/clients/rocketmq_situations.py`. All libraries are asked at the same time, each its
own rows one after the other: waiting is most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from support.brokers.rocketmq import RocketMQ
from support.clients.answering import HungError
from support.clients.rocketmq_probes import LIBRARIES, Consumed, Failure, RocketmqProbe, Sent, word
from support.clients.rocketmq_situations import CUT_OFF, FREE_SENDS, OK, REFUSED, SITUATIONS, TEN_A_SECOND, End
from support.gateways import Gateway
from support.java import MavenUnreachableError
from support.models.rates import bounds
from support.processes import wait_until

pytestmark = pytest.mark.rocketmq

PASSING = [name for name, one in SITUATIONS.items() if not one.rule]
CELLS = [pytest.param(name, library, id=f"{name}-{library}") for name, one in SITUATIONS.items() for library in one.ends]
FLOOD_SENDS = 300
HELD_S = 1.9  # seconds from the first send to when the second passes, at least


def topic_of(name: str, library: str) -> str:
    return f"{name}__{word(library)}"


def group_of(library: str) -> str:
    return f"readers-{word(library)}"


@pytest.fixture(scope="module")
def topics(rocketmq: RocketMQ) -> list[str]:
    """All topics, created in one go: the broker then registers once. One queue each is enough."""
    names = [topic_of(name, library) for name, one in SITUATIONS.items() for library in one.ends]
    names += [topic_of(name, library) for name in ("free", "flood") for library in LIBRARIES]
    retries = [f"%RETRY%{group_of(library)}" for library in LIBRARIES]  # else clients learn of them up to 50 s late
    rocketmq.create_topics(*(f"{name}:1" for name in [*names, *retries]))
    return names


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, topics: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A rule for each situation; which one holds is said by the first word of the topic."""
    limited = {name: one.rule for name, one in SITUATIONS.items() if one.rule} | {"flood": {"limit": TEN_A_SECOND}}
    rules = [
        {"name": name, "match": {"protocol": "rocketmq", "topic": f"{name}__*"}, "per": "topic", **rule} for name, rule in limited.items()
    ]
    with Gateway(tmp_path_factory.mktemp("gateway"), rocketmq.listeners, rules) as running:
        yield running


Step = Callable[[RocketmqProbe], Any]


def steps(library: str) -> dict[str, Step]:
    """What a library is asked, in this order, by name."""
    asked: dict[str, Step] = {}
    for name, one in SITUATIONS.items():
        if library in one.ends:
            beside = {} if one.overtaken is None else {"free": topic_of("free", library), "free_count": FREE_SENDS}
            given_up = {"timeout": one.given_up_after_ms[library]} if library in one.given_up_after_ms else {}
            asked[name] = partial(send, topic_of(name, library), {**one.order, **beside, **given_up})
    asked["flood"] = partial(send, topic_of("flood", library), {"count": FLOOD_SENDS})
    for name in PASSING:
        if name in asked:
            asked[f"consume-{name}"] = partial(consume, topic_of(name, library), group_of(library))
    return asked


def send(topic: str, order: dict[str, Any], probe: RocketmqProbe) -> Sent:
    return probe.send(topic, **order)


def consume(topic: str, group: str, probe: RocketmqProbe) -> Consumed:
    return probe.consume(topic, group, expected=20)


def ask_all(probe: RocketmqProbe, asked: dict[str, Step], answers: dict[str, Future[Any]]) -> None:
    """Until one hangs: the others would, too, for five minutes each."""
    hung: HungError | None = None
    for name, step in asked.items():
        answer = answers[name]
        if not answer.set_running_or_notify_cancel():
            return
        if hung is not None:
            answer.set_exception(HungError(f"not asked for, since there was no answer before: {hung}"))
            continue
        try:
            answer.set_result(step(probe))
        except HungError as error:
            hung = error
            answer.set_exception(error)
        except BaseException as error:  # whoever asks for this answer is told
            answer.set_exception(error)


class Answers:
    """What comes of everything asked, by library and step; waits for what is not there yet."""

    def __init__(self) -> None:
        self.futures = {library: {name: Future[Any]() for name in steps(library)} for library in LIBRARIES}

    def __call__(self, library: str, step: str) -> Any:
        try:
            return self.futures[library][step].result()
        except MavenUnreachableError as error:
            pytest.skip(f"THE ROCKETMQ CLIENT {library} IS NOT TESTED, its jars cannot be fetched: {error}")

    def cancel(self) -> None:
        """Ask no more: a library that hangs in one step would be asked for all the others before the last test ends."""
        for asked in self.futures.values():
            for answer in asked.values():
                answer.cancel()

    def wait_for_all(self) -> None:
        wait(one for asked in self.futures.values() for one in asked.values())


@pytest.fixture(scope="module")
def answer(rocketmq: RocketMQ, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    with ExitStack() as running:
        at_work = running.enter_context(ThreadPoolExecutor(len(LIBRARIES)))
        answers = Answers()
        for library in LIBRARIES:
            probe = RocketmqProbe(library, tmp_path_factory.mktemp(word(library)), rocketmq.name_server)
            running.callback(probe.close)
            at_work.submit(ask_all, probe, steps(library), answers.futures[library])
        running.callback(answers.cancel)
        yield answers


def check_end(seen: Failure | None, end: End, topic: str) -> None:
    if end is OK:
        assert seen is None
        return
    assert seen is not None
    assert (seen.kind, seen.code) in {(end.kind, end.code), (end.kind, end.late_code or end.code)}
    assert end.text.replace("TOPIC", topic) in seen.text


@pytest.mark.parametrize(("name", "library"), CELLS)
def test_the_application_sees_what_the_table_says(name: str, library: str, gateway: Gateway, answer: Answers) -> None:
    situation, topic = SITUATIONS[name], topic_of(name, library)
    sent: Sent = answer(library, name)
    expected = situation.ends[library]
    assert len(sent.seen) == len(expected)
    for seen, end in zip(sorted(sent.seen, key=lambda one: one is not None), expected, strict=True):
        check_end(seen, end, topic)
    if situation.order.get("mode") != "async":
        assert [one is None for one in sent.seen] == [end is OK for end in expected]
    assert sent.elapsed_s >= situation.at_least_s

    each = situation.order.get("batch", 1)
    attempts = sum(end.attempts for end in expected) * each
    unseen = situation.order.get("mode") == "oneway" and bool(situation.rule)  # the application takes all for sent
    passed = 1 if unseen else expected.count(OK) * each
    counts = {"received": attempts, "forwarded": passed, situation.lost: attempts - passed}
    expected_fates = {fate: number for fate, number in counts.items() if number}

    def fates() -> dict[str, float]:
        return {fate: number for fate, number in gateway.messages_by_fate("rocketmq", topic).items() if number}

    if situation.order.get("mode") == "oneway":  # its application is done before the gateway is
        wait_until(lambda: fates() == expected_fates, within=30, what=f"{expected_fates}")
    assert fates() == expected_fates


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", [name for name, one in SITUATIONS.items() if one.overtaken is not None])
def test_a_limited_send_holds_up_other_topics_of_its_connection_only_where_the_client_is_not_read(
    name: str, library: str, answer: Answers
) -> None:
    sent: Sent = answer(library, name)
    assert sent.free == [None] * FREE_SENDS
    if SITUATIONS[name].overtaken:
        assert sent.free_before > 0, "held sends held others up"  # how many are over meanwhile says how busy the machine is
    else:
        assert sent.free_over_s[0] > HELD_S, "the connection was read meanwhile"


@pytest.mark.parametrize("library", LIBRARIES)
def test_closing_is_logged_with_the_rule_once_per_attempt(library: str, gateway: Gateway, answer: Answers) -> None:
    answer(library, "close")
    words = f"{topic_of('close', library)} is over its limit (rule close)"

    def closings() -> list[str]:
        return [line for line in gateway.log().splitlines() if words in line]

    # a client knows of its end before the gateway has said goodbye to the broker as well
    wait_until(lambda: len(closings()) >= CUT_OFF[library].attempts, within=15, what="a line for each attempt")
    assert len(closings()) == CUT_OFF[library].attempts
    assert all('"event": "connection_closed"' in line and '"cause": "limit"' in line for line in closings())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_flood_gets_what_the_limit_says_and_the_rest_is_refused(library: str, gateway: Gateway, answer: Answers) -> None:
    sent: Sent = answer(library, "flood")
    topic = topic_of("flood", library)
    passed = sent.seen.count(None)
    for failure in sent.seen:
        check_end(failure, OK if failure is None else REFUSED[library], topic)
    _, at_most = bounds(10, sent.elapsed_s, 10)
    assert 0 < passed <= at_most
    fates = gateway.messages_by_fate("rocketmq", topic)
    assert fates["forwarded"] == passed
    if REFUSED[library].attempts == 1:
        assert fates["refused"] == FLOOD_SENDS - passed > 0
    else:  # one of its attempts may pass, then there are fewer
        assert FLOOD_SENDS - passed < fates["refused"] <= REFUSED[library].attempts * FLOOD_SENDS
    assert fates["received"] == fates["forwarded"] + fates["refused"]


@pytest.mark.parametrize(
    ("name", "library"), [(name, library) for name in PASSING for library in SITUATIONS[name].ends]
)  # fmt: skip
def test_every_message_that_was_sent_is_consumed(name: str, library: str, answer: Answers) -> None:
    """Once at least: where queues are allocated anew, as on a busy machine, a consumer begins at the last offset that was kept."""
    consumed: Consumed = answer(library, f"consume-{name}")
    assert set(consumed.consumed) == {f"m-{number}" for number in range(20)}


def test_the_broker_has_what_the_gateway_says_it_forwarded(
    gateway: Gateway, rocketmq: RocketMQ, answer: Answers, topics: list[str]
) -> None:
    answer.wait_for_all()
    forwarded = {topic: gateway.messages_by_fate("rocketmq", topic)["forwarded"] for topic in topics}
    assert rocketmq.stored(*topics) == forwarded
    assert sum(forwarded.values()) > 500
