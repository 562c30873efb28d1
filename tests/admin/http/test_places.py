"""Places: who has one answer, who gives way, and who waits for whom (`places.py`). At 254c1b25 `/livez` was shut without a token."""

from __future__ import annotations

import resource
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from admin.http.first_look import FirstLook
from admin.http.parsing import Head, RequestRefusedError
from admin.http.peer import Peer
from admin.http.places import BURST, Claim, ConnectionPlaces
from admin.http.routing import Answer
from admin.http.server import MAX_ACCEPTS, ReceiveBody, Server
from common.descriptors import LEAST, WHOLE, share_of
from support.admin.admin_client import Control, control, everything, request

HERE, THERE = "127.0.0.1", "127.0.0.2"
POST = b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"
EXPECT = b"Expect: 100-continue\r\n"


def get(path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n".encode()


TOKEN = "Authorization: Bearer good\r\n"
LAST = "Connection: close\r\n"


class Port:
    """A server of few places. Requests of `/held/...` are worked on until `finish`."""

    def __init__(self, most: int, arriving: int) -> None:
        look = FirstLook(["/livez"], lambda head: head.headers["authorization"] == b"Bearer good")
        self.server = Server(self.respond, most=most, arriving=arriving, first_look=look)
        self.begun: list[str] = []
        self.held: dict[str, trio.Event] = {}
        self.listener: trio.SocketListener
        self.streams: list[trio.SocketStream] = []

    async def respond(self, head: Head | RequestRefusedError, receive: ReceiveBody, peer: Peer) -> Answer:
        if isinstance(head, RequestRefusedError):
            return Answer({}, head.status)
        peer.authenticated = "authorization" in head.headers
        self.begun.append(head.path)
        if head.path.startswith("/held/"):
            await self.held.setdefault(head.path, trio.Event()).wait()
        return Answer({"path": head.path, "body": (await receive(100)).decode() if head.has_body else ""})

    def finish(self, path: str) -> None:
        self.held.setdefault(path, trio.Event()).set()

    async def connect(self, address: str = HERE) -> trio.SocketStream:
        sock = trio.socket.socket()
        await sock.bind((address, 0))
        self.streams.append(trio.SocketStream(sock))
        await sock.connect(self.listener.socket.getsockname())
        return self.streams[-1]

    async def say(self, *said: bytes, address: str = HERE) -> trio.SocketStream:
        """A connection that has sent this."""
        stream = await self.connect(address)
        await stream.send_all(b"".join(said))
        return stream

    async def until_begun(self, *paths: str) -> None:
        """Wait until these requests are worked on."""
        with trio.fail_after(60):
            while Counter(paths) - Counter(self.begun):
                await trio.sleep(0.01)

    async def until_open(self, connections: int) -> None:
        """Wait until so many have been accepted in all."""
        with trio.fail_after(60):
            while self.server.counts.opened < connections:
                await trio.sleep(0.01)
        await wait_all_tasks_blocked(0.02)


@asynccontextmanager
async def port(most: int, arriving: int = 128) -> AsyncIterator[Port]:
    made = Port(most, arriving)
    listeners = await trio.open_tcp_listeners(0, host=HERE)
    made.listener = listeners[0]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.server.serve, listeners, 0.0)
        try:
            yield made
        finally:
            for stream in made.streams:
                stream.socket.close()
        nursery.cancel_scope.cancel()


async def answer(stream: trio.SocketStream) -> bytes:
    """One answer."""
    said = b""
    with trio.fail_after(60):
        while b"}" not in said:
            data = await stream.receive_some(65536)
            if not data:
                return said
            said += data
    return said


async def is_answered(stream: trio.SocketStream) -> bool:
    return (await answer(stream)).startswith(b"HTTP/1.1 200 ")


