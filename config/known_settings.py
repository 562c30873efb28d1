"""The settings of a gateway, as types. What each may be, its default and its meaning stand here and nowhere else.

The configuration decoder, the JSON Schemas in `config/`, `sluice config show` and the environment's names are made from these types.
Durations are nanoseconds, sizes bytes, paths absolute once loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from common.records import dataclass
from config.addresses import Address, HostName, HostPort, Network
from config.http_urls import CollectorUrl, WebhookUrl, parts_of
from config.kinds import Choice, Name, OrOff, PathName, Text, Whole, YesNo
from config.listener_protocols import LISTENER_PROTOCOLS, ListenerProtocol
from config.port_ranges import PortRange, Ports
from config.quantities import ConnectionRate, Duration, FreeSpace, Percent, ShareOf, Size, SizeOrPercent
from config.redis_urls import RedisUrl
from config.sections import REQUIRED, ListOf, Off, OneOrMore, OrElse, Section, setting
from limiter.bypass import BypassBound
from limiter.limits import Rate

MAX_UPSTREAMS: Final = 16  # addresses of one listener; each is probed, and RabbitMQ's clusters have 3 to 7 nodes (a guess)


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The gateway itself."""

    name: str = setting(Name("orders-sidecar"), "", "Name in logs, metrics and the access log; default: the host's name.")
    workers: int = setting(Whole(1, 1024, 2), 1, "Processes that share the listening sockets and the limits; 1: one process alone.")
    max_topics: int = setting(
        Whole(1000, 1_000_000, 10_000),
        10_000,
        "Topics with totals of their own, in each process, which the API and the dashboard list; more are counted as __other__ while none "
        "of them is idle. 100,000 take 60 MB.",
    )
    state_directory: Path = setting(
        PathName("state"), Path("state"), "Where overrides, quotas, history and admin.token are kept; created with mode 0700."
    )
    watchdog_ns: int | None = setting(
        OrOff(Duration("30s", "1s", "1h")),
        30_000_000_000,
        "How long the event loop of a process may hang before the process ends, with its stacks in the log, so that its supervisor starts "
        "another; or off.",
        key="watchdog",
    )
    reload_on_change: bool = setting(
        YesNo(),
        False,
        "Whether files of this configuration that change are read by themselves, within three seconds; rules, tokens and TLS included. "
        "When Kubernetes swaps the links of a ConfigMap or Secret, they change. Where they are faulty, the last good configuration stays.",
    )
    takeover: Path | None = setting(
        PathName("run/takeover.sock"),
        None,
        "Unix socket where the next process of this configuration takes over: it gets the listening sockets and the state, so nobody is "
        "refused. Default: none; a new process starts when the old one has ended.",
    )


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """TLS towards clients, 1.2 and later. Files are PEM, and read again on a reload."""

    certificate: Path = setting(PathName("tls/gateway.pem"), REQUIRED, "The listener's certificate, followed by those that vouch for it.")
    key: Path = setting(PathName("tls/gateway.key"), REQUIRED, "Its private key, without a password.")
    client_ca: Path | None = setting(
        PathName("tls/clients-ca.pem"), None, "CAs of client certificates; with it every client must show a certificate of theirs."
    )
    mode: str = setting(
        Choice("enforcing", "permissive"),
        "enforcing",
        "enforcing: clients without TLS are closed; permissive (RocketMQ's tls.server.mode): they are let in too, on the same port.",
    )


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """TLS towards the broker, 1.2 and later. Files are PEM, and read again on a reload."""

    needs: ClassVar = {"certificate": ("key",), "key": ("certificate",)}

    ca: Path | None = setting(PathName("tls/broker-ca.pem"), None, "CAs the broker's certificate may be of; default: the system's.")
    certificate: Path | None = setting(PathName("tls/gateway.pem"), None, "The gateway's own certificate, where the broker wants one.")
    key: Path | None = setting(PathName("tls/gateway.key"), None, "Its private key, without a password.")
    server_name: str | None = setting(
        HostName("broker.example"),
        None,
        "Name in the broker's certificate, also asked for (SNI); default: the host of each address in upstream.",
    )
    verify: str = setting(
        Choice("full", "ca", "none"),
        "full",
        "full: the certificate is of a trusted CA and names the broker; ca: of a trusted CA; none: any, against eavesdroppers only.",
    )


