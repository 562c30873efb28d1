"""Connections to Redis: to one server, or to the nodes of a Redis Cluster.

Commands go out in one round trip per node, and in a second one to nodes that do not know the scripts (any more). Nothing is tried twice:
the next round does that. After a cluster has moved a slot, a new connection asks where the slots are.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING, Final

from redis import Redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import NoScriptError
from redis.retry import Retry

from common.bounded_socket import Allowance, bounded
from common.regular_files import MIN_SECRET_BYTES, read_secret
from common.tls.certificates import TlsFileError, read_text
from gateway.fleet.outages import DENIED, OwnerGoneError
from gateway.fleet.script import COUNT, FIGURES, PLACES, PRESENCE, PROOFS, SCRIPT

if TYPE_CHECKING:
    from config.known_settings import FleetRedis

Command = tuple[str | int, ...]

SHA: Final = sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
COUNT_SHA: Final = sha1(COUNT.encode(), usedforsecurity=False).hexdigest()
PLACES_SHA: Final = sha1(PLACES.encode(), usedforsecurity=False).hexdigest()
PRESENCE_SHA: Final = sha1(PRESENCE.encode(), usedforsecurity=False).hexdigest()
FIGURES_SHA: Final = sha1(FIGURES.encode(), usedforsecurity=False).hexdigest()
PROOFS_SHA: Final = sha1(PROOFS.encode(), usedforsecurity=False).hexdigest()
LOAD: Final[tuple[Command, ...]] = tuple(("SCRIPT LOAD", script) for script in (SCRIPT, PLACES, PRESENCE, FIGURES, PROOFS, COUNT))
CONNECT_S: Final = 0.5  # seconds; for a connection, which may take longer than an answer: buckets have no owner then anyhow; a guess
KINDS: Final = {"redis": Connection, "rediss": SSLConnection, "unix": UnixDomainSocketConnection}  # by the URL's scheme
ROUND: Final = 4  # answers that follow each other within one round, each within the time-out: a cluster's slots, login, scripts, slices
MAX_ANSWER_BYTES: Final = 2 << 20  # bytes; of one round: MOST_PROOFS of MAX_PROOF_BYTES are half of it, 512 slices 20 kB; a guess
KEY: Final = 3  # where a command has its key: EVALSHA sha 1 key


class RedisLink:
    """Connected from the beginning. After a fault it must be closed: answers that are still on their way must never be read."""

    def __init__(self, settings: FleetRedis, password: str | None) -> None:
        """Raises what redis-py raises."""
        timeout_s = settings.timeout_ns / 1e9
        self._allowance = Allowance(CONNECT_S + ROUND * timeout_s, MAX_ANSWER_BYTES)
        kind = bounded(KINDS[settings.url.partition(":")[0]], "_connect", self._allowance)
        options = options_of(settings, password) | {"connection_class": kind}
        self._cluster: RedisCluster | None = None
        self._client: Redis | None = None
        if settings.cluster:
            self._cluster = RedisCluster.from_url(settings.url, **options)
        else:
            self._client = Redis.from_url(settings.url, **options)

    def answers(self, commands: list[Command]) -> list[object]:
        """The answers to all commands; error replies are among them, faults of a connection are raised."""
        self._allowance.begin()
        if self._client is not None:
            return answers_of(self._client, commands)
        cluster = self._cluster
        assert cluster is not None
        found: list[object] = [None] * len(commands)
        nodes: dict[str, list[int]] = {}
        clients: dict[str, Redis] = {}
        for number, command in enumerate(commands):
            node = cluster.get_node_from_key(command[KEY])  # type: ignore[no-untyped-call]
            nodes.setdefault(node.name, []).append(number)
            if node.name not in clients:
                clients[node.name] = cluster.get_redis_connection(node)
        for name, numbers in nodes.items():
            for number, answer in zip(numbers, answers_of(clients[name], [commands[number] for number in numbers]), strict=True):
                found[number] = answer
        return found

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def __repr__(self) -> str:
        return f"<RedisLink {self._client or self._cluster}>"


def password_of(settings: FleetRedis) -> str | None:
    """The password in its file, read for each connection, so that a changed one is found. Raises OwnerGoneError."""
    if settings.password_file is None:
        return None
    try:
        return read_secret(settings.password_file).strip()
    except (OSError, ValueError) as error:
        raise OwnerGoneError(DENIED, f"{settings.password_file} cannot be read: {error}") from error


def secret_of(settings: FleetRedis) -> bytes:
    """The fleet's secret, read as the password is; b"": there is none. Raises OwnerGoneError."""
    if settings.secret_file is None:
        return b""
    try:
        secret = read_secret(settings.secret_file).strip().encode()
    except (OSError, ValueError) as error:
        raise OwnerGoneError(DENIED, f"{settings.secret_file} cannot be read: {error}") from error
    if len(secret) < MIN_SECRET_BYTES:
        raise OwnerGoneError(DENIED, f"{settings.secret_file} holds no secret of {MIN_SECRET_BYTES} bytes or more: openssl rand -hex 32")
    return secret


def options_of(settings: FleetRedis, password: str | None) -> dict[str, object]:
    """The options of redis-py: one attempt, at once. Raises OwnerGoneError for a file of TLS that OpenSSL could not read to its end."""
    timeout = settings.timeout_ns / 1e9
    retry = Retry(NoBackoff(), 0)
    options: dict[str, object] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": max(timeout, CONNECT_S),
        "retry": retry,
        "protocol": 2,
    }
    if password is not None:
        options["password"] = password
    if settings.tls is not None:
        tls = settings.tls
        try:
            for setting, file in (("ca", tls.ca), ("certificate", tls.certificate), ("key", tls.key)):
                if file is not None:
                    read_text(file, setting)
        except TlsFileError as error:
            raise OwnerGoneError(DENIED, str(error)) from error
        options |= {
            "ssl_ca_certs": tls.ca and str(tls.ca),
            "ssl_certfile": tls.certificate and str(tls.certificate),
            "ssl_keyfile": tls.key and str(tls.key),
            "ssl_cert_reqs": "none" if tls.verify == "none" else "required",
            "ssl_check_hostname": tls.verify == "full",
        }
    return options


def answers_of(client: Redis, commands: list[Command]) -> list[object]:
    """One node's answers, in one round trip, or in two where it has forgotten the scripts."""
    answers = together(client, commands)
    unknown = [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
    if unknown:  # it was restarted, or they were flushed: these commands were not done
        again = together(client, [*LOAD, *(commands[number] for number in unknown)])
        for number, answer in zip(unknown, again[len(LOAD) :], strict=True):
            answers[number] = answer
    return answers


def together(client: Redis, commands: list[Command]) -> list[object]:
    """The answers to commands sent in one go; error replies are among them, faults of the connection are raised."""
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        answers: list[object] = pipeline.execute(raise_on_error=False)
    return answers
