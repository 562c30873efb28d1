"""The topic varies where the parser reads it from there and nothing else with it; the judge of what a header means is the parser."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import read_json
from gateway.protocols.rocketmq.template_cache import TemplateCache
from support.rocketmq.header_templates import header_of, learned, match, parsed

TWO = learned(header_of(1, topic="mail"), header_of(10, born=2), header_of(2_000_000_000, born=1795247411999))


@pytest.mark.parametrize(
    "topic", ["orders", "mail", "m", "order", "orders2", "a b", "%retry%x", "x%RETRY%y", "ns%orders", "t" * 127, "t" * 255]
)
def test_two_topics_show_that_the_topic_varies(topic: str) -> None:
    text = header_of(7, topic=topic)
    assert match(TWO, text) == parsed(text)
    assert parsed(text)[1] == topic.encode()


@pytest.mark.parametrize(
    "topic",
    [
        b"",
        b"%RETRY%readers",
        b"t" * 256,
        "ö".encode(),
        b"\xff",
        b"a\\u0062",
        b"a\\x62",
        b'a\\"b',
        b"a\\\\",
        b"a\\",
        b"a\x01b",
        b"a\tb",
        b"a\x7f",
        b'x","b":"y',
        b'x","m":"true',
    ],
    ids=repr,
)
def test_a_topic_that_is_not_plain_is_left_to_the_parser(topic: bytes) -> None:
    text = header_of(7).replace(b'"b":"orders"', b'"b":"' + topic + b'"')
    assert text != header_of(7)
    assert match(TWO, text) is None


def filled(template: bytes, topic: bytes, opaque: int) -> bytes:
    return template.replace(b"TOPIC", topic).replace(b"OPAQUE", b"%d" % opaque)


@pytest.mark.parametrize(
    "template",
    [
        b'{"code":310,"extFields":{"b":"x","b":"TOPIC","a":"g"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":310,"extFields":{"b":"TOPIC","b":"x","a":"g"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":310,"extFields":{"b":"TOPIC","\\u0062":"x","a":"g"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":310,"extFields":{"z":{"b":"TOPIC"},"\\u0062":"x","a":"g"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":310,"remark":{"b":"TOPIC"},"extFields":{"\\u0062":"x","a":"g"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":310,"extFields":{"z":{"b":"TOPIC"},"\\u0062":"TOPIC","a":"g"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":310,"extFields":{"b":"TOPIC","a":"g"},"remark":{"b":"x"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":310,"extFields":{"b":"x","a":"g","topic":"TOPIC"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":10,"extFields":{"topic":"x","producerGroup":"g","b":"TOPIC"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":310,"extFields":{"b":"TOPIC","a":0},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":36,"extFields":{"group":"g","originTopic":"t","topic":"TOPIC"},"flag":0,"opaque":OPAQUE,"version":1}',
        b'{"code":310,"extFields":{"b":"%RETRY%TOPIC","a":"g"},"flag":0,"opaque":OPAQUE,"version":1}',
    ],
    ids=repr,
)
def test_a_value_that_is_not_beyond_doubt_the_topic_does_not_vary(template: bytes) -> None:
    """Said twice, spelled with an escape, elsewhere than in extFields, of another request; choosily parsed; a group as well."""
    texts = [filled(template, topic, opaque) for topic, opaque in ((b"one", 1), (b"two", 2), (b"one", 3), (b"two", 4))]
    templates = learned(*texts)
    assert match(templates, texts[-1]) == parsed(texts[-1])
    assert [match(templates, text) in (None, parsed(text)) for text in texts] == [True] * len(texts)
    assert match(templates, filled(template, b"six", 5)) is None


def test_a_topic_that_is_no_text_does_not_vary() -> None:
    texts = [b'{"code":310,"extFields":{"b":%d,"a":"g"},"flag":0,"opaque":1,"version":1}' % topic for topic in (1, 2, 1, 2)]
    assert match(learned(*texts), texts[0].replace(b'"b":1', b'"b":3')) is None


def test_the_meaning_of_an_earlier_header_stays_as_it_was() -> None:
    templates = learned(header_of(1, topic="mail"), header_of(2))
    first, second = header_of(3, topic="one"), header_of(4, topic="two")
    said = templates.match(first, 0, len(first))
    assert match(templates, second) == parsed(second)
    assert said is not None
    assert said.topic == b"one"


NAMES = st.one_of(
    st.text(st.sampled_from('abc%-_0 "\\,:}ö\x01\x7f'), max_size=12),
    st.sampled_from(["%RETRY%g", "orders", "mail", "a" * 255, "a" * 256, "-0"]),
)
LONG = b'{"code":10,"extFields":{"queueId":%d,"topic":"%b","producerGroup":"g","batch":false},"flag":%d,"opaque":%d,"version":63}\n'
PULLED = (
    b'{"code":11,"extFields":{"topic":"%b","consumerGroup":"g","queueOffset":"%d"},"flag":0,"language":"JAVA","opaque":%d,"version":479}'
)


@given(st.lists(st.tuples(st.integers(0, 3), NAMES, st.booleans(), st.integers(0, 99)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_whatever_the_topics_each_header_means_what_the_parser_reads(requests: list[tuple[int, str, bool, int]]) -> None:
    """One connection with sends of both spellings and pulls: recognised or not, what is found is what the parser says."""
    templates = TemplateCache()
    for kind, name, escaped, number in requests:
        topic = json.dumps(name, ensure_ascii=escaped)[1:-1].encode()
        text = (
            header_of(number).replace(b'"b":"orders"', b'"b":"' + topic + b'"'),
            LONG % (number, topic, 0, number),
            LONG % (number, topic, 2, number),
            PULLED % (topic, number, number),
        )[kind]
        read = read_json(text)
        found = templates.match(text, 0, len(text))
        if found is None:
            if read.topic or read.source:
                templates.learn(text, read)
        else:
            assert (repr(found).replace(f"opaque={found.opaque}", ""), templates.opaque) == (
                repr(read).replace(f"opaque={read.opaque}", ""),
                read.opaque,
            )


PIECES = [b'"', b"\\", b",", b":", b"{", b"}", b"\\u0022", b"\xe5", b"0", b"7", b" "]
PIECES += [b'"b":"x"', b'"m":"true"', b'"code":34', b'"flag":1', b'"opaque":1']


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), st.lists(st.sampled_from(PIECES), max_size=3)), min_size=1, max_size=3))
@settings(max_examples=400, deadline=None)
def test_whatever_is_done_to_a_header_its_topic_is_what_the_parser_reads(changes: list[tuple[int, int, list[bytes]]]) -> None:
    text = header_of(5, topic="other")
    for at, cut, pieces in changes:
        text = text[:at] + b"".join(pieces) + text[at + cut :]
    found = match(TWO, text)
    if found is not None:
        try:
            assert found == parsed(text)
        except ProtocolError:  # as above: the parser may be stricter about texts without meaning
            lenient = json.loads(re.sub(rb"\\.", b"..", text).decode(errors="replace"), strict=False)
            assert (lenient["code"], lenient["flag"], lenient["opaque"]) == (310, 0, found[0])
            assert (lenient["extFields"]["b"].encode(), lenient["extFields"]["a"], lenient["extFields"]["m"]) == (
                found[1],
                "producers",
                "false",
            )
