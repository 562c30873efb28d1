"""Limit requests through real sessions: to the service and back, while everything else goes its way."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from config.addresses import Address
from config.known_settings import ListenerSettings, RemoteAdminSettings
from gateway.admission import ConnectionSlots
from gateway.listeners.factory import listener_of
from gateway.protocols.rocketmq.limit_requests import NO_PERMISSION, Permission
from gateway.remote_admin import MAX_QUEUED, RemoteAdmin
from gateway.session.listener_config import ListenerConfig
from gateway.telemetry.collector import remote_admin_samples
from gateway.telemetry.ports import ObservedGateway
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

VIEWED = b'{"topicRateLimitList":[]}'


class FakeLimitRequestService:
    """Remembers what it was asked to do; does nothing before `open` is set."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.open = trio.Event()
        self.open.set()
        self.why = ""
        self.error: Exception | None = None

    async def view(self) -> bytes:
        await self.open.wait()
        self.told.append(("view",))
        if self.error is not None:
            raise self.error
        return VIEWED

    async def change(self, action: str, topic: bytes, rate: float, client: str, access_key: str, request_id: str) -> str:
        await self.open.wait()
        self.told.append((action, topic, rate, client, access_key, request_id))
        return self.why

    async def refuse(self, action: str, why: str, client: str, access_key: str, request_id: str) -> None:
        self.told.append(("refused", action, why))

    async def turn_away(self, action: str, why: str, client: str, access_key: str, request_id: str) -> None:
        self.told.append(("turned away", action, why))


class Console:
    """A client of a listener with remote admin, at 10.0.0.7."""

    def __init__(self, wires: Wires, service: FakeLimitRequestService, permission: Permission | None) -> None:
        self.wires = wires
        self.service = service
        self.remote = RemoteAdmin(service, wires.sweeper.wake)
        wires.shared.take_gateway_request = self.remote.take
        self.config = ListenerConfig("rocket", "rocketmq", 1 << 24, 10_000_000_000)
        self.config.remote_admin = permission
        self.client, self.broker = wires.connect("rocketmq", config=self.config)

    async def ask(self, *requests: bytes) -> list[tuple[int, int, str, bytes]]:
        """(opaque, code, remark, body) of each answer that is there when nothing goes on any more."""
        self.client.sendall(b"".join(requests))
        self.wires.run()
        await wait_all_tasks_blocked()
        self.wires.run()
        return answers(self.wires.received(self.client))

    def forwarded(self) -> list[bytes]:
        return rocketmq.split_frames(self.wires.received(self.broker))


def answers(stream: bytes) -> list[tuple[int, int, str, bytes]]:
    found = []
    for frame in rocketmq.split_frames(stream):
        end = 8 + int.from_bytes(frame[5:8], "big")
        fields = json.loads(frame[8:end])
        assert fields["flag"] == 1
        found.append((fields["opaque"], fields["code"], fields.get("remark", ""), frame[end:]))
    return found


def change(topic: str = "orders", rate: str = "5.0", *, opaque: int = 1, code: int = 9003, one_way: bool = False, key: str = "") -> bytes:
    extra: dict[str, rocketmq.Value] = {"topic": topic, "topicLimitQps": rate, "AccessKey": key}
    return rocketmq.encode_request(code, extra, opaque=opaque, flag=2 if one_way else 0)


def view(*, opaque: int = 1, code: int = 9002) -> bytes:
    return rocketmq.encode_request(code, None, opaque=opaque)


@asynccontextmanager
async def console(permission: Permission | None = Permission(("10.0.0.0/8",), (), False)) -> AsyncIterator[Console]:  # noqa: B008
    with Wires() as wires:
        running = Console(wires, FakeLimitRequestService(), permission)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.remote.run)
            yield running
            nursery.cancel_scope.cancel()


