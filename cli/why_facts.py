"""What a gateway knows of one key's limit, gathered from its admin API with no more than a viewer's token.

What is found here is written for people by `why_text.py`; `why.py` is the verb.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final

from cli.client import AdminClient
from cli.client_advice import (
    CLIENT_ADVICE,
    CONSUMING,
    SPOOLED,
    WAIT_LONGER,
    ClientAdvice,
    find_libraries,
    library_of,
    situations_of,
)
from cli.exits import CommandError
from cli.keys import topic_path
from cli.names import quote_topic
from common.failures import NOT_AUTHORISED, NOT_FOUND
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.match import SENDER_KEYS
from limiter.rules.rule_set import UNRULED

JSONObject = dict[str, Any]
REACHED: Final = "limit_reached"
RECOVERED: Final = "limit_recovered"
EVENTS: Final = f"{REACHED},{RECOVERED}"
ENDED: Final = "worker_ended"
MAX_EVENTS: Final = 500  # events; asked for
MAX_CLIENTS: Final = 8  # client addresses; whose connections are looked up
MAX_CONNECTIONS: Final = 20  # connections; looked at of one address
MAX_LISTENERS: Final = 16  # listeners; whose caps are asked for
MAX_RANKED: Final = 500  # clients; of the ranking over all topics
MAX_NEAR: Final = 500  # topics; looked at for a name like one that has not come
MAX_SHOWN: Final = 3  # of these, shown
PATTERN: Final = re.compile(r"[*?#]")
RAISE: Final = 1.3  # times the demand; the limit that is suggested (a guess)


@dataclass(slots=True)
class LimitedClient:
    """One client address that is limited. `libraries`, `users`, `names`: what its connections say of themselves.

    `refused` is of the key, `delayed` of all the client's topics, this one being its worst.
    """

    address: str
    refused: int = 0
    refused_per_second: float = 0.0
    delayed: int = 0
    delayed_per_second: float = 0.0
    users: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    libraries: dict[str, ClientAdvice] = field(default_factory=dict)
    confirms: bool | None = None  # whether one of its channels has confirms; None: not known


@dataclass(slots=True)
class Limited:
    """One level of a key's limit, with its last episode."""

    level: JSONObject
    event: JSONObject | None = None  # the last limit_reached or limit_recovered of its bucket

    @property
    def usage(self) -> JSONObject:
        return self.level.get("usage") or {}

    @property
    def enforced(self) -> bool:
        """Whether messages over it are refused or held: not in mode shadow, which only counts them, or off."""
        return str(self.level.get("mode", "enforce")) == "enforce"

    @property
    def over_now(self) -> bool:
        return self.event is not None and self.event.get("event") == REACHED

    @property
    def last_over(self) -> str:
        """When a message was over it last, as RFC 3339; "": never since the bucket came into use."""
        event = self.event or {}
        refused = str(self.usage.get("last_refused") or event.get("ts") or "")
        return max(refused, str(event.get("since") or "")) if refused else ""  # what began it is counted a moment later


@dataclass(frozen=True, slots=True)
class AbsentSender:
    """A client or user that was asked about, of which no connection is open and nothing was refused or held; `others`: whom there is."""

    kind: str  # client | user
    name: str
    others: list[str]


