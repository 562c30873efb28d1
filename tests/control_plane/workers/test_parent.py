"""The parent without processes: a change waits for every worker, and for nobody who is over or does not answer."""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio
import trio.testing

from admin.ports import ReloadFailedError
from admin.store.store import Store
from common import log
from config import load
from control_plane.control_plane import REPORT_S
from control_plane.standalone import Standalone
from control_plane.takeover import Takeover, TakeoverError
from control_plane.workers.child import ANSWER_S, Child
from control_plane.workers.parent import SILENT_S, Parent
from gateway import systemd
from gateway.clock import now_ns
from gateway.data_plane import LogLevel
from gateway.listeners.listener import listen
from gateway.telemetry import exposition
from gateway.workers import rules as rule_sets
from gateway.workers.bucket_ids import announcement
from gateway.workers.limit_requests import CHANGE, VIEW
from gateway.workers.wire import (
    FOR_WORKERS,
    Begin,
    ChangeDone,
    LimitRequestDone,
    LimitRequested,
    NewRaise,
    NewRules,
    StateReport,
    Up,
    WireFrames,
)
from gateway.workers.worker import encode
from limiter.judge import Judge
from limiter.limits import Limit, LimitChange, Rate
from limiter.request import Request
from limiter.rules.hourly_raise import HourlyRaise
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import amqp_topic
from support.expositions import series
from support.idle_standalone import idle_parent, idle_standalone, written

CONFIGURATION = """\
gateway: {name: several, workers: 2, state_directory: state}
listeners: [{name: rabbit, protocol: amqp, bind: "127.0.0.1:0", upstream: "127.0.0.1:1"}]
rules: [{name: all, limit: {messages: 100/s}}]
access_log: off
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    with idle_parent(written(tmp_path, CONFIGURATION)) as made:
        yield made


def waiting(child: Child) -> list[int]:
    """Numbers of what a worker has to answer."""
    return list(child._waiting)


async def test_a_change_is_in_force_when_every_worker_has_answered(parent: Parent, autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    done = trio.Event()

    async def change() -> None:
        parent.enforce(parent.store.rules())
        await parent.in_force()
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await trio.sleep(0.1)
        steps = []
        for child in parent.children.values():
            steps.append(done.is_set())
            child.take(ChangeDone(waiting(child)[0]))
            await trio.sleep(0.1)
        steps.append(done.is_set())
    assert steps == [False, False, True]


async def test_a_reload_that_moves_a_broker_moves_it_for_the_parent_which_asks_for_backlogs(parent: Parent, tmp_path: Path) -> None:
    written(tmp_path, CONFIGURATION.replace("127.0.0.1:1", "127.0.0.1:2"))
    await parent.reload()
    assert [upstream.address for upstream in parent.listening["rabbit"].upstreams.members] == [("127.0.0.1", 2)]


async def test_reloads_that_change_no_rule_leave_nothing_to_wait_for_behind(parent: Parent) -> None:
    for _ in range(3):
        await parent.reload()
        assert [len(child.unanswered) for child in parent.children.values()] == [1, 1]
        for child in parent.children.values():
            child.take(ChangeDone(waiting(child)[-1]))


async def test_a_reload_that_a_worker_could_not_put_in_force_has_failed(parent: Parent) -> None:
    """Until November 2026 it was answered, counted and shown as good: that worker's own line in the log was all there was."""
    told = []
    for fault in ("a.key cannot be used: Too many open files", ""):
        await parent.reload()
        for worker, child in parent.children.items():
            child.take(ChangeDone(waiting(child)[-1], fault if worker == 2 else ""))
        try:
            await parent.reloaded_everywhere()
        except ReloadFailedError as error:
            told += [*error.errors, error.holds]
        told.append(str(parent.status().config_last_reload_successful))
    why = "worker 2 goes on with what it had before, the others have the new: a.key cannot be used: Too many open files; reload again"
    assert told == [why, "all other workers have the new one", "False", "True"]


async def test_a_setting_that_needs_a_restart_is_reported_until_the_file_agrees_again(parent: Parent, tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    told = []
    for text in (CONFIGURATION.replace("workers: 2", "workers: 3"), CONFIGURATION):
        file.write_text(text)
        await parent.reload()
        told.append(parent.status().needs_restart)
    assert told == [["gateway.workers: 2 -> 3"], []]


async def test_a_worker_that_does_not_answer_is_killed_and_not_waited_for(
    parent: Parent, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    del autojump_clock
    killed = []

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))
        parent.children[2].over.set()

    monkeypatch.setattr("control_plane.workers.child.os.kill", kill)
    parent.children[2].pid = 4712
    began = trio.current_time()
    parent.enforce(parent.store.rules())
    parent.children[1].take(ChangeDone(waiting(parent.children[1])[0]))
    await parent.in_force()
    assert (killed, trio.current_time() - began) == ([(4712, 9)], ANSWER_S)


