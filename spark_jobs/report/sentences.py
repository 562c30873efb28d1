"""The sentences and rows that all forms of a report share: HTML, Markdown and the text of `sluice quotas show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.figures import digits
from spark_jobs.report.facts import ALTERNATIVES, DIMENSIONS, NAMES, PUBLISHED, ROUNDING, RULES, FleetFacts, NightFacts, SideFacts, Topic
from spark_jobs.report.tomorrow import past_days, read_expected
from spark_jobs.report.words import (
    TIMES,
    UNKNOWN,
    amount_text,
    clean_text,
    day_after,
    factor_text,
    is_weekend,
    moment_text,
    named_day,
    number_text,
    pluralise,
    rate_text,
    share_text,
)

ALIKE: Final = 1.1  # factor between the moves of bytes and messages; up to it bytes have no reason of their own (a guess)
CAUSES: Final = {"forecast": "expected demand", "peakiness": "busiest seconds", "k": "safety factor k"}
STATES: Final = {"computed": "as computed", "held": "held", "pinned": "pinned", "kept": "kept", "learning": "learning"}
IN_LINE: Final = {
    "held": "the quota goes on moving tomorrow, because one night may move it only so far",
    "pinned": "set by a person in pins.yaml",
    "kept": "not seen for long, left as it was",
    "learning": "seen on too few days, without a quota yet",
}
FORMULA: Final = (
    f"Quota = expected demand (messages/s in the mean of the whole day) {TIMES} busiest seconds (how many times the mean they need) "
    f"{TIMES} safety factor k. The factors of a row multiply to its change, or to what was computed where the row "
    "says what leaves it less. The old quota is a factor where it was not what had been computed: a quota that is near enough stays."
)
SENDER: Final = "The sender of a refused message sees what the rule's `action` says: with `reject` an error, and it may send again."
FEW_GATEWAYS: Final = 8  # gateways named in one line; the rest is counted

LEGEND: Final = (
    ("quota", "How many messages (or bytes) per second a topic may send for good; beyond it the rule's action holds, e.g. reject."),
    ("burst", "How much may pass at once after a quiet time."),
    ("demand", "What clients tried to send: passed, refused and delayed together. Retries of a storm are not counted."),
    ("mean, busiest second", "Demand of a day over its observed seconds, and in the second with the most."),
    ("forecast", "The mean per second expected of the next day, from the days before it: recent ones and like weekdays count most."),
    (
        "peakiness",
        "How many times its forecast a topic needs as its rate, so that with a burst of ten seconds at most 0.1 % of a day is refused.",
    ),
    ("k", "One safety factor for all topics; it moves by at most 2 % a night, so that what is refused in all comes to the target."),
    (
        "rate",
        f"forecast {TIMES} peakiness {TIMES} k, within the guard rails: at most {TIMES} 2 and at least {TIMES} 0.8 of the quota in force.",
    ),
    (
        "refused",
        "Share of the demand that a quota refused. Out of sample: each quota is judged on the day after it, which it had not seen.",
    ),
    (
        "reserved",
        f"Rate {TIMES} observed seconds, as a multiple of the demand: the room a quota keeps. Of two that refuse alike, less is better.",
    ),
    ("yesterday's max", "The simple rule to beat: the busiest second of the day before."),
    ("oracle", "The least rate for that very day, had it been known. Nobody can do better."),
    ("half of k, twice k", "What the method with half or twice its k would have refused and reserved: the price of another k."),
    ("learning", "Fewer active days than needed: no quota yet, the rule of the file holds."),
    ("held", "The quota was to move further than one night may move it (the guard rails); it goes on the next night."),
    ("kept", "No remembered day has seen the topic; its quota stays as it is until somebody removes it."),
    ("pinned", "Set by a person in pins.yaml, not learned."),
    ("excluded", "A span of time, of a topic, that a person told the job not to learn from."),
)


def heading(fleet: FleetFacts) -> str:
    if not fleet.date:
        return "Quotas"
    first = day_after(fleet.date) or ""
    return f"Quotas from {named_day(first)} {first[:4]}, learned from the days up to {named_day(fleet.date)}"


def origin(fleet: FleetFacts) -> str:
    """The time, the program and the zone of the computation."""
    days = f"Days are those of {clean_text(fleet.zone, 40)}." if fleet.zone else "The time zone of the days is not known yet."
    before = f", in place of {fleet.previous_sha256[:12]}" if fleet.previous_sha256 else ""
    code = clean_text(fleet.code, 60)
    return f"Computed {moment_text(fleet.computed_at, fleet.zone)} by sluice {code}. {days} Snapshot {fleet.sha256[:12]}{before}."


def fleet_line(fleet: FleetFacts) -> str:
    """`Expected to be refused on Mon 6 Apr: 0.07 % of the messages; the target is 0.1 %. 412 topics: ...`: the day to come first."""
    target = "not known yet" if fleet.target is None else share_text(fleet.target)
    day = f" on {named_day(day_after(fleet.date))}" if fleet.date else " tomorrow"
    found = read_expected(fleet)
    past = f" In {past_days(fleet)} it was {share_text(fleet.refused_so_far())}." if found is not None and found.lowered else ""
    return f"Expected to be refused{day}: {expected_share(fleet)}; the target is {target}.{past} {states_text(fleet)}"


def expected_share(fleet: FleetFacts) -> str:
    found = read_expected(fleet)
    return UNKNOWN if found is None else f"{share_text(found.share)} of the messages"


def states_text(fleet: FleetFacts) -> str:
    """`18 topics: 15 held, 2 pinned, 1 learning; safety factor k 2.25.`: each topic is in one state."""
    known = [f"{count:,} {STATES[name]}" for name in STATES if (count := fleet.states.get(name, 0))]
    spans = fleet.lists["excluded"]
    out = f" {pluralise(len(spans), 'incident')} left out of what is learned." if spans else ""
    whole = sum(fleet.states.values())
    return f"{pluralise(whole, 'topic')}: {', '.join(known)}; safety factor k {k_text(fleet)}{rules_text(fleet)}.{out}"


def words_text(fleet: FleetFacts) -> str:
    """The meaning of the words that are in the line."""
    known = [f"{name}: {meaning}" for name, meaning in IN_LINE.items() if fleet.states.get(name)]
    return "; ".join([*known, "k: one factor for all topics, by which each quota is larger than the topic needs on a usual day"]) + "."


def published_text(gateways: Sequence[str], outcome: str) -> str:
    """A sentence about what was done with the quotas, and the command that undoes it."""
    said = clean_text(outcome, 400)
    said = said if said.endswith(".") else f"{said}."
    where = " at each gateway" if gateways[1:] else ""
    return f"{said} To go back to the quotas before: `sluice quotas rollback --yes`{where}." if gateways else said


def rule_name(family: str | None) -> str:
    return RULES.get(str(family), clean_text(family, 40))


def rules_text(fleet: FleetFacts) -> str:
    """`, rule yesterday's max (bytes: max of 7 days)`; empty where all quotas are the method's, or nothing is known."""
    simple = {dimension: rule_name(family) for dimension, family in fleet.families.items() if family not in {None, "quota"}}
    if not simple:
        return ""
    known = next((seen for dimension in simple if (seen := fleet.evidence[dimension])), None)
    on = "" if known is None else f" on the evidence of {number_text(known)} nights of a topic"
    if len(set(simple.values())) == 1 and len(simple) == len(DIMENSIONS):
        return f", rule {simple['messages']}{on}"
    return ", rule " + ", ".join(f"{name} of {dimension}" for dimension, name in simple.items()) + on