@dataclass(slots=True)
class Findings:
    """All that is known of one key."""

    words: tuple[str, ...]
    body: JSONObject  # of /v1/limits/{key}
    levels: list[Limited]
    traffic: list[JSONObject]  # its items of /v1/topics: to produce, to consume
    clients: list[LimitedClient]
    quotas: JSONObject | None  # the publication in force
    status: JSONObject
    near: list[str] = field(default_factory=list)  # where no message of it has come: names like it, as one types them
    absent: list[AbsentSender] = field(default_factory=list)  # of those asked about
    caps: dict[str, Limited] = field(default_factory=dict)  # by listener: its cap, which holds for the messages that come by it

    @property
    def worst(self) -> Limited | None:
        """The level that is over its limit, else the one that was last, an enforced one before others; None: none ever was."""
        found = sorted((one for one in self.levels if one.last_over), key=lambda one: (one.enforced, one.over_now, one.last_over))
        return found[-1] if found else None

    @property
    def state(self) -> str:
        """limited_now, limited_before, not_enforced (over a limit, and passed all the same), within, unseen, or unlimited."""
        worst = self.worst
        if worst is not None and not worst.enforced:
            return "not_enforced"
        if worst is not None:
            return "limited_now" if worst.over_now else "limited_before"
        if not any(one.level.get("rule") != UNRULED.name or one.level.get("limit") for one in self.levels):
            return "unlimited"
        return "within" if self.traffic else "unseen"

    def item(self, one: Limited) -> JSONObject:
        """What `GET /v1/topics` says of the messages that a level limits; {} where it does not know them."""
        return next((item for item in self.traffic if item.get("operation") == one.level.get("operation")), {})

    def account(self, one: Limited) -> JSONObject:
        """What the gateway says its limit does to the topic now; {} of a level that is no topic's, or of an older gateway."""
        return (self.item(one).get("account") or {}) if one.level.get("per") == "topic" else {}

    def demand(self, one: Limited) -> tuple[float, float]:
        """Messages per second: offered to a level's bucket, and of these over the limit, of late."""
        usage, event = one.usage, one.event or {}
        if usage.get("received_per_second") is not None:
            offered = float(usage["received_per_second"])
            return offered, max(0.0, offered - float(usage.get("forwarded_per_second") or 0))
        over = (float(event.get("refused") or 0) + float(event.get("delayed") or 0)) / float(event.get("seconds") or 1)
        return (float(event.get("rate") or 0), over) if one.over_now else (0.0, 0.0)


def gather(client: AdminClient, words: tuple[str, ...], sender: Mapping[str, str | None]) -> Findings:
    """Ask the gateway. Raises CommandError."""
    target = topic_path(words)
    given = {name: value for name, value in sender.items() if value is not None}
    body = client.ask("GET", target, query=given).body
    topic, protocol = str(body.get("topic")), str(body.get("protocol"))
    events = list_events(client, topic, protocol)
    traffic = [
        item
        for item in client.items("/v1/topics", {"q": topic, "protocol": protocol})
        if item.get("topic") == topic and item.get("protocol") == protocol
    ]
    sender_then = {} if given else _sender(traffic, [event for event in events if event.get("protocol") == protocol], topic)
    if sender_then:  # limits of clients, users and so on: those of who is refused, or was last
        body = client.ask("GET", target, query=sender_then).body
    levels = [Limited(level, last_event(events, level, topic)) for level in body.get("levels") or []]
    quotas = None
    if any(str(one.level.get("origin")).startswith("quota") for one in levels):
        quotas = (_or_nothing(client, "/v1/quotas/status") or {}).get("published")
    clients = _clients(client, traffic, levels, (protocol, topic))
    near = [] if traffic else near_names(client, protocol, topic)
    absent = _absent(client, protocol, given, traffic)
    caps = {} if given.get("listener") else _caps(client, target, {**sender_then, **given}, levels, events, (protocol, topic))
    return Findings(words, body, levels, traffic, clients, quotas, _or_nothing(client, "/v1/status") or {}, near, absent, caps)


def _caps(
    client: AdminClient, target: str, sender: Mapping[str, str], levels: list[Limited], events: list[JSONObject], key: tuple[str, str]
) -> dict[str, Limited]:
    """The caps of the listeners by which messages of `key` (protocol, topic) may come, but for those among `levels`."""
    protocol, topic = key
    known = {one.level.get("thing") for one in levels if one.level.get("per") == "listener"}
    listeners = (_or_nothing(client, "/v1/listeners") or {}).get("items") or []
    found = {}
    for name in [str(each.get("name")) for each in listeners if each.get("protocol") == protocol][:MAX_LISTENERS]:
        body = (_or_nothing(client, target, {**sender, "listener": name}) or {}) if name not in known else {}
        for level in body.get("levels") or []:
            if level.get("per") == "listener" and level.get("thing") not in known:
                found[name] = Limited(level, last_event(events, level, topic))
    return found


