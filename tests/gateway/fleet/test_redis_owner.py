"""Asking Redis: what it answers, and what it means when it does not, on the real thing; nonsense comes from a stand-in."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from trustme import CA

from config.known_settings import FleetRedis, RedisTls
from gateway.fleet.outages import OwnerGoneError
from gateway.fleet.redis_owner import ASKS_AT_ONCE, Ask, RedisOwner, Slice
from gateway.fleet.script import key_of, rates_of
from limiter.limits import Limit, Rate
from support.brokers.redis_server import RedisServer
from support.models.fleets import MS, fleet_settings
from support.processes import LOOPBACK, free_ports

pytestmark = pytest.mark.slow  # a Redis

NOW_US = 1_795_000_000_000_000
HUNDRED = rates_of(Limit(messages=Rate(100)))


def identity(topic: str) -> tuple[str, str, str, str]:
    return ("topic", "", "rocketmq", topic)


def ask_for(topic: str, messages: int, begin: tuple[int, int] | None = None) -> Ask:
    return Ask(identity(topic), HUNDRED, messages, 0, begin)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "own-redis") as server:
        yield server


@pytest.fixture
def owner_of() -> Iterator[Callable[..., RedisOwner]]:
    with ExitStack() as made:

        def make(settings: FleetRedis | str, member: str = "a", clock_us: int = NOW_US) -> RedisOwner:
            known = fleet_settings(settings, timeout_ms=1000) if isinstance(settings, str) else settings
            owner = RedisOwner(known, member, clock_us)
            made.callback(owner.close)
            return owner

        yield make


def reason(owner: RedisOwner) -> str:
    with pytest.raises(OwnerGoneError) as gone:
        owner.ask([ask_for("reason", 1)])
    return gone.value.reason


def test_two_gateways_draw_from_one_bucket(redis_server: RedisServer, owner_of: Callable[..., RedisOwner]) -> None:
    one, other = owner_of(redis_server.url), owner_of(redis_server.url, "b")
    assert one.ask([ask_for("both", 70)]) == [Slice(70, 0, 30, 0)]
    assert other.ask([ask_for("both", 70)]) == [Slice(30, 0, 0, 0)]


def test_many_buckets_are_one_round_trip(redis_server: RedisServer, owner_of: Callable[..., RedisOwner]) -> None:
    owner = owner_of(redis_server.url)
    owner.ask([ask_for("before", 1)])
    with redis_server.client() as client:
        client.config_resetstat()
        assert owner.ask([ask_for(f"t{n}", n % 7) for n in range(ASKS_AT_ONCE)])[13] == Slice(6, 0, 94, 0)
        stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == ASKS_AT_ONCE
    assert not {"cmdstat_eval", "cmdstat_script|load", "cmdstat_auth", "cmdstat_hello"} & set(stats)  # no other connection, no script sent


def test_forgotten_scripts_are_loaded_once_and_nothing_is_asked_twice(own_server: RedisServer, owner_of: Callable[..., RedisOwner]) -> None:
    owner = owner_of(own_server.url)
    owner.ask([ask_for("a", 10)])
    own_server.command("SCRIPT", "FLUSH")
    assert owner.ask([ask_for("a", 10), ask_for("b", 10)]) == [Slice(10, 0, 80, 0), Slice(10, 0, 90, 0)]
    own_server.command("SCRIPT", "FLUSH")
    assert owner.show().there == 1


def test_a_server_that_was_restarted_is_found_again(own_server: RedisServer, owner_of: Callable[..., RedisOwner]) -> None:
    owner = owner_of(own_server.url)
    owner.ask([ask_for("a", 60)])
    own_server.kill()
    assert reason(owner) == "unreachable"
    own_server.start()
    assert owner.ask([ask_for("a", 60, begin=(40, 0))]) == [Slice(40, 0, 0, 0)]


def test_a_server_that_hangs_is_a_timeout_and_its_late_answer_is_never_read(
    own_server: RedisServer, owner_of: Callable[..., RedisOwner]
) -> None:
    owner = owner_of(fleet_settings(own_server.url, timeout_ms=30))
    owner.ask([ask_for("a", 1)])
    own_server.pause()
    assert reason(owner) == "timeout"
    own_server.resume()
    late = owner_of(own_server.url)
    assert late.ask([ask_for("b", 5)]) == [Slice(5, 0, 95, 0)]
    owner._settings = fleet_settings(own_server.url, timeout_ms=1000)
    assert owner.ask([ask_for("c", 7)]) == [Slice(7, 0, 93, 0)]


def test_a_server_out_of_memory_is_full(own_server: RedisServer, owner_of: Callable[..., RedisOwner]) -> None:
    owner = owner_of(own_server.url)
    own_server.fill_up()
    assert reason(owner) == "full"
    own_server.make_room()
    assert owner.ask([ask_for("a", 1)])[0].messages == 1


def test_passwords_come_from_a_file_and_a_wrong_one_is_denied(tmp_path: Path, owner_of: Callable[..., RedisOwner]) -> None:
    file = tmp_path / "password"
    with RedisServer(tmp_path / "redis", "--requirepass", "open sesame") as server:
        owner = owner_of(fleet_settings(server.url, timeout_ms=1000, password_file=file))
        assert reason(owner) == "denied"  # there is no such file
        file.write_text("guess\n")
        assert reason(owner) == "denied"
        assert reason(owner_of(server.url)) == "denied"  # says none
        file.write_text("open sesame\n")
        assert owner.ask([ask_for("a", 1)])[0].messages == 1


def test_a_user_that_may_not_run_scripts_is_denied(own_server: RedisServer, tmp_path: Path, owner_of: Callable[..., RedisOwner]) -> None:
    own_server.command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+select")
    file = tmp_path / "password"
    file.write_text("secret")
    url = own_server.url.replace("redis://", "redis://reader@")
    assert reason(owner_of(fleet_settings(url, timeout_ms=1000, password_file=file))) == "denied"


def test_a_user_for_sluice_alone_will_do(own_server: RedisServer, tmp_path: Path, owner_of: Callable[..., RedisOwner]) -> None:
    """With the rights that docs/many-gateways-one-limit.md names."""
    text = (Path(__file__).parents[3] / "docs" / "many-gateways-one-limit.md").read_text()
    rule = text.partition("\nACL SETUSER sluice ")[2].partition("\n")[0].replace("SECRET", "secret")
    own_server.command("ACL", "SETUSER", "sluice", *rule.split())
    file = tmp_path / "password"
    file.write_text("secret")
    owner = owner_of(fleet_settings(own_server.url.replace("redis://", "redis://sluice@"), timeout_ms=1000, password_file=file), clock_us=0)
    assert owner.ask([ask_for("a", 200)]) == [Slice(100, 0, 0, 0)]
    assert [owner.show().there, owner.show(leave=True).there] == [1, 1]  # of none there is this one at least


def test_a_replica_is_not_ready(tmp_path: Path, own_server: RedisServer, owner_of: Callable[..., RedisOwner]) -> None:
    with RedisServer(tmp_path / "replica", "--replicaof", LOOPBACK, str(own_server.port)) as replica:
        assert reason(owner_of(replica.url)) == "not_ready"


def test_a_host_name_that_does_not_resolve_is_unreachable(owner_of: Callable[..., RedisOwner]) -> None:
    assert reason(owner_of("redis://redis.invalid:6379/0")) == "unreachable"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x46", b"+OK\r\n" * 9, b":7\r\n" * 9, b"*0\r\n" * 9, b"$-1\r\n" * 9,
        b"*4\r\n:1\r\n:0\r\n:0\r\n:x\r\n" * 9, b"*4\r\n:99\r\n:0\r\n:0\r\n:0\r\n" * 9, b"*4\r\n:-1\r\n:0\r\n:0\r\n:0\r\n" * 9,
        b"*4\r\n:1\r\n:1\r\n:0\r\n:0\r\n" * 9, b"*4\r\n:1\r\n:0\r\n:0\r\n:99999999999999999999\r\n" * 9, b"*3\r\n:1\r\n:0\r\n:0\r\n" * 9,
        b"*4\r\n$1\r\n1\r\n:0\r\n:0\r\n:0\r\n" * 9, b"*1\r\n" * 2000, bytes(range(256)) + b"\r\n",
    ],
)  # fmt: skip
def test_nonsense_is_an_outage(answer: bytes, owner_of: Callable[..., RedisOwner]) -> None:
    """Whatever is said instead: one error that the caller knows, and no grant."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        listening.settimeout(60)

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.settimeout(60)
                client.recv(65536)  # CLIENT SETINFO, which is answered by an error as old servers do
                client.sendall(b"-ERR unknown\r\n" * 2 + answer)
                client.recv(65536)

        thread = threading.Thread(target=serve)
        thread.start()
        said = reason(owner_of(fleet_settings(f"redis://{LOOPBACK}:{listening.getsockname()[1]}/0", timeout_ms=200)))
        thread.join(60)
    assert said in {"nonsense", "error", "unreachable", "timeout"}


