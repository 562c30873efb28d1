"""What a gateway does beside carrying messages, and what a fault in one part of it does not do to others. A whole gateway, in process."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from admin.store.changes import Author
from admin.store.state import StoredOverride, format_time
from common.supervised_loop import SupervisedLoop
from control_plane.standalone import Standalone
from gateway.app import SLICE_SESSIONS, Gateway
from gateway.clock import now_ns
from gateway.lifecycle.drain import release_held
from gateway.lifecycle.periodic_tasks import (
    every_tick,
    expire_changes,
    keep_fill_levels,
    probe_broker,
    probe_brokers,
    probe_lag,
    tick,
    watch_lag,
)  # fmt: skip
from gateway.lifecycle.scheduling import TICK_S, tick_time, wait_for_tick
from gateway.listeners.upstream import ANSWER_S, PROBE_EVERY_S, Upstream
from gateway.listeners.upstreams import Upstreams
from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.pipeline import Batch
from gateway.session.states import OPEN
from gateway.transport.channel import Channel
from gateway.transport.proxy_protocol import Ends
from gateway.waiting.stage import Wait
from limiter.credit import Credit
from limiter.judge import Judge
from limiter.request import Request
from limiter.rules.rule_set import RuleSet
from limiter.topics import rocketmq_topic
from support.admin.admin_client import Clock
from support.idle_standalone import idle
from support.processes import HANG_S
from support.rocketmq import frames as rocketmq
from support.tls import Authority
from support.wires.conversations import Talk, rule

ORDERS = "limits/rocketmq/orders"
OPERATOR = Author("alice", "operator")
CONFIGURATION = """
gateway: {{state_directory: state}}
access_log: off
limiter: {{threads: 0}}
listeners:
  - {{name: one, protocol: rocketmq, bind: 127.0.0.1:0, upstream: "{upstream}"{more}}}
  - {{name: two, protocol: rocketmq, bind: 127.0.0.1:0, upstream: 127.0.0.1:2}}
rules:
  - {{name: all, match: {{protocol: rocketmq}}, limit: {{messages: 1000/s}}, breaker: {{open_for: 0s}}}}
