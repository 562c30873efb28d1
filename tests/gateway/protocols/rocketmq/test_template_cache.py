"""A template matches only where the header means the same; the judge of that is the parser."""

from __future__ import annotations

import json
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import read_json
from gateway.protocols.rocketmq.template_cache import (
    LEARN_EVERY,
    LEARN_FIRST,
    MAX_ALIKE,
    MAX_KNOWN,
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATES,
    MAX_VARYING_FIELDS,
    TemplateCache,
    known,
)
from limiter.judge import Judge
from limiter.limits import Limit, Rate
from limiter.recent_keys import MAX_GROUPS
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.cases import in_one_loop
from support.rocketmq import frames as rocketmq
from support.rocketmq.header_templates import header_of, learned, learned_after_others, match, parsed
from support.wires.conversations import SECOND, Talk


@pytest.fixture(autouse=True)
def nothing_is_known() -> None:
    """Of what the connections of other tests have learned."""
    known.clear()


USUAL = learned(header_of(1), header_of(10, born=2), header_of(2_000_000_000, born=1795247411999))


@pytest.mark.parametrize("opaque", [0, 1, 9, 123, 99_999, 2_147_483_647])
def test_headers_of_one_producer_match_once_it_showed_what_varies(opaque: int) -> None:
    text = header_of(opaque, born=1795247400000 + opaque)
    assert match(USUAL, text) == parsed(text)


def test_numbers_may_vary_as_numbers_and_as_text() -> None:
    """C++ and JavaScript clients send numbers where Java sends text."""
    texts = [
        b'{"code":10,"extFields":{"queueId":%d,"bornTimestamp":%d,"topic":"t"},"flag":0,"language":"CPP","opaque":%d,"version":63}\n'
        % numbers
        for numbers in ((0, 1795247411000, 1), (3, 1795247411001, 22))
    ]
    templates = learned(*texts)
    new = texts[0].replace(b'"queueId":0', b'"queueId":17').replace(b'"opaque":1', b'"opaque":7654321')
    assert match(templates, new) == parsed(new)
    assert match(templates, new.replace(b"17", b'"17"')) is None


@in_one_loop
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"b":"orders"', b'"b":"other"'),
        (b'"b":"orders"', b'"b":"orderz"'),
        (b'"a":"producers"', b'"a":"others"'),
        (b'"m":"false"', b'"m":"true"'),
        (b'"code":310', b'"code":34'),
        (b'"flag":0', b'"flag":2'),
        (b'"e":"1"', b'"e":"1","b":"other"'),
        (b'"e":"1"', b'"e":"1\\","b":"other"'),
        (b'"e":"1"', b'"e":"\\u1","b":"other"'),
        (b'"e":"1"', b'"e":"\\x1","b":"other"'),
        (b'"e":"1"', b'"e":"\\\\"'),
        (b'"e":"1"', b'"e":"\xe5","b":"other"'),
        (b'"e":"1"', b'"e":"\xf0\x9f\x98"'),
        (b'"e":"1"', b'"e":1'),
        (b'"opaque":5', b'"opaque":05'),
        (b'"opaque":5', b'"opaque":-5'),
        (b'"opaque":5', b'"opaque":5.5'),
        (b'"opaque":5', b'"opaque":'),
        (b'"opaque":5', b'"opaque":2147483648'),
        (b'"opaque":5', b'"opaque":99999999999999999999'),
        (b'"opaque":5', b'"opaque":5,"opaque":6'),
        (b'"opaque":5', b'"opaque":5,"code":34'),
        (b'"version":479}', b'"version":479,"flag":1}'),
        (b'"version":479}', b'"version":479'),
        (b'"version":479}', b'"version":479} '),
    ],
    ids=repr,
)
def test_a_header_that_could_mean_something_else_does_not_match(old: bytes, new: bytes) -> None:
    text = header_of(5)
    assert match(USUAL, text) == parsed(text)
    assert text.count(old) == 1
    assert match(USUAL, text.replace(old, new)) is None


def test_a_cut_header_does_not_match_whatever_follows_it_in_the_read() -> None:
    text = header_of(5)
    for end in range(len(text)):
        assert USUAL.match(text, 0, end) is None


