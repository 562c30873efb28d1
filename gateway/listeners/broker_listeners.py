"""Broker listeners: a listener for each broker of a name server, opened when a route first names the broker.

A name server's listener (`protocol: rocketmq-nameserver`) has one `BrokerListeners`. Its conversations ask it for each address in a route
(`find`), and it answers with a port of its own that leads there: NAME/BROKER/ID, e.g. `names/broker-a/0`, an ordinary `rocketmq` listener
with the settings of the name server's, and with a VIP port (`vip_ports.py`). Only what the configured name server answers gets that far;
no client can have a port opened.

A broker keeps its port: when its address changes, when it is away, and over restarts (`broker_ports.py`). When its address changes, new
connections go to the new one. A client without the gateway would see that address in its next route and dial it; here it sees the port
that it knows, and would stay at the old address for ever, where another broker may be by now (a master that has become a slave). So
connections to the old address are closed (`list_left_behind`, `Gateway.close_left_behind`).

Ports are few. When they are used up, the broker that no route has named for longest gives up its own: never one that has connections, and
not before the clients that still live have asked again for the routes that named it. Its socket is handed over.

Opening is synchronous, for it happens within a session's turn. Accepting on the open listeners is the gateway's affair (`attend`).
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final

from common import log
from config.addresses import Address
from config.port_ranges import VIP
from gateway.listeners.broker_addresses import parse, reaches
from gateway.listeners.broker_ports import MAX_NAME_CHARS, Broker, BrokerPort, BrokerPortsFile
from gateway.listeners.factory import copy_protection, listener_of
from gateway.listeners.vip_ports import open_vip, with_vip
from gateway.pipeline.routes import RouteError, Routes
from gateway.protocols import PROTOCOLS
from gateway.protocols.nameserver.requests import REGISTRATIONS
from gateway.transport.trusted_proxies import TrustedProxies

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from config import Settings
    from config.known_settings import ListenerSettings
    from gateway.listeners.listener import Listener
    from gateway.systemd import Inheritance

# A broker that no route has named for so long may lose its port: four times the 30 s after which clients ask again
UNNAMED_S: Final = 120.0
WRITE_WAIT_S: Final = 0.1  # for a write to be done: on a disk that hangs it goes on without us (a guess)
LAST_WRITE_WAIT_S: Final = 1.0  # the same at the end, or where another process is about to read it (a guess)
WRITE_EVERY_S: Final = 60.0  # between writes of the file that change nothing but when brokers were seen
SETTLED: Final = 2  # looks, a second apart, in which an address has not changed: two name servers may disagree for a while (a guess)
LOG_EVERY_S: Final = 10.0  # between two log lines of one kind (a guess)
# Accepts there from now on, and probes the broker while the function says so; what it returns ends that, and closes the socket.
Attend = Callable[["Listener", Callable[[], bool]], Callable[[], None]]


class BrokerListeners(Routes):
    """The ports of one name server's brokers."""

    def __init__(
        self,
        entry: ListenerSettings,
        names: Listener,
        listening: dict[str, Listener],
        state_directory: Path,
        wall_clock: Callable[[], float] | None = None,
    ) -> None:
        assert entry.broker_ports is not None, "checked with the configuration"
        self.entry = entry  # a reload may put another one here, with other TLS
        self.names = names
        self.listening = listening  # all of the gateway, by name: shared
        self.host = entry.advertise or names.bind[0]
        self.ports = entry.broker_ports.for_brokers()
        self.attend: Attend | None = None  # None: nothing accepts there yet, or any more, so nothing is opened
        self.opened: dict[Broker, Listener] = {}
        self.by_broker: dict[Broker, BrokerPort] = {}
        self.answers = {"rewritten": 0, "failed": 0}
        self.refused_registrations = 0
        self._inherited: dict[int, socket.socket] = {}  # by port: systemd's, of ports that no broker has
        self._file = BrokerPortsFile(state_directory, entry.name)
        self._wall_clock = wall_clock or steady_clock(time.time, time.monotonic)
        self._written_at = 0.0
        self.write_wait_s = WRITE_WAIT_S
        self._writing: Thread | None = None
        self._handed_over = False
        self._dismiss: dict[Broker, Callable[[], None]] = {}
        self._unsettled: dict[Broker, tuple[int, str]] = {}  # addresses that have just changed: looks until they count; the one logged
        self._lines = {
            event: log.LogThrottle(LOG_EVERY_S) for event in ("route_not_rewritten", "registration_refused", "state_write_failed")
        }
        names.config.routes = self

    # ---- at the start and at the end -------------------------------------------------------------------------------

    def restore(self, inheritance: Inheritance | None = None) -> None:
        """Open the listeners of before the restart, each on its port; a port that cannot be had is given up, with a log line.

        systemd's sockets on ports of the range are kept, also those that no broker has yet: so no other process can bind there.
        """
        if inheritance is not None:
            handed = {port: inheritance.take_at((self.names.bind[0], port)) for port in with_vip(self.ports)}
            self._inherited = {port: sock for port, sock in handed.items() if sock is not None}
        try:
            restored = self._file.read()
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            remedy = "ports are handed out anew; clients find them with their next route"
            log.event(logging.WARNING, "broker_ports_unreadable", listener=self.entry.name, err=str(error), remedy=remedy)
            return
        for assigned in restored:
            try:
                if assigned.port not in self.ports:
                    raise RouteError(f"port {assigned.port} is not of broker_ports ({self.entry.broker_ports}) any more")
                listener = self._make_listener(assigned)
                self._open(listener, assigned.port)
            except (RouteError, OSError) as error:
                log.event(
                    logging.WARNING, "broker_port_lost", listener=self._name(assigned.broker), port=assigned.port, err=str(error),
                    remedy="the broker gets another port with the next route; clients that kept the old one find out within 30 s",
                )  # fmt: skip
                continue
            # The clock may have been set back since; such a broker would never lose its port.
            assigned.seen = min(assigned.seen, self._wall_clock())
            self._take_in(assigned, listener)

    def begin(self, attend: Attend) -> None:
        """From now on listeners are attended to, the restored ones included."""
        self.attend = attend
        for broker, listener in self.opened.items():
            self._dismiss[broker] = attend(listener, partial(self._is_named, self.by_broker[broker]))

    def end(self) -> None:
        """Open nothing any more. Ports go on being handed out: the next gateway opens them."""
        self.attend = None
        self._write(LAST_WRITE_WAIT_S)

    def hand_over(self) -> None:
        """The next process has the ports from now on: none is handed out here until `take_back`."""
        self._write(LAST_WRITE_WAIT_S)
        self._handed_over = True

    def take_back(self) -> None:
        """The next process has come to nothing."""
        self._handed_over = False

    # ---- what conversations ask (Routes) ---------------------------------------------------------------------------

    def find(self, broker: str, number: int, address: str) -> str:
        upstream = parse(address)
        if not broker or len(broker) > MAX_NAME_CHARS:
            raise RouteError(f"a broker's name has 1 to {MAX_NAME_CHARS} characters, not {len(broker)}")
        own = self._own_listener(upstream)
        if own is not None:
            if own.protocol == PROTOCOLS[self.entry.protocol].brokers_speak and own not in self.opened.values():
                return address  # of the configuration: it leads through this gateway as it is
            raise RouteError(
                f"{broker} ({number}) is registered as {address}, which is this gateway's own listener {own.name}: a loop; let the broker "
                "register with its own address (brokerIP1), at the name server itself"
            )
        now = self._wall_clock()
        assigned = self.by_broker.get((broker, number))
        if assigned is None:
            assigned = self._assign((broker, number), address, now)
        elif assigned.address != address:
            self._move(assigned, address, upstream)
        assigned.seen = now
        if now - self._written_at >= WRITE_EVERY_S or now < self._written_at:
            self._write()
        return str(Address(self.host, assigned.port))

    def find_known(self, address: str) -> str:
        port = next((one.port for one in self.by_broker.values() if one.address == address), None)
        return "" if port is None else str(Address(self.host, port))

    def note_answer(self, result: str, detail: str, client: str) -> None:
        self.answers[result] += 1
        if detail:
            self._log(
                "route_not_rewritten", client=client, err=detail, answered="an error, so that the client does not pass the gateway by"
            )

    def note_refusal(self, code: int, client: str) -> None:
        self.refused_registrations += 1
        remedy = f"set the broker's namesrvAddr to the name server itself, {self.names.upstreams.text}"
        self._log("registration_refused", client=client, request=f"{REGISTRATIONS[code]} ({code})", remedy=remedy)

    # ---- ports -----------------------------------------------------------------------------------------------------

    def _assign(self, broker: Broker, address: str, now: float) -> BrokerPort:
        """A port for a broker that has none, and a listener there. Raises RouteError."""
        if self._handed_over:
            raise RouteError("this gateway is being replaced by its next process; ask that one")
        taken = {one.port for one in self.by_broker.values()}
        free = [port for port in self.ports if port not in taken]
        if self.attend is None:
            if not free:
                raise RouteError(self._explain_used_up())
            assigned = BrokerPort(broker, free[0], address, now)
            self.by_broker[broker] = assigned
            self._write()
            return assigned
        for port in free:
            assigned = BrokerPort(broker, port, address, now)
            listener = self._make_listener(assigned)
            try:
                self._open(listener, port)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise RouteError(f"no listener can be opened for {broker[0]} ({broker[1]}): {error.strerror}") from error
            break
        else:
            assigned, listener = self._take_over_port(broker, address, now)
        self._take_in(assigned, listener)
        self._dismiss[broker] = self.attend(listener, partial(self._is_named, assigned))
        self._write()
        log.event(
            logging.INFO, "broker_listener_opened", listener=listener.name, protocol=listener.protocol,
            bind=str(Address(*listener.address)), upstream=listener.upstreams.text, advertised=str(Address(self.host, assigned.port)),
        )  # fmt: skip
        return assigned

    def _take_over_port(self, broker: Broker, address: str, now: float) -> tuple[BrokerPort, Listener]:
        """The port of the broker that has not been seen for longest, with its socket. Raises RouteError."""
        unnamed = [
            one
            for one in self.by_broker.values()
            if not self._is_named(one) and one.broker in self.opened and not _in_use(self.opened[one.broker])
        ]
        if not unnamed:
            raise RouteError(self._explain_used_up())
        old = min(unnamed, key=lambda one: one.seen)
        assigned = BrokerPort(broker, old.port, address, now)
        listener = self._make_listener(assigned)
        before = self.opened[old.broker]
        assert before.sock is not None
        try:
            listener.open(before.sock.dup())
        except OSError as error:
            raise RouteError(f"no listener can be opened for {broker[0]} ({broker[1]}): {error.strerror}") from error
        open_vip(listener, old.port, None if before.vip_sock is None else before.vip_sock.dup())
        listener.inherited = before.inherited
        del self.by_broker[old.broker], self.opened[old.broker], self.listening[before.name]
        self._dismiss.pop(old.broker)()
        log.event(
            logging.WARNING, "broker_port_replaced", listener=before.name, upstream=before.upstreams.text, unseen_s=round(now - old.seen),
            replaced_by=listener.name, port=old.port, remedy=f"broker_ports ({self.entry.broker_ports}) is used up: widen it",
        )  # fmt: skip
        return assigned, listener

    def _explain_used_up(self) -> str:
        return (
            f"broker_ports ({self.entry.broker_ports}) of listener {self.entry.name} has room for {len(self.ports)} brokers, "
            "and no port is free: widen it"
        )

    def _move(self, assigned: BrokerPort, address: str, upstream: Address) -> None:
        """The broker has another address: connections from now on go there. Raises RouteError."""
        listener = self.opened.get(assigned.broker)
        before, assigned.address = assigned.address, address
        if listener is None:
            self._write()
            return
        listener.upstreams.move([upstream], listener.upstreams.tls)
        _, logged = self._unsettled.get(assigned.broker, (0, ""))
        self._unsettled[assigned.broker] = SETTLED, logged or address
        if not logged:
            self._say_moved(assigned, before)

    def _say_moved(self, assigned: BrokerPort, before: str) -> None:
        log.event(logging.INFO, "broker_moved", listener=self._name(assigned.broker), upstream=assigned.address, before=before)
        self._write()

    def _take_in(self, assigned: BrokerPort, listener: Listener) -> None:
        self.by_broker[assigned.broker] = assigned
        self.opened[assigned.broker] = listener
        self.listening[listener.name] = listener

    def _open(self, listener: Listener, port: int) -> None:
        listener.open(self._inherited.pop(port, None))
        open_vip(listener, port, self._inherited.pop(port - VIP, None))

    def _make_listener(self, assigned: BrokerPort) -> Listener:
        """A listener for the broker, not open, protected as the name server's is now. Raises RouteError."""
        protection = copy_protection((self.names.tls, self.names.upstreams.tls))
        listener = listener_of(self._entry(assigned, parse(assigned.address)), self.names.admission.slots, protection)
        listener.config.broker_id = assigned.broker[1]
        return listener

    def _entry(self, assigned: BrokerPort, upstream: Address) -> ListenerSettings:
        """What a configuration would say of the broker's listener."""
        bind = Address(self.names.bind[0], assigned.port)
        protocol = PROTOCOLS[self.entry.protocol].brokers_speak
        return replace(self.entry, name=self._name(assigned.broker), protocol=protocol, bind=bind, upstreams=(upstream,))

    def _name(self, broker: Broker) -> str:
        return f"{self.entry.name}/{broker[0]}/{broker[1]}"

    def _own_listener(self, address: Address) -> Listener | None:
        """The listener of this gateway that a connection to `address` would reach."""
        for listener in self.listening.values():
            if listener.port not in {0, address.port, address.port + VIP}:
                continue  # asking the kernel where it listens takes longer than all the rest, and a route has many addresses
            called = self.host if listener in self.opened.values() else ""
            if any(reaches(address, bound, called) for bound in listener.addresses()):
                return listener
        return None

    def list_left_behind(self) -> list[Listener]:
        """The listeners with connections to an address that their broker has left. Called once a second.

        Not while the address goes on changing: where two name servers disagree, each route would close what the one before had made, and
        be a line of the log and a write of the file. Of these there is one when that begins, and one when it has ended elsewhere.
        """
        for broker, (looks, logged) in list(self._unsettled.items()):
            self._unsettled[broker] = looks - 1, logged
            if looks == 1:
                del self._unsettled[broker]
                assigned = self.by_broker.get(broker)
                if assigned is not None and assigned.address != logged:
                    self._say_moved(assigned, logged)
        return [
            listener
            for broker, listener in self.opened.items()
            if listener.active > listener.upstreams.connections() and broker not in self._unsettled
        ]

    # ---- what is kept and said -------------------------------------------------------------------------------------

    def _write(self, last_wait_s: float = 0.0) -> None:
        """On a thread: a state directory may hang, and routes are asked for on the event loop's."""
        if self._handed_over:
            return
        now = self._wall_clock()
        if self._writing is not None:
            self._writing.join(last_wait_s)
            if self._writing.is_alive():
                self._written_at = now - WRITE_EVERY_S + 1  # tried again with a route in a second
                return
        self._written_at = now
        self._writing = Thread(target=self._save, args=([replace(one) for one in self.by_broker.values()],), daemon=True)
        try:
            self._writing.start()
        except RuntimeError:  # no thread
            self._writing = None
            return
        self._writing.join(max(self.write_wait_s, last_wait_s))

    def _save(self, ports: list[BrokerPort]) -> None:
        try:
            self._file.write(ports)
        except OSError as error:
            self._log("state_write_failed", err=str(error), remedy="brokers may get other ports after a restart")

    def _log(self, event: str, **fields: object) -> None:
        since = self._lines[event].count_until_due()
        if since:
            log.event(logging.WARNING, event, listener=self.entry.name, times=since, **fields)

    def list_named(self) -> list[Listener]:
        """The listeners of brokers that a route has named lately; the others may be away."""
        return [listener for broker, listener in self.opened.items() if self._is_named(self.by_broker[broker])]

    def _is_named(self, assigned: BrokerPort) -> bool:
        return self._wall_clock() - assigned.seen < UNNAMED_S

    def __repr__(self) -> str:
        return f"<BrokerListeners {self.entry.name} {len(self.by_broker)}/{len(self.ports)} ports, advertised as {self.host}>"


