"""The sentences and rows that all forms of a report share: HTML, Markdown and the text of `sluice quotas show`."""

from __future__ import annotations

from typing import Final

from spark_jobs.method.promise import LEAST_EVIDENCE
from spark_jobs.report.facts import ALTERNATIVES, DIMENSIONS, LISTS, NAMES, PUBLISHED, RULES, Fleet, Nights, Side, Topic
from spark_jobs.report.words import TIMES, UNKNOWN, amount, digits, moment, plain, pluralise, rate, share, short_day, three, times

MOST_OF_IT: Final = 0.8  # of what was refused: the hours that are worth naming (a guess)
CAREFUL: Final = 3  # times less refused than the target: more careful than anybody asked for
LONG_NIGHTS: Final = 28
CAUSES: Final = {"forecast": "expected demand", "peakiness": "height of the busiest seconds", "k": "safety for all topics"}
LOOK_FIRST: Final = "First, if you have time for no more:"
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
    ("held", "The quota wanted to move further in one night than the guard rails let it; it goes on the next night."),
    ("kept", "No remembered day has seen the topic; its quota stays as it is until somebody removes it."),
    ("pinned", "Set by a person in pins.yaml, not learned."),
    ("excluded", "A span of time, of a topic, that a person told the job not to learn from."),
)


def heading(fleet: Fleet) -> str:
    return f"Quotas learned from the days up to {short_day(fleet.date)} {fleet.date[:4]}" if fleet.date else "Quotas"


def origin(fleet: Fleet) -> str:
    """When, by what and in which zone it was computed."""
    days = f"Days are those of {plain(fleet.zone, 40)}." if fleet.zone else "The time zone of the days is not known yet."
    before = f"; before it: {fleet.previous_sha256[:12]}" if fleet.previous_sha256 else ""
    return (
        f"Computed {moment(fleet.computed_at, fleet.zone)} by sluice {plain(fleet.code, 60)}. {days} Snapshot {fleet.sha256[:12]}{before}."
    )


def fleet_line(fleet: Fleet) -> str:
    """`Target 0.1 % refused, realised 0.07 %; k 1.8; 412 topics, 12 learning, 3 held ...`"""
    lists = ", ".join(f"{count_of(fleet, name)} {name}" for name in LISTS)
    target = "Target" if fleet.target is None else f"Target {share(fleet.target)} refused"
    known = fleet.target is not None or realised(fleet) is not None
    did = f"{target}, realised {realised_text(fleet)}" if known else "Target and realised refusals are not known yet"
    return f"{did}; k {k_text(fleet)}{rules_text(fleet)}; {pluralise(fleet.topics, 'topic')} with a quota, {lists}."


def rule_name(family: str | None) -> str:
    return RULES.get(str(family), plain(family, 40))


def rules_text(fleet: Fleet) -> str:
    """`, rule yesterday's max (bytes: max of 7 days)`; empty where all quotas are the method's, or nothing is known."""
    simple = {dimension: rule_name(family) for dimension, family in fleet.families.items() if family not in {None, "quota"}}
    if not simple:
        return ""
    known = next((seen for dimension in simple if (seen := fleet.evidence[dimension])), None)
    on = "" if known is None else f" on the evidence of {three(known)} nights of a topic"
    if len(set(simple.values())) == 1 and len(simple) == len(DIMENSIONS):
        return f", rule {simple['messages']}{on}"
    return ", rule " + ", ".join(f"{name} of {dimension}" for dimension, name in simple.items()) + on


def realised(fleet: Fleet) -> float | None:
    """The share of messages that was refused over the last seven nights, or on the last day where that is all there is."""
    seven = fleet.nights7.get("messages")
    found = seven.refused() if seven is not None else None
    return fleet.realised["messages"] if found is None else found


def realised_text(fleet: Fleet) -> str:
    """`0.07 % over 7 nights (0.02 % on the last day)`; of messages."""
    seven, last = fleet.nights7.get("messages"), fleet.realised["messages"]
    if seven is None or seven.refused() is None:
        return UNKNOWN if last is None else f"{share(last)} on the last day"
    nights = f"{share(seven.refused())} over {pluralise(seven.nights or 7, 'night')}"
    return nights if last is None else f"{nights} ({share(last)} on the last day)"


def k_text(fleet: Fleet) -> str:
    """`1.8`, or `1.8 (bytes 2.1)` where they differ."""
    messages, size = fleet.k["messages"], fleet.k["bytes"]
    if messages is None and size is None:
        return UNKNOWN
    first = UNKNOWN if messages is None else three(messages)
    return first if size is None or size == messages else f"{first} (bytes {three(size)})"


def count_of(fleet: Fleet, name: str) -> str:
    found = fleet.lists[name]
    return "?" if found is None else f"{len({(protocol, topic) for protocol, topic, _ in found}):,}"


