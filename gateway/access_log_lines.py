"""The lines of one second of the access log, as text (`contract.md` 6).

Made on the writer's thread. The naive way, `json.dumps` of a dictionary for each line, takes 15 µs a line; here only the words go through
the encoder and the numbers are put between fixed text: 3 µs. All of a second at once would still keep the event loop from the interpreter
for its length, each time it asks for it, so the thread rests after every SLICE lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from json.encoder import encode_basestring_ascii as quoted
from typing import Final, NamedTuple

from limiter.keys import Key

SLICE: Final = 128  # lines made in one go: 0.4 ms
REST_S: Final = 0.0005  # between two slices: 10,000 lines a second take a tenth of that second

Counts = list[int]
Peaks = dict[Key, int]  # of one second, by key: several keys of one line (connections, listeners) peak independently
Place = tuple[str, str, str, str | None, str | None, str]  # protocol, topic, client, user, group, operation


class Second(NamedTuple):
    """What happened in a second. Nobody changes it any more."""

    ts: int  # its beginning: seconds since 1970, UTC
    seq: int  # number of its first line
    revision: int  # of the limits in force
    counts: dict[Place, tuple[Counts, Peaks]]

    @property
    def lines(self) -> int:
        """How many it makes: one for each place, and the heartbeat."""
        return len(self.counts) + 1


def lines_of(second: Second, gateway: str, boot: str) -> Iterator[str]:
    """The lines without their ends, the heartbeat last."""
    head = f'{{"v":1,"ts":{second.ts},"gateway":{quoted(gateway)},"boot":{quoted(boot)},"seq":'
    tail = f',"revision":{second.revision}}}'
    seq = second.seq
    for (protocol, topic, client, user, group, operation), (counts, peaks) in second.counts.items():
        messages, size, refused, refused_size, delayed, dropped, bypassed, shadow_refused, received = counts
        yield (
            f'{head}{seq},"protocol":{quoted(protocol)},"topic":{quoted(topic)},"client":{quoted(client)},'
            f'"user":{_word(user)},"group":{_word(group)},"operation":{quoted(operation)},"messages":{messages},"bytes":{size},'
            f'"refused_messages":{refused},"refused_bytes":{refused_size},"delayed_messages":{delayed},"dropped_messages":{dropped},'
            f'"bypassed_messages":{bypassed},"shadow_refused_messages":{shadow_refused},'
            f'"max_100ms_messages":{min(sum(peaks.values()), received)}{tail}'
        )
        seq += 1
    yield f'{head}{seq},"heartbeat":true{tail}'


def text_of(second: Second, gateway: str, boot: str, rest: Callable[[float], None] = time.sleep) -> str:
    """All lines, each with its end. Rests in between, for the sake of other threads."""
    lines = lines_of(second, gateway, boot)
    pieces: list[str] = []
    while slice_ := list(islice(lines, SLICE)):
        if pieces:
            rest(REST_S)
        pieces.append("\n".join(slice_) + "\n")
    return "".join(pieces)


def _word(word: str | None) -> str:
    return "null" if word is None else quoted(word)
