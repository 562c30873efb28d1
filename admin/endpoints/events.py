"""`/v1/events`: the log's last events, from memory. `/v1/stream`: the same and a snapshot a second, as server-sent events."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from admin.authentication.auth import Role
from admin.context import Context
from admin.http.paging import DEFAULT, LIMIT
from admin.http.problems import Fault, invalid
from admin.http.routing import EVENT_STREAM, ON, Answer, Parameter, Request, Route
from admin.http.slices import yield_to_loop
from admin.views.views import EventsPage
from common.views.snapshot import SnapshotView

if TYPE_CHECKING:
    from admin.stream_hub import StreamHub
    from common.recent_events import RecentEvents

JSONObject = dict[str, Any]

KEEP_ALIVE_S: Final = 15.0  # seconds; without anything sent, until a comment shows that the stream lives
RETRY_MS: Final = 2000  # ms; after which a browser connects again
EVENTS_PER_WRITE: Final = 50  # events; bounds what a stream holds at once
MAX_TOPICS: Final = 200  # topics; in a snapshot
TOPICS: Final = 50  # topics; in a snapshot where the request does not say
LEVELS: Final = ("info", "warning", "error", "critical")

_ID: Final = re.compile(r"([0-9a-zA-Z]{1,32})-([0-9]{1,15})")

AFTER: Final = Parameter("after", "text", "only events after the one of this id; `next` of the answer before", example="6f1c03aa-17")
KIND: Final = Parameter("kind", "text", "only these events, by name, with commas between", example="limit_reached,limit_recovered")
TOPIC: Final = Parameter("topic", "text", "only events of this topic", example="%2F/orders/order.created")
LEVEL: Final = Parameter("level", "text", "only events of this level and above", choices=LEVELS)


class Filter:
    """The events that a request asks for."""

    def __init__(self, request: Request) -> None:
        kinds = request.query.get("kind", "")
        self._kinds = frozenset(kind.strip() for kind in kinds.split(",") if kind.strip())
        self._topic = request.query.get("topic")
        level = request.query.get("level", LEVELS[0])
        self._levels = frozenset(LEVELS[LEVELS.index(level) :])

    def __call__(self, event: JSONObject) -> bool:
        return (
            (not self._kinds or event["event"] in self._kinds)
            and (self._topic is None or event.get("topic") == self._topic)
            and event["level"] in self._levels
        )


def number_of(event: JSONObject) -> int:
    """The number in an event's id."""
    return int(str(event["id"]).rpartition("-")[2])


def position(events: RecentEvents, text: str) -> tuple[int, bool]:
    """The number of the event of that id, and whether some after it are gone: of another boot, all of that one are. Raises ValueError."""
    found = _ID.fullmatch(text)
    if found is None:
        raise ValueError(text)
    if found[1] != events.boot or int(found[2]) > events.last:
        return 0, True
    return int(found[2]), int(found[2]) < events.forgotten


def position_of_parameter(events: RecentEvents, text: str) -> tuple[int, bool]:
    try:
        return position(events, text)
    except ValueError:
        raise invalid("the event is not known", [Fault("?after", f"{text[:64]!r} is no id of an event; leave it out to begin")]) from None


async def list_events(context: Context) -> Answer:
    request, events = context.request, context.gateway.recent_events
    wanted, most = Filter(request), request.count("limit", DEFAULT)
    after = request.query.get("after")
    number, gap = (0, False) if after is None else position_of_parameter(events, after)
    last = events.last
    found = [event for event in events.after(number) if wanted(event)]
    more = len(found) > most
    shown = found[-most:] if after is None else found[:most]  # without a beginning: the latest
    reached = number_of(shown[-1]) if more and after is not None else last
    return Answer(EventsPage(shown, f"{events.boot}-{reached}", more and after is not None, gap))


