"""Watches the backlogs that limits follow (`algorithm: lag`), and sets the rates of those limits: once a second, after a look at the
broker.

A limit whose broker cannot be asked keeps its last rate. The change from one state to the other is a line in the log, and every failure is
counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from common import log
from common.regular_files import read_secret
from gateway.broker_load.source import BacklogError, Source
from gateway.protocols import PROTOCOLS
from gateway.protocols.protocol import BACKLOGS_OF_GROUPS, NO_BACKLOGS
from limiter.algorithms.lag_controller import LagController

if TYPE_CHECKING:
    from pathlib import Path

    from config import Settings
    from gateway.listeners.listener import Listener
    from limiter.buckets.bucket import Bucket
    from limiter.judge import Judge
    from limiter.limits import Rate
    from limiter.rules.rule_set import Identity

NO_LOGIN: Final = "the listener has no own_login, with which the gateway could look at queues"

Login = Callable[[], tuple[str, str]]
SetRate = Callable[["Identity", "Rate"], None]


class FollowingLimit:
    """One limit that follows a backlog."""

    def __init__(self, bucket: Bucket) -> None:
        limit = bucket.rule.limit
        self.bucket = bucket
        self.controller = LagController(limit)
        self.looked_at = -1.0  # seconds, trio's clock; below 0: never
        self.waiting = 0  # at the last look, as the next
        self.passed = 0
        self.trouble = ""  # why its broker cannot be asked, as logged last; "": it can

    def look(self, waiting: int, now_s: float) -> tuple[int, float] | None:
        """How many messages consumers have taken since the last look, and in how many seconds; None at the first look.

        Those that passed here, without what now waits: so what comes by other ways, as through other gateways, has its part of what they
        take. It is below 0 where more of that has come than they took.
        """
        passed = self.bucket.admitted + self.bucket.shadow_refused
        taken = passed - self.passed - (waiting - self.waiting)
        found = None if self.looked_at < 0 else (taken, max(0.001, now_s - self.looked_at))
        self.waiting, self.passed, self.looked_at = waiting, passed, now_s
        return found

    def __repr__(self) -> str:
        return f"<FollowingLimit {self.bucket.effective.thing} {self.trouble or self.controller}>"


class LagWatch:
    """All limits of a gateway that follow a backlog, and the connections on which brokers are asked for it."""

    def __init__(self, judge: Judge, listening: dict[str, Listener], logins: dict[str, Login], set_rate: SetRate) -> None:
        """`set_rate` is called with the identity of a bucket and the rate that holds for it from now on, after each look."""
        self._judge = judge
        self._listening = listening
        self._logins = logins  # by listener
        self._set_rate = set_rate
        self._sources: dict[tuple[str, str], Source] = {}  # by listener and virtual host
        self.followed: dict[tuple[str, str, str, str], FollowingLimit] = {}  # by the identity of the bucket
        self.looks = {"ok": 0, "failed": 0}

    def wanted(self) -> bool:
        """Whether any rule follows a backlog."""
        return self._judge.rules.follows

    async def look_at_all(self) -> None:
        """Look at every backlog once, side by side; each broker is asked one thing at a time."""
        buckets = self._judge.list_lag_controlled()
        in_use = {bucket.effective.identity for bucket in buckets}
        for identity in [identity for identity in self.followed if identity not in in_use]:
            del self.followed[identity]
        async with trio.open_nursery() as nursery:
            for bucket in buckets:
                one = self.followed.get(bucket.effective.identity)
                if one is None or one.bucket is not bucket:
                    one = self.followed[bucket.effective.identity] = FollowingLimit(bucket)
                nursery.start_soon(self._look, one)

    async def _look(self, one: FollowingLimit) -> None:
        bucket = one.bucket
        limit = bucket.rule.limit
        if limit.lag is None:
            return  # the rule has changed since
        try:
            waiting = await self._source(bucket).backlog(bucket.subject.topic, limit.lag)
        except BacklogError as error:
            self.looks["failed"] += 1
            one.looked_at = -1.0  # the time until the next look is not known
            self._log_change(one, str(error))
            return
        self.looks["ok"] += 1
        self._log_change(one, "")
        found = one.look(waiting, trio.current_time())
        if found is not None:
            self._set_rate(bucket.effective.identity, one.controller.next_rate(limit, waiting, *found))

    def _source(self, bucket: Bucket) -> Source:
        name = bucket.subject.sender.listener or ""
        listener = self._listening.get(name)
        if listener is None:
            raise BacklogError(f"listener {name} is not open any more")
        backlogs = PROTOCOLS[listener.protocol].backlogs
        if backlogs == NO_BACKLOGS:
            raise BacklogError(f"nothing is known of the consumers behind listener {name} ({listener.protocol})")
        if backlogs == BACKLOGS_OF_GROUPS:
            key = (name, "")
        else:
            key = (name, bucket.rule.match.vhost or "/")
            if name not in self._logins:
                raise BacklogError(NO_LOGIN)
        source = self._sources.get(key)
        if source is None:
            # Here, because few gateways have such limits: pamqp is a class for each method of AMQP, 5 ms and 1.5 MB.
            from gateway.broker_load.amqp import AmqpSource
            from gateway.broker_load.rocketmq import RocketmqSource

            source = AmqpSource(listener.upstreams, key[1], self._logins[name]) if key[1] else RocketmqSource(listener.upstreams)
            self._sources[key] = source
        return source

    def _log_change(self, one: FollowingLimit, trouble: str) -> None:
        if trouble == one.trouble:
            return
        before, one.trouble = one.trouble, trouble
        fields = {"topic": one.bucket.effective.thing, "rule": one.bucket.rule.name, "listener": one.bucket.subject.sender.listener}
        if trouble:
            log.event(logging.WARNING, "backlog_unknown", **fields, err=trouble, remedy="the limit keeps its last rate meanwhile")
        elif before:
            log.event(logging.INFO, "backlog_known", **fields)

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    def __repr__(self) -> str:
        return f"<LagWatch {len(self.followed)} followed, {self.looks}>"


def logins_of(settings: Settings) -> dict[str, Login]:
    """How to log in at the broker, by listener that has an `own_login`."""

    def login(user: str, file: Path) -> Login:
        return lambda: (user, read_secret(file).strip())

    own = {entry.name: entry.own_login for entry in settings.listeners}
    return {name: login(each.user, each.password_file) for name, each in own.items() if each is not None}