async def has_ended(stream: trio.SocketStream) -> bool:
    """Whether the server has closed it. What it has said before is read."""
    await trio.testing.wait_all_tasks_blocked(0.05)  # the server has done all that it will
    with trio.move_on_after(0.2):
        try:
            while await stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass
        return True
    return False


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is turned away because this machine is busy."""
    monkeypatch.setattr("admin.http.places.WAIT_S", 60.0, raising=False)


# ---- who gives way -----------------------------------------------------------------------------------------------------


async def test_strangers_whose_next_requests_are_there_give_way_after_their_first_answer() -> None:
    async with port(4) as open_port:
        asking = [await open_port.say(get(f"/first/{number}"), get(f"/held/{number}"), get("/more") * 50) for number in range(4)]
        await open_port.until_begun(*(f"/held/{number}" for number in range(4)))
        for _ in range(3):
            assert await is_answered(await open_port.say(get("/livez", LAST)))
        assert open_port.server.counts.turned_away == 0
        assert [await has_ended(stream) for stream in asking].count(True) == 1, "no more than are needed"


async def test_strangers_give_way_first_and_who_has_a_token_and_works_never() -> None:
    async with port(4) as open_port:
        works = await open_port.say(get("/held/works", TOKEN))
        await open_port.until_begun("/held/works")
        idle = await open_port.say(get("/token", TOKEN))
        assert await is_answered(idle)
        asks = await open_port.say(get("/stranger"), get("/held/next"))
        await open_port.until_begun("/held/next")
        stranger = await open_port.say(get("/idle"))
        assert await is_answered(stranger)
        gone = []
        for number in range(3):
            await open_port.say(get(f"/held/newcomer/{number}", TOKEN))
            await open_port.until_begun(f"/held/newcomer/{number}")
            others = {"stranger": stranger, "asks": asks, "idle": idle}
            gone += [name for name, stream in others.items() if name not in gone and await has_ended(stream)]
        assert gone == ["stranger", "asks", "idle"]
        open_port.finish("/held/works")
        assert await is_answered(works)


async def test_the_address_with_the_most_places_gives_way_first() -> None:
    async with port(4) as open_port:
        alone = await open_port.say(get("/alone"), address=THERE)
        assert await is_answered(alone)
        many = [await open_port.say(get("/many")) for _ in range(3)]
        for stream in many:
            assert await is_answered(stream)
        for _ in many:
            await open_port.say(get("/held/on", LAST))
        await open_port.until_begun(*["/held/on"] * len(many))
        assert [await has_ended(stream) for stream in many] == [True] * len(many)
        assert not await has_ended(alone), "though it was idle longest"


async def test_a_freed_place_goes_to_the_address_that_has_the_fewest() -> None:
    async with port(2) as open_port:
        for number in range(2):
            await open_port.say(get(f"/held/{number}", LAST))
        await open_port.until_begun("/held/0", "/held/1")
        waiting = [await open_port.say(get("/many", LAST)) for _ in range(10)]
        await open_port.until_open(12)
        other = await open_port.say(get("/other", LAST), address=THERE)
        await open_port.until_open(13)
        open_port.finish("/held/0")
        for stream in (other, *waiting):
            assert await is_answered(stream)
        assert open_port.begun[2] == "/other"


async def test_who_had_a_good_token_once_and_has_none_now_is_a_stranger(api: Control) -> None:
    stream = await api.connect()
    assert (await request(stream, "GET", "/v1/status", token=api.token())).status == 200
    (exchange,) = api.admin.server.open
    assert exchange.peer.authenticated
    assert (await request(stream, "GET", "/v1/status", token="revoked-since")).status == 401
    assert not exchange.peer.authenticated
    await stream.aclose()


# ---- newcomers ---------------------------------------------------------------------------------------------------------


async def test_newcomers_wait_for_first_answers_and_not_for_each_other() -> None:
    async with port(2) as open_port:
        for number in range(2):
            await open_port.say(get(f"/held/{number}", LAST))
        await open_port.until_begun("/held/0", "/held/1")
        waiting = [await open_port.say(get("/new", LAST)) for _ in range(40)]
        await open_port.until_open(42)
        open_port.finish("/held/1")
        for stream in waiting:
            assert await is_answered(stream)
        assert open_port.server.counts.turned_away == 0


@pytest.mark.parametrize("more", [b"", EXPECT], ids=["half a body", "Expect"])
async def test_half_bodies_of_strangers_hold_no_place_and_lose_nothing_by_it(more: bytes) -> None:
    async with port(2) as open_port:
        half = [await open_port.say(POST, more, b"\r\n", b"" if more else b"bo") for _ in range(6)]
        await open_port.until_begun(*["/body"] * 6)
        await wait_all_tasks_blocked(0.02)
        for _ in range(2):
            await open_port.say(get("/held/both", LAST))
        await open_port.until_begun("/held/both", "/held/both")
        open_port.finish("/held/both")
        for stream in half:
            await stream.send_all(b"body" if more else b"dy")
        for stream in half:
            said = await everything_until_body(stream)
            assert said.endswith(b'"body":"body"}'), said


async def everything_until_body(stream: trio.SocketStream) -> bytes:
    said = b""
    with trio.fail_after(60):
        while not said.endswith(b"}") and (data := await stream.receive_some(65536)):
            said += data
    return said


async def test_half_requests_of_the_address_with_the_most_give_way_where_newcomers_arrive() -> None:
    async with port(2, arriving=5) as open_port:
        other = await open_port.say(get("/other")[:-2], address=THERE)
        await open_port.until_open(1)
        half = []
        for number in range(8):
            half.append(await open_port.say(get("/half")[:-2]))
            await open_port.until_open(2 + number)
        assert [await has_ended(stream) for stream in half] == [True] * 4 + [False] * 4, "the oldest first"
        assert await is_answered(await open_port.say(get("/livez", LAST)))
        await other.send_all(b"\r\n")
        assert await is_answered(other)


async def test_a_newcomer_that_has_not_spoken_yet_is_not_closed_for_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be an operator at the address of an attack: its head shows the token."""
    monkeypatch.setattr("admin.http.places.SLOW_S", 60.0)
    async with port(1, arriving=4) as open_port:
        await open_port.say(get("/held/first", LAST))
        await open_port.until_begun("/held/first")
        for number in range(3):
            await open_port.say(get("/waits", LAST))
            await open_port.until_open(2 + number)
        silent = await open_port.connect()
        await open_port.until_open(5)
        for number in range(6):
            await open_port.say(get("/waits", LAST))
            await open_port.until_open(6 + number)
        await silent.send_all(get("/operator", TOKEN + LAST))
        await wait_all_tasks_blocked(0.02)
        open_port.finish("/held/first")
        assert await is_answered(silent)
        assert open_port.begun[1] == "/operator"


