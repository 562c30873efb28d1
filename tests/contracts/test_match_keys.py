"""A key of a rule's match is one row; what follows from it is complete for each of them."""

from __future__ import annotations

import pytest

from admin.endpoints.limits import KEY_PARAMETERS
from cli.limits import get
from cli.rules import add
from cli.why import why
from config.rules import MatchText
from config.sections import settings_of
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.level_keys import LEVEL_WORDS
from limiter.rules.match import MATCH_KEYS, SENDER_KEYS, Match
from limiter.rules.matching import Matcher
from limiter.rules.rows import LISTENERS, NETWORK, MatchKey
from limiter.rules.sender import Sender
from limiter.rules.subject import Subject
from limiter.topics import topic_of_parts

each_key = pytest.mark.parametrize(("name", "key"), MATCH_KEYS.items(), ids=MATCH_KEYS)
SENT = {name: "10.0.0.7" if key.kind == NETWORK else "them" for name, key in SENDER_KEYS.items()}


def protocol_with(name: str) -> str:
    return next((names.name for names in PROTOCOL_NAMES.values() if name in names.match_fields), "amqp")


def test_what_a_sender_is_known_by_are_keys() -> None:
    assert set(SENDER_KEYS) == {*Sender._fields, "group"}  # which a request says, not a connection


@each_key
def test_each_is_a_setting_with_its_sentence(name: str, key: MatchKey) -> None:
    assert settings_of(MatchText)[name][1].doc == key.doc


@each_key
def test_each_completes_in_a_shell(name: str, key: MatchKey) -> None:
    asked = next(each for each in add.params if each.name == "matches")
    with add.make_context("add", ["storm"], resilient_parsing=True) as context:
        assert f"{name}=" in [each.value for each in asked.shell_complete(context, name[:2])]
        assert [each.value for each in asked.shell_complete(context, f"{name}=")] == [f"{name}={word}" for word in key.choices]
        for word in key.choices:
            begun = [f"{name}={each}" for each in key.choices if each.startswith(word[:3])]
            assert [each.value for each in asked.shell_complete(context, f"{name}={word[:3]}")] == begun


@pytest.mark.parametrize(("name", "key"), SENDER_KEYS.items(), ids=SENDER_KEYS)
def test_who_sends_can_be_asked_for(name: str, key: MatchKey) -> None:
    assert name in {each.name for each in KEY_PARAMETERS}
    for command in (get, why):
        assert name in {parameter.name for parameter in command.params}
    protocol = protocol_with(name)
    topic = topic_of_parts(protocol, [part.encode() for part in PROTOCOL_NAMES[protocol].example])
    group = SENT["group"].encode()
    of_them = Subject(topic, topic.text(), Sender(**{each: SENT[each] for each in Sender._fields}), group)
    of_nobody = Subject(topic, topic.text())
    matcher = Matcher(Match(protocol=protocol, **{name: SENT[name]}), "topic")
    assert matcher.matches(of_them)
    assert matcher.matches(of_nobody) == (key.kind == LISTENERS)
    assert not Matcher(Match(protocol=protocol, **{name: "192.0.2.1" if key.kind == NETWORK else "others"}), "topic").matches(of_them)


def test_each_protocol_and_each_kind_of_keys_has_known_ones_alone() -> None:
    for names in PROTOCOL_NAMES.values():
        assert set(names.match_fields) <= set(MATCH_KEYS)
    for word in LEVEL_WORDS.values():
        assert set(word.parts) <= set(MATCH_KEYS)
