"""Origins: the clients that have a session, and the keys they have used.

Sessions ask for a key once per topic and keep what they get (`Origin.keys`), so what is here costs nothing per message. Names come from
clients: an origin has at most `KEYS_PER_ORIGIN` keys, all origins together `limit`. Keys cost time to make again and nothing else:
buckets and counts are not theirs.

Threads: the loop's alone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from limiter.keys import Key, Origin
from limiter.rules.subject import Subject
from limiter.topics import TopicName

if TYPE_CHECKING:
    from limiter.rules.rule_set import Effective, Identity, RuleSet

KEYS_PER_ORIGIN: Final = 20_000  # keys, some 1 kB each; more topics than any client uses at a time; a guess


def subject_of(key: Key) -> Subject:
    """What the rules look at for `key`."""
    origin = key.origin
    text = key.text if not key.text.endswith("#") else key.name.text()  # a group's text is not the topic's, and ends like that
    return Subject(key.name, text, origin.listener, origin.client, origin.user, key.group, key.operation, origin.connection)


class Origins:
    """All origins with a session, and their keys, under the rules in force."""

    __slots__ = ("_count", "_origins", "_rules", "consumers", "limit")

    def __init__(self, rules: RuleSet, limit: int) -> None:
        self.limit = limit  # keys of all origins together
        self._rules = rules
        self._count = 0
        self.consumers: dict[Identity, int] = {}  # how many consumers share a limit; counted by the sessions
        self._origins: OrderedDict[tuple[str, str, str, str | None, bytes, int], Origin] = OrderedDict()

    def replace(self, rules: RuleSet) -> bool:
        """Go on under `rules`; whether sessions must ask anew for their origins and keys, which may be others then."""
        regroup = rules.groups_topics or self._rules.groups_topics
        self._rules = rules
        if regroup:
            for origin in self._origins.values():
                self._forget_keys(origin)
        return regroup or rules.by_connection

    # ---- origins ---------------------------------------------------------------------------------------------------

    def origin(self, protocol: str, listener: str, client: str, user: str | None, vhost: bytes, connection: int) -> Origin:
        """The one origin of these; counts a session, to be given back with `release`. Connections are told apart where a rule does."""
        number = connection if self._rules.by_connection else 0
        identity = (protocol, listener, client, user, vhost, number)
        origin = self._origins.get(identity)
        if origin is None:
            origin = Origin(protocol, listener, client, user, vhost, number)
            self._origins[identity] = origin
        origin.sessions += 1
        return origin

    def release(self, origin: Origin) -> None:
        """A session of `origin` has ended, or goes on without it; with the last one the origin and its keys are forgotten."""
        if origin.sessions <= 0:
            return
        origin.sessions -= 1
        if origin.sessions == 0:
            self._forget_keys(origin)
            self._origins.pop((origin.protocol, origin.listener, origin.client, origin.user, origin.vhost, origin.connection), None)

    def own(self, origin: Origin, connection: int) -> Origin:
        """The origin to go on with under the rules in force: `origin` itself, unless they now tell connections apart."""
        if origin.connection or not self._rules.by_connection:
            return origin
        renewed = self.origin(origin.protocol, origin.listener, origin.client, origin.user, origin.vhost, connection)
        renewed.libraries = renewed.libraries or origin.libraries
        renewed.names = renewed.names or origin.names
        self.release(origin)
        return renewed

    # ---- keys ------------------------------------------------------------------------------------------------------

    def key(self, origin: Origin, raw: bytes, name: TopicName, group: bytes | None, operation: str) -> Key:
        """The key of `name` from `origin`, remembered in `origin.keys` under `raw`, the bytes by which the session finds it again.

        Topics that a rule groups share one key, so that ids in routing keys cost an entry in that dictionary and no more.

        An origin that names more topics than `KEYS_PER_ORIGIN` begins afresh; when all keys are too many the origin that is longest there
        does.
        """
        key = origin.keys.get(raw)
        if key is not None:
            return key
        if len(origin.keys) >= KEYS_PER_ORIGIN:
            self._forget_keys(origin)
        if self._count >= self.limit:
            self._forget_oldest_keys()
        key = Key(origin, name, group, operation)
        if self._rules.groups_topics:
            key = self._shared(key)
        origin.keys[raw] = key
        self._count += 1
        return key

    def _shared(self, key: Key) -> Key:
        """The key of the group that `key`'s topic belongs to; `key` itself where no rule groups it."""
        together = self._rules.group_of(subject_of(key))
        if together is None:
            return key
        groups = key.origin.groups
        place = f"{key.operation} {together}"
        shared = groups.get(place)
        if shared is None:
            shared = groups[place] = Key(key.origin, key.name, key.group, key.operation, together)
        return shared

    def limited(self, key: Key) -> bool:
        """Whether any rule in force looks at messages of `key`: where none does, asking for a verdict is not worth its time."""
        rules = self._rules
        if key.limited_in != rules.generation:
            key.limited = any(effective.rule.mode != "off" for effective in rules.matched(subject_of(key)))
            key.limited_in = rules.generation
        return key.limited

    def enforced(self, key: Key) -> list[Effective]:
        """The rules in force that keep messages of `key` waiting."""
        return [effective for effective in self._rules.matched(subject_of(key)) if effective.rule.mode == "enforce"]

    def _forget_keys(self, origin: Origin) -> None:
        self._count -= len(origin.keys)
        origin.keys.clear()
        origin.groups.clear()

    def _forget_oldest_keys(self) -> None:
        for _ in range(len(self._origins)):
            identity = next(iter(self._origins))
            origin = self._origins[identity]
            self._origins.move_to_end(identity)
            if origin.keys:
                self._forget_keys(origin)
                return

    def key_count(self) -> int:
        """How many keys are remembered."""
        return self._count

    def __len__(self) -> int:
        """How many origins there are."""
        return len(self._origins)

    def __repr__(self) -> str:
        return f"<Origins keys={self._count}/{self.limit} origins={len(self._origins)}>"