def _absent(client: AdminClient, protocol: str, given: Mapping[str, str], traffic: list[JSONObject]) -> list[AbsentSender]:
    """The client and user of `given` that the gateway knows nothing of, each with those that it knows: like it, or else limited most."""
    found = []
    for kind in ("client", "user"):
        name = given.get(kind)
        if name is None:
            continue
        limited = [*(each for item in traffic for each in item.get("clients") or []), *_rank_clients(client, protocol)]
        known = [str(each[kind]) for each in limited if each.get(kind)]
        if name not in known:  # all connections are asked for only where it is not among them
            known += _list_connected(client, protocol, kind, name)
        if name not in known:
            others = list(dict.fromkeys([*known, *_list_connected(client, protocol, kind)]))
            found.append(AbsentSender(kind, name, (get_close_matches(name, others, MAX_SHOWN) or others)[:MAX_SHOWN]))
    return found


def _list_connected(client: AdminClient, protocol: str, kind: str, name: str = "") -> list[str]:
    """The clients or users of open connections, of those that `name` finds."""
    query = {"protocol": protocol, **({"q": name} if name else {})}
    items = client.items("/v1/connections", query, most=MAX_NEAR)
    return [address_of(each) if kind == "client" else str(each[kind]) for each in items if each.get(kind)]


def address_of(connection: JSONObject) -> str:
    """The address of a connection's client, without its port."""
    return str(connection.get("client")).rpartition(":")[0].strip("[]")


def near_names(client: AdminClient, protocol: str, topic: str) -> list[str]:
    """Topics that have a name like `topic`, or that match it where it is meant as a pattern."""
    known = {
        str(item.get("topic")): quote_topic(protocol, str(item.get("topic")))
        for item in client.items("/v1/topics", {"protocol": protocol}, most=MAX_NEAR)
    }
    words = quote_topic(protocol, topic).replace("'", "")
    matching = [each for each in known.values() if fnmatchcase(each, words.replace("#", "*"))] if PATTERN.search(words) else []
    return (matching or [known[each] for each in get_close_matches(topic, known, MAX_SHOWN)])[:MAX_SHOWN]


def _sender(traffic: list[JSONObject], events: list[JSONObject], topic: str) -> dict[str, str]:
    """Whose limits are to be looked at, too: the client of the topic that is refused most now, else that of the last event."""
    refused = [each for item in traffic for each in item.get("clients") or [] if each.get("refused_per_second")]
    worst = str(max(refused, key=lambda each: float(each["refused_per_second"])).get("client")) if refused else ""
    of_topic = [event for event in reversed(events) if event.get("topic") == topic]
    last: JSONObject = next((event for event in of_topic if worst in {"", event.get("client")}), {"client": worst})
    return {name: str(last[name]) for name in SENDER_KEYS if last.get(name)}


def _or_nothing(client: AdminClient, target: str, query: Mapping[str, str] | None = None) -> JSONObject | None:
    """An answer that may be missing: of an older gateway, or not for this token."""
    try:
        body = client.ask("GET", target, query=query).body
    except CommandError as error:
        if error.code not in {NOT_FOUND, NOT_AUTHORISED}:
            raise
        return None
    return body if isinstance(body, dict) else None


