"""The lines of one second of the access log, as text (`docs/design/contract.md` 6).

On the event loop a second is two lists, of keys and of what happened to each (`RunningSecond`). All else is done on the writer's thread:
several keys of one line are added up (`LogLine`), and lines made. The naive way, `json.dumps` of a dictionary for each line, takes 15 µs a
line; here only strings go through the encoder, and what most lines have in common is fixed text.

All of a second at once would still keep the event loop from the interpreter for its length, each time it asks for it (compiled code never
gives it up by itself), so the thread rests after every SLICE_LINES lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quoted
from typing import Final

from gateway.counting.known_names import KnownNames
from limiter.keys import Key, Tally

SLICE_LINES: Final = 128  # added up, or made, in one go: 0.2 ms
REST_S: Final = 0.0005  # between two slices: 10,000 lines a second take a tenth or two of that second

# What a line is about: protocol, topic, client, user, group, operation. (Groups whose bytes differ and are written alike have a line each.)
LineKey = tuple[str, str, str, str | None, bytes | None, str]

ALL_PASSED: Final = (  # the counts of a line whose messages all passed at once
    '"refused_messages":0,"refused_bytes":0,"delayed_messages":0,"dropped_messages":0,"bypassed_messages":0,"shadow_refused_messages":0'
)


class RunningSecond:
    """What has happened in the running second: an observer of `Accounts`."""

    __slots__ = ("keys", "tallies", "unnamed")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.tallies: list[Tally] = []
        self.unnamed = 0  # keys of names that were not told apart: dropped like invented ones

    def add(self, key: Key, tally: Tally) -> None:
        """Observes `Accounts`."""
        if key.unnamed:
            self.unnamed += 1
            return
        self.keys.append(key)
        self.tallies.append(tally)

    def keep(self, at: list[int]) -> None:
        """Only what stands at these places."""
        self.keys = [self.keys[place] for place in at]
        self.tallies = [self.tallies[place] for place in at]

    def take(self) -> RunningSecond:
        """What there is, as an object that does not change any more; this one begins anew."""
        taken = RunningSecond()
        taken.keys, self.keys = self.keys, taken.keys
        taken.tallies, self.tallies = self.tallies, taken.tallies
        taken.unnamed, self.unnamed = self.unnamed, 0
        return taken

    def __len__(self) -> int:
        """Keys, each as often as it was added."""
        return len(self.keys)

    def __repr__(self) -> str:
        return f"<RunningSecond of {len(self.keys)}>"


class LogLine:
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
            rest = (
                f'"refused_messages":{self.refused},"refused_bytes":{self.refused_bytes},"delayed_messages":{self.delayed},'
                f'"dropped_messages":{self.dropped},"bypassed_messages":{self.bypassed},"shadow_refused_messages":{self.shadow_refused}'
            )
        else:
            rest = ALL_PASSED
        return f'"messages":{self.messages},"bytes":{self.bytes},{rest},"max_100ms_messages":{self.max_100ms()}'

    def __repr__(self) -> str:
        return f"<LogLine {self.key.text} messages={self.messages}>"


class Second:
    """What happened in a second, which is over."""

    __slots__ = ("_lines", "dropped", "gathering", "lost_before", "revision", "ts")

    def __init__(self, ts: int, revision: int, gathering: RunningSecond, lost_before: int = 0) -> None:
        self.ts = ts  # its beginning: seconds since 1970, UTC
        self.revision = revision  # of the limits in force
        self.gathering = gathering
        self.lost_before = lost_before  # lines lost between the second before and this one
        self.dropped = gathering.unnamed  # lines of this second that there was no room for; all of a topic, or none
        self._lines: list[LogLine] | None = None

    @property
    def lines(self) -> int:
        """How many it makes: one per LineKey, and the heartbeat. Call it after `add_up`."""
        assert self._lines is not None
        return len(self._lines) + 1

    def lines_at_most(self) -> int:
        """An upper bound that costs no time: several keys may make one line."""
        return len(set(self.gathering.keys)) + 1

    @property
    def numbers(self) -> int:
        """How many numbers (`seq`) it takes: those of its lines, and of what was dropped."""
        return self.lines + self.dropped

    def add_up(self, rest: Callable[[float], None], known: KnownNames | None = None) -> list[LogLine]:
        """Its lines, added up the first time; `rest` is called in between. `known` is told of each."""
        lines = self._lines
        if lines is None:
            lines = self._lines = self._add_up(rest, known)
        return lines

    def _add_up(self, rest: Callable[[float], None], known: KnownNames | None) -> list[LogLine]:
        keys = self.gathering.keys
        tallies = self.gathering.tallies
        lines: list[LogLine] = []
        lines_by_key: dict[LineKey, LogLine] = {}
        for at in range(len(keys)):
            if at and at % SLICE_LINES == 0:
                rest(REST_S)
            key = keys[at]
            origin = key.origin
            line_key = (origin.protocol, key.text, origin.client, origin.user, key.group, key.operation)
            line = lines_by_key.get(line_key)
            if line is None:
                line = lines_by_key[line_key] = LogLine(key)
                lines.append(line)
                if known is not None:
                    known.see(key, self.ts)
            line.add(key, tallies[at])
        return lines

    def __repr__(self) -> str:
        return f"<Second {self.ts} {self.gathering}>"


class QuoteCache:
    """Strings of lines, quoted as JSON has them; nearly all lines of a second have the same ones."""

    __slots__ = ("_groups", "_texts")

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._groups: dict[bytes, str] = {}

    def text(self, text: str | None) -> str:
        if text is None:
            return "null"
        found = self._texts.get(text)
        if found is None:
            found = self._texts[text] = quoted(text)
        return found

    def group(self, group: bytes | None) -> str:
        if group is None:
            return "null"
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = quoted(group.decode(errors="backslashreplace"))
        return found

    def line(self, line: LogLine, head: str, seq: int, tail: str) -> str:
        key = line.key
        origin = key.origin
        return (
            f'{head}{seq},"protocol":{self.text(origin.protocol)},"topic":{quoted(key.text)},"client":{self.text(origin.client)},'
            f'"user":{self.text(origin.user)},"group":{self.group(key.group)},"operation":{self.text(key.operation)},{line.counts()}{tail}'
        )

    def __repr__(self) -> str:
        return f"<QuoteCache {len(self._texts)}>"


def text_of(second: Second, gateway: str, boot: str, seq: int, rest: Callable[[float], None] = time.sleep) -> str:
    """All lines, each with its end, numbered from `seq` on, the heartbeat last; before it a gap for what was dropped.

    Rests in between for other threads.
    """
    head = f'{{"v":1,"ts":{second.ts},"gateway":{quoted(gateway)},"boot":{quoted(boot)},"seq":'
    tail = f',"revision":{second.revision}}}\n'
    quotes = QuoteCache()
    pieces: list[str] = []
    for line in second.add_up(rest):
        if len(pieces) % SLICE_LINES == SLICE_LINES - 1:
            rest(REST_S)
        pieces.append(quotes.line(line, head, seq, tail))
        seq += 1
    pieces.append(f'{head}{seq + second.dropped},"heartbeat":true{tail}')
    return "".join(pieces)
