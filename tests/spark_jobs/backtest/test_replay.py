"""The replay is the limiter: what it refuses is what a judge refuses that is asked about one message after the other."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from limiter.judge import Judge
from limiter.limits import SECOND, Limit, Rate
from limiter.quota_snapshot import Quota
from limiter.request import Request
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import parse_topic
from spark_jobs.backtest.arrivals import INSTANTS_MS, cap_each_line, count_offered, spread_over_instants
from spark_jobs.backtest.contender import Contender, make_contender
from spark_jobs.backtest.raises import DayRaise
from spark_jobs.backtest.replay import Replay, ReplayedLine, ReplayedSide

START = 1_795_000_000  # epoch s


def line(topic: str, messages: int, client: str = "10.0.0.1", **more: int) -> ReplayedLine:
    counts = {"bytes": 100 * messages, "refused": 0, "refused_bytes": 0, "delayed": 0, "dropped": 0, "peak_100ms": 0, **more}
    return ReplayedLine("rocketmq", topic, client, None, "g", messages, **counts)


def quota(topic: str, rate: float, burst: int) -> Quota:
    return Quota("rocketmq", topic, (rate, burst))


def of(*quotas: Quota) -> Contender:
    return make_contender("tried", (), quotas)[0]


def replayed(tried: Contender, seconds: list[list[ReplayedLine]]) -> ReplayedSide:
    replay = Replay([tried])
    for number, lines in enumerate(seconds):
        replay.replay_second(START + number, lines)
    return replay.sides[0]


@pytest.mark.parametrize(("messages", "peak", "expected"), [(0, 0, (0, 0, 0, 0, 0)), (1, 1, (0, 0, 1, 0, 0)), (10, 1, (3, 2, 1, 2, 2))])
def test_a_second_arrives_in_five_parts_with_its_peak_in_the_middle(messages: int, peak: int, expected: tuple[int, ...]) -> None:
    assert spread_over_instants(messages, peak) == expected


def test_no_message_is_lost_or_made_by_spreading() -> None:
    for messages in range(200):
        for peak in (0, 1, 7, messages, messages + 5):
            parts = spread_over_instants(messages, peak)
            assert sum(parts) == messages
            assert min(parts) >= 0


def test_held_messages_count_in_the_second_they_came_in() -> None:
    waiting, asked = 0, []
    for departed, delayed in ((10, 30), (10, 0), (10, 0), (10, 0)):  # 30 of 40 were held, ten left each second
        messages, waiting = count_offered(departed, delayed, waiting)
        asked.append(messages)
    assert asked == [30, 0, 0, 10]
    assert waiting == 0


def test_attempts_of_a_storm_are_no_demand() -> None:
    replay = Replay([of(quota("orders", 0, 0))], {("rocketmq", "orders"): 10})
    lines = [
        line("orders", 5, refused=600, refused_bytes=60_000),
        line("orders", 0, "10.0.0.2", refused=200, refused_bytes=20_000, dropped=200),
    ]
    replay.replay_second(START, [*lines, line("audit", 0, refused=70)])
    assert replay.storm == 990
    assert [(each.name[1], each.messages) for each in replay.topics] == [("orders", 15), ("audit", 70)]
    assert replay.sides[0].counts[0].clients == {"10.0.0.1": 11, "10.0.0.2": 4}


def test_every_line_keeps_its_part_of_what_counts() -> None:
    assert cap_each_line([3, 4], 10) == [3, 4]
    assert cap_each_line([600, 400], 10) == [6, 4]
    assert cap_each_line([1] * 7, 3) == [0, 0, 1, 0, 1, 0, 1]
    assert cap_each_line([5, 5], 0) == [0, 0]


def messages_one_by_one(tried: Contender, seconds: list[list[ReplayedLine]]) -> Counter[tuple[str, str]]:
    """Refused messages by topic and client, of a judge that is asked about each message by itself."""
    judge = Judge(tried.rule_set())
    refused: Counter[tuple[str, str]] = Counter()
    for number, lines in enumerate(seconds):
        for at, at_ms in enumerate(INSTANTS_MS):
            now = (START + number) * SECOND + at_ms * 1_000_000
            for each in lines:
                name = parse_topic(each.protocol, each.topic)
                origin = judge.origin(each.protocol, each.protocol, each.client, each.user)
                key = judge.key(origin, each.topic.encode(), name, (each.group or "").encode())
                asked = each.messages + each.refused + each.dropped
                for _ in range(spread_over_instants(asked, each.peak_100ms)[at]):
                    request = Request(key, 1, 1, (each.bytes + each.refused_bytes) // asked)
                    judge.decide([request], now)
                    refused[each.topic, each.client] += 1 - int(request.passed)
    return +refused


RULES = [
    Rule("all", Match(protocol="rocketmq"), limit=Limit(Rate(40), messages_burst=60)),
    Rule("each-client", Match(protocol="rocketmq"), per="client", limit=Limit(Rate(70), Rate(9000)), open_for_ns=0),
    Rule("audit", Match(topic="audit"), limit=Limit(Rate(15), messages_burst=20), action="delay"),
]


@pytest.mark.parametrize("rules", [(), RULES[:1], RULES], ids=["quotas", "default", "clients"])
def test_message_for_message_it_refuses_what_a_judge_refuses(rules: list[Rule]) -> None:
    chance = random.Random(7)
    tried, notes = make_contender("tried", rules, [quota("orders", 50.5, 80), quota("stock", 20, 25)])
    assert notes == []
    seconds = [
        [
            line(topic, asked, f"10.0.0.{client}", peak_100ms=chance.randrange(asked + 1))
            for topic in ("orders", "stock", "audit")
            for client in range(3)
            if (asked := chance.choice([0, 3, 12, 45]))
        ]
        for _ in range(120)
    ]
    side = replayed(tried, seconds)
    numbers = dict(enumerate(dict.fromkeys(each.topic for lines in seconds for each in lines)))
    found = Counter(
        {(numbers[topic], client): refused for topic, count in side.counts.items() for client, refused in count.clients.items()}
    )
    expected = messages_one_by_one(tried, seconds)
    assert expected.total() > 500
    assert found == expected


def test_contenders_do_not_disturb_each_other() -> None:
    seconds = [[line("orders", 30 + number % 40, peak_100ms=9)] for number in range(100)]
    pair = [of(quota("orders", 40, 40)), of(quota("orders", 45, 45))]
    together = Replay(pair)
    for number, lines in enumerate(seconds):
        together.replay_second(START + number, lines)
    for each, side in zip(pair, together.sides, strict=True):
        assert side.counts[0].refused == replayed(each, seconds).counts[0].refused


def test_a_flood_is_a_blackout_only_while_nothing_passes() -> None:
    flood = (
        [[line("orders", 10)] for _ in range(20)] + [[line("orders", 5000)] for _ in range(30)] + [[line("orders", 10)] for _ in range(20)]
    )
    side = replayed(of(quota("orders", 20, 20)), flood)
    count = side.counts[0]
    assert 30 <= count.limited_seconds <= 32
    assert count.refused > 140_000
    assert count.blackout <= 1
    assert count.clients == {"10.0.0.1": count.refused}
    assert replayed(of(Quota("rocketmq", "orders", (0, 0))), flood).counts[0].blackout == 70


def test_seconds_without_demand_neither_end_nor_lengthen_a_blackout() -> None:
    seconds = [[line("orders", 5)] if number % 10 == 0 else [] for number in range(50)]
    assert replayed(of(Quota("rocketmq", "orders", (0, 0))), seconds).counts[0].blackout == 5


def test_bytes_of_refused_messages_are_counted_and_their_remainder_is_kept() -> None:
    replay = Replay([of(Quota("rocketmq", "orders", None, (50, 50)))])
    for number in range(60):
        replay.replay_second(START + number, [line("orders", 7, bytes=100)])
    assert replay.topics[0].bytes == 6000
    passed = 6000 - replay.sides[0].counts[0].refused_bytes
    assert abs(passed - (50 + 50 * 59)) <= 100  # what it holds at the end, and a second that has not ended


def test_what_a_rule_holds_first_is_said_apart() -> None:
    rules = [Rule("slow", Match(topic="orders"), limit=Limit(Rate(10)), action="delay")]
    count = replayed(make_contender("tried", rules)[0], [[line("orders", 50)]]).counts[0]
    assert count.held == count.refused > 0


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Rule("flight", Match(), limit=Limit(concurrent=5), algorithm="concurrency"), "in flight"),
        (Rule("lines", Match(), per="connection", limit=Limit(Rate(5))), "connection"),
        (Rule("vip", Match(listener="vip"), limit=Limit(Rate(5))), "listener"),
        (Rule("out", Match(operation="consume"), limit=Limit(Rate(5))), "operation: consume"),
    ],
    ids=lambda value: value.name if isinstance(value, Rule) else "",
)
def test_a_rule_that_the_log_says_too_little_about_is_named_and_left_out(rule: Rule, why: str) -> None:
    tried, notes = make_contender("tried", [rule])
    assert tried.rules == ()
    assert rule.name in notes[0]
    assert why in notes[0]


def test_rules_are_the_same_after_the_way_to_a_worker() -> None:
    assert make_contender("tried", RULES)[0].rule_set().file_rules == RuleSet(tuple(RULES)).file_rules


def surging(*topics: str, most: float = 4.0) -> Contender:
    """Quotas of 10/s with a burst of ten seconds, raised within the day."""
    quotas = [Quota("rocketmq", topic, (10.0, 100), None, {}, 2.0) for topic in topics]
    return Contender.from_plain(make_contender("raised", (), quotas, most)[0].to_plain())


def test_a_surge_is_refused_less_than_a_hundredth_where_quotas_are_raised_and_most_of_it_where_not() -> None:
    """The promise of an opening day (docs/how-a-quota-is-computed.md), by the code of the gateway."""
    day = [[line("orders", 6)]] * 60 + [[line("orders", 25)]] * 1200 + [[line("orders", 6)]] * 120
    raised, held = replayed(surging("orders"), day), replayed(surging("orders", most=0.0), day)
    assert 0 < raised.counts[0].refused <= 0.01 * 25 * 1200
    assert held.counts[0].refused > 0.5 * 25 * 1200


def test_other_topics_beside_it_and_seconds_without_a_line_change_nothing_of_a_raise() -> None:
    surge = {*range(20), *range(300, 360), *range(4000, 4020)}
    alone = [[line("orders", 40)] if at in surge else [] for at in range(4100)]
    both = [[line("audit", 5), *lines] for lines in alone]
    found, beside = Replay([surging("orders", "audit")]), Replay([surging("orders", "audit")])
    for replay, day in ((found, alone), (beside, both)):
        for at, lines in enumerate(day):
            if lines:
                replay.replay_second(START + at, lines)
    (one,) = found.sides[0].counts.values()
    (other,) = beside.sides[0].counts.values()
    assert one.refused == other.refused > 0


def test_hours_and_surges_raise_and_end_at_their_own_seconds() -> None:
    """6/s ask for 9/s as a surge, and for 12/s as an hour's mean; 20/s for 30/s."""
    raises = DayRaise(surging("orders").rule_set(), 4.0)
    hour = START - START % 3600 + 3600
    found = []
    for second in range(7300):
        now = hour + second
        for at, rules in raises.raise_until(now):
            (effective,) = rules.effective(parse_topic("rocketmq", "orders"))
            found.append((at - hour, effective.limit.messages))
        raises.count(("rocketmq", "orders"), (20, 0) if 7000 <= second < 7010 else (6, 0) if second < 7200 else (0, 0), (0, 0))
    assert found[:2] == [(3600, Rate(12)), (7010, Rate(30))]
    assert [at for at, _ in found[2:]] == [7020, 7030, 7040, 7050, 7060, 7200], "it falls by a fifth each ten seconds"
    assert found[5:] == [(7050, Rate(123, 10 * SECOND)), (7060, Rate(12)), (7200, Rate(121, 10 * SECOND))]