@pytest.mark.parametrize("answer", [[1, 0, 0], [2, 0, 0, 0], [1, 1, 0, 0], [-1, 0, 0, 0], [1, 0, 1 << 60, 0], [True, 0, 0, 0], "OK", None])
def test_an_impossible_answer_is_nonsense(answer: object) -> None:
    from gateway.fleet.redis_owner import parse_slice

    with pytest.raises(OwnerGoneError, match="nonsense"):
        parse_slice(ask_for("a", 1), answer)


def test_tls_verifies_the_server(tmp_path: Path, owner_of: Callable[..., RedisOwner]) -> None:
    ours, others = CA(), CA()
    ours.cert_pem.write_to_path(tmp_path / "ca.pem")
    others.cert_pem.write_to_path(tmp_path / "others.pem")
    certificate = ours.issue_cert("localhost", LOOPBACK)
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "redis.pem")
    with RedisServer(tmp_path / "redis") as server:
        for word, value in (("cert-file", "redis.pem"), ("key-file", "redis.pem"), ("ca-cert-file", "ca.pem")):
            server.command("CONFIG", "SET", f"tls-{word}", str(tmp_path / value))
        server.command("CONFIG", "SET", "tls-auth-clients", "no")
        (port,) = free_ports(1)
        server.command("CONFIG", "SET", "tls-port", port)

        def through(**tls: object) -> RedisOwner:
            return owner_of(FleetRedis(f"rediss://{LOOPBACK}:{port}/0", "tls", 1000 * MS, tls=RedisTls(**tls)))  # type: ignore[arg-type]

        assert through(ca=tmp_path / "ca.pem").ask([ask_for("a", 1)])[0].messages == 1
        assert reason(through(ca=tmp_path / "others.pem")) == "unreachable"
        assert reason(through()) == "unreachable"  # the system's CAs
        assert through(verify="none").ask([ask_for("a", 1)])[0].messages == 1


def test_a_unix_socket_will_do(tmp_path: Path, owner_of: Callable[..., RedisOwner]) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer(tmp_path / "redis", "--unixsocket", str(path)):
        assert owner_of(f"unix://{path}?db=3").ask([ask_for("a", 1)])[0].messages == 1


def test_the_key_is_the_only_one_and_carries_the_fleets_name(own_server: RedisServer, owner_of: Callable[..., RedisOwner]) -> None:
    owner_of(own_server.url).ask([ask_for("orders", 1)])
    assert own_server.command("KEYS", "*") == [key_of("tests", identity("orders"))]
