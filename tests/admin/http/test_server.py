"""The server: connections, deadlines, bounds, and shutdown that waits for nobody."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from admin.http.exchange import Deadlines
from admin.http.parsing import Head, RequestRefusedError
from admin.http.peer import Peer
from admin.http.routing import Answer
from admin.http.server import ReceiveBody, Server
from common import loop_turns
from support.admin.admin_client import Control, control, everything, request

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def answer_ok(head: Head | RequestRefusedError, receive: ReceiveBody, peer: Peer) -> Answer:
    if isinstance(head, RequestRefusedError):
        return Answer({"refused": head.detail}, head.status)
    try:
        body = await receive(100) if head.has_body else b""
    except RequestRefusedError as refused:
        return Answer({"refused": refused.detail}, refused.status)
    return Answer({"method": head.method, "path": head.path, "body": body.decode(), "address": peer.address})


def statuses(said: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", said)]


# ---- on wires in memory, on a clock of their own -----------------------------------------------------------------------


async def converse(sent: list[bytes | float], deadlines: Deadlines | None = None) -> bytes:
    """Attend to a client that sends bytes and waits seconds, as listed; everything it is told."""
    server = Server(answer_ok, deadlines)
    client, served = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.attend, served)
        for step in sent:
            if isinstance(step, float):
                await trio.sleep(step)
            else:
                await client.send_all(step)
        return await everything_of(client)


async def everything_of(client: trio.abc.ReceiveStream) -> bytes:
    found = b""
    while data := await client.receive_some():
        found += data
    return found


async def test_requests_on_one_connection_are_answered_in_their_order(autojump_clock: MockClock) -> None:
    said = await converse([GET.replace(b"livez", b"one") + GET.replace(b"livez", b"two"), GET.replace(b"livez", b"three")])
    assert [said.index(name) for name in (b"/one", b"/two", b"/three")] == sorted(
        said.index(name) for name in (b"/one", b"/two", b"/three")
    )
    assert statuses(said) == [200, 200, 200]


async def test_a_pipelined_request_is_looked_at_as_strictly_as_the_first(autojump_clock: MockClock) -> None:
    smuggled = b"GET /smuggled HTTP/1.1\nHost: a\n\n"
    said = await converse([b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" + smuggled + GET])
    assert statuses(said) == [200, 400]
    assert b"smuggled" not in said


async def test_a_request_byte_by_byte_is_the_same_request(autojump_clock: MockClock) -> None:
    chunked = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    said = await converse([chunked[at : at + 1] for at in range(len(chunked))])
    assert statuses(said) == [200]
    assert b'"body":"abcde"' in said


async def test_a_head_that_does_not_come_ends_the_connection(autojump_clock: MockClock) -> None:
    started = trio.current_time()
    assert await converse([]) == b""
    assert trio.current_time() - started == pytest.approx(5, abs=0.1)


async def test_a_head_that_trickles_is_cut_off(autojump_clock: MockClock) -> None:
    assert statuses(await converse([GET[:10], 4.0, GET[10:12], 2.0])) == [408]


async def test_a_body_that_trickles_is_cut_off(autojump_clock: MockClock) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
    assert statuses(await converse([head, b"a", 4.0, b"b", 4.0, b"c", 3.0])) == [408]


async def test_a_connection_may_be_idle_for_a_minute_between_requests(autojump_clock: MockClock) -> None:
    assert statuses(await converse([GET, 55.0, GET])) == [200, 200]
    started = trio.current_time()
    assert statuses(await converse([GET])) == [200]
    assert trio.current_time() - started == pytest.approx(60, abs=0.1)


async def test_the_body_is_asked_for_before_it_is_sent(autojump_clock: MockClock) -> None:
    said = await converse(
        [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", 0.1, b"hi"]
    )
    assert statuses(said) == [100, 200]


async def test_an_announced_body_over_the_bound_is_not_read(autojump_clock: MockClock) -> None:
    said = await converse([b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n"])
    assert statuses(said) == [413]


async def test_a_chunked_body_over_the_bound_is_cut_off(autojump_clock: MockClock) -> None:
    said = await converse([b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"65\r\n" + b"a" * 101 + b"\r\n"])
    assert statuses(said) == [413]


async def test_head_requests_get_no_body(autojump_clock: MockClock) -> None:
    said = await converse([GET.replace(b"GET", b"HEAD"), GET])
    assert statuses(said) == [200, 200]
    assert said.count(b'"method"') == 1


async def test_a_refused_head_request_gets_a_head_without_a_body(api: Control, caplog: pytest.LogCaptureFixture) -> None:
    """Its problem was written behind a head that takes no body, which h11 refused: there was no answer at all."""
    answer = await api.say(b"HEAD /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\nx")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\n")
    for raw in (b"HEAD /livez HTTP/1.1\r\nHost: a\r\n Folded: b\r\n\r\n", b"HEAD /livez HTTP/1.1\r\n: b\r\n\r\n"):
        assert (await api.say(raw)).startswith(b"HTTP/1.1 400 ")
    assert "admin_connection_failed" not in [record.message for record in caplog.records]


async def test_http_1_0_is_answered_and_closed(autojump_clock: MockClock) -> None:
    said = await converse([b"GET / HTTP/1.0\r\n\r\n"])
    assert statuses(said) == [200]
    assert b"Connection: close" in said


async def test_a_handler_that_fails_ends_its_connection_only(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(head: Head | RequestRefusedError, receive: ReceiveBody, peer: Peer) -> Answer:
        raise RuntimeError("a fault of ours")

    server = Server(fail)
    client, served = memory_stream_pair()
    await client.send_all(GET)
    await server.attend(served)
    assert await everything_of(client) == b""
    assert [record.message for record in caplog.records] == ["admin_connection_failed"]
    assert not server.open


# ---- on sockets --------------------------------------------------------------------------------------------------------


async def test_many_requests_on_one_connection(api: Control) -> None:
    async with await api.connect() as stream:
        for _ in range(20):
            assert (await request(stream, "GET", "/livez")).status == 200


async def test_bodies_up_to_256_kib_are_taken_and_no_more(api: Control) -> None:
    path = "/v1/limits/rocketmq/orders?force=1"
    fits = b'{"messages": "5/s", "reason": "' + b"a" * (256 * 1024 - 33) + b'"}'
    assert len(fits) == 256 * 1024
    assert (await api.ask("PUT", path, fits)).status == 200
    assert (await api.ask("PUT", path, fits + b" ")).status == 413


async def test_a_long_head_is_431(api: Control) -> None:
    said = await api.say(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000)
    assert statuses(said) == [431]
    assert b"application/problem+json" in said


async def test_every_answer_has_the_security_headers(api: Control) -> None:
    for path in ("/livez", "/v1/status", "/nothing", "/metrics"):
        headers = (await api.ask("GET", path)).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert len(headers["x-request-id"]) == 16
        assert not [name for name in headers if name.startswith("access-control")]


async def test_an_idle_connection_gives_way_when_all_places_are_taken(api: Control) -> None:
    async with trio.open_nursery() as nursery:
        idle = [await api.connect() for _ in range(64)]
        for stream in idle:
            assert (await request(stream, "GET", "/livez")).status == 200
        async with await api.connect() as late:
            assert (await request(late, "GET", "/livez")).status == 200
        assert await everything(idle[0]) == b""  # the one that was idle longest
        assert (await request(idle[1], "GET", "/livez")).status == 200
        nursery.cancel_scope.cancel()
    for stream in idle:
        await trio.aclose_forcefully(stream)


async def test_half_sent_requests_do_not_keep_others_out(api: Control) -> None:
    """At 585f47f 64 of them shut the API without a token: 115 of 116 good requests got 503, probes too."""
    half = [await api.connect() for _ in range(64)]
    for stream in half:
        await stream.send_all(GET[:10])
    for _ in range(5):
        assert (await api.ask("GET", "/livez", role=None)).status == 200
        assert (await api.ask("GET", "/v1/status")).status == 200
    assert b"sluice_admin_connections_refused_total 0\n" in await own_metrics(api)
    for stream in half:
        await trio.aclose_forcefully(stream)


async def test_half_sent_requests_go_on_being_sent_and_good_ones_get_through(api: Control) -> None:
    """More and more half requests, as fast as they can be sent, beside good requests one after the other."""
    answered: list[int] = []

    async def flood() -> None:
        held: list[trio.SocketStream] = []
        try:
            while True:
                stream = await api.connect()
                held.append(stream)
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(GET[: len(held) % 20])
                if len(held) > 150:
                    await trio.aclose_forcefully(held.pop(0))
        finally:
            for stream in held:
                stream.socket.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood)
        for _ in range(20):
            try:
                answered.append((await api.ask("GET", "/readyz", role=None)).status)
            except trio.BrokenResourceError:
                answered.append(0)
        nursery.cancel_scope.cancel()
    assert answered.count(200) >= 15, answered


async def test_half_sent_bodies_do_not_keep_others_out(api: Control) -> None:
    """Whoever has a token may be slow with its body, and loses its place when it is needed."""
    head = f"PUT /v1/limits/rocketmq/x?force=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token()}\r\n"
    half = [await api.connect() for _ in range(64)]
    for stream in half:
        await stream.send_all(f"{head}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{".encode())
    for _ in range(3):
        assert (await api.ask("GET", "/livez", role=None)).status == 200
    assert api.store.revision == 0
    for stream in half:
        await trio.aclose_forcefully(stream)


async def test_answers_that_nobody_takes_do_not_keep_others_out(tmp_path: Path) -> None:
    async with control(tmp_path, deadlines=Deadlines(write=60)) as api:
        stalled = [await stalled_reader(api) for _ in range(64)]
        with trio.fail_after(30):
            while True:
                with suppress(trio.BrokenResourceError):
                    if (await api.ask("GET", "/livez", role=None)).status == 200:
                        break
                await trio.sleep(0.1)
        for client in stalled:
            client.close()


async def test_a_burst_is_served_in_whole(api: Control) -> None:
    """More clients at once than there are places: each gets its answer."""
    answered: list[int] = []

    async def one() -> None:
        answered.append((await api.ask("GET", "/livez", role=None)).status)

    async with trio.open_nursery() as nursery:
        for _ in range(120):
            nursery.start_soon(one)
    assert answered == [200] * 120


async def test_when_all_places_are_worked_for_a_newcomer_is_turned_away() -> None:
    work = trio.Event()

    async def respond(head: Head | RequestRefusedError, receive: ReceiveBody, peer: Peer) -> Answer:
        await work.wait()
        return await answer_ok(head, receive, peer)

    server = Server(respond, most=3)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(server.serve, listeners, 1.0)
        streams = [await trio.testing.open_stream_to_socket_listener(listeners[0]) for _ in range(3)]
        for stream in streams:
            await stream.send_all(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        with trio.fail_after(60):
            while server.counts.opened < 3:
                await trio.sleep(0.01)
        late = await trio.testing.open_stream_to_socket_listener(listeners[0])
        assert statuses(await everything(late)) == [503]
        assert server.counts.turned_away == 1
        work.set()
        for stream in streams:
            assert statuses(await everything(stream)) == [200]
        for stream in (*streams, late):
            await stream.aclose()
        nursery.cancel_scope.cancel()


async def stalled_reader(api: Control) -> socket.socket:
    """A client that asks for more than the sockets' buffers hold, and reads none of it."""
    api.gateway.metric_pieces = [f"# {'x' * 10_000}\n"] * 2_000
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(api.address)
    client.sendall(f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token()}\r\n\r\n".encode())
    await trio.to_thread.run_sync(client.recv, 10)  # the answer has begun
    return client