def realised_text(fleet: FleetFacts) -> str:
    """`0.07 % in the last 28 days`, of the messages."""
    part = fleet.refused_so_far()
    return UNKNOWN if part is None else f"{share_text(part)} in {past_days(fleet)}"


def k_text(fleet: FleetFacts) -> str:
    """`1.8`, or `1.8 (bytes 2.1)` where they differ."""
    messages, size = fleet.k["messages"], fleet.k["bytes"]
    if messages is None and size is None:
        return UNKNOWN
    first = UNKNOWN if messages is None else number_text(messages)
    return first if size is None or size == messages else f"{first} (bytes {number_text(size)})"


def count_of(fleet: FleetFacts, name: str) -> str:
    found = fleet.lists[name]
    return "?" if found is None else f"{len({(protocol, topic) for protocol, topic, _ in found}):,}"


def is_over_target(fleet: FleetFacts, found: float | None) -> bool | None:
    """Whether `found`, a refused share, is more than the target; None where that is not known."""
    return None if fleet.target is None or found is None else found > fleet.target


def quota_text(side: SideFacts) -> str:
    """`500/s, burst 5k`."""
    if side.pair is None:
        return "no quota"
    return f"{rate_text(side.dimension, side.pair[0])}, burst {amount_text(side.dimension, side.pair[1])}"


