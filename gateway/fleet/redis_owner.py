"""The owner of the fleet's buckets, in Redis: asks for slices of many buckets at once, and says why where there is no answer.

Blocking, for a thread of its own (`fleet.py`). Every answer is checked before it is used: one that cannot answer the question is nonsense,
and counts as an outage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from config.urls import HIDDEN, shown_url
from gateway.fleet.outages import NONSENSE, OwnerGoneError, reason_of
from gateway.fleet.presence import Presence, expected, proof, proven
from gateway.fleet.redis_link import (
    COUNT_SHA,
    FIGURES_SHA,
    PLACES_SHA,
    PRESENCE_SHA,
    PROOFS_SHA,
    SHA,
    Command,
    RedisLink,
    password_of,
    secret_of,
)
from gateway.fleet.script import MOST_PROOFS, figures_key_of, key_of, places_key_of, presence_key_of, proofs_key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from config.known_settings import FleetRedis

Identity = tuple[str, str, str, str]

ASKS_AT_ONCE: Final = 512  # buckets; of one round trip: some 100 kB, a few milliseconds of Redis; a guess
MAX_LEVEL: Final = 1 << 53  # tokens; beyond it the script does not count
MAX_GATEWAYS: Final = 100_000  # gateways; of a possible answer; a guess


class Ask(NamedTuple):
    """What one gateway wants of one bucket: messages and bytes; below 0 gives back. For the others see `script.py`; no `begin`: full."""

    identity: Identity
    rates: tuple[int, int, int, int, int, int]
    messages: int
    bytes: int
    begin: tuple[int, int] | None = None
    warm_up_us: int = 0
    places: int = 0  # of a limit on so many requests in flight: `messages` is what is needed, `bytes` what is held


class Slice(NamedTuple):
    """What the gateway gets, and what the bucket has left then."""

    messages: int
    bytes: int
    messages_left: int
    bytes_left: int

    @property
    def clock_us(self) -> int:
        """Redis' clock, in an answer about places."""
        return self.bytes_left