def steady_clock(wall: Callable[[], float], monotonic: Callable[[], float]) -> Callable[[], float]:
    """The seconds since 1970, which no setting of the clock moves from now on.

    A clock set forward would take ports from brokers that live, and one set back keep those of brokers that are gone.
    """
    ahead = wall() - monotonic()
    return lambda: ahead + monotonic()


def brokers_of(settings: Settings, listening: dict[str, Listener]) -> dict[str, BrokerListeners]:
    """By name server listener: the ports of its brokers, none of them open yet."""
    state_directory = settings.gateway.state_directory
    return {
        entry.name: BrokerListeners(entry, listening[entry.name], listening, state_directory)
        for entry in settings.listeners
        if PROTOCOLS[entry.protocol].brokers_speak
    }


def apply_entries(brokers: dict[str, BrokerListeners], settings: Settings) -> None:
    """Brokers' listeners from now on are made after these settings. Whose PROXY headers are believed holds for those there are, too."""
    for entry in settings.listeners:
        if entry.name in brokers:
            brokers[entry.name].entry = entry
            for listener in brokers[entry.name].opened.values():
                listener.trusted_proxies = TrustedProxies(entry.trusted_proxies)


def _in_use(listener: Listener) -> bool:
    return listener.active + listener.arriving > 0
