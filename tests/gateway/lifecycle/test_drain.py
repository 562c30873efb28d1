"""The graceful stop as a whole keeps to its time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
import yaml

from config.known_settings import DrainSettings
from gateway.clock import now_ns
from gateway.counting.accounts import Accounts
from gateway.lifecycle.drain import AFTER_S, LAST_S, DrainedGateway, begin_drain, close_overdue, drain, hold
from gateway.pipeline.held_budget import HeldBudget
from gateway.session.states import OPEN


class Floor:
    """Sessions of which none is ever drained; each is over once it is told late."""

    def __init__(self) -> None:
        conversation = SimpleNamespace(has_close_frames=True, draining=False, budget=HeldBudget())
        self.sessions: dict[int, Any] = {
            1: SimpleNamespace(begin_drain=lambda: None, conversation=conversation, graceful_close=None, state=OPEN)
        }
        self.turns: list[object] = []
        self.closed = False

    def attempt(self, session: object, turn: partial[None]) -> None:
        self.turns.append(turn.func)
        if turn.func is close_overdue:
            self.sessions.clear()

    def end(self, session: object) -> None:
        """Its connections are not of interest here."""

    def close(self) -> None:
        self.closed = True


async def test_the_time_of_a_drain_runs_from_the_request_for_it() -> None:
    """Accepting may end seconds later than that, when somebody was dialled for; systemd's patience began before."""
    floor = Floor()

    def done(*_: object) -> None: ...

    gateway = SimpleNamespace(
        settings=SimpleNamespace(drain=DrainSettings()),
        listening={}, accounts=Accounts(), sweeper=floor, event_loop=SimpleNamespace(wake=done, stop=done),
        executor=SimpleNamespace(close=done), disk=SimpleNamespace(close=done), fill_levels=None, access_log=None, handed_over=False,
    )  # fmt: skip
    with trio.fail_after(30):
        await drain(cast(DrainedGateway, gateway), now_ns() - DrainSettings().timeout_ns)
    assert floor.turns == [begin_drain, close_overdue]
    assert floor.closed


# ---- until clients leave -------------------------------------------------------------------------------------------------


class Held:
    """A gateway with clients, on trio's own clock."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, timeout_s: int, clients: int, hold: str = "until_clients_leave", delay_s: int = 0
    ) -> None:
        self.settings = SimpleNamespace(drain=DrainSettings(timeout_s * 10**9, hold, delay_s * 10**9))
        self.sessions = dict.fromkeys(range(clients))
        self.sweeper = SimpleNamespace(sessions=self.sessions)
        self.listener = SimpleNamespace(arriving=0)
        self.listening = {"rabbit": self.listener}
        self.orphaned = False
        monkeypatch.setattr("gateway.lifecycle.drain.now_ns", lambda: int(trio.current_time() * 1e9))

    async def hold(self) -> float:
        """The seconds it took."""
        began = trio.current_time()
        await hold(cast(DrainedGateway, self), int(began * 1e9))
        return trio.current_time() - began


async def test_without_a_client_nothing_is_held(monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock) -> None:
    assert await Held(monkeypatch, 27, 0).hold() < 0.1


async def test_clients_are_held_until_the_last_has_left_and_may_come_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    held = Held(monkeypatch, 27, 1)
    async with trio.open_nursery() as nursery:

        async def come_and_go() -> None:
            await trio.sleep(3)
            held.sessions.clear()
            await trio.sleep(0.3)
            held.listener.arriving = 1
            await trio.sleep(4)
            held.listener.arriving = 0

        nursery.start_soon(come_and_go)
        assert 7.3 < await held.hold() < 8.0


@pytest.mark.parametrize(("timeout_s", "most"), [(27, 27 - LAST_S), (4, 2)])
async def test_who_does_not_leave_is_held_until_there_is_just_time_to_tell_him(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock, timeout_s: int, most: float
) -> None:
    assert await Held(monkeypatch, timeout_s, 1).hold() == pytest.approx(most, abs=0.1)


@pytest.mark.parametrize("clients", [0, 1])
async def test_a_delay_is_kept_whoever_is_there(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock, clients: int
) -> None:
    """A Service goes on leading newcomers here for a while."""
    assert await Held(monkeypatch, 27, clients, "at_once", 5).hold() == pytest.approx(5, abs=0.1)
    assert await Held(monkeypatch, 27, clients, "at_once").hold() == 0
    least = await Held(monkeypatch, 27, clients, "until_clients_leave", 5).hold()
    assert least == pytest.approx(27 - LAST_S if clients else 5, abs=0.1)


def test_who_kills_gateways_is_more_patient_than_the_default() -> None:
    """systemd's and Kubernetes' patience in deploy/, and how a sidecar says that it waits for its application."""
    deploy = Path(__file__).parents[3] / "deploy"
    least = DrainSettings().timeout_ns / 1e9 + AFTER_S + 5
    unit = (deploy / "systemd/sluice.service").read_text()
    pod = yaml.safe_load((deploy / "kubernetes/sidecar.yaml").read_text())
    assert float(unit.partition("TimeoutStopSec=")[2].split()[0]) == least
    assert pod["terminationGracePeriodSeconds"] == least
    (container,) = pod["containers"]
    assert container["env"] == [{"name": "SLUICE_DRAIN__HOLD", "value": "until_clients_leave"}]


async def test_a_worker_whose_parent_ends_holds_nobody(monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock) -> None:
    """Another parent's workers may serve beside it, and each would let the whole limit pass."""
    held = Held(monkeypatch, 27, 1, "until_clients_leave", 10)
    async with trio.open_nursery() as nursery:

        async def end_parent() -> None:
            await trio.sleep(3)
            held.orphaned = True

        nursery.start_soon(end_parent)
        assert await held.hold() == pytest.approx(3, abs=0.1)
    assert await held.hold() < 0.1, "nor where it had ended before"
