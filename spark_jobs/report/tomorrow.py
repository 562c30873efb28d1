"""What will be refused on the day to come: one figure, made once, and the sentences about it.

The naive way names each share that is known: of the last day, of seven days and of 28, and what tonight's quotas would have refused of the
days that they were learned from. They are a factor of ten apart, and a reader takes the one that suits. So the figure is the share of the
longest time that is known out of sample, wherever a report says what is refused, and others stand where they are named as something else.
Where a capacity, a ceiling or pins lower tonight's quotas, the past says nothing of them: then it is what they would have refused of the
last days, if that is more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from spark_jobs.method.promise import LEAST_EVIDENCE, LONG_NIGHTS
from spark_jobs.report.facts import FleetFacts, SideFacts, Topic
from spark_jobs.report.words import amount, day_after, digits, named_day, pluralise, rate, share, short_day, three, times

MOST_OF_IT: Final = 0.8  # of what was refused: the hours that are worth naming (a guess)
MAX_ROWS: Final = 10  # topics in the table under the figure (a guess: with the changes one screen)
ROW_PART: Final = 0.001  # of all refused messages: topics with less have one row together (a guess)
CAREFUL: Final = 3  # times less refused than the target: more careful than anybody asked for


class Expected(NamedTuple):
    """What will be refused: a share of the messages, and how many that is on a usual day."""

    share: float
    messages: float | None
    lowered: bool  # by a capacity, a ceiling or pins: more than was refused so far


def expected(fleet: FleetFacts) -> Expected | None:
    """None where no day has been judged yet."""
    past = fleet.refused_so_far()
    lowered = fleet.lowered is not None and fleet.lowered > max(past or 0.0, fleet.target or 0.0)
    part = fleet.lowered if lowered else past
    each_day = fleet.offered_a_day()
    return None if part is None else Expected(part, None if each_day is None else part * each_day, lowered)


def title(fleet: FleetFacts) -> str:
    day = day_after(fleet.date)
    return f"What will be refused tomorrow, {named_day(day)}?" if day else "What will be refused tomorrow?"


def expected_text(fleet: FleetFacts) -> str:
    """The figure, what it rests on, how single days differ, and what a month is promised."""
    found = expected(fleet)
    if found is None:
        return "Not known yet: a quota is judged on the day after its night, so the first figures come with the second night."
    count = "" if found.messages is None else f", {amount('messages', found.messages)} a day in the mean"
    if found.lowered:
        said = (
            f"About {share(found.share)} of the messages{count}: a capacity, a ceiling or pins lower the quotas, and so much they would "
            "have refused of the last seven days. "
            f"The {share(fleet.refused_so_far())} of {past_days(fleet)} is of quotas that nothing lowered."
        )
        return f"{said} No month can be promised."
    whence = f"as much as was refused of {past_days(fleet)}, each judged by the quotas of the night before it"
    said = f"About {share(found.share)} of the messages{count}: {whence}."
    if not found.share:
        said = f"Nothing, as nothing was refused of {past_days(fleet)}."
    return " ".join(each for each in (said, days_text(fleet), short_text(fleet), promise_text(fleet), careful_text(fleet)) if each)


def past_days(fleet: FleetFacts) -> str:
    """The time that the figure rests on: `the last 28 days`."""
    nights = fleet.judged()
    return "the last day" if nights is None or nights.nights in {None, 1} else f"the last {nights.nights} days"


def days_text(fleet: FleetFacts) -> str:
    """How many of the days were below the figure, and the worst one."""
    lost = [refused for _, refused in fleet.refused_days]
    if len(lost) < 2 or not any(lost):
        return ""
    day, most = max(fleet.refused_days, key=lambda each: each[1])
    fewer = sum(each < sum(lost) / len(lost) for each in lost)
    return f"Days differ: {fewer} of these {len(lost)} refused fewer, the worst ({short_day(day)}) {amount('messages', most)}."


def short_text(fleet: FleetFacts) -> str:
    if not fleet.short:
        return ""
    which = "1 topic gets" if fleet.short == 1 else f"{fleet.short:,} topics get"
    return f"{which} less than needed, by a rail, a ceiling, a capacity or a pin: more may be refused there."


def promise_text(fleet: FleetFacts) -> str:
    """The range that nine of ten such months refuse, and where the target is no promise: where that goes beyond CAREFUL times it."""
    if fleet.promise is None:
        known = fleet.evidence["messages"]
        if known is None or known >= LEAST_EVIDENCE or "messages" not in fleet.nights28:
            return ""
        return f"No month can be promised: what is known is worth {three(known)} nights of one topic, and that takes {LEAST_EVIDENCE:.0f}."
    low, high = fleet.promise
    ends = f"{share(low)} to {share(high)}" if low else f"at most {share(high)}"
    past = fleet.refused_so_far() or 0.0
    other = ": less than so far, because k rises" if past > high else ": more than so far, because k falls" if past < low else ""
    found = f"Of the next {LONG_NIGHTS} days together {ends} is promised, which nine of ten such months keep{other}."
    if fleet.target is None or (low >= fleet.target / CAREFUL and high <= CAREFUL * fleet.target):
        return found
    return f"{found} The target of {share(fleet.target)} is aimed at, and cannot be promised for these topics."


def careful_text(fleet: FleetFacts) -> str:
    """What less than a third of the target costs, where four weeks have shown it; else nothing."""
    nights = fleet.nights28.get("messages")
    done = None if nights is None else nights.refused()
    if nights is None or done is None or fleet.target is None or (nights.nights or 0) < LONG_NIGHTS or done * CAREFUL >= fleet.target:
        return ""
    reserved = nights.reserved()
    room = "" if reserved is None else f", {three(reserved)} times the demand"
    return (
        f"That is less than a third of the target, {share(fleet.target)}: the quotas keep more room than that needs{room}. "
        "k falls by at most 2 % a night."
    )


Cells = tuple[str, str, str]


def refused_rows(fleet: FleetFacts, topics: Sequence[Topic]) -> tuple[tuple[str, ...], list[tuple[Topic, Cells]], str]:
    """The table under the figure: its head, a row for each topic that matters, and a sentence about the others. The rows add up to the
    figure, but where quotas are lowered: there they are the topics that lack most."""
    figure = expected(fleet)
    if figure is not None and figure.lowered:
        return _short_rows(topics)
    refused = sorted((topic for topic in topics if topic.refused()), key=lambda topic: (-topic.refused(), topic.protocol, topic.name))
    least = ROW_PART * sum(topic.refused() for topic in refused)
    shown = [topic for topic in refused if topic.refused() >= least][:MAX_ROWS]
    left = refused[len(shown) :]
    together = amount("messages", sum(refused_a_day(fleet, topic) for topic in left))
    rest = f"{pluralise(len(left), 'other topic')}: {together} a day together; all are in the table of all topics below." if left else ""
    head = "topic", f"refused a day, mean of {past_days(fleet)}", "of its messages", "when"
    return head, [(topic, refused_cells(fleet, topic)) for topic in shown], rest


def _short_rows(topics: Sequence[Topic]) -> tuple[tuple[str, ...], list[tuple[Topic, Cells]], str]:
    short = [(topic, side) for topic in topics if topic.is_short() and (side := topic.side("messages"))]
    short.sort(key=lambda each: ((each[1].rate or 0.0) - (each[1].lower or 0.0), each[0].protocol, each[0].name))
    rows = [(topic, _short_cells(side)) for topic, side in short[:MAX_ROWS]]
    left = len(short) - len(rows)
    head = "topic", "its quota", "it needs at least", "change tonight"
    return head, rows, f"{pluralise(left, 'other topic')} with less than needed." if left else ""


def _short_cells(side: SideFacts) -> Cells:
    factor = side.factor()
    return rate("messages", side.rate), rate("messages", side.lower), "" if factor is None else times(factor)


def refused_cells(fleet: FleetFacts, topic: Topic) -> Cells:
    """`1.2k`, `0.4 %`, `on 3 days, the last 4 Apr; ...`."""
    side, nights = topic.side("messages"), topic.judged()
    assert side is not None
    assert nights is not None
    return amount("messages", refused_a_day(fleet, topic)), share(nights.refused()), when_text(side)


def refused_text(fleet: FleetFacts, topic: Topic) -> str:
    """`1.2k a day (0.4 % of the last 28 days), on 3 days, the last 4 Apr`; "" of a topic that was refused nothing."""
    if not topic.refused():
        return ""
    count, part, when = refused_cells(fleet, topic)
    return f"{count} a day ({part} of {past_days(fleet)})" + (f", {when}" if when else "")


def refused_a_day(fleet: FleetFacts, topic: Topic) -> float:
    nights = fleet.judged()
    return topic.refused() / max(1 if nights is None else nights.nights or 1, 1)


def when_text(side: SideFacts) -> str:
    """`on 3 days, the last 4 Apr; 80 % of the last 7 days' from 10:00 to 12:00`: of the 28 days as judged, of the hours by the log."""
    days = [day.day for day in side.series if day.refused]
    hours = hours_text(side.refused_hours)
    said = [f"on {pluralise(len(days), 'day')}, {'the last ' if len(days) > 1 else ''}{short_day(days[-1])}"] if days else []
    return "; ".join([*said, *([f"in the log of the last 7 days {hours}"] if hours else [])])


def hours_text(hours: tuple[float, ...]) -> str:
    """`80 % from 10:00 to 12:00`: the fewest hours in a row, past midnight too, that have most of it; "" where nothing is known."""
    whole = sum(hours)
    if not whole:
        return ""
    count = len(hours)
    for length in range(1, count + 1):
        start = max(range(count), key=lambda at: sum(hours[(at + more) % count] for more in range(length)))
        part = sum(hours[(start + more) % count] for more in range(length)) / whole
        if part >= MOST_OF_IT:
            break
    if length == count:
        return "all day"
    return f"{digits(min(part, 1.0) * 100)} % from {start:02}:00 to {(start + length) % count:02}:00"