async def test_when_too_many_whole_requests_wait_those_of_the_address_with_the_most_are_told() -> None:
    async with port(1, arriving=3) as open_port:
        await open_port.say(get("/held/first", LAST))
        await open_port.until_begun("/held/first")
        waiting = [await open_port.say(get(f"/waits/{number}", LAST)) for number in range(3)]
        await open_port.until_open(4)
        waiting.append(await open_port.say(get("/more", LAST)))
        await open_port.until_open(5)
        other = await open_port.say(get("/other", LAST), address=THERE)
        await open_port.until_open(6)
        open_port.finish("/held/first")
        assert await is_answered(other)
        told = [(await everything(stream))[9:12] for stream in waiting]
        assert told == [b"200", b"200", b"503", b"503"], "the last in line"


async def test_operators_in_number_keep_out_neither_one_at_another_address_nor_a_probe() -> None:
    async with port(2, arriving=5) as open_port:
        for number in range(2):
            await open_port.say(get(f"/held/{number}", TOKEN + LAST))
            await open_port.until_begun(f"/held/{number}")
        many = []
        for number in range(5):
            many.append(await open_port.say(get("/many", TOKEN + LAST)))
            await open_port.until_open(3 + number)
        probe = await open_port.say(get("/livez", LAST), address=THERE)
        await open_port.until_open(8)
        other = await open_port.say(get("/other", TOKEN + LAST), address=THERE)
        await open_port.until_open(9)
        assert (await everything(await open_port.say(get("/more", TOKEN)))).startswith(b"HTTP/1.1 503 "), "most of its own address"
        open_port.finish("/held/0")
        assert await is_answered(probe)
        assert await is_answered(other)
        assert open_port.begun[2] == "/livez"
        assert "/other" in open_port.begun[3:5]
        told = [(await everything(stream))[9:12] for stream in many]
        assert told == [b"200"] * 3 + [b"503"] * 2