class EventStream:
    """The body of one stream. Holds the numbers of the last event and the last snapshot that it has sent."""

    def __init__(self, hub: StreamHub, request: Request, at: int, *, gap: bool, allowed: Callable[[], bool]) -> None:
        self._hub = hub
        self._token = request.actor.name
        self._filter = Filter(request)
        self._events = request.query.get("events", "1") in ON
        self._snapshots = request.query.get("snapshots", "1") in ON
        self._topics = request.count("topics", TOPICS)
        self._allowed = allowed
        self._at = at
        self._gap = gap
        self._snapshot = 0

    def place(self) -> AbstractContextManager[None]:
        return self._hub.place(self._token)

    async def send(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write what is new, and a comment where nothing was for a while; ends when the token is revoked or the gateway stops."""
        hub = self._hub
        await write(b"retry: %d\n\n" % RETRY_MS)
        written = trio.current_time()
        while True:
            if not self._allowed():
                await write(message("end", {"reason": "this token may not read the stream any more"}))
                return
            if data := self._new():
                await write(data)
                written = trio.current_time()
                continue
            if hub.closed:
                await write(message("end", {"reason": "the gateway is stopping"}))
                return
            wait = written + KEEP_ALIVE_S - trio.current_time()
            if wait <= 0:
                await write(b": keep-alive\n\n")
                written = trio.current_time()
                continue
            await hub.wait(wait)
            await yield_to_loop()

    def _new(self) -> bytes:
        """What this stream has not sent yet: at most EVENTS_PER_WRITE events, then the latest snapshot."""
        hub, events = self._hub, self._hub.events
        parts: list[bytes] = []
        if self._events:
            if self._gap or self._at < events.forgotten:
                parts.append(message("gap", {"after": f"{events.boot}-{self._at}", "detail": "events in between are not kept any more"}))
                self._gap = False
            following = events.after(self._at)
            wanted = [event for event in following if self._filter(event)]
            parts += [message("event", event, str(event["id"])) for event in wanted[:EVENTS_PER_WRITE]]
            if len(wanted) > EVENTS_PER_WRITE:
                self._at = number_of(wanted[EVENTS_PER_WRITE - 1])
                return b"".join(parts)
            self._at = number_of(following[-1]) if following else max(self._at, events.forgotten)
        if self._snapshots and hub.snapshot_number not in (0, self._snapshot):
            self._snapshot = hub.snapshot_number
            at = self._at if self._events else hub.at_event
            parts.append(b"id: %s-%d\nevent: snapshot\ndata: %s\n\n" % (events.boot.encode(), at, hub.snapshot(self._topics)))
        return b"".join(parts)


def message(kind: str, data: JSONObject, number: str = "") -> bytes:
    """One server-sent event. JSON has no line ends, so its data is one line."""
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


async def stream(context: Context) -> Answer:
    request, hub = context.request, context.hub
    after = request.query.get("after")
    at, gap = hub.events.last, False
    if after is not None:
        at, gap = position_of_parameter(hub.events, after)
    given = request.head.headers.get("last-event-id")
    if given is not None:  # sent by a browser that connects again, which cannot mend it
        try:
            at, gap = position(hub.events, given.decode("latin-1").strip())
        except ValueError:
            at, gap = 0, True
    hub.check_room(request.actor.name)
    body = EventStream(hub, request, at, gap=gap, allowed=context.still_allowed)
    return Answer(body, content_type=EVENT_STREAM, headers={"X-Accel-Buffering": "no"})


EVENTS: Final = Parameter("events", "flag", "0: without events")
SNAPSHOTS: Final = Parameter("snapshots", "flag", "0: without snapshots")
TOPIC_COUNT: Final = Parameter("topics", "count", f"topics in a snapshot, the worst first; {TOPICS} where it is not given", most=MAX_TOPICS)
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/events", Role.VIEWER, list_events, "The log's last events, the latest last", answer=EventsPage,
          parameters=(AFTER, KIND, TOPIC, LEVEL, LIMIT), views=("events",)),
    Route("GET", "/v1/stream", Role.VIEWER, stream, "Events as they happen, and a snapshot a second (server-sent events)",
          answer=SnapshotView, answer_type=EVENT_STREAM, parameters=(AFTER, KIND, TOPIC, LEVEL, EVENTS, SNAPSHOTS, TOPIC_COUNT)),
]  # fmt: skip
