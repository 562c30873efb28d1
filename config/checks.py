"""Checks across settings, which no value alone can fail. All run, whatever else is wrong; `check_token_files` is last."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from config.addresses import Address
from config.kinds import Reading
from config.known_settings import (
    AdminSettings,
    CreditSettings,
    DrainSettings,
    FleetRedis,
    FleetSettings,
    GatewaySettings,
    LimiterSettings,
    ListenerSettings,
    MemorySettings,
    ProbeSettings,
    QuotaSettings,
    WebhookSettings,
)  # fmt: skip
from config.port_ranges import PortRange
from config.rules import ReadRule
from config.tls_files import check_tls_files
from config.worker_checks import check_workers
from limiter.executor import NEVER

LOOPBACK: Final = re.compile(r"localhost|127(\.[0-9]+){3}|::1", re.IGNORECASE)
MAX_SOCKET_PATH_BYTES: Final = 107  # bytes; sun_path has 108 with its final zero (unix(7))
CREDENTIALS: Final = Path("/run/credentials")  # where systemd shows a unit what its LoadCredential= names
PROBES_PORT: Final = 9181  # as the documentation's examples have it
ANY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  -- compared, not bound


def is_loopback(host: str) -> bool:
    return LOOPBACK.fullmatch(host) is not None


def overlap(one: Address, other: Address) -> bool:
    """Whether both cannot be bound at once. Port 0 is always another one."""
    return one.port == other.port != 0 and (one.host == other.host or bool({one.host, other.host} & ANY))


def _called(reading: Reading, path: str) -> str:
    """The location of a setting, for the end of a message: `line 12`, or its path."""
    location = reading.location(path)
    return f"line {location.line}" if location.line else path


def _both_read(reading: Reading, section: str, *keys: str) -> bool:
    """Whether none of these settings of a section is a placeholder: those cannot be compared."""
    return not any(reading.has_fault(f"{section}.{key}") for key in keys)


def check_unique_names(reading: Reading) -> None:
    """Listeners have names of their own, and so have rules and tokens."""
    for what, named in (("listener", reading.sections_of(ListenerSettings)), ("rule", reading.sections_of(ReadRule))):
        seen: dict[str, str] = {}
        for path, value in named:
            if not value.name:
                continue
            if value.name in seen:
                message = f'duplicate name "{value.name}"'
                first = _called(reading, f"{seen[value.name]}.name")
                reading.add_problem(f"{path}.name", message, f"rename this {what}; the first is in {first}")
            seen.setdefault(value.name, path)


def check_binds(reading: Reading) -> None:
    """No two sockets on one address; no listener whose broker is a listener of this gateway."""
    bound: list[tuple[str, Address]] = []
    for path, value in reading.sections:
        if not isinstance(value, ListenerSettings | AdminSettings | ProbeSettings) or not value.bind.host:
            continue
        inner = f"{path}.bind"
        taken = next((earlier for earlier, address in bound if overlap(address, value.bind)), None)
        if taken is not None:
            where = inner
            if not reading.location(inner).line:  # the admin's default: blame the listener
                where, taken = taken, inner
            remedy = f"choose another port; {taken} has it" + (
                f" (line {reading.location(taken).line})" if reading.location(taken).line else ""
            )
            reading.add_problem(where, f"{value.bind} is bound twice", remedy)
        bound.append((inner, value.bind))
    for path, value in reading.sections_of(ListenerSettings):
        for inner, upstream in upstreams_of(value, path):
            own = next((taken for taken, address in bound if overlap(address, upstream) and is_loopback(upstream.host)), None)
            if own is not None:
                reading.add_problem(inner, f"{upstream} is this gateway's own {own}", "name the broker's address, or move one of the two")


def check_tls_modes(reading: Reading) -> None:
    """Only in RocketMQ do clients with TLS and without share a port."""
    for path, value in reading.sections_of(ListenerSettings):
        if not value.speaks.permissive_tls and value.tls is not None and value.tls.mode == "permissive":
            inner = f"{path}.tls.mode"
            message = f"permissive is for RocketMQ; {value.speaks.names.title} clients without TLS have a port of their own"
            remedy = "set mode: enforcing, and give clients without TLS a listener without `tls`"
            reading.add_problem(inner, message, remedy)


def check_proxy_headers(reading: Reading) -> None:
    """Who may send PROXY headers is said wherever they are taken: what they say is believed."""
    for path, value in reading.sections_of(ListenerSettings):
        if value.accept_proxy_protocol and not value.trusted_proxies and not reading.has_fault(f"{path}.trusted_proxies"):
            message = "needs trusted_proxies: whoever may send PROXY headers chooses the address that limits, caps and the broker go by"
            remedy = (
                "add the load balancer's own addresses, e.g. trusted_proxies: [10.0.0.5, 10.1.0.0/24]; "
                'trusted_proxies: [0.0.0.0/0, "::/0"] believes anybody, which is safe only where a firewall lets nobody but the balancer in'
            )
            reading.add_problem(f"{path}.accept_proxy_protocol", message, remedy)


def check_remote_admins(reading: Reading) -> None:
    """The requests of remote admin are RocketMQ's."""
    for path, value in reading.sections_of(ListenerSettings):
        if not value.speaks.limit_requests and value.remote_admin is not None:
            message = f"{value.speaks.names.title} has no requests that change limits"
            reading.add_problem(f"{path}.remote_admin", message, "remove it, and use the admin API or `sluice limits set`")


