"""Listeners that are opened for the brokers of a name server, on real ports of loopback."""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import trio

from config import load
from config.addresses import Address
from gateway.listeners.broker_listeners import UNNAMED_S, BrokerListeners, brokers_of, steady_clock
from gateway.listeners.broker_ports import BrokerPort, BrokerPortsFile
from gateway.listeners.factory import apply_tls, listeners_of, read_tls, with_derived
from gateway.listeners.listener import Arrival, Listener
from gateway.listeners.vip_ports import open_vip, with_vip
from gateway.pipeline.routes import RouteError
from gateway.systemd import Inheritance
from gateway.transport.trusted_proxies import TrustedProxies
from support.brokers.name_servers import port_range
from support.processes import HANG_S, LOOPBACK, is_free
from support.tls import NAME, Authority

ONE, TWO, THREE = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


class House:
    """A name server's listener and the ports of its brokers; what a gateway would do with them, done by hand."""

    def __init__(self, directory: Path, ports: str, more: str = "", others: str = "") -> None:
        file = directory / "sluice.yaml"
        file.write_text(
            "gateway: {state_directory: state}\nrules: [{name: a, limit: {messages: 1/s}}]\nlisteners:\n"
            f"  - {{name: names, protocol: rocketmq-nameserver, bind: 127.0.0.1:0, upstream: 127.0.0.1:9, broker_ports: {ports}{more}}}\n"
            + others
        )
        self.settings = load(file)
        self.settings.gateway.state_directory.mkdir(exist_ok=True)
        self.now = 1_000_000.0
        self.listening = listeners_of(self.settings)
        for listener in self.listening.values():
            listener.open()
        entry = self.settings.listeners[0]
        self.brokers = BrokerListeners(
            entry, self.listening["names"], self.listening, self.settings.gateway.state_directory, lambda: self.now
        )
        self.brokers.write_wait_s = HANG_S  # what is written is read at once
        self.attended: list[str] = []
        self.wanted: dict[str, Callable[[], bool]] = {}  # whether it is to be probed
        self.dismissed: list[str] = []

    def attend(self, listener: Listener, wanted: Callable[[], bool]) -> Callable[[], None]:
        self.attended.append(listener.name)
        self.wanted[listener.name] = wanted

        def dismiss() -> None:
            self.dismissed.append(listener.name)
            listener.close()

        return dismiss

    def begin(self) -> House:
        self.brokers.restore()
        self.brokers.begin(self.attend)
        return self

    def close(self) -> None:
        for listener in self.listening.values():
            listener.close()

    @property
    def file(self) -> Path:
        return self.settings.gateway.state_directory / "broker-ports.names.json"

    def kept(self) -> dict[str, int]:
        """What the file says: `broker/id` -> port."""
        return {f"{one['broker']}/{one['id']}": one["port"] for one in json.loads(self.file.read_text())["brokers"]}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """Makes houses, each in its own directory unless told."""
    built: list[House] = []

    def build(count: int = 40, *, directory: Path = tmp_path, first: int = 0, **more: str) -> House:
        begin = first or port_range(count)[0]
        built.append(House(directory, f"{begin}-{begin + count - 1}", **more))
        return built[-1].begin()

    yield build
    for each in built:
        each.close()


def first_port(one: House) -> int:
    return one.brokers.ports[0]


# ---- finding -----------------------------------------------------------------------------------------------------------


def test_a_broker_gets_a_listener_of_its_own_which_is_open_at_once(house: Callable[..., House]) -> None:
    one = house()
    first = first_port(one)
    assert one.brokers.find("broker-a", 0, ONE) == f"127.0.0.1:{first}"
    listener = one.listening["names/broker-a/0"]
    assert (listener.protocol, listener.address, listener.upstreams.text) == ("rocketmq", (LOOPBACK, first), "10.0.0.1:10911")
    assert one.attended == ["names/broker-a/0"]
    socket.create_connection((LOOPBACK, first), timeout=5).close()


def test_master_slave_and_another_broker_have_ports_of_their_own_and_keep_them(house: Callable[..., House]) -> None:
    one = house()
    asked = [("broker-a", 0, ONE), ("broker-a", 1, TWO), ("broker-b", 0, THREE)]
    found = [one.brokers.find(*each) for each in asked]
    assert len(set(found)) == 3
    assert [one.brokers.find(*each) for each in asked] == found
    assert one.attended == ["names/broker-a/0", "names/broker-a/1", "names/broker-b/0"]
    assert [listener.config.broker_id for listener in one.brokers.opened.values()] == [0, 1, 0]


