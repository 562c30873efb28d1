"""The owner of the fleet's buckets, in Redis: asks for slices of many buckets in one round trip, and says why where there is no answer.

Blocking, for a thread of its own (`fleet.py`). One connection, and one attempt per round: a second one is what the next round is for.
Every answer is looked at before it is believed: what is no possible answer to what was asked is nonsense, and who talks nonsense is gone.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING, Final, NamedTuple

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from gateway.fleet.script import PRESENCE, SCRIPT, key_of, presence_key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.settings.types import FleetRedis

Identity = tuple[str, str, str, str]
Command = tuple[str | int, ...]

UNREACHABLE: Final = "unreachable"  # no connection: refused, reset, no such host
TIMEOUT: Final = "timeout"
DENIED: Final = "denied"  # wrong password, or a user that may not run scripts
FULL: Final = "full"  # maxmemory
NOT_READY: Final = "not_ready"  # loading, a replica, a cluster that is down
NONSENSE: Final = "nonsense"  # an answer that is none
ERROR: Final = "error"  # what else it may say
REASONS: Final = (UNREACHABLE, TIMEOUT, DENIED, FULL, NOT_READY, NONSENSE, ERROR)
BY_WORD: Final = {  # the first word of Redis' error replies -> why
    "OOM": FULL, "NOAUTH": DENIED, "WRONGPASS": DENIED, "NOPERM": DENIED, "LOADING": NOT_READY, "READONLY": NOT_READY,
    "MASTERDOWN": NOT_READY, "CLUSTERDOWN": NOT_READY, "TRYAGAIN": NOT_READY, "NOREPLICAS": NOT_READY, "MISCONF": NOT_READY,
    "BUSY": NOT_READY,
}  # fmt: skip
BY_CLASS: Final = {  # redis-py takes that word off where it has a class for it
    "OutOfMemoryError": FULL, "ReadOnlyError": NOT_READY, "ClusterDownError": NOT_READY, "MasterDownError": NOT_READY,
    "TryAgainError": NOT_READY,
}  # fmt: skip
SHA: Final = sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
PRESENCE_SHA: Final = sha1(PRESENCE.encode(), usedforsecurity=False).hexdigest()
MOST_GATEWAYS: Final = 100_000  # a guess: more is nonsense
ASKS_AT_ONCE: Final = 512  # per round trip; a guess: some 100 kB, a few milliseconds of Redis
MOST_LEVEL: Final = 1 << 53  # beyond it the script does not count


class OwnerGoneError(Exception):
    """The owner has not answered: why, in one of REASONS, and in words."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Ask(NamedTuple):
    """What one gateway wants of one bucket: messages and bytes; below 0 gives back. `rates` and `begin`: see `script.py`; None: full."""

    identity: Identity
    rates: tuple[int, int, int, int, int, int]
    messages: int
    bytes: int
    begin: tuple[int, int] | None = None


class Slice(NamedTuple):
    """What it gets, and what the bucket has left then."""

    messages: int
    bytes: int
    messages_left: int
    bytes_left: int


