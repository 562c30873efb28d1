"""The needs of a night: faults that need somebody, in order of damage, each with its consequence and with the command to type.

A note is a fact to wonder about that nobody need mend: where quotas move by themselves, nobody is sent to work.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Final, NamedTuple

from spark_jobs.method.pins import describe_over_capacity
from spark_jobs.report.digest import Digest
from spark_jobs.report.facts import FleetFacts
from spark_jobs.report.sentences import is_over_target, realised_text
from spark_jobs.report.tomorrow import CAREFUL, read_expected
from spark_jobs.report.words import clean_text, day_after, named_day, number_text, pluralise, rate_text, share_text

FEW: Final = 8  # names in one sentence; the rest is counted
THEN: Final = "When it is done, run the night again, once for all of these:"
NOTHING: Final = "Nothing is needed tonight: no rail stopped the night, and no gateway's log is missing."


class Need(NamedTuple):
    what: str
    otherwise: str  # consequence if nothing is done, and its day
    way: str  # change to make before the night is run again


def list_needs(found: Digest) -> list[Need]:
    """The needs, the worst first."""
    return [*_unpublished(found), *_capacity(found), *_missing_gateways(found), *_refused(found)]


def list_notes(found: Digest) -> list[str]:
    """Sentences about facts that need nobody."""
    fleet = found.fleet
    named = {describe_over_capacity("messages", sum(pinned for _, pinned in fleet.pins), fleet.capacity.get("messages") or 0)}
    said = [f"{clean_text(each, 400)[:1].upper()}{clean_text(each, 400)[1:]}." for each in fleet.remarks if each not in named]
    late = missed_text(fleet)
    figure = read_expected(fleet)
    if late and not is_far_over(fleet) and not (figure and figure.lowered):
        said.append(f"{late} Nothing to do: {describe_k_change(fleet)}")
    return said


def _unpublished(found: Digest) -> Iterator[Need]:
    for sentence in found.guard_rails:
        yield Need(
            f"Nothing was published, and the quotas before stay in force: {clean_text(sentence, 400)}.",
            "the quotas get older with each day, and new topics get none.",
            "Mend what the sentence names. If the night is right all the same, add the option that it names.",
        )


def _capacity(found: Digest) -> Iterator[Need]:
    """The need where a capacity leaves the topics less than they need, and so more is refused than was meant."""
    fleet, figure = found.fleet, read_expected(found.fleet)
    capacity = fleet.capacity.get("messages")
    if capacity is None or figure is None or not figure.lowered:
        return
    pinned, whole = sum(each for _, each in fleet.pins), sum(each.rate_of("messages") for each in found.ranked)
    needed = sum(each.rate_of("messages") if each.status == "pinned" else each.computed() for each in found.ranked)
    at_most = "halve a quota" if found.ratio == 2 else f"divide a quota by {found.ratio:g}"
    fall = "by half" if found.ratio == 2 else f"to 1/{found.ratio:g}"
    raised = f"`--capacity {math.ceil(needed)}`"
    ways = [f"write {raised}, below and where the night is started (all topics together need that), if the broker can carry it"]
    if pinned >= capacity:
        others = pluralise(len(found.ranked) - len(fleet.pins), "other topic")
        named = ", ".join(f"{escape_backticks(name)} {rate_text('messages', each)}" for name, each in fleet.pins[:FEW])
        what = (
            f"The pins alone are {rate_text('messages', pinned)} ({named}), and all topics together may have "
            f"{rate_text('messages', capacity)}, the capacity. Nothing is left for the {others}."
        )
        rest = rate_text("messages", max(needed - pinned, 0.0))
        pins = option(found, "--pins", "pins.yaml")
        ways.append(f"lower the pins in {pins}: what they leave of the capacity is for the {others}, which need {rest} together")
    else:
        what = f"The topics need {rate_text('messages', needed)} together, and the capacity is {rate_text('messages', capacity)}."
    until = count_nights_to_go(found)
    if found.slowed:
        many = f"{pluralise(len(found.slowed), 'quota')} fall{'s' if len(found.slowed) == 1 else ''}"
        end = f", and come within it on {find_day_with_quotas(fleet, until)}."
        if pinned >= capacity:
            end = ", and never come within it, because the pins stay."
        what += (
            f" One night may at most {at_most}, so {many} {fall} tonight, and {fall} again each night. All quotas together are "
            f"{rate_text('messages', whole)} tonight, {number_text(whole / capacity)} times the capacity{end}"
        )
    more = " and more on each day after it" if found.slowed else " and on each day after it"
    least = ""
    if found.slowed and pinned >= capacity:
        left = min(wanted for _, wanted in found.slowed.values())
        least = f", until the {others} have {rate_text('messages', left)} each, on {find_day_with_quotas(fleet, until)}"
    yield Need(
        what,
        f"about {share_text(figure.share)} of the messages are refused on {named_day(day_after(fleet.date))}{more}{least}.",
        f"{ways[0][:1].upper()}{'; or '.join(ways)[1:]}.",
    )


def count_nights_to_go(found: Digest) -> int:
    """Nights until each quota that the one-night limit holds has come to its goal, or all are within the capacity."""
    capacity, pinned = found.fleet.capacity.get("messages") or 0.0, sum(each for _, each in found.fleet.pins)
    steady = sum(each.rate_of("messages") for each in found.ranked if (each.protocol, each.name) not in found.slowed)
    nights = 0
    while nights < 1000:
        left = [max(now / found.ratio**nights, wanted) for now, wanted in found.slowed.values()]
        there = all(each <= 1.001 * wanted for each, (_, wanted) in zip(left, found.slowed.values(), strict=True))
        if there or (pinned < capacity and steady + sum(left) <= 1.001 * capacity):
            break
        nights += 1
    return nights


def find_day_with_quotas(fleet: FleetFacts, nights: int) -> str:
    """The day that has the quotas of so many nights later."""
    first = day_after(fleet.date)
    return "a later day" if first is None else named_day((date.fromisoformat(first) + timedelta(days=nights)).isoformat())


def _missing_gateways(found: Digest) -> Iterator[Need]:
    fleet = found.fleet
    if not fleet.missing_gateways:
        return
    named = join_names(fleet.missing_gateways)
    took = join_names([name for name in fleet.missing_gateways if name in found.gateways])
    its = "their" if fleet.missing_gateways[1:] else "its"
    runs = f" Tonight's quotas are in force at {took}: only the log is missing." if took else ""
    yield Need(
        f"The log of {named} for {named_day(fleet.date)} is missing or not whole, so {its} part of the messages is an estimate from the "
        f"seven days before.{runs}",
        f"each night estimates it again, for seven days; then {its} part counts as gone, and the quotas fall by it.",
        f"Copy the files of dt={fleet.date} from `access_log.directory` of {named} into {option(found, '--log', 'LOG')}/dt={fleet.date}.",
    )


def _refused(found: Digest) -> Iterator[Need]:
    """The need where more was refused than a target missed by chance."""
    fleet, figure = found.fleet, read_expected(found.fleet)
    if not is_far_over(fleet) or (figure and figure.lowered) or not found.refused:
        return
    worst = found.refused[0]
    part = worst.refused() / max(sum(each.refused() for each in found.refused), 1.0)
    pin = f"{{protocol: {worst.protocol}, topic: {escape_backticks(worst.name)}, messages: {math.ceil(2 * worst.rate_of('messages'))}/s}}"
    yield Need(
        f"{missed_text(fleet)} {share_text(part)} of it is of {escape_backticks(worst.name)}.",
        f"{describe_k_change(fleet)} For twice the quotas that takes five weeks.",
        f"Pin {escape_backticks(worst.name)} at twice its quota: `- {pin}` in {option(found, '--pins', 'a file, and name it by --pins')}.",
    )


def missed_text(fleet: FleetFacts) -> str:
    """`More was refused than the target of 0.1 %: 0.2 % in the last 28 days.`, with each time over which it was; "" where none."""
    nights, part = fleet.nights7.get("messages"), fleet.realised["messages"]
    seven = None if nights is None or nights.nights == getattr(fleet.judged(), "nights", None) else nights.refused()
    found = [
        (realised_text(fleet), fleet.refused_so_far()),
        (f"{share_text(seven)} in the last 7 days", seven),
        (f"{share_text(part)} in the last day", part),
    ]
    late = dict.fromkeys(said for said, of in found if is_over_target(fleet, of))
    return f"More was refused than the target of {share_text(fleet.target)}: {', '.join(late)}." if late else ""


def is_far_over(fleet: FleetFacts) -> bool:
    """Whether more than CAREFUL times the target was refused: that is no chance."""
    part = fleet.refused_so_far()
    return fleet.target is not None and part is not None and part > CAREFUL * fleet.target


def describe_k_change(fleet: FleetFacts) -> str:
    """A sentence about k's answer to it."""
    now, was = fleet.k["messages"], fleet.k_before.get("messages")
    if now is None or was is None or now < was:
        return "the safety factor k moves by at most 2 % a night until it fits."
    if now > was * 1.0001:
        rose = f"from {number_text(was)} to {number_text(now)}"
        return f"the safety factor k rose {rose} tonight, and rises by at most 2 % a night until it fits."
    return f"the safety factor k stays {number_text(now)}: it is large enough but for the worst day, and one day never raises it."


def join_names(found: tuple[str, ...] | list[str]) -> str:
    """`gw-a, gw-b and gw-c`; the first ones of many."""
    shown = [escape_backticks(each) for each in found[:FEW]]
    if len(found) > FEW:
        return f"{', '.join(shown)} and {len(found) - FEW} more"
    return " and ".join([*([", ".join(shown[:-1])] if shown[1:] else []), *shown[-1:]])


def option(found: Digest, name: str, otherwise: str) -> str:
    """The value that the night's command has for an option."""
    words = found.command
    at = words.index(name) + 1 if name in words else len(words)
    return clean_text(words[at], 200) if at < len(words) else otherwise


def command(found: Digest) -> str:
    """The night's command, as a person types it."""
    words = f"sluice quotas nightly --log LOG --state STATE --date {found.fleet.date} --again"
    return shlex.join(found.command) if found.command else words


def escape_backticks(text: str) -> str:
    """A name in a sentence in which backticks mean something."""
    return clean_text(text, 60).replace("`", "'")