@dataclass(frozen=True, slots=True)
class OwnLogin:
    """The gateway's own login at an AMQP broker, with which it looks at queues (algorithm: lag). Nothing but that is done with it."""

    user: str = setting(
        Text("sluice", ".{1,255}", "a user name of 1 to 255 characters"),
        REQUIRED,
        "User; all it needs is access to the virtual host.",
    )
    password_file: Path = setting(PathName("secrets/rabbit.password"), REQUIRED, "File with the password, read at each login.")


@dataclass(frozen=True, slots=True)
class RemoteAdminSettings:
    """RocketMQ requests that view and change limits (9002 and 9003 of MQCloud), answered by the gateway. Both conditions must be met."""

    allow: tuple[str, ...] = setting(
        ListOf(Network("10.0.0.0/8"), "10.0.0.0/8", least=1),
        REQUIRED,
        "Client addresses and networks (CIDR) that may send them; others are answered with code 16.",
    )
    access_keys: tuple[str, ...] = setting(
        ListOf(Text("mqcloud", ".{1,64}", "an access key of 1 to 64 characters"), "mqcloud"),
        (),
        "With it a request must also claim one of these ACL access keys. The gateway cannot verify its signature: this keeps accidents "
        "away, not attackers.",
    )
    legacy_codes: bool = setting(
        YesNo(),
        False,
        "Also answer 329 and 330, MQCloud's codes for old brokers. RocketMQ itself uses 329 for DELETE_EXPIRED_COMMITLOG: the broker does "
        "not get that any more.",
    )


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """An address clients connect to, and the broker behind it."""

    name: str = setting(Name("rabbit"), REQUIRED, "Name of the listener, as rules, metrics and logs call it.")
    protocol: str = setting(
        Choice(*LISTENER_PROTOCOLS),
        REQUIRED,
        "What is spoken here: amqp (0-9-1); rocketmq (remoting); rocketmq-nameserver: clients ask here for routes, which lead them to "
        "listeners that the gateway opens for each broker.",
    )
    bind: Address = setting(
        HostPort("127.0.0.1:5672", bind=True), REQUIRED, "Address to listen on, host:port or [v6]:port; port 0 takes a free one."
    )
    upstreams: tuple[Address, ...] = setting(
        OneOrMore(HostPort("127.0.0.1:5673", bind=False), "[10.0.0.1:5672, 10.0.0.2:5672]", most=MAX_UPSTREAMS),
        REQUIRED,
        "Address of the broker, host:port; or a list of addresses of one cluster, the preferred one first: new connections go to the first "
        "that answers.",
        key="upstream",
    )
    tls: ListenerTls | None = setting(OrElse(Section(ListenerTls), Off()), None, "TLS towards clients, or off.")
    upstream_tls: UpstreamTls | None = setting(
        OrElse(Section(UpstreamTls), Off("{} (for the system's CAs)")), None, "TLS towards the broker, or off."
    )
    accept_proxy_protocol: bool = setting(
        YesNo(),
        False,
        "Whether each connection begins with a PROXY header, version 1 or 2; without one it is closed. For listeners behind a load "
        "balancer: the address in it is believed, so trusted_proxies must name the balancer.",
    )
    trusted_proxies: tuple[str, ...] = setting(
        ListOf(Network("10.0.0.5"), "10.0.0.5"),
        (),
        "With accept_proxy_protocol: the load balancers' own addresses and networks (CIDR). Their PROXY headers are believed; whoever else "
        "connects is closed before anything is read.",
    )
    send_proxy_protocol: str = setting(
        Choice("none", "v2"),
        "none",
        "v2 tells the broker the client's own address in a PROXY header (RabbitMQ: proxy_protocol = true; RocketMQ 5.1.4 and later).",
    )
    max_connections: int | None = setting(
        Whole(1, 10_000_000, 10_000),
        None,
        "Most connections at once. Default: what the limit of open files leaves room for, over all listeners.",
    )
    max_connections_per_address: int | None = setting(Whole(1, 10_000_000, 1000), None, "Most connections of one client address.")
    max_connections_per_user: int | None = setting(Whole(1, 10_000_000, 1000), None, "Most connections of one authenticated user (AMQP).")
    max_connection_rate: Rate | None = setting(ConnectionRate(), None, "Most new connections; a second's worth may come at once.")
    handshake_timeout_ns: int = setting(
        Duration("10s", "100ms", "10min"),
        10_000_000_000,
        "How long a new client may take until its handshake is over (AMQP: connection.open-ok) or its first request is in (RocketMQ).",
        key="handshake_timeout",
    )
    idle_timeout_ns: int | None = setting(
        Duration("10min", "1s", "30d"),
        None,
        "Close a connection on which nothing, heartbeats included, was received from either side for so long. Default: 5min for RocketMQ, "
        "whose clients send something every 30 s; never for AMQP, whose clients may be silent for days without heartbeats.",
        key="idle_timeout",
    )
    frame_timeout_ns: int = setting(
        Duration("30s", "1s", "1h"),
        30_000_000_000,
        "Close a client that begins a frame and then sends less than 4 KiB/s of it for so long.",
        key="frame_timeout",
    )
    other_protocols: str = setting(
        Choice("refuse", "pass"),
        "refuse",
        "AMQP clients of another version than 0-9-1: refuse answers with the version spoken here and closes; pass lets them through to "
        "the broker as they are, not limited.",
    )
    max_frame: int = setting(
        Size("16MiB", "4KiB", "1GiB"),
        16 << 20,
        "Largest frame accepted; a larger one announced ends the connection. AMQP clients are offered no larger frame_max (8KiB at least); "
        "a broker's content headers, which may have grown above frame_max on their way, pass up to this size.",
    )

    own_login: OwnLogin | None = setting(
        Section(OwnLogin), None, "AMQP: the gateway's own login at the broker, for limits that follow a queue's backlog (algorithm: lag)."
    )
    remote_admin: RemoteAdminSettings | None = setting(
        OrElse(Section(RemoteAdminSettings), Off()),
        None,
        "Who may view and change limits by RocketMQ requests (MQCloud's console); off: the broker answers.",
    )

    advertise: str | None = setting(
        HostName("10.0.0.5"),
        None,
        "rocketmq-nameserver: the host written into routes, where clients reach this gateway. Default: the host of bind.",
    )
    broker_ports: PortRange | None = setting(
        Ports("20911-20950"),
        None,
        "rocketmq-nameserver: ports for the listeners of its brokers, which are opened as routes name them, on the host of bind and with "
        "this listener's settings. A range has room for half as many brokers: the port two below a broker's is its VIP port.",
    )

    @property
    def speaks(self) -> ListenerProtocol:
        """What its protocol has and has not."""
        return LISTENER_PROTOCOLS[self.protocol]

    @property
    def idle_ns(self) -> int:
        """Its idle time-out in force; 0: none."""
        return self.speaks.idle_timeout_ns if self.idle_timeout_ns is None else self.idle_timeout_ns