"""


def configure(directory: Path, upstream: str = "127.0.0.1:1", more: str = "") -> Path:
    file = directory / "sluice.yaml"
    file.write_text(CONFIGURATION.format(upstream=upstream, more=more))
    return file


@contextlib.contextmanager
def standalone_of(file: Path, clock: Clock | None = None) -> Iterator[Standalone]:
    """A gateway that is not running: the test starts those of its tasks it is about."""
    with idle(file, clock or time.time) as standalone:
        listeners = standalone.gateway.listening.values()
        for listener in listeners:
            listener.open()
        try:
            yield standalone
        finally:
            for listener in listeners:
                listener.close()


@contextlib.asynccontextmanager
async def task(function: Callable[..., Awaitable[None]], *about: object) -> Any:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(function, *about)
        yield
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool], what: str, within: float = 60.0) -> None:
    with trio.move_on_after(within):
        while not condition():
            await trio.sleep(0.01)
        return
    raise AssertionError(f"not within {within:g} s: {what}")


def passes(standalone: Standalone, count: int = 1) -> int:
    """How many of `count` messages of topic `orders` pass now."""
    judge = standalone.judge
    origin = judge.origin("rocketmq", "one", "10.0.0.7", None)
    request = Request(judge.key(origin, b"orders", rocketmq_topic(b"orders")), count, 1, 10)
    judge.decide([request], now_ns())
    return request.passed


def failures(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, object]]:
    return [cast(Any, record).fields for record in caplog.records if record.getMessage() == event]


# ---- expiry ------------------------------------------------------------------------------------------------------------


async def limited_to_nothing(standalone: Standalone, ends: float) -> None:
    change = StoredOverride(messages="0/s", expires=format_time(ends))
    await standalone.store.change(lambda: ([(ORDERS, change)], None), OPERATOR, "test")


async def test_a_live_change_ceases_to_hold_for_messages_when_it_expires(tmp_path: Path) -> None:
    clock = Clock()
    with standalone_of(configure(tmp_path), clock) as standalone:
        await limited_to_nothing(standalone, clock.now + 60)
        assert passes(standalone) == 0
        async with task(expire_changes, standalone.store):
            clock.now += 59
            await trio.sleep(0.3)
            assert passes(standalone) == 0
            clock.now += 1
            await until(lambda: standalone.store.revision == 2, "it is written down")
        await until(lambda: passes(standalone) == 1, "messages pass")
        assert standalone.store.state.keys == {}
        (entry,) = await standalone.store.entries([2])
        assert (entry.by, entry.reason, [change.target for change in entry.changes]) == ("sluice", "expired", [ORDERS])
        before = standalone.store.rules()
        await standalone.store.remove_expired()
        assert (standalone.store.revision, standalone.store.rules()) == (2, before), "nothing is left to expire"


async def test_the_limiter_and_any_reader_of_the_rules_see_the_same_set(tmp_path: Path) -> None:
    clock = Clock()
    with standalone_of(configure(tmp_path), clock) as standalone:
        await limited_to_nothing(standalone, clock.now + 60)
        clock.now += 60
        assert standalone.store.rules() is standalone.judge.rules
        assert standalone.store.next_expiry is None


async def test_an_expired_change_does_not_hold_although_it_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with standalone_of(configure(tmp_path), clock) as standalone:
        await limited_to_nothing(standalone, clock.now + 60)
        assert passes(standalone) == 0
        state = standalone.store.folder / "state.json"
        kept = state.read_bytes()
        state.unlink()
        state.mkdir()  # a rename over a directory fails, for root too
        try:
            async with task(expire_changes, standalone.store):
                clock.now += 60
                await until(lambda: bool(failures(caplog, "state_write_failed")), "it is said")
                await until(lambda: passes(standalone) == 1, "messages pass")
                await trio.sleep(0.6)
            assert (standalone.store.write_failures, standalone.store.revision) == (1, 1), "tried again in a minute, not in every round"
        finally:
            state.rmdir()
            state.write_bytes(kept)


async def test_nothing_that_expires_brings_limits_back_while_held_messages_are_released(tmp_path: Path) -> None:
    clock = Clock()
    with standalone_of(configure(tmp_path), clock) as standalone:
        await limited_to_nothing(standalone, clock.now + 60)
        standalone.gateway.sweeper.sessions[1] = cast(Any, Holding())
        try:
            await release_held(standalone.gateway)
        finally:
            standalone.gateway.sweeper.sessions.clear()
        clock.now += 60
        standalone.store.lapse()
        assert passes(standalone, 5000) == 5000


class HangingLevels:
    """Fill levels whose disk hangs."""

    def __init__(self) -> None:
        self.hangs = threading.Event()

    def freeze(self) -> None:
        self.hangs.wait(HANG_S)


async def test_what_is_held_is_released_though_the_fill_levels_cannot_be_written(tmp_path: Path) -> None:
    with standalone_of(configure(tmp_path), Clock()) as standalone:
        gateway, kept = standalone.gateway, standalone.gateway.fill_levels
        hanging = HangingLevels()
        gateway.fill_levels = cast(Any, hanging)
        gateway.sweeper.sessions[1] = cast(Any, Holding())
        try:
            await release_held(gateway)
            assert gateway.limits_lifted
            assert not hanging.hangs.is_set()
        finally:
            hanging.hangs.set()
            gateway.sweeper.sessions.clear()
            gateway.fill_levels = kept


class Holding:
    """What `release_held` looks at of a session that holds a message."""

    class conversation:  # noqa: N801
        budget = HeldBudget()
        budget.held_messages = 1


# ---- readiness ---------------------------------------------------------------------------------------------------------


class FakeUpstream(Upstream):
    """A broker that does not answer, or answers at once."""

    def __init__(self, name: str, *, answers: bool) -> None:
        super().__init__(name, ("192.0.2.1", 5672))
        self.answers = answers
        self.dialled = 0

    async def _open(self, ends: Ends | None) -> Channel:
        self.dialled += 1
        if not self.answers:
            await trio.sleep(5)
            raise TimeoutError(errno.ETIMEDOUT, "no connection within 5 s")
        return cast("Channel", Closable())


class Closable:
    """As much of a channel as a probe uses."""

    def close(self) -> None:
        pass


async def test_a_gateway_is_ready_when_every_broker_was_reached_and_a_silent_one_delays_no_other(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with standalone_of(configure(tmp_path)) as standalone:
        one, two = FakeUpstream("one", answers=False), FakeUpstream("two", answers=True)
        standalone.gateway.listening["one"].upstreams.members[0], standalone.gateway.listening["two"].upstreams.members[0] = one, two
        broker = "broker 192.0.2.1:5672"
        assert standalone.explain_unready() == [f"listener {name}: {broker} has not been dialled yet" for name in ("one", "two")]
        async with task(probe_brokers, standalone.gateway.list_configured()):
            await trio.sleep(0.01)
            assert standalone.explain_unready() == [f"listener one: {broker} has not been dialled yet"], "at once, and side by side"
            two.ok = False
            await trio.sleep(0.3)
            assert two.ok, "while one is still being dialled"
            assert (one.dialled, two.dialled) == (1, 2)
            await trio.sleep(5)
            assert standalone.explain_unready() == [f"listener one: {broker} is unreachable: no connection within {ANSWER_S:g} s"]
            one.answers = True
            await trio.sleep(10)
            assert standalone.explain_unready() == []
            dialled = one.dialled
            await trio.sleep(2 * PROBE_EVERY_S)
            assert one.dialled - dialled <= 3, "who was reached is asked now and then only"


async def test_a_broker_that_hangs_makes_a_gateway_unready_also_while_connections_are_open(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with standalone_of(configure(tmp_path)) as standalone:
        brokers = [FakeUpstream(name, answers=True) for name in ("one", "two")]
        for broker in brokers:
            standalone.gateway.listening[broker.listener].upstreams.members[0] = broker
        standalone.gateway.listening["two"].active = 1
        async with task(probe_brokers, standalone.gateway.list_configured()):
            await trio.sleep(4 * PROBE_EVERY_S)
            assert standalone.explain_unready() == []
            for broker in brokers:
                broker.answers = False
            await trio.sleep(PROBE_EVERY_S + ANSWER_S + 0.5)
            why = f"broker 192.0.2.1:5672 is unreachable: no connection within {ANSWER_S:g} s"
            assert standalone.explain_unready() == [f"listener {name}: {why}" for name in ("one", "two")]


async def test_a_broker_that_is_not_wanted_is_not_dialled(autojump_clock: trio.testing.MockClock) -> None:
    gone = FakeUpstream("gone", answers=False)
    wanted = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe_broker, cast(Any, SimpleNamespace(upstreams=Upstreams("gone", [gone]))), lambda: wanted)
        await trio.sleep(60)
        assert gone.dialled == 0
        wanted = True
        await trio.sleep(1)
        assert gone.dialled > 0
        nursery.cancel_scope.cancel()


# ---- faults ------------------------------------------------------------------------------------------------------------


async def test_a_task_outlives_the_faults_of_its_rounds(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(FakeUpstream):
        async def probe(self) -> None:
            self.dialled += 1
            raise RuntimeError("boom")

    with standalone_of(configure(tmp_path)) as standalone:
        one = standalone.gateway.listening["one"].upstreams.members[0] = Faulty("one", answers=True)
        two = standalone.gateway.listening["two"].upstreams.members[0] = FakeUpstream("two", answers=True)
        async with task(probe_brokers, standalone.gateway.list_configured()):
            await trio.sleep(2)
        assert one.dialled > 5
        assert two.ok
    (line,) = failures(caplog, "housekeeping_failed")
    assert line["task"] == "probe of 192.0.2.1:5672"


async def test_ticks_and_fill_levels_go_on_after_a_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with standalone_of(configure(tmp_path)) as standalone:
        rounds = {"tick": 0, "save": 0}

        def fail(what: str) -> Any:
            rounds[what] += 1
            raise RuntimeError("boom")

        standalone.gateway.fleet = cast(Any, SimpleNamespace(watch=lambda _: fail("tick")))
        standalone.fill_levels.save = lambda: fail("save")  # type: ignore[method-assign]
        async with task(every_tick, standalone.gateway), task(keep_fill_levels, standalone.fill_levels):
            await until(lambda: rounds["tick"] > 1 and rounds["save"] > 1, "second rounds")
    assert sorted(cast(str, line["task"]) for line in failures(caplog, "housekeeping_failed")) == ["fill levels", "tick"]


def test_failing_rounds_are_logged_once_in_a_while_and_cancellation_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    loop = SupervisedLoop("test")
    for _ in range(100):
        with loop:
            raise ValueError("boom")
    (line,) = failures(caplog, "housekeeping_failed")
    assert (line, repr(loop)) == ({"task": "test", "rounds": 1}, "<SupervisedLoop test failed=99>")
    with pytest.raises(KeyboardInterrupt), loop:
        raise KeyboardInterrupt


async def test_a_fault_of_the_admin_api_does_not_end_the_gateway_and_it_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    begun = 0

    async def serve(*_: object, task_status: Any, **more: object) -> None:
        nonlocal begun
        begun += 1
        task_status.started([("127.0.0.1", 9180)])
        await trio.sleep(1)
        raise RuntimeError("boom")

    monkeypatch.setattr("admin.app.serve", serve)
    with standalone_of(configure(tmp_path)) as standalone:
        async with trio.open_nursery() as nursery:
            await nursery.start(standalone.administer)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
    assert begun > 1
    assert len(failures(caplog, "admin_failed")) == 1


async def test_an_admin_api_that_cannot_begin_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(*_: object, **more: object) -> None:
        raise OSError(errno.EADDRINUSE, "taken")

    monkeypatch.setattr("admin.app.serve", serve)
    with standalone_of(configure(tmp_path)) as standalone, pytest.raises(ExceptionGroup):
        async with trio.open_nursery() as nursery:
            await nursery.start(standalone.administer)


# ---- how often ---------------------------------------------------------------------------------------------------------


async def test_an_idle_gateway_wakes_four_times_a_second_for_all_its_tasks(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Each waking costs more than what is then done."""

    class Wakings(trio.abc.Instrument):
        def __init__(self) -> None:
            self.at: set[float] = set()

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.at.add(trio.current_time())

    with standalone_of(configure(tmp_path)) as standalone:
        for listener in standalone.gateway.listening.values():
            listener.upstreams.members[0] = FakeUpstream(listener.name, answers=True)
        gateway = standalone.gateway
        ticking: tuple[tuple[Callable[..., Awaitable[None]], object], ...] = (
            (every_tick, gateway),
            (expire_changes, standalone.store),
            (probe_brokers, gateway.list_configured()),
            (probe_lag, gateway),
            (watch_lag, standalone.lag_watch),
        )
        async with contextlib.AsyncExitStack() as running:
            for each in ticking:
                await trio.sleep(0.06)  # none would be at the same moments by itself
                await running.enter_async_context(task(*each))
            await trio.sleep(1)
            trio.lowlevel.add_instrument(wakings := Wakings())
            await trio.sleep(10)
            trio.lowlevel.remove_instrument(wakings)
    assert len(wakings.at) <= 4 * 10 + 1