def test_two_below_a_brokers_port_is_never_another_brokers(house: Callable[..., House]) -> None:
    """Clients with the VIP channel on dial there."""
    one = house(10)
    ports = {int(one.brokers.find("b", number, f"10.0.0.{number + 1}:1").rpartition(":")[2]) for number in range(6)}
    assert len(ports) == 6
    assert ports.isdisjoint({port - 2 for port in ports})


def test_settings_are_those_of_the_name_servers_listener(house: Callable[..., House]) -> None:
    one = house(
        more=", max_connections: 7, max_connections_per_address: 3, handshake_timeout: 2s, idle_timeout: 5min, max_frame: 1MiB,"
        " send_proxy_protocol: v2, accept_proxy_protocol: true, trusted_proxies: [10.0.0.5]"
    )
    one.brokers.find("broker-a", 0, ONE)
    listener, names = one.listening["names/broker-a/0"], one.listening["names"]
    assert listener.admission.limits == names.admission.limits
    assert listener.admission.slots is names.admission.slots
    assert (listener.config.handshake_ns, listener.config.idle_ns, listener.config.max_frame) == (2_000_000_000, 300_000_000_000, 1 << 20)
    assert listener.trusted_proxies == names.trusted_proxies == TrustedProxies(["10.0.0.5"])
    assert (listener.accept_proxy, listener.upstreams.send_proxy, listener.config.sends_proxy) == (True, True, True)


def test_advertise_is_what_routes_say(house: Callable[..., House]) -> None:
    one = house(more=", advertise: gateway.example")
    assert one.brokers.find("broker-a", 0, ONE) == f"gateway.example:{first_port(one)}"
    assert one.brokers.find_known(ONE) == f"gateway.example:{first_port(one)}"
    assert one.brokers.find_known(TWO) == ""


def test_an_ipv6_address_stands_in_brackets(house: Callable[..., House]) -> None:
    one = house(more=', advertise: "::1"')
    assert one.brokers.find("broker-a", 0, ONE) == f"[::1]:{first_port(one)}"


def test_a_port_that_somebody_else_has_is_passed_over(house: Callable[..., House]) -> None:
    one = house()
    with closing(socket.create_server((LOOPBACK, first_port(one)))):
        assert one.brokers.find("broker-a", 0, ONE) == f"127.0.0.1:{one.brokers.ports[1]}"


