"""Remote admin: limits as a RocketMQ console sees and changes them, by the requests of MQCloud's patched broker (`docs/design/rocketmq.md`
6).

Knows no frames: `gateway/remote_admin.py` reads the requests, checks their senders and phrases the answers. A change goes through the store
like every other: it is durable and in force before it is answered, with a line in the history and the audit.

The console sees each RocketMQ topic whose messages a rule in force limits, with the limit, the wait of the next message now, and the time
of the last refusal. Its fields have no place for limits of bytes, of clients or groups, in shadow mode or of consumers, so those are left
out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from admin.context import limits_in_slices
from admin.endpoints.limits import MAX_NAME_BYTES
from admin.http.bodies import ChangeContext, LimitBody, override
from admin.http.problems import ProblemError
from admin.store.changes import Author, WriteFailedError
from admin.store.state import StoredOverride, key_of, key_target, parse_time
from common import log
from limiter.limits import per_second
from limiter.protocols import ROCKETMQ
from limiter.rules.errors import RuleError
from limiter.topics import TopicName, rocketmq_topic
from limiter.units import format_rate

if TYPE_CHECKING:
    from admin.ports import OperatedGateway
    from admin.store.store import Store
    from limiter.rules.rule_set import Effective

NAME: Final = "remote-admin"  # the author in history and `by`; the access key that was claimed follows it
ROLE: Final = "operator"
NEVER: Final = -1  # lastRateLimitTimestamp of a topic that was never refused, as the patched broker has it
LOG_EVERY_NS: Final = 1_000_000_000  # ns; between two lines about refused requests: a client in a loop must not push the history out


class TopicRateLimit(msgspec.Struct, frozen=True):
    """MQCloud's class of that name. Microseconds until one message would pass; milliseconds since 1970."""

    topic: str
    limitQps: float  # noqa: N815  -- the console's spelling, as below
    lastNeedWaitMicrosecs: int = 0  # noqa: N815
    lastRateLimitTimestamp: int = NEVER  # noqa: N815


class DataVersion(msgspec.Struct, frozen=True):
    """RocketMQ's class of that name: `counter` is the revision of the live changes, `timestamp` when that was made."""

    stateVersion: int  # noqa: N815
    timestamp: int
    counter: int


class BrokerRateLimitData(msgspec.Struct, frozen=True):
    """MQCloud's class of that name: the body that answers a view."""

    dataVersion: DataVersion  # noqa: N815
    topicRateLimitList: list[TopicRateLimit]  # noqa: N815