class RedisOwner:
    """Asks through connections that are made when they are needed. Not thread safe."""

    def __init__(self, settings: FleetRedis, member: str, clock_us: int = 0) -> None:
        """`member` is this gateway's name in Redis. `clock_us`: the time for every script in place of Redis' clock, for tests."""
        self.name = settings.name
        self.member = member
        self.clock_us = clock_us
        self._settings = settings
        self._link: RedisLink | None = None
        self._password: str | None = None  # of the last connection
        self._secret = b""  # the fleet's, at the last connection
        self._redis_us = 0  # Redis' clock at the last answer about who is there; 0: not known
        self._proof = ""  # what was shown last
        self.kept = False  # Redis has kept what this gateway showed before, and so what others did
        self.others_changed = False  # at the last `ask`: there are other proofs than at the last `show`
        self._proofs = 0  # that were there at the last `show`; 0: without a secret, or not known
        self._members: set[str] = set()  # with a proof, at the last answer; while it is crowded, at one of them
        self._crowded = False  # there are more proofs than are read
        self._looked_for_members = False  # at the last answer, beside the proofs that were read

    def ask(self, asks: Sequence[Ask]) -> list[Slice]:
        """A slice for each, at most ASKS_AT_ONCE. Raises OwnerGoneError where one has no answer; what the others got is then lost."""
        commands = [self._command(ask) for ask in asks]
        if self._proofs:
            commands.append(("EVALSHA", COUNT_SHA, 1, proofs_key_of(self.name)))
        answers = self._answers(commands)
        if self._proofs:
            self.others_changed = answers.pop() != self._proofs
        try:
            return [parse_slice(ask, answer) for ask, answer in zip(asks, answers, strict=True)]
        except OwnerGoneError as error:
            self.close()
            raise self._gone(error.reason, error.detail) from error

    def show(self, *, leave: bool = False) -> Presence:
        """Announce that this gateway is there, or leaves. Returns who is there. Raises OwnerGoneError."""
        verb = "leave" if leave else "stay"
        if self._settings.secret_file is not None:
            if not self._redis_us and not leave:
                self._show_proof("look")  # which tells Redis' time; the name alone would be a stranger's
            presence = self._show_proof(verb)
            return self._show_proof("look") if self._crowded and not self._looked_for_members else presence
        answer = self._answers([("EVALSHA", PRESENCE_SHA, 1, presence_key_of(self.name), self.clock_us, self.member, verb)])[0]
        if type(answer) is int and 0 <= answer <= MAX_GATEWAYS:
            return Presence(max(1, answer))
        raise self._no_number(answer)

    def _show_proof(self, verb: str) -> Presence:
        """The same with a proof, once Redis' time is known; "look" shows nothing. Raises OwnerGoneError."""
        self._connect()
        shown = proof(self._secret, self.name, self.member, self._redis_us) if self._redis_us else ""
        keys = (presence_key_of(self.name), proofs_key_of(self.name))
        before = self._proof if verb != "look" else ""
        looks = self._crowded and self._redis_us > 0
        sought = expected(self._secret, self.name, {*self._members, self.member}, self._redis_us) if looks else []
        answer = self._answers([("EVALSHA", PROOFS_SHA, 2, *keys, self.clock_us, self.member, verb, shown, before, *sought)])[0]
        match answer:
            case [bytes(stamp), int(there), int(proofs), list(read), int(kept)] if there >= 0 and stamp.isdigit() and len(stamp) < 20:
                self._redis_us = int(stamp)
                self._proof = shown or self._proof
                self._proofs = proofs if verb == "stay" and proofs <= MOST_PROOFS else 0
                self.kept = kept == 1 and proofs <= MOST_PROOFS
                self._crowded, self._looked_for_members = proofs > MOST_PROOFS, looks
                texts = [each.decode(errors="replace") for each in read if isinstance(each, bytes)]
                found = proven(self._secret, self.name, texts, self._redis_us)
                self._members = self._members | found if self._crowded else found
                return Presence(min(max(1, there), MAX_GATEWAYS), len(found))
        raise self._no_number(answer)

    def _no_number(self, answer: object) -> OwnerGoneError:
        self.close()
        if isinstance(answer, Exception):
            return self._gone(*reason_of(answer))
        return self._gone(NONSENSE, f"answered {str(answer)[:80]!r} instead of a number of gateways")

    def share(self, told: str, *, read: bool) -> list[object]:
        """Tell the others of this gateway's traffic; "" takes it back. With `read`: what all have told, this one too, at most MOST_READ.

        Raises OwnerGoneError where there is no answer. An error reply is none of that: limits do not depend on this.
        """
        verb = "leave" if not told else "read" if read else "tell"
        command: Command = ("EVALSHA", FIGURES_SHA, 1, figures_key_of(self.name), self.clock_us, self.member, verb, told)
        answer = self._answers([command])[0]
        return answer if isinstance(answer, list) else []

    def _answers(self, commands: list[Command]) -> list[object]:
        """The answers to all commands. Raises OwnerGoneError."""
        try:
            return self._connect().answers(commands)
        except OwnerGoneError:
            self.close()
            raise
        except Exception as error:  # of any kind, for the parser of redis-py raises many; a round must never end the thread
            self.close()
            raise self._gone(*reason_of(error)) from error

    def _connect(self) -> RedisLink:
        """Connected with what the files say by then. Raises OwnerGoneError, and what redis-py raises."""
        if self._link is None:
            self._password = password_of(self._settings)
            self._secret = secret_of(self._settings)
            self._link = RedisLink(self._settings, self._password)
        return self._link

    def _gone(self, reason: str, detail: str) -> OwnerGoneError:
        """The error without the login, which servers repeat: "unknown command 'AUTH', with args beginning with: ..."."""
        for secret in (self._password, urlsplit(self._settings.url).username):
            if secret:
                detail = detail.replace(secret, HIDDEN)
        return OwnerGoneError(reason, detail.partition(", with args")[0])

    def _command(self, ask: Ask) -> Command:
        begin: tuple[str, str] | tuple[int, int] = ("", "") if ask.begin is None else ask.begin
        if ask.places:
            places = (ask.places, ask.messages, ask.bytes)
            return ("EVALSHA", PLACES_SHA, 1, places_key_of(self.name, ask.identity), self.clock_us, self.member, *places)
        key = key_of(self.name, ask.identity)
        return ("EVALSHA", SHA, 1, key, self.clock_us, *ask.rates, ask.messages, ask.bytes, *begin, self.member, ask.warm_up_us)

    def close(self) -> None:
        """Close the connection; the next `ask` makes another. Answers on their way on the old one are never read."""
        if self._link is not None:
            link, self._link = self._link, None
            self._redis_us = 0  # it may be minutes until the next answer, and a proof of then would be too old
            link.close()

    def __repr__(self) -> str:
        state = "idle" if self._link is None else "connected"
        return f"<RedisOwner {state} {shown_url(self._settings.url)} {self.name!r}>"


def parse_slice(ask: Ask, answer: object) -> Slice:
    """The slice in `answer`. Raises OwnerGoneError where it cannot be one."""
    if isinstance(answer, Exception):
        raise OwnerGoneError(*reason_of(answer)) from answer
    if not isinstance(answer, list) or len(answer) != 4 or not all(type(number) is int and abs(number) <= MAX_LEVEL for number in answer):
        raise OwnerGoneError(NONSENSE, f"answered {str(answer)[:80]!r} instead of four numbers")
    slice_ = Slice(*answer)
    for granted, wished in ((slice_.messages, ask.places or ask.messages), (slice_.bytes, ask.bytes)):
        if not 0 <= granted <= max(0, wished):
            raise OwnerGoneError(NONSENSE, f"granted {granted} where {wished} were asked for")
    return slice_