def check_broker_ports(reading: Reading) -> None:
    """A name server's listener has a port range of its own for its brokers, and a host that its clients can dial."""
    ranges: list[tuple[str, str, PortRange]] = []  # of those so far: path, host, ports
    for path, value in reading.sections_of(ListenerSettings):
        if not value.speaks.opens_listeners or not _both_read(reading, path, "bind", "protocol"):
            continue
        if value.broker_ports is None:
            if not reading.has_fault(f"{path}.broker_ports"):
                message = "is missing: the listeners of its brokers need ports"
                reading.add_problem(f"{path}.broker_ports", message, "add broker_ports: 20911-20950", at=f"{path}.protocol")
        else:
            _check_range(reading, path, value.bind.host, value.broker_ports, ranges)
            ranges.append((f"{path}.broker_ports", value.bind.host, value.broker_ports))
        if value.advertise is None and value.bind.host in ANY and not reading.has_fault(f"{path}.advertise"):
            message = f"is missing: clients cannot dial {value.bind.host}"
            remedy = "add advertise: and the address or name under which clients reach this gateway"
            reading.add_problem(f"{path}.advertise", message, remedy, at=f"{path}.bind")
        elif value.advertise in ANY:
            remedy = "name the address under which clients reach this gateway"
            reading.add_problem(f"{path}.advertise", f"clients cannot dial {value.advertise}", remedy)


def upstreams_of(listener: ListenerSettings, path: str) -> list[tuple[str, Address]]:
    """The addresses behind a listener that could be read, each with its place in the configuration. `path`: the listener's."""
    one = len(listener.upstreams) == 1
    found = [(f"{path}.upstream" if one else f"{path}.upstream[{number}]", each) for number, each in enumerate(listener.upstreams)]
    return [(inner, each) for inner, each in found if each.host]


def brokers_room(listener: ListenerSettings) -> int:
    """How many listeners for brokers may be opened after this one."""
    ports = listener.broker_ports if listener.speaks.opens_listeners else None
    return 0 if ports is None else len(ports.for_brokers())


def _check_range(reading: Reading, path: str, host: str, ports: PortRange, earlier: list[tuple[str, str, PortRange]]) -> None:
    """No other listener, and no other range, has a port of this range on the same host."""
    inner = f"{path}.broker_ports"
    for other, value in reading.sections:
        if not isinstance(value, ListenerSettings | AdminSettings | ProbeSettings):
            continue
        addresses = [(f"{other}.bind", value.bind)]
        if isinstance(value, ListenerSettings):
            addresses += [(inner, upstream) for inner, upstream in upstreams_of(value, other) if is_loopback(upstream.host)]
        for name, address in addresses:
            if address.host and ports.first <= address.port <= ports.last and overlap(address, Address(host, address.port)):
                reading.add_problem(
                    inner,
                    f"{address} is within it, and is {name}",
                    f"choose other ports; {_called(reading, name)}",
                )
    for name, other_host, other_ports in earlier:
        if ports.first <= other_ports.last and other_ports.first <= ports.last and overlap(Address(host, 1), Address(other_host, 1)):
            reading.add_problem(inner, f"overlaps {name}: {other_ports}", f"choose other ports; {_called(reading, name)}")


def check_credit(reading: Reading) -> None:
    """0 < more_after <= initial."""
    for path, value in reading.sections_of(CreditSettings):
        if value.more_after > value.initial and _both_read(reading, path, "more_after", "initial"):
            message = f"more_after {value.more_after} is above initial {value.initial}: credit would run out for good"
            remedy = f"set more_after to {max(1, value.initial // 2)}, or initial to at least {value.more_after}"
            reading.add_problem(reading.written(path, "more_after", "initial"), message, remedy)