@dataclass(frozen=True, slots=True)
class LimiterSettings:
    """The limiter's own executor."""

    threads: int = setting(
        Whole(0, 64, 1),
        1,
        "Threads the judge runs on, each connection on one of them: more keep floods apart, judge no faster; 0 judges on the event loop.",
    )
    inline: str = setting(
        Choice("trusted", "never"),
        "trusted",
        "trusted: a judge that has answered quickly several times in a row is asked on the event loop; never: every batch goes over the "
        "threads, and one that finds the queue full and may not pass waits for them.",
    )
    queue: int = setting(Whole(1, 10_000_000, 10_000), 10_000, "Requests that may wait for each thread; beyond it on_rejection decides.")
    on_rejection: str = setting(
        Choice("pass", "judge"), "pass", "When the queue is full: pass the batch unlimited and count it, or judge it on the event loop."
    )
    max_bypass: BypassBound = setting(
        ShareOf("10%/10s"),
        BypassBound(100_000, 10_000_000_000),
        "With on_rejection: pass: the most that may pass like that, of the messages of the last seconds; beyond it they are judged on the "
        "event loop. 100%/10s: no bound.",
    )
    max_keys: int = setting(
        Whole(1, 100_000_000, 1_000_000),
        1_000_000,
        "Buckets remembered; beyond it new keys share one overflow bucket, counted.",
    )


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """Published quotas, as this gateway applies them. A reload puts it in force."""

    hourly_raise: str = setting(
        Choice("off", "on"),
        "off",
        "on: at each full hour a published quota that has an hourly factor is raised to that factor times the last hour's mean demand; it "
        "never falls below the published rate. Not in a fleet.",
    )
    hourly_raise_max: int = setting(Whole(2, 100, 4), 4, "Times the published rate that a quota may be raised to at most.")
    surge_raise: str = setting(
        Choice("off", "on"),
        "off",
        "on: every ten seconds a published quota that has an hourly factor is raised to 1.5 times the demand of those seconds; the raise "
        "is gone a minute after the surge. A listener's cap is what bounds all of them together. Not in a fleet.",
    )


