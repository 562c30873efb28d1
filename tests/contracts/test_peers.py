"""Peers whose answers have no end: asking them ends, and reads little. SECURITY.md has the table of peers and their bounds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
import trio
from botocore.config import Config

from admin.alerting import http_post
from admin.alerting.http_post import ReceiverSilentError
from cli.client import AdminClient
from cli.exits import CommandError
from common.log_files import s3, webhdfs
from common.log_files.targets import TargetError
from config.http_urls import parts_of
from config.known_settings import FleetRedis, TracingSettings
from gateway.broker_load.amqp import AmqpSource
from gateway.broker_load.rocketmq import RocketmqSource
from gateway.broker_load.source import BacklogError, Source
from gateway.clock import now_ns
from gateway.fleet.outages import OwnerGoneError
from gateway.fleet.redis_owner import RedisOwner
from gateway.listeners.upstream import Upstream
from gateway.listeners.upstreams import Upstreams
from gateway.protocols import PROTOCOLS
from gateway.telemetry.span_export import SpanExport
from limiter.limits import Lag, Rate
from support.hostile_peers import (
    ADMIN_API,
    BACKLOG,
    COLLECTOR,
    HDFS,
    LIVENESS,
    MANNERS,
    NEXT,
    REDIS,
    RUNNING,
    S3,
    WAYS,
    WEBHOOK,
    Peer,
    table,
)  # fmt: skip
from support.processes import LOOPBACK
from support.spans import record

MORE = 16 << 20  # bytes; of memory, beside what is read
IN_SOCKETS = 16 << 20  # bytes; that the kernel may hold of what the peer has sent and nobody has read
TIMEOUT_S = 0.3


def ask_collector(port: int) -> None:
    export = SpanExport(TracingSettings(endpoint=f"http://{LOOPBACK}:{port}/v1/traces", timeout_ns=int(TIMEOUT_S * 1e9)), "orders", "0a1b")
    export.start()
    export.recorder.add(record())
    export.tick(now_ns())
    export._queue.put(None)
    thread = export._thread
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive(), "the thread of the spans waits for ever"
    export._thread = None
    export._complaints.end()
    counts = export.counts()
    assert counts["exported"] + counts["failed"] == 1  # a 200 whose end is a reset may count as an answer


def ask_redis(port: int) -> None:
    owner = RedisOwner(FleetRedis(f"redis://{LOOPBACK}:{port}/0", "peers", int(TIMEOUT_S * 1e9)), "a")
    with pytest.raises(OwnerGoneError):
        owner.show()


def ask_webhook(port: int) -> None:
    where = parts_of(f"http://{LOOPBACK}:{port}/hook")
    with suppress(ReceiverSilentError):  # a status that has come is an answer, whatever follows it
        trio.run(http_post.post, where, b"{}", [], None, TIMEOUT_S)


def ask_gateway(port: int) -> None:
    with pytest.raises(CommandError):
        AdminClient(f"http://{LOOPBACK}:{port}", "token", TIMEOUT_S).ask("GET", "/v1/status")


def ask_whether_it_lives(port: int) -> None:
    for protocol in ("amqp", "rocketmq"):
        upstream = Upstream("orders", (LOOPBACK, port), question=PROTOCOLS[protocol].question)
        trio.run(upstream.probe)
        assert upstream.ok is False


def backlog(source: Source) -> None:
    async def ask() -> None:
        with pytest.raises(BacklogError):
            await source.backlog("orders", Lag(1, Rate(1), queue="orders", group="workers"))

    trio.run(ask)
    assert source.channel is None


def ask_rabbitmq_for_a_backlog(port: int) -> None:
    backlog(AmqpSource(Upstreams.at("orders", [(LOOPBACK, port)]), "/", lambda: ("sluice", "secret")))


def ask_rocketmq_for_a_backlog(port: int) -> None:
    backlog(RocketmqSource(Upstreams.at("orders", [(LOOPBACK, port)])))


def ask_hdfs(port: int) -> None:
    with pytest.raises(TargetError):
        webhdfs.WebHdfs("webhdfs", LOOPBACK, port, "/logs", "sluice", {}).get("manifest.json")


def ask_s3(port: int) -> None:
    with pytest.raises(TargetError):
        s3.S3("logs", "", f"http://{LOOPBACK}:{port}").put_bytes("manifest.json", b"{}")


# By its name in SECURITY.md, and of which kind it is: who asks.
ASKS: dict[tuple[str, str], Callable[[int], None]] = {
    (COLLECTOR, ""): ask_collector,
    (REDIS, ""): ask_redis,
    (WEBHOOK, ""): ask_webhook,
    (ADMIN_API, ""): ask_gateway,
    (LIVENESS, ""): ask_whether_it_lives,
    (BACKLOG, "RabbitMQ"): ask_rabbitmq_for_a_backlog,
    (BACKLOG, "RocketMQ"): ask_rocketmq_for_a_backlog,
    (HDFS, ""): ask_hdfs,
    (S3, ""): ask_s3,
}
MOST_READ = {  # bytes
    COLLECTOR: 65_536, REDIS: 2 << 20, WEBHOOK: 65_536 + 16_384, ADMIN_API: 64 << 20, LIVENESS: 2 * 80 << 10, BACKLOG: 4 << 20,
    HDFS: 1 << 20, S3: 1 << 20,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("peer_of", ASKS, ids=" ".join)
def test_an_answer_without_an_end_is_an_outage_of_its_peer(peer_of: tuple[str, str], way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs, "TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(webhdfs, "SLOWEST", 1 << 40)
    monkeypatch.setattr(s3, "OPERATION_S", TIMEOUT_S)
    monkeypatch.setattr(s3, "CONFIG", s3.CONFIG.merge(Config(retries={"max_attempts": 1})))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "peers")
    with Peer(MANNERS[peer_of], way) as peer:
        tracemalloc.start()
        try:
            ASKS[peer_of](peer.port)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < MOST_READ[peer_of[0]] + MORE
        assert peer.sent < MOST_READ[peer_of[0]] + IN_SOCKETS


def test_the_table_of_peers_has_them_and_no_other() -> None:
    """Those of a takeover are in tests/control_plane/test_takeover.py: they speak over a Unix socket."""
    assert table() == {name for name, _ in ASKS} | {RUNNING, NEXT}