def test_systemds_sockets_are_taken_for_brokers_that_are_known_and_for_those_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systemd holds its ports for ever: none of them could be bound."""
    first, last = port_range(4)
    held = [socket.create_server((LOOPBACK, port)) for port in (first, first + 1)]
    before = House(tmp_path, f"{first}-{last}")
    BrokerPortsFile(before.file.parent, "names").write([BrokerPort(("broker-a", 0), first + 1, ONE, before.now)])
    inheritance = Inheritance([("sluice.socket", sock.dup()) for sock in held])
    try:
        before.brokers.restore(inheritance)
        before.brokers.begin(before.attend)
        assert repr(inheritance) == "<Inheritance 0 left: >"
        assert before.brokers.find("broker-a", 0, ONE) == f"127.0.0.1:{first + 1}"
        assert before.brokers.find("broker-b", 0, TWO) == f"127.0.0.1:{first}"
        assert [before.listening[f"names/{name}/0"].inherited for name in ("broker-a", "broker-b")] == [True, True]
        unasked = Mock(side_effect=AssertionError("the kernel is asked where another port's listener is"))
        monkeypatch.setattr(before.listening["names/broker-b/0"], "addresses", unasked)
        with pytest.raises(RouteError, match="loop"):
            before.brokers.find("broker-c", 0, f"127.0.0.1:{first + 1}")
    finally:
        before.close()
        for sock in held:
            sock.close()


# ---- the VIP channel ---------------------------------------------------------------------------------------------------


def test_two_below_its_port_a_brokers_listener_takes_clients_as_well(house: Callable[..., House]) -> None:
    one = house()
    one.brokers.find("broker-a", 0, ONE)
    listener = one.listening["names/broker-a/0"]
    first = first_port(one)
    assert listener.addresses() == [(LOOPBACK, first), (LOOPBACK, first - 2)]
    arrived: list[Arrival] = []

    async def both_ports() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.accept_forever, lambda _, arrival: arrived.append(arrival))
            streams = [await trio.open_tcp_stream(LOOPBACK, port) for port in (first, first - 2, first - 2)]
            while listener.opened < 3:
                await trio.sleep(0.01)
            for stream in streams:
                await stream.aclose()
            nursery.cancel_scope.cancel()

    trio.run(both_ports)
    assert (listener.opened, listener.active + listener.arriving) == (3, 0), "one listener, one account"
    listener.close()
    assert [is_free(LOOPBACK, port) for port in (first, first - 2)] == [True, True]


def test_a_vip_port_that_somebody_else_has_costs_the_broker_nothing(house: Callable[..., House], monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(monkeypatch)
    one = house()
    first = first_port(one)
    with closing(socket.create_server((LOOPBACK, first - 2))):
        assert one.brokers.find("broker-a", 0, ONE) == f"127.0.0.1:{first}"
        (fields,) = [fields for event, fields in said if event == "vip_port_unavailable"]
        assert (fields["listener"], fields["port"]) == ("names/broker-a/0", first - 2)
        assert one.listening["names/broker-a/0"].addresses() == [(LOOPBACK, first)]


def test_a_port_that_goes_to_another_broker_takes_its_vip_port_along(house: Callable[..., House]) -> None:
    one = house(4)
    found = fill(one)
    one.now += UNNAMED_S
    one.brokers.find("old", 0, "10.0.1.1:1")
    assert one.brokers.find("new", 0, ONE) == found[1]
    port = int(found[1].rpartition(":")[2])
    assert one.listening["names/new/0"].addresses() == [(LOOPBACK, port), (LOOPBACK, port - 2)]
    socket.create_connection((LOOPBACK, port - 2), timeout=5).close()


def test_vip_ports_are_there_again_after_a_restart_and_are_taken_over_from_the_process_before(tmp_path: Path) -> None:
    first, last = port_range(4)
    old = House(tmp_path, f"{first}-{last}").begin()
    old.brokers.find("broker-a", 0, ONE)
    passed = [("", sock.dup()) for listener in old.listening.values() for sock in listener.sockets() if listener.name != "names"]
    new = House(tmp_path, f"{first}-{last}")
    try:
        inheritance = Inheritance(passed)
        new.brokers.restore(inheritance)
        new.brokers.begin(new.attend)
        assert repr(inheritance) == "<Inheritance 0 left: >", "it would be closed"
        assert new.listening["names/broker-a/0"].addresses() == [(LOOPBACK, first), (LOOPBACK, first - 2)]
        old.close()
        socket.create_connection((LOOPBACK, first - 2), timeout=5).close()
    finally:
        old.close()
        new.close()


def test_the_lowest_ports_have_none_below_them() -> None:
    assert with_vip([1, 2, 3, 5]) == [1, 2, 3, 1, 5, 3]
    listener = Mock(spec=Listener)
    open_vip(listener, 2, None)
    listener.open_vip.assert_not_called()


def test_a_route_to_a_vip_port_of_its_own_is_a_loop(house: Callable[..., House]) -> None:
    one = house()
    one.brokers.find("broker-a", 0, ONE)
    with pytest.raises(RouteError, match="loop"):
        one.brokers.find("broker-b", 0, f"127.0.0.1:{first_port(one) - 2}")


# ---- addresses ---------------------------------------------------------------------------------------------------------


def test_a_broker_without_a_name_or_with_an_endless_one_is_refused(house: Callable[..., House]) -> None:
    one = house()
    for name in ("", "x" * 256):
        with pytest.raises(RouteError, match="name"):
            one.brokers.find(name, 0, ONE)
    assert list(one.listening) == ["names"]


def test_a_route_that_leads_back_here_is_refused_as_a_loop(house: Callable[..., House]) -> None:
    one = house(more=", advertise: localhost")
    own = one.brokers.find("broker-a", 0, ONE)
    for address in (own, f"127.0.0.1:{first_port(one)}", f"127.0.0.1:{one.listening['names'].address[1]}"):
        with pytest.raises(RouteError, match="loop"):
            one.brokers.find("broker-b", 0, address)
        with pytest.raises(RouteError, match="loop"):
            one.brokers.find("broker-a", 0, address)
    assert one.listening["names/broker-a/0"].upstreams.members[0].address == ("10.0.0.1", 10911)


def test_a_listener_on_all_addresses_is_known_by_each_of_them(house: Callable[..., House], tmp_path: Path) -> None:
    first, last = port_range(4)
    one = House(tmp_path, f"{first}-{last}", ", advertise: gateway.example")
    one.close()
    one.listening["names"].bind = ("0.0.0.0", 0)
    one.listening["names"].open()
    one.begin()
    try:
        with pytest.raises(RouteError, match="loop"):
            one.brokers.find("broker-a", 0, f"127.0.0.2:{one.listening['names'].address[1]}")
        one.brokers.find("broker-a", 0, f"192.0.2.1:{one.listening['names'].address[1]}")  # not an address of this machine
    finally:
        one.close()


def test_a_broker_that_this_gateway_serves_at_its_own_address_keeps_that(house: Callable[..., House]) -> None:
    """Mode A: the address in the route is an ordinary listener of this gateway."""
    one = house(others="  - {name: rocket, protocol: rocketmq, bind: 127.0.0.1:0, upstream: 127.0.0.1:9}\n")
    address = f"127.0.0.1:{one.listening['rocket'].address[1]}"
    assert one.brokers.find("broker-a", 0, address) == address
    assert sorted(one.listening) == ["names", "rocket"]


def test_a_broker_that_moves_keeps_its_port_and_new_connections_go_to_its_new_address(house: Callable[..., House]) -> None:
    one = house()
    found = one.brokers.find("broker-a", 0, ONE)
    upstream = one.listening["names/broker-a/0"].upstreams.members[0]
    upstream.ok, upstream.why = False, "Connection refused"
    assert one.brokers.find("broker-a", 0, TWO) == found
    assert one.listening["names/broker-a/0"].upstreams.members[0] is upstream
    assert [upstream.address, upstream.ok, upstream.why] == [("10.0.0.2", 10911), None, ""]
    assert one.attended == ["names/broker-a/0"]
    assert json.loads(one.file.read_text())["brokers"][0]["address"] == TWO


def test_connections_to_an_address_that_a_broker_has_left_are_found_once_the_address_has_settled(house: Callable[..., House]) -> None:
    one = house()
    for number, address in ((0, ONE), (1, TWO)):
        one.brokers.find("broker-a", number, address)
        listener = one.listening[f"names/broker-a/{number}"]
        listener.active = listener.upstreams.members[0].heard.connections = 3
    master = one.listening["names/broker-a/0"]
    at_one = master.upstreams.members[0].heard
    assert one.brokers.list_left_behind() == []
    for address in (THREE, ONE, THREE):  # two name servers disagree
        one.brokers.find("broker-a", 0, address)
        assert master.upstreams.has(at_one) == (address == ONE)
        assert one.brokers.list_left_behind() == [], address
    assert one.brokers.list_left_behind() == [master], "until they are gone"
    assert one.brokers.list_left_behind() == [master]
    one.brokers.find("broker-a", 0, ONE)
    assert [one.brokers.list_left_behind() for _ in range(3)] == [[], [], []], "it is back where they are"


def test_an_address_that_goes_on_changing_is_logged_and_written_when_that_begins_and_when_it_has_ended(
    house: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = heard(monkeypatch)
    one = house()
    one.brokers.find("broker-a", 0, ONE)

    def moves() -> list[tuple[object, object]]:
        return [(fields["before"], fields["upstream"]) for event, fields in said if event == "broker_moved"]

    def written() -> str:
        return str(json.loads(one.file.read_text())["brokers"][0]["address"])

    for address in (TWO, ONE, TWO, ONE, THREE):
        one.brokers.find("broker-a", 0, address)
        one.brokers.list_left_behind()
    assert (moves(), written()) == ([(ONE, TWO)], TWO)
    one.brokers.list_left_behind()
    assert (moves(), written()) == ([(ONE, TWO), (TWO, THREE)], THREE)
    one.brokers.list_left_behind()
    one.brokers.find("broker-a", 0, ONE)
    assert (moves()[2:], written()) == ([(THREE, ONE)], ONE), "a new change"


# ---- the range used up -------------------------------------------------------------------------------------------------


def fill(one: House) -> list[str]:
    """Give every port to a broker; each was seen a second after the one before."""
    found = []
    for number in range(len(one.brokers.ports)):
        found.append(one.brokers.find("old", number, f"10.0.1.{number + 1}:1"))
        one.now += 1
    return found


def test_when_no_port_is_free_the_error_says_what_to_do(house: Callable[..., House]) -> None:
    one = house(4)
    fill(one)
    with pytest.raises(RouteError, match=r"broker_ports \(.*\) of listener names has room for 2 brokers.*widen it"):
        one.brokers.find("new", 0, ONE)
    assert sorted(one.listening) == ["names", "names/old/0", "names/old/1"]


def test_the_broker_longest_unseen_gives_up_its_port_and_clients_never_find_it_closed(house: Callable[..., House]) -> None:
    one = house(4)
    found = fill(one)
    one.now += UNNAMED_S
    one.brokers.find("old", 0, "10.0.1.1:1")
    assert one.brokers.find("new", 0, ONE) == found[1]
    assert one.dismissed == ["names/old/1"]
    assert sorted(one.listening) == ["names", "names/new/0", "names/old/0"]
    listener = one.listening["names/new/0"]
    assert str(Address(*listener.address)) == found[1]
    assert not listener.inherited
    socket.create_connection(listener.address, timeout=5).close()
    assert one.kept().keys() == {"old/0", "new/0"}


def test_without_a_descriptor_for_it_the_client_is_told_and_no_broker_loses_its_port(house: Callable[..., House]) -> None:
    one = house(4)
    fill(one)
    one.now += UNNAMED_S + 10
    listener = one.listening["names/old/0"]
    sock = listener.sock
    full = OSError(errno.EMFILE, "Too many open files")
    listener.sock = cast(socket.socket, SimpleNamespace(dup=Mock(side_effect=full), getsockname=lambda: (LOOPBACK, 1)))
    try:
        with pytest.raises(RouteError, match=r"no listener can be opened for new \(0\): Too many open files"):
            one.brokers.find("new", 0, ONE)
    finally:
        listener.sock = sock
    assert sorted(one.listening) == ["names", "names/old/0", "names/old/1"]


def test_a_broker_seen_in_the_future_rests_as_any_other_after_a_restart(house: Callable[..., House], tmp_path: Path) -> None:
    """The clock was set back: its port would not be anybody else's for so long."""
    first, last = port_range(2)
    one = House(tmp_path, f"{first}-{last}")
    BrokerPortsFile(one.file.parent, "names").write([BrokerPort(("old", n), first + n, ONE, one.now + 1e6) for n in (0, 1)])
    one.begin()
    try:
        one.now += UNNAMED_S
        assert one.brokers.find("new", 0, TWO) == f"127.0.0.1:{first}"
    finally:
        one.close()