def over(fleet: Fleet, found: float | None) -> bool | None:
    """Whether `found`, a share that was refused, is more than was meant; None where that is not known."""
    return None if fleet.target is None or found is None else found > fleet.target


def horizons(fleet: Fleet) -> list[tuple[str, float | None]]:
    """The share of messages refused over each time that the report shows, and what it is called."""
    found = [("last day", fleet.realised["messages"])]
    for name, nights in (("7 nights", fleet.nights7.get("messages")), ("28 nights", fleet.nights28.get("messages"))):
        if nights is not None and nights.refused() is not None:
            found.append((name, nights.refused()))
    return found


def missed(fleet: Fleet) -> list[tuple[str, float]]:
    """The horizons over which more was refused than meant."""
    return [(name, part) for name, part in horizons(fleet) if part is not None and over(fleet, part)]


def expected_text(fleet: Fleet) -> str:
    """What will be refused tomorrow: as much as such quotas have refused of days that they did not know, over the longest time known."""
    known = [(name, part) for name, part in horizons(fleet) if part is not None]
    if not known:
        return "Not known yet: a quota is judged on the day after its night, so the first figures come with the second night."
    name, part = known[-1]
    nights = fleet.nights28.get("messages") or fleet.nights7.get("messages")
    each = (
        ""
        if nights is None or not nights.nights or nights.offered is None
        else f", {amount('messages', part * nights.offered / nights.nights)} a day"
    )
    meant = "" if fleet.target is None else f"; the target is {share(fleet.target)}"
    found = f"About {share(part)} of the messages{each}, as in the last {name.replace('last day', 'day')}{meant}."
    return " ".join(each for each in (found, promise_text(fleet), careful_text(fleet)) if each)


def promise_text(fleet: Fleet) -> str:
    """The range that nine of ten such months refuse, and where the target is no promise: where that goes beyond CAREFUL times it."""
    if fleet.promise is None:
        known = fleet.evidence["messages"]
        if known is None or known >= LEAST_EVIDENCE or "messages" not in fleet.nights28:
            return ""
        return f"No month can be promised: what is known is worth {three(known)} nights of one topic, and that takes {LEAST_EVIDENCE:.0f}."
    low, high = fleet.promise
    found = (
        f"Nine of ten such months refuse {share(low)} to {share(high)}."
        if low
        else f"Nine of ten such months refuse at most {share(high)}."
    )
    if fleet.target is None or (low >= fleet.target / CAREFUL and high <= CAREFUL * fleet.target):
        return found
    return f"{found} The target is aimed at, and that is what these topics let anybody promise."


def careful_text(fleet: Fleet) -> str:
    """What less than a third of the target costs, where four weeks have shown it; else nothing."""
    nights = fleet.nights28.get("messages")
    done = None if nights is None else nights.refused()
    if nights is None or done is None or fleet.target is None or (nights.nights or 0) < LONG_NIGHTS or done * CAREFUL >= fleet.target:
        return ""
    reserved = nights.reserved()
    room = "" if reserved is None else f", {three(reserved)} times the demand"
    return f"That is less than a third of the target: the quotas keep more room than that needs{room}. k falls by at most 2 % a night."


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


def refused_text(topic: Topic) -> str:
    """`1.2k a night (0.4 %), 80 % from 10:00 to 12:00`; "" of a topic that was refused nothing."""
    side = topic.side("messages")
    if side is None or side.nights7 is None or not topic.refused_a_night():
        return ""
    hours = hours_text(side.refused_hours)
    return f"{amount('messages', topic.refused_a_night())} a night ({share(side.nights7.refused())})" + (f", {hours}" if hours else "")


def look_text(topic: Topic) -> str:
    """Why a topic is to be looked at, in sentences."""
    side = topic.side("messages")
    found = [] if side is None else [f"Quota {change_text(side)}."]
    refused = refused_text(topic)
    if refused:
        found.append(f"Refused {refused}.")
    moved = causes_text(topic)
    if moved:
        found.append(f"What moved: {moved}.")
    return " ".join([*found, f"{reason_of(topic)}."])


def warnings(fleet: Fleet, guard_rails: tuple[str, ...]) -> list[str]:
    """What somebody should look at, most urgent first."""
    found = [f"Guard rail: {plain(sentence, 400)}" for sentence in guard_rails]
    if fleet.missing_gateways:
        named = ", ".join(plain(name, 60) for name in fleet.missing_gateways[:FEW_GATEWAYS])
        more = f" and {len(fleet.missing_gateways) - FEW_GATEWAYS} more" if len(fleet.missing_gateways) > FEW_GATEWAYS else ""
        found.append(f"Missing gateways: {named}{more}. Their log of the day was not complete; the rest was scaled for it.")
    found += [f"{plain(sentence, 400)[:1].upper()}{plain(sentence, 400)[1:]}." for sentence in fleet.remarks]
    if late := missed(fleet):
        did = ", ".join(f"{share(part)} over the {name}" if name == "last day" else f"{share(part)} over {name}" for name, part in late)
        found.append(f"More was refused than the target of {share(fleet.target)}: {did}. k rises by at most 2 % a night until it fits.")
    return found