async def test_a_view_and_a_change_are_answered_and_never_reach_the_broker() -> None:
    async with console() as talk:
        got = await talk.ask(view(opaque=3), change("%RETRY%g", "0.0", opaque=4, key="AK"))
        assert got == [(3, 0, "", VIEWED), (4, 0, "", b"")]
        assert talk.service.told == [("view",), ("9003", b"%RETRY%g", 0.0, "10.0.0.7", "AK", "1/4")]
        assert talk.forwarded() == []


async def test_a_change_that_failed_is_answered_with_its_reason() -> None:
    async with console() as talk:
        talk.service.why = "no space left on device"
        assert await talk.ask(change()) == [(1, 1, "no space left on device", b"")]


async def test_a_senseless_request_is_answered_with_the_reason_and_noted() -> None:
    async with console() as talk:
        ((_, code, remark, _),) = await talk.ask(change(rate="NaN"))
        assert (code, "is no number" in remark) == (1, True)
        assert talk.service.told == [("refused", "9003", remark)]


@pytest.mark.parametrize("request_", [view(), change()], ids=["view", "change"])
async def test_a_client_without_permission_is_refused(request_: bytes) -> None:
    async with console(Permission(("192.168.0.0/16",), (), False)) as talk:
        why = "10.0.0.7 is not in this listener's remote_admin.allow"
        assert await talk.ask(request_) == [(1, 16, why, b"")]
        assert [each[0] for each in talk.service.told] == ["turned away"]
        assert talk.forwarded() == []


async def test_without_remote_admin_the_broker_answers() -> None:
    requests = [view(opaque=1), change(opaque=2), view(opaque=3, code=329), change(opaque=4, code=330)]
    async with console(None) as talk:
        assert await talk.ask(*requests) == []
        assert talk.forwarded() == requests


@pytest.mark.parametrize("legacy", [False, True])
async def test_the_older_codes_are_the_brokers_unless_the_listener_says_so(legacy: bool) -> None:
    requests = [view(opaque=3, code=329), change(opaque=4, code=330)]
    async with console(Permission(("10.0.0.0/8",), (), legacy)) as talk:
        got = await talk.ask(*requests)
        assert got == ([(3, 0, "", VIEWED), (4, 0, "", b"")] if legacy else [])
        assert talk.forwarded() == ([] if legacy else requests)


@pytest.mark.parametrize(("legacy", "series"), [(None, 1), (False, 8), (True, 16)])
def test_counts_begin_at_0_where_a_listener_has_remote_admin(legacy: bool | None, series: int) -> None:
    """Of a series that begins with its first event no `rate()` sees that one."""
    config = SimpleNamespace(remote_admin=None if legacy is None else Permission(("::1",), (), legacy))
    gateway = SimpleNamespace(
        listening={"r": SimpleNamespace(config=config)}, remote_admin=SimpleNamespace(counts={(9002, NO_PERMISSION): 5})
    )
    samples = dict(remote_admin_samples(cast(ObservedGateway, gateway)))
    assert len(samples) == series
    assert samples.pop(("9002", "16")) == 5
    assert set(samples.values()) <= {0}


def test_a_listener_has_what_its_settings_say() -> None:
    entry = ListenerSettings("r", "rocketmq", Address("127.0.0.1", 1), (Address("127.0.0.1", 2),))
    assert listener_of(entry, ConnectionSlots.unbounded(), (None, None)).config.remote_admin is None
    allowed = replace(entry, remote_admin=RemoteAdminSettings(("10.0.0.0/8",), ("mqcloud",), legacy_codes=True))
    permission = listener_of(allowed, ConnectionSlots.unbounded(), (None, None)).config.remote_admin
    assert permission is not None
    assert permission.codes == {9002, 9003, 329, 330}
    assert permission.fault("10.0.0.1", "mqcloud") == ""
    assert "access_keys" in permission.fault("10.0.0.1", "")
    assert "allow" in permission.fault("192.168.0.1", "mqcloud")


