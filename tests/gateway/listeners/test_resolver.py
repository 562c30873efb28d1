"""Names have threads of their own: a resolver that hangs keeps those waiting who want that name."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
import trio
import trio.testing

from gateway.listeners.resolver import THREADS_PER_NAME, Resolver

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 5672))]
ASKERS = 60  # more than the threads that trio gives to all blocking calls together


async def test_a_name_that_hangs_takes_neither_another_names_threads_nor_those_of_other_blocking_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    asking: list[str] = []

    def getaddrinfo(host: bytes, *rest: Any) -> Any:
        if rest[-1] & socket.AI_NUMERICHOST:  # trio asks so first, on the loop
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        asking.append(host.decode())
        if host == b"hangs.test":
            answered.wait()
        return FOUND

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    trio.socket.set_custom_hostname_resolver(Resolver())
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(ASKERS):
                nursery.start_soon(trio.socket.getaddrinfo, "hangs.test", 5672)
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(20):
                assert await trio.socket.getaddrinfo("well.test", 5672) == FOUND
                assert await trio.to_thread.run_sync(lambda: 7) == 7
            assert asking.count("hangs.test") <= THREADS_PER_NAME
            nursery.cancel_scope.cancel()
    finally:
        answered.set()


async def test_who_gives_up_is_not_kept_and_the_next_gets_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def getaddrinfo(*asked: Any) -> Any:
        if asked[-1] & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        answered.wait()
        return FOUND

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    trio.socket.set_custom_hostname_resolver(Resolver())
    for _ in range(2 * THREADS_PER_NAME):
        with trio.move_on_after(0.05) as waiting:
            await trio.socket.getaddrinfo("hangs.test", 5672)
        assert waiting.cancelled_caught
    answered.set()
    with trio.fail_after(20):
        assert await trio.socket.getaddrinfo("hangs.test", 5672) == FOUND
