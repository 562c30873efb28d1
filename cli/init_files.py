"""The two files that `sluice init` writes, with comments for their readers, and what has to be changed at the broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from config.command_line import dimension_of
from config.listener_protocols import LISTENER_PROTOCOLS

BROKER_PORTS: Final = "20911-20950"  # of docs/rocketmq.md: room for twenty brokers
VIP: Final = 2  # ports below a RocketMQ broker's own, where clients with the VIP channel connect
RETRIES: Final = "100/s"  # of docs/design/limiter.md: the shipped limit of retry topics


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """What is to be written. `moves_from`: the address that the broker has now, where it has to make room."""

    protocol: str
    bind: str
    upstream: str  # one address, or several with commas
    limits: tuple[str, ...]  # 500/s, 5MiB/s
    advertise: str = ""  # rocketmq-nameserver: the host in routes, where bind is every address
    moves_from: str = ""

    @property
    def name(self) -> str:
        return {"amqp": "rabbit", "rocketmq": "rocket", "rocketmq-nameserver": "names"}[self.protocol]


def sluice_yaml(plan: FilesPlan) -> str:
    title = LISTENER_PROTOCOLS[plan.protocol].names.title
    return "\n".join([
        f"# A gateway in front of {title}, written by `sluice init` on {datetime.now(UTC):%Y-%m-%d}.",
        "# Look for mistakes: sluice check. Run: sluice run. After a change: sluice reload.",
        "# Every setting with its meaning and default: sluice config show --origin, and docs/reference/configuration.md.",
        "version: 1",
        "",
        "gateway:",
        "  state_directory: state            # live changes, history, audit, admin.token; mode 0700",
        "",
        "listeners:",
        *listeners(plan),
        "",
        "admin:",
        "  bind: 127.0.0.1:9180              # admin API, dashboard and metrics; this host only",
        "",
        "access_log:                         # passed and refused messages per topic and second; quotas are computed from it",
        "  directory: access-log",
        "  keep: 30d",
        "  keep_size: 10GiB",
        "",
        "rules_file: limits.yaml",
        "",
    ])  # fmt: skip


def listeners(plan: FilesPlan) -> Iterator[str]:
    where = "# clients connect here" if plan.protocol != "rocketmq-nameserver" else "# clients are given this as their name server"
    yield from _listener(plan.name, plan.protocol, (plan.bind, where), plan.upstream)
    if plan.protocol == "rocketmq-nameserver":
        if plan.advertise:
            yield add_comment(f"    advertise: {plan.advertise}", "# the host written into routes")
        yield add_comment(f"    broker_ports: {BROKER_PORTS}", "# a listener for each broker is opened on these")
    upstreams = plan.upstream.split(",")
    if plan.protocol == "rocketmq" and min(map(port_of, (plan.bind, *upstreams))) > VIP:
        vip, *upstreams = (f"{host_of(each)}:{port_of(each) - VIP}" for each in (plan.bind, *upstreams))
        yield from _listener(f"{plan.name}-vip", plan.protocol, (vip, "# and here, with the VIP channel"), ",".join(upstreams))


def _listener(name: str, protocol: str, bind: tuple[str, str], upstream: str) -> Iterator[str]:
    yield f"  - name: {name}"
    yield f"    protocol: {protocol}"
    yield add_comment(f"    bind: {quote(bind[0])}", bind[1])
    addresses = [quote(each.strip()) for each in upstream.split(",")]
    if len(addresses) == 1:
        yield add_comment(f"    upstream: {addresses[0]}", "# the broker")
    else:
        yield add_comment(f"    upstream: [{', '.join(addresses)}]", "# the brokers, the preferred one first")


def add_comment(text: str, comment: str) -> str:
    """A line of YAML with a comment, in the column of the others where there is room."""
    return f"{text.ljust(35)} {comment}"


def quote(address: str) -> str:
    """An address as YAML takes it: in quotes where it begins with a bracket."""
    return f'"{address}"' if address.startswith("[") else address


def host_of(address: str) -> str:
    return address.rpartition(":")[0]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def limits_yaml(plan: FilesPlan) -> str:
    names = LISTENER_PROTOCOLS[plan.protocol].names
    limit = ", ".join(f"{dimension_of(each)}: {each}" for each in plan.limits)
    topic = "virtual host, exchange and routing key" if names.name == "amqp" else "topic"
    lines = [
        "# Limits. In force after `sluice reload`; live changes (`sluice limits set`) go before them.",
        f"# {names.title}: each {topic} has a bucket of its own. All words of a rule: docs/reference/configuration.md.",
        "rules:",
        "  - name: every-topic",
        f"    match: {{protocol: {names.name}}}",
        "    per: topic                      # topic | client | user | connection | listener | rule ...",
        add_comment(f"    limit: {{{limit}}}", "# messages and bytes per second; burst: 2s of the rate (default 1s)"),
        "    action: reject                  # or delay: over the limit a message waits, up to max_delay",
        "    # mode: shadow                  # count what would be refused, and refuse nothing",
    ]
    if names.name == "rocketmq":
        lines += [
            "  - name: retries                   # one consumer group that fails on everything must not flood the broker",
            "    match: {protocol: rocketmq, topic: '%RETRY%*'}",
            "    per: topic",
            f"    limit: {{messages: {RETRIES}}}",
        ]
        example = "{protocol: rocketmq, topic: orders}"
    else:
        example = "{protocol: amqp, vhost: /, exchange: orders, routing_key: 'order.#'}"
    return "\n".join([
        *lines,
        "  # A limit of its own for some topics; a rule that names its topics goes before the one for all:",
        "  # - name: orders",
        f"  #   match: {example}",
        "  #   per: topic",
        "  #   limit: {messages: 2000/s, bytes: 10MiB/s, burst: 2s}",
        "",
    ])  # fmt: skip


def changes_at_broker(plan: FilesPlan) -> list[str]:
    """What has to be done at the broker before the gateway runs, in lines; empty where nothing has."""
    if not plan.moves_from:
        return []
    if plan.protocol == "amqp":
        return [
            f"RabbitMQ makes room: it moves from {plan.moves_from} to {plan.upstream}.",
            "Write this line into /etc/rabbitmq/rabbitmq.conf, in place of other listeners.tcp lines:",
            f"    listeners.tcp.1 = {plan.upstream}",
            "and restart it: systemctl restart rabbitmq-server",
        ]
    host = host_of(plan.bind)
    return [
        f"The broker makes room: it moves from {plan.moves_from} to {plan.upstream}, and keeps its address for clients.",
        "Write these lines into broker.conf (RocketMQ 5.0 and later):",
        f"    brokerIP1={host}",
        f"    bindAddress={host_of(plan.upstream)}",
        "and restart it: sh bin/mqshutdown broker; nohup sh bin/mqbroker -c conf/broker.conf &",
    ]