def quota_text(side: Side) -> str:
    """`500/s, burst 5k`."""
    if side.pair is None:
        return "no quota"
    return f"{rate(side.dimension, side.pair[0])}, burst {amount(side.dimension, side.pair[1])}"


def change_text(side: Side) -> str:
    """`500/s → 800/s (x 1.6)`; `unchanged` and `new` in words."""
    now = "none" if side.pair is None else rate(side.dimension, side.rate)
    factor = side.factor()
    if factor is None:
        if not side.before_known:
            return now
        was = "none" if side.before_rate is None else rate(side.dimension, side.before_rate)
        return now if was == now else f"{was} → {now}"
    if abs(factor - 1) < 5e-4:
        return f"{now} (unchanged)"
    return f"{rate(side.dimension, side.before_rate)} → {now} ({times(factor)})"


def facts_line(side: Side) -> str:
    """`forecast 12.3/s x peakiness 8.1 x k 1.8`, with the sign for times. Of a simple rule: what its reserve comes from."""
    forecast = rate(side.dimension, side.forecast)
    found = f"forecast {forecast} {TIMES} peakiness {_factor(side.peakiness)} {TIMES} k {_factor(side.k)}"
    if side.forecast is None and side.peakiness is None and side.k is None:
        found = f"forecast, peakiness and k: {UNKNOWN}"
    if side.family not in {None, "quota"}:
        found = f"rule {rule_name(side.family)}, at the reserve of {found}"
    return found + (f"; with the intraday raise up to {_factor(side.hourly)} {TIMES} the last hour's mean" if side.hourly else "")


def _factor(value: float | None) -> str:
    return "?" if value is None else three(value)


def causes_text(topic: Topic) -> str:
    """`expected demand x 1.48; bytes: safety for all topics x 1.1`, with the sign for times: what moved since the snapshot before."""
    parts: list[str] = []
    for side in dimensions_of(topic):
        moved = ", ".join(f"{CAUSES.get(name, name)} {times(factor)}" for name, factor in side.causes)
        if moved and moved not in parts:  # bytes mostly move as messages do
            parts.append(f"bytes: {moved}" if side.dimension == "bytes" else moved)
    return "; ".join(parts)


def change_reason(topic: Topic) -> str:
    """What moved, and why the quota is what it is, where that is not as usual."""
    moved = causes_text(topic)
    moved = moved[:1].upper() + moved[1:]
    if moved and topic.status == "quota":
        return moved
    return f"{moved}. {reason_of(topic)}" if moved else reason_of(topic)


def reason_of(topic: Topic) -> str:
    """Why the quota is what it is: that of messages, and of bytes where it is another."""
    found = [plain(topic.reason, 400)] if topic.reason else []
    size = topic.side("bytes")
    if size is not None and size.reason and size.reason != topic.reason:
        found.append(f"bytes: {plain(size.reason, 400)}")
    return "; ".join(found) or UNKNOWN


def gateways_text(topic: Topic) -> str:
    """`gw-a 62 %, gw-b 38 %`."""
    named = ", ".join(f"{plain(name, 40)} {digits(part * 100) if part else '0'} %" for name, part in topic.gateways[:FEW_GATEWAYS])
    more = len(topic.gateways) - FEW_GATEWAYS
    return (named + (f" and {more} more" if more > 0 else "")) or UNKNOWN


def night_rows(seven: Nights | None, twenty_eight: Nights | None) -> list[tuple[str, ...]]:
    """(way to set the quota, refused 7, reserved 7, refused 28, reserved 28), the published quota first."""
    return [(NAMES[name], *_both(seven, name), *_both(twenty_eight, name)) for name in (PUBLISHED, *ALTERNATIVES)]


def _both(nights: Nights | None, name: str) -> tuple[str, str]:
    if nights is None:
        return UNKNOWN, UNKNOWN
    if nights.offered == 0:
        return "no traffic", "no traffic"
    return share(nights.refused(name)), times(nights.reserved(name))


def night_titles(seven: Nights | None, twenty_eight: Nights | None) -> tuple[str, str]:
    """`7 nights`, and while the history is short `28 nights (11 known)`."""
    titles = []
    for wanted, nights in ((7, seven), (28, twenty_eight)):
        known = nights.nights if nights is not None else None
        titles.append(f"{wanted} nights" + (f" ({known} known)" if known is not None and known < wanted else ""))
    return titles[0], titles[1]


def dimensions_of(topic: Topic) -> list[Side]:
    return [side for dimension in DIMENSIONS if (side := topic.side(dimension)) is not None]