async def test_a_reader_that_stalls_does_not_hold_shutdown(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with control(tmp_path, grace=0.2) as api:
            client = await stalled_reader(api)
            await trio.sleep(0.1)
            started = trio.current_time()
        assert trio.current_time() - started < 1
    client.close()


async def test_a_reader_that_stalls_is_cut_off(tmp_path: Path) -> None:
    async with control(tmp_path, deadlines=Deadlines(write=0.1)) as api:
        client = await stalled_reader(api)
        with trio.fail_after(30):
            while b"\nsluice_admin_slow_readers_total 1\n" not in await own_metrics(api):
                await trio.sleep(0.02)
        client.close()


async def own_metrics(api: Control) -> bytes:
    api.gateway.metric_pieces = []
    return (await api.ask("GET", "/metrics")).body


async def test_a_request_under_way_is_finished_at_shutdown(tmp_path: Path) -> None:
    async with control(tmp_path, grace=2.0) as api:
        stream = await api.connect()
        body = b'{"messages": "77/s"}'
        head = f"PUT /v1/limits/rocketmq/orders?force=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token()}\r\n"
        await stream.send_all(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        await trio.testing.wait_all_tasks_blocked(0.05)

        async def finish() -> None:
            await trio.sleep(0.1)
            await stream.send_all(body)

        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                api.stop.cancel()
                nursery.start_soon(finish)
                said = await everything(stream)
                await stream.aclose()
        assert statuses(said) == [200]
        assert api.store.revision == 1


async def test_idle_connections_end_at_shutdown(tmp_path: Path) -> None:
    async with control(tmp_path, grace=5.0) as api:
        stream = await api.connect()
        assert (await request(stream, "GET", "/livez")).status == 200
        started = trio.current_time()
    assert trio.current_time() - started < 1
    await trio.aclose_forcefully(stream)


async def test_metrics_give_the_loop_turns_in_between(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape of many pieces must not keep other tasks waiting until it is rendered. No turn is so long that it makes more at once."""
    monkeypatch.setattr(loop_turns, "LONG_TURN_S", float("inf"))
    seen: list[int] = []
    counting = 0

    def pieces(others: object) -> Iterator[str]:
        del others
        nonlocal counting
        for counting in range(200):  # noqa: B007
            yield "# piece\n"

    api.gateway.metrics = pieces  # type: ignore[method-assign]

    async def watch() -> None:
        while True:
            seen.append(counting)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        assert (await api.ask("GET", "/metrics")).body.count(b"# piece\n") == 200
        nursery.cancel_scope.cancel()
    assert len(set(seen)) > 100


async def test_a_scrape_that_fails_half_way_is_visibly_cut_short(api: Control) -> None:
    def pieces(others: object) -> Iterator[str]:
        del others
        yield "x" * 100_000
        raise RuntimeError("a fault of ours")

    api.gateway.metrics = pieces  # type: ignore[method-assign]
    said = await api.say(f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token()}\r\n\r\n".encode())
    assert statuses(said) == [200]
    assert not said.endswith(b"0\r\n\r\n")


OFFERS = {
    "h2c, as Java's client does": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
    "a websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "settings alone": b"HTTP2-Settings: AAM\r\n",
}


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS.keys())
async def test_an_offer_to_upgrade_is_answered_as_http_1_1(api: Control, offer: bytes) -> None:
    """The JDK's HTTP client offers h2c by default; at 585f47f it got 400 for every request."""
    get = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + offer + b"\r\n"
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    said = await api.say(get + get.replace(b"\r\n\r\n", b"\r\nX: 1\r\n\r\n") + last)
    assert said.count(b"HTTP/1.1 200 ") == 3, said
    body = b'{"messages": "5/s"}'
    head = f"PUT /v1/limits/rocketmq/x?force=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token()}\r\n"
    framing = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    said = await api.say(head.encode() + framing.encode() + offer + b"\r\n" + body + last)
    assert said.count(b"HTTP/1.1 200 ") == 2, said


@pytest.mark.parametrize(
    "body", [b'{"reason": "\xff"}', b'{"\xff": 1}', b'{"reason": "\\ud800"}', b'{"reason": "\xed\xa0\x80"}', b"\xff", b'{"a']
)
async def test_a_body_that_is_no_json_text_is_400(api: Control, body: bytes) -> None:
    """Invalid UTF-8 inside a string was 500 with a traceback in the log."""
    for method, path in (
        ("PUT", "/v1/limits/rocketmq/x?force=1"),
        ("PUT", "/v1/rules/orders?force=1"),
        ("POST", "/v1/drain"),
        ("POST", "/v1/config:reload"),
        ("PUT", "/v1/quotas?force=1"),
        ("POST", "/v1/history/0:rollback?force=1"),
    ):
        answer = await api.ask(method, path, body)
        assert answer.status in (400, 422), (path, answer.body)
        assert "Traceback" not in answer.body.decode()