class RedisOwner:
    """A connection to Redis, made when it is needed. Not thread safe."""

    def __init__(self, settings: FleetRedis, member: str, clock_us: int = 0) -> None:
        """`member` is this gateway's name in Redis. `clock_us`: what every script is told instead of asking Redis' clock, for tests."""
        self.name = settings.name
        self.member = member
        self.clock_us = clock_us
        self._settings = settings
        self._client: Redis | None = None

    def ask(self, asks: Sequence[Ask]) -> list[Slice]:
        """A slice for each, at most ASKS_AT_ONCE. Raises OwnerGoneError where one has no answer; what the others got is then lost."""
        answers = self._answers([self._command(ask) for ask in asks])
        try:
            return [believed(ask, answer) for ask, answer in zip(asks, answers, strict=True)]
        except OwnerGoneError:
            self.close()
            raise

    def show(self, *, leave: bool = False) -> int:
        """Say that this gateway is there, or leaves; how many of the fleet are. Raises OwnerGoneError."""
        verb = "leave" if leave else "stay"
        answer = self._answers([("EVALSHA", PRESENCE_SHA, 1, presence_key_of(self.name), self.clock_us, self.member, verb)])[0]
        if type(answer) is int and 0 <= answer <= MOST_GATEWAYS:
            return max(1, answer)
        self.close()
        if isinstance(answer, Exception):
            raise OwnerGoneError(*reason_of(answer)) from answer
        raise OwnerGoneError(NONSENSE, f"answered {str(answer)[:80]!r} instead of a number of gateways")

    def _answers(self, commands: list[Command]) -> list[object]:
        """The answers to all commands, in one round trip, or in two where Redis has forgotten the scripts."""
        try:
            if self._client is None:
                self._client = connect(self._settings)
            answers = together(self._client, commands)
            unknown = [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if unknown:  # it was restarted, or somebody flushed them: nothing of those was done
                load: list[Command] = [("SCRIPT LOAD", SCRIPT), ("SCRIPT LOAD", PRESENCE)]
                loaded = together(self._client, [*load, *(commands[number] for number in unknown)])
                for number, answer in zip(unknown, loaded[len(load) :], strict=True):
                    answers[number] = answer
        except OwnerGoneError:
            self.close()
            raise
        except Exception as error:  # whatever the parser of redis-py says to nonsense; a round must never end the thread
            self.close()
            raise OwnerGoneError(*reason_of(error)) from error
        return answers

    def _command(self, ask: Ask) -> Command:
        begin: tuple[str, str] | tuple[int, int] = ("", "") if ask.begin is None else ask.begin
        key = key_of(self.name, ask.identity)
        return ("EVALSHA", SHA, 1, key, self.clock_us, *ask.rates, ask.messages, ask.bytes, *begin, self.member)

    def close(self) -> None:
        """Give up the connection; the next `ask` makes another. What is still on its way on the old one is never read."""
        if self._client is not None:
            client, self._client = self._client, None
            client.close()

    def __repr__(self) -> str:
        state = "idle" if self._client is None else "connected"
        return f"<RedisOwner {state} {self._settings.url} {self.name!r}>"


def connect(settings: FleetRedis) -> Redis:
    """A client of one connection that tries once. The password is read from its file each time, so that a changed one is found."""
    timeout = settings.timeout_ns / 1e9
    options: dict[str, object] = {}
    if settings.password_file is not None:
        try:
            options["password"] = settings.password_file.read_text().strip()
        except (OSError, ValueError) as error:
            raise OwnerGoneError(DENIED, f"{settings.password_file} cannot be read: {error}") from error
    if settings.tls is not None:
        tls = settings.tls
        options |= {
            "ssl_ca_certs": tls.ca and str(tls.ca),
            "ssl_certfile": tls.certificate and str(tls.certificate),
            "ssl_keyfile": tls.key and str(tls.key),
            "ssl_cert_reqs": "none" if tls.verify == "none" else "required",
            "ssl_check_hostname": tls.verify == "full",
        }
    return Redis.from_url(
        settings.url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0), protocol=2, **options
    )


def together(client: Redis, commands: list[Command]) -> list[object]:
    """The answers to commands sent in one go; error replies are among them, faults of the connection are raised."""
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        answers: list[object] = pipeline.execute(raise_on_error=False)
    return answers


def believed(ask: Ask, answer: object) -> Slice:
    """The slice that `answer` is. Raises OwnerGoneError where it cannot be one."""
    if isinstance(answer, Exception):
        raise OwnerGoneError(*reason_of(answer)) from answer
    if not isinstance(answer, list) or len(answer) != 4 or not all(type(number) is int and abs(number) <= MOST_LEVEL for number in answer):
        raise OwnerGoneError(NONSENSE, f"answered {str(answer)[:80]!r} instead of four numbers")
    slice_ = Slice(*answer)
    for granted, wished in ((slice_.messages, ask.messages), (slice_.bytes, ask.bytes)):
        if not 0 <= granted <= max(0, wished):
            raise OwnerGoneError(NONSENSE, f"granted {granted} where {wished} were asked for")
    return slice_


def reason_of(error: Exception) -> tuple[str, str]:
    """Why there is no answer: one of REASONS, and the words for people, on one line."""
    detail = " ".join(str(error).split())[:200] or type(error).__name__
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return TIMEOUT, detail
    if isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
        return DENIED, detail
    if isinstance(error, BusyLoadingError):
        return NOT_READY, detail
    if isinstance(error, ResponseError):
        return BY_CLASS.get(type(error).__name__) or BY_WORD.get(detail.partition(" ")[0], ERROR), detail
    if isinstance(error, InvalidResponse) or not isinstance(error, RedisError | OSError):
        return NONSENSE, detail
    return UNREACHABLE, detail