@dataclass(frozen=True, slots=True)
class RedisTls:
    """TLS towards Redis, where its URL begins with rediss://. Files are PEM."""

    needs: ClassVar = {"certificate": ("key",), "key": ("certificate",)}

    ca: Path | None = setting(PathName("tls/redis-ca.pem"), None, "CAs Redis' certificate may be of; default: the system's.")
    certificate: Path | None = setting(PathName("tls/gateway.pem"), None, "The gateway's own certificate, where Redis wants one.")
    key: Path | None = setting(PathName("tls/gateway.key"), None, "Its private key, without a password.")
    verify: str = setting(
        Choice("full", "ca", "none"),
        "full",
        "full: the certificate is of a trusted CA and names the host of the URL; ca: of a trusted CA; none: any.",
    )


@dataclass(frozen=True, slots=True)
class FleetRedis:
    """The Redis that keeps the buckets of all gateways of a fleet."""

    url: str = setting(
        RedisUrl(),
        REQUIRED,
        "Where it is: redis://[USER@]HOST[:PORT][/DATABASE], rediss:// for TLS, unix:///SOCKET. Redis 5 or later, or Valkey.",
    )
    name: str = setting(
        Name("orders"), REQUIRED, "Name of the fleet: gateways that say the same share their limits. Part of every key in Redis."
    )
    timeout_ns: int = setting(
        Duration("50ms", "1ms", "10s"),
        50_000_000,
        "How long to wait for an answer. No message waits for it: without one each gateway goes on with its last share.",
        key="timeout",
    )
    cluster: bool = setting(YesNo(), False, "Whether the URL is that of a node of a Redis Cluster, which says where the others are.")
    gateways: int = setting(
        Whole(1, 100_000, 3),
        1,
        "How many gateways to reckon with until Redis has said how many there are: of interest when it is gone then.",
    )
    password_file: Path | None = setting(
        PathName("redis.password"), None, "File that holds the password; read at every connection, so that it may change."
    )
    secret_file: Path | None = setting(
        PathName("fleet.secret"),
        None,
        "File that holds the fleet's secret, 16 bytes or more, the same in every gateway: only gateways that have it count as members.",
    )
    tls: RedisTls | None = setting(
        OrElse(Section(RedisTls), Off()), None, "TLS towards Redis, with rediss:// only; default: the system's CAs."
    )


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Gateways that share one set of limits."""

    redis: FleetRedis = setting(Section(FleetRedis), REQUIRED, "The Redis that keeps the buckets.")


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """Credit between the stages of a connection, in messages, and in bytes towards the broker. Either stops the reader."""

    initial: int = setting(Whole(1, 1_000_000, 400), 400, "Messages a stage may pass on before the next has handled any.")
    more_after: int = setting(
        Whole(1, 1_000_000, 200), 200, "Messages after whose handling that much credit is granted again; at most initial."
    )
    bytes: int = setting(
        Size("256KiB", "16KiB", "1GiB"),
        256 << 10,
        "Bytes that may wait for the broker's socket; then the client is not read.",
    )


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Bounds on memory."""

    per_connection: int = setting(Size("1MiB", "16KiB", "1GiB"), 1 << 20, "Bytes of one connection that may be held; then it is not read.")
    high_watermark: int = setting(
        Size("256MiB", "1MiB", "1024GiB"),
        256 << 20,
        "Bytes sent by clients that all connections hold; then publishers are not read. At most 30 % of limit, whatever is set.",
    )
    delivery_watermark: int = setting(
        Size("128MiB", "1MiB", "1024GiB"),
        128 << 20,
        "Bytes that wait for the clients of one listener; then brokers of clients that do not read are not read. At most 20 % of limit.",
    )
    target: int = setting(
        Size("32MiB", "1MiB", "64GiB"),
        32 << 20,
        "Bytes of spooled messages that may be in memory, of all channels together: the next ones, and those on their way to the disk. "
        "Near it the largest channels are written first. At most half of high_watermark.",
    )
    limit: int | None = setting(
        Size("512MiB", "64MiB", "1024GiB"),
        None,
        "Size of the process from 85 % of which on it saves memory, and at 92 % refuses new connections. Default: what the control group, "
        "the machine or the limit of address space allows.",
    )


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """Bounds on the disk."""

    low_watermark: FreeSpace = setting(
        SizeOrPercent(Size("200MiB", "0B", "1024GiB"), Percent("12%", 1, 900), 200 << 20),
        FreeSpace(200 << 20, 120),
        "Free space below which the access log is not written: a size, or a part of the disk, and then 200MiB at least. RocketMQ refuses "
        "all sends when less than 10% of its disk is free.",
    )


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Where messages wait whose rule says `action: spool`."""

    directory: Path | None = setting(
        PathName("spool"),
        None,
        "Where they wait on disk, each process in a directory of its own; default: spool in gateway.state_directory.",
    )
    max_size: int = setting(
        Size("10GiB", "16MiB", "1024GiB"),
        10 << 30,
        "Bytes of files at most; then clients whose messages are to be spooled are not read. Workers have equal parts of it.",
    )


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """How a graceful stop ends connections: at SIGTERM, `sluice drain` and POST /v1/drain."""

    timeout_ns: int = setting(
        Duration("27s", "1s", "1h"),
        27_000_000_000,
        "How long it may take; the process is gone 3 s later at the latest. Whoever kills it after a while has to wait 8 s longer than "
        "this (systemd: TimeoutStopSec, Kubernetes: terminationGracePeriodSeconds).",
        key="timeout",
    )
    hold: str = setting(
        Choice("at_once", "until_clients_leave"),
        "at_once",
        "at_once: clients are told as soon as nothing of theirs is under way; until_clients_leave: they are served, also new ones, until "
        "they have left by themselves, and told near the end of timeout: for a sidecar that is stopped together with its application.",
    )
    delay_ns: int = setting(
        Duration("5s", "0s", "30min"),
        0,
        "For so long all are served as before, newcomers too, while only /readyz says that the gateway stops: what a load balancer or a "
        "Kubernetes Service takes to lead nobody here any more. A part of timeout, at most half of it.",
        key="delay",
    )


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Somebody who may use the admin API."""

    name: str = setting(Name("ci"), REQUIRED, "Who it is, as the history shows it.")
    role: str = setting(Choice("viewer", "operator", "admin"), REQUIRED, "viewer reads, operator also changes limits, admin does all.")
    file: Path = setting(PathName("tokens/ci"), REQUIRED, "File that holds the token (`sluice token new`), mode 0600.")


