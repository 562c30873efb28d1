"""The share that will be refused on the day to come: one figure, made once, and the sentences about it.

The naive way names each share that is known: of the last day, of seven days and of 28, and what tonight's quotas would have refused of the
days that they were learned from. They are a factor of ten apart, and a reader takes the one that suits. So the figure is the share of the
longest time that is known out of sample, wherever a report says what is refused, and others stand where they are named as something else.
Where a capacity, a ceiling or pins lower tonight's quotas, the past says nothing of them: then it is what they would have refused of the
last days, if that is more.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from common.figures import digits
from spark_jobs.method.promise import LEAST_EVIDENCE, LEAST_NIGHTS, LONG_NIGHTS
from spark_jobs.report.facts import FleetFacts, SideFacts, Topic
from spark_jobs.report.words import UNKNOWN, amount_text, day_after, named_day, number_text, pluralise, rate_text, share_text

MOST_OF_IT: Final = 0.8  # part of the refused messages: the hours that have it are worth naming (a guess)
MAX_ROWS: Final = 10  # topics in the table under the figure (a guess: with the changes one screen)
ROW_PART: Final = 0.001  # part of all refused messages: topics with less have one row together (a guess)
CAREFUL: Final = 3  # times less refused than the target: more careful than anybody asked for


class Expected(NamedTuple):
    """The expected refusals: a share of the messages, and how many that is on a usual day."""

    share: float
    messages: float | None
    lowered: bool  # whether a capacity, a ceiling or pins lower quotas: more than was refused so far


def read_expected(fleet: FleetFacts) -> Expected | None:
    """The figure; None where no day has been judged yet."""
    past = fleet.refused_so_far()
    lowered = fleet.lowered is not None and fleet.lowered > max(past or 0.0, fleet.target or 0.0)
    part = fleet.lowered if lowered else past
    each_day = fleet.offered_a_day()
    return None if part is None else Expected(part, None if each_day is None else part * each_day, lowered)


def title(fleet: FleetFacts) -> str:
    day = day_after(fleet.date)
    return f"What will be refused tomorrow, {named_day(day)}?" if day else "What will be refused tomorrow?"


def expected_text(fleet: FleetFacts) -> str:
    """The figure, its basis, the differences of single days, and the promise for a month."""
    found = read_expected(fleet)
    if found is None:
        return "Not known yet: a quota is judged on the day after its night, so the first figures come with the second night."
    if found.lowered:
        return (
            f"About {share_text(found.share)} of the messages, because {lowered_text(fleet)}: tonight's quotas would have refused that "
            "much of the last seven days. The quotas of the nights before refused "
            f"{share_text(fleet.refused_so_far())} of {past_days(fleet)}. No share is promised of the month to come."
        )
    said = (
        f"In the mean {share_text(found.share)} of the messages, as in {past_days(fleet)}: each day was judged by the quotas of the "
        "night before it."
    )
    if not found.share:
        said = f"Nothing, as nothing was refused in {past_days(fleet)}."
    return " ".join(each for each in (said, days_text(fleet), short_text(fleet), promise_text(fleet), careful_text(fleet)) if each)


def lowered_text(fleet: FleetFacts) -> str:
    """The limits that leave topics less than was computed for them: `the pins and the capacity of 500/s leave them less than they need`."""
    capacity, ceiling, pinned = fleet.capacity.get("messages"), fleet.ceiling.get("messages"), sum(each for _, each in fleet.pins)
    if capacity:
        pins = "the pins and " if pinned >= capacity else ""
        return f"{pins}the capacity of {rate_text('messages', capacity)} leave{'' if pins else 's'} most topics less than they need"
    return f"the ceiling is {rate_text('messages', ceiling)} for each topic" if ceiling else "pins are less than their topics need"


def past_days(fleet: FleetFacts) -> str:
    """The time that the figure rests on: `the last 28 days`."""
    nights = fleet.judged()
    return "the last day" if nights is None or nights.nights in {None, 1} else f"the last {nights.nights} days"


def days_text(fleet: FleetFacts) -> str:
    """How much was refused in all, on a usual day, and on the worst one."""
    lost = [refused for _, refused in fleet.refused_days]
    if len(lost) < 2 or not any(lost):
        return ""
    most, day = max((refused, day) for day, refused in fleet.refused_days)
    whole = amount_text("messages", sum(lost))
    return f"Days differ: {usual_text(lost)}, and the worst ({named_day(day)}) lost {amount_text('messages', most)} of {whole}."


def usual_text(lost: Sequence[float]) -> str:
    """A usual day: `nothing was refused on 26 of the 28 days`, or the number that half of them did not exceed."""
    none = sum(not each for each in lost)
    if 2 * none >= len(lost):
        return f"nothing was refused on {none} of the {len(lost)} days"
    return f"half of the {len(lost)} days lost {amount_text('messages', round(median(lost)))} messages or fewer"


def short_text(fleet: FleetFacts) -> str:
    if not fleet.short:
        return ""
    which = "1 topic gets" if fleet.short == 1 else f"{fleet.short:,} topics get"
    return f"{which} less than needed: more may be refused there."


def promise_text(fleet: FleetFacts) -> str:
    """The range that nine of ten such months refuse, and a warning that the target is no promise where it goes beyond CAREFUL times the
    target."""
    if fleet.promise is None:
        judged = fleet.nights28.get("messages")
        if judged is None or (judged.nights or 0) >= LEAST_NIGHTS:
            return ""
        return f"For the month to come nothing can be foreseen yet: {LEAST_NIGHTS} nights are needed."
    low, high = fleet.promise
    ends = f"{share_text(low)} to {share_text(high)}" if low else f"at most {share_text(high)}"
    found = f"Over the next {LONG_NIGHTS} days together it will be {ends}, in nine of ten cases."
    if fleet.target is None or (low >= fleet.target / CAREFUL and high <= CAREFUL * fleet.target):
        return found
    known = fleet.evidence["messages"]
    why = "the days of these topics differ too much to promise it"
    if known is not None and known < LEAST_EVIDENCE:
        why = f"what is known is worth {number_text(known)} nights of one topic, so a single event decides"
    return f"{found} So the target of {share_text(fleet.target)} may be missed: {why}."


def careful_text(fleet: FleetFacts) -> str:
    """The cost of refusing less than a third of the target, where four weeks have shown it; else nothing."""
    nights = fleet.nights28.get("messages")
    done = None if nights is None else nights.refused()
    if nights is None or done is None or fleet.target is None or (nights.nights or 0) < LONG_NIGHTS or done * CAREFUL >= fleet.target:
        return ""
    reserved = nights.reserved()
    room = "" if reserved is None else f", {number_text(reserved)} times the demand"
    return (
        f"That is less than a third of the target, {share_text(fleet.target)}: the quotas keep more room than that needs{room}. "
        "k falls by at most 2 % a night."
    )


Cells = tuple[str, str, str]
Rows = tuple[tuple[str, ...], list[tuple[Topic, Cells]], str]


def refused_rows(fleet: FleetFacts, topics: Sequence[Topic]) -> Rows:
    """The table under the figure: its head, a row for each topic that matters, and a sentence about the others. The rows add up to what was
    refused, but where quotas are lowered: there they are what is refused of each topic a day, or the topics that lack most."""
    figure = read_expected(fleet)
    if figure is not None and figure.lowered:
        return _lowered_rows(fleet, topics)
    refused = sorted((topic for topic in topics if topic.refused()), key=lambda topic: (-topic.refused(), topic.protocol, topic.name))
    least = ROW_PART * sum(topic.refused() for topic in refused)
    shown = [topic for topic in refused if topic.refused() >= least][:MAX_ROWS]
    left = refused[len(shown) :]
    together = amount_text("messages", sum(topic.refused() for topic in left))
    rest = f"{pluralise(len(left), 'other topic')}: {together} together; all are in the table of all topics below." if left else ""
    head = "topic", f"refused in {past_days(fleet)}", "of its messages", "on which days"
    return head, [(topic, refused_cells(topic)) for topic in shown], rest


def _lowered_rows(fleet: FleetFacts, topics: Sequence[Topic]) -> Rows:
    """The topics by the messages that they would lose, as far as the night says it; then by how much they lack."""

    def order(topic: Topic) -> tuple[float, float, str, str]:
        lacks = topic.computed() - topic.rate_of("messages")
        return -fleet.lowered_topics.get((topic.protocol, topic.name), (0.0, ""))[0], -lacks, topic.protocol, topic.name

    short = sorted((topic for topic in topics if topic.is_short()), key=order)
    rows = [(topic, _lowered_cells(fleet, topic)) for topic in short[:MAX_ROWS]]
    left = len(short) - len(rows)
    head = "topic", "quota", "computed for it", "it would have refused, a day of the last seven"
    return head, rows, f"{pluralise(left, 'other topic')} with less than needed." if left else ""


def _lowered_cells(fleet: FleetFacts, topic: Topic) -> Cells:
    refused, worst = fleet.lowered_topics.get((topic.protocol, topic.name), (None, ""))
    said = UNKNOWN if refused is None else f"{amount_text('messages', refused)}{f', most on {named_day(worst)}' if worst else ''}"
    return rate_text("messages", topic.rate_of("messages")), rate_text("messages", topic.computed()), said


def refused_cells(topic: Topic) -> Cells:
    """`34k`, `0.4 %`, `nothing on 25 of the 28 days; most on Sat 4 Apr: 20k`."""
    side, nights = topic.side("messages"), topic.judged()
    assert side is not None
    assert nights is not None
    return amount_text("messages", topic.refused()), share_text(nights.refused()), when_text(side)


def when_text(side: SideFacts) -> str:
    """`nothing on 26 of the 28 days; most on Wed 25 Mar: 50k; ...`: of the days as judged, of the hours by the log."""
    known = [(day.refused, day.day) for day in side.series if day.refused is not None]
    lost = [each for each, _ in known if each]
    said = []
    if lost:
        most, day = max(known)
        said = [
            usual_text([each for each, _ in known]).replace("was refused ", ""),
            f"most on {named_day(day)}: {amount_text('messages', most)}",
        ]
    hours = hours_text(side.refused_hours)
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