def list_events(client: AdminClient, topic: str, protocol: str) -> list[JSONObject]:
    """The episodes of limits that are still known, the latest last. Those of a worker that has ended since are over without a word.

    A limit of a client, a user or a listener may be shared by both protocols: what the other one's messages began counts, too.
    """
    answer = _or_nothing(client, "/v1/events", {"kind": f"{EVENTS},{ENDED}", "limit": str(MAX_EVENTS)})
    of_topic = _or_nothing(client, "/v1/events", {"kind": EVENTS, "topic": topic, "limit": str(MAX_EVENTS)})  # may be older ones
    found = {str(item["id"]): item for each in (of_topic, answer) for item in (each or {}).get("items", [])}
    numbers = {name: int(name.rpartition("-")[2]) for name in found}  # by `ts` they would be out of order where the clock was set back
    ordered = [found[name] for name in sorted(numbers, key=numbers.__getitem__)]
    last_end = {event.get("worker"): at for at, event in enumerate(ordered) if event.get("event") == ENDED}
    return [
        {**event, "event": RECOVERED} if at < last_end.get(event.get("worker"), 0) else event
        for at, event in enumerate(ordered)
        if event.get("protocol") == protocol or (event.get("thing") and event.get("per") != "topic")
    ]


def last_event(events: list[JSONObject], level: JSONObject, topic: str) -> JSONObject | None:
    """The last event of a level's bucket; where the bucket is not known, the last one that this key had a part in.

    Each worker has episodes of its own: the limit is reached as long as one of them has not recovered.
    """
    last: dict[object, JSONObject] = {}  # by worker
    for event in reversed(events):
        same = all(event.get(name) == level.get(name) for name in ("per", "rule"))
        if level.get("rule") == UNRULED.name:  # else the rule has one bucket for all its operations, and the event names the worst
            same = same and event.get("operation") == level.get("operation")
        if same and (event.get("thing") == level["thing"] if level.get("thing") else event.get("topic") == topic):
            last.setdefault(event.get("worker"), event)
    return next((event for event in last.values() if event.get("event") == REACHED), next(iter(last.values()), None))


def _rank_clients(client: AdminClient, protocol: str) -> list[JSONObject]:
    """The clients over a limit, of all topics, also those that have gone; none of a gateway that does not know them yet."""
    try:
        return list(client.items("/v1/clients", {"protocol": protocol}, most=MAX_RANKED))
    except CommandError as error:
        if error.code != NOT_FOUND:
            raise
        return []


def _clients(client: AdminClient, traffic: list[JSONObject], levels: list[Limited], key: tuple[str, str]) -> list[LimitedClient]:
    """The clients that are limited at `key` (protocol, topic), the worst first, with what they tell or have told of themselves."""
    protocol, topic = key
    found: dict[str, LimitedClient] = {}
    ranked = _rank_clients(client, protocol)
    for each in (item for item in ranked if item.get("topic") == topic):
        one = found.setdefault(str(each.get("client")), LimitedClient(str(each.get("client"))))
        one.delayed += int(each.get("delayed") or 0)
        one.delayed_per_second += float(each.get("delayed_per_second") or 0)
    for each in (item for topic in traffic for item in topic.get("clients") or []):
        one = found.setdefault(str(each.get("client")), LimitedClient(str(each.get("client"))))
        one.refused += int(each.get("refused") or 0)
        one.refused_per_second += float(each.get("refused_per_second") or 0)
    for event in (one.event for one in levels if one.event is not None):
        if event.get("client"):
            known = found.setdefault(str(event["client"]), LimitedClient(str(event["client"])))
            known.refused = known.refused or int(event.get("client_refused") or 0)
            if event.get("user"):
                known.users.add(str(event["user"]))
    worst = sorted(found.values(), key=lambda one: (-one.refused_per_second - one.delayed_per_second, -one.refused - one.delayed))
    limited = worst[:MAX_CLIENTS]
    for one in limited:
        _look_up(client, one, protocol)
        if not one.libraries:  # it has gone
            _remember(one, [each for each in ranked if each.get("client") == one.address])
    return limited


def _remember(one: LimitedClient, ranked: list[JSONObject]) -> None:
    """Add what the ranking still knows of a client."""
    for each in ranked:
        if each.get("user"):
            one.users.add(str(each["user"]))
        one.names.update(str(name) for name in each.get("names") or [])
        for said in each.get("libraries") or []:
            library = library_of({"protocol": each.get("protocol"), "client_properties": said, **said})
            if library is not None:
                one.libraries[library.name] = library


