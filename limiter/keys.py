"""Keys: the topic of a message as seen from its sender, matched with rules once and remembered.

A session decodes the same few topics over and over. The first time it meets one it asks the judge for a `Key`; from then on the raw
bytes found on the wire (`Origin.keys`, one dictionary look-up) lead straight to it, with the rules already matched (`buckets`) and the
counters at hand (`tally`).

A `TopicName` names a topic for all senders; a `Key` is one topic as seen from one `Origin` (listener, client address, user, virtual
host), because the access log counts per topic *and* client. Buckets are not kept here: all keys of a topic draw from the same bucket in
the ledger.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from limiter.limits import NEVER

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket
    from limiter.fair_share.shared_bucket import TopicShare
    from limiter.new_names import NewNames
    from limiter.recent_keys import RecentKeys
    from limiter.rules.sender import Sender
    from limiter.topics import TopicName

MAX_SAID: Final = 3  # libraries, and names, of one origin; behind one address and user there is one application, or a few; a guess


class Tally:
    """Counters of one key since they were last folded into the access log and the metrics.

    Only the loop's thread changes them until then, and after that they never change.
    """

    __slots__ = (
        "abandoned",
        "bypassed",
        "bytes",
        "copies",
        "delayed",
        "dropped",
        "messages",
        "peak_100ms",
        "received",
        "redelivered",
        "refused",
        "refused_by",
        "refused_bytes",
        "refused_copies",
        "refused_share",
        "refused_size",
        "retry_after_ns",
        "shadow_refused",
        "window",
        "window_messages",
    )

    def __init__(self) -> None:
        # What every message touches comes first: compiled, attributes lie in this order, and with many topics each 64 bytes are a miss.
        self.received = 0  # messages decoded
        self.messages = 0  # messages forwarded
        self.bytes = 0  # bytes forwarded (message bodies as on the wire)
        self.window = 0  # number of the 100 ms window last counted in
        self.window_messages = 0
        self.peak_100ms = 0  # most messages offered within one 100 ms window
        self.refused = 0
        self.refused_bytes = 0
        self.refused_share = 0  # of `refused`: beyond the topic's share of a listener's cap
        self.refused_size = 0  # of `refused`: larger than its rule's `max_message_size`
        self.refused_copies = 0  # of `refused`: they named copies, and a rule refuses these
        self.copies = 0  # copies that messages forwarded have named (CC, BCC), beside their own
        self.refused_by: Bucket | None = None  # whose limit was the last that something was over
        self.retry_after_ns = 0  # the wait of the last refusal
        self.delayed = 0  # messages that were held at least once
        self.dropped = 0
        self.abandoned = 0  # received, neither forwarded nor answered: the client went away, or the broker did
        self.bypassed = 0  # forwarded without a verdict, because the limiter failed or was too busy
        self.shadow_refused = 0
        self.redelivered = 0  # of `received`, deliveries that had been made before

    def start_next(self) -> Tally:
        """The tally after this one: at zero, but in the same 100 ms window, so that a fold in the middle of one hides no peak."""
        after = Tally()
        after.window = self.window
        after.window_messages = self.window_messages
        return after

    def receive(self, messages: int, window: int) -> None:
        """Count `messages` offered in the 100 ms window number `window` (monotonic nanoseconds // 100,000,000)."""
        self.received += messages
        if window != self.window:
            self.window = window
            self.window_messages = 0
        self.window_messages += messages
        self.peak_100ms = max(self.peak_100ms, self.window_messages)

    def __repr__(self) -> str:
        return f"<Tally received={self.received} forwarded={self.messages} refused={self.refused} dropped={self.dropped}>"


class Origin:
    """Where messages come from: one client address and user on one listener (and virtual host). Shared by their sessions.

    While a rule keeps a bucket per connection, each session has an origin of its own, with the connection's number.
    """

    __slots__ = (
        "client", "connection", "groups", "keys", "libraries", "listener", "names", "new_names", "order", "protocol", "recent",
        "recent_groups", "sender", "sessions", "together", "user", "vhost",
    )  # fmt: skip

    def __init__(self, protocol: str, sender: Sender, vhost: bytes, connection: int = 0) -> None:
        self.protocol = protocol
        self.sender = sender
        self.listener = sender.listener or ""
        self.client = sender.client or ""  # address without port
        self.user = sender.user
        self.vhost = vhost
        self.connection = connection  # its number; 0: any number of connections
        self.keys: dict[bytes, Key] = {}  # raw key bytes as they stand on the wire -> Key; filled by Judge.key, bounded by the judge
        self.order: deque[bytes] = deque()  # the raw keys of `keys`, the oldest first
        self.recent: RecentKeys | None = None  # of `keys`; made by sessions that gain by it
        self.recent_groups: dict[tuple[str, bytes], RecentKeys] = {}  # the same by operation and group, where names are the topic's alone
        self.new_names: NewNames | None = None  # how many new names its client may use now; None: any number
        self.together: dict[object, Key] = {}  # of names beyond that, by what holds for them
        self.groups: dict[str, Key] = {}  # one for all topics of a group (`routing_key_words`), by the group's text and operation
        self.sessions = 0  # how many sessions use it; the judge forgets it at 0
        self.libraries: tuple[dict[str, object], ...] = ()  # what its connections say of their client library, MAX_SAID different ones
        self.names: tuple[str, ...] = ()  # and the names that they give themselves

    def introduce(self, library: dict[str, object], name: str = "") -> None:
        """A connection has said what it is. Called once for each; for operators only, the judge does not look at it."""
        if library and library not in self.libraries and len(self.libraries) < MAX_SAID:
            self.libraries = (*self.libraries, library)
        if name and name not in self.names and len(self.names) < MAX_SAID:
            self.names = (*self.names, name)

    def __repr__(self) -> str:
        return f"<Origin {self.protocol} {self.listener} client={self.client} user={self.user} keys={len(self.keys)}>"


class Key:
    """One topic as seen from one origin, with its matched rules and its counters; or a group of topics, `name` being one of them."""

    __slots__ = (
        "asked", "buckets", "consumer", "counted", "dirty", "generation", "group", "in_a_second", "in_runs", "limited", "limited_in",
        "max_size", "name", "operation", "origin", "priced", "rematch_at", "share", "tally", "text", "unnamed",
    )  # fmt: skip

    def __init__(self, origin: Origin, name: TopicName, group: bytes | None, operation: str, text: str | None = None) -> None:
        self.origin = origin
        self.name = name
        self.text = name.text() if text is None else text  # what it is counted as: the topic's text, or the group's
        self.group = group  # consumer or producer group (RocketMQ), None elsewhere
        self.operation = operation  # one of `limiter.operations.OPERATIONS`
        self.tally = Tally()
        self.asked: KeySum | None = None  # what the columns that are just made ask of it
        self.dirty = False  # on the gateway's list of keys to fold
        self.buckets: list[Bucket] = []  # the rules a message must pass, matched under `generation`
        self.share: TopicShare | None = None  # its topic's part of a listener's cap, which is the last of `buckets`; None: there is none
        self.counted = False  # one of `buckets` counts what is in flight
        self.priced = False  # one of `buckets` counts what its requests cost (`limiter.rules.cost`)
        self.max_size = NEVER  # bytes that one of its messages may have; beyond, a rule of `buckets` says so
        self.in_runs = False  # its requests may be judged together (`limiter.decisions.runs`)
        self.rematch_at = 0  # monotonic ns: a key that shares an overflow bucket then looks for one of its own
        self.generation = -1  # of the rule set that `buckets` was matched under; the judge matches anew when it differs
        self.limited = False  # the loop's own note, for what need not be judged: whether any rule holds for it
        self.in_a_second = 0  # the same: how many messages they let pass in a second, 1 at least; 0: they do not say
        self.unnamed = False  # it stands for names that are not told apart (`limiter.new_names`): sessions do not remember it
        self.limited_in = -1  # generation of the rule set that was found in
        self.consumer = ""  # the tag of the AMQP consumer whose requeue was over its limit last

    def __repr__(self) -> str:
        return f"<Key {self.text} from {self.origin.client}>"


class KeySum:
    """What columns ask one key for (`limiter.columns`). `number` is its place among their sums."""

    __slots__ = ("cap_ns", "count", "first", "key", "largest", "number", "refused", "refused_bytes", "size")

    def __init__(self, key: Key, number: i64, first: i64) -> None:
        self.key = key
        self.number = number
        self.count: i64 = 0  # messages
        self.size: i64 = 0  # bytes of them all
        self.first = first  # bytes of the first one
        self.largest = first  # bytes of the largest one
        self.cap_ns = 0  # what they cost the listener's cap, once that is asked
        self.refused: i64 = 0  # of `count`, and of `size`, once they were judged
        self.refused_bytes: i64 = 0

    def __repr__(self) -> str:
        return f"<KeySum {self.count} messages, {self.size} bytes of {self.key.text}>"