async def test_one_waiter_sleeps_for_all_until_the_tick_and_may_be_cancelled(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping = []
    sleep_until = trio.sleep_until

    async def sleep(due: float) -> None:
        sleeping.append(trio.lowlevel.current_task().name)
        await sleep_until(due)

    ticks: list[tuple[str, float]] = []

    async def wait(name: str, scope: trio.CancelScope) -> None:
        with scope:
            await wait_for_tick()
            ticks.append((name, trio.current_time()))

    await trio.sleep_until(tick_time())
    start = trio.current_time()
    monkeypatch.setattr(trio, "sleep_until", sleep)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            scopes = {name: trio.CancelScope() for name in "abc"}
            for name, scope in scopes.items():
                nursery.start_soon(wait, name, scope, name=name)
                await trio.testing.wait_all_tasks_blocked()
            assert sleeping == ["a"]
            for _ in range(2):  # who sleeps for the others, and then who does in his place
                scopes[sleeping[-1]].cancel()
                await trio.testing.wait_all_tasks_blocked()
    last = ({*"abc"} - {*sleeping[:2]}).pop()
    assert sleeping == ["a", sleeping[1], last]
    assert ticks == [(last, start + TICK_S)]


async def test_new_names_come_in_with_time_though_nothing_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with standalone_of(configure(tmp_path)) as standalone:
        judge = standalone.gateway.judge
        tick(standalone.gateway)
        origin = judge.origin("rocketmq", "l", "10.0.0.1", None)
        while judge.may_name(origin):
            pass
        later = judge.origins.now + 1_000_000_000
        monkeypatch.setattr("gateway.lifecycle.periodic_tasks.now_ns", lambda: later)
        tick(standalone.gateway)
        assert judge.may_name(origin)


async def test_work_at_a_tick_is_no_lag(tmp_path: Path) -> None:
    """The task that sleeps for the others goes on at once, and the others only when it has done its work."""

    async def work() -> None:
        while True:
            await wait_for_tick()
            time.sleep(0.03)

    with standalone_of(configure(tmp_path)) as standalone:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(probe_lag, standalone.gateway)
            lags = []
            for _ in range(6):
                await trio.sleep(TICK_S)
                lags.append(standalone.gateway.lag_s)
            nursery.cancel_scope.cancel()
    assert min(lags[1:]) < 0.02


async def test_lag_is_looked_for_often_while_there_is_much_traffic(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    with standalone_of(configure(tmp_path)) as standalone:
        async with task(probe_lag, standalone.gateway):
            await trio.sleep(1)
            before = sum(standalone.gateway.lag.counts)
            await trio.sleep(10)
            assert sum(standalone.gateway.lag.counts) - before <= 4 * 10 + 1
            for turns, least, most in ((10, 0, 4 * 10 + 1), (100, 60, 1000)):
                before = sum(standalone.gateway.lag.counts)
                for _ in range(100):
                    standalone.gateway.sweeper.turned += turns
                    await trio.sleep(0.1)
                assert least <= sum(standalone.gateway.lag.counts) - before <= most, turns


# ---- reload ------------------------------------------------------------------------------------------------------------


async def test_a_reload_takes_the_name_that_a_certificate_must_have_together_with_the_address_it_dials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = Authority(tmp_path)
    caplog.set_level(logging.ERROR)
    more = f", upstream_tls: {{ca: {ca.file}}}"
    file = configure(tmp_path, "old.example:5672", more)
    with standalone_of(file) as standalone:
        configure(tmp_path, "new.example:5672", more)
        changed = await standalone.reload()
        assert any("upstream" in line for line in cast(list[str], changed["in_force"]))
        upstream = standalone.gateway.listening["one"].upstreams.members[0]
        assert upstream.tls is not None
        assert (upstream.address[0], upstream.tls.server_name) == ("new.example", "new.example")


def test_rules_are_put_in_force_with_the_time(tmp_path: Path) -> None:
    """A limit that was lifted while nobody asked counts from then on, not from the first message after."""
    with standalone_of(configure(tmp_path)) as standalone:
        standalone.enforce(nothing := RuleSet(standalone.store.file_rules, {"all": live_change("0/s")}))
        assert nothing.rule_overrides
        assert passes(standalone) == 0
        standalone.enforce(standalone.store.rules())
        time.sleep(0.02)
        assert 20 <= passes(standalone, 1000) < 1000


def live_change(rate: str) -> Any:
    from admin.store.state import live

    return live(StoredOverride(messages=rate))


async def test_a_limit_that_begins_to_refuse_has_its_fill_level_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the next write would be an hour away: a client that has used up its burst must not find it full after SIGKILL."""
    monkeypatch.setattr("gateway.lifecycle.periodic_tasks.tick_time", lambda seconds: trio.current_time() + 3600)
    judge = Judge(RuleSet((rule(messages=1),)))
    talk = Talk("rocketmq", judge=judge)
    with standalone_of(configure(tmp_path)) as standalone:
        handler = Wait(talk.conversation, Credit(100, 1), Credit(100, 1), standalone.gateway.accounts)

        def send(second: int) -> None:
            batch = Batch(None, b"", talk.now + second * 1_000_000_000)
            talk.conversation.decode(b"".join(rocketmq.send("orders", b"x", opaque=number) for number in (1, 2, 3)), 0, 100, batch.parts)
            judge.decide(list(batch.parts), batch.now)
            handler.carry(batch)

        saves = 0

        def save() -> None:
            nonlocal saves
            saves += 1

        standalone.fill_levels.save = save  # type: ignore[method-assign]
        async with task(keep_fill_levels, standalone.fill_levels):
            await until(lambda: saves == 1, "the first write")
            send(0)
            await until(lambda: saves == 2, "the write for the refusal")
            send(0)  # it goes on to refuse, which is no news
            send(1)
            await trio.sleep(0.2)
            assert saves == 2
            send(3)
            await until(lambda: saves == 3, "the write for another time")


def test_connections_to_an_address_that_a_broker_has_left_are_looked_for_in_slices() -> None:
    """20,000 sessions were 53 ms in one turn of the loop, each second while sends of a gone client waited at the old address."""
    listener = SimpleNamespace(name="names/broker-a/0", upstreams=SimpleNamespace(has=lambda heard: heard == "new", text="10.0.0.2:10911"))

    def session(heard: str, gone_at: int = 0) -> SimpleNamespace:
        config, upstream = SimpleNamespace(name=listener.name), SimpleNamespace(heard=heard)
        return SimpleNamespace(listener_config=config, upstream=upstream, state=OPEN, graceful_close=None, gone_at=gone_at)

    old = session("old")
    sessions = [session("old", gone_at=1), *(session("new") for _ in range(2 * SLICE_SESSIONS)), old]
    closed: list[object] = []
    gateway = SimpleNamespace(
        brokers={"names": SimpleNamespace(list_left_behind=lambda: [listener])},
        sweeper=SimpleNamespace(sessions=dict(enumerate(sessions)), attempt=lambda one, _: closed.append(one), end=lambda _: None),
        event_loop=SimpleNamespace(wake=lambda: None),
    )
    assert len(list(Gateway.close_left_behind(cast(Any, gateway), 5))) == 2
    assert closed == [old]
