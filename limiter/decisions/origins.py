"""Origins: the clients that have a session, and the keys they have used.

Sessions ask for a key once per topic and keep what they get (`Origin.keys`), so what is here costs nothing per message. Names come from
clients: an origin has at most `KEYS_PER_ORIGIN` keys, all origins together `limit`, the oldest go one at a time, and new ones are bounded
per client and second (`limiter.new_names`). Keys cost time to make again and nothing else: buckets and counts are not theirs.

The naive way forgets an origin with its last session. A client with one connection at a time, a new one for every few messages, then uses
a new name for each of them, until it has none left. So an origin without a session stays for LINGER_NS, where new names are bounded.

Threads: the loop's alone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from limiter.decisions.alike_names import MAX_TOGETHER, UNDECIDED, AlikeNames
from limiter.keys import Key, Origin
from limiter.limits import SECOND
from limiter.new_names import ClientsNames
from limiter.rules.subject import Subject
from limiter.topics import SEVERAL_PARTS, TopicName

if TYPE_CHECKING:
    from limiter.buckets.ledger import Ledger
    from limiter.rules.rule_set import Effective, Identity, RuleSet
    from limiter.rules.sender import Sender

KEYS_PER_ORIGIN: Final = 100_000  # keys, some 0.5 kB each; behind one address there may be many services; a guess
LINGER_NS: Final = 2 * SECOND  # that an origin is kept without a session; a script that publishes comes again within it, or seldom: a guess
MAX_LINGERING: Final = 1000  # origins without a session, of more the longest one goes: a guess
UNNAMED: Final = "__other__"  # what those are counted as


def subject_of(key: Key) -> Subject:
    """What the rules look at for `key`."""
    origin = key.origin
    text = key.text if not key.text.endswith("#") else key.name.text()  # a group's text is not the topic's, and ends like that
    grouped = key.unnamed or text != key.text
    return Subject(key.name, text, origin.sender, key.group, key.operation, origin.connection, grouped=grouped)


class Origins:
    """All origins with a session, and their keys, under the rules in force. New names are bounded where `ledger` is given."""

    __slots__ = ("_alike", "_count", "_ledger", "_left", "_names", "_origins", "_rules", "comers", "consumers", "fetches", "limit", "now")

    def __init__(self, rules: RuleSet, limit: int, ledger: Ledger | None = None) -> None:
        self.limit = limit  # keys of all origins together
        self.now = 0  # monotonic ns, of the latest decision or tick of the gateway
        self._ledger = ledger
        self._names = ClientsNames()
        self._alike: dict[Origin, dict[bytes, AlikeNames]] = {}  # of those whose names are not told apart; by exchange or group, or b""
        self._rules = rules
        self._count = 0
        self.consumers: dict[Identity, int] = {}  # how many consumers share a limit; counted by the sessions
        self.comers: dict[Identity, dict[object, tuple[bytes, bytes, int]]] = {}  # those that fetch a message of a slow one
        # By a slow limit, then virtual host and queue: when a message of it was last wanted, and when fetched (monotonic ns).
        self.fetches: dict[Identity, dict[tuple[bytes, bytes], tuple[int, int]]] = {}
        self._origins: OrderedDict[tuple[str, Sender, bytes, int], Origin] = OrderedDict()
        self._left: OrderedDict[Origin, int] = OrderedDict()  # those without a session, and since when (monotonic ns); the longest first

    def tick(self, now: int) -> None:
        """A few times a second: `now` it is, and origins that nobody has come back to are forgotten."""
        self.now = now
        while self._left and (len(self._left) > MAX_LINGERING or next(iter(self._left.values())) + LINGER_NS <= now):
            self._forget(self._left.popitem(last=False)[0])

    def replace(self, rules: RuleSet) -> bool:
        """Go on under `rules`; whether sessions must ask anew for their origins and keys, which may be others then."""
        regroup = (rules.groups_topics or self._rules.groups_topics) and not rules.groups_as(self._rules)
        self._rules = rules
        self._alike.clear()
        for origin in self._origins.values():
            origin.together.clear()
            if regroup:
                self._forget_keys(origin)
        return regroup or rules.by_connection

    # ---- origins ---------------------------------------------------------------------------------------------------

    def origin(self, protocol: str, sender: Sender, vhost: bytes, connection: int) -> Origin:
        """The one origin of these; counts a session, to be given back with `release`. Connections are told apart where a rule does."""
        number = connection if self._rules.by_connection else 0
        identity = (protocol, sender, vhost, number)
        origin = self._origins.get(identity)
        if origin is None:
            origin = Origin(protocol, sender, vhost, number)
            if self._ledger is not None:
                origin.new_names = self._names.of(origin.listener, origin.client)
            self._origins[identity] = origin
        elif origin.sessions == 0:
            del self._left[origin]
        origin.sessions += 1
        return origin

    def release(self, origin: Origin, *, ended: bool = False) -> None:
        """A session of `origin` has `ended`, or goes on without it; with the last the origin and its keys are forgotten, or soon after."""
        if origin.sessions <= 0:
            return
        origin.sessions -= 1
        if origin.sessions == 0:
            if not ended or self._ledger is None or origin.connection:
                self._forget(origin)
            else:
                self._left[origin] = self.now
                if len(self._left) > MAX_LINGERING:
                    self.tick(self.now)

    def _forget(self, origin: Origin) -> None:
        self._forget_keys(origin)
        self._origins.pop((origin.protocol, origin.sender, origin.vhost, origin.connection), None)

    def own(self, origin: Origin, connection: int) -> Origin:
        """The origin to go on with under the rules in force: `origin` itself, unless they now tell connections apart."""
        if origin.connection or not self._rules.by_connection:
            return origin
        renewed = self.origin(origin.protocol, origin.sender, origin.vhost, connection)
        renewed.libraries = renewed.libraries or origin.libraries
        renewed.names = renewed.names or origin.names
        self.release(origin)
        return renewed

    # ---- keys ------------------------------------------------------------------------------------------------------

    def key(self, origin: Origin, raw: bytes, name: TopicName, group: bytes | None, operation: str, told_apart: bool) -> Key:  # noqa: FBT001
        """The key of `name` from `origin`, remembered in `origin.keys` under `raw`, the bytes by which the session finds it again.

        An `unnamed` one is not remembered, where the client has used too many new names and `told_apart` does not say that it must be.

        Topics that a rule groups share one key, so that ids in routing keys cost an entry in that dictionary and no more.

        An origin that names more topics than `KEYS_PER_ORIGIN` forgets its oldest key for each; when all keys are too many, origins do
        in turn.
        """
        key = origin.keys.get(raw)
        if key is not None:
            return key
        new_names = origin.new_names
        if new_names is not None and not told_apart and not new_names.take(self.now):
            key, _ = self._find_shared_key(origin, name, group, operation)
            if key is not None:
                return key
        if len(origin.keys) >= KEYS_PER_ORIGIN:
            self._forget_oldest_key(origin)
        if self._count >= self.limit:
            self._make_room()
        key = Key(origin, name, group, operation)
        if self._rules.groups_topics:
            key = self._find_group_key(key)
        origin.keys[raw] = key
        origin.order.append(raw)
        self._count += 1
        return key

    def beyond(self, origin: Origin, exchange: bytes, topic: bytes, group: bytes) -> Key | None:
        """The key of a topic that is published to, where its client has no new name left; None: `key` must be asked.

        What a flood of invented names costs: look-ups, where such a name was met before. One key is for all topics that are not told
        apart, and one for each topic that is, whatever the group, unless a rule looks at groups.
        """
        new_names = origin.new_names
        ledger = self._ledger
        if new_names is None or ledger is None or not topic or not new_names.used_up(self.now):
            return None
        patterns = self._rules.name_patterns()
        place, any_group = exchange if patterns.by_exchange else b"", False
        if group:
            if patterns.by_group:
                place = group
            else:
                any_group = True
                key = origin.keys.get(topic)
                if key is not None:
                    return key
        try:
            text = topic.decode()
        except UnicodeDecodeError:
            return None
        of_origin = self._alike.get(origin)
        if of_origin is None:
            of_origin = self._alike[origin] = {}
        alike = of_origin.get(place)
        met = UNDECIDED
        if alike is None and len(of_origin) < MAX_TOGETHER:
            alike = of_origin[place] = AlikeNames(origin)
        if alike is not None:
            if alike.exchange != exchange:
                alike.turn_to(exchange)
            met = alike.match_patterns(text, topic, self._rules)
            key = None if met == UNDECIDED else alike.find(met, text, topic, ledger)
            if key is not None or (met == UNDECIDED and not any_group):
                return key
        name = TopicName(origin.protocol, origin.vhost if origin.protocol in SEVERAL_PARTS else b"", exchange, topic)
        key, own = self._find_shared_key(origin, name, group or None, "produce")
        if key is None:
            return self.key(origin, topic, name, None, "produce", told_apart=True) if any_group else None
        if alike is not None and met != UNDECIDED:
            alike.remember(met, key, own)
        return key

    def _subject(self, origin: Origin, name: TopicName, group: bytes | None, operation: str) -> Subject:
        return Subject(name, name.text(), origin.sender, group, operation, origin.connection)

    def may_name(self, origin: Origin) -> bool:
        """Whether the client of `origin` may use one more new name, which then counts."""
        return origin.new_names is None or origin.new_names.take(self.now)

    def _find_shared_key(self, origin: Origin, name: TopicName, group: bytes | None, operation: str) -> tuple[Key | None, str | None]:
        """The key of all names from `origin` for which the same holds as for `name`, None where that must be told apart; and the rule that
        has topics' buckets, "": the level, None: topics have none.
        """
        rules = self._rules
        subject = self._subject(origin, name, group, operation)
        if rules.groups_topics:
            grouped = rules.group_of(subject)
            if grouped is not None:
                return self._group_key(Key(origin, name, group, operation), grouped), None
        alike = rules.alike(subject)
        if alike is None:
            return None, None
        place, rules_alone, own = alike
        if self._ledger is not None and own is not None and self._ledger.get(own) is not None:
            return None, None
        key = origin.together.get(place)
        if key is None and len(origin.together) >= MAX_TOGETHER:
            place = rules_alone
            key = origin.together.get(place)
        if key is None:
            key = origin.together[place] = Key(origin, name, group, operation, UNNAMED)
            key.unnamed = True
        return key, None if own is None else own[1]

    def _find_group_key(self, key: Key) -> Key:
        """The key of the group that `key`'s topic belongs to; `key` itself where no rule groups it."""
        together = self._rules.group_of(subject_of(key))
        return key if together is None else self._group_key(key, together)

    def _group_key(self, key: Key, together: str) -> Key:
        """The key of the group `together`, which `key` is in."""
        groups = key.origin.groups
        place = f"{key.operation} {together}"
        shared = groups.get(place)
        if shared is None:
            shared = groups[place] = Key(key.origin, key.name, key.group, key.operation, together)
        return shared

    def is_limited(self, key: Key) -> bool:
        """Whether any rule in force looks at messages of `key`: where none does, asking for a verdict is not worth its time."""
        rules = self._rules
        if key.limited_in != rules.generation:
            matched = rules.matched(subject_of(key))
            key.limited = any(effective.rule.mode != "off" for effective in matched)
            rates = [effective.limit.messages for effective in matched if effective.rule.mode == "enforce"]
            key.in_a_second = min([max(rate.tokens_in(SECOND), 1) for rate in rates if rate is not None], default=0)
            key.limited_in = rules.generation
        return key.limited

    def list_enforced(self, key: Key) -> list[Effective]:
        """The rules in force that keep messages of `key` waiting."""
        return [effective for effective in self._rules.matched(subject_of(key)) if effective.rule.mode == "enforce"]

    def _forget_keys(self, origin: Origin) -> None:
        self._count -= len(origin.keys)
        origin.keys.clear()
        origin.recent = None
        origin.recent_groups.clear()
        origin.order.clear()
        origin.groups.clear()
        origin.together.clear()
        self._alike.pop(origin, None)

    def _forget_oldest_key(self, origin: Origin) -> None:
        oldest = origin.order.popleft()
        key = origin.keys.pop(oldest)
        if origin.recent is not None:
            origin.recent.forget(oldest)
        for recent in origin.recent_groups.values():
            recent.forget_key(key.name.topic, key)
        self._count -= 1

    def _make_room(self) -> None:
        """Forget the oldest key of the origin whose turn it is."""
        for _ in range(len(self._origins)):
            identity = next(iter(self._origins))
            origin = self._origins[identity]
            self._origins.move_to_end(identity)
            if origin.keys:
                self._forget_oldest_key(origin)
                return

    def key_count(self) -> int:
        """How many keys are remembered."""
        return self._count

    def __len__(self) -> int:
        """How many origins there are."""
        return len(self._origins)

    def __repr__(self) -> str:
        return f"<Origins keys={self._count}/{self.limit} origins={len(self._origins)}>"