async def test_a_worker_that_cannot_be_started_at_the_moment_is_tried_again_and_the_others_go_on(
    parent: Parent, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where there was no process, memory or descriptor for it the whole gateway ended, until November 2026."""
    del autojump_clock
    no_process = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    faults: Iterator[object] = iter([None, no_process, RuntimeError("can't start new thread")])
    started_again = trio.Event()

    async def wait() -> int:
        return -9

    async def open_process(*_: object, **__: object) -> object:
        fault = next(faults, started_again)
        if isinstance(fault, Exception):
            raise fault
        if fault is started_again:
            started_again.set()
            await trio.sleep_forever()
        return SimpleNamespace(pid=4711, returncode=-9, wait=wait)

    monkeypatch.setattr("trio.lowlevel.open_process", open_process)
    parent.children[1].ready.set()
    async with trio.open_nursery() as nursery:
        await nursery.start(parent._attend, 1)
        await started_again.wait()
        nursery.cancel_scope.cancel()
    ended = [cast(Any, record).fields for record in caplog.records if record.getMessage() == "worker_ended"]
    assert [(each["how"], each["pid"]) for each in ended] == [
        ("signal 9", 4711),
        ("cannot be started: [Errno 11] Resource temporarily unavailable", 0),
        ("cannot be started: can't start new thread", 0),
    ]
    assert parent.replaced == 1


async def test_a_spool_that_hangs_holds_up_no_replacement(
    parent: Parent, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the line of log about the worker that has ended: both came when the disk did, until November 2026."""
    del autojump_clock
    places: list[Path] = []
    started_again = trio.Event()

    async def wait() -> int:
        return -9

    async def open_process(*_: object, **__: object) -> object:
        if parent.replaced:
            started_again.set()
            await trio.sleep_forever()
        return SimpleNamespace(pid=4711, returncode=-9, wait=wait)

    async def clear(directory: Path, *, tells: bool) -> None:
        del tells
        places.append(directory)
        await trio.sleep(3600)

    monkeypatch.setattr("trio.lowlevel.open_process", open_process)
    monkeypatch.setattr("control_plane.workers.parent.delete_left_behind", clear)
    parent.children[1].ready.set()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parent._delete_left_behind)
        await nursery.start(parent._attend, 1)
        await started_again.wait()
        nursery.cancel_scope.cancel()
    assert places == [parent.settings.gateway.state_directory / "spool"]
    assert trio.current_time() - began < 3600


async def test_a_console_does_not_wait_behind_another_workers_that_changes_a_limit(parent: Parent) -> None:
    """The change waits until every worker has it; until November 2026 the consoles of all workers did, in one queue."""
    first, second = parent.children.values()
    async with trio.open_nursery() as nursery:
        for place in parent.children:
            nursery.start_soon(parent._do_limit_requests, place)
        parent.store.enforce = parent.enforce
        parent._take_limit_request(first, LimitRequested(1, CHANGE, ["UPDATE", "10.0.0.7", "", ""], b"orders", 5.0))
        with trio.fail_after(ANSWER_S):
            while not waiting(first):
                await trio.sleep(0.01)
            parent._take_limit_request(second, LimitRequested(1, VIEW, []))
            answers: list[LimitRequestDone] = []
            while not answers:
                await trio.sleep(0.01)
                answers = [each for each in sent(second) if isinstance(each, LimitRequestDone)]
        assert waiting(first)
        nursery.cancel_scope.cancel()
    assert b"orders" in answers[0].body


def test_which_build_runs_is_told_once(parent: Parent, tmp_path: Path) -> None:
    """Until November 2026 by each worker."""
    (tmp_path / "one").mkdir()
    with idle_standalone(tmp_path / "one") as standalone:
        for child in parent.children.values():
            child.take(StateReport(1, {"metrics": encode("".join(standalone.traffic_lines()))}, []))
    ((labels, value),) = series("".join(parent.metrics({})))["sluice_build_info"]
    assert (set(labels), value) == ({"version", "build", "python"}, 1)


