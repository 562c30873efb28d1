"""Tells receivers of limits reached and recovered (`webhooks` of the configuration).

::

    LimitEvents ──► over(), once a second ──► Webhooks (this): what fires ──► Hook: what its receiver does not know ──► POST
     (or those of all workers)

Nothing is done where messages pass. Once a second the limits that are over are compared with those of a second before, so what was missed
is made up for, whichever it was. With several workers their parent does this: a limit that is over in several of them is one alert, and
resolved when it is over in none.

Everything firing is resolved when the gateway stops, because nobody would tell of its recovery; FINISH_S are spent on that, while the
connections are drained.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import trio

from admin.alerting.alerts import STOPPED, Alert, AlertSender, Key
from common.supervised_loop import SupervisedLoop

if TYPE_CHECKING:
    from admin.alerting.hook import Hook
    from common.views.limits import OverLimitView
    from config import Settings
    from config.known_settings import WebhookSettings

    Samples = dict[str, list[tuple[tuple[str, ...], float]]]  # of metrics, by name: the values of its labels, and the number

MAX_FIRING: Final = 1000  # alerts; at once; as many limits as have lines of their own in the log of one process
LOOK_S: Final = 1.0  # seconds; between two looks at what is over its limit
FINISH_S: Final = 2.0  # seconds; for the last posts, while the gateway drains: within the 30 s after which systemd kills


class Webhooks:
    """All receivers, and the alerts that are firing. `look` gives every limit that is over now, of each worker."""

    def __init__(self, settings: Settings, look: Callable[[], Iterable[OverLimitView]]) -> None:
        self._look = look
        self._sender = sender_of(settings)
        self._firing: dict[Key, Alert] = {}
        self._hooks = [self._hook(entry, self._sender) for entry in settings.webhooks]
        self._nursery: trio.Nursery | None = None  # while it runs
        self._stopped = False

    def _hook(self, entry: WebhookSettings, sender: AlertSender) -> Hook:
        from admin.alerting.hook import Hook  # here, because few gateways have one, and it brings an HTTP client

        return Hook(entry, sender, self._firing)

    @property
    def wanted(self) -> bool:
        """Whether there is a receiver."""
        return bool(self._hooks)

    # ---- what is over ------------------------------------------------------------------------------------------------------

    def take(self, over: Iterable[OverLimitView], now: float) -> None:
        """What is over its limit at `now` (seconds since 1970)."""
        found = {facts.key(): facts for facts in over}
        for key in [key for key in self._firing if key not in found]:
            self._end(key, now)
        for key, facts in found.items():
            known = self._firing.get(key)
            if known is not None:
                known.facts = facts
            elif len(self._firing) < MAX_FIRING:
                self._firing[key] = alert = Alert(facts, self._sender.gateway)
                for hook in self._hooks:
                    hook.put(alert)

    def _end(self, key: Key, now: float, because: str = "") -> None:
        alert = self._firing.pop(key)
        alert.end(now, because)
        for hook in self._hooks:
            hook.put(alert)

    # ---- its tasks -----------------------------------------------------------------------------------------------------------

    async def run(self, stopping: trio.Event) -> None:
        """Look and post until `stopping`; then tell the receivers that all is over, within FINISH_S."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for hook in self._hooks:
                    nursery.start_soon(hook.deliver)
                nursery.start_soon(self._watch)
                await stopping.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            self._stopped = True
            if stopping.is_set():
                with trio.CancelScope(shield=True, deadline=trio.current_time() + FINISH_S):
                    await self._finish()

    async def _watch(self) -> None:
        loop = SupervisedLoop("webhooks")
        while True:
            await trio.sleep(LOOK_S)
            if self.wanted:
                with loop:
                    self.take(self._look(), time.time())

    async def _finish(self) -> None:
        now = time.time()
        for key in list(self._firing):
            self._end(key, now, STOPPED)
        async with trio.open_nursery() as nursery:
            for hook in self._hooks:
                nursery.start_soon(hook.finish)

    # ---- at a reload -----------------------------------------------------------------------------------------------------------

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """What is returned puts new settings in force."""
        return lambda: self._take_settings(settings)

    def _take_settings(self, settings: Settings) -> None:
        """Receivers that are as before go on. One of the same name takes over what was not told; a new one is told all that fires."""
        if self._stopped:
            return
        before = {hook.label: hook for hook in self._hooks}
        sender = sender_of(settings)
        hooks = []
        for entry in settings.webhooks:
            known = before.get(entry.label)
            if known is not None and known.entry == entry and known.sender == sender:
                known.forget_files()
                hooks.append(before.pop(entry.label))
                continue
            hook = self._hook(entry, sender)
            same = (
                known is not None
                and (known.entry.url, known.entry.url_file) == (entry.url, entry.url_file)
                and known.entry.format == entry.format
            )
            if known is not None:
                hook.inherit(known, same_receiver=same)
            if not same:
                hook.pending.repeat(self._firing)
            hooks.append(hook)
            if self._nursery is not None:
                self._nursery.start_soon(hook.deliver)
        for gone in before.values():
            gone.scope.cancel()
        self._hooks = hooks
        self._sender = sender
        if not hooks:
            self._firing.clear()  # nobody is told of their end; a later receiver is told of what is over then

    # ---- what operators see ------------------------------------------------------------------------------------------------

    def warnings(self) -> list[str]:
        """What operators should look at."""
        return [
            f"webhook {hook.label}: the receiver has taken no post for {trio.current_time() - hook.failed_at:.0f} s; the log says why"
            for hook in self._hooks
            if hook.failed_at is not None
        ]

    def samples(self) -> Samples:
        """For `/metrics`."""
        hooks = self._hooks
        if not hooks:
            return {}
        return {
            "sluice_webhook_requests_total": [((hook.label, result), count) for hook in hooks for result, count in hook.results.items()],
            "sluice_webhook_pending_alerts": [((hook.label,), len(hook.pending)) for hook in hooks],
            "sluice_webhook_alerts_dropped_total": [((hook.label,), hook.pending.dropped) for hook in hooks],
        }

    def __repr__(self) -> str:
        return f"<Webhooks {len(self._hooks)} receivers, {len(self._firing)} alerts>"


def sender_of(settings: Settings) -> AlertSender:
    """This gateway, as it names itself; and its admin port, by the first name that it may be reached under."""
    admin = settings.admin
    host = next(iter(admin.names), admin.bind.host)
    if host in {"0.0.0.0", "::"}:  # noqa: S104  -- compared, not bound
        host = socket.gethostname()
    address = f"[{host}]" if ":" in host else host
    return AlertSender(settings.gateway.name, f"{'http' if admin.tls is None else 'https'}://{address}:{admin.bind.port}/")
