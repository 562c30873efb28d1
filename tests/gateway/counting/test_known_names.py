"""Which topics the access log knows: those with lines in several seconds, the longest known first, within bounds."""

from __future__ import annotations

from gateway.counting.known_names import IDLE_S, KNOWN_AFTER, LOOK_S, MAX_KNOWN, KnownNames, name_of
from limiter.keys import Key, Origin
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic

NOON = 1_795_262_400


def key(topic: str, client: str = "10.0.0.7") -> Key:
    return Key(Origin("rocketmq", Sender("rocket", client, None), b""), rocketmq_topic(topic.encode()), b"p1", "produce")


def ranks(known: KnownNames, *topics: str) -> list[int]:
    return [known.rank(name_of(key(topic))) for topic in topics]


def test_a_topic_is_known_after_lines_in_several_seconds_whoever_sends_it() -> None:
    known = KnownNames()
    for second in range(KNOWN_AFTER):
        assert ranks(known, "orders") == [MAX_KNOWN]
        for client in range(10):  # lines of one second count once
            known.see(key("orders", f"10.0.0.{client}"), NOON + second)
    known.see(key("bills"), NOON)
    assert ranks(known, "orders", "bills") == [0, MAX_KNOWN]
    for second in (1, 100):  # they need not follow each other
        known.see(key("bills"), NOON + second)
    assert ranks(known, "orders", "bills") == [0, 1]
    assert repr(known) == "<KnownNames 2, 0 on probation>"


def test_names_that_do_not_come_again_displace_each_other_and_nobody_else() -> None:
    known = KnownNames(generation=100)
    for second in range(KNOWN_AFTER):
        known.see(key("new"), NOON + second)  # is known in the end, though a flood goes on
        for number in range(90):
            known.see(key(f"made-up-{second}-{number}"), NOON + second)
        assert len(known._probation) + len(known._before) <= 200
    assert ranks(known, "new", "made-up-0-1") == [0, MAX_KNOWN]
    assert len(known) == 1


def test_when_the_table_is_full_only_idle_ones_make_room() -> None:
    known = KnownNames(most=3)

    def be_seen(topics: str, begin: int) -> None:
        for second in range(KNOWN_AFTER):
            for topic in topics:
                known.see(key(topic), begin + second)

    be_seen("abc", NOON)
    be_seen("d", NOON + 10)
    assert ranks(known, "a", "b", "c", "d") == [0, 1, 2, 3], "d is not known: 3 is none of the ranks"
    known.see(key("a"), NOON + IDLE_S)
    known.see(key("c"), NOON + IDLE_S)
    be_seen("d", NOON + IDLE_S + LOOK_S)
    assert ranks(known, "a", "b", "c", "d") == [0, 3, 1, 2], "b was idle; the others keep their order"
    be_seen("e", NOON + IDLE_S + LOOK_S + 10)
    assert ranks(known, "e") == [3]