def test_a_rate_that_follows_a_backlog_is_set_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process the data plane's judge is the control plane's."""
    with idle_standalone(tmp_path) as standalone:
        told: list[Rate] = []
        judge = SimpleNamespace(set_rate=lambda identity, rate, now: told.append(rate))
        monkeypatch.setattr(standalone, "judge", judge)
        monkeypatch.setattr(standalone.gateway, "judge", judge)
        standalone.follow(("topic", "", "amqp", "orders"), Rate(7))
    assert told == [Rate(7)]


def test_a_worker_that_is_silent_is_asked_for_its_stacks_and_then_killed(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr("control_plane.workers.child.os.kill", lambda pid, number: killed.append((pid, number)))
    for child in parent.children.values():
        child.pid = 4710 + child.worker
        child.last_heard = 100.0
    parent.children[1].last_heard = 110.0
    parent._kill_silent(100.0 + SILENT_S + 1)
    parent._kill_silent(100.0 + SILENT_S + 2)
    assert killed == [(4712, signal.SIGPROF), (4712, signal.SIGKILL)]


def test_a_parent_that_was_stopped_itself_blames_no_worker(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("control_plane.workers.child.os.kill", lambda pid, number: killed.append(number))
    for child in parent.children.values():
        child.pid = 4711
        child.last_heard = 100.0
    parent._excuse(3600.0, 3702.0)
    parent._kill_silent(3702.0)
    assert killed == []
    assert [child.last_heard for child in parent.children.values()] == [3700.0, 3700.0]


async def test_gathering_views_is_bounded_in_time(parent: Parent, autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    began = trio.current_time()
    await parent.gather(["topics"])
    assert trio.current_time() - began == REPORT_S


async def test_topics_of_all_workers_are_found_in_order_as_long_as_one_of_them_shows_them(
    parent: Parent, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock

    def shows(worker: int, names: str) -> None:
        views = [{"protocol": "amqp", "topic": name, "operation": "produce", "group": None, "idle_seconds": 0.0} for name in names]
        parent.children[worker].take(StateReport(1, {"topics": msgspec.msgpack.encode(views)}, []))

    async def found(protocol: str | None = None, text: str = "") -> str:
        return "".join(place[1] for run in await parent.topic_places(protocol, text) for place in run)

    shows(1, "ca")
    shows(2, "dc")
    assert [await found(), await found("amqp", "C"), await found("rocketmq")] == ["acd", "c", ""]
    shows(1, "eb")
    async with trio.open_nursery() as nursery:  # two at once, of which each brings the list up to date
        for _ in range(2):
            nursery.start_soon(found)
    assert await found() == "bcde"


async def test_topics_of_all_workers_come_in_the_order_asked_for(parent: Parent, autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    for worker, names in ((1, "abc"), (2, "dcb")):
        views: list[dict[str, Any]] = [
            {"protocol": "amqp", "topic": name, "operation": "produce", "group": None, "received_per_second": 10.0 * worker,
             "idle_seconds": 0.0, "clients": []}
            for name in names
        ]  # fmt: skip
        parent.children[worker].take(StateReport(1, {"topics": msgspec.msgpack.encode(views)}, []))
    numbers = {place[1]: number for place, number in (await parent.topic_numbers("received_per_second")).items()}
    asked = [("amqp", name, "produce") for name in "dbxa"]
    assert numbers == {"a": 10.0, "b": 30.0, "c": 30.0, "d": 20.0}
    assert [(item.topic, item.received_per_second) for item in await parent.topics(asked)] == [("d", 20.0), ("b", 30.0), ("a", 10.0)]


async def test_an_answer_that_no_view_is_in_waits_for_no_worker(parent: Parent, autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    began = trio.current_time()
    await parent.gather(None)
    assert trio.current_time() == began


def test_counters_do_not_fall_when_a_worker_is_over(parent: Parent) -> None:
    text = encode("".join(exposition.single("sluice_limiter_rejections_total", 3)))
    child = parent.children[1]
    child.take(StateReport(1, {"metrics": text}, []))
    before = "".join(parent.metrics({})).count("rejections_total 3")
    child.over.set()
    child.retire(parent.retired_topics, parent.retired_families, parent.named_series)
    assert (before, "".join(parent.metrics({})).count("rejections_total 3")) == (1, 1)


def test_what_ended_workers_counted_for_rules_that_are_gone_has_no_series(parent: Parent) -> None:
    """Until November 2026 each candidate and each cap had its series for good, once a worker had ended while it was in force."""
    counted = ("sluice_candidate_messages_total", "sluice_cap_tightened_total")
    for number in range(5):
        name = f"rule-{number}"
        candidate = LimitChange(messages=Rate(3))
        parent.judge.replace(RuleSet((Rule(name, Match(protocol="amqp"), limit=Limit(messages=Rate(5)), candidate=candidate),)))
        for child in parent.children.values():
            text = exposition.families({
                "sluice_rule_messages_total": [((name, "passed"), 7)],
                counted[0]: [((name, "refused"), 4)],
                counted[1]: [(("rabbit", name, "blocked"), 1)],
            })  # fmt: skip
            child.take(StateReport(1, {"metrics": encode("".join(text))}, []))
        parent.children[1].retire(parent.retired_topics, parent.retired_families, parent.named_series)
        found = series("".join(parent.metrics({})))
        assert [{labels["rule"] for labels, _ in found[metric]} for metric in counted] == [{name}, {name}]


def test_a_changed_candidate_counts_anew_also_what_ended_workers_had_counted(parent: Parent) -> None:
    """They went on adding what they had counted for the candidate before until November 2026."""
    rule = Rule("all", Match(protocol="amqp"), limit=Limit(messages=Rate(5)), candidate=LimitChange(messages=Rate(3)))
    parent.judge.replace(RuleSet((rule,)), now_ns())
    child = parent.children[1]
    worker = Judge(RuleSet((rule,)))
    key = worker.key(worker.origin("amqp", "rabbit", "10.0.0.7", None), b"t", amqp_topic(b"/", b"", b"t"))
    worker.decide([Request(key, 7, 1, 10)], now_ns())
    child.take(announcement(1, key.buckets[0]))
    told = encode("".join(exposition.family("sluice_candidate_messages_total", [(("all", "admitted"), 3), (("all", "refused"), 4)])))
    child.take(StateReport(1, {"metrics": told}, [], [(1, 3, 4, now_ns(), {"10.0.0.7": 4})]))
    child.over.set()
    child.retire(parent.retired_topics, parent.retired_families, parent.named_series)

    def shown() -> dict[str, float]:
        return {labels["result"]: value for labels, value in series("".join(parent.metrics({})))["sluice_candidate_messages_total"]}

    before = shown()
    parent.judge.replace(RuleSet((replace(rule, candidate=LimitChange(messages=Rate(2))),)), now_ns())
    assert (before, shown()) == ({"admitted": 3, "refused": 4}, {"admitted": 0, "refused": 0})


def test_a_worker_that_does_not_serve_is_named(parent: Parent) -> None:
    parent.children[2].over.set()
    assert parent.explain_unready() == ["worker 2 is not running", "worker 1: has not reported its state yet"]


def test_one_address_has_a_socket_for_each_worker_and_nobody_elses(parent: Parent) -> None:
    parent._open()
    try:
        sockets = parent._sockets["rabbit"]
        assert len({sock.getsockname() for sock in sockets}) == 1
        assert len({sock.fileno() for sock in sockets}) == 2
        assert parent._socket_numbers(1) != parent._socket_numbers(2)
        with pytest.raises(OSError, match=r"cannot bind .* `ss -ltnp` shows who has it"):
            parent.listening["rabbit"].__class__(
                parent.listening["rabbit"].config, sockets[0].getsockname(), parent.listening["rabbit"].upstreams
            ).open()
    finally:
        for sock in parent._sockets["rabbit"]:
            sock.close()


@pytest.mark.parametrize("address", [("192.0.2.1", 1), ("2001:db8::1", 1, 0, 0)], ids=["IPv4", "IPv6"])
def test_an_address_that_cannot_be_bound_is_named_with_a_remedy(address: tuple[Any, ...]) -> None:
    with pytest.raises(OSError, match=rf"listener rabbit: cannot bind {address[0]}:1: .*no interface of this machine has that address"):
        listen(address, "rabbit", shared=True)


def sent(child: Child) -> list[Any]:
    """The messages that a worker is still to be sent, which are then gone."""
    frames, child.outbox._frames = child.outbox._frames, []
    return [FOR_WORKERS.decode(body) for body in WireFrames().feed(b"".join(frames))]


async def test_the_demand_of_an_hour_is_that_of_all_workers_and_the_raise_goes_to_them_alone(
    parent: Parent, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock

    async def answer() -> None:
        await trio.sleep(0.1)
        for child, total in zip(parent.children.values(), (3600, 7200), strict=True):
            (query,) = sent(child)
            assert query.views == ["demand"]
            view = msgspec.msgpack.encode([("amqp", "%2F/events/order", total, 0)])
            child.take(StateReport(query.number, {"demand": view}, []))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        found = await parent._demand()
    assert found == {"1.0": [("amqp", "%2F/events/order", 3600, 0)], "2.0": [("amqp", "%2F/events/order", 7200, 0)]}
    for child in parent.children.values():
        sent(child)
    parent.store.enforce = parent.enforce
    parent.store.raise_quotas(HourlyRaise({("amqp", "%2F/events/order"): (3.0, 0.0)}, 4.0), 1)
    parent.store.replace_file_rules(parent.settings.rules[:0])
    parent.enforce(parent.store.rules())
    for child in parent.children.values():
        raised, changed = sent(child)
        assert (type(raised), type(changed)) == (NewRaise, NewRules)
        assert raised.hourly == (4.0, [("amqp", "%2F/events/order", 3.0, 0.0)], [])
        assert rule_sets.decode(changed.rules).hourly is not None, "a worker that begins later has it too"


async def test_a_worker_that_does_not_tell_its_demand_is_known_to_be_there(parent: Parent, autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    assert await parent._demand() == {"1.0": None, "2.0": None}


# ---- in the place of a running gateway -----------------------------------------------------------------------------------


@pytest.fixture
def taking_over(tmp_path: Path) -> Iterator[tuple[Parent, socket.socket]]:
    """A parent that is to take over, its workers not up yet; and the running gateway's end of the socket between the two."""
    file = tmp_path / "sluice.yaml"
    file.write_text(CONFIGURATION)
    settings = load(file, {})
    store = Store.open(settings.gateway.state_directory, settings.rules)
    handler = log.QueueHandler(StringIO(), "json", {})
    own, running = socket.socketpair()
    running.setblocking(False)
    with running, own:
        made = Parent(settings, store, handler, systemd.Inheritance([]), Takeover(own, tmp_path / "takeover.sock", systemd.Inheritance([])))
        for worker in (1, 2):
            made.children[worker] = made._make_child(worker, 0)
        yield made, running
    store.close()
    handler.close()


