"""The lines of one second of the access log, as text (`docs/design/contract.md` 6).

On the event loop a second is two lists, of keys and of what happened to each (`Gathering`). All else is done on the writer's thread:
several keys of one line are added up (`Line`), and lines made. The naive way, `json.dumps` of a dictionary for each line, takes 15 µs a
line; here only the words go through the encoder, and what most lines have in common is fixed text.

All of a second at once would still keep the event loop from the interpreter for its length, each time it asks for it (compiled code never
gives it up by itself), so the thread rests after every SLICE lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quoted
from typing import Final

from limiter.keys import Key, Tally

SLICE: Final = 128  # lines added up, or made, in one go: 0.2 ms
REST_S: Final = 0.0005  # between two slices: 10,000 lines a second take a tenth or two of that second

# What a line is about: protocol, topic, client, user, group, operation. (Groups whose bytes differ and are written alike have a line each.)
LineKey = tuple[str, str, str, str | None, bytes | None, str]

QUIET: Final = (  # of a line whose messages all passed at once
    '"refused_messages":0,"refused_bytes":0,"delayed_messages":0,"dropped_messages":0,"bypassed_messages":0,"shadow_refused_messages":0'
)


class Gathering:
    """What has happened in the running second, as `Accounts` tells it."""

    __slots__ = ("keys", "tallies")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.tallies: list[Tally] = []

    def add(self, key: Key, tally: Tally) -> None:
        """Observes `Accounts`."""
        self.keys.append(key)
        self.tallies.append(tally)

    def take(self) -> Gathering:
        """What there is, as one that nobody adds to any more; this one begins anew."""
        taken = Gathering()
        taken.keys, self.keys = self.keys, taken.keys
        taken.tallies, self.tallies = self.tallies, taken.tallies
        return taken

    def __len__(self) -> int:
        """Keys, each as often as it was told of."""
        return len(self.keys)

    def __repr__(self) -> str:
        return f"<Gathering of {len(self.keys)}>"


class Line:
    """All that happened under one LineKey."""

    __slots__ = (
        "bypassed", "bytes", "delayed", "dropped", "key", "messages", "peak", "peaks", "received", "refused", "refused_bytes",
        "shadow_refused",
    )  # fmt: skip

    def __init__(self, key: Key) -> None:
        self.key = key  # one of those that the line stands for
        self.messages = 0
        self.bytes = 0
        self.refused = 0
        self.refused_bytes = 0
        self.delayed = 0
        self.dropped = 0
        self.bypassed = 0
        self.shadow_refused = 0
        self.received = 0
        self.peak = 0  # of `key`
        self.peaks: dict[Key, int] | None = None  # of the others: several keys of one line (connections, listeners) peak independently

    def add(self, key: Key, tally: Tally) -> None:
        self.messages += tally.messages
        self.bytes += tally.bytes
        self.refused += tally.refused
        self.refused_bytes += tally.refused_bytes
        self.delayed += tally.delayed
        self.dropped += tally.dropped
        self.bypassed += tally.bypassed
        self.shadow_refused += tally.shadow_refused
        self.received += tally.received
        if key is self.key:
            self.peak = max(self.peak, tally.peak_100ms)
            return
        if self.peaks is None:
            self.peaks = {}
        self.peaks[key] = max(self.peaks.get(key, 0), tally.peak_100ms)

    def max_100ms(self) -> int:
        """Offered within 100 ms, at most."""
        if self.peaks is None:
            return min(self.peak, self.received)
        return min(self.peak + sum(self.peaks.values()), self.received)

    def counts(self) -> str:
        """The numbers, from "messages" on."""
        if self.refused or self.refused_bytes or self.delayed or self.dropped or self.bypassed or self.shadow_refused:
            others = (
                f'"refused_messages":{self.refused},"refused_bytes":{self.refused_bytes},"delayed_messages":{self.delayed},'
                f'"dropped_messages":{self.dropped},"bypassed_messages":{self.bypassed},"shadow_refused_messages":{self.shadow_refused}'
            )
        else:
            others = QUIET
        return f'"messages":{self.messages},"bytes":{self.bytes},{others},"max_100ms_messages":{self.max_100ms()}'

    def __repr__(self) -> str:
        return f"<Line {self.key.text} messages={self.messages}>"


class Second:
    """What happened in a second, which is over."""

    __slots__ = ("_found", "gathering", "lost_before", "revision", "ts")

    def __init__(self, ts: int, revision: int, gathering: Gathering, lost_before: int = 0) -> None:
        self.ts = ts  # its beginning: seconds since 1970, UTC
        self.revision = revision  # of the limits in force
        self.gathering = gathering
        self.lost_before = lost_before  # lines that nobody will write, of seconds between the one before and this
        self._found: list[Line] | None = None

    @property
    def lines(self) -> int:
        """How many it makes: one per LineKey, and the heartbeat. Call it once `found` has added them up."""
        assert self._found is not None
        return len(self._found) + 1

    def lines_at_most(self) -> int:
        """The same in no time: several keys may be one line."""
        return len(set(self.gathering.keys)) + 1

    def found(self, rest: Callable[[float], None]) -> list[Line]:
        """Its lines, added up the first time; `rest` is called in between."""
        found = self._found
        if found is None:
            found = self._found = self._add_up(rest)
        return found

    def _add_up(self, rest: Callable[[float], None]) -> list[Line]:
        keys = self.gathering.keys
        tallies = self.gathering.tallies
        lines: list[Line] = []
        lines_by_key: dict[LineKey, Line] = {}
        for at in range(len(keys)):
            if at and at % SLICE == 0:
                rest(REST_S)
            key = keys[at]
            origin = key.origin
            line_key = (origin.protocol, key.text, origin.client, origin.user, key.group, key.operation)
            line = lines_by_key.get(line_key)
            if line is None:
                line = lines_by_key[line_key] = Line(key)
                lines.append(line)
            line.add(key, tallies[at])
        return lines

    def __repr__(self) -> str:
        return f"<Second {self.ts} {self.gathering}>"


class Words:
    """Words of lines, as JSON has them; nearly all lines of a second have the same ones."""

    __slots__ = ("_groups", "_known")

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._groups: dict[bytes, str] = {}

    def said(self, word: str | None) -> str:
        if word is None:
            return "null"
        found = self._known.get(word)
        if found is None:
            found = self._known[word] = quoted(word)
        return found

    def group(self, group: bytes | None) -> str:
        if group is None:
            return "null"
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = quoted(group.decode(errors="backslashreplace"))
        return found

    def line(self, line: Line, head: str, seq: int, tail: str) -> str:
        key = line.key
        origin = key.origin
        return (
            f'{head}{seq},"protocol":{self.said(origin.protocol)},"topic":{quoted(key.text)},"client":{self.said(origin.client)},'
            f'"user":{self.said(origin.user)},"group":{self.group(key.group)},"operation":{self.said(key.operation)},{line.counts()}{tail}'
        )

    def __repr__(self) -> str:
        return f"<Words {len(self._known)}>"


def text_of(second: Second, gateway: str, boot: str, seq: int, rest: Callable[[float], None] = time.sleep) -> str:
    """All lines, each with its end, numbered from `seq` on, the heartbeat last. Rests in between, for the sake of other threads."""
    head = f'{{"v":1,"ts":{second.ts},"gateway":{quoted(gateway)},"boot":{quoted(boot)},"seq":'
    tail = f',"revision":{second.revision}}}\n'
    words = Words()
    pieces: list[str] = []
    for line in second.found(rest):
        if len(pieces) % SLICE == SLICE - 1:
            rest(REST_S)
        pieces.append(words.line(line, head, seq, tail))
        seq += 1
    pieces.append(f'{head}{seq},"heartbeat":true{tail}')
    return "".join(pieces)
