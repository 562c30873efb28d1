"""Lints: settings that are allowed but probably not meant. `sluice check` shows them as warnings, `--strict` as errors."""

from __future__ import annotations

import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from common.descriptors import PER_BROKER, room_for_connections
from common.regular_files import MIN_SECRET_BYTES, read_secret
from common.secret_files import open_to_others
from config.addresses import network_of
from config.checks import brokers_room, is_loopback, unreadable_token
from config.http_urls import UrlParts, parts_of, webhook_url_in_file
from config.listener_protocols import OPENING
from config.port_ranges import outgoing_ports
from config.problems import ConfigProblem, SourceLocation
from config.rule_lints import RULE_LINTS, is_named
from config.tls_files import find_tls_risks
from config.tracing_packages import OTEL_EXTRA, missing_package, read_headers
from limiter.limits import SECOND, Limit, Rate
from limiter.operations import HELD_OPERATIONS, PRODUCE
from limiter.protocols import AMQP, PROTOCOL_NAMES, protocol_of_level
from limiter.rules.actions import ACTION_RECORDS, PATIENT
from limiter.rules.rule import DEFAULT_MAX_DELAY_NS, RULE_SETTINGS
from limiter.units import format_rate

if TYPE_CHECKING:
    from pathlib import Path

    from config.settings import Settings

MIN_BURST_NS: Final = 20_000_000  # ns of the rate; a smaller burst refuses what the network bunches; docs/design/reliability.md 1.4
FEW_FILES: Final = 4096  # descriptors; two a connection, so about 2,000 connections; what a sidecar needs (guess)


def short_bursts(settings: Settings) -> Iterator[ConfigProblem]:
    """A burst below 20 ms of the rate: of a limit, or else of its candidate."""
    for number, rule in enumerate(settings.rules):
        found = list(_short_bursts(settings, f"rules[{number}].limit.burst", rule.limit))
        tried = rule.candidate_limit()
        yield from found if found or tried is None else _short_bursts(settings, f"rules[{number}].candidate.burst", tried)


def _short_bursts(settings: Settings, path: str, limit: Limit) -> Iterator[ConfigProblem]:
    for what, rate, capacity in (("messages", limit.messages, limit.messages_capacity()), ("bytes", limit.bytes, limit.bytes_capacity())):
        if rate is not None and rate.amount and capacity < rate.tokens_in(MIN_BURST_NS):
            message = f"the burst of {capacity} {what} is below 20 ms of {format_rate(rate)}: even traffic will be refused"
            yield settings.make_problem(path, message, f"give at least {_least(rate)} {what}, or leave burst out")


def _least(rate: Rate) -> int:
    return rate.tokens_in(MIN_BURST_NS)


def fleet_without_client(settings: Settings) -> Iterator[ConfigProblem]:
    """A fleet without Redis' client: the gateway would not start here."""
    if settings.fleet is not None and find_spec("redis") is None:
        yield settings.make_problem("fleet", "the Python package redis is not installed here", "pip install 'sluice-gateway[redis]'")


def log_without_zstd(settings: Settings) -> Iterator[ConfigProblem]:
    """zstd asked for where its library is not: the gateway would use gzip."""
    if settings.access_log is not None and settings.access_log.compress == "zstd" and find_spec("zstandard") is None:
        message = "the Python package zstandard is not installed here: gzip is used"
        yield settings.make_problem("access_log.compress", message, "pip install 'sluice-gateway[zstd]', or write compress: auto")