PIECES = [b'"', b"\\", b",", b":", b"{", b"}", b"\\u0022", b"\xe5", b"0", b"7", b" "]
PIECES += [b'"b":"x"', b'"m":"true"', b'"code":34', b'"flag":1', b'"opaque":1']


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), st.lists(st.sampled_from(PIECES), max_size=3)), min_size=1, max_size=3))
@settings(max_examples=400, deadline=None)
def test_whatever_is_done_to_a_header_a_template_means_what_the_parser_reads(changes: list[tuple[int, int, list[bytes]]]) -> None:
    text = header_of(5)
    for at, cut, pieces in changes:
        text = text[:at] + b"".join(pieces) + text[at + cut :]
    found = match(USUAL, text)
    if found is not None:
        try:
            assert found == parsed(text)
        except ProtocolError:
            # The parser may be stricter only about texts without meaning for us: read them forgivingly, and the rest must be the same.
            lenient = json.loads(re.sub(rb"\\.", b"..", text).decode(errors="replace"), strict=False)
            assert (lenient["code"], lenient["flag"], lenient["opaque"]) == (310, 0, found[0])
            assert (lenient["extFields"]["b"], lenient["extFields"]["a"], lenient["extFields"]["m"]) == ("orders", "producers", "false")


def test_keys_spelled_with_escapes_never_vary() -> None:
    texts = [
        b'{"code":310,"extFields":{"\\u0062":"%b","x":"1"},"flag":0,"opaque":%d,"version":1}' % (topic, opaque)
        for topic, opaque in ((b"one", 1), (b"two", 2), (b"one", 3), (b"two", 4))
    ]
    templates = learned(*texts)
    for text in texts:
        assert match(templates, text) == parsed(text)
    assert match(templates, texts[0].replace(b"one", b"six")) is None


def test_an_opaque_inside_a_text_is_not_mistaken_for_the_field() -> None:
    text = b'{"code":310,"extFields":{"b":"t","i":"{\\"opaque\\":5,"},"flag":0,"opaque":5,"version":1}'
    templates = learned(text, text)
    new = text.replace(b'"opaque":5,"version"', b'"opaque":6,"version"')
    assert match(templates, new) == (6, b"t", b"", 0, False)


@pytest.mark.parametrize("count", [2, MAX_TEMPLATES])
def test_so_many_groups_in_turn_are_remembered_at_once(count: int) -> None:
    groups = [f"group-{number}" for number in range(count)]
    templates = TemplateCache()
    for turn in range(4):
        for group in groups:
            text = header_of(turn, group=group)
            if match(templates, text) is None:
                templates.learn(text, read_json(text))
    for group in groups:
        text = header_of(99, group=group)
        assert match(templates, text) == parsed(text)


def test_learning_is_rationed_and_templates_are_few() -> None:
    templates = TemplateCache()
    total = LEARN_FIRST + 3 * LEARN_EVERY
    for number in range(total):
        text = header_of(number, group=f"group-{number}")
        templates.learn(text, read_json(text))
    assert (len(templates.templates), templates.learned) == (MAX_TEMPLATES, LEARN_FIRST + 3)


def test_a_template_shows_what_varies() -> None:
    first, second = (b'{"code":310,"extFields":{"b":"t","e":"%d"},"opaque":%d}' % (number, number) for number in (1, 2))
    shown = "<Header code=310 opaque=2 flag=0 topic=b't' group=b'' batch=False user=b'' source=b''>"
    like = b'{"code":310,"extFields":{"b":"t","e":""},"opaque":0}'
    assert repr(learned(first, second).templates) == f"[<HeaderTemplate {shown} like={like!r}>]"


def test_a_connection_knows_with_its_first_header_what_others_have_learned() -> None:
    learned(header_of(1), header_of(2, topic="bills", born=2))
    other = learned_after_others(header_of(3, topic="mail", born=3))
    text = header_of(4, topic="letters", born=1795247411999)
    assert match(other, text) == parsed(text)
    assert len(other.templates) == 1


def test_clients_that_come_for_one_message_learn_together() -> None:
    for number in range(3):
        last = learned_after_others(header_of(number, topic=f"topic-{number}", born=number))
    text = header_of(99, topic="letters", born=1795247411999)
    assert match(last, text) == parsed(text)