async def test_the_rest_of_the_connection_goes_on_meanwhile() -> None:
    async with console() as talk:
        talk.service.open = trio.Event()
        send = rocketmq.send("orders", opaque=8)
        assert await talk.ask(view(opaque=7), send) == []
        assert talk.forwarded() == [send]
        answer = rocketmq.response(8)
        talk.broker.sendall(answer[:9])  # the broker stands within a frame: the gateway's own has to wait
        talk.wires.run()
        assert talk.wires.received(talk.client) == answer[:9]
        talk.service.open.set()
        assert await talk.ask() == []
        talk.broker.sendall(answer[9:])
        talk.wires.run()
        rest = talk.wires.received(talk.client)
        assert rest.startswith(answer[9:])
        assert answers(rest[len(answer) - 9 :]) == [(7, 0, "", VIEWED)]


async def test_a_one_way_request_has_no_answer() -> None:
    async with console() as talk:
        assert await talk.ask(change(one_way=True)) == []
        assert len(talk.service.told) == 1


async def test_a_drain_waits_for_what_is_under_way() -> None:
    async with console() as talk:
        talk.service.open = trio.Event()
        await talk.ask(change())
        session = talk.wires.session()
        session.begin_drain()
        assert not session.drained(talk.wires.now() + 60_000_000_000, 0)
        talk.service.open.set()
        assert len(await talk.ask()) == 1
        assert session.drained(talk.wires.now() + 60_000_000_000, 0)


async def test_beyond_the_queue_requests_are_answered_at_once_that_the_gateway_is_busy() -> None:
    async with console() as talk:
        talk.service.open = trio.Event()
        got = await talk.ask(*(view(opaque=number) for number in range(MAX_QUEUED + 10)))
        assert len(got) >= 9
        assert {code for _, code, _, _ in got} == {2}
        talk.service.open.set()
        rest = await talk.ask()
        assert len(got) + len(rest) == MAX_QUEUED + 10
        assert {code for _, code, _, _ in rest} == {0}


async def test_requests_without_permission_leave_room_for_those_with_it() -> None:
    async with console() as talk:
        talk.service.open = trio.Event()
        await talk.ask(view(opaque=1))  # under way: the others wait for it
        allowed = talk.config.remote_admin
        talk.config.remote_admin = Permission(("192.168.0.0/16",), (), legacy_codes=False)
        got = await talk.ask(*(view(opaque=number) for number in range(2, 2 * MAX_QUEUED)))
        assert {code for _, code, _, _ in got} == {NO_PERMISSION}, "at once: more than may wait"
        talk.config.remote_admin = allowed
        talk.client.sendall(change(opaque=1000))
        talk.wires.run()
        assert talk.wires.received(talk.client) == b"", "not refused: it waits for its turn"
        talk.service.open.set()
        rest = {opaque: code for opaque, code, _, _ in await talk.ask()}
        assert (rest[1], rest[1000]) == (0, 0)
        assert len(got) + len(rest) == 2 * MAX_QUEUED


async def test_a_fault_in_one_request_is_answered_and_the_next_is_done(caplog: pytest.LogCaptureFixture) -> None:
    async with console() as talk:
        talk.service.error = RuntimeError("a bug")
        ((_, code, remark, _),) = await talk.ask(view())
        assert (code, remark) == (1, "the gateway could not do this; its log says why")
        talk.service.error = None
        assert await talk.ask(view(opaque=2)) == [(2, 0, "", VIEWED)]
        assert "a bug" in caplog.text


async def test_a_client_that_has_gone_is_not_answered_and_its_change_is_made() -> None:
    async with console() as talk:
        talk.service.open = trio.Event()
        await talk.ask(change())
        for end in (talk.client, talk.broker):
            end.shutdown(socket.SHUT_RDWR)
        talk.wires.run()
        assert not talk.wires.sweeper.sessions
        talk.service.open.set()
        await wait_all_tasks_blocked()
        assert len(talk.service.told) == 1
