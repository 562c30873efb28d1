"""A gateway that is a process of its own: with the state directory, the admin API, and the signals of its service manager."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from admin.remote_admin import LimitRequestService
from common import log
from control_plane.control_plane import ControlPlane
from control_plane.process import watch_signals
from gateway.app import Gateway
from gateway.data_plane import LocalPlane
from gateway.systemd import Inheritance
from limiter.judge import Judge

if TYPE_CHECKING:
    from admin.store.store import Store
    from config import Settings
    from control_plane.control_plane import FirstSteps
    from control_plane.takeover import Takeover
    from gateway.telemetry.moving_topics import Row


class Standalone(ControlPlane):
    """Hosts one gateway, and governs it. Implements `gateway.app.Host`."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        log_handler: log.QueueHandler,
        inheritance: Inheritance | None = None,
        takeover: Takeover | None = None,
        first_steps: FirstSteps = lambda *_: (),
    ) -> None:
        boot = secrets.token_hex(4)
        judge = Judge(store.rules(), settings.limiter.max_keys, bounds_names=True)
        super().__init__(settings, store, judge, boot, inheritance or Inheritance([]), takeover, first_steps)
        self.gateway = Gateway(
            settings, judge, store, log_handler,
            boot=boot, fill_levels=self.fill_levels, tidy_access_log=takeover is None,
        )  # fmt: skip
        self.gateway.accounts.on_dry = self.fill_levels.want
        self.gateway.administer_remotely(LimitRequestService(self, store))
        self.gateway.on_second = self._close_second
        self._govern(self.gateway, {0: LocalPlane(self.gateway)})

    def _close_second(self, second: int, elapsed_s: float, rows: list[Row]) -> Iterator[None]:
        return self.series.close_second(second, elapsed_s, rows, self.store.rules())

    # ---- what the gateway needs of its host (gateway.app.Host) -----------------------------------------------------

    async def serve(self) -> None:
        """Open, serve, and drain when asked to. Raises OSError when an address cannot be bound."""
        with self.recent_events:
            self.gateway.open(self.inheritance)
            self.admin_server.take_sockets(self.inheritance)
            if self._takeover is not None:
                await self.admin_server.open()
                await self._take_over(self._takeover)
            self.gateway.open_brokers(self.inheritance)
            self.inheritance.close_rest()
            await self.gateway.run(self)

    async def administer(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self.admin_server.run(task_status=task_status)

    async def watch_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        await watch_signals(self._reload_everywhere, self.gateway.drain_requested, self.up, task_status=task_status)