def change_text(side: SideFacts) -> str:
    """`500/s → 800/s (x 1.6)`; `unchanged` and `new` in words."""
    now = "none" if side.pair is None else rate_text(side.dimension, side.rate)
    factor = side.factor()
    if factor is None:
        if not side.before_known:
            return now
        was = "none" if side.before_rate is None else rate_text(side.dimension, side.before_rate)
        return now if was == now else f"{was} → {now}"
    if abs(factor - 1) < 5e-4:
        return f"{now} (unchanged)"
    return f"{rate_text(side.dimension, side.before_rate)} → {now} ({factor_text(factor)})"


def facts_line(side: SideFacts) -> str:
    """`forecast 12.3/s x peakiness 8.1 x k 1.8`, with the sign for times. For a simple rule: the origin of its reserve."""
    forecast = rate_text(side.dimension, side.forecast)
    found = f"forecast {forecast} {TIMES} peakiness {_factor(side.peakiness)} {TIMES} k {_factor(side.k)}"
    if side.forecast is None and side.peakiness is None and side.k is None:
        found = f"forecast, peakiness and k: {UNKNOWN}"
    if side.family not in {None, "quota"}:
        found = f"rule {rule_name(side.family)}, at the reserve of {found}"
    return found + (f"; with the intraday raise up to {_factor(side.hourly)} {TIMES} the last hour's mean" if side.hourly else "")


def _factor(value: float | None) -> str:
    return "?" if value is None else number_text(value)


def causes_text(topic: Topic) -> str:
    """`expected demand x 1.48; bytes: safety factor k x 1.1`, with the sign for times: factors that make up the change."""
    if topic.is_short() or topic.status == "pinned":
        return ""  # a pin or a limit decides
    moved = [
        ("bytes: " if side.dimension == "bytes" else "") + _factors(side)
        for side in dimensions_of(topic)[: 1 if moves_alike(topic) else None]
        if side.causes and not _stays(side)
    ]
    return "; ".join(moved)


def _stays(side: SideFacts) -> bool:
    return abs((side.factor() or 0.0) - 1) < 5e-4


def _factors(side: SideFacts) -> str:
    """The factors, and the rest of the change: the quota before was another than the computed one."""
    found = ", ".join(f"{CAUSES.get(name, name)} {factor_text(factor)}" for name, factor in side.causes)
    rest = side.rest()
    if rest == 1.0:
        return found
    was, before = side.computed_before, side.before_rate
    if not was or not before or not 1 / ROUNDING < rest * before / was < ROUNDING:
        return f"{found}, all else {factor_text(rest)}"
    return f"{found}, old quota {'above' if before > was else 'below'} the {rate_text(side.dimension, was)} computed: {factor_text(rest)}"