def check_fleet(reading: Reading) -> None:
    """TLS towards Redis needs a rediss:// URL; a cluster is reached by TCP, and has one database."""
    for path, value in reading.sections_of(FleetRedis):
        if value.cluster and re.fullmatch(r"rediss?://[^/]+(/0?)?", value.url) is None:
            remedy = "write url: redis://HOST:PORT/0, or leave cluster out"
            reading.add_problem(f"{path}.cluster", f"{value.url} is no node of a cluster: those have database 0 only", remedy)
        if value.tls is not None and _both_read(reading, path, "url") and not value.url.startswith("rediss://"):
            plain = value.url.partition("://")[2]
            remedy = f"did you mean url: rediss://{plain}?" if value.url.startswith("redis:") else "remove tls"
            reading.add_problem(f"{path}.tls", f"{value.url} is without TLS", remedy)


def check_intraday_raises(reading: Reading) -> None:
    """The gateways of a fleet share buckets, and each sees only its own part of the demand."""
    if not any(reading.sections_of(FleetSettings)):
        return
    for path, value in reading.sections_of(QuotaSettings):
        for name in ("hourly_raise", "surge_raise"):
            if getattr(value, name) == "on":
                message = (
                    "a gateway of a fleet sees its own part of the demand only, and would set another rate than the others for one bucket"
                )
                reading.add_problem(f"{path}.{name}", message, f"set {name}: off; the published quotas hold all day")


def check_limiter(reading: Reading) -> None:
    """Who wants no judging on the event loop has threads for it."""
    for path, value in reading.sections_of(LimiterSettings):
        if value.threads == 0 and value.inline == NEVER and _both_read(reading, path, "threads", "inline"):
            message = "never needs a thread: with threads: 0 everything is judged on the event loop"
            reading.add_problem(f"{path}.inline", message, "set threads to 1, or inline: trusted")


def check_memory(reading: Reading) -> None:
    """One connection's share is within the whole."""
    for path, value in reading.sections_of(MemorySettings):
        if value.per_connection > value.high_watermark and _both_read(reading, path, "per_connection", "high_watermark"):
            inner = reading.written(path, "per_connection", "high_watermark")
            message = "per_connection is above high_watermark: one connection could stop all others"
            reading.add_problem(inner, message, "lower per_connection or raise high_watermark")


def check_drain(reading: Reading) -> None:
    """Half of the time is left for what is under way."""
    for path, value in reading.sections_of(DrainSettings):
        if value.delay_ns > value.timeout_ns // 2 and _both_read(reading, path, "delay", "timeout"):
            inner = reading.written(path, "delay", "timeout")
            message = "delay is more than half of timeout: what is under way would not have the time to go its way"
            reading.add_problem(inner, message, "lower delay or raise timeout, and with it the patience of whoever kills the gateway")


def check_admin(reading: Reading) -> None:
    """The admin API listens on loopback as long as it has no TLS; its tokens have names of their own; its socket's path is short enough."""
    for path, value in reading.sections_of(AdminSettings):
        if value.bind.host and not is_loopback(value.bind.host) and value.tls is None and not reading.has_fault(f"{path}.tls"):
            message = f"{value.bind} is not a loopback address, and tokens would cross the network as plain text"
            remedy = (
                "add admin.tls: {certificate: FILE.pem, key: FILE.key}; for probes and Prometheus alone bind "
                f"127.0.0.1:{value.bind.port} and add probes: {{bind: {Address(value.bind.host, PROBES_PORT)}}}; "
                "for this host alone use 127.0.0.1 or admin.socket"
            )
            reading.add_problem(f"{path}.bind", message, remedy)
        if value.socket is not None:
            check_socket_path(reading, f"{path}.socket", value.socket)
        names: set[str] = set()
        for number, token in enumerate(value.tokens):
            inner = f"{path}.tokens[{number}].name"
            if token.name and token.name in names:
                reading.add_problem(inner, f'duplicate name "{token.name}"', "rename one; the history could not tell them apart")
            names.add(token.name)