@dataclass(frozen=True, slots=True)
class AdminTls:
    """TLS on the admin API, 1.2 and later. Files are PEM, and read again on a reload."""

    certificate: Path = setting(PathName("tls/admin.pem"), REQUIRED, "The admin API's certificate, followed by those that vouch for it.")
    key: Path = setting(PathName("tls/admin.key"), REQUIRED, "Its private key, without a password.")
    client_ca: Path | None = setting(
        PathName("tls/operators-ca.pem"),
        None,
        "CAs of client certificates; with it every client must show a certificate of theirs, and its token as well.",
    )


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The admin API, with the dashboard, probes and metrics."""

    bind: Address = setting(
        HostPort("127.0.0.1:9180", bind=True), Address("127.0.0.1", 9180), "Address to listen on; other than loopback only with tls."
    )
    names: tuple[str, ...] = setting(
        ListOf(HostName("sluice.monitoring.svc"), "sluice.monitoring.svc"),
        (),
        "Host names under which clients may reach it, beside addresses and localhost: what the Host header must say.",
    )
    tls: AdminTls | None = setting(OrElse(Section(AdminTls), Off()), None, "TLS on the admin API, or off.")
    socket: Path | None = setting(
        PathName("run/admin.sock"), None, "Unix socket to listen on as well, mode 0600; tokens are needed there, too."
    )
    tokens: tuple[TokenSettings, ...] = setting(
        ListOf(Section(TokenSettings), "{name: ci, role: operator, file: tokens/ci}"),
        (),
        "Bearer tokens beside state/admin.token and those made by `sluice token new`.",
    )
    series_topics: int = setting(
        Whole(0, 10_000, 280),
        280,
        "Topics whose last 15 minutes (second by second) and last 24 hours (by 10 seconds) are kept for charts: the busiest, 95 KB each. "
        "0: no charts.",
    )


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """A second listener for probes and scrapes: /livez, /readyz, /startupz and /metrics, nothing else, without TLS."""

    bind: Address = setting(HostPort("0.0.0.0:9181", bind=True), REQUIRED, "Address to listen on; any.")
    metrics: str = setting(
        Choice("token", "open"),
        "token",
        "token: /metrics needs a bearer token, of any role; open: everybody who reaches this port reads it.",
    )


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """A receiver of what becomes of limits, in Alertmanager's JSON: limit reached, limit recovered."""

    one_of: ClassVar = ("url", "url_file")
    needs: ClassVar = {"url_file": ("name",), "user": ("token_file",)}

    url: str | None = setting(WebhookUrl(), None, "Where the receiver is: http:// or https://, without credentials.")
    url_file: Path | None = setting(
        PathName("secrets/webhook.url"), None, "File with the URL, in place of url, where its path or query lets one in; read at each post."
    )
    name: str = setting(
        Name("ops"), "", "Name in logs and metrics, and the receiver's name in what is sent; default: host:port of url. url_file needs one."
    )
    format: str = setting(
        Choice("webhook", "alertmanager"),
        "webhook",
        "webhook: what Alertmanager posts to its webhook receivers (version 4); alertmanager: what Prometheus posts to Alertmanager, at "
        "/api/v2/alerts below url.",
    )
    token_file: Path | None = setting(
        PathName("secrets/webhook.token"), None, "File with a bearer token, or with the password of user; read at each post."
    )
    user: str | None = setting(
        Text("sluice", "[^:]{1,255}", "a user name of 1 to 255 characters without a colon"),
        None,
        "User of HTTP Basic authentication, with the password in token_file; default: token_file holds a bearer token.",
    )
    ca: Path | None = setting(
        PathName("tls/webhook-ca.pem"), None, "CAs the receiver's certificate may be of; default: the system's. It is always verified."
    )
    timeout_ns: int = setting(
        Duration("5s", "100ms", "1min"), 5_000_000_000, "How long one post may take, from the connection to the answer.", key="timeout"
    )
    repeat_every_ns: int | None = setting(
        Duration("4h", "10s", "7d"),
        None,
        "How often what is still over its limit is told again. Default: 4h; with format: alertmanager 1min, because Alertmanager resolves "
        "an alert that is not repeated for four times as long.",
        key="repeat_every",
    )

    @property
    def label(self) -> str:
        """Its name, or else its address. Never more of the URL: its path may be what lets one in."""
        return self.name or (str(parts_of(self.url).address) if self.url else "")

    @property
    def repeat_s(self) -> float:
        default_ns = 60_000_000_000 if self.format == "alertmanager" else 14_400_000_000_000  # Prometheus' and Alertmanager's own defaults
        return (self.repeat_every_ns or default_ns) / 1e9