def moves_alike(topic: Topic) -> bool:
    """Whether bytes have stayed, or have moved as messages did and for the same reason: then they need no sentence of their own."""
    sides = dimensions_of(topic)
    if len(sides) < len(DIMENSIONS) or sides[1].factor() is None:
        return False
    one, other = ({"rate": side.factor() or 0.0, **dict(side.causes)} for side in sides)
    if _stays(sides[1]):
        return True
    return all(1 / ALIKE < (one.get(name, 1.0) or 1e-9) / (other.get(name, 1.0) or 1e-9) < ALIKE for name in one | other)


def changes_text(fleet: FleetFacts, changed: Sequence[Topic]) -> str:
    """The number of quotas that change, their order, and that a week-end has begun or ended where that is the reason."""
    stay = ", and the others stay" if len(changed) < fleet.topics else ""
    found = f"{len(changed):,} of {pluralise(fleet.topics, 'quota')} change{stay}; the largest changes in messages/s come first."
    kinds = [is_weekend(day) for day in (fleet.date, day_after(fleet.date)) if day]
    rises = sum((side.factor() or 0.0) > 1 for topic in changed if (side := topic.side("messages")) is not None)
    if kinds == [True, False] and 2 * rises > len(changed):
        return f"{found} Most rise because a working day follows a day of the week-end."
    if kinds == [False, True] and 2 * rises < len(changed):
        return f"{found} Most fall because a day of the week-end follows a working day."
    return found


def change_reason(topic: Topic) -> str:
    """The factors that moved, and the reason of the quota where that is not as usual."""
    moved = causes_text(topic)
    moved = moved[:1].upper() + moved[1:]
    if moved and topic.status == "quota":
        return moved
    return f"{moved}. {reason_of(topic)}" if moved else reason_of(topic)


def reason_of(topic: Topic) -> str:
    """The reason of the quota: that of messages, and of bytes where it is another."""
    found = [clean_text(topic.reason, 400)] if topic.reason else []
    size = topic.side("bytes")
    if size is not None and size.reason and size.reason != topic.reason and not moves_alike(topic):
        found.append(f"bytes: {clean_text(size.reason, 400)}")
    return "; ".join(found) or UNKNOWN


def gateways_text(topic: Topic) -> str:
    """`gw-a 62 %, gw-b 38 %`."""
    named = ", ".join(f"{clean_text(name, 40)} {digits(part * 100)} %" for name, part in topic.gateways[:FEW_GATEWAYS])
    more = len(topic.gateways) - FEW_GATEWAYS
    return (named + (f" and {more} more" if more > 0 else "")) or UNKNOWN


def night_rows(seven: NightFacts | None, twenty_eight: NightFacts | None) -> list[tuple[str, ...]]:
    """(way to set the quota, refused 7, reserved 7, refused 28, reserved 28), the published quota first."""
    return [(NAMES[name], *_both(seven, name), *_both(twenty_eight, name)) for name in (PUBLISHED, *ALTERNATIVES)]


def _both(nights: NightFacts | None, name: str) -> tuple[str, str]:
    if nights is None:
        return UNKNOWN, UNKNOWN
    if nights.offered == 0:
        return "no traffic", "no traffic"
    return share_text(nights.refused(name)), factor_text(nights.reserved(name))


def night_titles(seven: NightFacts | None, twenty_eight: NightFacts | None) -> tuple[str, str]:
    """`7 days`, and while the history is short `28 days (11 known)`."""
    titles = []
    for wanted, nights in ((7, seven), (28, twenty_eight)):
        known = nights.nights if nights is not None else None
        titles.append(f"{wanted} days" + (f" ({known} known)" if known is not None and known < wanted else ""))
    return titles[0], titles[1]


def dimensions_of(topic: Topic) -> list[SideFacts]:
    return [side for dimension in DIMENSIONS if (side := topic.side(dimension)) is not None]
