"""The log that a gateway's own code has written, replayed: what would have been refused is what a judge refused at the true instants."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from gateway.counting.access_log_lines import RunningSecond, Second, text_of
from gateway.counting.accounts import WINDOW_NS, Accounts
from limiter.judge import Judge
from limiter.keys import Key
from limiter.limits import SECOND, Limit, Rate
from limiter.quota_snapshot import Quota
from limiter.request import Request
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import parse_topic
from spark_jobs.backtest.contender import Contender, make_contender
from spark_jobs.backtest.replay import Replay, ReplayedLine

START = 1_795_000_000  # epoch s
SECONDS = 240
SIZE = 100
Sent = tuple[int, str, str]  # ns, topic, client


class GatewayModel:
    """A judge, and the gateway's accounts and access log around it; `decide` is what its pipeline does with a message."""

    def __init__(self, rules: RuleSet) -> None:
        self.judge = Judge(rules)
        self.accounts = Accounts()
        self.running = RunningSecond()
        self.accounts.observers.append(self.running.add)
        self.refused: Counter[str] = Counter()
        self.lines: list[str] = []

    def key(self, topic: str, client: str) -> Key:
        origin = self.judge.origin("rocketmq", "rocketmq", client, None)
        return self.judge.key(origin, topic.encode(), parse_topic("rocketmq", topic), b"g")

    def message(self, now: int, topic: str, client: str) -> None:
        key = self.key(topic, client)
        request = Request(key, 1, 1, SIZE)
        self.judge.decide([request], now)
        tally = self.accounts.tally_of(key)
        tally.receive(1, now // WINDOW_NS)
        if request.passed:
            tally.messages += 1
            tally.bytes += SIZE
        else:
            tally.refused += 1
            tally.refused_bytes += SIZE
            self.refused[topic] += 1

    def second_ends(self, ts: int) -> None:
        self.accounts.fold(ts * SECOND)
        self.lines += text_of(Second(ts, 1, self.running.take()), "g1", "b1", len(self.lines), lambda _: None).splitlines()


def traffic(seed: int) -> list[list[Sent]]:
    """Messages of each second: `even` comes evenly, `peaks` within a tenth of the second, `flood` is one for a minute."""
    chance = random.Random(seed)
    found = []
    for second in range(SECONDS):
        sent: list[Sent] = []
        begin = (START + second) * SECOND
        peak = chance.randrange(9) * WINDOW_NS
        even, peaks, flood = chance.randrange(10, 40), 60 if second % 4 == 0 else 4, 300 if 100 <= second < 160 else 3
        sent += [(begin + chance.randrange(SECOND), "even", f"10.0.0.{chance.randrange(3)}") for _ in range(even)]
        sent += [(begin + peak + chance.randrange(WINDOW_NS), "peaks", "10.0.0.1") for _ in range(peaks)]
        sent += [(begin + chance.randrange(SECOND), "flood", "10.0.0.2") for _ in range(flood)]
        found.append(sorted(sent))
    return found


def as_line(text: str) -> ReplayedLine | None:
    found = json.loads(text)
    if found.get("heartbeat"):
        return None
    counts = ("messages", "bytes", "refused_messages", "refused_bytes", "delayed_messages", "dropped_messages", "max_100ms_messages")
    return ReplayedLine(
        found["protocol"], found["topic"], found["client"], found["user"], found["group"], *(found[name] for name in counts)
    )


def run(rules: RuleSet, seconds: list[list[Sent]]) -> GatewayModel:
    gateway = GatewayModel(rules)
    for number, sent in enumerate(seconds):
        for now, topic, client in sent:
            gateway.message(now, topic, client)
        gateway.second_ends(START + number)
    return gateway


def replayed(tried: Contender, lines: list[str]) -> Counter[str]:
    replay = Replay([tried])
    by_second: dict[int, list[ReplayedLine]] = {}
    for text in lines:
        line = as_line(text)
        if line is not None:
            by_second.setdefault(json.loads(text)["ts"], []).append(line)
    for ts, found in by_second.items():
        replay.replay_second(ts, found)
    return Counter({replay.topics[topic].name[1]: count.refused for topic, count in replay.sides[0].counts.items()})


@pytest.mark.parametrize("open_for_ns", [0, SECOND], ids=["no breaker", "breaker"])
@pytest.mark.parametrize("in_force", [None, 30], ids=["unlimited then", "limited then"])
def test_the_replay_refuses_what_a_judge_refused_at_the_true_instants(open_for_ns: int, in_force: int | None) -> None:
    rule = Rule("all", Match(protocol="rocketmq"), limit=Limit(Rate(1)), open_for_ns=open_for_ns)
    quotas = [Quota("rocketmq", "even", (22, 40)), Quota("rocketmq", "peaks", (16, 40)), Quota("rocketmq", "flood", (50, 200))]
    tried, _ = make_contender("tried", [rule], quotas)
    seconds = traffic(seed=11)
    truth = run(tried.rule_set(), seconds).refused
    then = RuleSet(() if in_force is None else (Rule("then", Match(), limit=Limit(Rate(in_force)), open_for_ns=0),))
    found = replayed(tried, run(then, seconds).lines)
    assert set(found) == set(truth) == {"even", "peaks", "flood"}
    asked = Counter(topic for sent in seconds for _, topic, _ in sent)
    for topic, refused in truth.items():
        assert found[topic] == pytest.approx(refused, abs=0.03 * asked[topic]), topic