@dataclass(frozen=True, slots=True)
class AccessLogSettings:
    """What passed and what did not, per topic, client and second, as JSON lines."""

    directory: Path = setting(PathName("access-log"), Path("access-log"), "Where the files go, in dt=YYYY-MM-DD/hr=HH.")
    roll_every_ns: int = setting(Duration("5min", "1s", "1h"), 300_000_000_000, "Age at which a file is closed.", key="roll_every")
    roll_size: int = setting(Size("128MiB", "4KiB", "16GiB"), 128 << 20, "Size at which a file is closed.")
    compress: str = setting(
        Choice("auto", "zstd", "gzip", "off"),
        "auto",
        "How closed files of hours that are over are compressed; auto: by zstd where the package zstandard is installed, else by gzip.",
    )
    keep_ns: int = setting(
        Duration("30d", "1h", "36500d"), 30 * 86_400_000_000_000, "Age at which an hour's files are deleted; see keep_until.", key="keep"
    )
    keep_size: int = setting(
        Size("10GiB", "1MiB", "1048576GiB"), 10 << 30, "Bytes of all files together, above which the oldest are deleted; see keep_until."
    )
    keep_until: str = setting(
        Choice("auto", "shipped", "counted", "age"),
        "auto",
        "What must have become of an hour before keep and keep_size may delete it: shipped (sluice log ship), counted (sluice quotas "
        "nightly), or nothing (age). auto: shipped once anything was shipped from here, else counted once anything was counted, else age.",
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The gateway's own log, on stderr."""

    level: str = setting(Choice("debug", "info", "warning", "error"), "info", "Least level written.")
    format: str = setting(
        Choice("auto", "json", "text"), "auto", "json for machines, text for people; auto: text where stderr is a terminal, else json."
    )


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Spans of refused, delayed and spooled messages that carry a W3C traceparent, sent to an OpenTelemetry collector by OTLP over HTTP."""

    endpoint: str = setting(CollectorUrl(), REQUIRED, "Where spans are sent: the collector's whole URL for traces, path included.")
    headers_file: Path | None = setting(
        PathName("secrets/otlp.headers"),
        None,
        "File with HTTP headers for the collector, such as its token: a line NAME: VALUE for each; read at the start.",
    )
    sampling_ratio: int = setting(
        Percent("100%", 1, 1000),
        1000,
        "Part of the traces that get spans, of those that the client samples itself; chosen by trace id, as TraceIdRatioBased does.",
    )
    max_per_second: int = setting(
        Whole(1, 10_000, 100),
        100,
        "Most spans in a second; of what is refused, delayed or spooled beyond them nothing is looked at. With workers each has an equal "
        "part.",
    )
    timeout_ns: int = setting(
        Duration("10s", "100ms", "1min"), 10_000_000_000, "How long the collector may take. No message waits for it.", key="timeout"
    )


FLEET = OrElse(Section(FleetSettings), Off())
ACCESS_LOG = OrElse(Section(AccessLogSettings), Off())
MAX_WEBHOOKS = 8  # receivers; each has a task and alerts of its own; a guess
WEBHOOKS = ListOf(Section(WebhookSettings), "{url: https://alerts.example/hooks/sluice}", most=MAX_WEBHOOKS)
PROBES = OrElse(Section(ProbeSettings), Off())
TRACING = OrElse(Section(TracingSettings), Off())