# ---- seats -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def seats_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that is not done keeps its seat."""
    monkeypatch.setattr("admin.http.places.SEAT_S", 60.0)


async def take_seats(open_port: Port) -> list[str]:
    """Requests of strangers that are worked on until they are told to finish, and twenty that wait behind them."""
    held = [f"/held/{number}" for number in range(open_port.server.places.seats[Claim.STRANGER].most)]
    for path in held:
        await open_port.say(get(path, LAST))
        await open_port.until_begun(path)
    for _ in range(20):
        await open_port.say(get("/waits", LAST))
    await open_port.until_open(len(held) + 20)
    return held


@pytest.mark.usefixtures("seats_for_good")
async def test_few_requests_of_strangers_are_worked_on_at_once_and_addresses_take_turns() -> None:
    async with port(64) as open_port:
        held = await take_seats(open_port)
        assert open_port.begun == held
        other = await open_port.say(get("/other", LAST), address=THERE)
        await open_port.until_open(len(held) + 21)
        open_port.finish(held[0])
        assert await is_answered(other)
        assert open_port.begun[: len(held) + 1] == [*held, "/other"]


@pytest.mark.usefixtures("seats_for_good")
async def test_requests_with_a_good_token_wait_for_no_seat() -> None:
    async with port(64) as open_port:
        held = await take_seats(open_port)
        assert await is_answered(await open_port.say(get("/token", TOKEN)))
        assert open_port.begun == [*held, "/token"]


@pytest.mark.usefixtures("seats_for_good")
async def test_probes_have_seats_of_their_own() -> None:
    async with port(64) as open_port:
        held = await take_seats(open_port)
        assert await is_answered(await open_port.say(get("/livez", LAST)))
        assert open_port.begun == [*held, "/livez"]


async def test_work_that_takes_long_leaves_its_seat_to_another() -> None:
    async with port(64) as open_port:
        held = await take_seats(open_port)
        await open_port.until_begun(*held, *["/waits"] * 20)
        assert not open_port.held[held[0]].is_set()


async def test_the_line_is_served_as_clients_reset_close_half_close_and_drip() -> None:
    async with port(4) as open_port:
        for _ in range(40):
            reset = await open_port.say(get("/livez") * 3)
            reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            reset.socket.close()
            (await open_port.say(get("/waits") * 3)).socket.close()
            await (await open_port.say(get("/waits") * 3)).send_eof()
            await open_port.say(get("/livez")[:10])
        await open_port.until_open(160)
        for path in ("/livez", "/stranger"):
            assert await is_answered(await open_port.say(get(path, LAST), address=THERE))
        assert await is_answered(await open_port.say(get("/operator", TOKEN)))
        for stream in open_port.streams:
            stream.socket.close()
        with trio.fail_after(60):
            while len(open_port.server.places):
                await trio.sleep(0.01)
        places = open_port.server.places
        assert not any(places._lines.values())
        assert not any(seats.taken for seats in places.seats.values())