def _look_up(client: AdminClient, one: LimitedClient, protocol: str) -> None:
    """Add what the connections of a client's address say of themselves."""
    for connection in client.items("/v1/connections", {"q": one.address, "protocol": protocol}, most=MAX_CONNECTIONS):
        if address_of(connection) != one.address:
            continue
        if connection.get("user"):
            one.users.add(str(connection["user"]))
        properties = connection.get("client_properties")
        name = properties.get("connection_name") if isinstance(properties, dict) else None
        if name:
            one.names.add(str(name))
        library = library_of(connection)
        if library is not None:
            one.libraries[library.name] = library
        if connection.get("channels") and "confirm_channels" in connection:  # one without a channel, or about to end, tells nothing
            one.confirms = bool(one.confirms or connection["confirm_channels"])


def libraries_of(findings: Findings, asked: str | None, *, every: bool) -> list[ClientAdvice]:
    """The libraries to say something of: the one asked for, all of the protocol, or those of the clients. Raises CommandError."""
    protocol = str(findings.body.get("protocol"))
    all_of_them = [advice for advice in CLIENT_ADVICE if advice.protocol == protocol]
    if asked is not None:
        found = find_libraries(asked, protocol)
        if not found:
            known = ", ".join(advice.name for advice in all_of_them)
            raise CommandError(NOT_FOUND, f"nothing is known of {asked} with {PROTOCOL_NAMES[protocol].title}; there are {known}")
        return found
    if every:
        return all_of_them
    return list({name: advice for one in findings.clients for name, advice in one.libraries.items()}.values())


def situations(findings: Findings) -> tuple[str, ...]:
    """How the limit bites, or would, where none has yet."""
    one = findings.worst or next(iter(findings.levels), None)
    if one is None or not one.enforced:
        return ()
    known = {client.confirms for client in findings.clients} - {None}
    confirms = known.pop() if len(known) == 1 else None
    return situations_of({**one.level, "protocol": findings.body.get("protocol")}, confirms)


def to_do(advice: ClientAdvice, bites: tuple[str, ...]) -> str | None:
    """What to change in the application; None where it consumes, as nothing is refused there."""
    if bites == (SPOOLED,):
        return WAIT_LONGER
    return None if bites == (CONSUMING,) else advice.to_do


def as_json(findings: Findings, libraries: list[ClientAdvice], commands: list[str]) -> JSONObject:
    """The findings for programs."""
    worst = findings.worst
    offered, over = findings.demand(worst) if worst is not None else (0.0, 0.0)
    bites = situations(findings)
    return {
        "protocol": findings.body.get("protocol"),
        "topic": findings.body.get("topic"),
        "state": findings.state,
        "since": (worst.event or {}).get("since") if worst is not None else None,
        "last_over": worst.last_over if worst is not None else None,
        "offered_per_second": offered,
        "over_limit_per_second": over,
        "wait_ms": worst.usage.get("wait_ms") if worst is not None else None,
        "limit": None if worst is None else {name: value for name, value in worst.level.items() if name != "usage"},
        "levels": [one.level for one in findings.levels],
        "caps": {name: one.level for name, one in findings.caps.items()},
        "quotas": findings.quotas,
        "clients": [
            {
                "client": one.address, "refused": one.refused, "refused_per_second": one.refused_per_second,
                "delayed": one.delayed, "delayed_per_second": one.delayed_per_second, "users": sorted(one.users),
                "names": sorted(one.names), "libraries": sorted(one.libraries), "confirms": one.confirms,
            }
            for one in findings.clients
        ],
        "advice": [
            {"library": each.name, "shows": {bite: each.shows[bite] for bite in bites if bite in each.shows}, "to_do": to_do(each, bites)}
            for each in libraries
        ],
        "near": findings.near,
        "absent": [{each.kind: each.name, "others": each.others} for each in findings.absent],
        "commands": commands,
    }  # fmt: skip
