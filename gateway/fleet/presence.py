"""Which gateways of a fleet are there, and how far that is believed.

The number of gateways decides which part of every limit each has by itself, above all while Redis is away. Gateways can be invented by
everybody that may write to Redis. So with a secret of the fleet (`fleet.redis.secret_file`) each proves that it is one: it writes its name,
a minute of Redis' clock, and an HMAC-SHA256 over both and the fleet's name. A proof holds for its minute and those beside it, so one that
somebody has copied soon counts for nothing. Where so many are invented that not all are read, those of members that are known already are
looked for by themselves (`expected`): a new member has to wait then until one of its own is among those that are read.

**Without a proof** a gateway counts, but all of them together only so far that the number at most doubles in SEEN_S. Those are gateways of
a version before, or without the secret. With a secret they count until the last of them has gone; from then on none does.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final, NamedTuple

from gateway.fleet.script import MAX_PROOF_BYTES, SEEN_S
from limiter.limits import SECOND

EPOCH_US: Final = 60_000_000  # microseconds of Redis' clock; so long a proof is the same; a guess
KEPT_NS: Final = 2 * SECOND  # ns; in which every gateway shows itself; a guess
PROOF_CHARS: Final = 32  # hexadecimal digits of the HMAC: 128 bits


class Presence(NamedTuple):
    """How many have shown themselves, and how many of them have proved that they are of the fleet."""

    there: int
    proven: int = 0


def proof(secret: bytes, fleet: str, member: str, now_us: int) -> str:
    """What a member writes at a time of Redis' clock."""
    epoch = now_us // EPOCH_US
    return f"{member} {epoch} {_code(secret, fleet, member, epoch)}"


def expected(secret: bytes, fleet: str, members: Iterable[str], now_us: int) -> list[str]:
    """The proofs of these members that hold now."""
    return [proof(secret, fleet, member, now_us + minutes * EPOCH_US) for member in members for minutes in (-1, 0, 1)]


def proven(secret: bytes, fleet: str, proofs: Iterable[str], now_us: int) -> set[str]:
    """The members with a proof that holds now."""
    found = set()
    for each in proofs:
        words = each.split(" ") if len(each) <= MAX_PROOF_BYTES else []
        if len(words) != 3 or not words[1].isdecimal():
            continue
        epoch = int(words[1])
        if abs(epoch - now_us // EPOCH_US) <= 1 and hmac.compare_digest(words[2].encode(), _code(secret, fleet, words[0], epoch).encode()):
            found.add(words[0])
    return found


def _code(secret: bytes, fleet: str, member: str, epoch: int) -> str:
    return hmac.new(secret, f"sluice presence\n{fleet}\n{member}\n{epoch}".encode(), hashlib.sha256).hexdigest()[:PROOF_CHARS]


class Belief:
    """How many gateways are believed to be there. Times are monotonic ns."""

    def __init__(self, gateways: int) -> None:
        self.gateways = gateways  # what is believed
        self.strangers = 0  # without a proof for SEEN_S, since the last member without one has gone
        self._strange_since = 0  # some have none since then: after a step of Redis' clock a member has none for a second; 0: that is not so
        self._proven_only = False
        self._none_since = 0  # all have a proof since then; 0: that is not so
        self._fewer_since = 0  # fewer than `gateways` have shown themselves; 0: that is not so
        self._kept_since = 0  # Redis has kept what was shown there since then; 0: it has not
        self._doubled_from = gateways  # what was believed
        self._doubled_at = -SEEN_S * SECOND  # at this time

    def interrupt(self) -> None:
        """Redis is away. When it is back it may know of nobody, so what was missing before counts from then on."""
        self._fewer_since = self._none_since = self._strange_since = self._kept_since = 0

    def take(self, presence: Presence, now: int, *, kept: bool = False) -> None:
        """A gateway that joins counts at once; one that is missing, only after SEEN_S: a restarted Redis has seen none yet.

        `kept`: it is none. Where it has been so for KEPT_NS, a proof that is missing was taken away, or is too old by now.
        """
        there = self._credible(presence, now)
        self._kept_since = (self._kept_since or now) if kept else 0
        gone = self._proven_only and self._kept_since != 0 and now - self._kept_since >= KEPT_NS
        if there >= self.gateways:
            self._fewer_since = 0
        elif self._fewer_since == 0:
            self._fewer_since = now
        if there > self.gateways or gone or (self._fewer_since != 0 and now - self._fewer_since >= SEEN_S * SECOND):
            self.gateways = there
            self._fewer_since = 0

    def _credible(self, presence: Presence, now: int) -> int:
        unproven = max(0, presence.there - presence.proven)
        if presence.proven and not self._proven_only:
            self._none_since = 0 if unproven else self._none_since or now
            self._proven_only = self._none_since != 0 and now - self._none_since >= SEEN_S * SECOND
        if self._proven_only:
            self._strange_since = (self._strange_since or now) if unproven else 0
            self.strangers = unproven if self._strange_since and now - self._strange_since >= SEEN_S * SECOND else 0
            return max(1, presence.proven)
        if now - self._doubled_at >= SEEN_S * SECOND:
            self._doubled_at = now
            self._doubled_from = self.gateways
        return max(1, min(presence.there, max(presence.proven, 2 * self._doubled_from)))

    def __repr__(self) -> str:
        return f"<Belief {self.gateways} gateways, {self.strangers} strangers{', proven only' if self._proven_only else ''}>"
