"""`/v1/series`: what happened to messages, second by second for 15 minutes, by ten seconds for a day; with marks where limits changed."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from admin.authentication.auth import Role
from admin.context import Context
from admin.http.paging import PROTOCOL
from admin.http.preconditions import etag
from admin.http.problems import Fault, invalid
from admin.http.routing import Answer, Parameter, Request, Route
from admin.views.marks import Mark
from limiter.operations import OPERATIONS
from limiter.topics import TopicName, parse_topic

RANGES: Final = ("15m", "24h")  # each second; each ten seconds
MOST_DIGITS: Final = 11  # of a time in seconds since 1970

Points: TypeAlias = list[int | float | None]


class SeriesAnswer(msgspec.Struct, frozen=True):
    """Points of `step` seconds each. `start`, `end`: when the first and the last one begin (seconds since 1970); 0 where there is none.

    `points`: `received`, `forwarded`, `refused` (messages per second), `bytes` (forwarded, per second), `waiting` (messages; of ten seconds
    the most) and `limit` (messages per second that are enforced for the topic; null: of all topics there is none). Numbers have three
    digits, and are null where nothing is known: before the topic had a series, while the process stood still. `known`: whether there is a
    series. `marks`: changes that touch the topic, by the rules that hold now, at most 500. `missing`: workers that are not in the last
    point.
    """

    step: int
    start: int
    end: int
    protocol: str | None
    topic: str | None
    operation: str | None
    known: bool
    points: dict[str, Points | None]
    marks: list[Mark]
    missing: list[int]


def topic_of(request: Request) -> tuple[tuple[str, str, str] | None, TopicName | None]:
    """The topic that is asked for, None for all; raises ProblemError 422."""
    query = request.query
    protocol, text, operation = query.get("protocol"), query.get("topic"), query.get("operation", OPERATIONS[0])
    if text is None:
        if protocol is not None or "operation" in query:
            raise invalid("a topic is needed", [Fault("?topic", "name the topic, or leave `protocol` and `operation` out: all topics")])
        return None, None
    if protocol is None:
        raise invalid("a protocol is needed", [Fault("?protocol", "say which protocol the topic is of: amqp or rocketmq")])
    try:
        name = parse_topic(protocol, text)
    except ValueError as error:
        if operation == OPERATIONS[0]:
            raise invalid("the topic cannot be used", [Fault("?topic", str(error))]) from error
        return (protocol, text, operation), None  # a queue
    return (protocol, name.text(), operation), name


def since_of(request: Request) -> int:
    text = request.query.get("since", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise invalid("the time cannot be used", [Fault("?since", f"{text[:32]!r} is no time: give whole seconds since 1970")])
    return int(text)


async def get(context: Context) -> Answer:
    request = context.request
    place, name = topic_of(request)
    found: dict[str, Any] = await context.gateway.series_of(place, day=request.query.get("range") == RANGES[1], since=since_of(request))
    start: int = found["start"]
    shown = place or (None, None, None)
    answer = SeriesAnswer(
        step=found["step"],
        start=start,
        end=found["end"],
        protocol=shown[0],
        topic=shown[1],
        operation=shown[2],
        known=found["known"],
        points=found["points"],
        marks=await context.marks.since(start, place, name) if start else [],
        missing=found["missing"],
    )
    tag = etag((start, answer.end, answer.step, shown, answer.known, context.store.revision, answer.missing))
    return Answer(answer, etag=tag)


RANGE: Final = Parameter("range", "text", "15m: each second of the last 15 minutes; 24h: each ten seconds of the last day", choices=RANGES)
TOPIC: Final = Parameter("topic", "text", "the topic as text; without it all topics together", example="%2F/orders/order.created")
OPERATION: Final = Parameter("operation", "text", "what is done with the topic's messages; produce unless said", choices=OPERATIONS)
SINCE: Final = Parameter("since", "text", "only points from this time on: `end` + `step` of the answer before", example="1795247411")
ROUTES: Final[list[Route]] = [
    Route("GET", "/v1/series", Role.VIEWER, get, "What happened to messages lately: points for a chart", answer=SeriesAnswer,
          parameters=(RANGE, PROTOCOL, TOPIC, OPERATION, SINCE)),
]  # fmt: skip