def test_setting_the_clock_takes_no_port_and_keeps_none() -> None:
    wall, monotonic = 1_000_000.0, 5.0
    clock = steady_clock(lambda: wall, lambda: monotonic)
    assert clock() == 1_000_000
    wall, monotonic = 2_000_000.0, 6.0
    assert clock() == 1_000_001
    wall, monotonic = 0.0, 126.0
    assert clock() == 1_000_121


def test_a_broker_with_connections_never_gives_up_its_port(house: Callable[..., House]) -> None:
    one = house(4)
    fill(one)
    one.now += 10 * UNNAMED_S
    one.listening["names/old/0"].active = 1
    one.listening["names/old/1"].arriving = 1
    with pytest.raises(RouteError, match="widen"):
        one.brokers.find("new", 0, ONE)
    one.listening["names/old/1"].arriving = 0
    one.brokers.find("new", 0, ONE)
    assert one.dismissed == ["names/old/1"]


# ---- restarts ----------------------------------------------------------------------------------------------------------


def test_after_a_restart_every_broker_is_where_it_was_before_anybody_asks(house: Callable[..., House], tmp_path: Path) -> None:
    one = house()
    found = [one.brokers.find("broker-a", 1, TWO), one.brokers.find("broker-a", 0, ONE)]
    one.brokers.end()
    one.close()
    again = house(first=first_port(one))
    assert again.attended == ["names/broker-a/1", "names/broker-a/0"]
    assert [str(Address(*again.listening[f"names/broker-a/{number}"].address)) for number in (1, 0)] == found
    assert again.listening["names/broker-a/0"].upstreams.members[0].address == ("10.0.0.1", 10911)
    assert [again.brokers.find("broker-a", 1, TWO), again.brokers.find("broker-a", 0, ONE)] == found