async def take_over(parent: Parent) -> None:
    assert parent._takeover is not None
    await parent._take_over(parent._takeover)


def asked_for(running: socket.socket) -> bytes:
    """What the next process has sent to the running one."""
    try:
        return running.recv(4096)
    except BlockingIOError:
        return b""


async def test_nothing_is_taken_over_while_a_worker_does_not_start(
    taking_over: tuple[Parent, socket.socket], autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    parent, running = taking_over
    parent.children[1].take(Up())
    with pytest.raises(TakeoverError, match="not all workers have started within 45 s; the running gateway goes on"):
        await take_over(parent)
    assert asked_for(running) == b""


async def test_nothing_is_taken_over_by_a_process_that_is_told_to_stop(taking_over: tuple[Parent, socket.socket]) -> None:
    parent, running = taking_over
    for child in parent.children.values():
        child.take(Up())
    parent.drain()
    with pytest.raises(TakeoverError, match="told to stop before it had taken over"):
        await take_over(parent)
    assert asked_for(running) == b""


async def test_nothing_is_taken_over_when_a_worker_has_ended(taking_over: tuple[Parent, socket.socket]) -> None:
    parent, running = taking_over
    parent.children[1].take(Up())
    parent.children[2].over.set()
    await take_over(parent)
    assert asked_for(running) == b""
    assert not parent._may_begin.is_set()


def test_what_to_serve_is_the_first_that_a_worker_hears(taking_over: tuple[Parent, socket.socket]) -> None:
    """A change amid the takeover, or amid a replacement, is in what it begins with."""
    parent, _ = taking_over
    child = parent.children[1]
    parent.set_log_level("debug")
    parent.enforce(parent.store.rules())
    assert sent(child) == []
    parent._tell_to_begin(child)
    parent.set_log_level("info")
    begin, level, changed = sent(child)
    assert (type(begin), level, changed) == (Begin, LogLevel("debug"), LogLevel("info"))


def test_what_one_process_and_a_parent_have_alike_stands_in_the_control_plane() -> None:
    own = [{name for name, value in vars(each).items() if callable(value) and not name.startswith("__")} for each in (Standalone, Parent)]
    assert own[0] & own[1] == set()
    assert all(own)
