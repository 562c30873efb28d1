"""The graceful stop as a whole keeps to its time."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import trio

from gateway.clock import now_ns
from gateway.counting.accounts import Accounts
from gateway.lifecycle.drain import DRAIN_S, Gateway, begin_drain, close_overdue, drain
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
        listening={}, accounts=Accounts(), sweeper=floor, event_loop=SimpleNamespace(wake=done, stop=done),
        executor=SimpleNamespace(close=done), fill_levels=None, access_log=None,
    )  # fmt: skip
    with trio.fail_after(5):
        await drain(cast(Gateway, gateway), now_ns() - int(DRAIN_S * 1e9))
    assert floor.turns == [begin_drain, close_overdue]
    assert floor.closed