class OncePerSecond:
    """Permits one line a second, and counts the suppressed ones."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._suppressed = 0
        self._logged_at = clock() - LOG_EVERY_NS

    def permit(self) -> int | None:
        """The number of lines suppressed since the last one; None: suppress this one too."""
        now = self._clock()
        if now - self._logged_at < LOG_EVERY_NS:
            self._suppressed += 1
            return None
        self._logged_at, suppressed, self._suppressed = now, self._suppressed, 0
        return suppressed


class LimitRequestService:
    """Answers the requests of remote admin: views limits, and changes them."""

    def __init__(
        self,
        gateway: OperatedGateway,
        store: Store,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._gateway = gateway
        self._store = store
        self._wall_clock = wall_clock
        self._clock = clock
        self._refusals = OncePerSecond(clock)
        self._intruders = OncePerSecond(clock)

    async def view(self) -> bytes:
        """The limits as the console's JSON."""
        now, wall_clock = self._clock(), self._wall_clock()  # read together, because the code below takes time
        found: dict[TopicName, TopicRateLimit] = {}
        async for states in limits_in_slices(self._gateway.judge, now):
            for state in states:
                name, rate = state.name, limited_messages(state.effective)
                if name is None or name.protocol != ROCKETMQ.name or state.operation != "produce" or rate is None:
                    continue
                refused_at = NEVER
                if state.last_refused_at is not None:
                    refused_at = int((wall_clock - (now - state.last_refused_at) / 1e9) * 1000)
                seen = found.get(name)
                if seen is None or rate < seen.limitQps:  # several rules may each have a bucket for it: the tightest
                    found[name] = TopicRateLimit(state.thing, rate, -(-state.wait_ns // 1000), refused_at)
        rules = self._store.rules()
        for target in self._store.state.keys:
            name = key_of(target)
            if name.protocol != ROCKETMQ.name or name in found:
                continue
            rates = [rate for rate in map(limited_messages, rules.effective(name)) if rate is not None]
            if rates:
                found[name] = TopicRateLimit(name.text(), min(rates))
        limits = sorted(found.values(), key=lambda each: each.topic)
        return msgspec.json.encode(BrokerRateLimitData(await self._version(), limits))

    async def _version(self) -> DataVersion:
        revision = self._store.revision
        made = await self._store.entries([revision]) if revision else []
        return DataVersion(0, int(parse_time(made[0].at) * 1000) if made else 0, revision)

    async def change(self, action: str, topic: bytes, rate: float, client: str, access_key: str, request_id: str) -> str:
        """Let `topic` have `rate` messages a second from now on; why that could not be done, or "" when it is durable and in force.

        Works for topics never seen; 0 refuses everything. The change is enforced and has no end, unlike perhaps the rule or an earlier live
        change. The rest of an earlier one (bytes, burst, action) stays, but for its reason: consoles give none.
        """
        author = _author(client, access_key, request_id)
        change_context = ChangeContext(author.name, self._wall_clock(), "")
        target = key_target(rocketmq_topic(topic))

        def edit() -> tuple[list[tuple[str, StoredOverride]], None]:
            body = LimitBody(messages=format_rate(per_second(rate)), mode="enforce", expires=None, reason=None)
            return [(target, override(body, self._store.override(target), change_context))], None

        try:
            if len(topic) > MAX_NAME_BYTES:
                raise ValueError(f"a topic of {len(topic)} bytes; no broker takes more than {MAX_NAME_BYTES}")
            if rate > 0 and per_second(rate).amount == 0:
                raise ValueError(f"{rate} a second is too little to be kept; say 0 to refuse everything")
            await self._store.change(edit, author, action)
            await self._gateway.in_force()
        except ProblemError as problem:
            why = "; ".join(fault.message for fault in problem.errors) or problem.detail
        except (ValueError, RuleError) as error:
            why = str(error)
        except WriteFailedError as error:
            return f"the state directory could not be written ({error}); nothing was changed"
        else:
            return ""
        await self.refuse(action, why, client, access_key, request_id)
        return why

    async def refuse(self, action: str, why: str, client: str, access_key: str, request_id: str) -> None:
        """Note in the audit that a permitted client was refused a change, and why; once a second, the others are counted."""
        suppressed = self._refusals.permit()
        if suppressed is not None:
            await self._store.note(_author(client, access_key, request_id), action, "refused", with_suppressed(why, suppressed))

    async def turn_away(self, action: str, why: str, client: str, access_key: str, request_id: str) -> None:
        """Note in log and audit that a client without permission asked; once a second, the others are counted."""
        suppressed = self._intruders.permit()
        if suppressed is not None:
            log.event(
                logging.WARNING, "remote_admin_refused", client=client, user=access_key or None, code=action, err=why, suppressed=suppressed
            )  # fmt: skip
            await self._store.note(Author("nobody", "", client, request_id), action, "refused", with_suppressed(why, suppressed))


def with_suppressed(why: str, suppressed: int) -> str:
    return f"{why}; {suppressed} more since the line before" if suppressed else why


def limited_messages(effective: Effective) -> float | None:
    """Messages a second where this is a topic's limit in force on messages, else None."""
    rate = effective.limit.messages
    if effective.per != "topic" or effective.rule.mode != "enforce" or rate is None:
        return None
    return rate.per_second


def _author(client: str, access_key: str, request_id: str) -> Author:
    return Author(f"{NAME} {access_key}" if access_key else NAME, ROLE, client, request_id)