@in_one_loop
@pytest.mark.parametrize(
    ("old", "new"), [(b'"a":"producers"', b'"a":"others"'), (b'"m":"false"', b'"m":"true"'), (b'"flag":0', b'"flag":2')]
)
def test_what_means_something_else_is_learned_by_each_connection(old: bytes, new: bytes) -> None:
    learned(header_of(1), header_of(2, topic="bills", born=2))
    other = learned_after_others(header_of(3).replace(old, new))
    assert match(other, header_of(4)) is None
    assert match(other, header_of(4, born=4).replace(old, new)) is None, "it has shown nothing that varies"


def test_a_connection_learns_though_another_has_sent_headers_that_differ_from_its_own_in_too_much() -> None:
    """Else a client that claims the same group and access key would have all headers of the other parsed."""
    names = "".join(f'"{chr(97 + at) * 2}":"%d",' for at in range(MAX_VARYING_FIELDS))
    foreign, own = [
        ('{"code":310,"extFields":{' + names % ((kind,) * MAX_VARYING_FIELDS) + '"a":"g","b":"t"},"opaque":%d}') for kind in (1, 22)
    ]
    learned((foreign % 1).encode())
    connection = learned_after_others((own % 2).encode(), (own % 33).encode())
    assert match(connection, (own % 4444).encode()) == parsed((own % 4444).encode())


def test_the_keys_of_a_connection_are_not_those_of_another() -> None:
    for _ in range(2):
        talk = Talk("rocketmq", judge=Judge(RuleSet()))
        for opaque in range(6):
            talk.client(rocketmq.send(f"topic-{opaque % 2}", opaque=opaque, body=b"x"))
        assert [part.key.origin for part in talk.parts if part.key is not None] == [talk.conversation.frames.origin] * 6  # type: ignore[attr-defined]


def test_what_is_known_is_bounded() -> None:
    for number in range(MAX_KNOWN + 10):
        for version in range(MAX_ALIKE + 2):
            learned_after_others(header_of(1, group=f"group-{number}").replace(b'"version":', b'"v%b":0,"version":' % (b"v" * version)))
    assert len(known) == MAX_KNOWN
    assert max(len(alike) for alike in known.values()) == MAX_ALIKE


@pytest.mark.parametrize("topics", [1, 8, 50, 1000])
def test_however_many_topics_a_connection_has_hardly_a_header_is_parsed(topics: int) -> None:
    """The first two show what varies, the second topic among it."""
    talk = Talk("rocketmq")
    for turn in range(2):
        talk.client(b"".join(rocketmq.send(f"topic-{number}", opaque=turn * topics + number, body=b"x") for number in range(topics)))
    templates = talk.conversation.frames.templates  # type: ignore[attr-defined]  # RocketMQ's
    assert talk.forwarded == 2 * topics
    assert len(templates.templates) == 1
    assert templates.learned == 2


def size_of(thing: object) -> int:
    """Bytes of it and all it holds, each object once."""
    seen: dict[int, object] = {}

    def walk(thing: object) -> None:
        if thing is None or isinstance(thing, type) or id(thing) in seen:
            return
        seen[id(thing)] = thing
        if isinstance(thing, (list, tuple, set, frozenset)):
            for one in thing:
                walk(one)
        for name in getattr(type(thing), "__slots__", ()):
            walk(getattr(thing, name))

    walk(thing)
    return sum(sys.getsizeof(one) for one in seen.values())