def log_that_fills_the_brokers_disk(settings: Settings) -> Iterator[ConfigProblem]:
    """A RocketMQ broker on this host, and an access log that may fill the disk further than the broker bears."""
    broker = next((each.name for each in settings.listeners if each.protocol == "rocketmq" and is_loopback(each.upstreams[0].host)), None)
    if settings.access_log is None or broker is None:
        return
    mark = settings.disk.low_watermark
    there = next(folder for folder in (settings.access_log.directory, *settings.access_log.directory.parents) if folder.is_dir())
    disk = shutil.disk_usage(there)
    size = disk.used + disk.free  # without what is kept for root, as the broker counts
    if max(mark.size, size * mark.share // 1000) < size // 10:
        message = f"is less than a tenth of the disk of {there}: where the broker of listener {broker} has the same disk, the log stops it"
        remedy = "write 12%: RocketMQ refuses all sends when less than 10% of its disk is free"
        yield settings.make_problem("disk.low_watermark", message, remedy)


def tracing_without_sdk(settings: Settings) -> Iterator[ConfigProblem]:
    """Tracing without OpenTelemetry's packages: the gateway would not start here."""
    missing = "" if settings.tracing is None else missing_package()
    if missing:
        yield settings.make_problem("tracing", f"the Python package {missing} is not installed here", OTEL_EXTRA)


def unheard_rules(settings: Settings) -> Iterator[ConfigProblem]:
    """A rule for a protocol or a listener that does not exist."""
    protocols = {listener.speaks.names.name for listener in settings.listeners}
    names = [listener.name for listener in settings.listeners]
    opened = tuple(f"{listener.name}/" for listener in settings.listeners if listener.speaks.opens_listeners)  # for its brokers
    for number, rule in enumerate(settings.rules):
        in_match = rule.match.spoken()
        spoken = in_match or protocol_of_level(rule.per)
        if spoken is not None and spoken not in protocols:
            field = "match" if in_match is not None else "per"
            yield settings.make_problem(
                f"rules[{number}].{field}", f"no listener speaks {spoken}: the rule never matches", "remove it, or add a listener"
            )
        wanted = rule.match.listeners()
        strange = [each for each in wanted if not each.startswith(opened) and not any(is_named(name, each) for name in names)]
        never = what_it_costs(strange, wanted)
        for each in strange:
            yield settings.make_problem(
                f"rules[{number}].match.listener", f'there is no listener "{each}": {never}', f"known: {', '.join(names)}"
            )


def what_it_costs(idle: list[str], wanted: tuple[str, ...]) -> str:
    """What a rule's match loses by those of the listeners in it that meet nothing."""
    return "the rule never matches" if len(idle) == len(wanted) else "it adds nothing to the rule"


def idle_words(settings: Settings) -> Iterator[ConfigProblem]:
    """Settings of a rule that its action does not use."""
    for number, rule in enumerate(settings.rules):
        is_held = all(each in HELD_OPERATIONS for each in rule.match.operations())
        path = f"rules[{number}].action"
        if is_held and rule.action == "reject" and settings.origin(path).line:
            message = f"refuses nothing with operation: {rule.match.text_of('operation')}: what is over the limit waits"
            yield settings.make_problem(path, message, "set action: delay, or remove it")
        if rule.max_delay_ns != DEFAULT_MAX_DELAY_NS:
            path = f"rules[{number}].max_delay"
            if is_held:
                message = (
                    f"has no effect with operation: {rule.match.text_of('operation')}: what is over the limit waits until it lets that pass"
                )
                yield settings.make_problem(path, message, "remove it")
            elif "max_delay" not in ACTION_RECORDS[rule.action].settings:
                yield settings.make_problem(path, f"has no effect with action: {rule.action}", "set action: delay, or remove it")
        for name, row in RULE_SETTINGS.items():
            user = next((each.name for each in ACTION_RECORDS.values() if row.key in each.settings), None)
            given = row.key not in {"max_delay", "fallback"} and getattr(rule, name) != row.default
            if given and user is not None and row.key not in ACTION_RECORDS[rule.action].settings:
                yield settings.make_problem(
                    f"rules[{number}].{row.key}", f"has no effect with action: {rule.action}", f"set action: {user}, or remove it"
                )
        names = PROTOCOL_NAMES.get(rule.match.spoken() or "")
        if rule.drop_expired and names is not None and names is not AMQP:
            message = f"has no effect with protocol: {names.name}, whose messages do not say how long they are of use"
            yield settings.make_problem(f"rules[{number}].drop_expired", message, "say max_age, or remove it")
        if rule.copies != "count" and names is not None and names is not AMQP:
            message = f"has no effect with protocol: {names.name}, whose messages name no copies"
            yield settings.make_problem(f"rules[{number}].copies", message, "remove it")
        if rule.cost is not None and rule.cost.copy != 1 and names is not None and names is not AMQP:
            message = f"has no effect with protocol: {names.name}, whose messages name no copies"
            yield settings.make_problem(f"rules[{number}].cost.copy", message, "remove it")
        if rule.fallback != "delay" and names is not None and names.refuses_all:
            message = f"has no effect with protocol: {names.name}, where every message can be refused with an answer"
            yield settings.make_problem(f"rules[{number}].fallback", message, "remove it")
        if rule.reply != "flow_control" and PRODUCE not in rule.match.operations():
            message = f"has no effect with operation: {rule.match.text_of('operation')}: consumers are held, not refused"
            yield settings.make_problem(f"rules[{number}].reply", message, "remove it")
        elif rule.reply != "flow_control" and not ACTION_RECORDS[rule.action].ends_in_refusal:
            yield settings.make_problem(
                f"rules[{number}].reply", f"has no effect with action: {rule.action}", "set action: reject, or remove it"
            )


def half_spooled(settings: Settings) -> Iterator[ConfigProblem]:
    """Rules with `action: spool` for a protocol of which only some messages can wait."""
    for number, rule in enumerate(settings.rules):
        names = PROTOCOL_NAMES.get(rule.match.spoken() or "")
        if rule.action == "spool" and names is not None and names.spools_only:
            message = f"of {names.title} only {names.spools_only} are spooled; all others are refused, because {names.max_delay_reason}"
            remedy = f"say delay, which holds them up to {names.max_delay_ns / SECOND:g}s, where those should wait, too"
            yield settings.make_problem(f"rules[{number}].action", message, remedy)


def impatient_pacing(settings: Settings) -> Iterator[ConfigProblem]:
    """Pacing where nothing waits: nearly all of a bunch is refused."""
    for number, rule in enumerate(settings.rules):
        holds = rule.action in PATIENT or rule.match.holds()
        if rule.algorithm == "pacing" and not holds and rule.mode == "enforce":
            message = f"pacing with action: {rule.action} refuses most messages of a bunch, and most traffic comes in bunches"
            yield settings.make_problem(f"rules[{number}].algorithm", message, "set action: delay, or use algorithm: token_bucket")


def no_rules(settings: Settings) -> Iterator[ConfigProblem]:
    """Nothing is limited at all."""
    if not settings.rules:
        yield settings.make_problem("rules", "there are no rules: nothing is limited", "name a rules_file, e.g. rules_file: limits.yaml")


def token_files(settings: Settings) -> Iterator[ConfigProblem]:
    """A token's file that is missing, or that other users may read."""
    for number, token in enumerate(settings.admin.tokens):
        path = f"admin.tokens[{number}].file"
        fault = unreadable_token(token.file)
        if fault is not None:
            yield settings.make_problem(path, *fault)
        elif open_to_others(token.file.stat()):
            yield settings.make_problem(path, f"{token.file} can be read by others", f"chmod 600 {token.file}")


def password_files(settings: Settings) -> Iterator[ConfigProblem]:
    """A file of a password or of a fleet's secret that cannot be read. It is read at each login, so it may be made later."""
    logins = [(f"listeners[{number}].own_login", each.own_login) for number, each in enumerate(settings.listeners)]
    files = [(f"{path}.password_file", "password", login.password_file) for path, login in logins if login is not None]
    if settings.fleet is not None:
        redis = settings.fleet.redis
        held_there = (("password", redis.password_file), ("secret", redis.secret_file))
        files += [(f"fleet.redis.{held}_file", held, file) for held, file in held_there if file is not None]
    for path, held, file in files:
        try:
            found = read_secret(file).strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            yield settings.make_problem(path, f"{file} cannot be read: {why}", f"check the name, or write the {held} into it")
        else:
            if held == "secret" and len(found.encode()) < MIN_SECRET_BYTES:
                message = f"{file} holds no secret of {MIN_SECRET_BYTES} bytes or more: this gateway would be in no fleet"
                yield settings.make_problem(path, message, "make one for all gateways: openssl rand -hex 32")


def webhook_files(settings: Settings) -> Iterator[ConfigProblem]:
    """A webhook's token or secret URL that crosses a network as plain text; its files that cannot be read, or can be read by others."""
    for number, webhook in enumerate(settings.webhooks):
        path = f"webhooks[{number}]"
        where = parts_of(webhook.url) if webhook.url is not None and webhook.token_file is not None else None
        if where is not None and _in_plain(where):
            message = f"the token of token_file crosses the network to {where.address} as plain text"
            yield settings.make_problem(f"{path}.url", message, "use https://, or a proxy with TLS on this host")
        for key, file, held in (("token_file", webhook.token_file, "token"), ("url_file", webhook.url_file, "URL")):
            if file is None:
                continue
            try:
                mode = file.stat().st_mode
            except OSError as error:
                message = f"{file} cannot be read: {error.strerror}"
                yield settings.make_problem(f"{path}.{key}", message, f"check the name, or write the {held} into it")
                continue
            if stat.S_IMODE(mode) & 0o007:
                yield settings.make_problem(f"{path}.{key}", f"{file} can be read by others", f"chmod o= {file}")
        held_url = None if webhook.url_file is None else _url_in(webhook.url_file)
        if held_url is not None and _in_plain(held_url):
            and_token = "" if webhook.token_file is None else ", and so does the token of token_file"
            message = f"the URL in {webhook.url_file} is without TLS: it crosses the network as plain text{and_token}"
            yield settings.make_problem(f"{path}.url_file", message, "use https://, or a proxy with TLS on this host")


def _in_plain(where: UrlParts) -> bool:
    return where.scheme == "http" and not is_loopback(where.address.host)


def _url_in(file: Path) -> UrlParts | None:
    """None where the file does not hold one URL: the log says so at each post."""
    try:
        url = webhook_url_in_file(read_secret(file).strip())
    except (OSError, ValueError):
        return None
    return None if url is None else parts_of(url)


def headers_file(settings: Settings) -> Iterator[ConfigProblem]:
    """A file of HTTP headers for the collector that cannot be read, or that other users may read."""
    file = None if settings.tracing is None else settings.tracing.headers_file
    if file is None:
        return
    try:
        read_headers(file)
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        yield settings.make_problem("tracing.headers_file", message, "check the name, or write the headers into it")
    except ValueError as error:
        yield settings.make_problem("tracing.headers_file", str(error), "write NAME: VALUE on each line")
    else:
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            yield settings.make_problem("tracing.headers_file", f"{file} can be read by others", f"chmod 600 {file}")


def unheard_caps(settings: Settings) -> Iterator[ConfigProblem]:
    """Settings of a listener that its protocol does not use."""
    for number, listener in enumerate(settings.listeners):
        if listener.max_connections_per_user is not None and not listener.speaks.authenticates_users:
            message = f"has no effect with protocol: {listener.protocol}, whose clients are not authenticated here"
            remedy = "set max_connections_per_address, or remove it"
            yield settings.make_problem(f"listeners[{number}].max_connections_per_user", message, remedy)
        if listener.other_protocols != "refuse" and not listener.speaks.versions:
            message = f"has no effect with protocol: {listener.protocol}"
            yield settings.make_problem(f"listeners[{number}].other_protocols", message, "remove it")
        elif listener.other_protocols != "refuse":
            message = "lets clients of other versions (AMQP 1.0) through to the broker, and no rule limits them"
            remedy = "set refuse, or limit them at the broker"
            yield settings.make_problem(f"listeners[{number}].other_protocols", message, remedy)


def trusted_proxies(settings: Settings) -> Iterator[ConfigProblem]:
    """PROXY headers that are believed of anybody, and a list that nothing uses."""
    for number, listener in enumerate(settings.listeners):
        path = f"listeners[{number}].trusted_proxies"
        if listener.trusted_proxies and not listener.accept_proxy_protocol:
            yield settings.make_problem(path, "has no effect without accept_proxy_protocol: true", "add that, or remove this")
        for place, text in enumerate(listener.trusted_proxies if listener.accept_proxy_protocol else ()):
            if network_of(text).prefixlen == 0:
                message = f"{text} believes anybody: each client chooses the address that limits, caps and remote_admin go by"
                yield settings.make_problem(f"{path}[{place}]", message, "name the load balancer's own addresses")


def idle_nameserver_words(settings: Settings) -> Iterator[ConfigProblem]:
    """Settings of a name server's listener on other listeners, and rules for a name server, whose requests are never limited."""
    for number, listener in enumerate(settings.listeners):
        for key in ("advertise", "broker_ports"):
            if not listener.speaks.opens_listeners and getattr(listener, key) is not None:
                message = f"has no effect with protocol: {listener.protocol}"
                yield settings.make_problem(f"listeners[{number}].{key}", message, f"set protocol: {OPENING}, or remove it")
    names = {listener.name for listener in settings.listeners if listener.speaks.opens_listeners}
    for number, rule in enumerate(settings.rules):
        wanted = rule.match.listeners()
        idle = [name for name in wanted if name in names]
        for name in idle:
            message = f'requests to the name server\'s listener "{name}" are not limited: {what_it_costs(idle, wanted)}'
            remedy = f"name the listeners of its brokers: {name}/*"
            yield settings.make_problem(f"rules[{number}].match.listener", message, remedy)


def caps_beyond_caps(settings: Settings) -> Iterator[ConfigProblem]:
    """A cap per address or user that is above the cap on all connections."""
    for number, listener in enumerate(settings.listeners):
        most = listener.max_connections
        for key in ("max_connections_per_address", "max_connections_per_user"):
            cap = getattr(listener, key)
            if most is not None and cap is not None and cap > most:
                message = f"has no effect: max_connections is {most} in all"
                yield settings.make_problem(f"listeners[{number}].{key}", message, "lower it, or raise max_connections")


def caps_beyond_files(settings: Settings) -> Iterator[ConfigProblem]:
    """More connections than there are descriptors for."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return
    room = _room(settings, hard)
    for number, listener in enumerate(settings.listeners):
        if listener.max_connections is not None and listener.max_connections > room:
            message = f"the hard limit of open files ({hard}) leaves room for {room} connections"
            yield settings.make_problem(f"listeners[{number}].max_connections", message, "raise it (systemd: LimitNOFILE=), or lower this")


def few_files(settings: Settings) -> Iterator[ConfigProblem]:
    """A hard limit of open files that leaves room for few connections."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < FEW_FILES:
        message = f"the hard limit of open files is {hard}: room for {_room(settings, hard)} connections"
        yield ConfigProblem("ulimit -n", 0, 0, "", message, "raise it (systemd: LimitNOFILE=65536)")


def wide_ranges(settings: Settings) -> Iterator[ConfigProblem]:
    """Ports for so many brokers that their listeners take more than half of the descriptors."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    brokers = sum(map(brokers_room, settings.listeners))
    if hard == resource.RLIM_INFINITY or brokers * PER_BROKER <= hard // 2:
        return
    for number, listener in enumerate(settings.listeners):
        count = brokers_room(listener)
        if count:
            room = _room(settings, hard)
            message = f"{count} brokers take most of the hard limit of open files ({hard}): room for {room} connections"
            remedy = "a range has room for half as many brokers as ports: narrow it, or raise the limit (systemd: LimitNOFILE=)"
            yield settings.make_problem(f"listeners[{number}].broker_ports", message, remedy)


def outgoing_ranges(settings: Settings) -> Iterator[ConfigProblem]:
    """Ports for brokers among those of outgoing connections, which may hold one when the gateway binds it after a restart."""
    outgoing = outgoing_ports()
    for number, listener in enumerate(settings.listeners):
        ports = listener.broker_ports if brokers_room(listener) else None
        if outgoing is not None and ports is not None and ports.first <= outgoing.last and outgoing.first <= ports.last:
            message = f"overlaps {outgoing}, the ports of outgoing connections: one of them may hold a broker's port after a restart"
            remedy = "choose others; the kernel's are in /proc/sys/net/ipv4/ip_local_port_range"
            yield settings.make_problem(f"listeners[{number}].broker_ports", message, remedy)


def _room(settings: Settings, descriptors: int) -> int:
    """How many connections the gateway has descriptors for."""
    return room_for_connections(descriptors, len(settings.listeners), sum(map(brokers_room, settings.listeners)))


LINTS: Final[tuple[Callable[[Settings], Iterator[ConfigProblem]], ...]] = (
    no_rules, short_bursts, unheard_rules, idle_words, token_files, password_files, webhook_files, headers_file, find_tls_risks, few_files,
    unheard_caps, trusted_proxies, caps_beyond_files, caps_beyond_caps, idle_nameserver_words, wide_ranges, outgoing_ranges,
    fleet_without_client, log_without_zstd, log_that_fills_the_brokers_disk, tracing_without_sdk,
    *RULE_LINTS, half_spooled, impatient_pacing,
)  # fmt: skip


def lint(settings: Settings) -> list[ConfigProblem]:
    """All warnings, in the order of the file."""
    found = [problem for each in LINTS for problem in each(settings)]
    return sorted(found, key=lambda problem: (SourceLocation(problem.file).file, problem.line, problem.column))