def check_webhooks(reading: Reading) -> None:
    """Receivers are told apart by their names; a user has a password; a CA is for https."""
    seen: dict[str, str] = {}
    for path, value in reading.sections_of(WebhookSettings):
        if not _says_where(reading, path, value):
            continue
        if value.label in seen:
            inner = f"{path}.name" if value.name else f"{path}.url"
            message = f'duplicate name "{value.label}"' if value.name else f"{value.label} has a receiver already"
            first = _called(reading, f"{seen[value.label]}.{'name' if value.name else 'url'}")
            reading.add_problem(inner, message, f"give each a name of its own, such as name: ops; the first is in {first}")
        seen.setdefault(value.label, path)
        if value.user is not None and value.token_file is None and not reading.has_fault(f"{path}.token_file"):
            reading.add_problem(f"{path}.user", "stands without a password", "add token_file: FILE, which holds the password of this user")
        if value.ca is not None and value.url is not None and value.url.startswith("http:"):
            reading.add_problem(f"{path}.ca", "the URL is without TLS", "write url: https://..., or remove ca")


def _says_where(reading: Reading, path: str, value: WebhookSettings) -> bool:
    """Whether it is known where this receiver is, and how it is called."""
    if reading.has_fault(f"{path}.url") or reading.has_fault(f"{path}.url_file") or reading.has_fault(f"{path}.name"):
        return False
    here = reading.location(path)
    if value.url is not None and value.url_file is not None:
        reading.add_problem(f"{path}.url_file", "stands beside url", "remove one of them")
    elif value.url is None and value.url_file is None:
        remedy = "add url: https://alerts.example/hooks/sluice, or url_file: FILE, which holds it"
        reading.problems.add(here, f"{path}.url", "is missing", remedy)
    elif not value.label:
        reading.problems.add(here, f"{path}.name", "is missing, and the URL in url_file is not shown", "add name: ops")
    return value.label != ""


def check_token_files(reading: Reading) -> None:
    """Files of tokens that cannot be read. In a good configuration they are warnings (`lints.py`), as the files may be made after the
    check.

    Beside other errors the warnings would not be shown, and the gateway would not start without the files; so they are reported here.
    """
    if not reading.problems.found:
        return
    for path, value in reading.sections_of(AdminSettings):
        for number, token in enumerate(value.tokens):
            inner = f"{path}.tokens[{number}].file"
            fault = None if token.file == Path() else unreadable_token(token.file)
            if fault is not None:
                reading.add_problem(inner, *fault)


def unreadable_token(file: Path) -> tuple[str, str] | None:
    """What is wrong with a token's file that cannot be read, and the way out."""
    try:
        file.stat()
    except OSError as error:
        given = file.is_relative_to(CREDENTIALS)
        way_out = (
            f"systemd shows it while the unit runs; in the unit: LoadCredential={file.name}:FILE"
            if given
            else f"make it: sluice token new --file {file}"
        )
        return f"{file} cannot be read: {error.strerror}", way_out
    return None


def check_socket_path(reading: Reading, path: str, socket: Path) -> None:
    """A path that the kernel would cut is a problem."""
    if len(str(socket).encode()) > MAX_SOCKET_PATH_BYTES:
        message = f"{socket} is too long for a Unix socket: {MAX_SOCKET_PATH_BYTES} bytes at most"
        reading.add_problem(path, message, "choose a shorter path, such as /run/sluice/admin.sock")


def check_takeover(reading: Reading) -> None:
    """The path of `gateway.takeover`."""
    for path, value in reading.sections_of(GatewaySettings):
        if value.takeover is not None:
            check_socket_path(reading, f"{path}.takeover", value.takeover)


def check_own_logins(reading: Reading) -> None:
    """A limit that follows an AMQP queue needs a login to look at it; RocketMQ needs none."""
    logins = [(path, value) for path, value in reading.sections_of(ListenerSettings) if value.own_login is not None]
    for path, value in logins:
        if not value.speaks.authenticates_users:
            message = "is for AMQP; RocketMQ's offsets are asked for without a login"
            reading.add_problem(f"{path}.own_login", message, "leave it out")
    for path, rule in reading.sections_of(ReadRule):
        if rule.lag is not None and rule.lag.queue is not None and not logins:
            message = "no listener has an own_login, which the gateway needs to look at the queue"
            remedy = "add own_login: {user: ..., password_file: ...} to the listener"
            reading.add_problem(f"{path}.lag.queue", message, remedy)


CHECKS: Final[tuple[Callable[[Reading], None], ...]] = (
    check_unique_names,
    check_binds,
    check_tls_modes,
    check_proxy_headers,
    check_remote_admins,
    check_broker_ports,
    check_credit,
    check_limiter,
    check_memory,
    check_drain,
    check_fleet,
    check_intraday_raises,
    check_takeover,
    check_workers,
    check_own_logins,
    check_admin,
    check_webhooks,
)
FILE_CHECKS: Final[tuple[Callable[[Reading], None], ...]] = (
    check_tls_files,
    check_token_files,
)  # these read files that the configuration names