def hostile(number: int, members: int, filler: int) -> bytes:
    """A header of which `members` vary, their names as long as fits."""
    names = [bytes((97 + at % 26, 97 + at // 26)) + b"_" * filler for at in range(members)]
    fields = b",".join(b'"%b":"%d"' % (name, 1000 + number) for name in names)
    return b'{"code":310,"extFields":{"b":"t","a":"%b",%b},"opaque":%d}' % (b"g" * (number // 2), fields, 1000 + number)


@in_one_loop
@pytest.mark.parametrize("filler", [0, 10, 20, 300])
@pytest.mark.parametrize("members", [1, MAX_VARYING_FIELDS - 1, MAX_VARYING_FIELDS, 300])
def test_the_templates_of_a_connection_are_bounded(members: int, filler: int) -> None:
    templates = TemplateCache()
    for number in range(LEARN_FIRST):
        text = hostile(number, members, filler)
        templates.learn(text, read_json(text))
    assert sum(template.size for template in templates.templates) <= MAX_TEMPLATE_BYTES
    assert size_of(templates) <= 65_536
    assert all(len(template.layout.kinds) <= MAX_VARYING_FIELDS for template in templates.templates)


def test_a_header_as_long_as_all_that_may_be_kept_is_learned_and_a_longer_one_is_not() -> None:
    short = header_of(1)
    long = b'{"code":310,"extFields":{"b":"t","i":"%b"},"opaque":1}'
    long %= b"x" * (MAX_TEMPLATE_BYTES - len(long) + 2)
    templates = learned(short, long)
    assert [template.size for template in templates.templates] == [len(long)]
    assert match(learned(long + b"\n"), long + b"\n") is None


def test_keys_of_many_topics_are_kept_by_their_origin_and_no_longer_than_it_keeps_them() -> None:
    """All connections of a client share them, a few groups have such tables, and what the judge forgets leaves them."""
    judge = Judge(RuleSet(), 500)
    talks = [Talk("rocketmq", judge=judge) for _ in range(3)]
    for talk in talks:
        for group in range(12):
            for topic in range(110):
                talk.client(rocketmq.send(f"topic-{topic}", group=f"group-{group}", opaque=topic) * 2)
    (origin,) = {talk.conversation.frames.origin for talk in talks}  # type: ignore[attr-defined]
    assert 0 < len(origin.recent_groups) <= MAX_GROUPS
    kept = [key for recent in origin.recent_groups.values() for key in recent.keys if key is not None]
    assert kept
    assert all(any(key is known for known in origin.keys.values()) for key in kept)
    assert len(origin.keys) <= 500


def test_a_key_that_a_client_has_for_want_of_new_names_is_not_kept() -> None:
    """It is of no group; some seconds later, when there are names again, the topic has one that rules for groups look at."""
    wide = Rule("wide", per="topic", limit=Limit(messages=Rate(10**6)))
    judge = Judge(RuleSet((wide,)), bounds_names=True)
    others, flooding, talk = (Talk("rocketmq", judge=judge) for _ in range(3))
    topics = ("bills", "mail")
    for topic in topics:  # they have buckets
        others.client(rocketmq.send(topic, group="others") * 2)
    for number in range(6_100):
        flooding.client(rocketmq.send(f"n{number}", opaque=number))
    for number in range(10):
        talk.client(rocketmq.send(topics[number % 2], opaque=number))
    for each in (talk, others):
        each.now += 60 * SECOND
    for number in range(10, 20):
        talk.client(rocketmq.send(topics[number % 2], opaque=number))
    assert {part.key.group for part in talk.parts[-2:] if part.key is not None} == {b"producers"}


@pytest.mark.parametrize(
    ("spelled", "wire", "meant"),
    [(b'a\\",\\"b\\":\\"x', b'a","b":"x', "x"), (b"a\\u0022,\\u0022b\\u0022:\\u0022x", b'a","b":"x', "x")],
)
def test_a_name_that_was_spelled_with_escapes_matches_no_octets_that_mean_another(spelled: bytes, wire: bytes, meant: str) -> None:
    """The last of two members of a name is what the broker reads."""

    def header(topic: bytes, number: int) -> bytes:
        fields = b'{"a":"p","b":"%s","e":"%d","m":"false"}' % (topic, number % 4)
        return b'{"code":310,"extFields":%s,"flag":0,"language":"JAVA","opaque":%d,"version":479}' % (fields, number)

    talk = Talk("rocketmq", Rule("few", Match(topic="x"), limit=Limit(messages=Rate(2), messages_burst=2), open_for_ns=0))
    for number, topic in enumerate([b"t1", b"t2", spelled, b"t1", spelled]):
        talk.client(rocketmq.frame(header(topic, number), b"b"))
    talk.to_broker = b""
    for number in range(10, 20):
        talk.client(rocketmq.frame(header(wire, number), b"b"))
    assert [part.key.text for part in talk.parts[-3:] if part.key is not None] == [meant] * 3
    assert len(rocketmq.split_frames(talk.to_broker)) == 2