def test_while_the_gateway_stops_ports_are_promised_and_the_next_one_opens_them(house: Callable[..., House]) -> None:
    one = house()
    one.brokers.end()
    found = one.brokers.find("broker-a", 0, ONE)
    assert list(one.listening) == ["names"]
    again = house(first=first_port(one))
    assert str(Address(*again.listening["names/broker-a/0"].address)) == found


def test_a_port_that_is_gone_is_given_up_and_the_broker_gets_another(house: Callable[..., House], monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(monkeypatch)
    one = house()
    one.brokers.find("broker-a", 0, ONE)
    one.close()
    with closing(socket.create_server((LOOPBACK, first_port(one)))):
        again = house(first=first_port(one))
        assert [event for event, _ in said if event == "broker_port_lost"] == ["broker_port_lost"]
        assert list(again.listening) == ["names"]
        assert again.brokers.find("broker-a", 0, ONE) == f"127.0.0.1:{again.brokers.ports[1]}"


def test_with_another_range_the_old_ports_are_given_up(house: Callable[..., House], monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(monkeypatch)
    one = house(8)
    one.brokers.find("broker-a", 0, ONE)
    one.close()
    again = house(8, first=first_port(one) + 100)
    (event, fields), *_ = said[1:]
    assert (event, fields["port"]) == ("broker_port_lost", first_port(one))
    assert again.brokers.find("broker-a", 0, ONE) == f"127.0.0.1:{first_port(again)}"


def test_a_damaged_file_is_left_aside_and_written_anew(
    house: Callable[..., House], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = heard(monkeypatch)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "broker-ports.names.json").write_text('{"version": 1, "brokers": [{')
    one = house()
    ((event, fields),) = said
    assert event == "broker_ports_unreadable"
    assert "anew" in fields["remedy"]
    one.brokers.find("broker-a", 0, ONE)
    assert one.kept() == {"broker-a/0": first_port(one)}


def test_a_file_that_cannot_be_written_is_logged_and_costs_no_client_anything(
    house: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = heard(monkeypatch)
    one = house()
    one.file.with_suffix(".new").mkdir()
    assert one.brokers.find("broker-a", 0, ONE) == f"127.0.0.1:{first_port(one)}"
    assert one.brokers.find("broker-b", 0, TWO)
    assert [event for event, _ in said] == ["state_write_failed", "broker_listener_opened", "broker_listener_opened"]


def test_a_state_directory_that_hangs_keeps_no_route_waiting_and_is_written_when_it_does_not(
    house: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = house()
    one.brokers.write_wait_s = 0.001
    goes_on, write = threading.Event(), one.brokers._file.write
    monkeypatch.setattr(one.brokers._file, "write", lambda ports: (goes_on.wait(HANG_S), write(ports)))
    asked = [("broker-a", ONE), ("broker-b", TWO), ("broker-c", THREE)]
    found = [one.brokers.find(name, 0, address) for name, address in asked]
    assert len(set(found)) == 3
    assert not one.file.exists()
    goes_on.set()
    one.brokers.end()
    assert list(one.kept()) == ["broker-a/0", "broker-b/0", "broker-c/0"]


# ---- TLS ---------------------------------------------------------------------------------------------------------------


def test_both_hops_are_protected_as_the_name_servers_and_the_broker_is_known_by_its_own_host(
    house: Callable[..., House], tmp_path: Path
) -> None:
    Authority(tmp_path).issue("a", NAME)
    one = house(more=", tls: {certificate: a.pem, key: a.key}, upstream_tls: {ca: ca.pem}")
    one.brokers.find("broker-a", 0, ONE)
    listener = one.listening["names/broker-a/0"]
    assert listener.tls is not None
    (upstream,) = listener.upstreams.members
    assert upstream.tls is not None
    assert upstream.tls.server_name == "10.0.0.1"
    one.brokers.find("broker-a", 0, TWO)
    assert upstream.tls.server_name == "10.0.0.2"


def test_a_reload_reaches_listeners_of_brokers_and_those_opened_after_it(house: Callable[..., House], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("a", NAME)
    one = house(more=", tls: {certificate: a.pem, key: a.key}")
    one.brokers.find("broker-a", 0, ONE)
    authority.issue("a", NAME)
    changed = apply_tls(one.listening, with_derived(read_tls(one.settings.listeners), {"names": one.brokers}))
    assert changed == ["listeners.names.tls: the files have changed", "listeners.names/broker-a/0.tls: the files have changed"]
    names, first = one.listening["names"].tls, one.listening["names/broker-a/0"].tls
    assert names is not None
    assert first is not None
    names.failures["expired"] = 1
    assert first.failures == {}, "each listener counts its own"
    one.brokers.find("broker-b", 0, TWO)
    second = one.listening["names/broker-b/0"].tls
    assert second is not None
    assert second.fingerprint == names.fingerprint
    assert second.failures == {}


def test_the_files_are_not_read_for_a_broker(house: Callable[..., House], tmp_path: Path) -> None:
    """A route comes on the event loop's thread, and the files may hang. What was read last holds."""
    Authority(tmp_path).issue("a", NAME)
    one = house(more=", tls: {certificate: a.pem, key: a.key}, upstream_tls: {ca: ca.pem}")
    for file in ("a.pem", "a.key", "ca.pem"):
        (tmp_path / file).unlink()
    one.brokers.find("broker-a", 0, ONE)
    one.brokers.find("broker-a", 0, TWO)
    assert one.listening["names/broker-a/0"].tls is not None
    assert one.listening["names/broker-a/0"].upstreams.members[0].tls is not None


# ---- what is counted and said ------------------------------------------------------------------------------------------


def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    said: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr("common.log.event", lambda _level, name, **fields: said.append((name, fields)))
    return said


def test_registrations_are_counted_and_logged_once_in_a_while(house: Callable[..., House], monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(monkeypatch)
    one = house()
    for _ in range(50):
        one.brokers.note_refusal(904, "10.0.0.9:1234")
    assert one.brokers.refused_registrations == 50
    ((event, fields),) = said
    assert (event, fields["listener"], fields["client"], fields["request"]) == (
        "registration_refused",
        "names",
        "10.0.0.9:1234",
        "BROKER_HEARTBEAT (904)",
    )
    assert "namesrvAddr" in fields["remedy"]
    assert "127.0.0.1:9" in fields["remedy"]


def test_routes_are_counted_by_what_became_of_them(house: Callable[..., House], monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(monkeypatch)
    one = house()
    one.brokers.note_answer("rewritten", "", "10.0.0.9:1")
    one.brokers.note_answer("failed", "no port is free", "10.0.0.9:1")
    assert one.brokers.answers == {"rewritten": 1, "failed": 1}
    ((event, fields),) = said
    assert (event, fields["err"]) == ("route_not_rewritten", "no port is free")


def test_brokers_that_no_route_names_any_more_are_not_probed_and_count_for_nothing(house: Callable[..., House]) -> None:
    one = house()
    assert one.brokers.list_named() == []
    one.brokers.find("broker-a", 0, ONE)
    one.brokers.find("broker-b", 0, TWO)
    one.now += UNNAMED_S - 1
    one.brokers.find("broker-b", 0, TWO)
    assert [listener.name for listener in one.brokers.list_named()] == ["names/broker-a/0", "names/broker-b/0"]
    one.now += 1
    assert [listener.name for listener in one.brokers.list_named()] == ["names/broker-b/0"]
    assert {name: wanted() for name, wanted in one.wanted.items()} == {"names/broker-a/0": False, "names/broker-b/0": True}
    one.brokers.find("broker-a", 0, ONE)
    assert one.wanted["names/broker-a/0"]()


def test_only_name_server_listeners_have_brokers(house: Callable[..., House]) -> None:
    one = house(others="  - {name: rocket, protocol: rocketmq, bind: 127.0.0.1:0, upstream: 127.0.0.1:9}\n")
    assert list(brokers_of(one.settings, one.listening)) == ["names"]