async def test_requests_of_strangers_begin_at_a_pace_after_a_burst_and_first_ones_before_all_others(autojump_clock: MockClock) -> None:
    places: ConnectionPlaces[Comer] = ConnectionPlaces(1000, 1000)
    seats = places.seats[Claim.STRANGER]
    began: list[tuple[str, float]] = []
    started = trio.current_time()

    async def ask(name: str, comer: Comer) -> None:
        assert await places.enter(comer)
        began.append((name, trio.current_time() - started))
        places.leave_seat(comer)

    def arrived() -> Comer:
        comer = Comer(0.0)
        assert places.arrive(comer)
        return comer

    async with trio.open_nursery() as nursery:
        nursery.start_soon(places.run)
        answered = [arrived() for _ in range(BURST)]
        for comer in answered:
            await ask("burst", comer)
        assert began[-1][1] == 0, "a burst waits for nothing"
        began.clear()
        for comer in answered[:20]:
            nursery.start_soon(ask, "later", comer)
        await wait_all_tasks_blocked()
        for _ in range(5):
            nursery.start_soon(ask, "first", arrived())
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert [name for name, _ in began].index("first") + 5 <= 8, "one or two began before they came"
    assert {name for name, _ in began[8:]} == {"later"}
    assert began[-1][1] == pytest.approx(25 * seats.pace_s, abs=2 * seats.pace_s)


async def test_many_connections_are_accepted_between_two_turns_of_the_event_loop() -> None:
    """With one in each, a newcomer waits in the kernel for as many turns as others came before it; under load one takes 4 ms."""
    async with port(64) as open_port:
        clients = [socket.create_connection(open_port.listener.socket.getsockname()) for _ in range(3 * MAX_ACCEPTS)]
        turns = 0
        while open_port.server.counts.opened < len(clients):
            await trio.lowlevel.checkpoint()
            turns += 1
            assert turns < len(clients)
        for client in clients:
            client.close()


async def test_the_ports_hold_their_share_of_the_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they may hold is what `gateway/admission.py` leaves free of clients: both have it from `common/descriptors.py`."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    share = share_of(1024)
    async with control(tmp_path) as api:
        servers = (api.admin.server, api.admin.probes)
        held = [(server.most, server.places.most, server.places.most_arriving) for server in servers]
        assert held == [(share.connections, share.connections, share.arriving), (share.probes, share.probes, share.arriving)]
        assert api.admin.hub._most == share.streams
        api.stop.cancel()
    assert (share_of(resource.RLIM_INFINITY), share_of(100_000)) == (WHOLE, WHOLE)
    assert (set(share_of(64)), share.total <= 1024 // 4) == ({LEAST}, True)


class Comer:
    """A connection without a token."""

    def __init__(self, since: float) -> None:
        self.address = HERE
        self.since = since
        self.scope = trio.CancelScope()

    def rank(self, now: float) -> int | None:
        del now
        return None


async def test_a_connection_that_gave_way_while_its_request_became_whole_waits_in_no_line() -> None:
    """Under load the whole port was shut for a second: the next to come looked for it among those that arrive (KeyError)."""
    places: ConnectionPlaces[Comer] = ConnectionPlaces(1, 2)
    working, oldest, ready, newcomer = (Comer(float(number)) for number in range(4))
    assert places.arrive(working)
    assert await places.enter(working)
    assert places.arrive(oldest)
    assert places.arrive(ready)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(places.enter, ready)
        await wait_all_tasks_blocked()
        assert places.arrive(newcomer)  # the oldest without a whole request gives way
        assert oldest.scope.cancel_called
        nursery.start_soon(places.enter, oldest)  # its request has become whole meanwhile
        nursery.start_soon(places.enter, newcomer)
        await wait_all_tasks_blocked()
        other = Comer(5.0)
        other.address = THERE
        assert places.arrive(other)
        assert len(places) == 3
        nursery.cancel_scope.cancel()


async def test_a_connection_that_ends_or_waits_for_its_body_leaves_its_seat() -> None:
    places: ConnectionPlaces[Comer] = ConnectionPlaces(4, 4)
    ends, waits = Comer(0.0), Comer(1.0)
    for comer in (ends, waits):
        assert places.arrive(comer)
        assert await places.enter(comer)
    places.leave(ends)
    places.step_back(waits)
    assert not places.seats[Claim.STRANGER].taken
    assert len(places) == 1
