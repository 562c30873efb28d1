"""Units: topics that share a bucket in some contender, so that one worker must replay them in one order.

A limit per topic or a quota keeps a topic by itself, and ten thousand topics are ten thousand units. A rule per client, user, group,
exchange or for all of a protocol (`per: rule`, a listener's cap) has buckets that several topics draw from. The naive way takes everything
together as soon as there is such a rule. Here the rules are matched with each sender and topic of the day, as the gateway would, and only
topics that meet in a bucket are put together. What one bucket holds together cannot be split: `Units.notes` says which rule that is, and
how much.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from limiter.rules.sender import Sender
from limiter.rules.subject import Subject
from limiter.topics import parse_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spark_jobs.backtest.contender import Contender

MIN_SHARE_NOTED: Final = 0.25  # share of the day's lines; a smaller unit does not keep other workers waiting (guess)
Topic = tuple[str, str]  # protocol, topic


class Seen(NamedTuple):
    """A topic as seen from one sender, and how many lines of the day are theirs."""

    protocol: str
    topic: str
    client: str
    user: str | None
    group: str | None
    lines: int


class Units(NamedTuple):
    """The unit of each topic, by a number; and notes for a person."""

    of_topic: dict[Topic, int]
    notes: list[str]


def group_into_units(seen: Iterable[Seen], contenders: Sequence[Contender]) -> Units:
    """Put the topics of `seen` into units."""
    sets = [contender.rule_set() for contender in contenders if contender.rules]
    leader: dict[Topic, Topic] = {}
    first_of: dict[tuple[int, tuple[str, str, str, str]], Topic] = {}  # contender and bucket -> the first topic that draws from it
    lines: Counter[Topic] = Counter()
    joined: dict[Topic, set[str]] = {}  # rules that put this topic together with another

    def find(topic: Topic) -> Topic:
        while leader[topic] != topic:
            leader[topic] = topic = leader[leader[topic]]
        return topic

    for each in seen:
        topic = (each.protocol, each.topic)
        leader.setdefault(topic, topic)
        lines[topic] += each.lines
        name = parse_topic(*topic)
        group = None if each.group is None else each.group.encode()
        subject = Subject(name, name.text(), Sender(each.protocol, each.client, each.user), group)
        for number, rules in enumerate(sets):
            for effective in rules.matched(subject):
                other = first_of.setdefault((number, effective.identity), topic)
                if other != topic:
                    joined.setdefault(topic, set()).add(effective.rule.name)
                    leader[find(topic)] = find(other)
    numbers: dict[Topic, int] = {}
    of_topic = {topic: numbers.setdefault(find(topic), len(numbers)) for topic in sorted(leader)}
    return Units(of_topic, _describe_largest(of_topic, lines, joined))


def _describe_largest(of_topic: dict[Topic, int], lines: Counter[Topic], joined: dict[Topic, set[str]]) -> list[str]:
    by_unit: Counter[int] = Counter()
    for topic, unit in of_topic.items():
        by_unit[unit] += lines[topic]
    if not by_unit:
        return []
    largest, most = by_unit.most_common(1)[0]
    topics = [topic for topic, unit in of_topic.items() if unit == largest]
    if len(topics) < 2 or most < MIN_SHARE_NOTED * by_unit.total():
        return []
    rules = Counter(rule for topic in topics for rule in joined.get(topic, ()))
    names = ", ".join(name for name, _ in rules.most_common(3))
    share = 100 * most / by_unit.total()
    return [
        f"{len(topics)} topics with {share:.0f} % of the lines share buckets (rule {names}): one worker replays them, one after the other"
    ]
